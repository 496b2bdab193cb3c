"""The time histories of a motion that a page shows below its picture."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._labels import Named
from .._motion.trajectory.trajectory import Trajectory
from .loads import Load


class History(NamedTuple):
    """Several quantities of one unit at the samples.

    Attributes
    ----------
    title
        Name of the quantities, with their unit.
    unit
        Their unit, empty for none.
    names
        Name of each column.
    values
        (samples, columns).
    """

    title: str
    unit: str
    names: tuple[str, ...]
    values: Float[np.ndarray, "samples columns"]


def histories(trajectory: Trajectory, forces: list[Load] | None) -> list[History]:
    """Coordinates, velocities and states by unit; if ``forces`` is not None, also energy, control and forces."""
    rate = {"": "1/s"}
    found = _by_unit("coordinates", trajectory.coordinates, trajectory.q)
    n = trajectory.v.shape[-1] - len(trajectory.states)
    velocities = tuple((f"d{name}", rate.get(unit, f"{unit}/s")) for name, unit in trajectory.directions[:n])
    found += _by_unit("velocities", velocities, trajectory.v)
    found += _by_unit("states", trajectory.named_states, np.asarray(trajectory.v)[:, n:])
    if forces is None:
        return found
    if trajectory.energy is not None:
        found.append(History("energy [J]", "J", ("T + V",), np.asarray(trajectory.energy)[:, None]))
    if trajectory.control is not None:
        found += _by_unit("control", trajectory.inputs, trajectory.control)
    for each in forces:
        sizes = np.linalg.norm(each.vector, axis=-1)
        names = tuple(f"{i + 1}" for i in range(sizes.shape[1]))
        found.append(History(f"{each.name} [{each.unit}]", each.unit, names, sizes))
    return found


def _by_unit(title: str, named: Named, values) -> list[History]:
    """One history for each unit."""
    values = np.asarray(values)
    units = dict.fromkeys(unit for _, unit in named)
    columns = {unit: [i for i, (_, each) in enumerate(named) if each == unit] for unit in units}
    return [
        History(f"{title} [{unit}]" if unit else title, unit, tuple(named[i][0] for i in chosen), values[:, chosen])
        for unit, chosen in columns.items()
    ]
