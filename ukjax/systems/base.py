"""What a mechanism of the gallery is: a system with parameters of its own, a start, and where it comes from."""

import abc
from typing import ClassVar

from jaxtyping import Array, Float, ScalarLike

from .._system import AbstractSystem


class AbstractMechanism(AbstractSystem):
    """A published mechanism: its parameters are its fields, in SI units, by the names the source gives them.

    ``end`` [s] is the time span of the source.
    """

    end: ClassVar[float]

    @abc.abstractmethod
    def start(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The source's own q0 (n,) and v0 (n,), as printed: not always on the constraints."""

    @abc.abstractmethod
    def reference(self, t: ScalarLike) -> Float[Array, " n"] | None:
        """The exact q (n,) at time t, where it is known."""

    @abc.abstractmethod
    def outline(self, q: Float[Array, " n"]) -> Float[Array, "points 3"]:
        """The mechanism as a line through its joints [m], base first, tool last: what a drawing shows."""

    @abc.abstractmethod
    def published(self) -> dict[str, "AbstractMechanism"]:
        """The source's own runs, by a short name each, where they differ from the correct one: simulated from
        ``start`` without projection."""
