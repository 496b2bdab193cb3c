"""Numbers of a model that may change: by name, and without bounds to mind while they do."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

INFINITY = float("inf")


class Parameters(eqx.Module):
    """Some entries θ (p,) of a model's arrays, as functions of free numbers x (p,), all 0 at ``first``.

    θ = first eˣ for what must stay positive, a logistic curve between two bounds, and first + size x, with the size of
    the first value, where there is no bound.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    places: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    lower: Float[Array, " p"]
    upper: Float[Array, " p"]
    first: Float[Array, " p"]

    @classmethod
    def of(cls, model: Any, free: str | Iterable[str], bounds: Mapping[str, Any] | None = None) -> "Parameters":
        """The entries of ``model`` named in ``free``: ``"m1"`` for a number, or for all entries of an array,
        ``"ma[2]"`` for one of them, ``"arm.length"`` for what lies deeper.

        What is positive stays positive, unless ``bounds`` says otherwise: name -> (lower, upper), either of them None
        for no bound. Raises ``ValueError`` for names and bounds that make no sense.
        """
        free = [free] if isinstance(free, str) else list(free)
        if not free:
            raise ValueError("free must name at least one parameter, got none")
        bounds, used = dict(bounds or {}), set()
        names, places, lower, upper, first = [], [], [], [], []
        for name in free:
            path, wanted = _parse(name)
            array = np.asarray(_entry(model, path, name))
            for index in [wanted] if wanted is not None else list(np.ndindex(array.shape)):
                _check_index(index, array, name)
                label = path + (f"[{','.join(map(str, index))}]" if index else "")
                if label in names:
                    raise ValueError(f"free names {label} twice")
                value = float(array[index])
                given = next((key for key in (label, name, path) if key in bounds), None)
                used.add(given)
                low, high = _interval(label, value, bounds[given] if given is not None else None, given is not None)
                names.append(label)
                places.append((path, index))
                lower.append(low)
                upper.append(high)
                first.append(value)
        for name in bounds:
            if name not in used:
                raise ValueError(f"bounds has {name!r}, which is not free: there are {', '.join(names)}")
        return cls(tuple(names), tuple(places), jnp.array(lower), jnp.array(upper), jnp.array(first))

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


def put(model: Any, places: Sequence[tuple[str, tuple[int, ...]]], values: Float[Array, " p"]) -> Any:
    """``model`` with ``values`` at ``places``."""
    changed = {}
    for (path, index), value in zip(places, values, strict=True):
        array = changed.get(path, _get(model, path))
        changed[path] = jnp.asarray(array).at[index].set(value)
    for path, array in changed.items():
        model = with_array(model, path, array)
    return model


def check_settings(model: Any, settings: Mapping[str, Any], leading: int = 0, samples: int | None = None) -> None:
    """Every setting is an array of the model, of its shape behind ``leading`` axes, or ``ValueError``. A record, in
    rows, may have ``samples`` rows instead of the model's."""
    for name, value in settings.items():
        shape = np.shape(_entry(model, name, name, "setting"))
        found = np.shape(value)[leading:]
        if found != shape and not (samples is not None and shape and found == (samples, *shape[1:])):
            raise ValueError(
                f"setting {name!r} must have the shape of the model's, {shape}"
                + (f", or a row for each of {samples} samples" if samples is not None and shape else "")
                + f", got {np.shape(value)}"
            )


def with_array(model: Any, path: str, array: Array) -> Any:
    """``model`` with another array at ``path``."""
    return eqx.tree_at(lambda m: _get(m, path), model, array)


def _parse(name: str) -> tuple[str, tuple[int, ...] | None]:
    found = re.fullmatch(r"([A-Za-z_][\w.]*)(?:\[(\d+(?:,\d+)*)\])?", name.replace(" ", ""))
    if found is None:
        raise ValueError(f"free parameter {name!r} must be a name, such as m1, ma[2] or arm.length")
    return found[1], None if found[2] is None else tuple(map(int, found[2].split(",")))


def _get(model, path):
    for part in path.split("."):
        model = getattr(model, part)
    return model


def _entry(model, path, name, what="free parameter"):
    here = model
    for part in path.split("."):
        known = [key for key, x in vars(here).items() if eqx.is_inexact_array(x) or isinstance(x, eqx.Module)]
        if part not in known:
            near = difflib.get_close_matches(part, known, n=1)
            raise ValueError(
                f"{what} {name!r}: {type(here).__name__} has no number {part!r}"
                + (f"; did you mean {near[0]!r}?" if near else "")
                + f" There are: {', '.join(known) or 'none; numbers inside functions cannot be named'}"
            )
        here = getattr(here, part)
    if not eqx.is_inexact_array(here):
        raise ValueError(f"{what} {name!r} must be an array of numbers, got {type(here).__name__}")
    return here


def _check_index(index, array, name):
    if len(index) != array.ndim or any(i >= size for i, size in zip(index, array.shape, strict=True)):
        raise ValueError(f"free parameter {name!r}: its array has shape {array.shape}")


def _interval(label, value, bound, given):
    if not given:
        return (0.0, INFINITY) if value > 0 else (-INFINITY, INFINITY)
    try:
        low, high = (None, None) if bound is None else bound
    except (TypeError, ValueError):
        raise ValueError(f"bounds[{label!r}] must be (lower, upper), or None for no bounds, got {bound!r}") from None
    low, high = -INFINITY if low is None else float(low), INFINITY if high is None else float(high)
    if not low < value < high:
        raise ValueError(f"the model's {label} = {value:g} must lie inside its bounds, got ({low:g}, {high:g})")
    return low, high
