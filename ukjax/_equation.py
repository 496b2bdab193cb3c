"""The Udwadia–Kalaba equation, and why it composes.

A system is the affine map from an applied force τ to an acceleration, q̈ = a + W τ, with W = M⁻¹. A constraint
A q̈ = b conditions that map, by Gauss's principle of least constraint, into another of the same kind:

    K = W Aᵀ (A W Aᵀ)⁺,      a' = a + K (b − A a),      W' = W − K A W.

This is M q̈ = Q + M^(1/2) B⁺ (b − A a), B = A M^(-1/2) (Udwadia & Kalaba, Proc. R. Soc. A 439 (1992) 407), written so
that it can be done again: constraints may be imposed one after the other, in any order, or stacked.
"""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ._check import as_array, check_finite, is_concrete, is_eager, kind_of
from ._check_terms import check_terms, check_unique, symmetric
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
from ._terms import Motion, Terms


def constrained_motion(terms: Terms, method: str | AbstractMethod = "orthogonal") -> Motion:
    """The motion that M, Q, A, b (and c) determine, and the forces of the constraints.

        M q̈ = Q + Qᶜ,    Qᶜ = M^(1/2) B⁺ (b − A a) + M^(1/2) (I − B⁺B) M^(-1/2) c

    Udwadia & Kalaba, J. Appl. Mech. 69 (2002) 335, eq. 26. M may be semidefinite as long as rank [M; A] = n
    (Udwadia & Phohomsiri 2006). Rows may be redundant. Rows that contradict each other get the least-squares motion,
    smallest \\|A q̈ − b\\| and then nearest to a in the metric of M, and are reported in ``inconsistency``.

    ``method`` is a name (``orthogonal``, ``cholesky``, ``svd``, ``kkt``, ``udwadia_phohomsiri``, ``sparse``) or a
    method object with its own tolerance. Derivatives of any order are exact at constant rank, forward and reverse;
    across a change of rank there is none.

    Rows mean what they say, in whatever unit. But a row of eps^0.9 of the largest (8e-15 in float64, 6e-7 in float32;
    both in coordinates of unit mass) is taken for what rounding has left of a row that vanishes, and left out: numbers
    alone cannot tell. On known values that is a warning, and always ``rank`` does not count it. ``simulate``, which
    knows what rows are computed from, looks closer. A row is dependent on others if what it adds to them is less than
    √eps of its own size (1.5e-8 in float64): it does not count, and where more than rounding is ignored so, that is a
    warning as well; a method object with an ``rtol`` of its own decides otherwise.

    Called on known values, raises ``ValueError`` for an M that is not symmetric or not positive semidefinite, for
    anything not finite, where the motion is not unique, and for rows that a method that needs independent ones cannot
    tell apart. Under ``jit`` and ``vmap`` such a motion is NaN.
    """
    method = choose(method)
    _check_terms(terms)
    if not is_eager(terms):
        return _motion_within(method, terms)[0]
    check_terms(terms)
    if isinstance(method, Sparse) and not method.bands:
        method = Sparse.of((np.asarray(terms.M), np.asarray(terms.A)))
    usual = method.usual()
    if usual is not None:
        motion, needs_fallback = _motion_now(usual, terms)
        if not needs_fallback:
            return motion
    motion, _ = _motion_now(method, terms)
    _warn_of_rounding(terms, method)
    check_unique(terms, np.asarray(motion.acceleration), type(method).__name__)
    if complaint := nearly_dependent(np.asarray(terms.M), np.asarray(terms.A), method, int(motion.rank)):
        warnings.warn(complaint, stacklevel=2)
    return motion


def _warn_of_rounding(terms, method):
    """Of the rows that are left out though they are not 0."""
    if not method.finds_rank:
        return
    least = rounding(terms.A.dtype) if method.least is None else method.least
    sizes = np.asarray(row_length(terms.A, coordinate_scale(terms.M)))
    left = np.flatnonzero((sizes > 0) & (sizes <= least * sizes.max(initial=0)))
    if left.size:
        warnings.warn(
            f"row {left[0]} of A is {sizes[left[0]] / sizes.max():.1g} of the largest, no more than the rounding of "
            "numbers, and is left out. If it is meant, multiply it and its b by a number that makes it as large as the "
            "others; if not, make it 0",
            stacklevel=3,
        )


def nearly_dependent(M: np.ndarray, A: np.ndarray, method: Any, rank: int | None = None) -> str:
    """What to say of rows that are left out by the usual tolerance, though rounding does not explain that they seem
    dependent; "" where there are none. ``rank`` is how many count, by default as many as the tolerance says."""
    if not method.finds_rank or method.rtol is not None:  # who gives a tolerance knows what it leaves out
        return ""
    A = A * coordinate_scale_by_numpy(M)
    length = np.linalg.norm(A, axis=1)
    real = length > rounding(A.dtype) * np.max(length, initial=0)
    shares = np.linalg.svd(A[real] / length[real, None], compute_uv=False)
    shares = shares / np.max(shares, initial=1e-30)
    clear = np.sort(shares[shares > doubtful(A.dtype)])
    rank = int(np.sum(shares > np.finfo(A.dtype).eps ** 0.5)) if rank is None else rank
    if clear.size <= rank or not np.all(np.isfinite(shares)):
        return ""
    return (
        f"the rows of A are nearly dependent: their rank is taken to be {rank}, and what tells them apart, "
        f"{clear[0]:.1g} of their size, is ignored. If it is meant, say so by a tolerance below it, "
        f"method=ukjax.{type(method).__name__}(rtol={10 ** np.floor(np.log10(clear[0]) - 0.5):.0e})"
    )


@jax.named_scope("constrained_motion")
@per_member
def motion_by(method: AbstractMethod, terms: Terms) -> tuple[Motion, Bool[Array, ""]]:
    """The motion as ``method`` finds it, and whether that may be wrong, since the system is beyond the method."""
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

    motion = Motion(
        acceleration=ideal + nonideal,
        constraint_force=ideal_force + nonideal_force,
        ideal_force=ideal_force,
        nonideal_force=nonideal_force,
        unconstrained=_unconstrained(M, Q),
        rank=response.rank,
        inconsistency=jnp.zeros((), b.dtype) if response.assumes_consistent else length(b - project_rhs(A, b, response)),
    )
    return motion, response.needs_fallback


_motion_within = jit_fast_compile(motion_by)


@jit_fast_compile
def _motion_now(method, terms):
    """The same for values: the matrices of one state are soonest done by LAPACK."""
    return without_kernels(motion_by)(method, terms)


class Mobility(eqx.Module):
    """A motion as the affine map from an applied force τ (n,) to the acceleration: q̈ = ``acceleration`` + W τ.

    ``matrix`` is W (n, n), the inverse mass that the constraints leave; ``factor`` F with F Fᵀ = W, a constant to
    differentiation, keeps the digits that forming W loses. ``scale`` (n,) is the size of a coordinate, by which a
    further row is judged to be new or already kept.
    """

    acceleration: Float[Array, " n"]
    matrix: Float[Array, "n n"]
    factor: Float[Array, "n n"]
    scale: Float[Array, " n"]


def mobility(terms: Terms, method: str | AbstractMethod = "orthogonal") -> Mobility:
    """The constrained motion of ``terms`` as a map that further forces and constraints can act on.

    The acceleration is that of ``constrained_motion``, W = M⁻¹ − K A M⁻¹. Raises ``ValueError`` for known values that
    are not finite, and an M that is not symmetric or not positive semidefinite.
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
    """``motion`` with the further constraint A q̈ = b, A (m, n), b (m,): a' = a + K (b − A a), W' = W − K A W.

    The constraints already in ``motion`` stay kept, whatever A is, and the result is that of stacking all rows.
    (Imposing the second set on the *unconstrained* M instead breaks the first: S. Han et al. 2020, eq. 25, does.)
    Where A asks for what the first constraints forbid, the first win and A is met in the least-squares sense.

    Raises ``ValueError`` if A or b do not fit the motion.
    """
    if not isinstance(motion, Mobility):
        raise ValueError(f"motion must be what ukjax.mobility or ukjax.compose returned, got {kind_of(motion)}")
    A, b = as_array("A", A), as_array("b", b)
    check_finite("A", A)
    check_finite("b", b)
    n = motion.acceleration.size
    if A.ndim != 2 or A.shape[1] != n:
        raise ValueError(f"A must have shape (m, {n}) to constrain a motion of {n} coordinates, got shape {A.shape}")
    if b.shape != A.shape[:1]:
        raise ValueError(f"b must have shape ({A.shape[0]},), one entry per row of A, got shape {b.shape}")
    a, W = motion.acceleration, motion.matrix

    # (A W Aᵀ)⁺ = (B⁺)ᵀ B⁺ from the rows of B = A F, not from A W Aᵀ, whose condition number is squared.
    A_fixed, F, scale = jax.lax.stop_gradient((A, motion.factor, motion.scale))
    rows = orthonormalise(A_fixed, F, row_scale(A_fixed, scale), jnp.sqrt(jnp.finfo(a.dtype).eps))
    each_row = jnp.eye(b.size, dtype=a.dtype)
    P = each_row + jax.vmap(rows.rhs_defect)(each_row)
    S_plus = jax.vmap(rows.dual_of)(P)

    def refined(products, known):
        y = S_plus @ known
        return y + S_plus @ (known - products(y))

    def multipliers(known):
        return jax.lax.custom_linear_solve(lambda y: A @ (W @ (y @ A)), known, refined, symmetric=True)

    inverse = DenseFactorisation(root=jnp.zeros_like(P), gain=S_plus, reachable=P, kept=rows.kept, rank=rows.rank)
    missing = project_rhs(A @ W @ A.T, b - A @ a, inverse)
    K = jax.vmap(lambda force: multipliers(A @ (W @ force)))(jnp.eye(n, dtype=a.dtype))  # row i: S⁺ A W eᵢ
    return Mobility(
        acceleration=a + W @ (multipliers(missing) @ A),
        matrix=W - (K @ A) @ W,
        factor=rows.factor(),
        scale=scale,
    )


def _check_terms(terms):
    if not isinstance(terms, Terms):
        raise ValueError(f"terms must be ukjax.Terms(M, Q, A, b), got {kind_of(terms)}")


def _unconstrained(M, Q):
    """M⁻¹Q, NaN where M is singular, with the derivative of a linear solve."""
    fixed = jax.lax.stop_gradient(M)
    size = jnp.sqrt(jnp.diagonal(fixed))
    scale = jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 1)
    F = scale[:, None] * inverse_cholesky(scale[:, None] * fixed * scale).T
    return jax.lax.custom_linear_solve(lambda x: M @ x, Q, lambda _, force: F @ (force @ F), symmetric=True)
