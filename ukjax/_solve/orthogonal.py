"""Default method: rank-revealing orthonormalisation of the rows of B = A M^(-1/2)."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._kernel import fast_branch
from .base import AbstractFactorisation, AbstractMethod, check_rank_rule
from .fast_path import INDEPENDENCE_EXPONENT, FastPath
from .kernels import Basis, Triangle, cholesky, inverse_cholesky, orthonormal_rows
from .scales import coordinate_scale, row_scale

MAX_INVERSE_PIVOT = 1e4
"""M, scaled to unit diagonal, counts as nearly singular if a diagonal entry of L⁻¹ is at least this large."""


class Orthogonal(AbstractMethod):
    """Default method: rank-revealing, without LAPACK, designed for ``vmap``.

    Accepts redundant and inconsistent rows, more rows than coordinates, and a semidefinite M with rank [M; A] = n. The
    motion is unique exactly under this condition; otherwise the result is NaN.

    If M is singular or nearly singular, it is replaced by M' = M + Âᵀ Â, where Â has the rows scaled to unit length.
    This does not change the motion, and M' is positive definite whenever the motion is unique (Udwadia & Schutte, Acta
    Mech. 213 (2010) 111).

    Cost: about n³/3 + m n² + 2 m² n multiplications. In a kernel with clearly independent rows, the last term is
    m² n / 2 + m³/6 + 4 m n instead, and less if M and A are sparse.

    Attributes
    ----------
    rtol
        A row is redundant if its component orthogonal to the rows before it, in the metric of M, is shorter than
        ``rtol`` of the row (default √eps: 1.5e-8 in float64). A larger value keeps the motion bounded near a singular
        pose, because nearly dependent rows are ignored.
    kept
        (m,) mask of the rows that may be independent, all rows by default.
    least
        A row no longer than ``least`` of the longest row, in coordinates of unit mass, counts as a rounding error of 0
        (default eps^0.9: 8e-15 in float64, 6e-7 in float32).
    """

    rtol: float | None = None
    kept: Bool[Array, " m"] | None = None
    least: float | None = None
    finds_rank: ClassVar[bool] = True

    def __check_init__(self):
        check_rank_rule(self.rtol, self.kept)

    def with_active_rows(self, kept: Bool[Array, " m"]) -> "Orthogonal":
        return replace(self, kept=kept)

    def fast_path(self) -> FastPath | None:
        return FastPath(self.rtol, least=self.least) if self.kept is None else None

    @eqx.filter_jit
    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "Orthonormalised":
        rtol = jnp.sqrt(jnp.finfo(M.dtype).eps) if self.rtol is None else self.rtol
        coordinate = coordinate_scale(M)
        row = row_scale(A, coordinate, self.least)
        M_unit = coordinate[:, None] * M * coordinate

        A_unit = row[:, None] * A * coordinate

        def factorise(result, weight):
            def compute():
                # Eliminate in reverse order, so that the zeros between the branches of a mechanism are not filled.
                L_inverse = inverse_cholesky((M_unit + weight * A_unit.T @ A_unit)[::-1, ::-1])
                return L_inverse, jnp.max(jnp.diagonal(L_inverse), initial=0) < MAX_INVERSE_PIVOT  # False for NaN

            return jax.lax.cond(~result[1], compute, lambda: result), None

        # Try M first, then M' if M is nearly singular. The second case is rare: see ``ukjax._kernel`` on rare branches.
        not_computed = jnp.zeros_like(M), jnp.asarray(False)
        (L_inverse, _), _ = jax.lax.scan(factorise, not_computed, jnp.array([0.0, 1.0], M.dtype))
        return orthonormalise(A, coordinate[:, None] * L_inverse.T[::-1], row, rtol, self.kept)


class Orthonormalised(AbstractFactorisation):
    """Factorisation of ``Orthogonal``: W = F (I − B⁺B) Fᵀ with F Fᵀ = M⁻¹ and B = diag(row) A F.

    V is an orthonormal basis of the rows of U B = ``triangle`` V, and P = RᵀR. U = R = I unless a row is redundant.

    If the rows are clearly independent (not ``doubtful``), V is not computed and ``triangle`` is the Cholesky factor of
    B Bᵀ. Use this record only in the program that made it: another program may select the other branch.
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
    assumes_consistent: ClassVar[bool] = False

    @property
    def needs_fallback(self) -> Bool[Array, ""]:
        return jnp.asarray(False)

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        free, rhs = force @ self.F, self.row * rows

        def by_basis():
            z = free - (self.V @ free) @ self.V
            # Project again: a force along a coordinate of very small mass leaves a rounding error that F amplifies.
            return z + (self.triangle.solve(self.U @ rhs) - self.V @ z) @ self.V

        return self.F @ fast_branch(self.doubtful, by_basis, lambda: self._nearest(free, rhs)[0])

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        free = force @ self.F

        def by_basis():
            return self._of_all_rows(self.triangle.solve_transposed(self.V @ free))

        return fast_branch(self.doubtful, by_basis, lambda: self.row * self._nearest(free, jnp.zeros_like(self.row))[1])

    def dual_of(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return λ = (A M⁻¹ Aᵀ)⁺ rows, for ``rows`` in the range of A."""
        return self._of_all_rows(self.triangle.solve_transposed(self.triangle.solve(self.U @ (self.row * rows))))

    def independence(self, M: Any, A: Any) -> Float[Array, ""]:
        inverse_pivot = self.triangle.scale * self.row  # 0 for an inactive row
        if inverse_pivot.size < 2:
            return jnp.asarray(jnp.inf, self.row.dtype)
        shortest_inverse_row = jnp.min(jnp.where(self.row > 0, self.row, jnp.inf))
        return shortest_inverse_row / jnp.max(inverse_pivot)

    def rhs_defect(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return (self.R @ rows) @ self.R - rows

    def factor(self) -> Float[Array, "n n"]:
        by_rows = lambda: jax.vmap(self.triangle.solve, in_axes=1, out_axes=1)(self.B)
        V = fast_branch(self.doubtful, lambda: self.V, by_rows)
        projected = self.F - (self.F @ V.T) @ V
        return projected - (projected @ V.T) @ V

    def _nearest(self, free, rows):
        """Return the z nearest to ``free`` with B z = rows, and λ with z = free − Bᵀλ.

        One step of iterative refinement: the condition number of B Bᵀ is the square of that of B. The second iteration
        reduces the residual B z − rows again, and z − free is a combination of rows for any λ (Björck, Linear Algebra
        Appl. 88/89 (1987) 31).
        """
        z, lam = free, jnp.zeros_like(rows)
        for _ in range(2):
            correction = self.triangle.solve_transposed(self.triangle.solve(self.B @ z - rows))
            z, lam = z - correction @ self.B, lam + correction
        return z, lam

    def _of_all_rows(self, y):
        rows = self.row * (y @ self.U)
        return rows + self.rhs_defect(rows)


def orthonormalise(
    A: Float[Array, "m n"],
    F: Float[Array, "n n"],
    row: Float[Array, " m"],
    rtol: Float[Array, ""] | float,
    kept: Bool[Array, " m"] | None = None,
) -> Orthonormalised:
    """Factorise the rows A for the inverse mass matrix F Fᵀ. The rank is determined from the rows of diag(row) A F."""
    unscaled = A @ F
    B = row[:, None] * unscaled
    all_rows = jnp.ones(row.size, bool)
    identity = jnp.eye(row.size, dtype=B.dtype)

    S = B @ B.T
    by_products = cholesky(S)
    least = jnp.maximum(jnp.finfo(B.dtype).eps ** INDEPENDENCE_EXPONENT * jnp.diagonal(S), rtol**2)
    doubtful = ~jnp.all(least * by_products.scale**2 < 1)  # True for NaN
    if kept is not None:
        doubtful = doubtful | ~jnp.all(kept)

    def row_by_row():
        first = orthonormal_rows(B, rtol, kept)
        independent = first.triangle.scale > 0

        def with_redundant_rows():
            """Recompute the basis from combinations U B of all rows: two of the first rows can be nearly parallel
            although others are not. R refers to the original units of the rows, because scaling inconsistent rows
            changes their least-squares solution."""
            U, R = jax.lax.map(lambda rows: _range_basis(rows @ first.V.T), jnp.stack([B, unscaled]))
            return orthonormal_rows(U @ B, 0.0), U, R

        basis, U, R = jax.lax.cond(~jnp.all(independent), with_redundant_rows, lambda: (first, identity, identity))
        return basis, U, R, independent

    by_cholesky = lambda: (Basis(jnp.full_like(B, jnp.nan), by_products), identity, identity, all_rows)
    (V, triangle), U, R, independent = fast_branch(doubtful, row_by_row, by_cholesky)
    return Orthonormalised(
        F=F,
        B=B,
        triangle=triangle,
        doubtful=doubtful,
        V=V,
        row=row,
        U=U,
        R=R,
        kept=independent,
        rank=jnp.sum(independent),
    )


def _range_basis(T):
    """Return an orthonormal basis, as rows, of the column space of T (m, m); dependent columns give zero rows."""
    length = jnp.sqrt(jnp.sum(T**2, axis=0))
    rounding = 8 * T.shape[0] * float(jnp.finfo(T.dtype).eps)
    return orthonormal_rows((T / jnp.where(length > 0, length, 1)).T, rounding).V
