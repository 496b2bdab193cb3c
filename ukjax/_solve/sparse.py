"""Large systems of which most entries are zero: multipliers along a band."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .base import AbstractMethod, AbstractResponse
from .scales import coordinate_scale, row_length

LOOSE = 1e-8
"""How far rows may give at first, in unit masses and of unit length: what they gave is taken back afterwards."""

AGAIN = 3
"""How often: each time what is left shrinks by LOOSE beside the square of the smallest singular value."""

LEAST = 6
"""Entries of a block, at least: below that what a step costs is not its arithmetic."""


class Band(NamedTuple):
    """Where the entries of [M Aᵀ; A −ε] stand when coordinates and rows are taken in an order in which none is far from
    the diagonal: in blocks on it and before it, as indices into (M, A, 0, 1, −ε), and the order itself."""

    diagonal: Int[np.ndarray, "blocks size size"]
    before: Int[np.ndarray, "blocks size size"]
    order: Int[np.ndarray, " all"]
    shape: tuple[int, int]

    @classmethod
    def of(cls, M: Bool[np.ndarray, "n n"], A: Bool[np.ndarray, "m n"]) -> "Band":
        """For matrices that are zero wherever these are False."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        m, n = A.shape
        whole = np.block([[M | M.T, A.T], [A, np.zeros((m, m), bool)]]) | np.eye(n + m, dtype=bool)
        order = np.asarray(reverse_cuthill_mckee(csr_array(whole.astype(int)), symmetric_mode=True))
        i, j = np.nonzero(whole[np.ix_(order, order)])
        size = max(LEAST, int(np.max(np.abs(i - j), initial=0)))
        blocks = -(-(n + m) // size)
        nothing, one, loose = n * n + m * n, n * n + m * n + 1, n * n + m * n + 2
        source = np.full((n + m, n + m), nothing)
        source[:n, :n] = np.where(M | M.T, np.arange(n * n).reshape(n, n), nothing)
        source[n:, :n] = np.where(A, n * n + np.arange(m * n).reshape(m, n), nothing)
        source[:n, n:] = source[n:, :n].T
        source[np.arange(n, n + m), np.arange(n, n + m)] = loose
        full = blocks * size
        padded = np.where(np.eye(full, dtype=bool), one, nothing)
        padded[: n + m, : n + m] = source[np.ix_(order, order)]
        cut = padded.reshape(blocks, size, blocks, size)
        each = np.arange(blocks)
        diagonal = cut[each, :, each]
        before = np.concatenate([np.full((1, size, size), nothing), cut[each[1:], :, each[:-1]]])
        return cls(diagonal.astype(np.int32), before.astype(np.int32), order.astype(np.int32), (m, n))


class Sparse(AbstractMethod):
    """[M Aᵀ; A −ε] factorised in blocks along its band, ε = 1e-8 in unit masses and rows of unit length, and what the
    rows gave taken back three times: the method for mechanisms of many bodies in absolute coordinates, and for rows of
    loops. Written ``method="sparse"``; where a start is not known, ``ukjax.Sparse.of(M, A)``.

    The order of coordinates and rows is found once, by Cuthill and McKee, from where M and A are zero. Redundant rows
    are no trouble as long as they do not contradict each other, and M may be semidefinite if rank [M; A] = n; rows that
    contradict each other, or of which one is nearly a combination of others (singular values below 1e-3 of the
    largest), give NaN. All rows count for ``rank``. Cost: about (n + m) w² for a band of width w, in a loop whose
    compilation does not grow with n.
    """

    bands: tuple[Band, ...] = ()
    finds_rank: ClassVar[bool] = False

    @classmethod
    def of(cls, *matrices: tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "m n"]]) -> "Sparse":
        """For systems of the shapes of these pairs (M, A), zero wherever all of these are."""
        merged: dict[tuple[int, ...], list[np.ndarray]] = {}
        for M, A in matrices:
            there = [np.asarray(M) != 0, np.asarray(A) != 0]
            before = merged.get(A.shape)
            merged[A.shape] = there if before is None else [x | y for x, y in zip(before, there, strict=True)]
        return cls(tuple(Band.of(M, A) for M, A in merged.values()))

    def keeping(self, kept: Bool[Array, " m"]) -> "Sparse":
        return self

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "AlongBand":
        band = next((band for band in self.bands if band.shape == A.shape), None)
        if band is None:
            raise ValueError(
                f"method 'sparse' must know where {A.shape[0]} rows of {A.shape[1]} coordinates are zero: start from "
                "values that are known, outside jit, or give it matrices of that shape, ukjax.Sparse.of((M, A))"
            )
        coordinate = coordinate_scale(M)
        length = row_length(A, coordinate)
        row = 1 / jnp.where(length > 0, length, 1)
        M, A = coordinate[:, None] * M * coordinate, row[:, None] * A * coordinate
        constants = jnp.asarray(np.array([0, 1, -LOOSE]), M.dtype)
        entries = jnp.concatenate([M.ravel(), A.ravel(), constants])
        before = entries[band.before]

        def factorise(inverse, blocks):
            diagonal, before = blocks
            inverse = _inverse(diagonal - before @ inverse @ before.T)
            return inverse, inverse

        nothing = jnp.zeros(band.diagonal.shape[1:], M.dtype)
        inverses = jax.lax.scan(factorise, nothing, (entries[band.diagonal], before))[1]
        order = jnp.asarray(band.order)
        return AlongBand(M, A, coordinate, row, inverses, before, order)  # pyright: ignore[reportCallIssue]


class AlongBand(AbstractResponse):
    """What the system answers: M and A in unit masses and rows of unit length, and the factors."""

    M: Float[Array, "n n"]
    A: Float[Array, "m n"]
    coordinate: Float[Array, " n"]
    row: Float[Array, " m"]
    inverses: Float[Array, "blocks size size"]
    before: Float[Array, "blocks size size"]
    order: Int[Array, " all"]
    reaches_all: ClassVar[bool] = True

    @property
    def unusual(self) -> Bool[Array, ""]:
        return jnp.asarray(False)

    @property
    def kept(self) -> Bool[Array, " m"]:
        return jnp.ones(self.row.shape, bool)

    @property
    def rank(self) -> Int[Array, ""]:
        return jnp.asarray(self.row.size)

    def both(
        self, M: Float[Array, "n n"], force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        force, rows = self.coordinate * force, self.row * rows
        x, nu = jnp.zeros_like(force), jnp.zeros_like(rows)
        for _ in range(1 + AGAIN):
            more, and_more = self._loosely(force - self.M @ x - nu @ self.A, rows - self.A @ x)
            x, nu = x + more, nu + and_more
        # What is not solved shows here: rows that contradict each other, and entries where the band has none.
        back = nu @ self.A
        missed = jnp.max(jnp.abs(rows - self.A @ x), initial=0)
        unmoved = jnp.max(jnp.abs(force - self.M @ x - back), initial=0)
        size = jnp.max(jnp.abs(x), initial=0) + jnp.max(jnp.abs(rows), initial=0)
        pushed = size + jnp.max(jnp.abs(back), initial=0) + jnp.max(jnp.abs(force), initial=0)
        limit = jnp.finfo(x.dtype).eps ** 0.6
        x = jnp.where((missed <= limit * size) & (unmoved <= limit * pushed), x, jnp.nan)
        return self.coordinate * x, self.row * nu

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.both(self.M, force, rows)[0]

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.both(self.M, force, jnp.zeros_like(self.row))[1]

    def unreached(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return jnp.zeros_like(rows)

    def factor(self) -> Float[Array, "n n"]:
        raise ValueError("method 'sparse' has no factor of the constrained inverse mass: use 'orthogonal' for that")

    def _loosely(self, force, rows):
        """x and ν of rows that give a little."""
        blocks, size, _ = self.before.shape
        known = jnp.concatenate([force, rows])[self.order]
        known = jnp.pad(known, (0, blocks * size - known.size)).reshape(blocks, size)

        def down(last, block):
            known, before, inverse = block
            last = inverse @ (known - before @ last)
            return last, last

        def up(following, block):
            found, inverse, after = block
            found = found - inverse @ (following @ after)
            return found, found

        nothing = jnp.zeros(size, known.dtype)
        found = jax.lax.scan(down, nothing, (known, self.before, self.inverses))[1]
        after = jnp.concatenate([self.before[1:], jnp.zeros_like(self.before[:1])])
        found = jax.lax.scan(up, nothing, (found, self.inverses, after), reverse=True)[1]
        found = jnp.zeros_like(self.order, found.dtype).at[self.order].set(found.ravel()[: self.order.size])
        return found[: force.size], found[force.size :]


def _inverse(S):
    """Of a quasidefinite matrix, which needs no pivoting (Vanderbei, SIAM J. Optim. 5 (1995) 100)."""
    index = jnp.arange(len(S))

    def eliminate(k, X):
        pivot = 1 / X[k, k]
        row, column = X[k] * pivot, X[:, k]
        X = X - jnp.where(index == k, 0, column)[:, None] * row
        column = jnp.where(index == k, pivot, -column * pivot)
        return X.at[k].set(row).at[:, k].set(column)

    return jax.lax.fori_loop(0, len(S), eliminate, S)
