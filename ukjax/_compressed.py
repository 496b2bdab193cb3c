"""Sparse matrices, compressed by column colouring.

Columns without a common nonzero row can be added without loss (Curtis, Powell & Reid, J. Inst. Math. Appl. 13 (1974)
117). The derivatives along a few directions, the seeds, therefore determine a sparse Jacobian, with cost and storage
proportional to its number of entries. One more random direction detects entries outside the sparsity pattern.
"""

import functools
import operator
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

CHECK_EXPONENT = 0.6
"""The check of a row along the random direction has the relative tolerance eps^CHECK_EXPONENT."""

MAX_UNROLLED_TERMS = 16
"""Largest number of terms of a sum that is unrolled."""


class Seeds:
    """Seed directions (n, colours + 1): the sum of the unit vectors of each colour, and a random direction."""

    def __init__(self, colour: np.ndarray, colours: int):
        self.colour, self.colours = colour, colours
        self.probe = np.random.default_rng(0).uniform(0.5, 1.5, colour.size)

    @property
    def matrix(self) -> Float[np.ndarray, "n seeds"]:
        """The seed directions as columns."""
        return np.column_stack([self.colour[:, None] == np.arange(self.colours), self.probe])

    def along(self, function: Callable, like: Float[Array, " n"]) -> Float[Array, "m seeds"]:
        """Multiply a matrix by the seeds. ``function(x)`` is the product of the matrix and x."""
        return jax.vmap(function, in_axes=1, out_axes=1)(jnp.asarray(self.matrix, like.dtype))

    def of_entries(
        self, values: Float[Array, " entries"], rows: np.ndarray, columns: np.ndarray, count: int
    ) -> Float[Array, "m seeds"]:
        """Multiply by the seeds a matrix with ``count`` rows, given as ``values`` at ``rows`` and ``columns``."""
        padded = jnp.concatenate([values, jnp.zeros(1, values.dtype)])
        by_colour = _table_of_groups(rows * self.colours + self.colour[columns], count * self.colours)
        by_row = _table_of_groups(rows, count)
        probe = np.append(self.probe[columns], 0.0).astype(values.dtype)[by_row]
        entries = jnp.sum(padded[by_colour], axis=0).reshape(count, self.colours)
        return jnp.concatenate([entries, jnp.sum(padded[by_row] * probe, axis=0)[:, None]], axis=1)


class SparsityPattern:
    """Sparsity pattern of a matrix (m, n), with a colouring of its columns. Hashable, compared by value.

    Attributes
    ----------
    seeds
        Seed directions of the colouring.
    column
        (m, colours) the column of the entry of each row and colour, n for no entry.
    across
        (n, k) for each column, the flat indices of its compressed entries.
    """

    def __init__(self, nonzero: Bool[np.ndarray, "m n"]):
        (m, n), (rows, columns) = nonzero.shape, np.nonzero(nonzero)
        self.shape = m, n
        colour = _colours(nonzero)
        self.seeds = Seeds(colour, int(colour.max(initial=0)) + 1)
        self.column = np.full((m, self.seeds.colours), n)
        self.column[rows, colour[columns]] = columns
        self.across = _table_of_groups(columns, n, rows * self.seeds.colours + colour[columns], self.column.size).T
        self._key = self.shape, self.column.tobytes()
        self._hash = hash(self._key)

    @property
    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows, the columns and the flat compressed indices of all entries."""
        rows, colours = np.nonzero(self.column < self.shape[1])
        return rows, self.column[rows, colours], rows * self.seeds.colours + colours

    def of_products(self, products: Float[Array, "m seeds"]) -> "Compressed":
        """Make the matrix from its products with the seeds. Rows with entries outside the pattern are NaN."""
        entries, probed = products[:, :-1], products[:, -1]
        parts = entries * np.append(self.seeds.probe, 0.0).astype(entries.dtype)[self.column]
        limit = jnp.finfo(entries.dtype).eps ** CHECK_EXPONENT
        consistent = jnp.abs(probed - jnp.sum(parts, axis=1)) <= limit * jnp.sum(jnp.abs(parts), axis=1)
        return Compressed(jnp.where(consistent[:, None], entries, jnp.nan), self)

    def of(self, matrix: Float[Array, "m n"]) -> "Compressed":
        """Compress a dense matrix."""
        padded = jnp.pad(matrix, ((0, 0), (0, 1)))
        entries = jnp.take_along_axis(padded, jnp.asarray(self.column), axis=1)
        probe = jnp.asarray(self.seeds.probe, matrix.dtype)
        return self.of_products(jnp.concatenate([entries, (matrix @ probe)[:, None]], axis=1))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, SparsityPattern) and self._key == other._key


class Compressed(eqx.Module):
    """Compressed matrix (m, n): ``entries`` (m, colours) and the sparsity pattern ``places``.

    It can be multiplied by vectors from both sides. ``entries`` and vectors may have trailing batch axes.
    """

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
        """Scale each row and each column by a factor."""
        return Compressed(rows[:, None] * self.entries * _with_zero(columns)[self.places.column], self.places)

    def transposed(self) -> "Compressed":
        """Return the transpose of a square matrix with a symmetric pattern."""
        (n, colours), places = self.places.column.shape, self.places
        index = places.column * colours + places.seeds.colour[:n, None]
        source = np.where(places.column < n, index, n * colours)
        return Compressed(_with_zero(flat(self.entries))[source], places)

    def diagonal(self) -> Float[Array, "n *#members"]:
        """Return the diagonal of a square matrix."""
        rows, columns, index = self.places.entries
        source = np.full(len(self.entries), self.places.column.size)
        source[rows[rows == columns]] = index[rows == columns]
        return _with_zero(flat(self.entries))[source]


def flat(entries: Float[Array, "m colours *#members"]) -> Float[Array, "m*colours *#members"]:
    """Flatten the first two axes."""
    return entries.reshape(-1, *entries.shape[2:])


def _with_zero(x):
    return jnp.concatenate([x, jnp.zeros_like(x, shape=(1, *x.shape[1:]))])


def _row_sums(terms, count):
    """Sum ``terms(i)`` over i. A short sum is unrolled, which fuses it with the computation of its terms."""
    if count <= MAX_UNROLLED_TERMS:
        return functools.reduce(operator.add, map(terms, range(count)))
    return jnp.sum(terms(slice(None)), axis=1)


def _colours(nonzero):
    """Colour the columns greedily, so that columns with a common row have different colours."""
    m, n = nonzero.shape
    used = np.zeros((m, 1), bool)
    colour = np.zeros(n, int)
    for j in range(n):
        rows = np.flatnonzero(nonzero[:, j])
        free = np.flatnonzero(~used[rows].any(axis=0))
        if not free.size:
            used = np.pad(used, ((0, 0), (0, 1)))
        colour[j] = free[0] if free.size else used.shape[1] - 1
        used[rows, colour[j]] = True
    return colour


def _table_of_groups(groups, count, members=None, padding=None):
    """Return a table (k, count) with the members of each group in a column, padded with ``padding``.

    ``groups`` is the group of each member. ``members`` are 0, 1, ... and ``padding`` is their number by default.
    """
    members = np.arange(groups.size) if members is None else members
    padding = groups.size if padding is None else padding
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=count)
    rank = np.arange(groups.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = np.full((max(1, int(sizes.max(initial=0))), count), padding)
    table[rank, groups[order]] = members[order]
    return table
