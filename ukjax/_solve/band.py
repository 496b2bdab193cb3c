"""[M Aᵀ; A −ε] with entries near the diagonal only, in blocks: their places, their factors, and what they solve.

All arrays may have further axes at the end, for the members of a batch (see ``members_last``).
"""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compressed import Places

LEAST = 3
"""Entries of a block, at least: below that what a step costs is not its arithmetic."""

WRITTEN_OUT = 8
"""Blocks up to this size are multiplied and inverted entry by entry, all members of a batch at once."""


class Band:
    """Where M and A may have entries, and where those of [M Aᵀ; A −ε] stand when coordinates and rows are taken in an
    ``order`` in which none is far from the diagonal: in blocks on the ``diagonal`` (blocks, size, size) and ``before``
    it, as indices into (M, A, 0, 1, −ε), M and A compressed. ``signs`` (blocks, size) are those that pivots have where
    M is positive: 1 for coordinates, −1 for rows."""

    def __init__(self, M: Bool[np.ndarray, "n n"], A: Bool[np.ndarray, "m n"]):
        """For matrices that are zero wherever these are False."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        self.M, self.A = Places(M | M.T), Places(A)
        (m, n), after_M = A.shape, self.M.column.size
        nothing = after_M + self.A.column.size
        one, loose = nothing + 1, nothing + 2
        rows, columns, which = self.A.entries
        own, below, each = self.M.entries, (n + rows, columns, after_M + which), np.arange(n + m)
        parts = own, below, (below[1], below[0], below[2]), (each[n:], each[n:], np.full(m, loose))
        i, j, source = (np.concatenate(part) for part in zip(*parts, strict=True))
        graph = coo_array((np.ones(i.size, int), (i, j)), (n + m, n + m)).tocsr()
        self.order = np.asarray(reverse_cuthill_mckee(graph, symmetric_mode=True))
        place = np.argsort(self.order)
        i, j = place[i], place[j]
        self.width = size = max(LEAST, int(np.max(np.abs(i - j), initial=0)))
        blocks = -(-(n + m) // size)
        filled = np.arange(n + m, blocks * size)
        signs = np.append(np.where(self.order < n, 1.0, -1.0), np.ones(filled.size))
        self.signs = signs.reshape(blocks, size)
        i, j, source = (np.append(x, more) for x, more in ((i, filled), (j, filled), (source, 0 * filled + one)))
        self.diagonal, self.before = (np.full((blocks, size, size), nothing, np.int32) for _ in range(2))
        for into, away in ((self.diagonal, 0), (self.before, 1)):
            here = i // size - j // size == away
            into[i[here] // size, i[here] % size, j[here] % size] = source[here]

    def __hash__(self) -> int:
        return hash((self.M, self.A))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Band) and (self.M, self.A) == (other.M, other.A)


def factorise(
    diagonal: Float[Array, "blocks size size *#members"], before: Float[Array, "blocks size size *#members"]
) -> tuple[Float[Array, "blocks size size *#members"], Float[Array, "blocks size size *#members"]]:
    """Of the matrix with D_k on the diagonal and B_k before it, the inverses of the pivots S_k = D_k − L_k B_kᵀ, and
    L_k = B_k S_{k−1}⁻¹ before the unit diagonal of its factor."""

    def pivot(inverse, blocks):
        diagonal, before = blocks
        beside = _times(before, inverse)
        inverse = _inverse(diagonal - _times(beside, jnp.swapaxes(before, 0, 1)))
        return inverse, (inverse, beside)

    return jax.lax.scan(pivot, jnp.zeros_like(diagonal[0]), (diagonal, before))[1]


def has_inertia(
    inverses: Float[Array, "blocks size size *#members"], signs: Float[np.ndarray, "blocks size"]
) -> Bool[Array, "*#members"]:
    """Whether the inverses of all pivots have these signs on their diagonals, as those of a quasidefinite matrix do."""
    diagonals = jnp.moveaxis(jnp.diagonal(inverses, axis1=1, axis2=2), -1, 1)
    return jnp.all(diagonals * signs.reshape(*signs.shape, *(1,) * (inverses.ndim - 3)) > 0, axis=(0, 1))


def substitute(
    inverses: Float[Array, "blocks size size *#members"],
    beside: Float[Array, "blocks size size *#members"],
    known: Float[Array, "blocks size *#members"],
) -> Float[Array, "blocks size *#members"]:
    """The x for which the matrix times x is what is ``known``: x = L⁻ᵀ S⁻¹ L⁻¹ known, L being ``beside`` its unit
    diagonal."""

    def down(last, block):
        known, beside, inverse = block
        last = known - _onto(beside, last)
        return last, _onto(inverse, last)

    def up(following, block):
        found, after = block
        found = found - _onto(jnp.swapaxes(after, 0, 1), following)
        return found, found

    nothing = jnp.zeros_like(known[0])
    found = jax.lax.scan(down, nothing, (known, beside, inverses))[1]
    after = jnp.concatenate([beside[1:], jnp.zeros_like(beside[:1])])
    return jax.lax.scan(up, nothing, (found, after), reverse=True)[1]


def _times(X, Y):
    """X Y of each member."""
    if X.ndim == 2:
        return X @ Y
    if len(X) > WRITTEN_OUT:
        return jnp.einsum("ij...,jk...->ik...", X, Y)
    return functools.reduce(operator.add, (X[:, j, None] * Y[j] for j in range(len(X))))


def _onto(X, y):
    """X y of each member."""
    if X.ndim == 2:
        return X @ y
    if len(X) > WRITTEN_OUT:
        return jnp.einsum("ij...,j...->i...", X, y)
    return functools.reduce(operator.add, (X[:, j] * y[j] for j in range(len(X))))


def _inverse(S):
    """Of a quasidefinite matrix, which needs no pivoting (Vanderbei, SIAM J. Optim. 5 (1995) 100)."""
    if S.ndim == 2 and len(S) > WRITTEN_OUT:
        return jnp.linalg.inv(S)
    index = jnp.arange(len(S)).reshape(-1, *(1,) * (S.ndim - 2))
    others = lambda k: index != k

    def eliminate(k, X):
        pivot = 1 / X[k, k]
        row, column = X[k] * pivot, X[:, k]
        X = X - jnp.where(others(k), column, 0)[:, None] * row
        return X.at[k].set(row).at[:, k].set(jnp.where(others(k), -column * pivot, pivot))

    return jax.lax.fori_loop(0, len(S), eliminate, S, unroll=len(S) <= WRITTEN_OUT)
