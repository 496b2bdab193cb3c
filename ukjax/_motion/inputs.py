"""Checks and conversion of the model and the states that public functions take."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._control import Sampling
from .._errors import InputError
from .._flatten import Flat, ask_all, is_flattened_once, remembered_by
from .._jaxpr.closures import contains_tracer, hoist_tracers
from .._jaxpr.tracing import is_eager
from .._kernel.if_repeated import jit_if_repeated
from .._kinematic_map import KinematicMap, rate
from .._outside import external_values_in, is_reading_once
from .._precision import in_precision, is_double_allowed, widest
from .._run.compile import Static, split
from .._system import AbstractSystem, kinematic_map_of


def check_starts(
    q0: Array, v0: Array, kinematic_map: KinematicMap | None = None, names: tuple[str, str, str] = ("q0", "v0", "start")
) -> None:
    """Raise ``InputError`` unless q0 has shape (nq,) or (batch, nq), and v0 a matching shape.

    v0 may have another number of entries if there is a ``kinematic_map``. The errors use ``names`` for q0, v0, and one
    state.
    """
    name, name_of_v, one = names
    if q0.ndim not in (1, 2) or q0.shape[-1] == 0:
        raise InputError(f"{name} must have shape (n,), or (batch, n) for many {one}s, got shape {q0.shape}")
    if q0.size == 0:
        raise InputError(f"{name} must have at least one {one}, got shape {q0.shape}")
    if kinematic_map is not None:
        if v0.ndim not in (1, q0.ndim) or v0.ndim == 2 and len(v0) != len(q0):
            raise InputError(
                f"{name_of_v} must have shape (n,), or (batch, n) with {name} of shape {q0.shape}, got shape {v0.shape}"
            )
    elif v0.shape != q0.shape and v0.shape != q0.shape[-1:]:
        raise InputError(f"{name_of_v} must have the shape of {name}, {q0.shape}, got shape {v0.shape}")


def check_kinematic_map(model: Any, q0: Array, v0: Array) -> None:
    """Raise ``InputError`` unless the ``kinematic_map`` is linear in v. Traced values are not checked."""
    if kinematic_map_of(model) is None or not is_eager(model, q0, v0):
        return
    remembered = remembered_by(model) if is_flattened_once(model) else {}
    if check_kinematic_map in remembered:  # by an earlier motion of the same model
        return
    q, v = (np.asarray(x).reshape(-1, x.shape[-1])[0] for x in (q0, v0))
    deviation, size = map(np.asarray, _nonlinear(model, q, v))
    if not np.all(deviation <= float(np.finfo(q.dtype).eps) ** 0.5 * size):
        raise InputError(
            "kinematic_map must be linear in v, q̇ = N(q) v, and at the start kinematic_map(q, a + 2 b) is not "
            "kinematic_map(q, a) + 2 kinematic_map(q, b). If a coordinate has a rate of its own, add this rate to v"
        )
    remembered[check_kinematic_map] = True


@jit_if_repeated
def _nonlinear(model, q, v):
    """Deviation from linearity, and the size of the terms."""
    map_rate = lambda x: rate(model.kinematic_map, q, x)
    a = jnp.arange(1, 1 + v.size, dtype=q.dtype) / v.size
    b = jnp.cos(jnp.arange(v.size, dtype=q.dtype))
    both, first, second = map_rate(a + 2 * b), map_rate(a), map_rate(b)
    return jnp.abs(both - first - 2 * second), jnp.max(jnp.abs(first) + 2 * jnp.abs(second))


def sampling_of(model: Any) -> Sampling | None:
    """The period and the delay of sampled control, or None."""
    control = model.control if isinstance(model, AbstractSystem) else None
    return None if control is None else control.sampling


def canonicalise(model: Any, q0: Array, v0: Array, t: Array) -> tuple[Any, Array, Array, Array]:
    """Convert the model, q0, v0 and t to arrays of one precision.

    Traced numbers in closures and Python floats of the model become leaves: the former can be differentiated, and other
    values of the latter need no new compilation. All arrays are converted to the widest precision among q0, v0, the
    model's arrays and its Terms; t follows.
    """
    sizes, hoisted = (q0.shape[-1:], v0.shape[-1:]), hoist_tracers(model)
    if hoisted is not model or not is_flattened_once(model) or not is_reading_once() or not is_eager(model):
        model, dtype = _in_one_precision(hoisted, sizes, q0, v0)
        return model, *in_precision((q0, v0, t), dtype)
    # The model remembers the result, and this all that follows from it, such as the constraints of a mechanism.
    remembered, key = remembered_by(model), (canonicalise, *sizes, widest(q0, v0), is_double_allowed())
    outside = external_values_in(model)
    if key not in remembered or remembered[key][0] != outside:
        changed, dtype = _in_one_precision(model, sizes, q0, v0)
        if dtype == np.float32 and is_double_allowed() or any(ask_all(_has_floats, changed)):
            return changed, *in_precision((q0, v0, t), dtype)  # depends on closures, or a warning is to be repeated
        remembered[key] = outside, changed, dtype
    _, model, dtype = remembered[key]
    return model, *in_precision((q0, v0, t), dtype)


def _in_one_precision(model, sizes, q0, v0):
    """The model with all numbers as arrays of one precision, and that precision."""
    model = _with_floats_as_arrays(model, sizes)
    dtype = widest(model, q0, v0)
    if dtype == np.float32 and is_double_allowed():
        dtype = widest(_terms(in_precision(model, dtype), sizes, dtype))  # closures may contain wider arrays
    return in_precision(model, dtype), dtype


def with_numbers_as_leaves(model: Any, *sizes: tuple[int, ...]) -> Any:
    """The model with traced numbers in closures and Python floats as leaves, for q and v of these shapes."""
    return _with_floats_as_arrays(hoist_tracers(model), sizes)


def split_model(model: Any, *sizes: tuple[int, ...]) -> tuple[Static, list[Any]]:
    """``with_numbers_as_leaves``, split into its static part and its arrays."""
    static, arrays = split(model)
    if static.has_floats or any(map(contains_tracer, static.functions)):
        return split(with_numbers_as_leaves(model, *sizes))
    return static, arrays


def _has_floats(flat: Flat) -> bool:
    return any(type(x) is float for x in flat.leaves)


def _terms(model, sizes, dtype):
    """Shapes and types of the model's Terms.

    The model is traced once for all models that differ only in the values of their arrays.
    """
    state = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((), *sizes)]
    arrays, static = eqx.partition(model, eqx.is_array)
    try:
        hash(static)
    except TypeError:
        return eqx.filter_eval_shape(model, *state)
    return _arrays_of_terms.eval_shape(static, arrays, *state)


@partial(jax.jit, static_argnums=0)
def _arrays_of_terms(static, arrays, t, q, v):
    return eqx.filter(eqx.combine(arrays, static)(t, q, v), eqx.is_array)


def _with_floats_as_arrays(model, sizes):
    """Replace every Python ``float`` of ``model`` by an array, unless a function of the model requires floats."""
    if not any(ask_all(_has_floats, model)):
        return model
    # Weakly typed, like a Python number: ``widest`` ignores it.
    changed = jax.tree.map(lambda x: jnp.asarray(x) if type(x) is float else x, model)
    try:
        _terms(changed, sizes, widest(model))
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        _terms(model, sizes, widest(model))  # an error that is not due to the conversion is raised here
        name = next(
            jax.tree_util.keystr(at) for at, x in jax.tree_util.tree_leaves_with_path(model) if type(x) is float
        )
        warnings.warn(
            f"{type(model).__name__}{name} is a Python number that JAX cannot trace, since a function uses its value "
            "(math.cos, if, float): each new value is compiled again, and there is no derivative. Use jax.numpy there, "
            "or declare the field with equinox.field(static=True)",
            stacklevel=4,
        )
        return model
    return changed


@contextmanager
def hint_if_batched_model(model: Any, q0: Array) -> Iterator[None]:
    """Context that extends an error for a batch of starts, if the model seems to be a batch of as many models."""
    try:
        yield
    except (TypeError, ValueError) as error:
        batched_array = _array_of_batch_size(model, len(q0)) if q0.ndim == 2 else None
        if batched_array is None:
            raise
        name, shape = batched_array
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise InputError(
            f"{reason}. The model's {name} has shape {shape}, and there are {len(q0)} starts: if that is a value for "
            "each, map over both and look at energies and forces in there, too, equinox.filter_vmap("
            "lambda model, q0, v0: ukjax.simulate(model, q0, v0, ts).with_observation())(model, q0, v0)"
        ) from error


def _array_of_batch_size(model, batch):
    """Name and shape of the first array of the model whose first axis has length ``batch``; None if there is none."""
    for place, leaf in jax.tree_util.tree_leaves_with_path(model):
        if eqx.is_array(leaf) and leaf.ndim and leaf.shape[0] == batch:
            return jax.tree_util.keystr(place).lstrip("."), leaf.shape
    return None
