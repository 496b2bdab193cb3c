"""Test by Frobenius's theorem whether a constraint on velocities can be integrated to one on positions."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._check import as_array, as_number, check_finite, kind_of
from .._errors import InputError
from .._precision import Numbers
from .._solve import coordinate_scale, orthonormal_rows, row_scale
from .pfaffian import Pfaffian


class Holonomicity(eqx.Module):
    """Result of ``holonomicity`` at one point.

    Attributes
    ----------
    defect
        Distance of each row from integrability (m,); 0 for an integrable row.
    holonomic
        Whether all rows are integrable. True at one point, or at many, does not prove it elsewhere.
    """

    defect: Float[Array, " m"]
    holonomic: Bool[Array, ""]


def holonomicity(constraint: Pfaffian, t: Numbers, q: Numbers, tolerance: float | None = None) -> Holonomicity:
    """Test at one point whether A(t, q) dq = c(t, q) dt is integrable, by Frobenius's theorem.

    Time is treated as one more coordinate, with column −c. With J_r = ∂A_r/∂q and N a basis of the null space of A,
    the rows are together integrable, where the rank is constant, iff Nᵀ (J_rᵀ − J_r) N = 0 for every row r. The
    defect of row r is the norm \\|Nᵀ (J_rᵀ − J_r) N\\|_F / (√2 \\|A_r\\|). For a single row (α, β, γ) of three
    variables it is \\|α (β_z − γ_y) + β (γ_x − α_z) + γ (α_y − β_x)\\| / \\|(α, β, γ)\\|², the classical lemma
    (Zhao et al. 2018, Lemma 1).

    Parameters
    ----------
    constraint
        The constraint, with A (m, n) and c (m,).
    t
        Time [s].
    q
        The point (n,). Use ``jax.vmap`` for several points.
    tolerance
        Largest defect of an integrable row. Default: eps^(3/4) max(1, \\|J_r\\|_F / \\|A_r\\|), with the maximum over
        the rows.

    Returns
    -------
    Holonomicity
        ``defect`` (m,) and ``holonomic``.

    Raises
    ------
    InputError
        If ``constraint`` is not a ``Pfaffian``, q is not one finite point, or ``tolerance`` is negative.
    """
    if not isinstance(constraint, Pfaffian):
        raise InputError(f"constraint must be a ukjax.Pfaffian, got {kind_of(constraint)}")
    t, q = as_number("t", t, "s"), as_array("q", q)
    if q.ndim != 1:
        raise InputError(f"q must be one point of shape (n,), got shape {q.shape}; use jax.vmap for several")
    check_finite("q", q)
    if tolerance is not None:
        as_number("tolerance", tolerance, least=0)

    def rows(z):  # A dq − c dt as a form in z = (t, q)
        t, q = z[0], z[1:]
        zeros = jnp.zeros_like(q)
        return jnp.concatenate([constraint.velocity(t, q, zeros)[:, None], constraint.matrix(t, q, zeros)], axis=1)

    z = jnp.concatenate([t[None].astype(q.dtype), q])
    A, J = rows(z), jax.jacfwd(rows)(z)
    ones = coordinate_scale(jnp.eye(z.size, dtype=z.dtype))
    V = orthonormal_rows(row_scale(A, ones)[:, None] * A, jnp.sqrt(jnp.finfo(z.dtype).eps)).V
    # N Nᵀ in the place of N: the norm is the same, and the shape does not depend on the rank.
    free = jnp.eye(z.size, dtype=z.dtype) - V.T @ V
    curl = free @ (J.transpose(0, 2, 1) - J) @ free
    row_norm = jnp.linalg.norm(A, axis=1)
    row_norm = jnp.where(row_norm > 0, row_norm, 1)
    defect = jnp.linalg.norm(curl, axis=(1, 2)) / (jnp.sqrt(2.0) * row_norm)
    if tolerance is None:
        size = jnp.max(jnp.linalg.norm(J, axis=(1, 2)) / row_norm, initial=1)
        return Holonomicity(defect, jnp.all(defect <= jnp.finfo(z.dtype).eps ** 0.75 * size))
    return Holonomicity(defect, jnp.all(defect <= tolerance))
