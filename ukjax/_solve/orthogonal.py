"""The default method: orthonormalise the rows of B = A M^(-1/2), as many as are independent."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._kernel import fast_branch
from .base import AbstractFactorisation, AbstractMethod, check_rank_rule
from .fast_path import CLEAR, FastPath
from .kernels import Basis, Triangle, cholesky, inverse_cholesky, orthonormal_rows
from .scales import coordinate_scale, row_scale

WEAK = 1e4
"""Entries of L⁻¹ on its diagonal, for a mass matrix scaled to unit diagonal, above which M is close to singular."""


class Orthogonal(AbstractMethod):
    """Rank-revealing and without LAPACK: the default, made for ``vmap``.

    Takes redundant and inconsistent rows, more rows than coordinates, and a semidefinite M with rank [M; A] = n
    (the motion is unique exactly then; NaN otherwise). Rows are taken as they come; one counts as redundant when what
    it adds to those before it is below ``rtol`` of its own size (default √eps: 1.5e-8 in float64), in the metric of
    M. A larger ``rtol`` truncates: it keeps the motion bounded near a singular pose by ignoring rows that are nearly
    dependent. ``kept``, if given, are the only rows that may count. A row that is no more than ``least`` of the
    largest, in unit masses, is taken for rounding of 0 (default eps^0.9: 8e-15 in float64, 6e-7 in float32).
    Cost: about n³/3 + m n² + 2 m² n multiplications. In a kernel, where rows are clearly independent,
    m² n / 2 + m³/6 + 4 m n in place of the last, and less where M and A are sparse.

    Where M is singular, or nearly so, M' = M + Âᵀ Â (Â: rows scaled to unit length) takes its place, which changes no
    motion and is positive definite whenever the motion is unique (Udwadia & Schutte, Acta Mech. 213 (2010) 111).
    """

    rtol: float | None = None
    kept: Bool[Array, " m"] | None = None
    least: float | None = None
    finds_rank: ClassVar[bool] = True

    def __check_init__(self):
        check_rank_rule(self.rtol, self.kept)

    def keeping(self, kept: Bool[Array, " m"]) -> "Orthogonal":
        return replace(self, kept=kept)

    def usual(self) -> FastPath | None:
        return FastPath(self.rtol, least=self.least) if self.kept is None else None

    @eqx.filter_jit
    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "Orthonormalised":
        rtol = jnp.sqrt(jnp.finfo(M.dtype).eps) if self.rtol is None else self.rtol
        coordinate = coordinate_scale(M)
        row = row_scale(A, coordinate, self.least)
        M_unit = coordinate[:, None] * M * coordinate

        A_unit = row[:, None] * A * coordinate

        def factorise(found, weight):
            def anew():
                # From the last coordinate to the first: where the branches of a mechanism meet nothing fills the zeros
                # between them.
                L_inverse = inverse_cholesky((M_unit + weight * A_unit.T @ A_unit)[::-1, ::-1])
                return L_inverse, jnp.max(jnp.diagonal(L_inverse), initial=0) < WEAK  # false where it is NaN

            return jax.lax.cond(~found[1], anew, lambda: found), None

        # First M as it is, then M' only if that is rarely needed: see ``ukjax._batch``.
        nothing = jnp.zeros_like(M), jnp.asarray(False)
        (L_inverse, _), _ = jax.lax.scan(factorise, nothing, jnp.array([0.0, 1.0], M.dtype))
        return orthonormalise(A, coordinate[:, None] * L_inverse.T[::-1], row, rtol, self.kept)


class Orthonormalised(AbstractFactorisation):
    """With F Fᵀ = M⁻¹ and B = S A F, where S has the entries ``row`` on its diagonal: W = F (I − B⁺B) Fᵀ.

    V is an orthonormal basis of the rows of U B, which ``triangle`` leads back to; P = RᵀR; U and R are I unless a row
    was found redundant. Where a shortcut was taken, since the rows were not ``doubtful``, there is no V and the
    triangle is Cholesky's of B Bᵀ. To be used in the program that made it: another may not take the same way.
    """

    F: Float[Array, "n n"]
    B: Float[Array, "m n"]
    triangle: Triangle
    doubtful: Bool[Array, ""]
    V: Float[Array, "m n"]
    row: Float[Array, " m"]
    U: Float[Array, "m m"]
    R: Float[Array, "m m"]
    kept: Bool[Array, " m"]
    rank: Int[Array, ""]
    reaches_all: ClassVar[bool] = False

    @property
    def needs_fallback(self) -> Bool[Array, ""]:
        return jnp.asarray(False)

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        free, wanted = force @ self.F, self.row * rows

        def by_basis():
            z = free - (self.V @ free) @ self.V
            # A force along a coordinate with hardly any mass leaves rounding that F would make large: once more.
            return z + (self.triangle.solve(self.U @ wanted) - self.V @ z) @ self.V

        return self.F @ fast_branch(self.doubtful, by_basis, lambda: self._nearest(free, wanted)[0])

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        free = force @ self.F

        def by_basis():
            return self._of_all_rows(self.triangle.solve_transposed(self.V @ free))

        return fast_branch(self.doubtful, by_basis, lambda: self.row * self._nearest(free, jnp.zeros_like(self.row))[1])

    def dual_of(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """(A M⁻¹ Aᵀ)⁺ rows, for rows within reach: the λ that make them true."""
        return self._of_all_rows(self.triangle.solve_transposed(self.triangle.solve(self.U @ (self.row * rows))))

    def out_of_reach(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return (self.R @ rows) @ self.R - rows

    def factor(self) -> Float[Array, "n n"]:
        by_rows = lambda: jax.vmap(self.triangle.solve, in_axes=1, out_axes=1)(self.B)
        V = fast_branch(self.doubtful, lambda: self.V, by_rows)
        once = self.F - (self.F @ V.T) @ V
        return once - (once @ V.T) @ V

    def _nearest(self, free, rows):
        """The z nearest to ``free`` with B z = rows, and λ with z = free − Bᵀλ.

        Twice: (B Bᵀ)⁻¹ has the squared condition of B, but what it leaves of B z − rows it makes small once more, and
        z differs from ``free`` by combinations of rows whatever λ is (Björck, Linear Algebra Appl. 88/89 (1987) 31).
        """
        z, lam = free, jnp.zeros_like(rows)
        for _ in range(2):
            more = self.triangle.solve_transposed(self.triangle.solve(self.B @ z - rows))
            z, lam = z - more @ self.B, lam + more
        return z, lam

    def _of_all_rows(self, y):
        rows = self.row * (y @ self.U)
        return rows + self.out_of_reach(rows)


def orthonormalise(
    A: Float[Array, "m n"],
    F: Float[Array, "n n"],
    row: Float[Array, " m"],
    rtol: Float[Array, ""] | float,
    kept: Bool[Array, " m"] | None = None,
) -> Orthonormalised:
    """The response of rows A where F Fᵀ is the inverse mass. Ranks are decided on the rows of A F times ``row``."""
    unscaled = A @ F
    B = row[:, None] * unscaled
    every = jnp.ones(row.size, bool)
    unchanged = jnp.eye(row.size, dtype=B.dtype)

    S = B @ B.T
    by_products = cholesky(S)
    least = jnp.maximum(jnp.finfo(B.dtype).eps ** CLEAR * jnp.diagonal(S), rtol**2)
    doubtful = ~jnp.all(least * by_products.scale**2 < 1)  # true where it is NaN
    if kept is not None:
        doubtful = doubtful | ~jnp.all(kept)

    def row_by_row():
        first = orthonormal_rows(B, rtol, kept)
        counts = first.triangle.scale > 0

        def with_redundant_rows():
            """Of the rows that happened to come first, two may be all but parallel where others are not: the basis
            anew, of combinations U B of all of them. R is in the units that the rows have: least squares over rows
            that contradict each other would mean something else after scaling them."""
            U, R = jax.vmap(_range)(jnp.stack([B @ first.V.T, unscaled @ first.V.T]))
            return orthonormal_rows(U @ B, 0.0), U, R

        basis, U, R = jax.lax.cond(~jnp.all(counts), with_redundant_rows, lambda: (first, unchanged, unchanged))
        return basis, U, R, counts

    clearly = lambda: (Basis(jnp.full_like(B, jnp.nan), by_products), unchanged, unchanged, every)
    (V, triangle), U, R, counts = fast_branch(doubtful, row_by_row, clearly)
    return Orthonormalised(
        F=F, B=B, triangle=triangle, doubtful=doubtful, V=V, row=row, U=U, R=R, kept=counts, rank=jnp.sum(counts)
    )


def _range(T):
    """An orthonormal basis (in rows) of the columns of T (m, m), of which those are 0 that are not independent."""
    length = jnp.sqrt(jnp.sum(T**2, axis=0))
    rounding = 8 * T.shape[0] * float(jnp.finfo(T.dtype).eps)
    return orthonormal_rows((T / jnp.where(length > 0, length, 1)).T, rounding).V
