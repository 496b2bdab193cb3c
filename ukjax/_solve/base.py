"""What every method of solving M q̈ = Q + Aᵀλ, A q̈ = b computes, whatever its algebra."""

import abc
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int


class AbstractResponse(eqx.Module):
    """How a constrained system answers: q̈ = W Q + K b, for any Q and b.

    W (n, n) is the constrained inverse mass, A W = 0; K (n, m) makes the rows true, W⁻¹-orthogonally; P = A A⁺ (m, m)
    projects b onto what the rows can reach. ``kept`` (m,) are the rows that the others do not imply, ``rank`` of A
    their number.
    """

    kept: eqx.AbstractVar[Bool[Array, " m"]]
    rank: eqx.AbstractVar[Int[Array, ""]]
    reaches_all: ClassVar[bool] = False
    """Whether every b may be taken as within reach."""

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
    def unreached(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """P rows − rows."""

    @abc.abstractmethod
    def factor(self) -> Float[Array, "n n"]:
        """F with F Fᵀ = W."""


class Response(AbstractResponse):
    """W as ``root`` rootᵀ, and K and P, in full."""

    root: Float[Array, "n n"]
    gain: Float[Array, "n m"]
    reachable: Float[Array, "m m"]
    kept: Bool[Array, " m"]
    rank: Int[Array, ""]

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.root @ (force @ self.root) + self.gain @ rows

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return force @ self.gain

    def unreached(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return self.reachable @ rows - rows

    def factor(self) -> Float[Array, "n n"]:
        return self.root


class AbstractMethod(eqx.Module):
    """A way to find the response of (M, A). Its derivative is never taken: see ``implicit.py``."""

    @abc.abstractmethod
    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> AbstractResponse:
        """The response of the system with mass matrix M (n, n) and constraint rows A (m, n)."""

    @abc.abstractmethod
    def keeping(self, kept: Bool[Array, " m"]) -> "AbstractMethod":
        """This method where only the rows ``kept`` are to count, itself if it makes no use of that.

        Rows that are redundant on the constraints need not be so beside them, where a solver's stages and Newton's
        iterates lie: taking them for independent there asks for absurd accelerations.
        """
