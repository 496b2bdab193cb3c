"""Large systems of which most entries are zero: multipliers along a band."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compressed import Compressed, flat
from .._run.batch_last import members_last
from .band import Band, factorise, has_inertia, substitute
from .base import AbstractFactorisation, AbstractMethod
from .scales import coordinate_scale, lengths

LOOSE = 0.55
"""eps to this power, 2e-9 in float64, is ε: how far rows may give at first, in unit masses and of unit length. What
they gave is taken back afterwards; of a smaller ε rounding would take more."""

AGAIN = 5
"""How often, at the most: each time what is left shrinks by ε beside the square of the smallest singular value."""

ROUNDING = 8
"""Units of the last place, of the largest, that may be left of what was to be solved."""

SHRINKS = 10
"""By which factor, at the least, what is left is to shrink each time: where it does not, that is the rounding of many
numbers, or rows that contradict each other."""


class Sparse(AbstractMethod):
    """[M Aᵀ; A −ε] factorised in blocks along its band, ε = 2e-9 in unit masses and rows of unit length, and what the
    rows gave taken back: the method for mechanisms of many bodies in absolute coordinates, and for rows of loops.
    Written ``method="sparse"``; where a start is not known, ``ukjax.Sparse.of(M, A)``.

    The order of coordinates and rows is found once, by Cuthill and McKee, from where M and A are zero. Redundant rows
    are no trouble as long as they do not contradict each other, and M may be semidefinite if rank [M; A] = n; rows that
    contradict each other, or of which one is nearly a combination of others (singular values below 1e-3 of the
    largest), give NaN, and so do entries where there were none when the band was made; derivatives of entries that are
    zero in the matrices given to ``of`` are left out. All rows count for ``rank``.
    Cost: about (n + m) w² for a band of width w, in a loop whose compilation does not grow with n; in ``simulate``, of
    energies and of mechanisms, M and A are never made in full.
    """

    bands: tuple[Band, ...] = eqx.field(static=True, default=())
    has_fallback: bool = eqx.field(static=True, default=False)  # pyright: ignore[reportIncompatibleMethodOverride]
    finds_rank: ClassVar[bool] = False
    is_sparse: ClassVar[bool] = True

    @classmethod
    def of(cls, *matrices: tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "m n"]]) -> "Sparse":
        """For systems of the shapes of these pairs (M, A), zero wherever all of these are."""
        merged: dict[tuple[int, ...], list[np.ndarray]] = {}
        for M, A in matrices:
            there = [np.asarray(M) != 0, np.asarray(A) != 0]
            before = merged.get(A.shape)
            merged[A.shape] = there if before is None else [x | y for x, y in zip(before, there, strict=True)]
        return cls(tuple(Band(M, A) for M, A in merged.values()))

    def keeping(self, kept: Bool[Array, " m"]) -> "Sparse":
        return self

    def band_of(self, shape: tuple[int, ...]) -> Band:
        """The band for an A of this shape, or ``ValueError``."""
        for band in self.bands:
            if band.A.shape == shape:
                return band
        raise ValueError(
            f"method 'sparse' must know where {shape[0]} rows of {shape[1]} coordinates are zero: start from "
            "values that are known, outside jit, or give it matrices of that shape, ukjax.Sparse.of((M, A))"
        )

    def factorise(self, M: Float[Array, "n n"] | Compressed, A: Float[Array, "m n"] | Compressed) -> "AlongBand":
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
            constants = np.array([0, 1, -(jnp.finfo(length.dtype).eps ** LOOSE)], length.dtype).reshape(
                3, *(1,) * (length.ndim - 1)
            )
            known = jnp.concatenate([flat(M), flat(A), jnp.broadcast_to(constants, (3, *length.shape[1:]))])
            inverses, beside = factorise(known[band.diagonal], known[band.before])
            return M, A, coordinate, row, inverses, beside, has_inertia(inverses, band.signs) & symmetric

        M, A, *others = in_units(M.entries, A.entries)
        M, A = Compressed(M, band.M), Compressed(A, band.A)
        return AlongBand(M, A, *others, band, self.has_fallback)  # pyright: ignore[reportCallIssue]


class AlongBand(AbstractFactorisation):
    """What the system answers: M and A in unit masses and rows of unit length, and the factors; and whether these are
    ``sound``, those of a mass matrix."""

    M: Compressed
    A: Compressed
    coordinate: Float[Array, " n"]
    row: Float[Array, " m"]
    inverses: Float[Array, "blocks size size"]
    beside: Float[Array, "blocks size size"]
    sound: Bool[Array, ""]
    band: Band = eqx.field(static=True)
    has_fallback: bool = eqx.field(static=True)
    reaches_all: ClassVar[bool] = True

    @property
    def needs_fallback(self) -> Bool[Array, ""]:
        return ~self.sound if self.has_fallback else jnp.asarray(False)

    @property
    def kept(self) -> Bool[Array, " m"]:
        return jnp.ones(self.row.shape, bool)

    @property
    def rank(self) -> Int[Array, ""]:
        return jnp.asarray(self.row.size)

    def both(
        self, M: Float[Array, "n n"] | Compressed, force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        band = self.band

        @members_last
        def solved(M, A, inverses, beside, force, rows):
            return _solved(Compressed(M, band.M), Compressed(A, band.A), inverses, beside, force, rows, band.order)

        force, rows = self.coordinate * force, self.row * rows
        x, nu = solved(self.M.entries, self.A.entries, self.inverses, self.beside, force, rows)
        return self.coordinate * x, self.row * nu

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.both(self.M, force, rows)[0]

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.both(self.M, force, jnp.zeros_like(self.row))[1]

    def out_of_reach(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return jnp.zeros_like(rows)

    def factor(self) -> Float[Array, "n n"]:
        raise ValueError("method 'sparse' has no factor of the constrained inverse mass: use 'orthogonal' for that")


def _is_symmetric(M):
    """Whether M is symmetric, in coordinates of unit mass."""
    different = jnp.max(jnp.abs(M.entries - M.transposed().entries), axis=(0, 1), initial=0)
    return different <= 2 * jnp.finfo(different.dtype).eps ** 0.5


def _solved(M, A, inverses, beside, force, rows, order):
    """x and ν with M x + Aᵀν = force, A x = rows: by rows that give a little, again and again, until all is kept."""
    blocks, size = beside.shape[:2]
    back, n, eps = np.argsort(order), len(force), jnp.finfo(force.dtype).eps
    members = jnp.broadcast_shapes(*(x.shape[1:] for x in (force, rows, inverses[0, 0])))
    force, rows = (jnp.broadcast_to(x, (len(x), *members)) for x in (force, rows))
    largest = lambda x: jnp.max(jnp.abs(x), axis=0, initial=0)

    def loosely(force, rows):
        known = jnp.concatenate([force, rows])[order]
        known = jnp.concatenate([known, jnp.zeros_like(known, shape=(blocks * size - len(known), *members))])
        found = substitute(inverses, beside, known.reshape(blocks, size, *members))
        found = found.reshape(blocks * size, *members)[back]
        return found[:n], found[n:]

    def left(x, nu):
        """Of both sides, and how much that is beside what there is."""
        push = nu @ A
        unmoved, missed, there = force - M @ x - push, rows - A @ x, largest(x) + largest(rows)
        shares = _over(largest(missed), there), _over(largest(unmoved), there + largest(push) + largest(force))
        return unmoved, missed, jnp.maximum(*shares)

    def go_on(state):
        *_, share, before, times = state
        return (times <= AGAIN) & jnp.any((share > ROUNDING * eps) & (share * SHRINKS < before))

    def closer(state):
        x, nu, unmoved, missed, before, _, times = state
        more, and_more = loosely(unmoved, missed)
        x, nu = x + more, nu + and_more
        return x, nu, *left(x, nu), before, times + 1

    none, all_of_it, times = (jnp.zeros_like(force), jnp.zeros_like(rows)), jnp.ones(members, force.dtype), jnp.int32(0)
    at_first = *none, force, rows, all_of_it, jnp.inf * all_of_it, times
    x, nu, _, _, share, *_ = jax.lax.while_loop(go_on, closer, at_first)
    # What is not solved shows here: rows that contradict each other, and entries where the band has none.
    return jnp.where(share <= eps**0.6, x, jnp.nan), nu


def _over(part, whole):
    return part / jnp.where(whole > 0, whole, 1)
