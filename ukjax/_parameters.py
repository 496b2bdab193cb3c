"""Free parameters of a model, selected by name and transformed to unbounded variables."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._check import repr_of
from ._errors import InputError
from ._names import did_you_mean, did_you_mean_one_of

INFINITY = float("inf")
PART = re.compile(r"[^\W\d]\w*(?:\[\d+(?:,\d+)*\])*")
"""A field with optional indices: ``mass``, ``ma[2]``."""


class Place(NamedTuple):
    """Path of fields and items to an array of a model, and the index of an entry, None for the whole array."""

    path: tuple[str | int, ...]
    index: tuple[int, ...] | None

    def __str__(self) -> str:
        path = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in self.path)
        return path[1:] + (f"[{','.join(map(str, self.index))}]" if self.index else "")


class Observed(eqx.Module):
    """A ``model`` and its output function ``observe(t, q, v)``.

    Names that begin with ``observe.`` are parameters of this function, all others are parameters of the model.
    """

    model: Any
    observe: Any

    def find(self, name: str, what: str) -> tuple[Place, Array]:
        """Find an array of the model or, for a name that begins with ``observe.``, of the output function."""
        if not name.replace(" ", "").startswith("observe."):
            place, array = find(self.model, name, what)
            return place._replace(path=("model", *place.path)), array
        if not isinstance(self.observe, eqx.Module):
            raise InputError(f"{what} {name!r}: observe has no parameters, unless it is an equinox.Module with fields")
        place, array = find(self.observe, name.replace(" ", "").removeprefix("observe."), what)
        return place._replace(path=("observe", *place.path)), array


class Parameters(eqx.Module):
    """Parameters θ (p,) of a model as functions of unbounded variables x (p,), with x = 0 at the initial values.

    With one bound, θ = lower + (first − lower) eˣ or upper − (upper − first) e⁻ˣ. Between two bounds, θ is a logistic
    function of x. Without bounds, θ = first + |first| x, or x if first is 0.

    Attributes
    ----------
    names, places
        Names and places of the parameters.
    lower, upper
        (p,) bounds, infinite for no bound.
    first
        (p,) initial values.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    places: tuple[Place, ...] = eqx.field(static=True)
    lower: Float[Array, " p"]
    upper: Float[Array, " p"]
    first: Float[Array, " p"]

    @classmethod
    def of(cls, model: Any, free: str | Iterable[str], bounds: Mapping[str, Any] | None = None) -> "Parameters":
        """Select the entries of ``model`` named in ``free``.

        ``"m1"`` is a number or all entries of an array, ``"ma[2]"`` one entry, ``"arm.length"`` and
        ``"bodies[2].mass"`` are nested fields. ``bounds`` maps names to (lower, upper), each None for no bound. A
        positive value without ``bounds`` stays positive. Raises ``InputError`` for invalid names and bounds.
        """
        free = [free] if isinstance(free, str) else list(free) if isinstance(free, Iterable) else free
        if not isinstance(free, list) or not all(isinstance(name, str) for name in free):
            raise InputError(
                f"free must be a parameter's name, or several, such as 'm1' or ['m1', 'ma[2]'], got {repr_of(free)}"
            )
        if not free:
            raise InputError("free must name at least one parameter, got none")
        if not isinstance(bounds, Mapping | None):
            raise InputError(f"bounds must be a dictionary, name -> (lower, upper), got {repr_of(bounds)}")
        bounds, used = dict(bounds or {}), set()
        named = lambda place: str(place).removeprefix("model.") if isinstance(model, Observed) else str(place)
        names, places, lower, upper, first = [], [], [], [], []
        for name in free:
            whole, array = find(model, name, "free parameter")
            for index in [whole.index] if whole.index is not None else list(np.ndindex(array.shape)):
                place = Place(whole.path, index)
                label, value = named(place), float(array[index])
                if label in names:
                    raise InputError(f"free names {label} twice")
                entry = next((key for key in (label, name, named(whole._replace(index=None))) if key in bounds), None)
                used.add(entry)
                low, high = _interval(label, value, bounds[entry] if entry is not None else None, entry is not None)
                names.append(label)
                places.append(place)
                lower.append(low)
                upper.append(high)
                first.append(value)
        for name in bounds:
            if name not in used:
                raise InputError(f"bounds has {name!r}, which is not free{did_you_mean_one_of(str(name), names)}")
        return cls(tuple(names), tuple(places), jnp.array(lower), jnp.array(upper), jnp.array(first))

    @eqx.filter_jit  # compiled as one program instead of one per operation
    def values(self, x: Float[Array, " p"]) -> Float[Array, " p"]:
        """Return θ for x."""
        has_lower, has_upper = jnp.isfinite(self.lower), jnp.isfinite(self.upper)
        scale = jnp.where(self.first == 0, 1, jnp.abs(self.first))
        above = jnp.where(has_lower, self.first - self.lower, 1)
        below = jnp.where(has_upper, self.upper - self.first, 1)
        span = jnp.where(has_lower & has_upper, self.upper - self.lower, 1)
        middle = jnp.where(has_lower & has_upper, above / below, 1)
        between = self.lower + span * jax.nn.sigmoid(x + jnp.log(middle))
        return jnp.select(
            [has_lower & has_upper, has_lower, has_upper],
            [between, self.lower + above * jnp.exp(x), self.upper - below * jnp.exp(-x)],
            self.first + scale * x,
        )

    def free(self, values: Float[Array, " p"]) -> Float[Array, " p"]:
        """Return x for θ = ``values``, which must lie inside the bounds."""
        has_lower, has_upper = jnp.isfinite(self.lower), jnp.isfinite(self.upper)
        scale = jnp.where(self.first == 0, 1, jnp.abs(self.first))
        up, first_up = values - self.lower, self.first - self.lower
        down, first_down = self.upper - values, self.upper - self.first
        return jnp.select(
            [has_lower & has_upper, has_lower, has_upper],
            [jnp.log(up / down * first_down / first_up), jnp.log(up / first_up), -jnp.log(down / first_down)],
            (values - self.first) / scale,
        )

    def put(self, model: Any, x: Float[Array, " p"]) -> Any:
        """Return ``model`` with the parameters θ(x)."""
        return put(model, self.places, self.values(x))


def put(model: Any, places: Iterable[Place], values: Iterable[Any]) -> Any:
    """Return ``model`` with ``values`` at ``places``."""
    changed = {}
    for place, value in zip(places, values, strict=True):
        array = changed.get(place.path, _follow(model, place.path))
        changed[place.path] = jnp.asarray(array).at[place.index].set(value)
    for path, array in changed.items():
        model = _with_array_at(model, path, array)
    return model


def value_at(model: Any, place: Place) -> Array:
    """Return the value of ``model`` at ``place``."""
    array = jnp.asarray(_follow(model, place.path))
    return array if place.index is None else array[place.index]


def find(model: Any, name: str, what: str) -> tuple[Place, Array]:
    """Find the array ``name`` of ``model``. Returns its place and the array.

    ``"arm.length"`` is a field of a field, ``"bodies[2].mass"`` a field of an item, ``"ma[2]"`` an entry of an array,
    ``"ma"`` the whole array. ``what`` is the kind of name, for error messages. Raises ``InputError`` if the name does
    not exist, or is not an array of numbers.
    """
    if isinstance(model, Observed):
        return model.find(name, what)
    current, path, steps = model, (), _steps(name, what)
    while steps and not eqx.is_inexact_array(current):
        step = steps.pop(0)
        current = _field(current, step, name, what) if isinstance(step, str) else _item(current, step, name, what)
        path += (step,) if isinstance(step, str) else step
    current = jnp.asarray(current) if type(current) is float else current
    if not eqx.is_inexact_array(current):
        raise InputError(f"{what} {name!r} must be an array of numbers, got {type(current).__name__}")
    if not steps:
        return Place(path, None), current
    index = steps[0]
    if len(steps) > 1 or isinstance(index, str) or not _is_index(index, current.shape):
        raise InputError(f"{what} {name!r}: its array has shape {current.shape}")
    return Place(path, index), current


def check_settings(model: Any, settings: Mapping[str, Any], leading: int = 0, samples: int | None = None) -> None:
    """Raise ``InputError`` unless each setting has the shape of an array of the model, after ``leading`` axes.

    If ``samples`` is given, the first axis of the array may have this size instead: one row for each sample.
    """
    for name, value in settings.items():
        if not isinstance(name, str):
            raise InputError(f"a setting must have the name of a field, got {repr_of(name)}")
        place, array = find(model, name, "setting")
        if place.index is not None:
            raise InputError(f"setting {name!r} must be a whole array: its entries cannot be set one by one")
        shape, given_shape = array.shape, np.shape(value)[leading:]
        if given_shape != shape and not (samples is not None and shape and given_shape == (samples, *shape[1:])):
            raise InputError(
                f"setting {name!r} must have the shape of the model's, {shape}"
                + (f", or a row for each of {samples} samples" if samples is not None and shape else "")
                + f", got {np.shape(value)}"
            )


def with_array(model: Any, name: str, array: Array) -> Any:
    """Return ``model`` with its array ``name`` replaced."""
    return _with_array_at(model, find(model, name, "setting")[0].path, array)


def _with_array_at(model, path, array):
    return eqx.tree_at(lambda m: _follow(m, path), model, array)


def _follow(model, path):
    for step in path:
        model = getattr(model, step) if isinstance(step, str) else model[step]
    return model


def _steps(name, what) -> list[str | tuple[int, ...]]:
    """Parse ``"bodies[2].mass"`` to ``["bodies", (2,), "mass"]``."""
    bare = name.replace(" ", "")
    if not re.fullmatch(rf"{PART.pattern}(\.{PART.pattern})*", bare):
        raise InputError(f"{what} {name!r} must be a name, such as m1, ma[2], arm.length or bodies[2].mass")
    steps = []
    for part in PART.finditer(bare):
        field, *brackets = part[0].replace("]", "").split("[")
        steps += [field, *(tuple(map(int, bracket.split(","))) for bracket in brackets)]
    return steps


def _field(owner, field, name, what):
    fields = owner._asdict() if hasattr(owner, "_asdict") else getattr(owner, "__dict__", {})
    names = [key for key, value in fields.items() if _may_hold_numbers(value)]
    if field not in names:
        raise InputError(
            f"{what} {name!r}: {type(owner).__name__} has no number {field!r}{did_you_mean(field, names)} "
            f"There are: {', '.join(names) or 'none; numbers inside functions cannot be named'}"
        )
    return getattr(owner, field)


def _may_hold_numbers(value):
    if isinstance(value, tuple | list):
        return any(map(_may_hold_numbers, value))
    return type(value) is float or eqx.is_inexact_array(value) or isinstance(value, eqx.Module)


def _item(owner, index, name, what):
    items = len(owner) if isinstance(owner, tuple | list) else 0
    if len(index) != 1 or index[0] >= items:
        raise InputError(f"{what} {name!r}: {type(owner).__name__} has {items} items, from [0] on")
    return owner[index[0]]


def _is_index(index, shape):
    return len(index) == len(shape) and all(i < size for i, size in zip(index, shape, strict=True))


def _interval(label, value, bound, has_bound):
    if not has_bound:
        return (0.0, INFINITY) if value > 0 else (-INFINITY, INFINITY)
    try:
        low, high = (None, None) if bound is None or isinstance(bound, str) else bound
        low, high = -INFINITY if low is None else float(low), INFINITY if high is None else float(high)
        if isinstance(bound, str):
            raise TypeError
    except (TypeError, ValueError):
        raise InputError(
            f"bounds[{label!r}] must be two numbers, (lower, upper), or None for no bounds, got {repr_of(bound)}"
        ) from None
    if not low < value < high:
        raise InputError(f"the model's {label} = {value:g} must lie inside its bounds, got ({low:g}, {high:g})")
    return low, high
