"""The usual case, compiled and done at once: M positive definite, and the rows independent, or known which are."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from .._batch import either
from .base import AbstractMethod, AbstractResponse
from .kernels import Triangle, cholesky, orthonormal_rows

LIGHT = 1e-8
"""A pivot of M so small beside its diagonal entry is that of an M which is singular, or nearly so."""

CLEAR = 3 / 8
"""Where B Bᵀ is factorised, rows are clearly independent if what each adds to those before it has a square of at least
eps^CLEAR of its own (angles of 1e-3 in float64, where the factors still have nine digits)."""


class ActiveRows(NamedTuple):
    """Which rows count: they come first in ``order`` (m,), and ``counts`` (m,) says of each in that order whether."""

    order: Int[Array, " m"]
    counts: Bool[Array, " m"]

    @classmethod
    def of(cls, kept: Bool[Array, " m"]) -> "ActiveRows":
        order = jnp.argsort(~kept)
        return cls(order, kept[order])

    def take(self, x: Float[Array, " m *k"]) -> Float[Array, " m *k"]:
        """The entries of x in that order, 0 where they do not count."""
        return jnp.where(self.counts.reshape(-1, *(1,) * (x.ndim - 1)), x[self.order], 0)

    def put(self, x: Float[Array, " k"]) -> Float[Array, " m"]:
        """The inverse, of a vector that may end where nothing counts any more."""
        x = jnp.where(self.counts[: x.size], x, 0)
        return jnp.zeros(self.counts.shape, x.dtype).at[self.order[: x.size]].set(x)


class Usual(AbstractMethod):
    """The motion by factors of M and of the rows B = A L⁻ᵀ, M = L Lᵀ: what the other methods are tried against.

    Made for speed of compiling and of running, not for every system: ``UsualResponse.unusual`` says where an answer may
    be wrong, since M is nearly singular or a row that counts adds less than ``rtol`` of its own size to those before
    it. Every b is taken as within reach. ``finds_rank`` lets ``active`` look for redundant rows; otherwise all count.

    A single system is done by LAPACK, by B's own factors Bᵀ = V R. A batch, and what is written out, is done by
    B Bᵀ = C Cᵀ, refined, and as sparse as the mechanism.
    """

    rtol: Float[Array, ""] | float
    finds_rank: bool = eqx.field(static=True, default=False)  # pyright: ignore[reportIncompatibleVariableOverride]
    rows: ActiveRows | None = None

    def active(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "Usual":
        return self.keeping(either(_kept_in_batch, _kept, M, A, jnp.asarray(self.rtol, M.dtype)))

    def keeping(self, kept: Bool[Array, " m"]) -> "Usual":
        return Usual(self.rtol, self.finds_rank, ActiveRows.of(kept))

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "UsualResponse":
        m, n = A.shape
        counts = jnp.ones(m, bool) if self.rows is None else self.rows.counts
        A = A if self.rows is None else self.rows.take(A)
        # No more rows can be independent than there are coordinates: those that count come first.
        known = M, A[:n], counts[:n], jnp.asarray(self.rtol, M.dtype)
        L, W, R, unusual = either(_factors_of_products, _factors_of_rows, *known)
        too_many = m > n and self.rows is None
        return UsualResponse(L, W, R, self.rows, unusual | too_many, rows_in_all=m)


class UsualResponse(AbstractResponse):
    """L, and V (n, k) with R (k, k), or Bᵀ (n, k) with C (k, k): the two ways have the shapes of their factors in common
    and nothing else."""

    L: Float[Array, "n n"]
    W: Float[Array, "n k"]
    R: Float[Array, "k k"]
    rows: ActiveRows | None
    unusual: Bool[Array, ""]  # pyright: ignore[reportIncompatibleMethodOverride]
    rows_in_all: int = eqx.field(static=True)
    reaches_all: ClassVar[bool] = True

    @property
    def kept(self) -> Bool[Array, " m"]:
        every = jnp.ones(self.rows_in_all, bool)
        return every if self.rows is None else ~every.at[self.rows.order].set(~self.rows.counts)

    @property
    def rank(self) -> Int[Array, ""]:
        return jnp.sum(self.kept)

    def both(
        self, M: Float[Array, "n n"], force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        rows = rows if self.rows is None else self.rows.take(rows)
        x, nu = either(_by_products, _by_rows, self.L, self.W, self.R, force, rows[: len(self.R)])
        return x, jnp.pad(nu, (0, self.rows_in_all - nu.size)) if self.rows is None else self.rows.put(nu)

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.both(self.L, force, rows)[0]

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.both(self.L, force, jnp.zeros(self.rows_in_all, force.dtype))[1]

    def unreached(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return jnp.zeros_like(rows)

    def factor(self) -> Float[Array, "n n"]:
        nothing = jnp.zeros(self.rows_in_all, self.L.dtype)
        W = jax.vmap(lambda force: self.both(self.L, force, nothing)[0])(jnp.eye(len(self.L), dtype=self.L.dtype))
        return W @ self.L  # W M W = W


# One system, by LAPACK.


def _kept(M, A, rtol):
    """Which rows are independent, as they come."""
    return _independent(solve_triangular(_cholesky(M), A.T, lower=True).T, rtol)


def _independent(B, rtol):
    length = jnp.sqrt(jnp.sum(B**2, axis=1))
    return orthonormal_rows(B / jnp.where(length > 0, length, 1)[:, None], rtol).triangle.scale > 0


def _factors_of_rows(M, A, counts, rtol):
    L = _cholesky(M)
    light = ~jnp.all(jnp.diagonal(L) ** 2 > LIGHT * jnp.diagonal(M))
    B_transposed = solve_triangular(L, A.T, lower=True)
    V, R = jnp.linalg.qr(B_transposed)
    size = jnp.sqrt(jnp.sum(B_transposed**2, axis=0))
    dependent = ~jnp.all((jnp.abs(jnp.diagonal(R)) > rtol * size) | ~counts)
    R = R + jnp.diag(jnp.where(counts, 0, 1).astype(R.dtype))
    return L, jnp.where(counts, V, 0), R, light | dependent


def _by_rows(L, V, R, force, rows):
    z = solve_triangular(L, force, lower=True)
    y = solve_triangular(R, rows, trans=1)
    along = z @ V
    free = z - V @ along
    # A force along a coordinate with hardly any mass leaves rounding that L⁻ᵀ would make large: once more.
    x = solve_triangular(L, free + V @ (y - free @ V), lower=True, trans=1)
    return x, solve_triangular(R, along - y)


def _cholesky(M):
    return jax.lax.linalg.cholesky(M, symmetrize_input=False)


# Many at once, by arithmetic. A factor C is kept with its diagonal inverted.


def _kept_in_batch(M, A, rtol):
    return _independent(jax.vmap(_triangle(_factor(M, LIGHT)[0]).solve)(A), rtol)


def _factors_of_products(M, A, counts, rtol):
    L, light = _factor(M, LIGHT)
    B = jax.vmap(_triangle(L).solve)(A)
    S = jnp.where(counts[:, None] & counts, B @ B.T, 0) + jnp.diag(jnp.where(counts, 0, 1).astype(B.dtype))
    C, dependent = _factor(S, jnp.maximum(jnp.finfo(S.dtype).eps ** CLEAR, rtol**2))
    return L, B.T, C, light | dependent


def _by_products(L, B_transposed, C, force, rows):
    """(B Bᵀ)⁻¹ has the squared condition of B, but what it leaves of B z − rows it makes small once more, and z differs
    from L⁻¹ force by combinations of rows whatever ν is (Björck, Linear Algebra Appl. 88/89 (1987) 31)."""
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


def _triangle(C):
    return Triangle(jnp.tril(C, -1), jnp.diagonal(C))
