"""Fast method for the usual case: M is positive definite and the independent rows are known.

M = L Lᵀ is factorised by Cholesky, and the rows B = A L⁻ᵀ by QR (one system, LAPACK) or by Cholesky of B Bᵀ (batches
and kernels, elementary arithmetic). The factorisation reports when its result may be wrong.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._kernel import arithmetic_or_library
from .base import AbstractFactorisation, AbstractMethod
from .kernels import Triangle, cholesky
from .scales import coordinate_scale, coordinate_scale_by_numpy, doubtful, row_scale

SINGULAR_PIVOT = 1e-8
"""Ratio of a pivot of M to its diagonal entry, at or below which M counts as singular or nearly singular."""

INDEPENDENCE_EXPONENT = 3 / 8
"""Rows are clearly independent in a factorisation of B Bᵀ if the component of each row that is orthogonal to the
rows before it has a squared length of at least eps^INDEPENDENCE_EXPONENT times that of the row. In float64 this is an
angle of 1e-3, where the factors still have nine digits."""

MAX_RUNTIME_ROWS = 512
"""Largest number of rows whose selection is an argument of the program. For more rows it is compiled in."""

MAX_SINGLE_THREAD_ENTRIES = 1000
"""Largest number of entries of right-hand sides for which OpenBLAS solves in the calling thread."""

MAX_UNROLLED_CALLS = 8
"""Largest number of LAPACK calls that are unrolled. More calls run in a loop, which has its own overhead."""

MAX_SCALE_RATIO = 30
"""Largest ratio between the scales of coordinates in which rows have unit length. The scale of a coordinate that is
almost massless, such as a component of a quaternion, would make all rows with this coordinate almost parallel. For the
governor, whose scales differ by 500, a ratio of 1000 fails away from the start, and 100 does not."""


class RuntimeRows(NamedTuple):
    """Settings of ``FastPath`` that are arguments of a compiled program, so that they can change between runs.

    Attributes
    ----------
    weight
        Factor w of M + w RᵀR, which replaces a singular M. R are the rows A, each with unit length in coordinates
        scaled by their masses: so the units of the rows have no effect.
    order, count
        The active rows are the first ``count`` of ``order``. ``order`` has a fixed length, because the number of rows
        is not yet known when this record is made; surplus entries are not used.
    least, rtol
        Limits of ``FastPath``.
    """

    weight: Float[Array | np.ndarray, ""]
    order: Int[Array | np.ndarray, " most"]
    count: Int[Array | np.ndarray, ""]
    least: Float[Array | np.ndarray, ""]
    rtol: Float[Array | np.ndarray, ""]

    @classmethod
    def of(
        cls,
        weight: float,
        kept: tuple[int, ...] | None,
        dtype: np.dtype,
        least: Array | np.ndarray | float | None = None,
        rtol: Array | np.ndarray | float | None = None,
    ) -> "RuntimeRows":
        """Make the record for the active rows ``kept``, all rows if None. ``least`` and ``rtol`` have the default
        limits."""
        active = np.arange(MAX_RUNTIME_ROWS) if kept is None else np.array(kept, int)
        order = np.append(active, np.delete(np.arange(MAX_RUNTIME_ROWS), active))
        least = doubtful(dtype) if least is None else least
        rtol = float(np.finfo(dtype).eps) ** 0.5 if rtol is None else rtol
        numbers = (weight, dtype), (order, np.int32), (active.size, np.int32), (least, dtype), (rtol, dtype)
        return cls(*(np.asarray(x, type_) for x, type_ in numbers))


def row_limits(method: "FastPath", dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return ``least`` and ``rtol`` of a method as arrays, so that other values do not recompile a program."""
    least = doubtful(dtype) if method.least is None else method.least
    rtol = float(np.finfo(dtype).eps) ** 0.5 if method.rtol is None else method.rtol
    return np.asarray(least, dtype), np.asarray(rtol, dtype)


class FastPath(AbstractMethod):
    """Solve by factors of M = L Lᵀ and of the rows B = A L⁻ᵀ. It is tried before the other methods.

    It compiles and runs fast but does not solve every system. ``FastFactorisation.needs_fallback`` is True, and the
    result may be wrong, if M is nearly singular, if the component of a row orthogonal to the rows before it is smaller
    than ``rtol`` of the row, or if a row is no larger than ``least`` of the largest row, so that it may be a rounding
    error. Every b is assumed to lie in the range of A.

    A single system is solved by LAPACK with Bᵀ = V R. Batches and kernels use B Bᵀ = C Cᵀ with iterative refinement;
    these factors keep the sparsity of the mechanism.

    Attributes
    ----------
    rtol, least
        The limits above. The defaults are √eps and ``doubtful``.
    kept
        Indices of the active rows, all rows if None. The other rows must be combinations of them.
    weight
        If given, M + ``weight`` RᵀR replaces M, which may then be singular: see ``RuntimeRows``.
    runtime_rows
        If given, it overrides ``kept``, ``weight`` and the limits; these are otherwise compiled into the program.
    assumes
        True if a batch assumes the usual branch of every conditional. ``needs_fallback`` is also True where another
        branch would change the result.
    """

    rtol: Float[Array | np.ndarray, ""] | float | None = None
    runtime_rows: RuntimeRows | None = None
    assumes: bool = eqx.field(static=True, default=False)
    weight: float | None = eqx.field(static=True, default=None)
    kept: tuple[int, ...] | None = eqx.field(static=True, default=None)
    least: Float[Array | np.ndarray, ""] | float | None = None
    finds_rank: ClassVar[bool] = False

    @property
    def drops_rows(self) -> bool:
        """Whether some rows may be inactive."""
        return self.runtime_rows is not None or self.kept is not None

    def with_active_rows(self, kept: Bool[Array, " m"]) -> "FastPath":
        return self

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "FastFactorisation":
        m, n = A.shape
        weight = self.weight if self.runtime_rows is None else self.runtime_rows.weight
        weights = None
        if weight is not None:
            weight = jnp.asarray(weight, M.dtype)
            if self.runtime_rows is None:
                M, weights = _with_rows(M, A, weight)
            else:  # for weight 0, the product would cost as much as the solution of a large system
                unchanged = lambda M, A, weight: (M, jnp.zeros(m, M.dtype))
                M, weights = jax.lax.cond(weight != 0, _with_rows, unchanged, M, A, weight)
        rows = self._rows(m)
        A = rows.take(A)[:n]  # at most n rows are independent
        # Eliminate the coordinates in reverse order. The coordinates of the outer bodies of a mechanism come last, and
        # in this order the zeros between its branches are not filled (Featherstone, Rigid Body Dynamics Algorithms,
        # 2008, section 6.5).
        M, A = M[::-1, ::-1], A[:, ::-1]
        rtol = jnp.finfo(M.dtype).eps ** 0.5 if self.rtol is None else self.rtol
        rtol = rtol if self.runtime_rows is None else self.runtime_rows.rtol
        active = rows.active(len(A))
        least = doubtful(M.dtype) if self.least is None else self.least
        least = least if self.runtime_rows is None else self.runtime_rows.least
        limits = jnp.asarray(rtol, M.dtype), jnp.asarray(least, M.dtype)
        *factors, needs_fallback = arithmetic_or_library(
            _factorise_by_products, _factorise_by_lapack, M, A, active, *limits
        )
        needs_fallback = needs_fallback | rows.exceeds(n)
        return FastFactorisation(Factors(*factors), needs_fallback, weights, rows, m)  # pyright: ignore[reportCallIssue]

    def _rows(self, m: int) -> "StaticRows | PermutedRows":
        if self.runtime_rows is not None and 1 < m <= MAX_RUNTIME_ROWS:
            return PermutedRows(*map(jnp.asarray, (self.runtime_rows.order[:m], self.runtime_rows.count)))
        return StaticRows(m, self.kept)


class StaticRows(eqx.Module):
    """Active rows that are fixed at compile time."""

    size: int = eqx.field(static=True)
    kept: tuple[int, ...] | None = eqx.field(static=True)

    def take(self, x: Float[Array, " m *k"]) -> Float[Array, " l *k"]:
        """Return the entries of x for the active rows."""
        return x if self.kept is None else x[np.array(self.kept, int)]

    def put(self, x: Float[Array, " l"]) -> Float[Array, " m"]:
        """Inverse of ``take``, with 0 for inactive rows."""
        if self.kept is None:
            return jnp.pad(x, (0, self.size - x.size))
        return jnp.zeros(self.size, x.dtype).at[np.array(self.kept, int)[: x.size]].set(x)

    def active(self, size: int) -> None:
        """Return None: all entries that ``take`` returns are active."""

    def exceeds(self, n: int) -> bool:
        """Whether more than n rows are active."""
        return self.size > n and self.kept is None

    def all(self) -> Bool[Array, " m"]:
        """Return the mask of active rows."""
        return jnp.asarray(np.ones(self.size, bool) if self.kept is None else np.isin(range(self.size), self.kept))


class PermutedRows(eqx.Module):
    """Active rows that are chosen at run time: the first ``count`` of ``order``."""

    order: Int[Array, " m"]
    count: Int[Array, ""]

    def take(self, x: Float[Array, " m *k"]) -> Float[Array, " m *k"]:
        """Return x in the order of ``order``, with 0 for inactive rows."""
        active = self.active(self.order.size)
        return jnp.where(active.reshape(-1, *(1,) * (x.ndim - 1)), x[self.order], 0)

    def put(self, x: Float[Array, " l"]) -> Float[Array, " m"]:
        """Inverse of ``take``, with 0 for inactive rows."""
        x = jnp.where(self.active(x.size), x, 0)
        return jnp.zeros(self.order.shape, x.dtype).at[self.order[: x.size]].set(x)

    def active(self, size: int) -> Bool[Array, " l"]:
        """Return the mask of active entries among the first ``size`` that ``take`` returns."""
        return jnp.asarray(np.arange(size)) < self.count

    def exceeds(self, n: int) -> Bool[Array, ""]:
        """Whether more than n rows are active."""
        return jnp.minimum(self.count, self.order.size) > n

    def all(self) -> Bool[Array, " m"]:
        """Return the mask of active rows."""
        return jnp.zeros(self.order.shape, bool).at[self.order].set(self.active(self.order.size))


class Factors(NamedTuple):
    """Factors for the coordinates in reverse order.

    If ``by_library``: L, V and R of M = L Lᵀ and Bᵀ = V R, from LAPACK. Otherwise: L, Bᵀ and C of B Bᵀ = C Cᵀ, with the
    diagonals of L and C inverted.
    """

    L: Float[Array, "n n"]
    W: Float[Array, "n k"]
    R: Float[Array, "k k"]
    by_library: Bool[Array, ""]

    def for_arithmetic(self) -> "Factors":
        """Convert to the second form: factors of a single system may be used in a batch."""
        choose = lambda x, y: jnp.where(self.by_library, x, y)
        L, C = choose(_with_inverted_diagonal(self.L), self.L), choose(_with_inverted_diagonal(self.R.T), self.R)
        return Factors(L, choose(self.W @ self.R, self.W), C, jnp.asarray(False))


class FastFactorisation(AbstractFactorisation):
    """Factorisation of ``FastPath``. ``rows`` are the active rows, ``size`` is the number of all rows. With the
    ``weights`` w of all rows, the factors are those of M + Aᵀ diag(w) A."""

    factors: Factors
    needs_fallback: Bool[Array, ""]
    weights: Float[Array, " m"] | None
    rows: StaticRows | PermutedRows
    size: int = eqx.field(static=True)
    assumes_consistent: ClassVar[bool] = True

    @property
    def kept(self) -> Bool[Array, " m"]:
        return self.rows.all()

    @property
    def rank(self) -> Int[Array, ""]:
        return jnp.sum(self.kept)

    def motion_and_multipliers(
        self, M: Float[Array, "n n"], force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        rhs = self.rows.take(rows)[: len(self.factors.R)]
        x, nu = arithmetic_or_library(_solve_by_products, _solve_by_lapack, force[::-1], rhs, made=(self.factors,))
        x, nu = x[::-1], self.rows.put(nu)
        return x, nu if self.weights is None else nu + self.weights * rows  # weights add Aᵀ diag(w) rows to the force

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.motion_and_multipliers(self.factors.L, force, rows)[0]

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.motion_and_multipliers(self.factors.L, force, jnp.zeros(self.size, force.dtype))[1]

    def independence(self, M: Any, A: Any) -> Float[Array, ""]:
        _, W, R, by_library = self.factors
        diagonal = jnp.abs(jnp.diagonal(R))
        if diagonal.size < 2:
            return jnp.asarray(jnp.inf, R.dtype)
        active = self.rows.active(diagonal.size)
        active = jnp.ones(diagonal.size, bool) if active is None else active
        square = jnp.where(by_library, jnp.sum(R**2, axis=0), jnp.sum(W**2, axis=0))
        longest = jnp.sqrt(jnp.max(jnp.where(active, square, 0)))
        own = jnp.where(by_library, diagonal, 1 / diagonal)
        return jnp.min(jnp.where(active, own, jnp.inf)) / longest

    def rhs_defect(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return jnp.zeros_like(rows)

    def factor(self) -> Float[Array, "n n"]:
        L = jnp.where(self.factors.by_library, self.factors.L, _with_inverted_diagonal(self.factors.L))[::-1]
        zeros = jnp.zeros(self.size, L.dtype)
        W = jax.vmap(lambda force: self.motion(force, zeros))(jnp.eye(len(L), dtype=L.dtype))
        return W @ L  # W M W = W


def _with_rows(M, A, weight):
    """M + ``weight`` RᵀR, see ``RuntimeRows``; and the weight of each row of A."""
    coordinate = coordinate_scale(M)
    coordinate = jnp.minimum(coordinate, MAX_SCALE_RATIO * jnp.min(coordinate))
    weights = weight * row_scale(A, coordinate) ** 2
    return M + A.T @ (weights[:, None] * A), weights


def is_nearly_singular(M: Float[np.ndarray, "n n"]) -> bool:
    """Whether a symmetric positive semidefinite M is singular or nearly singular."""
    mass = np.diagonal(M)
    if not np.all(mass > 0):
        return True
    try:
        L = np.linalg.cholesky(M / np.sqrt(np.outer(mass, mass)))
    except np.linalg.LinAlgError:
        return True
    return bool(np.min(np.diagonal(L), initial=1) ** 2 <= SINGULAR_PIVOT)


def independent_rows(
    M: Float[np.ndarray, "n n"], A: Float[np.ndarray, "m n"], rtol: float, least: float = 0.0
) -> tuple[int, ...] | None:
    """Return the indices, in increasing order, of a maximal set of independent rows of A, chosen by pivoted QR.

    Returns None if M + Aᵀ A is not positive definite. Rows no longer than ``least`` of the longest row count as 0.
    """
    import scipy.linalg

    coordinate = coordinate_scale_by_numpy(M)
    B = coordinate[:, None] * A.T
    length = np.linalg.norm(B, axis=0)
    B = np.where(length > least * np.max(length, initial=0), B, 0) / np.where(length > 0, length, 1)
    M = coordinate[:, None] * M * coordinate
    try:
        L = np.linalg.cholesky(M + B @ B.T if is_nearly_singular(M) else M)
    except np.linalg.LinAlgError:
        return None
    # By BLAS: the LAPACK routine would wake threads, which spin for a while.
    (solve,) = scipy.linalg.get_blas_funcs(("trsm",), (L, B))
    B = solve(1, L, B, lower=True)
    length = np.linalg.norm(B, axis=0)
    # Prefer the first of equal rows, so that rounding does not decide: nearby motions should drop the same rows.
    preference = np.linspace(1, 0.9, length.size)
    R, order = scipy.linalg.qr(preference * B / np.where(length > 0, length, 1), mode="r", pivoting=True)  # pyright: ignore
    rank = int(np.sum(np.abs(np.diagonal(R)) > rtol))
    return tuple(sorted(int(i) for i in order[:rank]))


# --- one system, by LAPACK ---


def _factorise_by_lapack(M, A, active, rtol, least):
    L = jax.lax.linalg.cholesky(M, symmetrize_input=False)
    identity = np.eye(len(M), dtype=M.dtype)
    definite = jnp.all(jnp.sum((L**2 - SINGULAR_PIVOT * M) * identity, axis=0) > 0)  # on the diagonal; False for NaN
    if not A.size:
        return L, A.T, jnp.zeros((0, 0), M.dtype), jnp.asarray(True), ~definite
    B_transposed = _forward_substitution(L, A.T)
    V, R = jnp.linalg.qr(B_transposed)
    squared_length = jnp.sum(B_transposed**2, axis=0)
    identity = np.eye(len(R), dtype=R.dtype)
    independent = (jnp.sum(R**2 * identity, axis=0) > rtol**2 * squared_length) & (
        squared_length > least**2 * jnp.max(squared_length, initial=0)
    )
    if active is not None:
        V, R, independent = jnp.where(active, V, 0), R + jnp.where(active, 0, identity), independent | ~active
    return L, V, R, jnp.asarray(True), ~(definite & jnp.all(independent))


def _forward_substitution(L, columns):
    """Return L⁻¹ columns, solved in small groups. For more columns LAPACK would wake threads and wait for them if a
    core is busy."""
    n, m = columns.shape
    group_size = max(1, MAX_SINGLE_THREAD_ENTRIES // n)
    if m <= MAX_UNROLLED_CALLS * group_size:
        return jnp.concatenate(
            [_triangular_solve(L, columns[:, k : k + group_size]) for k in range(0, m, group_size)], axis=1
        )
    groups = -(-m // group_size)
    padded = jnp.pad(columns, ((0, 0), (0, groups * group_size - m))).reshape(n, groups, group_size)
    solved = jax.lax.map(lambda part: _triangular_solve(L, part), jnp.moveaxis(padded, 1, 0))
    return jnp.moveaxis(solved, 0, 1).reshape(n, groups * group_size)[:, :m]


def _solve_by_lapack(factors, force, rows):
    L, V, R, _ = factors
    z = _triangular_solve(L, force[:, None])
    if not rows.size:
        return _triangular_solve(L, z, transposed=True)[:, 0], rows
    y = _triangular_solve(R, rows[:, None], lower=False, transposed=True)
    components = V.T @ z
    free = z - V @ components
    # Project once more: a force along a coordinate of very small mass leaves a rounding error that L⁻ᵀ amplifies.
    x = _triangular_solve(L, free + V @ (y - V.T @ free), transposed=True)
    return x[:, 0], _triangular_solve(R, components - y, lower=False)[:, 0]


def _triangular_solve(triangle, columns, lower=True, transposed=False):
    return jax.lax.linalg.triangular_solve(triangle, columns, left_side=True, lower=lower, transpose_a=transposed)


# --- batches, by elementary arithmetic; the diagonals of L and C are stored inverted ---


def _factorise_by_products(M, A, active, rtol, least):
    L, light = _factor(M, SINGULAR_PIVOT)
    B = jax.vmap(_triangle(L).solve)(A)
    S = B @ B.T
    if active is not None:
        S = S + jnp.where(active, 0, np.eye(len(S), dtype=S.dtype))
    C, dependent = _factor(S, jnp.maximum(jnp.finfo(B.dtype).eps ** INDEPENDENCE_EXPONENT, rtol**2))
    square = jnp.diagonal(S)
    return L, B.T, C, jnp.asarray(False), light | dependent | ~jnp.all(square > least**2 * jnp.max(square, initial=0))


def _solve_by_products(factors, force, rows):
    """Solve with one step of iterative refinement.

    The condition number of B Bᵀ is the square of that of B. The second iteration reduces the residual B z − rows again,
    and z − L⁻¹ force is a combination of rows for any ν (Björck, Linear Algebra Appl. 88/89 (1987) 31).
    """
    L, B_transposed, C, _ = factors.for_arithmetic()
    mass, products, B = _triangle(L), _triangle(C), B_transposed.T
    z, nu = mass.solve(force), jnp.zeros_like(rows)
    for _ in range(2):
        correction = products.solve_transposed(products.solve(B @ z - rows))
        z, nu = z - correction @ B, nu + correction
    return mass.solve_transposed(z), nu


def _factor(S, least):
    """Return C and whether a pivot is at most ``least`` of its diagonal entry."""
    C, scale = cholesky(S)
    return C + jnp.diag(scale), ~jnp.all(least * jnp.diagonal(S) * scale**2 < 1)  # True for NaN


def _with_inverted_diagonal(C):
    """Invert the diagonal of a lower triangular matrix."""
    diagonal = jnp.diagonal(C)
    return jnp.tril(C, -1) + jnp.diag(1 / jnp.where(diagonal != 0, diagonal, 1))


def _triangle(C):
    return Triangle(jnp.tril(C, -1), jnp.diagonal(C))
