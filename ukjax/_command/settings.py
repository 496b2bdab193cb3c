"""``--set name=value``: parameters and initial values by name."""

import difflib
from dataclasses import fields

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..systems.base import AbstractMechanism
from .usage import UsageError


def with_settings(mechanism: AbstractMechanism, assignments: list[str]):
    """The mechanism with the parameters set, and its start (q0, v0) with the initial values set.

    A parameter goes by its field's name, an initial position by its coordinate's (``q1``), a rate with a d before it
    (``dq1``).
    """
    coordinates = mechanism.coordinates
    assert coordinates is not None, "every mechanism of the gallery names its coordinates"
    parameters = [field.name for field in fields(mechanism)]
    places = {name: (0, i) for i, (name, _) in enumerate(coordinates)}
    places |= {f"d{name}": (1, i) for i, (name, _) in enumerate(coordinates)}
    initial = {}
    for assignment in assignments:
        name, value = _parse(assignment)
        if name in parameters:
            old = getattr(mechanism, name)
            if old.shape not in ((), np.shape(value)):
                raise UsageError(f"--set {name} needs {old.size} numbers separated by commas, got {assignment!r}")
            if old.shape == () and np.shape(value) != ():
                raise UsageError(f"--set {name} needs one number, got {assignment!r}")
            mechanism = eqx.tree_at(lambda m, name=name: getattr(m, name), mechanism, jnp.asarray(value, old.dtype))
        elif name in places:
            if np.shape(value) != ():
                raise UsageError(f"--set {name} needs one number, got {assignment!r}")
            initial[places[name]] = value
        else:
            known = [*parameters, *places]
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"--set knows no {name!r}{hint} There are: {', '.join(known)}")
    start = [jnp.asarray(x) for x in mechanism.start()]
    for (level, i), value in initial.items():
        start[level] = start[level].at[i].set(value)
    return mechanism, tuple(start)


def _parse(assignment: str):
    name, equals, text = assignment.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--set needs NAME=VALUE, got {assignment!r}")
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--set {name} needs a number, got {text!r}") from None
    if not np.all(np.isfinite(numbers)):
        raise UsageError(f"--set {name} needs a finite number, got {text!r}")
    return name.strip(), numbers[0] if len(numbers) == 1 else numbers
