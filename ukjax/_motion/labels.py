"""What the numbers of a motion are called: its coordinates, its actuators, the rows of its constraints."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._constraint import names_of
from .._control import AbstractControl
from .._system import AbstractSystem

Named = tuple[tuple[str, str], ...]
"""Names and units."""


class Labels(eqx.Module):
    """``title`` is what the model is; ``coordinates`` and ``inputs`` have a name and a unit each, ``rows`` a name for
    each entry of the residuals, by the residual's own name."""

    title: str = eqx.field(static=True)
    coordinates: Named = eqx.field(static=True)
    inputs: Named = eqx.field(static=True)
    rows: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)


def title_of(model: Any) -> str:
    """What figures call it: by its ``title``, if it has one, or by the name of its class."""
    title = getattr(model, "title", None)
    return title if isinstance(title, str) else type(model).__name__


def named_coordinates(model: Any, n: int) -> Named:
    """The model's, or q1, q2, ... without units."""
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    return named or tuple((f"q{i + 1}", "") for i in range(n))


def coordinate_names(model: Any) -> tuple[str, ...]:
    """What the model calls its coordinates, nothing where it has no names for them."""
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    return tuple(name for name, _ in named or ())


def named_inputs(model: Any, p: int) -> Named:
    """The model's, or u1, u2, ... without units."""
    control = _control(model)
    named = None if control is None else control.inputs
    return named or tuple((f"u{i + 1}", "") for i in range(p))


def named_rows(
    model: Any, t: Float[Array, ""], q: Float[Array, " n"], v: Float[Array, " n"], sizes: dict[str, int]
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
        task = names_of(control.task, lambda c: c.rows(t, q, v)[1])
        found |= {"task_residual": task, "unreachable": task}
    numbers = {name: [str(i + 1) for i in range(k)] for name, k in sizes.items()}
    fitting = {name: rows for name, rows in found.items() if len(rows) == sizes.get(name)}
    return tuple((name, tuple(rows)) for name, rows in (numbers | fitting).items())


def force_unit(unit: str) -> str:
    """The unit of the generalised force that goes with a coordinate in ``unit``: N for a length, N m for an angle."""
    return {"m": "N", "rad": "N m"}.get(unit, "J" if not unit else f"J/{unit}")


def _control(model: Any) -> AbstractControl | None:
    return model.control if isinstance(model, AbstractSystem) else None
