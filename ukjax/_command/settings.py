"""Parse parameters and initial values given by name: ``--set name=value``, ``--free m1,ma[2]``."""

import re
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np

from .._labels import named_directions
from .._mechanism import Mechanism
from .._names import did_you_mean_one_of
from .._parameters import find, put, with_array
from ..systems.base import AbstractMechanism
from .mechanism import named_coordinates, named_velocities
from .usage import UsageError, check_memory


def with_settings(mechanism: AbstractMechanism, assignments: list[str]):
    """Return the mechanism with the given parameters, and its start (q0, v0) with the given initial values.

    Parameters are named as in ``fit`` (``m1``, ``ma[2]``, ``arm.length``), initial positions by their coordinate
    (``q1``), and initial rates with a d before it (``dq1``). Raises ``UsageError``.
    """
    values = [_parse(assignment) for assignment in assignments]
    parameters = [field.name for field in fields(mechanism) if field.init]
    for name, value in values:  # parameters first: the number of coordinates may be one of them
        if _field(name) in parameters:
            mechanism = _with_parameter(mechanism, name, value)
    _check_size(mechanism)
    names = [[name for name, _ in named] for named in (named_coordinates(mechanism), named_velocities(mechanism))]
    indices = {name: (level, i) for level in (0, 1) for i, name in enumerate(names[level])}
    initial = {}
    for name, value in values:
        if _field(name) in parameters:
            continue
        if name not in indices:
            raise UsageError(f"--set knows no {name!r}{did_you_mean_one_of(name, [*parameters, *indices])}")
        initial[indices[name]] = _one_number(name, value)
    if isinstance(mechanism, Mechanism):  # assembles the closed loops around the given values
        level_names = (
            names[0],
            [name for name, _ in named_directions(mechanism, len(names[1])) or mechanism.coordinates],
        )
        return mechanism, mechanism.start(
            *({level_names[level][i]: value for (at, i), value in initial.items() if at == level} for level in (0, 1))
        )
    start = [jnp.asarray(x) for x in mechanism.start()]
    for (level, i), value in initial.items():
        start[level] = start[level].at[i].set(value)
    return mechanism, tuple(start)


def _check_size(mechanism):
    """Raise ``UsageError`` if the mass matrix alone would not fit into memory. Evaluates shapes only."""
    try:
        n = mechanism.tree.n if isinstance(mechanism, Mechanism) else jax.eval_shape(mechanism.start)[0].size
    except (OverflowError, MemoryError):
        raise UsageError("--set asks for more coordinates than can be counted: choose fewer") from None
    except jax.errors.JAXTypeError:  # start() needs concrete values, so its shape cannot be evaluated
        return
    check_memory(f"{n:.2g} coordinates, as --set asks for, have a mass matrix of", n * n, "choose fewer")


def names_of(free: str) -> list[str]:
    """Split a list of names at its commas, except commas inside brackets."""
    return [name.strip() for name in re.split(r",(?![^\[]*\])", free) if name.strip()]


def _field(name: str) -> str:
    """Return the field at the beginning of a parameter name: ``ma`` of ``ma[2]``."""
    return re.split(r"[.\[]", name)[0].strip()


def _with_parameter(mechanism, name, value):
    old_value = getattr(mechanism, _field(name))
    if isinstance(old_value, bool | int) and name == _field(name):  # a flag or a count, which is a static field
        return _with_static_field(mechanism, name, old_value, _one_number(name, value))
    try:
        location, array = find(mechanism, name, "--set")
    except ValueError as error:
        raise UsageError(str(error)) from None
    if location.index is not None or array.shape == ():
        return put(mechanism, [location._replace(index=location.index or ())], [_one_number(name, value)])
    if array.size != np.size(value):
        raise UsageError(f"--set {name} needs {array.size} numbers separated by commas, got {np.size(value)}")
    return with_array(mechanism, name, jnp.asarray(value, array.dtype).reshape(array.shape))


def _with_static_field(mechanism, name, old_value, number):
    if number != int(number) or isinstance(old_value, bool) and number not in (0, 1):
        expected = "0 or 1" if isinstance(old_value, bool) else "a whole number"
        raise UsageError(f"--set {name} needs {expected}, got {number:g}")
    try:
        return replace(mechanism, **{name: type(old_value)(number)})
    except ValueError as error:
        raise UsageError(f"--set {name}: {error}") from None


def _one_number(name, value):
    if np.shape(value) != ():
        raise UsageError(f"--set {name} needs one number, got {len(value)}")
    return value


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
