"""The two records everything passes: what a model says (Terms), and what then happens (ConstrainedMotion)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._check import as_array
from ._precision import Numbers


class Terms(eqx.Module):
    """What a model says at one instant: M q̈ = Q, bound by A q̈ = b.

    Shapes, for n coordinates and m rows: ``M`` (n, n) symmetric positive semidefinite, ``Q`` (n,), ``A`` (m, n),
    ``b`` (m,). ``c`` (n,), optional, is the force whose work the constraints do on a virtual displacement
    (friction in a joint, say): Udwadia & Kalaba, J. Appl. Mech. 68 (2001) 462. Units are those of the coordinates:
    a force per coordinate for Q and c, an acceleration per row for b.

    Raises ``ValueError`` if the shapes do not fit each other.
    """

    M: Float[Array, "n n"]
    Q: Float[Array, " n"]
    A: Float[Array, "m n"]
    b: Float[Array, " m"]
    c: Float[Array, " n"] | None

    def __init__(self, M: Numbers, Q: Numbers, A: Numbers, b: Numbers, c: Numbers | None = None):
        self.M, self.Q, self.A, self.b = map(as_array, "MQAb", (M, Q, A, b))
        self.c = None if c is None else as_array("c", c)
        _check_shapes(self)

    def in_one_precision(self) -> "Terms":
        """The same, all in the widest precision among them."""
        dtype = jnp.result_type(*jax.tree.leaves(self))
        return jax.tree.map(lambda x: x if x.dtype == dtype else x.astype(dtype), self)


class ConstrainedMotion(eqx.Module):
    """What then happens: M q̈ = Q + Qᶜ, and what the constraints had to do for it.

    | field | shape | meaning |
    |---|---|---|
    | ``acceleration`` | (n,) | q̈, the constrained motion |
    | ``constraint_force`` | (n,) | Qᶜ = M q̈ − Q, the sum of the next two |
    | ``ideal_force`` | (n,) | the part that does no work on a virtual displacement |
    | ``nonideal_force`` | (n,) | the part that c gives; zero without c |
    | ``unconstrained`` | (n,) | a = M⁻¹Q; NaN where M is singular, since there is none |
    | ``rank`` | () | rows of A that are independent |
    | ``inconsistency`` | () | \\|(I − AA⁺) b\\|, the part of b that no acceleration can meet |
    """

    acceleration: Float[Array, " n"]
    constraint_force: Float[Array, " n"]
    ideal_force: Float[Array, " n"]
    nonideal_force: Float[Array, " n"]
    unconstrained: Float[Array, " n"]
    rank: Int[Array, ""]
    inconsistency: Float[Array, ""]


def _check_shapes(terms: Terms) -> None:
    M, Q, A, b, c = terms.M, terms.Q, terms.A, terms.b, terms.c
    if Q.ndim != 1:
        raise ValueError(f"Q must be a vector of shape (n,), got shape {Q.shape}")
    n = Q.shape[0]
    if M.shape != (n, n):
        raise ValueError(f"M must have shape ({n}, {n}) to go with Q of shape ({n},), got shape {M.shape}")
    if A.ndim != 2 or A.shape[1] != n:
        raise ValueError(
            f"A must have shape (m, {n}), one row per constraint and one column per coordinate, got shape {A.shape}"
        )
    if b.shape != A.shape[:1]:
        raise ValueError(f"b must have shape ({A.shape[0]},), one entry per row of A, got shape {b.shape}")
    if c is not None and c.shape != (n,):
        raise ValueError(f"c must have shape ({n},), a force per coordinate like Q, got shape {c.shape}")
