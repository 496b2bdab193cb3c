"""The usual case, compiled and done at once: M positive definite, rows independent, or known which of them are."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._kernel import arithmetic_or_library
from .base import AbstractFactorisation, AbstractMethod
from .kernels import Triangle, cholesky
from .scales import coordinate_scale_by_numpy, doubtful

LIGHT = 1e-8
"""A pivot of M so small beside its diagonal entry is that of an M which is singular, or nearly so."""

CLEAR = 3 / 8
"""Where B Bᵀ is factorised, rows are clearly independent if what each adds to those before it has a square of at least
eps^CLEAR of its own (angles of 1e-3 in float64, where the factors still have nine digits)."""

MOST_ROWS = 512
"""Beyond that, which rows count is part of the program."""

ONE_THREAD = 1000
"""Entries of right-hand sides that OpenBLAS solves for in the thread that asks."""

MOST_CALLS = 8
"""Of LAPACK, one beside the other. More are turns of a loop, which takes time of its own."""


class RuntimeRows(NamedTuple):
    """What may change from one run of a program to the next: the ``weight`` of the rows beside M, which rows count, the
    first ``count`` in their ``order``, and the limits ``least`` and ``rtol`` of ``FastPath``, below which a row is
    unusual. Made before it is known how many rows there are: what is over is not read.
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
        """With these rows kept, all if None."""
        first = np.arange(MOST_ROWS) if kept is None else np.array(kept, int)
        order = np.append(first, np.delete(np.arange(MOST_ROWS), first))
        least = doubtful(dtype) if least is None else least
        rtol = float(np.finfo(dtype).eps) ** 0.5 if rtol is None else rtol
        numbers = (weight, dtype), (order, np.int32), (first.size, np.int32), (least, dtype), (rtol, dtype)
        return cls(*(np.asarray(x, kind) for x, kind in numbers))


def limits_of(usual: "FastPath", dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Its ``least`` and ``rtol`` as numbers given to a program, so that others are the same program."""
    least = doubtful(dtype) if usual.least is None else usual.least
    rtol = float(np.finfo(dtype).eps) ** 0.5 if usual.rtol is None else usual.rtol
    return np.asarray(least, dtype), np.asarray(rtol, dtype)


class FastPath(AbstractMethod):
    """The motion by factors of M and of the rows B = A L⁻ᵀ, M = L Lᵀ: what the other methods are tried against.

    Made for speed of compiling and of running, not for every system: ``FastFactorisation.needs_fallback`` says where an answer may
    be wrong, since M is nearly singular, or a row adds less than ``rtol`` of its own size to those before it, or is no
    more than ``least`` of the largest and might be rounding (``doubtful`` by default). Every b is taken as within
    reach. Only the rows ``kept`` count, all if None: the others are known to be combinations of them. Where M may be
    singular, M + ``weight`` Aᵀ A takes its place (see ``Orthogonal``). Both are part of the program, or, if
    ``runtime_rows`` is given, are what that says. ``assumes`` lets a batch take the usual case of every choice for granted:
    what that changes is unusual, too.

    A single system is done by LAPACK, by B's own factors Bᵀ = V R. A batch, and what is in a kernel, is done by
    B Bᵀ = C Cᵀ, refined, and as sparse as the mechanism.
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
        """Whether some rows may not count."""
        return self.runtime_rows is not None or self.kept is not None

    def keeping(self, kept: Bool[Array, " m"]) -> "FastPath":
        return self

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "FastFactorisation":
        m, n = A.shape
        weight = self.weight if self.runtime_rows is None else self.runtime_rows.weight
        weight = None if weight is None else jnp.asarray(weight, M.dtype)  # a leaf, as what loops carry has to be
        if weight is not None and m:
            with_rows = lambda M, A: M + weight * (A.T @ A)
            if self.runtime_rows is None:
                M = with_rows(M, A)
            else:  # where it is 0, products of large matrices would cost as much as solving
                M = jax.lax.cond(weight != 0, with_rows, lambda M, A: M, M, A)
        rows = self._rows(m)
        A = rows.take(A)[:n]  # more cannot be independent
        # From the last coordinate to the first: what a mechanism carries far out comes last, and where its branches
        # meet nothing fills the zeros between them (Featherstone, Rigid Body Dynamics Algorithms, 2008, section 6.5).
        M, A = M[::-1, ::-1], A[:, ::-1]
        rtol = jnp.finfo(M.dtype).eps ** 0.5 if self.rtol is None else self.rtol
        rtol = rtol if self.runtime_rows is None else self.runtime_rows.rtol
        counts = rows.counts(len(A))
        least = doubtful(M.dtype) if self.least is None else self.least
        least = least if self.runtime_rows is None else self.runtime_rows.least
        limits = jnp.asarray(rtol, M.dtype), jnp.asarray(least, M.dtype)
        *factors, needs_fallback = arithmetic_or_library(_factors_of_products, _factors_of_rows, M, A, counts, *limits)
        needs_fallback = needs_fallback | rows.more_than(n)
        return FastFactorisation(Factors(*factors), needs_fallback, weight, rows, m)  # pyright: ignore[reportCallIssue]

    def _rows(self, m: int) -> "StaticRows | PermutedRows":
        if self.runtime_rows is not None and 1 < m <= MOST_ROWS:
            return PermutedRows(*map(jnp.asarray, (self.runtime_rows.order[:m], self.runtime_rows.count)))
        return StaticRows(m, self.kept)


class StaticRows(eqx.Module):
    """Rows of which it is known to the program which count."""

    size: int = eqx.field(static=True)
    kept: tuple[int, ...] | None = eqx.field(static=True)

    def take(self, x: Float[Array, " m *k"]) -> Float[Array, " l *k"]:
        """The entries of x that count."""
        return x if self.kept is None else x[np.array(self.kept, int)]

    def put(self, x: Float[Array, " l"]) -> Float[Array, " m"]:
        """Back to where they were, 0 for those that do not count."""
        if self.kept is None:
            return jnp.pad(x, (0, self.size - x.size))
        return jnp.zeros(self.size, x.dtype).at[np.array(self.kept, int)[: x.size]].set(x)

    def counts(self, size: int) -> None:
        """All that are taken count."""

    def more_than(self, n: int) -> bool:
        """Whether more than n count."""
        return self.size > n and self.kept is None

    def all(self) -> Bool[Array, " m"]:
        """Which of all rows count."""
        return jnp.asarray(np.ones(self.size, bool) if self.kept is None else np.isin(range(self.size), self.kept))


class PermutedRows(eqx.Module):
    """Rows of which the first ``count`` in their ``order`` count."""

    order: Int[Array, " m"]
    count: Int[Array, ""]

    def take(self, x: Float[Array, " m *k"]) -> Float[Array, " m *k"]:
        """All entries of x, those that count first and the others 0."""
        counts = self.counts(self.order.size)
        return jnp.where(counts.reshape(-1, *(1,) * (x.ndim - 1)), x[self.order], 0)

    def put(self, x: Float[Array, " l"]) -> Float[Array, " m"]:
        """Back to where they were."""
        x = jnp.where(self.counts(x.size), x, 0)
        return jnp.zeros(self.order.shape, x.dtype).at[self.order[: x.size]].set(x)

    def counts(self, size: int) -> Bool[Array, " l"]:
        """Which of the first entries taken count."""
        return jnp.asarray(np.arange(size)) < self.count

    def more_than(self, n: int) -> Bool[Array, ""]:
        """Whether more than n count."""
        return jnp.minimum(self.count, self.order.size) > n

    def all(self) -> Bool[Array, " m"]:
        """Which of all rows count."""
        return jnp.zeros(self.order.shape, bool).at[self.order].set(self.counts(self.order.size))


class Factors(NamedTuple):
    """Of the coordinates in reverse: L, V (n, k) and R (k, k), if it was ``by_library``; or L, Bᵀ (n, k) and C (k, k),
    L and C with their diagonals inverted."""

    L: Float[Array, "n n"]
    W: Float[Array, "n k"]
    R: Float[Array, "k k"]
    by_library: Bool[Array, ""]

    def for_arithmetic(self) -> "Factors":
        """As arithmetic makes them, whoever made these: one system's may meet a batch of others."""
        choose = lambda x, y: jnp.where(self.by_library, x, y)
        L, C = choose(_inverted(self.L), self.L), choose(_inverted(self.R.T), self.R)
        return Factors(L, choose(self.W @ self.R, self.W), C, jnp.asarray(False))


class FastFactorisation(AbstractFactorisation):
    """What the rows and masses answer, by their factors."""

    factors: Factors
    needs_fallback: Bool[Array, ""]
    weight: Float[Array, ""] | float | None
    rows: StaticRows | PermutedRows
    size: int = eqx.field(static=True)
    reaches_all: ClassVar[bool] = True

    @property
    def kept(self) -> Bool[Array, " m"]:
        return self.rows.all()

    @property
    def rank(self) -> Int[Array, ""]:
        return jnp.sum(self.kept)

    def both(
        self, M: Float[Array, "n n"], force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        wanted = self.rows.take(rows)[: len(self.factors.R)]
        x, nu = arithmetic_or_library(_by_products, _by_rows, force[::-1], wanted, made=(self.factors,))
        x, nu = x[::-1], self.rows.put(nu)
        return x, nu if self.weight is None else nu + self.weight * rows  # M + w Aᵀ A takes w Aᵀ rows of the force

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.both(self.factors.L, force, rows)[0]

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.both(self.factors.L, force, jnp.zeros(self.size, force.dtype))[1]

    def out_of_reach(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return jnp.zeros_like(rows)

    def factor(self) -> Float[Array, "n n"]:
        L = jnp.where(self.factors.by_library, self.factors.L, _inverted(self.factors.L))[::-1]
        nothing = jnp.zeros(self.size, L.dtype)
        W = jax.vmap(lambda force: self.motion(force, nothing))(jnp.eye(len(L), dtype=L.dtype))
        return W @ L  # W M W = W


def is_nearly_singular(M: Float[np.ndarray, "n n"]) -> bool:
    """Whether M, symmetric and semidefinite, is singular or nearly so."""
    mass = np.diagonal(M)
    if not np.all(mass > 0):
        return True
    try:
        L = np.linalg.cholesky(M / np.sqrt(np.outer(mass, mass)))
    except np.linalg.LinAlgError:
        return True
    return bool(np.min(np.diagonal(L), initial=1) ** 2 <= LIGHT)


def independent_rows(
    M: Float[np.ndarray, "n n"], A: Float[np.ndarray, "m n"], rtol: float, least: float = 0.0
) -> tuple[int, ...] | None:
    """Rows of A of which the others are combinations, the most independent ones there are, in their order; None where
    no combination of M and A is positive definite. What is no more than ``least`` of the longest is no row."""
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
    (solve,) = scipy.linalg.get_blas_funcs(("trsm",), (L, B))  # LAPACK's would wake threads, which spin for a while
    B = solve(1, L, B, lower=True)
    length = np.linalg.norm(B, axis=0)
    # Of equals the first, so that rounding does not choose: motions that are near are to leave out the same rows.
    lean = np.linspace(1, 0.9, length.size)
    R, order = scipy.linalg.qr(lean * B / np.where(length > 0, length, 1), mode="r", pivoting=True)  # pyright: ignore
    rank = int(np.sum(np.abs(np.diagonal(R)) > rtol))
    return tuple(sorted(int(i) for i in order[:rank]))


# One system, by LAPACK.


def _factors_of_rows(M, A, counts, rtol, least):
    L = jax.lax.linalg.cholesky(M, symmetrize_input=False)
    each = np.eye(len(M), dtype=M.dtype)
    heavy = jnp.all(jnp.sum((L**2 - LIGHT * M) * each, axis=0) > 0)  # its diagonal; false where it is NaN
    if not A.size:
        return L, A.T, jnp.zeros((0, 0), M.dtype), jnp.asarray(True), ~heavy
    B_transposed = _forward(L, A.T)
    V, R = jnp.linalg.qr(B_transposed)
    square = jnp.sum(B_transposed**2, axis=0)
    each = np.eye(len(R), dtype=R.dtype)
    good = (jnp.sum(R**2 * each, axis=0) > rtol**2 * square) & (square > least**2 * jnp.max(square, initial=0))
    if counts is not None:
        V, R, good = jnp.where(counts, V, 0), R + jnp.where(counts, 0, each), good | ~counts
    return L, V, R, jnp.asarray(True), ~(heavy & jnp.all(good))


def _forward(L, columns):
    """L⁻¹ columns, a few at a time: for more, LAPACK would wake threads, and wait for them wherever a core is busy."""
    n, m = columns.shape
    few = max(1, ONE_THREAD // n)
    if m <= MOST_CALLS * few:
        return jnp.concatenate([_solved(L, columns[:, k : k + few]) for k in range(0, m, few)], axis=1)
    turns = -(-m // few)
    padded = jnp.pad(columns, ((0, 0), (0, turns * few - m))).reshape(n, turns, few)
    solved = jax.lax.map(lambda part: _solved(L, part), jnp.moveaxis(padded, 1, 0))
    return jnp.moveaxis(solved, 0, 1).reshape(n, turns * few)[:, :m]


def _by_rows(factors, force, rows):
    L, V, R, _ = factors
    z = _solved(L, force[:, None])
    if not rows.size:
        return _solved(L, z, transposed=True)[:, 0], rows
    y = _solved(R, rows[:, None], lower=False, transposed=True)
    along = V.T @ z
    free = z - V @ along
    # A force along a coordinate with hardly any mass leaves rounding that L⁻ᵀ would make large: once more.
    x = _solved(L, free + V @ (y - V.T @ free), transposed=True)
    return x[:, 0], _solved(R, along - y, lower=False)[:, 0]


def _solved(triangle, columns, lower=True, transposed=False):
    return jax.lax.linalg.triangular_solve(triangle, columns, left_side=True, lower=lower, transpose_a=transposed)


# Many at once, by arithmetic. A factor C is kept with its diagonal inverted.


def _factors_of_products(M, A, counts, rtol, least):
    L, light = _factor(M, LIGHT)
    B = jax.vmap(_triangle(L).solve)(A)
    S = B @ B.T
    if counts is not None:
        S = S + jnp.where(counts, 0, np.eye(len(S), dtype=S.dtype))
    C, dependent = _factor(S, jnp.maximum(jnp.finfo(B.dtype).eps ** CLEAR, rtol**2))
    square = jnp.diagonal(S)
    return L, B.T, C, jnp.asarray(False), light | dependent | ~jnp.all(square > least**2 * jnp.max(square, initial=0))


def _by_products(factors, force, rows):
    """(B Bᵀ)⁻¹ has the squared condition of B, but what it leaves of B z − rows it makes small once more, and z differs
    from L⁻¹ force by combinations of rows whatever ν is (Björck, Linear Algebra Appl. 88/89 (1987) 31)."""
    L, B_transposed, C, _ = factors.for_arithmetic()
    mass, products, B = _triangle(L), _triangle(C), B_transposed.T
    z, nu = mass.solve(force), jnp.zeros_like(rows)
    for _ in range(2):
        more = products.solve_transposed(products.solve(B @ z - rows))
        z, nu = z - more @ B, nu + more
    return mass.solve_transposed(z), nu


def _factor(S, least):
    """C, and whether a pivot is not above ``least`` of its diagonal entry."""
    C, scale = cholesky(S)
    return C + jnp.diag(scale), ~jnp.all(least * jnp.diagonal(S) * scale**2 < 1)  # true where it is NaN


def _inverted(C):
    """A lower triangular matrix with its diagonal inverted."""
    diagonal = jnp.diagonal(C)
    return jnp.tril(C, -1) + jnp.diag(1 / jnp.where(diagonal != 0, diagonal, 1))


def _triangle(C):
    return Triangle(jnp.tril(C, -1), jnp.diagonal(C))
