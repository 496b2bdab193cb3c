"""What a system says of its dry friction."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float


class DryFriction(NamedTuple):
    """Forces of at most ``limit`` (k,) against ``rates(t, q, v)``, the rates (k,) of what ``names`` says, and their
    derivatives (k, n) by v. They are smooth functions of rates below ``width`` (k,), of which those that nobody gave
    are ``usual`` (k,)."""

    names: tuple[str, ...]
    rates: Callable[[Array, Array, Array], tuple[Float[Array, " k"], Float[Array, "k n"]]]
    limit: Float[Array, " k"]
    width: Float[Array, " k"]
    usual: tuple[bool, ...]
