"""Checks whether the actuators can perform the task, and messages if they cannot."""

import warnings
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._check_terms import check_terms
from ..._constraint import names_of, rows
from ..._control import UNREACHED, shortfall
from ..._equation import mobility
from ..._errors import InputError, SimulationError
from ..._jaxpr.tracing import without_derivatives
from ..._kernel.if_repeated import jit_if_repeated
from ..._labels import named_coordinates, named_directions
from ..._run.compile import MAX_PROGRAMS, LRUCache, jit_unoptimised, split
from ..._system import AbstractSystem, task_of
from ..problem import InitialState, Problem, Solution
from ..result import OUT_OF_REACH, ended_well
from ..stepper.scaling import Scale
from ..trajectory.trajectory import Trajectory
from .motion import check_consistent

RANK_RTOL = 1e-8
"""Relative tolerance of singular values, for directions normalised by their own sizes."""


def check_task(model: AbstractSystem | Callable, problem: Problem, start: InitialState) -> None:
    """Raise ``InputError`` if the actuators cannot perform the task at a start, (n,) or (batch, n).

    This is checked before the motion is compiled.
    """
    control = model.control if isinstance(model, AbstractSystem) else None
    if not isinstance(model, AbstractSystem) or control is None:
        return
    t, q, v, scale = _as_batch(problem.begin, start)
    _check_actuators(control, _actuators(model, t[0], q[0], v[0]))
    failure, matrices = _first_unreachable(model, t, q, v, scale)
    if failure is None:
        _warn_of_freedom(model, matrices, scale)
        return
    # Check the model and the constraints first: they may be the cause.
    check_terms(model.passive(*jax.device_put((t[0], q[0], v[0]))), f" at t = {float(t[0]):g} s")
    if problem.projection:
        check_consistent(model, problem.begin, start.q, start.v, start.scale)
    member, complaint = failure
    of_member = f" of trajectory {member}" if len(q) > 1 else ""
    raise InputError(f"the task{of_member} cannot be performed from the start, t = {float(t[0]):g} s: {complaint}")


def check_reached(trajectory: Trajectory, start: InitialState) -> None:
    """Raise ``SimulationError``, naming the first sample, if the actuators could not perform the task at some
    sample.
    """
    system = trajectory.equations
    if not isinstance(system, AbstractSystem) or system.control is None:
        return
    unreachable = np.asarray(trajectory.unreachable)
    indices = np.argwhere(np.any(unreachable != 0, axis=-1).reshape(-1, unreachable.shape[-2]))
    if not indices.size:
        return
    members, samples = indices.T
    select = lambda x, k: jnp.asarray(x).reshape(-1, *x.shape[-k:])[members, samples]
    _, _, _, scale = _as_batch(jnp.zeros(()), start)
    failure, _ = _first_unreachable(
        system,
        select(trajectory.t, 1),
        select(trajectory.q, 2),
        select(trajectory.v, 2),
        jax.tree.map(lambda x: x[members], scale),
    )
    if failure is not None:
        i, complaint = failure
        of_member = f" of trajectory {members[i]}" if trajectory.q.ndim == 3 else ""
        t = float(select(trajectory.t, 1)[i])
        raise SimulationError(
            f"the task{of_member} can no longer be performed at t = {t:g} s: {complaint}. throw=False returns what was "
            "computed"
        )


def out_of_reach(
    system: AbstractSystem | Callable, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], scale: Scale
) -> Bool[Array, ""]:
    """Whether the actuators cannot perform the task at a state. It is evaluated also where values are traced."""
    if not has_task(system):
        return jnp.asarray(False)
    system, t, q, v, scale = without_derivatives((system, t, q, v, scale))
    passive = system.passive(t, q, v)
    command = system.command(t, q, v, passive)
    terms = _sizes_of_forces(system, command, passive, t, q, v, scale.unit) + _size_of_b(system, t, q, v, scale)
    return jnp.any(jnp.abs(command.unreachable) > UNREACHED * terms)


def with_result_of_task(trajectory: Trajectory, start: InitialState) -> Trajectory:
    """The trajectory with the result ``OUT_OF_REACH`` where the actuators cannot perform the task at a sample."""
    system = trajectory.equations
    if not has_task(system):
        return trajectory
    is_out = _out_at_samples(system, trajectory.t, trajectory.q, trajectory.v, start.scale)
    result = jnp.where(ended_well(trajectory.result) & is_out, OUT_OF_REACH, trajectory.result)
    return replace(trajectory, result=result.astype(np.int32))


@jit_unoptimised
def _out_at_samples(system, t, q, v, scale):
    """Whether the task is out of reach at a sample of each motion."""
    of_motion = lambda *motion: _out_in_motion(system, *motion)
    return (jax.vmap(of_motion) if t.ndim == 2 else of_motion)(t, q, v, scale)


def _out_in_motion(system, t, q, v, scale):
    """Whether the task is out of reach at a sample of a motion; False at samples that were not reached."""
    return jnp.any(jax.vmap(lambda t, q, v: out_of_reach(system, t, q, v, scale))(t, q, v))


def results_with_task(problem: Problem, start: InitialState, samples: Solution) -> Int[Array, " batch"]:
    """The results of a batch, as of ``with_result_of_task``. Its members may have their own numbers of the model."""

    def of_member(start, t, q, v, result):
        is_out = _out_in_motion(problem.model_of(start.numbers), t, q, v, start.scale)
        return jnp.where(ended_well(result) & is_out, OUT_OF_REACH, result)

    if not has_task(problem.model):
        return samples.result
    return jax.vmap(of_member)(start, samples.t, samples.q, samples.v, samples.result)


def has_task(system: AbstractSystem | Callable) -> bool:
    """Whether the control of a system has a task."""
    return isinstance(system, AbstractSystem) and bool(task_of(system))


def check_limits(trajectory: Trajectory) -> None:
    """Warn once for each actuator that exceeds its limit, with the first time."""
    system = trajectory.model
    control = system.control if isinstance(system, AbstractSystem) else None
    if control is None or control.limits is None:
        return
    t, u = np.atleast_2d(np.asarray(trajectory.t)), np.asarray(trajectory.control)
    u = u if u.ndim == 3 else u[None]
    limits = np.broadcast_to(np.asarray(control.limits), u.shape[-1:])
    for i, (name, unit) in enumerate(trajectory.inputs):
        exceeding = np.argwhere(np.abs(u[..., i]) > limits[i])
        if exceeding.size:
            member, sample = exceeding[0]
            of_member = f" of trajectory {member}" if u.shape[0] > 1 else ""
            warnings.warn(
                f"actuator {name!r}{of_member} exceeds its limit of {limits[i]:g} {unit}, first at "
                f"t = {t[member, sample]:g} s; its largest value is {np.nanmax(np.abs(u[..., i])):.4g} {unit}. The "
                "simulation does not limit it: use a slower task, or distribute the load by weight=...",
                stacklevel=3,
            )


def check_limits_of_coordinates(trajectory: Trajectory) -> None:
    """Warn once for each coordinate that exceeds the limits recorded by its joint, with the first time."""
    system = trajectory.model
    if not isinstance(system, AbstractSystem):
        return
    limited = type(system).limited(system, trajectory.t, trajectory.q)  # a bound method would flatten the system
    for name, unit, low, high, values in limited:
        t, x = np.atleast_2d(np.asarray(trajectory.t)), np.atleast_2d(values)
        rounding = 1e-9 * max(abs(low), abs(high))
        exceeding = np.argwhere((x < low - rounding) | (x > high + rounding))
        if exceeding.size:
            member, sample = exceeding[0]
            of_member = f" of trajectory {member}" if len(x) > 1 else ""
            warnings.warn(
                f"joint {name!r}{of_member} passes its limits, {low:.4g} to {high:.4g} {unit}, first at "
                f"t = {t[member, sample]:g} s, where it is at {x[member, sample]:.4g} {unit}: nothing stops it there. "
                "Give the joint a restitution, or use mechanism.with_stops(), for stops; or give it no limits",
                stacklevel=3,
            )


def _as_batch(t, start):
    """t, q, v and scale as a batch, of one member for a single motion."""
    single = start.q.ndim == 1
    q, v, scale = jax.tree.map(lambda x: np.asarray(x)[None] if single else x, (start.q, start.v, start.scale))
    return np.full(len(q), t), q, v, scale


_counts = LRUCache(MAX_PROGRAMS)


def _actuators(model, t, q, v):
    """The number of actuators, determined by tracing once for all models of one structure."""
    structure, arrays = split(model)
    key = structure, *((x.shape, x.dtype) for x in (*arrays, q, v))
    count = lambda: eqx.filter_eval_shape(model.command, t, q, v).u.size
    return _counts.of(key, count) if structure.is_hashable() else count()


def _check_actuators(control, p):
    """Raise ``InputError`` unless limits and names match the ``p`` actuators."""
    limits = control.limits
    if limits is not None and limits.shape not in ((), (p,)):
        raise InputError(f"limits must be a number or have shape ({p},), one per actuator, got shape {limits.shape}")
    if control.inputs is not None and len(control.inputs) != p:
        raise InputError(f"inputs must name each of {p} actuators, got {len(control.inputs)} names: {control.inputs}")


def _first_unreachable(system, t, q, v, scale):
    """The first state whose task the actuators cannot perform, as (index, message), or None.

    Also returns W B and A at all states, if the control serves the task alone.
    """
    command, terms, matrices = jax.tree.map(np.asarray, _commands(system, t, q, v, scale.unit))
    is_reached = lambda terms: np.all(np.abs(command.unreachable) <= UNREACHED * terms, axis=-1)
    if not np.all(is_reached(terms)):  # terms of b may cancel; their sizes are slow to compute
        terms = terms + np.asarray(_sizes_of_b(system, t, q, v, scale))
    failing = np.flatnonzero(~is_reached(terms))
    if not failing.size:
        return None, matrices
    i = int(failing[0])
    at = jax.device_put((t[i], q[i], v[i]))  # functions of the user take JAX arrays
    labels = names_of(task_of(system), lambda c: c.rows(*at)[1])
    return (i, shortfall(jax.tree.map(lambda x: x[i], command), labels, terms[i])), matrices


def _warn_of_freedom(system, matrices, scale):
    """Warn if the task leaves directions free at the first start that the actuators could drive."""
    if matrices is None:
        return
    unit = np.asarray(scale.unit)[0]
    drive, A = (x[0] for x in matrices)
    directions, sizes, _ = np.linalg.svd(
        drive / unit[:, None] / _norms(drive / unit[:, None], axis=0), full_matrices=False
    )
    directions = directions[:, sizes > RANK_RTOL * np.max(sizes, initial=0)]
    task_rows = A * unit @ directions
    _, sizes, null_space = np.linalg.svd(task_rows / _norms(A * unit, axis=1))
    rank = int(np.sum(sizes > RANK_RTOL))
    if rank == directions.shape[1]:
        return
    share = np.linalg.norm(directions @ null_space[rank:].T, axis=1)
    names = [name for name, _ in named_directions(system, len(unit)) or named_coordinates(system, len(unit))]
    warnings.warn(
        f"the task leaves {directions.shape[1] - rank} of the {directions.shape[1]} directions of motion free that "
        f"the actuators could drive, most of all along {names[int(np.argmax(share))]!r}: forces of least norm do not "
        "act along them. Give the task more rows, or set Servo(secondary=...) for these directions; secondary=0 "
        "if they are meant to be free",
        stacklevel=4,
    )


def _norms(x, axis):
    """Norms of columns or rows, 1 where they are 0."""
    length = np.linalg.norm(x, axis=axis, keepdims=True)
    return np.where(length > 0, length, 1)


@jit_if_repeated
def _commands(system, t, q, v, unit):
    """Actuator commands, and sizes of the terms of the wanted accelerations b̄ = b − A a, without those of b.

    The acceleration a comes from forces that may balance each other.
    """

    def of_state(t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], unit: Float[Array, " n"]):
        passive = system.passive(t, q, v)
        command = system.command(t, q, v, passive)
        if not command.wanted.size:
            return command, command.wanted, None
        terms = _sizes_of_forces(system, command, passive, t, q, v, unit)
        matrices = None
        if system.control.serves_task_alone:
            A = rows(task_of(system), t, q, v)[0]
            matrices = mobility(passive).matrix @ system.control.matrix(t, q, v), A
        return command, terms, matrices

    return _per_state(of_state, t, q, v, unit)


def _sizes_of_forces(system, command, passive, t, q, v, unit):
    """Sizes of the terms of the wanted accelerations b̄ = b − A a, without those of b."""
    A = rows(task_of(system), t, q, v)[0]
    return jnp.abs(command.wanted) + jnp.abs(A) @ (unit**2 * jnp.abs(passive.Q))


@jit_if_repeated
def _sizes_of_b(system, t, q, v, scale):
    """Sizes of the terms of b of the task, at many states."""
    return _per_state(lambda t, q, v, scale: _size_of_b(system, t, q, v, scale), t, q, v, scale)


def _size_of_b(system, t, q, v, scale):
    return scale.of(lambda t, q, v: rows(task_of(system), t, q, v)[1], t, q, v)


def _per_state(function, *arrays):
    """``function`` of each state. A single state is not mapped: ``jax.vmap`` would double the time of tracing."""
    if len(arrays[0]) > 1:
        return jax.vmap(function)(*arrays)
    return jax.tree.map(lambda x: x[None], function(*jax.tree.map(lambda x: x[0], arrays)))
