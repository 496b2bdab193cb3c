"""Numbers of a model that may change: by name, and without bounds to mind while they do."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._check import repr_of
from ._names import did_you_mean

INFINITY = float("inf")
PART = re.compile(r"[^\W\d]\w*(?:\[\d+(?:,\d+)*\])*")
"""A field, and what is taken of it: ``mass``, ``ma[2]``."""


class Place(NamedTuple):
    """The fields and items of a model that lead to an array, and one entry of it; all of it where ``index`` is None."""

    path: tuple[str | int, ...]
    index: tuple[int, ...] | None

    def __str__(self) -> str:
        path = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in self.path)
        return path[1:] + (f"[{','.join(map(str, self.index))}]" if self.index else "")


class Observed(eqx.Module):
    """A ``model`` and the function ``observe(t, q, v)`` of its measured outputs. Names that begin with ``observe.``
    are parameters of that function, all others of the model."""

    model: Any
    observe: Any

    def find(self, name: str, what: str) -> tuple[Place, Array]:
        """As ``find`` does, with the name that begins with ``observe.`` or not."""
        if not name.replace(" ", "").startswith("observe."):
            place, array = find(self.model, name, what)
            return place._replace(path=("model", *place.path)), array
        if not isinstance(self.observe, eqx.Module):
            raise ValueError(f"{what} {name!r}: observe has no parameters, unless it is an equinox.Module with fields")
        place, array = find(self.observe, name.replace(" ", "").removeprefix("observe."), what)
        return place._replace(path=("observe", *place.path)), array


class Parameters(eqx.Module):
    """Some entries θ (p,) of a model's arrays, as functions of free numbers x (p,), all 0 at ``first``.

    θ = first eˣ for what must stay positive, a logistic curve between two bounds, and first + size x, with the size of
    the first value, where there is no bound.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    places: tuple[Place, ...] = eqx.field(static=True)
    lower: Float[Array, " p"]
    upper: Float[Array, " p"]
    first: Float[Array, " p"]

    @classmethod
    def of(cls, model: Any, free: str | Iterable[str], bounds: Mapping[str, Any] | None = None) -> "Parameters":
        """The entries of ``model`` named in ``free``: ``"m1"`` for a number, or for all entries of an array,
        ``"ma[2]"`` for one of them, ``"arm.length"`` or ``"bodies[2].mass"`` for what lies deeper.

        What is positive stays positive, unless ``bounds`` says otherwise: name -> (lower, upper), either of them None
        for no bound. Raises ``ValueError`` for names and bounds that make no sense.
        """
        free = [free] if isinstance(free, str) else list(free) if isinstance(free, Iterable) else free
        if not isinstance(free, list) or not all(isinstance(name, str) for name in free):
            raise ValueError(
                f"free must be a parameter's name, or several, such as 'm1' or ['m1', 'ma[2]'], got {repr_of(free)}"
            )
        if not free:
            raise ValueError("free must name at least one parameter, got none")
        if not isinstance(bounds, Mapping | None):
            raise ValueError(f"bounds must be a dictionary, name -> (lower, upper), got {repr_of(bounds)}")
        bounds, used = dict(bounds or {}), set()
        named = lambda place: str(place).removeprefix("model.") if isinstance(model, Observed) else str(place)
        names, places, lower, upper, first = [], [], [], [], []
        for name in free:
            whole, array = find(model, name, "free parameter")
            for index in [whole.index] if whole.index is not None else list(np.ndindex(array.shape)):
                place = Place(whole.path, index)
                label, value = named(place), float(array[index])
                if label in names:
                    raise ValueError(f"free names {label} twice")
                given = next((key for key in (label, name, named(whole._replace(index=None))) if key in bounds), None)
                used.add(given)
                low, high = _interval(label, value, bounds[given] if given is not None else None, given is not None)
                names.append(label)
                places.append(place)
                lower.append(low)
                upper.append(high)
                first.append(value)
        for name in bounds:
            if name not in used:
                meant = did_you_mean(str(name), names)
                raise ValueError(f"bounds has {name!r}, which is not free{meant} There are: {', '.join(names)}")
        return cls(tuple(names), tuple(places), jnp.array(lower), jnp.array(upper), jnp.array(first))

    @eqx.filter_jit  # one program, rather than one for each operation
    def values(self, x: Float[Array, " p"]) -> Float[Array, " p"]:
        """θ."""
        low, high = jnp.isfinite(self.lower), jnp.isfinite(self.upper)
        size = jnp.where(self.first == 0, 1, jnp.abs(self.first))
        above = jnp.where(low, self.first - self.lower, 1)
        below = jnp.where(high, self.upper - self.first, 1)
        span = jnp.where(low & high, self.upper - self.lower, 1)
        middle = jnp.where(low & high, above / below, 1)
        between = self.lower + span * jax.nn.sigmoid(x + jnp.log(middle))
        return jnp.select(
            [low & high, low, high],
            [between, self.lower + above * jnp.exp(x), self.upper - below * jnp.exp(-x)],
            self.first + size * x,
        )

    def free(self, values: Float[Array, " p"]) -> Float[Array, " p"]:
        """x, where ``values`` lie inside the bounds."""
        low, high = jnp.isfinite(self.lower), jnp.isfinite(self.upper)
        size = jnp.where(self.first == 0, 1, jnp.abs(self.first))
        up, first_up = values - self.lower, self.first - self.lower
        down, first_down = self.upper - values, self.upper - self.first
        return jnp.select(
            [low & high, low, high],
            [jnp.log(up / down * first_down / first_up), jnp.log(up / first_up), -jnp.log(down / first_down)],
            (values - self.first) / size,
        )

    def put(self, model: Any, x: Float[Array, " p"]) -> Any:
        """``model`` with θ in place."""
        return put(model, self.places, self.values(x))


def put(model: Any, places: Iterable[Place], values: Iterable[Any]) -> Any:
    """``model`` with ``values`` at ``places``."""
    changed = {}
    for place, value in zip(places, values, strict=True):
        array = changed.get(place.path, _follow(model, place.path))
        changed[place.path] = jnp.asarray(array).at[place.index].set(value)
    for path, array in changed.items():
        model = _with_array_at(model, path, array)
    return model


def value_at(model: Any, place: Place) -> Array:
    """What ``model`` has at ``place``."""
    array = jnp.asarray(_follow(model, place.path))
    return array if place.index is None else array[place.index]


def find(model: Any, name: str, what: str) -> tuple[Place, Array]:
    """Where ``name`` leads in ``model``, and the array that is there. ``what`` says in errors what the name is for.

    ``"arm.length"`` is a field of a field, ``"bodies[2].mass"`` a field of an item, ``"ma[2]"`` an entry of an array,
    ``"ma"`` all of it. Raises ``ValueError`` where there is no such thing, or it is not an array of numbers.
    """
    if isinstance(model, Observed):
        return model.find(name, what)
    here, path, steps = model, (), _steps(name, what)
    while steps and not eqx.is_inexact_array(here):
        step = steps.pop(0)
        here = _field(here, step, name, what) if isinstance(step, str) else _item(here, step, name, what)
        path += (step,) if isinstance(step, str) else step
    here = jnp.asarray(here) if type(here) is float else here
    if not eqx.is_inexact_array(here):
        raise ValueError(f"{what} {name!r} must be an array of numbers, got {type(here).__name__}")
    if not steps:
        return Place(path, None), here
    index = steps[0]
    if len(steps) > 1 or isinstance(index, str) or not _is_index(index, here.shape):
        raise ValueError(f"{what} {name!r}: its array has shape {here.shape}")
    return Place(path, index), here


def check_settings(model: Any, settings: Mapping[str, Any], leading: int = 0, samples: int | None = None) -> None:
    """Every setting is an array of the model, of its shape behind ``leading`` axes, or ``ValueError``. A record, in
    rows, may have ``samples`` rows instead of the model's."""
    for name, value in settings.items():
        if not isinstance(name, str):
            raise ValueError(f"a setting must have the name of a field, got {repr_of(name)}")
        place, array = find(model, name, "setting")
        if place.index is not None:
            raise ValueError(f"setting {name!r} must be a whole array: its entries cannot be set one by one")
        shape, found = array.shape, np.shape(value)[leading:]
        if found != shape and not (samples is not None and shape and found == (samples, *shape[1:])):
            raise ValueError(
                f"setting {name!r} must have the shape of the model's, {shape}"
                + (f", or a row for each of {samples} samples" if samples is not None and shape else "")
                + f", got {np.shape(value)}"
            )


def with_array(model: Any, name: str, array: Array) -> Any:
    """``model`` with another array for the one that ``name`` leads to."""
    return _with_array_at(model, find(model, name, "setting")[0].path, array)


def _with_array_at(model, path, array):
    return eqx.tree_at(lambda m: _follow(m, path), model, array)


def _follow(model, path):
    for step in path:
        model = getattr(model, step) if isinstance(step, str) else model[step]
    return model


def _steps(name, what) -> list[str | tuple[int, ...]]:
    """``"bodies[2].mass"`` as ``["bodies", (2,), "mass"]``."""
    bare = name.replace(" ", "")
    if not re.fullmatch(rf"{PART.pattern}(\.{PART.pattern})*", bare):
        raise ValueError(f"{what} {name!r} must be a name, such as m1, ma[2], arm.length or bodies[2].mass")
    steps = []
    for part in PART.finditer(bare):
        field, *brackets = part[0].replace("]", "").split("[")
        steps += [field, *(tuple(map(int, bracket.split(","))) for bracket in brackets)]
    return steps


def _field(here, field, name, what):
    fields = here._asdict() if hasattr(here, "_asdict") else getattr(here, "__dict__", {})
    known = [key for key, value in fields.items() if _may_hold_numbers(value)]
    if field not in known:
        raise ValueError(
            f"{what} {name!r}: {type(here).__name__} has no number {field!r}{did_you_mean(field, known)} "
            f"There are: {', '.join(known) or 'none; numbers inside functions cannot be named'}"
        )
    return getattr(here, field)


def _may_hold_numbers(value):
    if isinstance(value, tuple | list):
        return any(map(_may_hold_numbers, value))
    return type(value) is float or eqx.is_inexact_array(value) or isinstance(value, eqx.Module)


def _item(here, index, name, what):
    items = len(here) if isinstance(here, tuple | list) else 0
    if len(index) != 1 or index[0] >= items:
        raise ValueError(f"{what} {name!r}: {type(here).__name__} has {items} items, from [0] on")
    return here[index[0]]


def _is_index(index, shape):
    return len(index) == len(shape) and all(i < size for i, size in zip(index, shape, strict=True))


def _interval(label, value, bound, given):
    if not given:
        return (0.0, INFINITY) if value > 0 else (-INFINITY, INFINITY)
    try:
        low, high = (None, None) if bound is None or isinstance(bound, str) else bound
        low, high = -INFINITY if low is None else float(low), INFINITY if high is None else float(high)
        if isinstance(bound, str):
            raise TypeError
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds[{label!r}] must be two numbers, (lower, upper), or None for no bounds, got {repr_of(bound)}"
        ) from None
    if not low < value < high:
        raise ValueError(f"the model's {label} = {value:g} must lie inside its bounds, got ({low:g}, {high:g})")
    return low, high
