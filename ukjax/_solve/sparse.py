"""Sparse method: banded LDLᵀ factorisation of the KKT matrix with iterative refinement, for large systems."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compressed import Compressed, flat
from .._errors import InputError
from .._run.batch_last import members_last
from .band import Band, factorise, has_inertia, substitute
from .base import AbstractFactorisation, AbstractMethod
from .scales import coordinate_scale, lengths

REGULARISATION_EXPONENT = 0.55
"""ε = eps^REGULARISATION_EXPONENT, 2e-9 in float64: the compliance of the rows, in coordinates of unit mass and for
rows of unit length. Iterative refinement removes its effect. A smaller ε would increase rounding errors."""

MAX_REFINEMENTS = 5
"""Largest number of refinement steps. Each step multiplies the residual by about ε/σ², where σ is the smallest singular
value."""

RESIDUAL_EPS = 8
"""Residual at which refinement stops, in eps of the largest term."""

MIN_REDUCTION = 10
"""Smallest factor by which a refinement step must reduce the residual. Otherwise refinement stops: the residual is then
accumulated rounding, or rows are nearly dependent, or inconsistent."""

LARGE_RESIDUAL_EPS = 64
"""Residual, in eps of the largest term, that is more than rounding: rows are nearly dependent, or inconsistent."""

MAX_EXTRAPOLATIONS = 6
"""Largest number of extrapolated steps for nearly dependent rows."""

MAX_EXTRAPOLATION = 1e9
"""Largest factor of such a step: ε/σ² for σ = 1.5e-9, where the rows count as dependent in all methods."""


class Sparse(AbstractMethod):
    """Banded factorisation of [M Aᵀ; A −ε I], for mechanisms of many bodies in absolute coordinates and many loops.

    ε is 2e-9 in float64, in coordinates of unit mass and for rows of unit length; iterative refinement removes its
    effect. Write ``method="sparse"``, or ``ukjax.Sparse.of((M, A))`` if the start is not known, as under ``jit``.

    Coordinates and rows are ordered once, by reverse Cuthill–McKee, from the sparsity patterns of M and A. Redundant
    rows are allowed if they are consistent, and M may be semidefinite if rank [M; A] = n. ``rank`` counts all rows. The
    result is NaN for inconsistent rows, and for nonzero entries outside the sparsity pattern. For nearly dependent rows
    with singular values above 1e-6 of the largest, the relative error is at most 1e-8. Below, the result is NaN, or the
    rows count as redundant; between 1e-8 and 1e-7, it may have an error of 1e-3. Derivatives with respect to entries
    that are zero in the matrices given to ``of`` are omitted.

    Cost: about (n + m) w² for the bandwidth w, in a loop whose compile time does not grow with n. For the energies and
    mechanisms of ``simulate``, M and A are never formed as dense matrices.
    """

    bands: tuple[Band, ...] = eqx.field(static=True, default=())
    has_fallback: bool = eqx.field(static=True, default=False)  # pyright: ignore[reportIncompatibleMethodOverride]
    finds_rank: ClassVar[bool] = False
    is_sparse: ClassVar[bool] = True

    @classmethod
    def of(cls, *matrices: tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "m n"]]) -> "Sparse":
        """Make the method for systems with the sparsity patterns of given matrices.

        Parameters
        ----------
        *matrices
            Pairs (M, A), (n, n) and (m, n). For pairs of one shape, the pattern is the union of their patterns.

        Returns
        -------
        Sparse
            The method, for systems of these shapes.
        """
        merged: dict[tuple[int, ...], list[np.ndarray]] = {}
        for M, A in matrices:
            patterns = [np.asarray(M) != 0, np.asarray(A) != 0]
            previous = merged.get(A.shape)
            merged[A.shape] = patterns if previous is None else [x | y for x, y in zip(previous, patterns, strict=True)]
        return cls(tuple(Band(M, A) for M, A in merged.values()))

    def with_active_rows(self, kept: Bool[Array, " m"]) -> "Sparse":
        return self

    def band_of(self, shape: tuple[int, ...]) -> Band:
        """Return the band for an A of this shape. Raises ``InputError`` if there is none."""
        for band in self.bands:
            if band.A.shape == shape:
                return band
        raise InputError(
            f"method 'sparse' needs to know which entries of {shape[0]} rows of {shape[1]} coordinates are zero: call "
            "it outside of jit, or give it concrete matrices of that shape, ukjax.Sparse.of((M, A))"
        )

    def factorise(
        self, M: Float[Array, "n n"] | Compressed, A: Float[Array, "m n"] | Compressed
    ) -> "BandFactorisation":
        band = self.band_of(A.shape)
        M = M if isinstance(M, Compressed) else band.M.of(M)
        A = A if isinstance(A, Compressed) else band.A.of(A)

        @members_last
        def in_units(M, A):
            M, A = Compressed(M, band.M), Compressed(A, band.A)
            coordinate = coordinate_scale(M)
            length = lengths(A.scaled(jnp.ones_like(A.entries[:, 0]), coordinate).entries)
            row = 1 / jnp.where(length > 0, length, 1)
            M = M.scaled(coordinate, coordinate)
            symmetric = _is_symmetric(M)
            M, A = M.entries, A.scaled(row, coordinate).entries
            M, A = (jnp.broadcast_to(x, (*x.shape[:2], *length.shape[1:])) for x in (M, A))
            constants = np.array(
                [0, 1, -(jnp.finfo(length.dtype).eps ** REGULARISATION_EXPONENT)], length.dtype
            ).reshape(3, *(1,) * (length.ndim - 1))
            entries = jnp.concatenate([flat(M), flat(A), jnp.broadcast_to(constants, (3, *length.shape[1:]))])
            inverses, beside = factorise(entries[band.diagonal], entries[band.before])
            return M, A, coordinate, row, inverses, beside, has_inertia(inverses, band.signs) & symmetric

        M, A, *rest = in_units(M.entries, A.entries)
        M, A = Compressed(M, band.M), Compressed(A, band.A)
        return BandFactorisation(M, A, *rest, band, self.has_fallback)  # pyright: ignore[reportCallIssue]


class BandFactorisation(AbstractFactorisation):
    """Factorisation of ``Sparse``.

    Attributes
    ----------
    M, A
        The matrices in coordinates of unit mass and with rows of unit length.
    coordinate, row
        The scale factors of coordinates (n,) and rows (m,).
    inverses, beside
        Inverse pivots S_k⁻¹ and subdiagonal blocks L_k of ``band.factorise``.
    sound
        True if the pivots have the signs of a positive definite M, and M is symmetric.
    """

    M: Compressed
    A: Compressed
    coordinate: Float[Array, " n"]
    row: Float[Array, " m"]
    inverses: Float[Array, "blocks size size"]
    beside: Float[Array, "blocks size size"]
    sound: Bool[Array, ""]
    band: Band = eqx.field(static=True)
    has_fallback: bool = eqx.field(static=True)
    assumes_consistent: ClassVar[bool] = True

    @property
    def needs_fallback(self) -> Bool[Array, ""]:
        return ~self.sound if self.has_fallback else jnp.asarray(False)

    @property
    def kept(self) -> Bool[Array, " m"]:
        return jnp.ones(self.row.shape, bool)

    @property
    def rank(self) -> Int[Array, ""]:
        return jnp.asarray(self.row.size)

    def motion_and_multipliers(
        self, M: Float[Array, "n n"] | Compressed, force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        band = self.band

        @members_last
        def solve(M, A, inverses, beside, force, rows):
            return _solve_refined(
                Compressed(M, band.M), Compressed(A, band.A), inverses, beside, force, rows, band.order
            )

        force, rows = self.coordinate * force, self.row * rows
        x, nu = solve(self.M.entries, self.A.entries, self.inverses, self.beside, force, rows)
        return self.coordinate * x, self.row * nu

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.motion_and_multipliers(self.M, force, rows)[0]

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.motion_and_multipliers(self.M, force, jnp.zeros_like(self.row))[1]

    def rhs_defect(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return jnp.zeros_like(rows)

    def factor(self) -> Float[Array, "n n"]:
        raise InputError("method 'sparse' has no factor of the constrained inverse mass: use 'orthogonal' for that")


def _is_symmetric(M):
    """Whether M, in coordinates of unit mass, is symmetric up to 2√eps."""
    difference = jnp.max(jnp.abs(M.entries - M.transposed().entries), axis=(0, 1), initial=0)
    return difference <= 2 * jnp.finfo(difference.dtype).eps ** 0.5


def _solve_refined(M, A, inverses, beside, force, rows, order):
    """Solve M x + Aᵀν = force, A x = rows by the factors of the regularised matrix with iterative refinement."""
    blocks, size = beside.shape[:2]
    inverse_order, n, eps = np.argsort(order), len(force), jnp.finfo(force.dtype).eps
    members = jnp.broadcast_shapes(*(x.shape[1:] for x in (force, rows, inverses[0, 0])))
    force, rows = (jnp.broadcast_to(x, (len(x), *members)) for x in (force, rows))
    largest = lambda x: jnp.max(jnp.abs(x), axis=0, initial=0)

    def solve_regularised(force, rows):
        rhs = jnp.concatenate([force, rows])[order]
        rhs = jnp.concatenate([rhs, jnp.zeros_like(rhs, shape=(blocks * size - len(rhs), *members))])
        solution = substitute(inverses, beside, rhs.reshape(blocks, size, *members))
        solution = solution.reshape(blocks * size, *members)[inverse_order]
        return solution[:n], solution[n:]

    def residuals(x, nu):
        """Return the residuals of both equations, and the larger of them relative to the terms of the equation."""
        row_force = nu @ A
        force_residual, row_residual, magnitude = force - M @ x - row_force, rows - A @ x, largest(x) + largest(rows)
        ratios = (
            _ratio(largest(row_residual), magnitude),
            _ratio(largest(force_residual), magnitude + largest(row_force) + largest(force)),
        )
        return force_residual, row_residual, jnp.maximum(*ratios)

    def take_step(state):
        """A refinement step; after the usual ones, pairs of an extrapolated step and a usual one.

        For a nearly dependent row refinement converges, but slowly: each step is the fraction σ²/(σ² + ε) of what is
        needed. The length of an extrapolated step minimises the residual of the rows. If these are inconsistent, no
        step changes the residual.
        """
        x, nu, force_residual, row_residual, ratio, before, longest, steps, extra, _ = state
        extrapolates, completes = extra % 2 == 1, (extra > 0) & (extra % 2 == 0)
        dx, dnu = solve_regularised(jnp.where(extrapolates, 0, force_residual), row_residual)
        change, dot = A @ dx, lambda a, b: jnp.sum(a * b, axis=0)
        along, size = dot(row_residual, change), dot(change, change)
        is_slow = extrapolates & (along**2 > dot(row_residual, row_residual) * size / 2)
        length = jnp.where(is_slow, jnp.clip(_ratio(along, size), 1, MAX_EXTRAPOLATION), 1)
        x, nu = x + length * dx, nu + length * dnu
        *new_residuals, new_ratio = residuals(x, nu)
        is_reduced = (new_ratio > RESIDUAL_EPS * eps) & (new_ratio * MIN_REDUCTION < ratio)
        converges = (extra == 0) & (steps < MAX_REFINEMENTS) & jnp.any(is_reduced)
        is_large = new_ratio > LARGE_RESIDUAL_EPS * eps
        improves = jnp.any(is_large & (new_ratio < before)) & (extra < 2 * MAX_EXTRAPOLATIONS)
        before = jnp.where(extrapolates, before, new_ratio)  # that before the next pair
        extra = jnp.where(converges, 0, extra + 1)
        goes_on = converges | (jnp.any(is_large) & (improves | ~completes))
        return x, nu, *new_residuals, new_ratio, before, jnp.maximum(longest, length), steps + 1, extra, goes_on

    zeros, ones, zero = (jnp.zeros_like(force), jnp.zeros_like(rows)), jnp.ones(members, force.dtype), jnp.int32(0)
    initial = *zeros, force, rows, ones, ones, ones, zero, zero, jnp.asarray(True)
    x, nu, _, row_residual, ratio, _, longest, *_ = jax.lax.while_loop(lambda state: state[-1], take_step, initial)
    # A large residual remains for inconsistent rows and for entries outside the sparsity pattern. The residual of a
    # nearly dependent row causes an error of residual/σ, with σ² = ε/length.
    sigma = (eps**REGULARISATION_EXPONENT / longest) ** 0.5
    row_ratio = _ratio(largest(row_residual), largest(x) + largest(rows))
    accurate = (longest == 1) | (row_ratio <= eps**0.5 * sigma)
    return jnp.where((ratio <= eps**0.6) & accurate, x, jnp.nan), nu


def _ratio(part, whole):
    return part / jnp.where(whole > 0, whole, 1)
