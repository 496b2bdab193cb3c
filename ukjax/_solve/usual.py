"""The usual case, done at once: M positive definite, and the rows known to be independent or which of them are."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int

from .._batch import either
from .base import AbstractMethod, AbstractResponse
from .kernels import Triangle, cholesky

LIGHT = 1e-8
"""A pivot of M this small beside its diagonal entry is of an M that is singular, or nearly so."""

CLEAR = 3 / 8
"""Where factors of A M⁻¹Aᵀ are taken, rows are clearly independent if what each adds to those before it has a square of
at least eps^CLEAR of its own (angles of 1e-3 in float64, where they still have nine digits)."""


class Active(NamedTuple):
    """Which rows are independent: they stand first in ``order`` (m,), and ``counts`` (m,) in that order."""

    order: Int[Array, " m"]
    counts: Bool[Array, " m"]

    @classmethod
    def of(cls, kept: Bool[Array, " m"]) -> "Active":
        order = jnp.argsort(~kept)
        return cls(order, kept[order])


class Usual(AbstractMethod):
    """K and W by factors of M and of the rows that are ``active``, all of them if None; what it cannot do is told by
    ``UsualResponse.doubtful``.

    A single system is done by LAPACK, M = L Lᵀ and (A L⁻ᵀ)ᵀ = V R, whose diagonal says what each row adds to those
    before it: below ``rtol`` of its own size it is redundant. A batch, and what is written out, has S = B Bᵀ = C Cᵀ in
    its place, refined.
    """

    rtol: Float[Array, ""] | float
    active: Active | None = None

    def keeping(self, kept: Bool[Array, " m"]) -> "Usual":
        return Usual(self.rtol, Active.of(kept))

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "UsualResponse":
        active = self.active
        if active is not None:
            A = jnp.where(active.counts[:, None], A[active.order], 0)
        counts = jnp.ones(A.shape[0], bool) if active is None else active.counts
        size = min(A.shape)
        L, W, R, doubtful = either(_by_products, _by_rows, M, A, counts, jnp.asarray(self.rtol, M.dtype))
        if active is None and size < A.shape[0]:
            doubtful = jnp.asarray(True)
        return UsualResponse(L, W, R, active, doubtful)


class UsualResponse(AbstractResponse):
    """With M = L Lᵀ: V (n, k) and R (k, k) of the rows in their order, Bᵀ = V R, or B and C, B Bᵀ = C Cᵀ."""

    L: Float[Array, "n n"]
    W: Float[Array, "n k"]
    R: Float[Array, "k k"]
    active: Active | None
    doubtful: Bool[Array, ""]
    reaches_all: ClassVar[bool] = True

    @property
    def kept(self):
        m = self.R.shape[0]
        return jnp.ones(m, bool) if self.active is None else jnp.zeros(m, bool).at[self.active.order].set(self.active.counts)

    @property
    def rank(self):
        return jnp.sum(self.kept)

    def both(self, M, force, rows):
        m = rows.size
        k = self.R.shape[0]
        if self.active is not None:
            rows = jnp.where(self.active.counts, rows[self.active.order], 0)
        x, nu = either(_solve_by_products, _solve_by_rows, self.L, self.W, self.R, force, rows[:k])
        if self.active is not None:
            nu = jnp.zeros(m, nu.dtype).at[self.active.order[:k]].set(jnp.where(self.active.counts[:k], nu, 0))
        elif k < m:
            nu = jnp.pad(nu, (0, m - k))
        return x, nu

    def motion(self, force, rows):
        return self.both(None, force, rows)[0]

    def multipliers(self, force):
        return self.both(None, force, jnp.zeros(self.R.shape[0], force.dtype))[1]

    def unreached(self, rows):
        return jnp.zeros_like(rows)

    def factor(self):
        raise NotImplementedError


def _by_rows(M, A, counts, rtol):
    k = min(A.shape)
    L = jax.lax.linalg.cholesky(M, symmetrize_input=False)
    light = ~jnp.all(jnp.diagonal(L) ** 2 > LIGHT * jnp.diagonal(M))
    B = solve_triangular(L, A.T, lower=True)
    V, R = jnp.linalg.qr(B)
    size = jnp.sqrt(jnp.sum(B**2, axis=0))[:k]
    length = jnp.abs(jnp.diagonal(R))
    counts = counts[:k]
    dependent = ~jnp.all((length > rtol * size) | ~counts)
    R = R[:, :k] + jnp.diag(jnp.where(counts, 0, 1).astype(R.dtype))
    return L, jnp.where(counts, V, 0), R, light | dependent


def _solve_by_rows(L, V, R, force, rows):
    z = solve_triangular(L, force, lower=True)
    y = solve_triangular(R, rows, trans=1)
    along = z @ V
    free = z - V @ along
    # A force along a coordinate with hardly any mass leaves rounding that L⁻ᵀ would make large: once more.
    x = solve_triangular(L, free + V @ (y - free @ V), lower=True, trans=1)
    return x, solve_triangular(R, along - y)


def _by_products(M, A, counts, rtol):
    k = min(A.shape)
    C, light = _cholesky(M, LIGHT)
    B = jax.vmap(_triangle(C).solve)(A)[:k]
    S = B @ B.T
    counts = counts[:k]
    S = jnp.where(counts[:, None] & counts, S, 0) + jnp.diag(jnp.where(counts, 0, 1).astype(S.dtype))
    R, dependent = _cholesky(S, jnp.maximum(jnp.finfo(S.dtype).eps ** CLEAR, rtol**2))
    return C, jnp.where(counts[:, None], B, 0).T, R, light | dependent


def _solve_by_products(C, W, R, force, rows):
    """(B Bᵀ)⁻¹ has the squared condition of B, but what it leaves of B z − rows it makes small once more, and z differs
    from L⁻¹ force by combinations of rows whatever ν is (Björck, Linear Algebra Appl. 88/89 (1987) 31)."""
    mass, products, B = _triangle(C), _triangle(R), W.T
    z, nu = mass.solve(force), jnp.zeros_like(rows)
    for _ in range(2):
        more = products.solve_transposed(products.solve(B @ z - rows))
        z, nu = z - more @ B, nu + more
    return mass.solve_transposed(z), nu


def _cholesky(S, least):
    """The factor, its diagonal inverted, and whether a pivot is not above ``least`` of its diagonal entry."""
    C, scale = cholesky(S)
    return C + jnp.diag(scale), ~jnp.all(least * jnp.diagonal(S) * scale**2 < 1)  # true where it is NaN


def _triangle(C):
    return Triangle(jnp.tril(C, -1), jnp.diagonal(C))
