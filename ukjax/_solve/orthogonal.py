"""The default method: orthonormalise the rows of B = A M^(-1/2), as many as are independent."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .base import AbstractMethod, Response
from .kernels import inverse_cholesky, orthonormal_rows


class Orthogonal(AbstractMethod):
    """Rank-revealing and without LAPACK: the default, made for ``vmap``.

    Takes redundant and inconsistent rows, more rows than coordinates, and a semidefinite M with rank [M; A] = n
    (the motion is unique exactly then; NaN otherwise). A row counts as redundant when what it adds to the others is
    below ``rtol`` of its own size (default √eps: 1.5e-8 in float64), in the metric of M. A larger ``rtol`` truncates:
    it keeps the motion bounded near a singular pose by ignoring rows that are nearly dependent. ``rank``, if given,
    is the most there may be.
    Cost: about n³/3 + m n² + 4 m² n multiplications.

    M is replaced by M' = M + Âᵀ Â (Â: rows scaled to unit length), which changes no motion, is positive definite
    whenever the motion is unique, and is better conditioned than M (Udwadia & Schutte, Acta Mech. 213 (2010) 111).
    """

    rtol: float | None = None
    rank: Int[Array, ""] | None = None

    def with_rank(self, rank: Int[Array, ""]) -> "Orthogonal":
        return Orthogonal(self.rtol, rank)

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> Response:
        rtol = jnp.sqrt(jnp.finfo(M.dtype).eps) if self.rtol is None else self.rtol
        coordinate = coordinate_scale(M)
        row = row_scale(A, coordinate)
        A_unit = row[:, None] * A * coordinate
        M_unit = coordinate[:, None] * M * coordinate + A_unit.T @ A_unit

        F = coordinate[:, None] * inverse_cholesky(M_unit).T  # F Fᵀ = M'⁻¹
        V, B_plus, P = pseudoinverse(A @ F, row, rtol, self.rank)
        return Response(
            factor=F - (F @ V.T) @ V,  # F (I − B⁺B)
            gain=F @ B_plus,
            reachable=P,
            rank=jnp.sum(jnp.any(V != 0, axis=1)),
        )


def pseudoinverse(
    B: Float[Array, "m n"], row: Float[Array, " m"], rtol: Float[Array, ""] | float, rank: Int[Array, ""] | None = None
) -> tuple[Float[Array, "k n"], Float[Array, "n m"], Float[Array, "m m"]]:
    """V, B⁺ and P = B B⁺: an orthonormal basis of B's rows, its pseudoinverse, and the projector onto its columns.

    Ranks are decided on the rows of B times ``row``; B⁺ is that of B, in the units its rows have: least squares over
    rows that contradict each other would mean something else after scaling them.
    """
    m = B.shape[0]
    V, Z = orthonormal_rows(row[:, None] * B, rtol, rank)
    Z = Z * row  # V = Z B
    # The columns of T = B Vᵀ span the range of B, and Z T = I: so T⁺ = Z P.
    T = B @ V.T
    length = jnp.sqrt(jnp.sum(T**2, axis=0))
    U, _ = orthonormal_rows((T / jnp.where(length > 0, length, 1)).T, 8 * m * float(jnp.finfo(T.dtype).eps))
    full = jnp.sum(jnp.any(V != 0, axis=1)) == m
    P = jnp.where(full, jnp.eye(m, dtype=B.dtype), U.T @ U)
    return V, V.T @ (Z @ P), P


def coordinate_scale(M: Float[Array, "n n"]) -> Float[Array, " n"]:
    """Factors that give every coordinate unit mass, so that units do not decide ranks: 1/√M_ii, and for a coordinate
    without mass that of the mean mass."""
    mass = jnp.diagonal(M)
    mean = jnp.mean(jnp.abs(mass))
    mean = jnp.where(mean > 0, mean, 1)
    return 1 / jnp.sqrt(jnp.where(mass > jnp.finfo(M.dtype).eps * mean, mass, mean))


def row_scale(A: Float[Array, "m n"], coordinate: Float[Array, " n"]) -> Float[Array, " m"]:
    """Factors that give every row unit length in the scaled coordinates. A row that is nothing but rounding, below
    eps^(3/4) of the largest, gets 0: scaled up it would be taken for a constraint."""
    length = jnp.sqrt(jnp.sum((A * coordinate) ** 2, axis=1))
    real = length > jnp.finfo(A.dtype).eps ** 0.75 * jnp.max(length, initial=0)
    return jnp.where(real, 1 / jnp.where(real, length, 1), 0)
