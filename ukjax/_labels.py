"""Names and units of coordinates, actuators and constraint rows."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ._constraint import names_of, nonsmooth_names
from ._control import AbstractControl
from ._kinematic_map import StateMap
from ._system import AbstractSystem, kinematic_map_of, task_of

Named = tuple[tuple[str, str], ...]
"""Pairs of a name and a unit."""


class Labels(eqx.Module):
    """Names and units of the arrays of a trajectory.

    Attributes
    ----------
    title
        Name of the model.
    coordinates
        Name and unit of each coordinate.
    inputs
        Name and unit of each actuator.
    rows
        Pairs of the name of a residual and the names of its rows.
    directions
        Name and unit of each entry of velocities, accelerations and forces, without states; None if these are the
        coordinates. The unit is that of the time integral of the velocity.
    states
        Name and unit of each first-order state, the last entries of velocities, accelerations and forces.
    """

    title: str = eqx.field(static=True)
    coordinates: Named = eqx.field(static=True)
    inputs: Named = eqx.field(static=True)
    rows: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)
    directions: Named | None = eqx.field(static=True, default=None)
    states: Named = eqx.field(static=True, default=())

    @property
    def moving(self) -> Named:
        """Name and unit of each velocity without states: ``directions`` if given, else ``coordinates``."""
        return self.coordinates if self.directions is None else self.directions

    @property
    def along(self) -> Named:
        """Name and unit of each entry of the velocities: ``moving``, and the integrals of the states."""
        return (*self.moving, *_integrals(self.states))


def title_of(model: Any) -> str:
    """The title of a model for figures: its ``title``, or the name of its class."""
    title = getattr(model, "title", None)
    return title if isinstance(title, str) else type(model).__name__


def named_coordinates(model: Any, n: int) -> Named:
    """Names and units of the model's coordinates, or q1, q2, ... without units."""
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    return named or tuple((f"q{i + 1}", "") for i in range(n))


def named_directions(model: Any, n: int) -> Named | None:
    """Names and units of the directions of velocities; None if all velocities are rates of coordinates.

    If a velocity has the name of a coordinate with the prefix d, the direction is that coordinate. Otherwise the
    direction has the name of the velocity, or v1, v2, ... without units.
    """
    kinematic_map = kinematic_map_of(model)
    if kinematic_map is None:
        return None
    states = state_names(model)
    if states and isinstance(kinematic_map, StateMap) and kinematic_map.others is None:
        return (*named_coordinates(model, n - len(states)), *_integrals(states))
    known = [name for name, _ in model.coordinates or ()]
    named = model.velocities or tuple((f"v{i + 1}", "") for i in range(n))
    named = named[: n - len(states)]
    direction = lambda name: name[1:] if name[0] == "d" and name[1:] in known else name
    return tuple((direction(name), unit) for name, unit in _integrals(named)) + _integrals(states)


def state_names(model: Any) -> Named:
    """Names and units of the first-order states among the velocities of a model; empty if these have none."""
    control = _control(model)
    return () if control is None or not isinstance(model.kinematic_map, StateMap) else control.states


def per_second(unit: str) -> str:
    """The unit of the rate of a quantity in ``unit``; empty for none."""
    return f"{unit}/s" if unit else ""


def _integrals(named: Named) -> Named:
    """The names, and the units of the time integrals of these quantities."""
    integral = lambda unit: unit.removesuffix("/s") if unit.endswith("/s") or not unit else f"{unit} s"
    return tuple((name, integral(unit)) for name, unit in named)


def direction_names(model: Any) -> tuple[str, ...]:
    """Names of the model's coordinates, or of other directions of its velocities; empty if there are none."""
    if not isinstance(model, AbstractSystem):
        return ()
    named = model.coordinates if model.kinematic_map is None else None
    if model.kinematic_map is not None and model.velocities is not None:
        named = named_directions(model, len(model.velocities))
    return tuple(name for name, _ in named or ())


def named_inputs(model: Any, p: int) -> Named:
    """Names and units of the model's actuators, or u1, u2, ... without units."""
    control = _control(model)
    named = None if control is None else control.inputs
    return named or tuple((f"u{i + 1}", "") for i in range(p))


def named_rows(
    model: Any, t: Float[Array, ""], q: Float[Array, " nq"], v: Float[Array, " n"], sizes: dict[str, int]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Names of the rows of each residual, whose numbers of rows are ``sizes``.

    They are the names of the constraints, or numbers from 1.
    """
    names: dict[str, list[str]] = {}
    if isinstance(model, AbstractSystem):
        rows = names_of(model.enforced, lambda c: c.rows(t, q, v)[1])
        names |= {
            "residual": rows,
            "position_residual": names_of(model.enforced, lambda c: c.position(t, q)),
            "velocity_residual": names_of(model.enforced, lambda c: c.velocity(t, q, v)),
            "acceleration_residual": rows,
        }
        names["contact_force"] = nonsmooth_names(model.nonsmooth, t, q, v)
    control = _control(model)
    if control is not None:
        task = names_of(task_of(model), lambda c: c.rows(t, q, v)[1])
        names |= {"task_residual": task, "unreachable": task}
    numbers = {name: [str(i + 1) for i in range(k)] for name, k in sizes.items()}
    matching = {name: rows for name, rows in names.items() if len(rows) == sizes.get(name)}
    return tuple((name, tuple(rows)) for name, rows in (numbers | matching).items())


def force_unit(unit: str) -> str:
    """The unit of the generalised force along a coordinate in ``unit``: N for a length, N m for an angle."""
    return {"m": "N", "rad": "N m"}.get(unit, "J" if not unit else f"J/{unit}")


def _control(model: Any) -> AbstractControl | None:
    return model.control if isinstance(model, AbstractSystem) else None
