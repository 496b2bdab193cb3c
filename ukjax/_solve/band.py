"""Block LDLᵀ factorisation of the banded KKT matrix [M Aᵀ; A −ε I].

Coordinates and rows are reordered by reverse Cuthill–McKee. The reordered matrix is block tridiagonal: D_k are its
diagonal blocks and B_k the blocks left of them. Arrays may have trailing batch axes (see ``members_last``).
"""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compressed import SparsityPattern

MIN_BLOCK_SIZE = 3
"""Smallest block size. Below it the overhead of a loop iteration exceeds its arithmetic."""

MAX_UNROLLED_SIZE = 8
"""Largest block size whose products and inverses are unrolled over the entries, vectorised over the batch."""


class Band:
    """Sparsity patterns of M and A, and the block structure of the reordered KKT matrix [M Aᵀ; A −ε I].

    Attributes
    ----------
    M, A
        Sparsity patterns of M + Mᵀ and A.
    order
        (n + m,) coordinates (< n) and rows (n + i) in the order of elimination.
    width
        Bandwidth of the reordered matrix, which is also the block size.
    diagonal, before
        (blocks, size, size) the blocks D_k and B_k as indices into the concatenation of the entries of M, the entries
        of A, and the constants 0, 1 and −ε.
    signs
        (blocks, size) signs of the pivots of a positive definite M: 1 for coordinates, −1 for rows.
    """

    def __init__(self, M: Bool[np.ndarray, "n n"], A: Bool[np.ndarray, "m n"]):
        """M and A are True where the matrices may be nonzero."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        self.M, self.A = SparsityPattern(M | M.T), SparsityPattern(A)
        (m, n), after_M = A.shape, self.M.column.size
        zero = after_M + self.A.column.size
        one, minus_epsilon = zero + 1, zero + 2
        rows, columns, entry = self.A.entries
        in_M, in_A, index = self.M.entries, (n + rows, columns, after_M + entry), np.arange(n + m)
        parts = in_M, in_A, (in_A[1], in_A[0], in_A[2]), (index[n:], index[n:], np.full(m, minus_epsilon))
        i, j, source = (np.concatenate(part) for part in zip(*parts, strict=True))
        graph = coo_array((np.ones(i.size, int), (i, j)), (n + m, n + m)).tocsr()
        self.order = np.asarray(reverse_cuthill_mckee(graph, symmetric_mode=True))
        position = np.argsort(self.order)
        i, j = position[i], position[j]
        self.width = size = max(MIN_BLOCK_SIZE, int(np.max(np.abs(i - j), initial=0)))
        blocks = -(-(n + m) // size)
        padding = np.arange(n + m, blocks * size)
        signs = np.append(np.where(self.order < n, 1.0, -1.0), np.ones(padding.size))
        self.signs = signs.reshape(blocks, size)
        i, j, source = (np.append(x, more) for x, more in ((i, padding), (j, padding), (source, 0 * padding + one)))
        self.diagonal, self.before = (np.full((blocks, size, size), zero, np.int32) for _ in range(2))
        for target, offset in ((self.diagonal, 0), (self.before, 1)):
            chosen = i // size - j // size == offset
            target[i[chosen] // size, i[chosen] % size, j[chosen] % size] = source[chosen]

    def __hash__(self) -> int:
        return hash((self.M, self.A))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Band) and (self.M, self.A) == (other.M, other.A)


def factorise(
    diagonal: Float[Array, "blocks size size *#members"], before: Float[Array, "blocks size size *#members"]
) -> tuple[Float[Array, "blocks size size *#members"], Float[Array, "blocks size size *#members"]]:
    """Return the inverses of the pivots S_k = D_k − L_k B_kᵀ, and L_k = B_k S_{k−1}⁻¹, the subdiagonal blocks of the
    unit lower factor. ``diagonal`` contains the blocks D_k, ``before`` the blocks B_k."""

    def pivot(inverse, blocks):
        diagonal, before = blocks
        left = _times(before, inverse)
        inverse = _inverse(diagonal - _times(left, jnp.swapaxes(before, 0, 1)))
        return inverse, (inverse, left)

    return jax.lax.scan(pivot, jnp.zeros_like(diagonal[0]), (diagonal, before))[1]


def has_inertia(
    inverses: Float[Array, "blocks size size *#members"], signs: Float[np.ndarray, "blocks size"]
) -> Bool[Array, "*#members"]:
    """Whether the diagonals of all inverse pivots have the given signs, as those of a quasidefinite matrix do."""
    diagonals = jnp.moveaxis(jnp.diagonal(inverses, axis1=1, axis2=2), -1, 1)
    return jnp.all(diagonals * signs.reshape(*signs.shape, *(1,) * (inverses.ndim - 3)) > 0, axis=(0, 1))


def substitute(
    inverses: Float[Array, "blocks size size *#members"],
    beside: Float[Array, "blocks size size *#members"],
    rhs: Float[Array, "blocks size *#members"],
) -> Float[Array, "blocks size *#members"]:
    """Solve L S Lᵀ x = rhs by forward and back substitution. ``beside`` contains the subdiagonal blocks of L."""

    def forward(previous, block):
        rhs, beside, inverse = block
        previous = rhs - _times_vector(beside, previous)
        return previous, _times_vector(inverse, previous)

    def backward(next_block, block):
        solution, below = block
        solution = solution - _times_vector(jnp.swapaxes(below, 0, 1), next_block)
        return solution, solution

    zeros = jnp.zeros_like(rhs[0])
    solution = jax.lax.scan(forward, zeros, (rhs, beside, inverses))[1]
    below = jnp.concatenate([beside[1:], jnp.zeros_like(beside[:1])])
    return jax.lax.scan(backward, zeros, (solution, below), reverse=True)[1]


def _times(X, Y):
    """X Y for each member of the batch."""
    if X.ndim == 2:
        return X @ Y
    if len(X) > MAX_UNROLLED_SIZE:
        return jnp.einsum("ij...,jk...->ik...", X, Y)
    return functools.reduce(operator.add, (X[:, j, None] * Y[j] for j in range(len(X))))


def _times_vector(X, y):
    """X y for each member of the batch."""
    if X.ndim == 2:
        return X @ y
    if len(X) > MAX_UNROLLED_SIZE:
        return jnp.einsum("ij...,j...->i...", X, y)
    return functools.reduce(operator.add, (X[:, j] * y[j] for j in range(len(X))))


def _inverse(S):
    """Invert a quasidefinite matrix, which needs no pivoting (Vanderbei, SIAM J. Optim. 5 (1995) 100)."""
    if S.ndim == 2 and len(S) > MAX_UNROLLED_SIZE:
        return jnp.linalg.inv(S)
    index = jnp.arange(len(S)).reshape(-1, *(1,) * (S.ndim - 2))
    except_row = lambda k: index != k

    def eliminate(k, X):
        pivot = 1 / X[k, k]
        row, column = X[k] * pivot, X[:, k]
        X = X - jnp.where(except_row(k), column, 0)[:, None] * row
        return X.at[k].set(row).at[:, k].set(jnp.where(except_row(k), -column * pivot, pivot))

    return jax.lax.fori_loop(0, len(S), eliminate, S, unroll=len(S) <= MAX_UNROLLED_SIZE)
