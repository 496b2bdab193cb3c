"""Why something failed, in the words of the system: which trajectory, when, which constraint, and what to do."""

import warnings
from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._constraint import AbstractConstraint
from .._control import UNREACHED, shortfall
from .._system import AbstractSystem
from .trajectory import Trajectory

CONSISTENT = 1e-6  # a start typed with seven digits is meant to be on the constraints; the first step puts it there
KEPT = {"float64": 1e-8, "float32": 1e-3}


class SimulationError(RuntimeError):
    """A simulation that could not be finished, or whose result does not keep its constraints."""


def names(system: AbstractSystem, read: Callable[[AbstractConstraint], Array]) -> list[str]:
    """A name for each entry of what ``read`` gives of the constraints, with an index where one name is for several."""
    return names_of(system.held, read)


def names_of(constraints: Iterable[AbstractConstraint], read: Callable[[AbstractConstraint], Array]) -> list[str]:
    """The same, of any constraints."""
    result = []
    for constraint in constraints:
        size = eqx.filter_eval_shape(read, constraint).shape[0]
        name = constraint.name
        if isinstance(name, tuple):
            result += name if size else ()
        else:
            result += [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]
    return result


def worst_row(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[str, float]:
    """The constraint most violated at (t, q, v), named, and by how much: at positions if any is, else velocities."""
    levels = (
        ("", names(system, lambda c: c.position(t, q)), system.position_residual(t, q)),
        (" (velocity)", names(system, lambda c: c.velocity(t, q, v)), system.velocity_residual(t, q, v)),
    )
    which, size = "", 0.0
    for level, labels, residual in levels:
        if not labels:
            continue
        residual = np.nan_to_num(np.abs(np.asarray(residual)), nan=np.inf)
        i = int(residual.argmax())
        which, size = f"{labels[i]!r}{level}", float(residual[i])
        if size > CONSISTENT:
            break
    return which, size


def check_start(
    system: AbstractSystem, t: Array, position: Array, velocity: Array, q: Array, v: Array, batch: bool
) -> None:
    """Residuals (batch, k) at the start are small, or ``ValueError`` naming the worst."""
    levels = (
        ("", lambda c: c.position(t, q), position),
        ("the velocity of ", lambda c: c.velocity(t, q, v), velocity),
    )
    tolerance = max(CONSISTENT, 100 * float(np.finfo(q.dtype).eps))
    for level, read, residual in levels:
        residual = np.abs(np.asarray(residual))
        if residual.size and residual.max() > tolerance:
            labels = names(system, read)
            member, i = np.unravel_index(int(residual.argmax()), residual.shape)
            who = f"trajectory {member} starts" if batch else "the start is"
            raise ValueError(
                f"{who} off the constraints: at t = {float(t):g} s {level}{labels[i]!r} is {residual[member, i]:.3g}, "
                "not 0. Use q0, v0 = ukjax.project(model, t, q0, v0) for the nearest consistent start, or "
                "drift='none' with Baumgarte gains to be pulled back in the course of the motion"
            )


def check_finished(trajectory: Trajectory, max_steps: int) -> None:
    """Every trajectory reached its last sample, or ``SimulationError``."""
    finished = np.atleast_1d(np.asarray(trajectory.finished))
    if finished.all():
        return
    member = int(np.argmin(finished))
    t, q, v = (
        jnp.asarray(x).reshape(finished.size, *x.shape[trajectory.finished.ndim :])[member] for x in trajectory.last
    )
    failed = int((~finished).sum())
    who = f"trajectory {member} ({failed} of {finished.size} failed)" if finished.size > 1 else "the motion"
    if int(np.atleast_1d(np.asarray(trajectory.steps))[member]) >= max_steps:
        raise SimulationError(
            f"{who} came to t = {float(t):.6g} s in max_steps = {max_steps} steps: allow more, or take longer ones "
            "with a larger rtol or, in a stiff motion, an implicit solver (diffrax.Kvaerno5). "
            "throw=False returns what was computed"
        )
    hardest = _hardest(trajectory.model, t, q, v)
    raise SimulationError(
        f"{who} stopped at t = {float(t):.6g} s, since no step is small enough to go on{hardest}. "
        "The usual reasons are constraints that can no longer be met (a path out of reach, a mechanism fully "
        "stretched) or forces that grow without bound; at a singular pose try method=ukjax.Orthogonal(rtol=1e-4). "
        "throw=False returns what was computed"
    )


def _hardest(model, t, q, v) -> str:
    """Which constraint does the most there: the one whose multiplier, times the length of its row, is largest."""
    if not isinstance(model, AbstractSystem) or not model.constraints:
        return ""
    terms = model(t, q, v)
    if not all(np.all(np.isfinite(np.asarray(x))) for x in (terms.M, terms.Q, terms.A, terms.b)):
        return "; its terms are not finite there"
    A, M, Q = (np.asarray(x) for x in (terms.A, terms.M, terms.Q))
    force = np.nan_to_num(M @ _accelerations(M, Q, A, np.asarray(terms.b)) - Q)
    pull = np.abs(np.linalg.lstsq(A.T, force, rcond=None)[0]) * np.linalg.norm(A, axis=1)
    i = int(pull.argmax())
    return f"; {names(model, lambda c: c.rows(t, q, v)[1])[i]!r} acts hardest there, with a force of {pull[i]:.3g}"


def _accelerations(M, Q, A, b):
    """q̈ by minimum norm from the multiplier equations, singular or not: good enough to name a culprit."""
    m = b.size
    matrix = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    return np.linalg.lstsq(matrix, np.concatenate([Q, b]), rcond=None)[0][: Q.size]


def check_kept(trajectory: Trajectory) -> None:
    """The constraints hold at every sample, or ``SimulationError`` naming where they first do not."""
    residual = np.abs(np.asarray(trajectory.residual))
    residual = residual if residual.ndim == 3 else residual[None]
    limit = KEPT[str(residual.dtype)] * (1 + np.nanmax(np.abs(np.asarray(trajectory.q)), initial=0))
    wrong = np.argwhere(residual > limit)
    if not wrong.size:
        return
    member, sample, i = wrong[0]
    t, q, v = (np.asarray(x).reshape(-1, *x.shape[-k:])[member, sample] for x, k in _state(trajectory))
    system = trajectory.model
    assert isinstance(system, AbstractSystem), "a bare function has no residuals to check"
    t, q, v = (jnp.asarray(x) for x in (t, q, v))
    label = names(system, lambda c: c.rows(t, q, v)[1])[i]
    who = f"trajectory {member}" if residual.shape[0] > 1 else "the motion"
    raise SimulationError(
        f"{who} leaves its constraints at t = {t:g} s: {label!r} has residual {residual[member, sample, i]:.3g}. "
        "Either the constraints cannot be met from there on (a path out of reach), or the pose is singular. "
        "throw=False returns what was computed"
    )


def check_task(system: AbstractSystem, t: Array, q: Array, v: Array) -> None:
    """The actuators can do what the task asks at each start, q and v (batch, n), or ``ValueError``."""
    command = _commands(system, t, q, v)
    for member in range(q.shape[0]):
        complaint = _out_of_reach(system, t, q[member], v[member], jax.tree.map(lambda x, i=member: x[i], command))
        if complaint:
            who = f" of trajectory {member}" if q.shape[0] > 1 else ""
            raise ValueError(f"the task{who} cannot be performed from the start, t = {float(t):g} s: {complaint}")


@eqx.filter_jit
def _commands(system, t, q, v):
    return jax.vmap(lambda q, v: system.command(t, q, v))(q, v)


def check_reached(trajectory: Trajectory) -> None:
    """The actuators could do what the task asked at every sample, or ``SimulationError`` with the first that not."""
    if trajectory.unreachable is None:
        return
    missed = np.abs(np.asarray(trajectory.unreachable))
    missed = missed if missed.ndim == 3 else missed[None]
    system = trajectory.model
    assert isinstance(system, AbstractSystem)
    for member, sample in np.argwhere((missed > UNREACHED).any(axis=-1)):
        t, q, v = (jnp.asarray(x).reshape(-1, *x.shape[-k:])[member, sample] for x, k in _state(trajectory))
        complaint = _out_of_reach(system, t, q, v, system.command(t, q, v))
        if complaint:
            who = f" of trajectory {member}" if missed.shape[0] > 1 else ""
            raise SimulationError(
                f"the task{who} can no longer be performed at t = {float(t):g} s: {complaint}. throw=False returns "
                "what was computed"
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


def _out_of_reach(system, t, q, v, command) -> str:
    return shortfall(command, names_of(system.control.task, lambda c: c.rows(t, q, v)[1]))


def _state(trajectory):
    return (trajectory.t, 1), (trajectory.q, 2), (trajectory.v, 2)
