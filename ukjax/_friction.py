"""What a system says of its dry friction."""

from typing import NamedTuple

from jaxtyping import Array, Float


class DryFriction(NamedTuple):
    """Along the velocities of the numbers ``along``, k of them, forces of at most ``limit`` (k,), which are smooth
    functions of rates below ``width`` (k,)."""

    along: tuple[int, ...]
    limit: Float[Array, " k"]
    width: Float[Array, " k"]
