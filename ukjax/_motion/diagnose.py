"""Why something failed, in the words of the system: which trajectory, when, which constraint, and what to do."""

import warnings
from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._check import check_terms, check_unique, complaint_of_freedom, complaint_of_mass
from .._constraint import AbstractConstraint
from .._control import UNREACHED, shortfall
from .._equation import motion_by
from .._system import AbstractSystem
from .base import AbstractLoop, Request
from .outcome import OFF_CONSTRAINTS, all_ended_well
from .step import KEPT
from .trajectory import Trajectory

CONSISTENT = 1e-6  # a start typed with seven digits is meant to be on the constraints; the first step puts it there
NEAR = 1e-9  # a start moved by no more than this, beside 1 + its largest coordinate, was where it should be


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


def coordinate_names(model: AbstractSystem | Callable | None) -> tuple[str, ...]:
    """The names of the model's coordinates, none where they have none."""
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    return tuple(name for name, _ in named or ())


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


def check_start(trajectory: Trajectory, request: Request, loop: AbstractLoop, q0: Array, v0: Array) -> None:
    """The start is one from which there is a motion, or ``ValueError``. Looked into only where the motion gives reason
    to: it did not end well, or did not begin where it was to."""
    model, batch = trajectory.model, q0.ndim == 2
    driven = isinstance(model, AbstractSystem) and model.control is not None
    well = all_ended_well(trajectory.result)
    watched = loop.keeps_watch and request.method.usual() is not None
    if well and watched and not driven and not (request.projection and _displaced(trajectory, q0, v0)):
        return
    t0 = request.ts[0]
    where = f" for trajectory 0 at t = {float(t0):g} s" if batch else f" at t = {float(t0):g} s"
    first_q, first_v = jnp.atleast_2d(q0)[0], jnp.atleast_2d(v0)[0]
    if not well or not watched:
        terms, motion = _first(model, t0, first_q, first_v, request.method)
        labels = coordinate_names(model)
        check_terms(terms, where, labels)
        check_unique(terms, np.asarray(motion), type(request.method).__name__, where, labels)
    if not isinstance(model, AbstractSystem):
        return
    if request.projection and (not well or _displaced(trajectory, q0, v0)):
        check_consistent(model, t0, q0, v0)
    if model.control is not None:
        check_task(model, t0, jnp.atleast_2d(q0), jnp.atleast_2d(v0))


def _displaced(trajectory, q0, v0):
    """Whether the first sample is further from the start than rounding would put it."""
    near = lambda x, y: np.abs(x - y) <= NEAR * (1 + np.max(np.abs(y), axis=-1, keepdims=True))
    first = lambda x: np.asarray(x)[..., 0, :]
    return not (np.all(near(first(trajectory.q), np.asarray(q0))) and np.all(near(first(trajectory.v), np.asarray(v0))))


@eqx.filter_jit
def _first(model, t, q, v, method):
    terms = model(t, q, v)
    return terms, motion_by(method, terms)[0].acceleration


@eqx.filter_jit
def _residuals(system, t, q, v):
    return jax.vmap(lambda q, v: (system.position_residual(t, q), system.velocity_residual(t, q, v)))(q, v)


def check_event(event: Callable, t0: Array, q0: Array, v0: Array) -> None:
    """An event is a number, and not yet zero at any start, or ``ValueError``."""
    values = jax.vmap(lambda q, v: jnp.asarray(event(t0, q, v)))(jnp.atleast_2d(q0), jnp.atleast_2d(v0))
    if values.ndim != 1 or not jnp.issubdtype(values.dtype, jnp.floating):
        raise ValueError(
            f"event must return one number that crosses zero, got shape {values.shape[1:]} of {values.dtype}; "
            "write q[0] rather than q[0] > 0"
        )
    if np.any(np.asarray(values) == 0):
        raise ValueError(
            f"event is already zero at the start, t = {float(t0):g} s: there is no crossing to find. Start a "
            "little later, or let the event ask for a sign of its rate too"
        )


def check_end(trajectory: Trajectory, request: Request, loop: AbstractLoop) -> None:
    """Every motion was finished as it should be, or ``SimulationError``; a warning for limits that were exceeded."""
    check_finished(trajectory, request)
    check_reached(trajectory)
    check_limits(trajectory)
    if request.projection and not loop.keeps_watch:
        check_kept(trajectory)


def check_consistent(system: AbstractSystem, t: Array, q0: Array, v0: Array) -> None:
    """q0, v0 (n,), or (batch, n), are on the constraints, or ``ValueError`` naming the worst."""
    batch = q0.ndim == 2
    position, velocity = _residuals(system, t, jnp.atleast_2d(q0), jnp.atleast_2d(v0))
    q, v = jnp.atleast_2d(q0)[0], jnp.atleast_2d(v0)[0]
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


def check_finished(trajectory: Trajectory, request: Request) -> None:
    """Every trajectory reached its last sample, or ``SimulationError``."""
    if all_ended_well(trajectory.result):
        return
    finished = np.atleast_1d(np.asarray(trajectory.finished))
    member = int(np.argmin(finished))
    t, q, v = (
        jnp.asarray(x).reshape(finished.size, *x.shape[trajectory.finished.ndim :])[member] for x in trajectory.last
    )
    failed = int((~finished).sum())
    who = f"trajectory {member} ({failed} of {finished.size} failed)" if finished.size > 1 else "the motion"
    if int(np.atleast_1d(np.asarray(trajectory.steps))[member]) >= request.max_steps:
        raise SimulationError(
            f"{who} came to t = {float(t):.6g} s in max_steps = {request.max_steps} steps: allow more, or take longer "
            "ones with a larger rtol or, in a stiff motion, an implicit solver (diffrax.Kvaerno5). "
            "throw=False returns what was computed"
        )
    if int(np.atleast_1d(np.asarray(trajectory.result))[member]) == OFF_CONSTRAINTS:
        if finished.size > 1:
            check_kept(trajectory)
        _complain_of_residual(trajectory.model, who, t, q, v)
    complaint = _impossible(trajectory.model, request, t, q, v, trajectory.q.ndim == 3)
    if complaint:
        raise SimulationError(
            f"{who} ended at t = {float(t):.6g} s: {complaint}. throw=False returns what was computed"
        )
    hardest = _hardest(trajectory.model, t, q, v)
    raise SimulationError(
        f"{who} stopped at t = {float(t):.6g} s, since no step is small enough to go on{hardest}. "
        "The usual reasons are constraints that can no longer be met (a path out of reach, a mechanism fully "
        "stretched) or forces that grow without bound; at a singular pose try method=ukjax.Orthogonal(rtol=1e-4). "
        "throw=False returns what was computed"
    )


def _impossible(model, request, t, q, v, batch) -> str:
    """Why there is no acceleration at the last sound state or a little later, empty if there is one."""
    if not np.all(np.isfinite(np.concatenate([q, v]))):
        return ""
    ts, t = np.asarray(request.ts), float(t)
    sample = float(np.max(ts[ts <= t], initial=ts[0]))
    following = float(np.min(ts[ts > t], initial=ts[-1]))
    if request.dt is None:  # within a step of unknown length, which became shorter or broke down at once
        ahead = (ts[-1] - ts[0]) * np.append(0, 10 ** np.linspace(-12, -1, 34))
    else:
        ahead = np.linspace(0, max(float(request.dt), following - t), 33)
    for h in ahead:
        # Of a batch q and v are those of the last sample.
        at = t + h, q + (t - sample if batch else 0) * v + h * v, v
        M, A = map(np.asarray, _mass_and_rows(model, *(jnp.asarray(x, q.dtype) for x in at)))
        about = f" at t = {float(at[0]):.6g} s", coordinate_names(model)
        complaint = complaint_of_mass(M, *about) or complaint_of_freedom(M, A, *about)
        if complaint:
            return complaint
    terms, acceleration = _first(model, t, q, v, request.method)
    try:
        check_unique(terms, np.asarray(acceleration), type(request.method).__name__, f" at t = {float(t):.6g} s")
    except ValueError as error:
        return str(error)
    return ""


@eqx.filter_jit
def _mass_and_rows(model, t, q, v):
    terms = model(t, q, v)
    return terms.M, terms.A


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
    system = trajectory.model
    assert isinstance(system, AbstractSystem), "a bare function has no residuals to check"
    batched = lambda x, k: np.asarray(x).reshape(-1, *x.shape[-k:])
    t, q, v = (batched(x, k) for x, k in _state(trajectory))
    wrong = np.asarray(_missed(system, *map(jnp.asarray, (t, q, v)))) > _limit(q)
    if wrong.any():
        member, sample = np.argwhere(wrong)[0]
        who = f"trajectory {member}" if len(t) > 1 else "the motion"
        _complain_of_residual(system, who, *(jnp.asarray(x[member, sample]) for x in (t, q, v)))


def _limit(q):
    return KEPT[str(q.dtype)] * (1 + np.max(np.abs(q), axis=-1, initial=0))


@eqx.filter_jit
def _missed(system, t, q, v):
    """The largest residual of each sample of a batch."""

    def one(t, q, v):
        return jnp.max(jnp.abs(system.violation(t, q, v)), initial=0)

    return jax.vmap(lambda *of_member: jax.lax.map(lambda sample: one(*sample), of_member))(t, q, v)


def _complain_of_residual(system, who, t, q, v):
    label, size = worst_row(system, t, q, v)
    raise SimulationError(
        f"{who} leaves its constraints at t = {float(t):g} s: {label} has residual {size:.3g}. "
        "Either the constraints cannot be met from there on (a path out of reach), or the pose is singular. "
        "throw=False returns what was computed"
    )


def check_task(system: AbstractSystem, t: Array, q: Array, v: Array) -> None:
    """The actuators can do what the task asks at each start, q and v (batch, n), or ``ValueError``."""
    found = _first_out_of_reach(system, jnp.full(len(q), t), q, v)
    if found is not None:
        member, complaint = found
        who = f" of trajectory {member}" if q.shape[0] > 1 else ""
        raise ValueError(f"the task{who} cannot be performed from the start, t = {float(t):g} s: {complaint}")


def _first_out_of_reach(system, t, q, v):
    """Which of the states is the first whose task the actuators cannot do, and what they cannot."""
    command = jax.tree.map(np.asarray, _commands(system, t, q, v))
    missed = np.linalg.norm(command.unreachable, axis=-1)
    enough = UNREACHED * np.maximum(1, np.linalg.norm(command.wanted, axis=-1))
    wrong = np.flatnonzero(~(missed <= enough))
    if not wrong.size or not command.unreachable.shape[-1]:
        return None
    i = int(wrong[0])
    labels = names_of(system.control.task, lambda c: c.rows(t[i], q[i], v[i])[1])
    return i, shortfall(jax.tree.map(lambda x: x[i], command), labels)


@eqx.filter_jit
def _commands(system, t, q, v):
    return jax.vmap(system.command)(t, q, v)


def check_reached(trajectory: Trajectory) -> None:
    """The actuators could do what the task asked at every sample, or ``SimulationError`` with the first that not."""
    if not isinstance(trajectory.model, AbstractSystem) or trajectory.model.control is None:
        return
    missed = np.abs(np.asarray(trajectory.unreachable))
    missed = missed if missed.ndim == 3 else missed[None]
    system = trajectory.model
    assert isinstance(system, AbstractSystem)
    suspect = np.argwhere((missed > UNREACHED).any(axis=-1))
    if not suspect.size:
        return
    t, q, v = (jnp.asarray(x).reshape(-1, *x.shape[-k:])[tuple(suspect.T)] for x, k in _state(trajectory))
    found = _first_out_of_reach(system, t, q, v)
    if found is not None:
        i, complaint = found
        who = f" of trajectory {suspect[i, 0]}" if missed.shape[0] > 1 else ""
        raise SimulationError(
            f"the task{who} can no longer be performed at t = {float(t[i]):g} s: {complaint}. throw=False returns "
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


def _state(trajectory):
    return (trajectory.t, 1), (trajectory.q, 2), (trajectory.v, 2)
