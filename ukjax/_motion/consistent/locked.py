"""Locked coordinates: they keep their given values while the others are adjusted."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..._check import repr_of
from ..._constraint import AbstractConstraint, Holonomic, Pfaffian
from ..._errors import InputError
from ..._kinematic_map import rate
from ..._labels import named_coordinates, named_directions
from ..._names import did_you_mean_one_of
from ..._system import AbstractSystem, AbstractVariant


def locked(
    system: AbstractSystem,
    fixed: Any,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    argument: str = "fixed",
) -> AbstractSystem:
    """``system`` with the coordinates and velocities in ``fixed`` locked.

    Each named coordinate keeps its value and rate from (t, q, v). Each named velocity that is not the rate of a
    coordinate keeps its value from v. Returns ``system`` itself if ``fixed`` is empty. Raises ``InputError`` for
    unknown names; the message uses the name of the user's ``argument``.
    """
    fixed_names = (fixed,) if isinstance(fixed, str) else tuple(fixed) if isinstance(fixed, Iterable) else None
    if fixed_names is None or not all(isinstance(name, str) for name in fixed_names):
        raise InputError(f"{argument} must be names of coordinates, such as ('crank',), got {repr_of(fixed)}")
    names = [name for name, _ in named_coordinates(system, q.size)]
    speeds = [name for name, _ in named_directions(system, v.size) or () if name not in names]
    for name in fixed_names:
        if name not in (*names, *speeds):
            raise InputError(f"{argument} names no coordinate {name!r}{did_you_mean_one_of(name, [*names, *speeds])}")
    of_q, of_v = (tuple(name for name in fixed_names if name in among) for among in (names, speeds))
    return Locked(system, of_q, of_v, t, q, v) if fixed_names else system


class Locked(AbstractVariant):
    """A system in which some named coordinates follow q + q̇ (t − t0), and some named velocities are constant."""

    of_q: tuple[str, ...] = eqx.field(static=True)
    of_v: tuple[str, ...] = eqx.field(static=True)
    t: Array
    q: Float[Array, " nq"]
    v: Float[Array, " n"]

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        constraints = list(self.plant.constraints)
        if self.of_q:
            constraints.append(Holonomic(self.off, name=tuple(f"{name} as given" for name in self.of_q)))
        if self.of_v:
            names = [name for name, _ in named_directions(self.plant, self.v.size) or ()]
            indices = np.array([names.index(name) for name in self.of_v])
            rows = np.eye(self.v.size)[indices]
            constraints.append(Pfaffian(rows, self.v[indices], name=tuple(f"{name} as given" for name in self.of_v)))
        return tuple(constraints)

    def off(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        """Deviations of the locked coordinates from their paths."""
        names = [name for name, _ in named_coordinates(self.plant, q.size)]
        at = np.array([names.index(name) for name in self.of_q])
        return q[at] - self.q[at] - rate(self.kinematic_map, self.q, self.v)[at] * (t - self.t)
