"""The two small dense factorisations under every constrained motion, without LAPACK.

A call into LAPACK per matrix is what makes a batch of small systems slow, and repeated batches of such calls can
deadlock on a machine with two cores. These loops are plain array arithmetic: they vectorise over a batch.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def inverse_cholesky(S: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹, where S = L Lᵀ, by elimination on [S | I], which ends as [Lᵀ | L⁻¹].

    A pivot that rounding cannot tell from zero makes the result NaN: S is then not positive definite.
    """
    n = S.shape[0]
    if n == 0:
        return S
    index = jnp.arange(n)
    smallest = n * jnp.finfo(S.dtype).eps * jnp.diagonal(S)

    def eliminate(j, X):
        row, column = X[j], X[:, j]
        pivot = jnp.where(row[j] > smallest[j], row[j], jnp.nan)
        row = row / jnp.sqrt(pivot)
        below = jnp.where(index > j, column, 0) / jnp.sqrt(pivot)
        return (X - below[:, None] * row).at[j].set(row)

    return jax.lax.fori_loop(0, n, eliminate, jnp.concatenate([S, jnp.eye(n, dtype=S.dtype)], axis=1))[:, n:]


def orthonormal_rows(
    B: Float[Array, "m n"], tolerance: Float[Array, ""] | float, most: Int[Array, ""] | None = None
) -> tuple[Float[Array, "k n"], Float[Array, "k m"]]:
    """V, Z with V = Z B: an orthonormal basis V of the row space of B, and how B's rows make it; k = min(m, n).

    Gram–Schmidt that takes the row with the largest remainder next and orthogonalises it twice. Once that remainder
    is no longer than ``tolerance`` the rows left are combinations of those taken: from there on V and Z are zero, so
    the rank of B is the number of rows of V that are not. ``most`` bounds it.
    """
    m, n = B.shape
    k = min(m, n)
    limit = k if most is None else most
    V, Z, C = jnp.zeros((k, n), B.dtype), jnp.zeros((k, m), B.dtype), jnp.zeros((m, k), B.dtype)
    if k == 0:
        return V, Z

    def take(i, state):
        V, Z, C, R = state  # B = C V + R, and R is orthogonal to V
        chosen = jax.nn.one_hot(jnp.argmax(jnp.sum(R**2, axis=1)), m, dtype=B.dtype)
        remainder = chosen @ R
        again = V @ remainder  # rounding left this much of V in it; "twice is enough" (Kahan, in Parlett 1980, §6.9)
        remainder = remainder - again @ V
        length = jnp.sqrt(jnp.sum(remainder**2))
        new = (length > tolerance) & (i < limit)
        scale = jnp.where(new, 1 / jnp.where(new, length, 1), 0)
        v = remainder * scale
        z = (chosen - (chosen @ C + again) @ Z) * scale
        along = R @ v
        return V.at[i].set(v), Z.at[i].set(z), C.at[:, i].set(along), R - along[:, None] * v

    V, Z, _, _ = jax.lax.fori_loop(0, k, take, (V, Z, C, B))
    return V, Z
