"""What comes in by the front doors: a model whose numbers are leaves, in the precision of the start."""

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

from .._check import is_eager
from .._closures import hoist_tracers
from .._kinematic_map import KinematicMap, rate
from .._precision import in_precision, is_double_allowed, widest
from .._run.compile import jit_unoptimised
from .._system import kinematic_map_of


def check_starts(
    q0: Array, v0: Array, kinematic_map: KinematicMap | None = None, names: tuple[str, str, str] = ("q0", "v0", "start")
) -> None:
    """q0 is (n,), or (batch, n), and v0 goes with it, which may have another number of entries if there is a
    ``kinematic_map``; or ``ValueError``, in which they, and what they are, have these ``names``."""
    name, name_of_v, one = names
    if q0.ndim not in (1, 2) or q0.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (n,), or (batch, n) for many {one}s, got shape {q0.shape}")
    if q0.size == 0:
        raise ValueError(f"{name} must have at least one {one}, got shape {q0.shape}")
    if kinematic_map is not None:
        if v0.ndim not in (1, q0.ndim) or v0.ndim == 2 and len(v0) != len(q0):
            raise ValueError(
                f"{name_of_v} must have shape (n,), or (batch, n) with {name} of shape {q0.shape}, got shape {v0.shape}"
            )
    elif v0.shape != q0.shape and v0.shape != q0.shape[-1:]:
        raise ValueError(f"{name_of_v} must have the shape of {name}, {q0.shape}, got shape {v0.shape}")


def check_kinematic_map(model: Any, q0: Array, v0: Array) -> None:
    """A ``kinematic_map`` is linear in v, or ``ValueError``; where values are known."""
    if kinematic_map_of(model) is None or not is_eager(model, q0, v0):
        return
    q, v = (x.reshape(-1, x.shape[-1])[0] for x in (q0, v0))
    missed, size = map(np.asarray, _nonlinear(model, q, v))
    if not np.all(missed <= float(np.finfo(q.dtype).eps) ** 0.5 * size):
        raise ValueError(
            "kinematic_map must be linear in v, q̇ = N(q) v, and at the start kinematic_map(q, a + 2 b) is not "
            "kinematic_map(q, a) + 2 kinematic_map(q, b). A coordinate that moves by itself belongs into v"
        )


@jit_unoptimised
def _nonlinear(model, q, v):
    """By how much linearity is missed, and how large things are."""
    of = lambda x: rate(model.kinematic_map, q, x)
    a = jnp.arange(1, 1 + v.size, dtype=q.dtype) / v.size
    b = jnp.cos(jnp.arange(v.size, dtype=q.dtype))
    both, first, second = of(a + 2 * b), of(a), of(b)
    return jnp.abs(both - first - 2 * second), jnp.max(jnp.abs(first) + 2 * jnp.abs(second))


def canonicalise(model: Any, q0: Array, v0: Array, t: Array) -> tuple[Any, Array, Array, Array]:
    """The model, q0, v0 and t as all that follows wants them.

    Traced numbers that functions hold, and Python's floats, become leaves, so that derivatives reach the first, and
    another value of the second compiles nothing anew. All are brought to the widest precision there is among q0, v0,
    the model's arrays and what it makes of them; times follow.
    """
    sizes = q0.shape[-1:], v0.shape[-1:]
    model = _with_floats_as_arrays(hoist_tracers(model), sizes)
    dtype = widest(model, q0, v0)
    if dtype == np.float32 and is_double_allowed():
        dtype = widest(_terms(in_precision(model, dtype), sizes, dtype))  # functions may hold others
    return in_precision((model, q0, v0, t), dtype)


def _terms(model, sizes, dtype):
    """What kind of Terms the model makes; traced once for all models that differ in their arrays' values alone."""
    state = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((), *sizes)]
    arrays, fixed = eqx.partition(model, eqx.is_array)
    try:
        hash(fixed)
    except TypeError:
        return eqx.filter_eval_shape(model, *state)
    return _arrays_of_terms.eval_shape(fixed, arrays, *state)


@partial(jax.jit, static_argnums=0)
def _arrays_of_terms(fixed, arrays, t, q, v):
    return eqx.filter(eqx.combine(arrays, fixed)(t, q, v), eqx.is_array)


def _with_floats_as_arrays(model, sizes):
    """``model`` with an array for every ``float`` of Python's, unless its functions can do with nothing else."""
    if not any(type(x) is float for x in jax.tree.leaves(model)):
        return model
    # Weak, as a number of Python's is: it takes the precision of what it meets.
    changed = jax.tree.map(lambda x: jnp.asarray(x) if type(x) is float else x, model)
    try:
        _terms(changed, sizes, widest(model))
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        _terms(model, sizes, widest(model))  # what is wrong in any case is said as it is
        name = next(
            jax.tree_util.keystr(at) for at, x in jax.tree_util.tree_leaves_with_path(model) if type(x) is float
        )
        warnings.warn(
            f"{type(model).__name__}{name} is a Python number that cannot vary, since a function asks for its value "
            "(math.cos, if, float): each value compiles everything anew, and there is no derivative. Use jax.numpy "
            "there, or declare the field with equinox.field(static=True)",
            stacklevel=4,
        )
        return model
    return changed


@contextmanager
def hint_if_batched_model(model: Any, q0: Array) -> Iterator[None]:
    """Where something goes wrong with a batch of starts and the model may be one of as many, that is said, too."""
    try:
        yield
    except (TypeError, ValueError) as error:
        several = _several(model, len(q0)) if q0.ndim == 2 else None
        if several is None:
            raise
        name, shape = several
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ValueError(
            f"{reason}. The model's {name} has shape {shape}, and there are {len(q0)} starts: if that is a value for "
            "each, map over both and look at energies and forces in there, too, equinox.filter_vmap("
            "lambda model, q0, v0: ukjax.simulate(model, q0, v0, ts).with_observation())(model, q0, v0)"
        ) from error


def _several(model, batch):
    """Name and shape of the first array of the model that has as many entries along its first axis as there are
    starts."""
    for place, leaf in jax.tree_util.tree_leaves_with_path(model):
        if eqx.is_array(leaf) and leaf.ndim and leaf.shape[0] == batch:
            return jax.tree_util.keystr(place).lstrip("."), leaf.shape
    return None
