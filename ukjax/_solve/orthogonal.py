"""The default method: orthonormalise the rows of B = A M^(-1/2), as many as are independent."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .base import AbstractMethod, AbstractResponse
from .kernels import Basis, inverse_cholesky, orthonormal_rows

WEAK = 1e4
"""Entries of L⁻¹ on its diagonal, for a mass matrix scaled to unit diagonal, above which M is close to singular."""


class Orthogonal(AbstractMethod):
    """Rank-revealing and without LAPACK: the default, made for ``vmap``.

    Takes redundant and inconsistent rows, more rows than coordinates, and a semidefinite M with rank [M; A] = n
    (the motion is unique exactly then; NaN otherwise). Rows are taken as they come; one counts as redundant when what
    it adds to those before it is below ``rtol`` of its own size (default √eps: 1.5e-8 in float64), in the metric of
    M. A larger ``rtol`` truncates: it keeps the motion bounded near a singular pose by ignoring rows that are nearly
    dependent. ``kept``, if given, are the only rows that may count.
    Cost: about n³/3 + m n² + 2 m² n multiplications.

    Where M is singular, or nearly so, M' = M + Âᵀ Â (Â: rows scaled to unit length) takes its place, which changes no
    motion and is positive definite whenever the motion is unique (Udwadia & Schutte, Acta Mech. 213 (2010) 111).
    """

    rtol: float | None = None
    kept: Bool[Array, " m"] | None = None

    def keeping(self, kept: Bool[Array, " m"]) -> "Orthogonal":
        return Orthogonal(self.rtol, kept)

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "Orthonormalised":
        rtol = jnp.sqrt(jnp.finfo(M.dtype).eps) if self.rtol is None else self.rtol
        coordinate = coordinate_scale(M)
        row = row_scale(A, coordinate)
        M_unit = coordinate[:, None] * M * coordinate

        def with_rows():
            A_unit = row[:, None] * A * coordinate
            return inverse_cholesky(M_unit + A_unit.T @ A_unit)

        L_inverse = inverse_cholesky(M_unit)
        sound = jnp.max(jnp.diagonal(L_inverse), initial=0) < WEAK  # false where it is NaN
        L_inverse = jax.lax.cond(~sound, with_rows, lambda: L_inverse)  # first what is rare: see ``ukjax._batch``
        return orthonormalise(A, coordinate[:, None] * L_inverse.T, row, rtol, self.kept)


class Orthonormalised(AbstractResponse):
    """With F Fᵀ = M⁻¹ and B = A F, ``basis`` is that of U S B, where S has the entries ``row`` on its diagonal.

    W = F (I − VᵀV) Fᵀ; U is I unless a row was found redundant.
    """

    F: Float[Array, "n n"]
    B: Float[Array, "m n"]
    U: Float[Array, "m m"]
    basis: Basis
    row: Float[Array, " m"]
    kept: Bool[Array, " m"]

    @property
    def rank(self) -> Int[Array, ""]:
        return jnp.sum(self.kept)

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        V, free = self.basis.V, force @ self.F
        free = free - (V @ free) @ V
        # A force along a coordinate with hardly any mass leaves rounding behind that F would make large: once more.
        return self.F @ (free + (self._coordinates(rows) - V @ free) @ V)

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return self._multipliers(self.basis.V @ (force @ self.F))

    def multipliers_of(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """(B Bᵀ)⁺ rows, for rows within reach: the λ that make them true."""
        return self._multipliers(self._coordinates(rows))

    def unreached(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return jax.lax.cond(
            jnp.any(~self.kept), _beyond_reach, lambda B, V, rows: jnp.zeros_like(rows), self.B, self.basis.V, rows
        )

    def _coordinates(self, rows):
        return self.basis.coordinates(self.U @ (self.row * rows))

    def _multipliers(self, y):
        rows = self.row * (self.basis.multipliers(y) @ self.U)
        return rows + self.unreached(rows)

    def factor(self) -> Float[Array, "n n"]:
        return self.F - (self.F @ self.basis.V.T) @ self.basis.V


def orthonormalise(
    A: Float[Array, "m n"],
    F: Float[Array, "n n"],
    row: Float[Array, " m"],
    rtol: Float[Array, ""] | float,
    kept: Bool[Array, " m"] | None = None,
) -> Orthonormalised:
    """The response of rows A where F Fᵀ is the inverse mass. Ranks are decided on the rows of A F times ``row``."""
    B = A @ F
    scaled = row[:, None] * B
    basis = orthonormal_rows(scaled, rtol, kept)
    kept = basis.scale > 0
    U = jnp.eye(row.size, dtype=B.dtype)
    U, basis = jax.lax.cond(jnp.any(~kept), _of_all_rows, lambda _, basis: (U, basis), scaled, basis)
    return Orthonormalised(F=F, B=B, U=U, basis=basis, row=row, kept=kept)


def coordinate_scale(M: Float[Array, "n n"]) -> Float[Array, " n"]:
    """Factors that give every coordinate unit mass, so that units do not decide ranks: 1/√M_ii, and for a coordinate
    without mass that of the mean mass."""
    mass = jnp.diagonal(M)
    mean = jnp.mean(jnp.abs(mass))
    mean = jnp.where(mean > 0, mean, 1)
    return jax.lax.rsqrt(jnp.where(mass > jnp.finfo(M.dtype).eps * mean, mass, mean))


def row_scale(A: Float[Array, "m n"], coordinate: Float[Array, " n"]) -> Float[Array, " m"]:
    """Factors that give every row unit length in the scaled coordinates. A row that is nothing but rounding, below
    eps^(3/4) of the largest, gets 0: scaled up it would be taken for a constraint."""
    square = jnp.sum((A * coordinate) ** 2, axis=1)
    real = square > jnp.finfo(A.dtype).eps ** 1.5 * jnp.max(square, initial=0)
    return jnp.where(real, jax.lax.rsqrt(jnp.where(real, square, 1)), 0)


def _of_all_rows(B, basis):
    """U and the basis anew, of combinations U B of all rows: of those that happened to come first, two may be all but
    parallel where others are not."""
    U = _range(B, basis.V)
    return U, orthonormal_rows(U @ B, 0.0)


def _beyond_reach(B, V, rows):
    """P rows − rows, in the units the rows have: least squares over rows that contradict each other would mean
    something else after scaling them."""
    U = _range(B, V)
    return (U @ rows) @ U - rows


def _range(B, V):
    """An orthonormal basis (in rows) of what B can reach: of the columns of B Vᵀ."""
    T = B @ V.T
    length = jnp.sqrt(jnp.sum(T**2, axis=0))
    rounding = 8 * T.shape[0] * float(jnp.finfo(T.dtype).eps)
    return orthonormal_rows((T / jnp.where(length > 0, length, 1)).T, rounding).V
