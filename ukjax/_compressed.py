"""Large matrices that are zero almost everywhere, by few of their columns.

Columns of which no two have an entry in the same row may be added up without loss (Curtis, Powell & Reid, J. Inst.
Math. Appl. 13 (1974) 117). So a derivative along few directions, the seeds, says as much as the whole matrix, and costs
and keeps what it has entries. One more direction shows if there are entries where there were to be none.
"""

import functools
import operator
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

AGREED = 0.6
"""eps to this power, of the entries of a row, is how far they may be from what the row is found to be."""

FEW = 16
"""Up to so many terms of a sum are written one by one."""


class Seeds:
    """Directions (n, colours + 1): for each colour the sum of its columns, and one of random entries."""

    def __init__(self, colour: np.ndarray, colours: int):
        self.colour, self.colours = colour, colours
        self.probe = np.random.default_rng(0).uniform(0.5, 1.5, colour.size)

    @property
    def matrix(self) -> Float[np.ndarray, "n seeds"]:
        """All of them."""
        return np.column_stack([self.colour[:, None] == np.arange(self.colours), self.probe])

    def along(self, function: Callable, like: Float[Array, " n"]) -> Float[Array, "m seeds"]:
        """A matrix times these, ``function(x)`` being that matrix times x."""
        return jax.vmap(function, in_axes=1, out_axes=1)(jnp.asarray(self.matrix, like.dtype))

    def of_entries(
        self, values: Float[Array, " entries"], rows: np.ndarray, columns: np.ndarray, count: int
    ) -> Float[Array, "m seeds"]:
        """A matrix of ``count`` rows times these, which has ``values`` at these places and is 0 elsewhere."""
        known = jnp.concatenate([values, jnp.zeros(1, values.dtype)])
        by_colour = _layers(rows * self.colours + self.colour[columns], count * self.colours)
        by_row = _layers(rows, count)
        probe = np.append(self.probe[columns], 0.0).astype(values.dtype)[by_row]
        entries = jnp.sum(known[by_colour], axis=0).reshape(count, self.colours)
        return jnp.concatenate([entries, jnp.sum(known[by_row] * probe, axis=0)[:, None]], axis=1)


class SparsityPattern:
    """Where a matrix (m, n) may have entries. Two are equal if they say the same, so that a program made for one serves
    the other."""

    def __init__(self, there: Bool[np.ndarray, "m n"]):
        (m, n), (rows, columns) = there.shape, np.nonzero(there)
        self.shape = m, n
        colour = _colours(there)
        self.seeds = Seeds(colour, int(colour.max(initial=0)) + 1)
        self.column = np.full((m, self.seeds.colours), n)
        """Of each row, for each colour, the column that it has an entry in, n for none."""
        self.column[rows, colour[columns]] = columns
        self.across = _layers(columns, n, rows * self.seeds.colours + colour[columns], self.column.size).T
        """Of each column its entries among all."""
        self._key = self.shape, self.column.tobytes()
        self._hash = hash(self._key)

    @property
    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows and columns of all entries, and which of the compressed matrix's they are."""
        rows, colours = np.nonzero(self.column < self.shape[1])
        return rows, self.column[rows, colours], rows * self.seeds.colours + colours

    def of_products(self, products: Float[Array, "m seeds"]) -> "Compressed":
        """The matrix, by its products with the seeds; rows that have other entries are NaN."""
        entries, found = products[:, :-1], products[:, -1]
        parts = entries * np.append(self.seeds.probe, 0.0).astype(entries.dtype)[self.column]
        limit = jnp.finfo(entries.dtype).eps ** AGREED
        told = jnp.abs(found - jnp.sum(parts, axis=1)) <= limit * jnp.sum(jnp.abs(parts), axis=1)
        return Compressed(jnp.where(told[:, None], entries, jnp.nan), self)

    def of(self, matrix: Float[Array, "m n"]) -> "Compressed":
        """A matrix given in full."""
        padded = jnp.pad(matrix, ((0, 0), (0, 1)))
        entries = jnp.take_along_axis(padded, jnp.asarray(self.column), axis=1)
        probe = jnp.asarray(self.seeds.probe, matrix.dtype)
        return self.of_products(jnp.concatenate([entries, (matrix @ probe)[:, None]], axis=1))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, SparsityPattern) and self._key == other._key


class Compressed(eqx.Module):
    """A matrix (m, n) by its ``entries``, for each row one of each colour: it can be multiplied from both sides.
    Its entries may have further axes at the end, for the members of a batch, as what it is multiplied with has."""

    entries: Float[Array, "m colours *#members"]
    places: SparsityPattern = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.places.shape

    def __matmul__(self, x: Float[Array, "n *#members"]) -> Float[Array, "m *#members"]:
        x, column = _with_zero(x), self.places.column
        return _row_sums(lambda i: self.entries[:, i] * x[column[:, i]], column.shape[1])

    def __rmatmul__(self, x: Float[Array, "m *#members"]) -> Float[Array, "n *#members"]:
        products, across = _with_zero(flat(self.entries * x[:, None])), self.places.across
        return _row_sums(lambda i: products[across[:, i]], across.shape[1])

    def scaled(self, rows: Float[Array, "m *#members"], columns: Float[Array, "n *#members"]) -> "Compressed":
        """With a factor for each row and each column."""
        return Compressed(rows[:, None] * self.entries * _with_zero(columns)[self.places.column], self.places)

    def transposed(self) -> "Compressed":
        """Of a square one that may have an entry wherever its transpose does."""
        (n, colours), places = self.places.column.shape, self.places
        across = places.column * colours + places.seeds.colour[:n, None]
        place = np.where(places.column < n, across, n * colours)
        return Compressed(_with_zero(flat(self.entries))[place], places)

    def diagonal(self) -> Float[Array, "n *#members"]:
        """Of a square one."""
        rows, columns, which = self.places.entries
        place = np.full(len(self.entries), self.places.column.size)
        place[rows[rows == columns]] = which[rows == columns]
        return _with_zero(flat(self.entries))[place]


def flat(entries: Float[Array, "m colours *#members"]) -> Float[Array, "m*colours *#members"]:
    """All entries in one column."""
    return entries.reshape(-1, *entries.shape[2:])


def _with_zero(x):
    return jnp.concatenate([x, jnp.zeros_like(x, shape=(1, *x.shape[1:]))])


def _row_sums(terms, count):
    """Of the ``terms(i)`` of each row, one by one if they are few: that is one loop with what makes them."""
    if count <= FEW:
        return functools.reduce(operator.add, map(terms, range(count)))
    return jnp.sum(terms(slice(None)), axis=1)


def _colours(there):
    """For each column the first colour that no column has with which it shares a row."""
    m, n = there.shape
    taken = np.zeros((m, 1), bool)
    colour = np.zeros(n, int)
    for j in range(n):
        rows = np.flatnonzero(there[:, j])
        free = np.flatnonzero(~taken[rows].any(axis=0))
        if not free.size:
            taken = np.pad(taken, ((0, 0), (0, 1)))
        colour[j] = free[0] if free.size else taken.shape[1] - 1
        taken[rows, colour[j]] = True
    return colour


def _layers(groups, count, members=None, nothing=None):
    """(k, count): which members, all in their order if None, are in each of ``count`` groups, filled up with
    ``nothing``, one more than there are."""
    members = np.arange(groups.size) if members is None else members
    nothing = groups.size if nothing is None else nothing
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=count)
    rank = np.arange(groups.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = np.full((max(1, int(sizes.max(initial=0))), count), nothing)
    table[rank, groups[order]] = members[order]
    return table
