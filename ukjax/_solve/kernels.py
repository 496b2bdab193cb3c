"""The two small dense factorisations under every constrained motion, without LAPACK.

A call into LAPACK per matrix is what makes a batch of small systems slow, and repeated batches of such calls can
deadlock on a machine with two cores. These loops are plain array arithmetic, of known length: in a batch they are
written out (see ``ukjax._batch``).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


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
        scale = jax.lax.rsqrt(jnp.where(row[j] > smallest[j], row[j], jnp.nan))
        row = row * scale
        below = jnp.where(index > j, column * scale, 0)
        return (X - below[:, None] * row).at[j].set(row)

    return jax.lax.fori_loop(0, n, eliminate, jnp.concatenate([S, jnp.eye(n, dtype=S.dtype)], axis=1))[:, n:]


def orthonormal_rows(
    B: Float[Array, "m n"], tolerance: Float[Array, ""] | float, most: Bool[Array, " m"] | None = None
) -> tuple[Float[Array, "m n"], Float[Array, "m m"], Bool[Array, " m"]]:
    """V, Z and ``kept`` with V = Z B: an orthonormal basis V of the row space of B, and how B's rows make it.

    Gram–Schmidt, row after row, each orthogonalised twice. A row of which no more than ``tolerance`` remains is a
    combination of those before it: it is not kept, and that row of V and of Z is zero. ``most`` says which rows may be.
    """
    m, n = B.shape
    most = jnp.ones(m, bool) if most is None else most
    if m == 0:
        return B, jnp.zeros((0, 0), B.dtype), most

    def take(i, state):
        V, Z, kept = state
        along = V @ B[i]
        remainder = B[i] - along @ V
        again = V @ remainder  # rounding left this much of V in it; "twice is enough" (Kahan, in Parlett 1980, §6.9)
        remainder = remainder - again @ V
        square = jnp.sum(remainder**2)
        new = (square > tolerance**2) & most[i]
        scale = jnp.where(new, jax.lax.rsqrt(jnp.where(new, square, 1)), 0)
        z = -(along + again) @ Z
        return V.at[i].set(scale * remainder), Z.at[i].set(scale * z.at[i].add(1)), kept.at[i].set(new)

    start = jnp.zeros((m, n), B.dtype), jnp.zeros((m, m), B.dtype), jnp.zeros(m, bool)
    return jax.lax.fori_loop(0, m, take, start)
