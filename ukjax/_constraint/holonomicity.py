"""Whether a constraint on velocities is one on positions in disguise: the theorem of Frobenius."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._check import as_array, as_number, check_finite, kind_of
from .._precision import Numbers
from .._solve import coordinate_scale, orthonormal_rows, row_scale
from .pfaffian import Pfaffian


class Holonomicity(eqx.Module):
    """``defect`` (m,): how far each row is from integrable, 0 for a row that is; ``holonomic``: whether all are.

    True at one point, or at many, only means that nothing there refutes it.
    """

    defect: Float[Array, " m"]
    holonomic: Bool[Array, ""]


def holonomicity(constraint: Pfaffian, t: Numbers, q: Numbers, tolerance: float | None = None) -> Holonomicity:
    """Frobenius's test of A(t, q) dq = c(t, q) dt at the point t, q (n,); ``vmap`` it over sample points.

    Time is taken as one more coordinate, with column −c. With J_r = ∂A_r/∂q and N a basis of the null space of A,
    the rows are together integrable, where the rank is constant, iff Nᵀ (J_rᵀ − J_r) N = 0 for every row r. The
    defect of row r is the norm \\|Nᵀ (J_rᵀ − J_r) N\\|_F / (√2 \\|A_r\\|). For a single row (α, β, γ) of three
    variables it is \\|α (β_z − γ_y) + β (γ_x − α_z) + γ (α_y − β_x)\\| / \\|(α, β, γ)\\|², the classical lemma
    (Zhao et al. 2018, Lemma 1). ``tolerance`` defaults to eps^(3/4) of the size of J.
    """
    if not isinstance(constraint, Pfaffian):
        raise ValueError(f"constraint must be a ukjax.Pfaffian, got {kind_of(constraint)}")
    t, q = as_number("t", t, "s"), as_array("q", q)
    if q.ndim != 1:
        raise ValueError(f"q must be one point of shape (n,), got shape {q.shape}; use jax.vmap for several")
    check_finite("q", q)
    if tolerance is not None:
        as_number("tolerance", tolerance, least=0)

    def rows(z):  # A dq − c dt as a form in z = (t, q)
        t, q = z[0], z[1:]
        none = jnp.zeros_like(q)
        return jnp.concatenate([constraint.velocity(t, q, none)[:, None], constraint.matrix(t, q, none)], axis=1)

    z = jnp.concatenate([t[None].astype(q.dtype), q])
    A, J = rows(z), jax.jacfwd(rows)(z)
    ones = coordinate_scale(jnp.eye(z.size, dtype=z.dtype))
    V = orthonormal_rows(row_scale(A, ones)[:, None] * A, jnp.sqrt(jnp.finfo(z.dtype).eps)).V
    free = jnp.eye(z.size, dtype=z.dtype) - V.T @ V  # N Nᵀ: the norm is the same, the shape does not depend on rank
    curl = free @ (J.transpose(0, 2, 1) - J) @ free
    length = jnp.linalg.norm(A, axis=1)
    length = jnp.where(length > 0, length, 1)
    defect = jnp.linalg.norm(curl, axis=(1, 2)) / (jnp.sqrt(2.0) * length)
    if tolerance is None:
        size = jnp.max(jnp.linalg.norm(J, axis=(1, 2)) / length, initial=1)
        return Holonomicity(defect, jnp.all(defect <= jnp.finfo(z.dtype).eps ** 0.75 * size))
    return Holonomicity(defect, jnp.all(defect <= tolerance))
