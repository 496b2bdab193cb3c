"""Whether the actuators can do what their task asks, and in what words they cannot."""

import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check_terms import check_terms
from ..._constraint import names_of, rows
from ..._control import UNREACHED, shortfall
from ..._equation import mobility
from ..._labels import named_coordinates, named_directions
from ..._run.compile import jit_unoptimised
from ..._system import AbstractSystem, task_of
from ..problem import InitialState, Problem
from ..stepper.scaling import Scale
from ..trajectory.trajectory import Trajectory
from .motion import SimulationError, check_consistent

FREE = 1e-8
"""Singular values beside the largest, of directions in units of their own: smaller ones are taken for 0."""


def check_task(model: AbstractSystem | Callable, problem: Problem, start: InitialState) -> None:
    """The actuators can do what the task asks at each start, (n,) or (batch, n), or ``ValueError``: looked at before
    anything is compiled for the motion."""
    if not isinstance(model, AbstractSystem) or model.control is None:
        return
    t, q, v, scale = _of_each(problem.begin, start)
    _check_actuators(model.control, eqx.filter_eval_shape(model.command, t[0], q[0], v[0]).u.size)
    found, driven = _first_out_of_reach(model, t, q, v, scale)
    if found is None:
        _warn_of_freedom(model, driven, scale)
        return
    # What cannot be may be so for reasons that come before the task.
    check_terms(model.passive(t[0], q[0], v[0]), f" at t = {float(t[0]):g} s")
    if problem.projection:
        check_consistent(model, problem.begin, start.q, start.v, start.scale)
    member, complaint = found
    who = f" of trajectory {member}" if len(q) > 1 else ""
    raise ValueError(f"the task{who} cannot be performed from the start, t = {float(t[0]):g} s: {complaint}")


def check_reached(trajectory: Trajectory, start: InitialState) -> None:
    """The actuators could do what the task asked at every sample, or ``SimulationError`` with the first that not."""
    system = trajectory.model
    if not isinstance(system, AbstractSystem) or system.control is None:
        return
    missed = np.asarray(trajectory.unreachable)
    suspect = np.argwhere(np.any(missed != 0, axis=-1).reshape(-1, missed.shape[-2]))
    if not suspect.size:
        return
    members, samples = suspect.T
    at = lambda x, k: jnp.asarray(x).reshape(-1, *x.shape[-k:])[members, samples]
    _, _, _, scale = _of_each(jnp.zeros(()), start)
    found, _ = _first_out_of_reach(
        system,
        at(trajectory.t, 1),
        at(trajectory.q, 2),
        at(trajectory.v, 2),
        jax.tree.map(lambda x: x[members], scale),
    )
    if found is not None:
        i, complaint = found
        who = f" of trajectory {members[i]}" if trajectory.q.ndim == 3 else ""
        t = float(at(trajectory.t, 1)[i])
        raise SimulationError(
            f"the task{who} can no longer be performed at t = {t:g} s: {complaint}. throw=False returns what was "
            "computed"
        )


def check_limits(trajectory: Trajectory) -> None:
    """One warning for each actuator that is asked for more than it can give, with the first time."""
    system = trajectory.model
    if not isinstance(system, AbstractSystem) or system.control is None or system.control.limits is None:
        return
    t, u = np.atleast_2d(np.asarray(trajectory.t)), np.asarray(trajectory.control)
    u = u if u.ndim == 3 else u[None]
    limits = np.broadcast_to(np.asarray(system.control.limits), u.shape[-1:])
    for i, (name, unit) in enumerate(trajectory.inputs):
        beyond = np.argwhere(np.abs(u[..., i]) > limits[i])
        if beyond.size:
            member, sample = beyond[0]
            who = f" of trajectory {member}" if u.shape[0] > 1 else ""
            warnings.warn(
                f"actuator {name!r}{who} is asked for more than its limit of {limits[i]:g} {unit}, first at "
                f"t = {t[member, sample]:g} s; the most is {np.nanmax(np.abs(u[..., i])):.4g} {unit}. The motion shown "
                "needs that force: ask for a slower task, or share the load by a weight",
                stacklevel=3,
            )


def check_limits_of_coordinates(trajectory: Trajectory) -> None:
    """One warning for each coordinate that passes the limits that its joint records, with the first time."""
    system = trajectory.model
    if not isinstance(system, AbstractSystem):
        return
    for name, unit, low, high, values in system.limited(trajectory.t, trajectory.q):
        t, x = np.atleast_2d(np.asarray(trajectory.t)), np.atleast_2d(values)
        rounding = 1e-9 * max(abs(low), abs(high))
        beyond = np.argwhere((x < low - rounding) | (x > high + rounding))
        if beyond.size:
            member, sample = beyond[0]
            who = f" of trajectory {member}" if len(x) > 1 else ""
            warnings.warn(
                f"joint {name!r}{who} passes its limits, {low:.4g} to {high:.4g} {unit}, first at "
                f"t = {t[member, sample]:g} s, where it is at {x[member, sample]:.4g} {unit}: nothing stops it there. "
                "End the motion by an event, or give the joint no limits",
                stacklevel=3,
            )


def _of_each(t, start):
    """t, q, v and scales of a batch, which one motion is, too."""
    one = start.q.ndim == 1
    q, v, scale = jax.tree.map(lambda x: x[None] if one else x, (start.q, start.v, start.scale))
    return jnp.full(len(q), t), q, v, scale


def _check_actuators(control, p):
    limits = control.limits
    if limits is not None and limits.shape not in ((), (p,)):
        raise ValueError(f"limits must be a number or have shape ({p},), one per actuator, got shape {limits.shape}")
    if control.inputs is not None and len(control.inputs) != p:
        raise ValueError(f"inputs must name each of {p} actuators, got {len(control.inputs)} names: {control.inputs}")


def _first_out_of_reach(system, t, q, v, scale):
    """Which of the states is the first whose task the actuators cannot do, and what they cannot; and of all states W B
    and A, where the control serves the task alone."""
    command, terms, driven = jax.tree.map(np.asarray, _commands(system, t, q, v, scale))
    wrong = np.flatnonzero(~np.all(np.abs(command.unreachable) <= UNREACHED * terms, axis=-1))
    if not wrong.size:
        return None, driven
    i = int(wrong[0])
    labels = names_of(task_of(system), lambda c: c.rows(t[i], q[i], v[i])[1])
    return (i, shortfall(jax.tree.map(lambda x: x[i], command), labels, terms[i])), driven


def _warn_of_freedom(system, driven, scale):
    """At the first start: directions that the actuators could drive, and the task leaves free."""
    if driven is None:
        return
    unit = np.asarray(scale.unit)[0]
    drive, A = (x[0] for x in driven)
    ways, sizes, _ = np.linalg.svd(drive / unit[:, None] / _lengths(drive / unit[:, None], axis=0), full_matrices=False)
    ways = ways[:, sizes > FREE * np.max(sizes, initial=0)]
    seen = A * unit @ ways
    _, sizes, rest = np.linalg.svd(seen / _lengths(A * unit, axis=1))
    rank = int(np.sum(sizes > FREE))
    if rank == ways.shape[1]:
        return
    share = np.linalg.norm(ways @ rest[rank:].T, axis=1)
    names = [name for name, _ in named_directions(system, len(unit)) or named_coordinates(system, len(unit))]
    warnings.warn(
        f"the task leaves {ways.shape[1] - rank} of the {ways.shape[1]} directions of motion free that the actuators "
        f"could drive, most of all along {names[int(np.argmax(share))]!r}: the least forces do not act along them. "
        "Give the task more rows, or Servo(secondary=...) for what is wanted there; secondary=0 if that is meant",
        stacklevel=4,
    )


def _lengths(x, axis):
    """Those of columns or rows, 1 where there is none."""
    length = np.linalg.norm(x, axis=axis, keepdims=True)
    return np.where(length > 0, length, 1)


@jit_unoptimised
def _commands(system, t, q, v, scale):
    """What is asked of the actuators, and the sizes of the terms of what is wanted of them: of b̄ = b − A a, where a
    comes from forces that may balance."""

    def one(t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], scale: Scale):
        passive = system.passive(t, q, v)
        command = system.command(t, q, v, passive)
        if not command.wanted.size:
            return command, command.wanted, None
        of_b = scale.of(lambda t, q, v: rows(task_of(system), t, q, v)[1], t, q, v)
        A = rows(task_of(system), t, q, v)[0]
        terms = of_b + jnp.abs(command.wanted) + jnp.abs(A) @ (scale.unit**2 * jnp.abs(passive.Q))
        driven = None
        if system.control.serves_task_alone:
            driven = mobility(passive).matrix @ system.control.matrix(t, q, v), A
        return command, terms, driven

    return jax.vmap(one)(t, q, v, scale)
