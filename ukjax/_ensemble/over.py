"""The numbers that an ensemble sweeps, by name, and their values for any range of members.

The values of member k depend on k and on the arguments of ``ensemble`` alone, not on the chunk or the process.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._check import as_integer, as_numpy, check_finite, check_word, repr_of
from .._errors import InputError
from .._fingerprint import Digest
from .._names import did_you_mean_one_of
from .._parameters import Place, find
from .ranges import Grid, Uniform

DRAW_BLOCK = 1024
"""Members whose numbers are drawn together. A power of two: such a number of Sobol points is balanced."""

TAIL = 10.0 ** -np.arange(15, 2, -1.0)
PROBABILITIES = np.concatenate([TAIL, np.linspace(0.01, 0.99, 33), 1 - TAIL[::-1]])
"""Probabilities at which the quantiles of two distributions are compared."""

COMBINE_OPTIONS = "grid", "each", "random", "sobol"

WANTED = "a Grid, a Uniform, a distribution of scipy.stats or numbers"


class Swept(NamedTuple):
    """A number that is swept: a ``place`` in the model, or entry ``index`` of q0 or v0.

    It takes one of ``values``, or is drawn by its quantile function ``ppf``. ``description`` is its text in the
    manifest of a store, equal in every process.
    """

    name: str
    kind: str  # "model", "q" or "v"
    place: Place | None
    index: int
    values: Float[np.ndarray, " values"] | None
    ppf: Any
    description: str


class Over(NamedTuple):
    """All numbers that are swept, the number of ``members``, and how values are combined (``combine``, ``seed``: see
    ``ensemble``)."""

    swept: tuple[Swept, ...]
    members: int
    combine: str
    seed: int

    @classmethod
    def of(
        cls,
        model: Any,
        over: Any,
        members: Any,
        combine: Any,
        seed: Any,
        coordinates: Sequence[str],
        directions: Sequence[str],
    ) -> "Over":
        """Check the arguments of ``ensemble``, or raise ``InputError``.

        ``coordinates`` are the names of q; ``directions`` are the names whose rates the velocities are.
        """
        if not isinstance(over, Mapping) or not over:
            raise InputError(
                "over must be a dictionary of names and values, such as {'m1': ukjax.Grid(1.0, 2.0, 10)}, got "
                f"{repr_of(over)}"
            )
        if members is not None:
            members = as_integer("members", members, 1)
        if combine is not None:
            check_word("combine", combine, COMBINE_OPTIONS)
        seed = as_integer("seed", seed)
        swept = tuple(_swept(model, name, value, coordinates, directions) for name, value in over.items())
        for first, second in ((a, b) for i, a in enumerate(swept) for b in swept[:i]):
            if (first.kind, first.place, first.index) == (second.kind, second.place, second.index):
                raise InputError(f"over names one number twice: {second.name!r} and {first.name!r}")
        counts = [each.values.size for each in swept if each.values is not None]
        combine = combine or ("each" if counts and all(count == members for count in counts) else "grid")
        return cls(swept, _members(counts, members, combine, swept), combine, seed)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.swept)

    def of_kind(self, kind: str) -> list[int]:
        """Indices of the swept numbers that are parameters ("model"), or entries of q0 ("q") or v0 ("v")."""
        return [i for i, each in enumerate(self.swept) if each.kind == kind]

    def values(self, first: int, last: int) -> Float[np.ndarray, "some p"]:
        """The swept numbers of the members ``first``, ..., ``last`` - 1, one row for each."""
        members = np.arange(first, last)
        numbers = np.empty((members.size, len(self.swept)))
        columns = {i: each.values for i, each in enumerate(self.swept) if each.values is not None}
        if self.combine == "grid" and columns:
            shape = tuple(values.size for values in columns.values())
            indices = np.unravel_index(members % math.prod(shape), shape)
            for (i, values), index in zip(columns.items(), indices, strict=True):
                numbers[:, i] = values[index]
        if self.combine == "each":
            for i, values in columns.items():
                numbers[:, i] = values[members]
        drawn = [i for i in range(len(self.swept)) if i not in columns or self.combine in ("random", "sobol")]
        if drawn:
            probabilities = self._shares(first, last, len(drawn))
            for probability, i in zip(probabilities.T, drawn, strict=True):
                numbers[:, i] = _quantiles(self.swept[i], probability)
        return numbers

    def descriptions(self) -> dict[str, str]:
        """Text that describes the values of each number, with a digest of them, by name."""
        return {each.name: each.description for each in self.swept}

    def _shares(self, first, last, count):
        """One point of the unit cube (0, 1)^count for each member, at which quantile functions are evaluated."""
        blocks = range(first // DRAW_BLOCK, -(-last // DRAW_BLOCK))
        if self.combine == "sobol":
            from scipy.stats import qmc

            points = qmc.Sobol(count, scramble=True, rng=np.random.default_rng(self.seed))
            if blocks.start:
                points.fast_forward(blocks.start * DRAW_BLOCK)
            drawn = points.random(len(blocks) * DRAW_BLOCK) if blocks.start else _first_points(points, len(blocks))
        else:
            drawn = np.concatenate([np.random.default_rng([self.seed, i]).random((DRAW_BLOCK, count)) for i in blocks])
        drawn = drawn[first - blocks.start * DRAW_BLOCK :][: last - first]
        return np.clip(drawn, 2.0**-53, 1 - 2.0**-53)


def _first_points(points, blocks):
    """The first blocks of points, drawn one by one: SciPy warns if a first draw is no power of two."""
    return np.concatenate([points.random(DRAW_BLOCK) for _ in range(blocks)])


def _quantiles(swept, probabilities):
    """Values of a swept number at these probabilities; a number with ``values`` takes each of them equally often."""
    if swept.values is None:
        return swept.ppf(probabilities)
    return swept.values[np.minimum((probabilities * swept.values.size).astype(int), swept.values.size - 1)]


def _members(counts, members, combine, swept) -> int:
    drawn = [each.name for each in swept if each.values is None]
    if combine in ("random", "sobol") or combine == "grid" and drawn and members is None or not counts:
        if members is None:
            name = drawn[0] if drawn else swept[0].name
            raise InputError(f"members must be given, the number of members: over draws {name!r} at random")
        if combine != "grid" or not counts:
            return members
    if combine == "each":
        if len(set(counts)) > 1 or members not in (None, counts[0]):
            sizes = ", ".join(f"{e.name!r} {e.values.size}" for e in swept if e.values is not None)
            raise InputError(
                f"over must have one value for each of {members or counts[0]} members where combine='each', got {sizes}"
            )
        return counts[0]
    points = math.prod(counts)
    if members is None:
        return points
    if members % points or members < points or members > points and not drawn:
        sizes = " × ".join(map(str, counts))
        wanted = f"a multiple of {points}" if drawn else str(points)
        raise InputError(
            f"members must be {wanted}, since over makes a grid of {sizes} points, got {members}; or use "
            "combine='random' or combine='sobol'"
        )
    return members


def _swept(model, name, value, coordinates, directions) -> Swept:
    if not isinstance(name, str):
        raise InputError(f"over must have the names of numbers as keys, got {repr_of(name)}")
    kind, place, index = _place(model, name, coordinates, directions)
    return Swept(name, kind, place, index, *_values(name, value))


def _place(model, name, coordinates, directions) -> tuple[str, Place | None, int]:
    """Find the number of that name, a field of the model or an entry of q0 or v0: (kind, place, index)."""
    fields = getattr(model, "__dict__", {})
    start_entries = {}
    for i, coordinate in enumerate(coordinates):
        start_entries |= {f"q{i + 1}": ("q", None, i), coordinate: ("q", None, i)}
    rates = [f"d{name}" if name in coordinates else name for name in directions]
    for i, velocity in enumerate(rates):
        start_entries |= {f"v{i + 1}": ("v", None, i), f"dq{i + 1}": ("v", None, i), velocity: ("v", None, i)}
    if re.split(r"[.\[]", name)[0].strip() not in fields:
        if name in start_entries:
            return start_entries[name]
        known = [*_numbers_of(fields), *coordinates, *rates]
        if "." not in name and "[" not in name:
            raise InputError(
                f"over names no number of the model or of its start: {name!r}{did_you_mean_one_of(name, known)}"
            )
    place, array = find(model, name, "over")
    if place.index is None and array.size != 1:
        raise InputError(
            f"over must name one number, and {name!r} has {array.size}: name its entries, such as "
            f"'{name}[{','.join('0' * array.ndim)}]'"
        )
    return "model", Place(place.path, place.index or (0,) * array.ndim), 0


def _numbers_of(fields):
    return [name for name, value in fields.items() if isinstance(value, float) or hasattr(value, "dtype")]


def _values(name, value) -> tuple[np.ndarray | None, Any, str]:
    """The values, or the quantile function; and the description of both."""
    argument = f"over[{name!r}]"
    if isinstance(value, type):
        raise InputError(f"{argument} must be {WANTED}, got {repr_of(value)}")
    if isinstance(value, Uniform):
        return None, value.ppf, f"between {value.low!r} and {value.high!r}"
    ppf = next((getattr(value, key) for key in ("ppf", "icdf") if callable(getattr(value, key, None))), None)
    if ppf is not None:
        if not hasattr(value, "args") and not hasattr(value, "icdf"):
            raise InputError(f"{argument} must be a distribution with its numbers, such as scipy.stats.norm(1.0, 0.1)")
        if not np.all(np.isfinite(np.asarray(ppf(np.linspace(0.01, 0.99, 33)), float))):
            raise InputError(f"{argument} must be a distribution with finite quantiles, got {repr_of(value)}")
        return None, ppf, _describe_distribution(value)
    if isinstance(value, Grid):
        values = value.values
    else:
        values = np.atleast_1d(as_numpy(argument, list(value) if isinstance(value, range) else value, WANTED))
    if values.ndim != 1:
        raise InputError(f"{argument} must be numbers in one row, got shape {values.shape}")
    if not values.size:
        raise InputError(f"{argument} must have at least one value, got none: the grid is empty")
    check_finite(argument, values)
    digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    return values, None, f"{values.size} values from {values[0]:.17g} to {values[-1]:.17g} ({digest})"


def _describe_distribution(distribution: Any) -> str:
    """Text that describes a distribution, with a digest of its kind, arguments and quantiles, far into the tails.

    The digest uses twelve digits of each quantile, since processors may round differently.
    """
    kind = getattr(distribution, "dist", distribution)
    name = getattr(kind, "name", None) or type(kind).__name__
    arguments = getattr(distribution, "args", ()), getattr(distribution, "kwds", {})
    quantiles = distribution.ppf if hasattr(distribution, "ppf") else distribution.icdf
    values = np.asarray(quantiles(PROBABILITIES), float)
    rounded = [f"{x:.11e}" for x in values]
    digest = Digest().of([type(kind).__qualname__, name, arguments, rounded]).hex()[:16]
    low, middle, high = (values[np.searchsorted(PROBABILITIES, probability)] for probability in (0.01, 0.5, 0.99))
    return f"{name} from {low:.6g} to {high:.6g} in 98 of 100, around {middle:.6g} ({digest})"
