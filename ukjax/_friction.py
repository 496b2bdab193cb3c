"""Record of the dry friction of a system."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float


class DryFriction(NamedTuple):
    """Dry friction along k directions, regularised at low rates.

    Attributes
    ----------
    names
        (k,) names of the directions.
    rates
        Function (t, q, v) -> rates (k,) along the directions, and their derivatives with respect to v, (k, n).
    limit
        (k,) largest friction forces.
    width
        (k,) rates below which the friction force is a smooth function of the rate.
    is_default
        (k,) True where ``width`` is the default value.
    """

    names: tuple[str, ...]
    rates: Callable[[Array, Array, Array], tuple[Float[Array, " k"], Float[Array, "k n"]]]
    limit: Float[Array, " k"]
    width: Float[Array, " k"]
    is_default: tuple[bool, ...]
