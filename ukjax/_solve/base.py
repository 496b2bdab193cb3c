"""What every method of solving M q̈ = Q + Aᵀλ, A q̈ = b computes, whatever its algebra."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Int


class Response(eqx.Module):
    """How a constrained system answers: q̈ = F Fᵀ Q + K b, for any Q and b.

    W = F Fᵀ (n, n) is the constrained inverse mass, A W = 0; K (n, m) makes the rows true, W⁻¹-orthogonally;
    ``reachable`` P = A A⁺ (m, m) projects b onto what the rows can reach; ``rank`` is that of A.
    """

    factor: Float[Array, "n n"]
    gain: Float[Array, "n m"]
    reachable: Float[Array, "m m"]
    rank: Int[Array, ""]


class AbstractMethod(eqx.Module):
    """A way to find the Response of (M, A). Its derivative is never taken: see ``implicit.py``."""

    @abc.abstractmethod
    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> Response:
        """The response of the system with mass matrix M (n, n) and constraint rows A (m, n)."""

    @abc.abstractmethod
    def with_rank(self, rank: Int[Array, ""]) -> "AbstractMethod":
        """This method where the rank of A is known to be at most ``rank``, itself if it makes no use of that.

        Rows that are redundant on the constraints need not be so beside them, where a solver's stages and Newton's
        iterates lie: taking them for independent there asks for absurd accelerations.
        """
