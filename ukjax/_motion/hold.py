"""Coordinates that stay as they are given while the rest is fitted to them."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._check import seen
from .._constraint import AbstractConstraint, Holonomic
from .._control import AbstractControl
from .._dynamics import AbstractDynamics
from .._names import did_you_mean
from .._system import AbstractSystem
from .labels import named_coordinates


def holding(
    system: AbstractSystem, hold: Any, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]
) -> AbstractSystem:
    """The system with the coordinates that ``hold`` names where and as fast as they are in q and v at t; itself if
    there are none. ``ValueError`` for names that it has not."""
    hold = (hold,) if isinstance(hold, str) else hold
    if not isinstance(hold, Iterable) or not all(isinstance(name, str) for name in hold):
        raise ValueError(f"hold must be names of coordinates, such as ('crank',), got {seen(hold)}")
    names = [name for name, _ in named_coordinates(system, q.size)]
    for name in hold:
        if name not in names:
            raise ValueError(
                f"hold names no coordinate {name!r}{did_you_mean(name, names)} There are: {', '.join(names)}"
            )
    held = tuple(hold)
    return Holding(system, tuple(map(names.index, held)), held, t, q, v) if held else system


class Holding(AbstractSystem):
    """A system some of whose coordinates are on given paths, q + v (t − t0)."""

    system: AbstractSystem
    places: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    t: Array
    q: Float[Array, " n"]
    v: Float[Array, " n"]

    @property
    def dynamics(self) -> AbstractDynamics:
        return self.system.dynamics

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        names = tuple(f"{name} as given" for name in self.names)
        return (*self.system.constraints, Holonomic(self.off, name=names))

    @property
    def control(self) -> AbstractControl | None:
        return self.system.control

    def off(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " k"]:
        """How far the coordinates are from their paths."""
        at = np.array(self.places)
        return q[at] - self.q[at] - self.v[at] * (t - self.t)
