"""What the numbers of a motion are called: its coordinates, its actuators, the rows of its constraints."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ._constraint import names_of
from ._control import AbstractControl
from ._system import AbstractSystem, kinematic_map_of, task_of

Named = tuple[tuple[str, str], ...]
"""Names and units."""


class Labels(eqx.Module):
    """``title`` is what the model is; ``coordinates`` and ``inputs`` have a name and a unit each, ``rows`` a name for
    each entry of the residuals, by the residual's own name. ``directions`` are what velocities, accelerations and
    forces are along, with the unit of what velocities are the rate of; None where these are the coordinates."""

    title: str = eqx.field(static=True)
    coordinates: Named = eqx.field(static=True)
    inputs: Named = eqx.field(static=True)
    rows: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)
    directions: Named | None = eqx.field(static=True, default=None)

    @property
    def along(self) -> Named:
        """What velocities are the rates of, name and unit."""
        return self.coordinates if self.directions is None else self.directions


def title_of(model: Any) -> str:
    """What figures call it: by its ``title``, if it has one, or by the name of its class."""
    title = getattr(model, "title", None)
    return title if isinstance(title, str) else type(model).__name__


def named_coordinates(model: Any, n: int) -> Named:
    """The model's, or q1, q2, ... without units."""
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    return named or tuple((f"q{i + 1}", "") for i in range(n))


def named_directions(model: Any, n: int) -> Named | None:
    """What velocities are along, where not all are rates of coordinates: a coordinate, of whose rate the name is its
    own with a d before it, or else the velocity itself, v1, v2, ... without units where the model has no names."""
    if kinematic_map_of(model) is None:
        return None
    known = [name for name, _ in model.coordinates or ()]
    named = model.velocities or tuple((f"v{i + 1}", "") for i in range(n))
    own = lambda name: name[1:] if name[0] == "d" and name[1:] in known else name
    return tuple((own(name), unit.removesuffix("/s")) for name, unit in named)


def direction_names(model: Any) -> tuple[str, ...]:
    """What the model calls its coordinates, or what else its velocities are along; nothing where it has no names."""
    if not isinstance(model, AbstractSystem):
        return ()
    named = model.coordinates if model.kinematic_map is None else None
    if model.kinematic_map is not None and model.velocities is not None:
        named = named_directions(model, len(model.velocities))
    return tuple(name for name, _ in named or ())


def named_inputs(model: Any, p: int) -> Named:
    """The model's, or u1, u2, ... without units."""
    control = _control(model)
    named = None if control is None else control.inputs
    return named or tuple((f"u{i + 1}", "") for i in range(p))


def named_rows(
    model: Any, t: Float[Array, ""], q: Float[Array, " nq"], v: Float[Array, " n"], sizes: dict[str, int]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Names of the rows of each residual, of so many: the model's, or numbers from 1 where it has none."""
    found: dict[str, list[str]] = {}
    if isinstance(model, AbstractSystem):
        rows = names_of(model.held, lambda c: c.rows(t, q, v)[1])
        found |= {
            "residual": rows,
            "position_residual": names_of(model.held, lambda c: c.position(t, q)),
            "velocity_residual": names_of(model.held, lambda c: c.velocity(t, q, v)),
            "acceleration_residual": rows,
        }
    control = _control(model)
    if control is not None:
        task = names_of(task_of(model), lambda c: c.rows(t, q, v)[1])
        found |= {"task_residual": task, "unreachable": task}
    numbers = {name: [str(i + 1) for i in range(k)] for name, k in sizes.items()}
    fitting = {name: rows for name, rows in found.items() if len(rows) == sizes.get(name)}
    return tuple((name, tuple(rows)) for name, rows in (numbers | fitting).items())


def force_unit(unit: str) -> str:
    """The unit of the generalised force that goes with a coordinate in ``unit``: N for a length, N m for an angle."""
    return {"m": "N", "rad": "N m"}.get(unit, "J" if not unit else f"J/{unit}")


def _control(model: Any) -> AbstractControl | None:
    return model.control if isinstance(model, AbstractSystem) else None
