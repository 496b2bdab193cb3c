"""What every method of solving M q̈ = Q + Aᵀλ, A q̈ = b computes, whatever its algebra."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._check import as_number, repr_of


class AbstractFactorisation(eqx.Module):
    """How a constrained system answers: q̈ = W Q + K b, for any Q and b.

    W (n, n) is the constrained inverse mass, A W = 0; K (n, m) makes the rows true, W⁻¹-orthogonally; P = A A⁺ (m, m)
    projects b onto what the rows can reach. ``kept`` (m,) are the rows that the others do not imply, ``rank`` of A
    their number. ``needs_fallback`` says that the system was beyond what the method can do, so that the answer may be wrong,
    ``reaches_all`` that every b may be taken as within reach.
    """

    kept: eqx.AbstractVar[Bool[Array, " m"]]
    rank: eqx.AbstractVar[Int[Array, ""]]
    if TYPE_CHECKING:  # a type checker takes an AbstractVar for an argument of __init__, which a property need not be

        @property
        def needs_fallback(self) -> Bool[Array, ""]: ...
        @property
        def reaches_all(self) -> bool: ...
    else:
        needs_fallback: eqx.AbstractVar[Bool[Array, ""]]
        reaches_all: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        """W force + K rows, for rows within reach."""

    @abc.abstractmethod
    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        """Kᵀ force: one of the λ with Aᵀλ = force, where there is any."""

    def both(
        self, M: Float[Array, "n n"], force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """x and ν with M x + Aᵀν = force, A x = rows, for rows within reach."""
        x = self.motion(force, rows)
        return x, self.multipliers(force - M @ x)

    @abc.abstractmethod
    def out_of_reach(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """P rows − rows."""

    @abc.abstractmethod
    def factor(self) -> Float[Array, "n n"]:
        """F with F Fᵀ = W."""


class DenseFactorisation(AbstractFactorisation):
    """W as ``root`` rootᵀ, and K and P, in full."""

    root: Float[Array, "n n"]
    gain: Float[Array, "n m"]
    reachable: Float[Array, "m m"]
    kept: Bool[Array, " m"]
    rank: Int[Array, ""]
    reaches_all: ClassVar[bool] = False

    @property
    def needs_fallback(self) -> Bool[Array, ""]:
        return jnp.asarray(False)

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.root @ (force @ self.root) + self.gain @ rows

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return force @ self.gain

    def out_of_reach(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return self.reachable @ rows - rows

    def factor(self) -> Float[Array, "n n"]:
        return self.root


def check_rank_rule(rtol: Any, kept: Any) -> None:
    """What decides which rows count, for methods that look: ``rtol`` between 0 and 1 and ``kept`` a boolean array, each
    only where it is given, or ``ValueError``. Any other ``rtol`` would count all rows, or none."""
    if rtol is not None:
        as_number("rtol", rtol, above=0, below=1)
    if kept is not None and not jnp.issubdtype(getattr(kept, "dtype", float), jnp.bool_):
        raise ValueError(f"kept must be a boolean array of shape (m,), one entry per row, got {repr_of(kept)}")


class AbstractMethod(eqx.Module):
    """A way to find the response of (M, A). Those that decide on rank raise ``ValueError`` for a tolerance that is not
    between 0 and 1. Its derivative is never taken: see ``implicit.py``. ``finds_rank`` says whether it can tell
    redundant rows: whether ``active`` is to be asked for; ``is_sparse`` that it goes through a system part by part, in
    loops of JAX, where others are compiled as kernels."""

    is_sparse: ClassVar[bool] = False
    uniform: ClassVar[bool] = True  # the same rows count for positions, velocities and accelerations

    @property
    def has_fallback(self) -> bool:
        """Whether what it cannot do is left to another method: then it says so."""
        return False

    def usual(self) -> "AbstractMethod | None":
        """A method to be tried before this one, if there is any: it compiles and runs sooner, and says when it may be
        wrong."""
        return None

    @abc.abstractmethod
    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> AbstractFactorisation:
        """The response of the system with mass matrix M (n, n) and constraint rows A (m, n)."""

    if TYPE_CHECKING:

        @property
        def finds_rank(self) -> bool: ...
    else:
        finds_rank: eqx.AbstractVar[bool]

    def active(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "AbstractMethod":
        """This method where only those rows are to count that are independent for (M, A)."""
        return self.keeping(self.factorise(M, A).kept)

    @abc.abstractmethod
    def keeping(self, kept: Bool[Array, " m"]) -> "AbstractMethod":
        """This method where only the rows ``kept`` are to count, itself if it makes no use of that.

        Rows that are redundant on the constraints need not be so beside them, where a solver's stages and Newton's
        iterates lie: taking them for independent there asks for absurd accelerations.
        """
