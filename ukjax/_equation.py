"""The Udwadia–Kalaba equation and the composition of constraints.

A system is an affine map from an applied force τ to an acceleration, q̈ = a + W τ, with W = M⁻¹. By Gauss's principle
of least constraint, a constraint A q̈ = b turns this map into another affine map:

    K = W Aᵀ (A W Aᵀ)⁺,      a' = a + K (b − A a),      W' = W − K A W.

This is M q̈ = Q + M^(1/2) B⁺ (b − A a), B = A M^(-1/2) (Udwadia & Kalaba, Proc. R. Soc. A 439 (1992) 407), written so
that it can be repeated: constraints may be imposed one after the other, in any order, or stacked.
"""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ._check import as_array, check_finite, kind_of
from ._check_terms import check_terms, check_unique, symmetric
from ._errors import InputError
from ._jaxpr.tracing import is_concrete, is_eager
from ._kernel import per_member, without_kernels
from ._norm import length
from ._precision import Numbers
from ._run.compile import jit_fast_compile
from ._solve import (
    AbstractMethod,
    DenseFactorisation,
    Sparse,
    choose,
    coordinate_scale,
    coordinate_scale_by_numpy,
    doubtful,
    inverse_cholesky,
    orthonormalise,
    project_rhs,
    rounding,
    row_length,
    row_scale,
    solve,
)
from ._terms import ConstrainedMotion, Terms


def constrained_motion(terms: Terms, method: str | AbstractMethod = "orthogonal") -> ConstrainedMotion:
    """Return the constrained acceleration for M, Q, A, b (and c), and the constraint forces.

        M q̈ = Q + Qᶜ,    Qᶜ = M^(1/2) B⁺ (b − A a) + M^(1/2) (I − B⁺B) M^(-1/2) c

    Udwadia & Kalaba, J. Appl. Mech. 69 (2002) 335, eq. 26. M may be semidefinite if rank [M; A] = n (Udwadia &
    Phohomsiri 2006). Rows may be redundant. For inconsistent rows the result is the least-squares motion: the smallest
    \\|A q̈ − b\\|, and among these the q̈ nearest to a in the metric of M; ``inconsistency`` reports it.

    Derivatives of any order, forward and reverse, are exact at constant rank. They do not exist where the rank changes.

    Parameters
    ----------
    terms
        M, Q, A, b and, optionally, c.
    method
        A name (``orthogonal``, ``cholesky``, ``svd``, ``kkt``, ``udwadia_phohomsiri``, ``sparse``) or a method object
        with its own tolerances.

    Returns
    -------
    ConstrainedMotion
        q̈, the constraint forces, the rank of A, and the part of b that no acceleration satisfies.

    Raises
    ------
    InputError
        For concrete values: if M is not symmetric or not positive semidefinite, if a term is not finite, if the motion
        is not unique, or if the method needs independent rows and the rows are dependent. Under ``jit`` and ``vmap``
        the result is NaN instead.

    Notes
    -----
    The result does not depend on the units of the rows. A row no longer than eps^0.9 of the longest row (8e-15 in
    float64, 6e-7 in float32; in coordinates of unit mass) cannot be distinguished from the rounding error of a zero
    row. It is ignored, ``rank`` does not count it, and for concrete values there is a warning. ``simulate`` checks such
    rows further, since it evaluates the functions of the rows. A row is dependent if its component orthogonal to the
    rows before it is shorter than √eps of the row (1.5e-8 in float64). A dependent row is ignored, with a warning if
    this component is larger than rounding errors. A method object with ``rtol`` uses that tolerance instead.
    """
    method = choose(method)
    _check_terms(terms)
    if not is_eager(terms):
        return _motion_within(method, terms)[0]
    check_terms(terms)
    if isinstance(method, Sparse) and not method.bands:
        method = Sparse.of((np.asarray(terms.M), np.asarray(terms.A)))
    usual = method.fast_path()
    if usual is not None:
        motion, needs_fallback = _motion_now(usual, terms)
        if not needs_fallback:
            return motion
    motion, _ = _motion_now(method, terms)
    _warn_of_ignored_rows(terms, method)
    check_unique(terms, np.asarray(motion.acceleration), type(method).__name__)
    if complaint := nearly_dependent(np.asarray(terms.M), np.asarray(terms.A), method, int(motion.rank)):
        warnings.warn(complaint, stacklevel=2)
    return motion


def _warn_of_ignored_rows(terms, method):
    """Warn about rows that are nonzero but ignored as rounding errors."""
    if not method.finds_rank:
        return
    least = rounding(terms.A.dtype) if method.least is None else method.least
    lengths = row_length(np.asarray(terms.A), coordinate_scale_by_numpy(np.asarray(terms.M)), np)
    ignored = np.flatnonzero((lengths > 0) & (lengths <= least * lengths.max(initial=0)))
    if ignored.size:
        warnings.warn(
            f"row {ignored[0]} of A is {lengths[ignored[0]] / lengths.max():.1g} of the largest, not larger than a "
            "rounding error, and is left out. If it is intended, scale it and its b to the size of the other rows; "
            "otherwise set it to 0",
            stacklevel=3,
        )


def nearly_dependent(M: np.ndarray, A: np.ndarray, method: Any, rank: int | None = None) -> str:
    """Return a warning text if rows are dependent by the default tolerance but not by rounding, else "".

    ``rank`` is the number of independent rows, by default determined with that tolerance.
    """
    if not method.finds_rank or method.rtol is not None:  # an explicit tolerance needs no warning
        return ""
    A = A * coordinate_scale_by_numpy(M)
    length = np.linalg.norm(A, axis=1)
    nonzero = length > rounding(A.dtype) * np.max(length, initial=0)
    singular_values = np.linalg.svd(A[nonzero] / length[nonzero, None], compute_uv=False)
    singular_values = singular_values / np.max(singular_values, initial=1e-30)
    significant = np.sort(singular_values[singular_values > doubtful(A.dtype)])
    rank = int(np.sum(singular_values > np.finfo(A.dtype).eps ** 0.5)) if rank is None else rank
    if significant.size <= rank or not np.all(np.isfinite(singular_values)):
        return ""
    return (
        f"the rows of A are nearly dependent: their rank is taken to be {rank}, and independent parts of "
        f"{significant[0]:.1g} of their size are ignored. If they are intended, use a tolerance below this size, "
        f"method=ukjax.{type(method).__name__}(rtol={10 ** np.floor(np.log10(significant[0]) - 0.5):.0e})"
    )


@jax.named_scope("constrained_motion")
@per_member
def motion_by(method: AbstractMethod, terms: Terms) -> tuple[ConstrainedMotion, Bool[Array, ""]]:
    """Solve by ``method``. Returns the motion and whether it may be wrong, so that a fallback is needed."""
    terms = terms.in_one_precision()
    M, Q, A, b = symmetric(terms.M), terms.Q, terms.A, terms.b
    response = method.factorise(*jax.lax.stop_gradient((M, A)))

    ideal = solve(M, A, Q, b, response)
    ideal_force = M @ ideal - Q
    if terms.c is None:
        nonideal, nonideal_force = jnp.zeros_like(Q), jnp.zeros_like(Q)
    else:
        nonideal = solve(M, A, terms.c, jnp.zeros_like(b), response)
        nonideal_force = M @ nonideal

    motion = ConstrainedMotion(
        acceleration=ideal + nonideal,
        constraint_force=ideal_force + nonideal_force,
        ideal_force=ideal_force,
        nonideal_force=nonideal_force,
        unconstrained=_unconstrained(M, Q),
        rank=response.rank,
        inconsistency=jnp.zeros((), b.dtype)
        if response.assumes_consistent
        else length(b - project_rhs(A, b, response)),
    )
    return motion, response.needs_fallback


_motion_within = jit_fast_compile(motion_by)


@jit_fast_compile
def _motion_now(method, terms):
    """``motion_by`` for concrete values: LAPACK is fastest for the matrices of a single state."""
    return without_kernels(motion_by)(method, terms)


class Mobility(eqx.Module):
    """Affine map from an applied force τ (n,) to the constrained acceleration: q̈ = ``acceleration`` + W τ.

    Attributes
    ----------
    acceleration
        (n,) the acceleration for τ = 0.
    matrix
        W (n, n), the constrained inverse mass matrix.
    factor
        F (n, n) with F Fᵀ = W. It keeps digits that are lost in forming W, and is constant under differentiation.
    scale
        (n,) scale of each coordinate, used to decide whether a further row is independent of the rows imposed before.
    """

    acceleration: Float[Array, " n"]
    matrix: Float[Array, "n n"]
    factor: Float[Array, "n n"]
    scale: Float[Array, " n"]


def mobility(terms: Terms, method: str | AbstractMethod = "orthogonal") -> Mobility:
    """Return the constrained motion of ``terms`` as an affine map, to which further constraints can be added.

    The acceleration is that of ``constrained_motion``, and W = M⁻¹ − K A M⁻¹.

    Parameters
    ----------
    terms
        M, Q, A, b and, optionally, c.
    method
        Name of a solver or a solver object, see ``constrained_motion``.

    Returns
    -------
    Mobility
        The acceleration (n,) without a further force, and W (n, n).

    Raises
    ------
    InputError
        For concrete values, if a term is not finite, or M is not symmetric or not positive semidefinite.
    """
    method = choose(method)
    _check_terms(terms)
    if is_concrete(terms):
        check_terms(terms)
    M, A, b = symmetric(terms.M), terms.A, terms.b
    Q = terms.Q if terms.c is None else terms.Q + terms.c
    response = method.factorise(*jax.lax.stop_gradient((M, A)))
    return Mobility(
        acceleration=solve(M, A, Q, b, response),
        matrix=jax.vmap(lambda force: solve(M, A, force, jnp.zeros_like(b), response))(jnp.eye(Q.size, dtype=Q.dtype)),
        factor=jax.lax.stop_gradient(response.factor()),
        scale=jax.lax.stop_gradient(coordinate_scale(M)),
    )


def compose(motion: Mobility, A: Numbers, b: Numbers) -> Mobility:
    """Add the constraint A q̈ = b to ``motion``: a' = a + K (b − A a), W' = W − K A W, with K = W Aᵀ (A W Aᵀ)⁺.

    The constraints already in ``motion`` remain satisfied for any A, and the result is that of stacking all rows.
    (Imposing the second set on the *unconstrained* M, as in S. Han et al. 2020, eq. 25, violates the first set.)
    If A q̈ = b contradicts the first constraints, these have priority and A q̈ = b is solved by least squares.

    Parameters
    ----------
    motion
        Result of ``mobility`` or ``compose``.
    A, b
        Rows (m, n) and right-hand side (m,) of the further constraint.

    Returns
    -------
    Mobility
        a' (n,) and W' (n, n), with the further constraint.

    Raises
    ------
    InputError
        If A or b is not finite or does not fit ``motion``.
    """
    if not isinstance(motion, Mobility):
        raise InputError(f"motion must be what ukjax.mobility or ukjax.compose returned, got {kind_of(motion)}")
    A, b = as_array("A", A), as_array("b", b)
    check_finite("A", A)
    check_finite("b", b)
    n = motion.acceleration.size
    if A.ndim != 2 or A.shape[1] != n:
        raise InputError(f"A must have shape (m, {n}) to constrain a motion of {n} coordinates, got shape {A.shape}")
    if b.shape != A.shape[:1]:
        raise InputError(f"b must have shape ({A.shape[0]},), one entry per row of A, got shape {b.shape}")
    a, W = motion.acceleration, motion.matrix

    # (A W Aᵀ)⁺ = (B⁺)ᵀ B⁺ from the rows of B = A F, not from A W Aᵀ, whose condition number is squared.
    A_fixed, F, scale = jax.lax.stop_gradient((A, motion.factor, motion.scale))
    rows = orthonormalise(A_fixed, F, row_scale(A_fixed, scale), jnp.sqrt(jnp.finfo(a.dtype).eps))
    identity = jnp.eye(b.size, dtype=a.dtype)
    P = identity + jax.vmap(rows.rhs_defect)(identity)
    S_plus = jax.vmap(rows.dual_of)(P)

    def solve_refined(products, rhs):
        y = S_plus @ rhs
        return y + S_plus @ (rhs - products(y))

    def multipliers(rhs):
        return jax.lax.custom_linear_solve(lambda y: A @ (W @ (y @ A)), rhs, solve_refined, symmetric=True)

    inverse = DenseFactorisation(root=jnp.zeros_like(P), gain=S_plus, reachable=P, kept=rows.kept, rank=rows.rank)
    defect = project_rhs(A @ W @ A.T, b - A @ a, inverse)
    K = jax.vmap(lambda force: multipliers(A @ (W @ force)))(jnp.eye(n, dtype=a.dtype))  # row i: S⁺ A W eᵢ
    return Mobility(
        acceleration=a + W @ (multipliers(defect) @ A),
        matrix=W - (K @ A) @ W,
        factor=rows.factor(),
        scale=scale,
    )


def _check_terms(terms):
    if not isinstance(terms, Terms):
        raise InputError(f"terms must be ukjax.Terms(M, Q, A, b), got {kind_of(terms)}")


def _unconstrained(M, Q):
    """Return M⁻¹Q, NaN if M is singular, with the derivative of a linear solve."""
    M_fixed = jax.lax.stop_gradient(M)
    size = jnp.sqrt(jnp.diagonal(M_fixed))
    scale = jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 1)
    F = scale[:, None] * inverse_cholesky(scale[:, None] * M_fixed * scale).T
    return jax.lax.custom_linear_solve(lambda x: M @ x, Q, lambda _, force: F @ (force @ F), symmetric=True)
