"""Records of the equation of motion: its terms (Terms) and its solution (ConstrainedMotion)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._check import as_array
from ._errors import InputError
from ._precision import Numbers


class Terms(eqx.Module):
    """Terms of the equation of motion at one state: M q̈ = Q, subject to A q̈ = b; n coordinates, m constraint rows.

    Raises ``InputError`` if the shapes are inconsistent. Units follow from those of the coordinates.

    Attributes
    ----------
    M
        (n, n) mass matrix, symmetric and positive semidefinite.
    Q
        (n,) applied force, one entry per coordinate.
    A, b
        (m, n) and (m,) constraint rows A q̈ = b; b is an acceleration per row.
    c
        (n,) optional nonideal force: the constraint forces do the work cᵀ δq in a virtual displacement δq, for example
        by friction in a joint (Udwadia & Kalaba, J. Appl. Mech. 68 (2001) 462).
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
        """Convert all terms to the widest precision among them."""
        dtype = jnp.result_type(*jax.tree.leaves(self))
        return jax.tree.map(lambda x: x if x.dtype == dtype else x.astype(dtype), self)


class ConstrainedMotion(eqx.Module):
    """Solution of the equation of motion M q̈ = Q + Qᶜ: acceleration and constraint forces.

    | field | shape | meaning |
    |---|---|---|
    | ``acceleration`` | (n,) | q̈, the constrained motion |
    | ``constraint_force`` | (n,) | Qᶜ = M q̈ − Q, the sum of the next two |
    | ``ideal_force`` | (n,) | the part that does no work in a virtual displacement |
    | ``nonideal_force`` | (n,) | the part due to c; zero without c |
    | ``unconstrained`` | (n,) | a = M⁻¹Q; NaN if M is singular |
    | ``rank`` | () | number of independent rows of A |
    | ``inconsistency`` | () | \\|(I − AA⁺) b\\|, the part of b outside the range of A |
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
        raise InputError(f"Q must be a vector of shape (n,), got shape {Q.shape}")
    n = Q.shape[0]
    if M.shape != (n, n):
        raise InputError(f"M must have shape ({n}, {n}) to go with Q of shape ({n},), got shape {M.shape}")
    if A.ndim != 2 or A.shape[1] != n:
        raise InputError(
            f"A must have shape (m, {n}), one row per constraint and one column per coordinate, got shape {A.shape}"
        )
    if b.shape != A.shape[:1]:
        raise InputError(f"b must have shape ({A.shape[0]},), one entry per row of A, got shape {b.shape}")
    if c is not None and c.shape != (n,):
        raise InputError(f"c must have shape ({n},), a force per coordinate like Q, got shape {c.shape}")
