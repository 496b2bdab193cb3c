"""Why something failed, in the words of the system: which trajectory, when, which constraint, and what to do."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array, Bool, Float

from ..._check_terms import check_terms, check_unique, complaint_of_freedom, complaint_of_mass
from ..._constraint import AbstractConstraint, names_of
from ..._equation import motion_by
from ..._kinematic_map import rate, speeds
from ..._labels import direction_names
from ..._run.compile import jit_unoptimised
from ..._solve import AbstractMethod
from ..._system import AbstractSystem, System, dynamics_of, kinematic_map_of, structure_of
from ..event import Event
from ..fallback.nearly_dependent import warn_of_nearly_dependent
from ..fallback.row_noise import mass_and_rows
from ..integrate.base import AbstractIntegrator
from ..integrate.single import solve_one
from ..problem import InitialState, Problem
from ..result import (
    EVENT_NAN,
    INCONSISTENT,
    JUMPED,
    MOST_STEPS,
    OFF_CONSTRAINTS,
    ON_EVENT,
    TOO_SMALL,
    all_ended_well,
    ended_well,
)
from ..stepper.inconsistent_rows import acceleration_only_rows, inconsistent_rows, pull_of
from ..stepper.runge_kutta import acceleration
from ..stepper.scaling import Scale
from ..trajectory.trajectory import Trajectory

COARSE = 0.1  # of the root of eps: a share of the whole time that matters
CONSISTENT = 1e-6  # a start typed with seven digits is meant to be on the constraints; the first step puts it there


class SimulationError(RuntimeError):
    """A simulation that could not be finished, or whose result does not keep its constraints."""


def names(system: AbstractSystem, read: Callable[[AbstractConstraint], Array]) -> list[str]:
    """A name for each entry of what ``read`` gives of the constraints that are held."""
    return names_of(system.held, read)


class Worst(NamedTuple):
    """The constraint that is most violated, named; whether its position is; by how much; and that beside its terms."""

    name: str
    of_position: bool
    size: float
    missed: float

    def __str__(self) -> str:
        return f"{self.name!r}" if self.of_position else f"{self.name!r} (velocity)"


def worst_row(system: AbstractSystem, t: Array, q: Array, v: Array, scale: Scale) -> Worst:
    """The worst at (t, q, v), beside its terms: of positions if any is off by more than a start may be, else of
    velocities."""
    found = _residuals(system, t, *jax.tree.map(lambda x: jnp.asarray(x)[None], (q, v, scale)))
    return worst_of(jax.tree.map(lambda x: np.asarray(x)[0], found), system, t, q, v)


def worst_of(found: Any, system: AbstractSystem, t: Array, q: Array, v: Array) -> Worst:
    """The same of what is ``found``: a residual and the sizes of its terms, of positions and of velocities."""
    labels = names(system, lambda c: c.position(t, q)), names(system, lambda c: c.velocity(t, q, v))
    worst = Worst("", True, 0.0, 0.0)
    for of_position, of_level, named in zip((True, False), found, labels, strict=True):
        if not named or worst.missed > CONSISTENT:
            continue
        residual, terms = map(np.abs, of_level)
        missed = np.nan_to_num(residual / terms, nan=np.inf)
        i = int(missed.argmax())
        worst = Worst(named[i], of_position, float(residual[i]), float(missed[i]))
    return worst


def warn_of_coarse_time(model: Any, ts: np.ndarray, q: Float[Array, "*batch nq"], v: Float[Array, "*batch n"]) -> None:
    """Where the clock says so much that a time in between can hardly be told, and the model depends on it."""
    last = float(np.max(np.abs(ts)))
    unit, span = float(np.spacing(np.asarray(last, q.dtype))), float(ts[-1] - ts[0])
    if unit <= COARSE * float(np.finfo(q.dtype).eps) ** 0.5 * span:
        return
    q, v = (x.reshape(-1, x.shape[-1])[0] for x in (q, v))

    def told(t):
        of_constraints = model.violation(t, q, v) if isinstance(model, AbstractSystem) else None
        return eqx.filter((model(t, q, v), of_constraints), eqx.is_array)

    program = jax.make_jaxpr(told)(jnp.asarray(ts[0], q.dtype)).jaxpr
    if dce_jaxpr(program, [True] * len(program.outvars))[1][0]:
        warnings.warn(
            f"the model depends on t, and times near {last:.3g} s are {unit:.1g} s apart in {q.dtype}: the motion "
            "cannot be more exact than that. Let time begin at 0, and add what the clock says in the model",
            stacklevel=3,
        )


def check_start(
    trajectory: Trajectory,
    problem: Problem,
    loop: AbstractIntegrator,
    start: InitialState,
    displaced: Bool[Array | np.ndarray, "*batch"],
) -> None:
    """The start is one from which there is a motion, or ``ValueError``. Looked into only where the motion gives reason
    to: it did not end well, or began ``displaced`` from where it was to."""
    model, q0, v0 = trajectory.model, start.q, start.v
    batch, aside = q0.ndim == 2, problem.projection and bool(np.any(np.asarray(displaced)))
    well = all_ended_well(trajectory.result)
    watched = loop.checks_every_step and problem.method.usual() is not None
    if well and watched and not aside:
        return
    t0 = problem.begin.reshape(-1)[0]
    where = f" for trajectory 0 at t = {float(t0):g} s" if batch else f" at t = {float(t0):g} s"
    first_q, first_v = jnp.atleast_2d(q0)[0], jnp.atleast_2d(v0)[0]
    if not well or not watched:
        terms, motion = _first(model, t0, first_q, first_v, problem.method)
        labels = direction_names(model)
        check_terms(terms, where, labels)
        check_unique(terms, np.asarray(motion), type(problem.method).__name__, where, labels)
        if not watched:  # else it was looked at when the usual method was given up
            warn_of_nearly_dependent(mass_and_rows, problem, terms.M, terms.A, t0, first_q, first_v, where)
    if not isinstance(model, AbstractSystem):
        return
    if aside or problem.projection and not well:
        check_consistent(model, problem.begin, q0, v0, start.scale)


def check_model(system: AbstractSystem, t: Array, q: Array, v: Array, method: AbstractMethod) -> None:
    """The system makes sense there, and is one that ``method`` can do, or ``ValueError``."""
    where = f" at t = {float(t):g} s"
    passive = System(dynamics_of(system), system.held, kinematic_map=system.kinematic_map)
    terms, acceleration = _first(passive, t, q, v, method)
    labels = direction_names(system)
    check_terms(terms, where, labels)
    check_unique(terms, np.asarray(acceleration), type(method).__name__, where, labels)


@jit_unoptimised
def _first(model, t, q, v, method):
    terms = model(t, q, v)
    return terms, motion_by(method, terms)[0].acceleration


@jit_unoptimised
def _residuals(system, t, q, v, scale):
    """φ and the sizes of its terms, and φ̇ and ψ and those of theirs, of each of a batch, at one time or many."""

    def one(t, q, v, scale):
        position, velocity = system.position_residual, system.velocity_residual
        smallest = jnp.finfo(q.dtype).tiny
        of_position, of_velocity = scale.of(position, t, q), scale.of(velocity, t, q, v)
        return (
            (position(t, q), jnp.maximum(of_position, smallest)),
            (velocity(t, q, v), jnp.maximum(of_velocity, smallest)),
        )

    return jax.vmap(one, in_axes=(0 if t.ndim else None, 0, 0, 0))(t, q, v, scale)


def check_end(trajectory: Trajectory, problem: Problem, loop: AbstractIntegrator, start: InitialState) -> None:
    """Every motion was finished as it should be, and kept its constraints, or ``SimulationError``."""
    check_finished(trajectory, problem, start)
    if problem.projection and not loop.checks_every_step:
        check_kept(trajectory, start.scale)


def check_consistent(system: AbstractSystem, t: Array, q0: Array, v0: Array, scale: Scale) -> None:
    """q0, v0 (n,), or (batch, n), at t (), or (batch,), are on the constraints, or ``ValueError`` naming the worst."""
    batch, times = q0.ndim == 2, np.broadcast_to(t, q0.shape[:-1] or (1,))
    found = _residuals(system, t, *((q0, v0, scale) if batch else jax.tree.map(lambda x: x[None], (q0, v0, scale))))
    t, q, v = jnp.asarray(times[0]), jnp.atleast_2d(q0)[0], jnp.atleast_2d(v0)[0]
    levels = (
        ("", lambda c: c.position(t, q), found[0]),
        ("the velocity of ", lambda c: c.velocity(t, q, v), found[1]),
    )
    tolerance = max(CONSISTENT, 100 * float(np.finfo(q.dtype).eps))
    for level, read, of_level in levels:
        residual, terms = (np.abs(np.asarray(x)) for x in of_level)
        missed = residual / terms
        if missed.size and missed.max() > tolerance:
            labels = names(system, read)
            member, i = np.unravel_index(int(missed.argmax()), missed.shape)
            who = f"trajectory {member} starts" if batch else "the start is"
            raise ValueError(
                f"{who} off the constraints: at t = {times[member]:g} s {level}{labels[i]!r} is "
                f"{residual[member, i]:.3g}, not 0. Use q0, v0 = ukjax.project(model, t, q0, v0) for the nearest "
                "consistent start, or drift='none' with Baumgarte gains to be pulled back in the course of the motion"
            )


def check_finished(trajectory: Trajectory, problem: Problem, start: InitialState) -> None:
    """Every trajectory reached its last sample, or its event, or ``SimulationError``."""
    if all_ended_well(trajectory.result):
        return
    finished = np.atleast_1d(np.asarray(ended_well(trajectory.result)))
    member = int(np.argmin(finished))
    of_member = lambda x: jnp.asarray(x).reshape(finished.size, *x.shape[trajectory.result.ndim :])[member]
    t, q, v = map(of_member, trajectory.last)
    scale = jax.tree.map(of_member, start.scale)
    failed = int((~finished).sum())
    who = f"trajectory {member} ({failed} of {finished.size} failed)" if finished.size > 1 else "the motion"
    result = int(np.atleast_1d(np.asarray(trajectory.result))[member])
    if result == INCONSISTENT:
        samples = [of_member(x) for x in (trajectory.t, trajectory.q, trajectory.v)]
        _complain_of_contradiction(trajectory.model, problem, who, *samples)
    if result == MOST_STEPS:
        raise SimulationError(
            f"{who} came to t = {float(t):.6g} s in max_steps = {problem.max_steps} steps: allow more, or take longer "
            "ones with a larger rtol or, in a stiff motion, an implicit solver (diffrax.Kvaerno5). "
            "throw=False returns what was computed"
        )
    if result == ON_EVENT and _rests(trajectory.model, problem, t, q, v, scale):
        raise SimulationError(
            f"{who} starts on its event, at t = {float(t):.6g} s, and is back on it before a step can be told from "
            "rounding: the body rests on the surface of the event. Impacts that become ever smaller end so. Go on with "
            "a model in which the surface is a constraint. throw=False returns what was computed"
        )
    if result == ON_EVENT:
        raise SimulationError(
            f"{who} starts on its event, at t = {float(t):.6g} s, and does not come away from it: it moves through "
            "zero at once, in the direction that counts. Turn its velocity first, as an impact does; or count the "
            "crossings of the other direction. throw=False returns what was computed"
        )
    if result == EVENT_NAN:
        raise SimulationError(
            f"{who} came to where its event function is NaN, at t = {float(t):.6g} s: there it cannot be seen whether "
            "the event is met. Look for a division by zero or a root of a negative number in the function. "
            "throw=False returns what was computed"
        )
    if result == JUMPED and finished.size > 1 and problem.counts is not None:  # which does not say when
        alone = solve_one(problem, jax.tree.map(of_member, start))
        result, (t, q, v) = int(alone.result), alone.last
    if problem.projection and (result == JUMPED or result == TOO_SMALL and problem.dt is None):
        _complain_of_leap(trajectory.model, problem, who, t, q, v, scale)
    if result == OFF_CONSTRAINTS:
        if finished.size > 1:
            check_kept(trajectory, start.scale)
        _complain_of_residual(trajectory.model, problem.method, who, t, q, v, scale)
    complaint = _impossible(trajectory.model, problem, t, q, v)
    if complaint:
        raise SimulationError(
            f"{who} ended at t = {float(t):.6g} s: {complaint}. throw=False returns what was computed"
        )
    hardest = _hardest(trajectory.model, t, q, v)
    if problem.dt is not None:
        raise SimulationError(
            f"{who} broke down after t = {float(t):.6g} s, in steps of dt = {float(problem.dt):g} s{hardest}. Take a "
            "smaller dt, or leave it out for steps that are as small as the motion needs; if that stops there too, the "
            "constraints can no longer be met or forces grow without bound. throw=False returns what was computed"
        )
    raise SimulationError(
        f"{who} stopped at t = {float(t):.6g} s, since no step is small enough to go on{hardest}. "
        "The usual reasons are constraints that can no longer be met (a path out of reach, a mechanism fully "
        "stretched) or forces that grow without bound; at a singular pose try method=ukjax.Orthogonal(rtol=1e-4). "
        "throw=False returns what was computed"
    )


def _complain_of_contradiction(model, problem, who, t, q, v):
    """Where in these samples constraints first contradict each other, and which; the last, if it is between them."""
    for at in zip(t, q, v, strict=True):
        missed, against = _against(model, *at, problem.method, problem.projection)
        if against:
            break
    which = ": " + " and ".join(against) if against else ", or between that sample and others"
    raise SimulationError(
        f"{who} has constraints that contradict each other at t = {float(at[0]):.6g} s{which}. No acceleration meets "
        f"all of them: the nearest misses one by {missed:.3g}. Leave out what is not meant. throw=False returns the "
        "motion that meets them as nearly as can be"
    )


def _against(model, t, q, v, method, projection):
    """By how much the worst row is missed there, and the names of those that contradict each other."""
    missed, against = map(np.asarray, _contradiction(model, t, q, v, method, projection))
    labels = names_of(structure_of(model), lambda c: c.rows(t, q, v)[1]) if isinstance(model, AbstractSystem) else None
    name = lambda i: f"row {i} of A" if labels is None else repr(labels[i])
    return float(np.max(np.abs(missed), initial=0)), [name(i) for i in np.flatnonzero(against)]


@jit_unoptimised
def _contradiction(model, t, q, v, method, projection):
    """A q̈ − b, and which rows it shows to be contradictory."""
    terms, found = model(t, q, v), acceleration(model, t, q, v, method, projection)
    rows = acceleration_only_rows(model, projection, t, q, v)
    against = inconsistent_rows(terms, found.v_rate, method, pull_of(model, t, q, v))
    return terms.A @ found.v_rate - terms.b, against if rows is True else against & rows


def _rests(model, problem, t, q, v, scale) -> bool:
    """Whether a motion that starts on its event does not move through it, but for rounding."""
    _, motion = _first(model, t, q, v, problem.method)
    slope, size = map(float, _slope_of_event(kinematic_map_of(model), problem.event, t, q, v, motion, scale))
    counted = problem.event.counted
    return (slope * counted if counted else -abs(slope)) <= float(np.finfo(q.dtype).eps) ** 0.5 * size


@jit_unoptimised
def _slope_of_event(kinematic_map, event, t, q, v, motion, scale):
    """The rate of the event's value, and its size in motions of this scale."""
    of_t, of_q, of_v = jax.grad(event, (0, 1, 2))(t, q, v)
    slope = of_t + of_q @ rate(kinematic_map, q, v) + of_v @ motion
    size = jnp.abs(of_t) + jnp.abs(of_q) @ speeds(kinematic_map, q, scale.v) + jnp.abs(of_v) @ scale.v / scale.t
    return slope, size


def warn_of_unarmed_event(trajectory: Trajectory, event: Event) -> None:
    """One warning if a motion reached its last time, and is there on that side of its event to which it should have
    crossed: it was there from the start, so that no crossing counted."""
    finished = np.flatnonzero(np.atleast_1d(np.asarray(trajectory.finished)))
    if not event.counted or not finished.size:
        return
    ends = trajectory.last, (trajectory.t[..., 0], trajectory.q[..., 0, :], trajectory.v[..., 0, :])
    last, first = (np.atleast_1d(np.asarray(_values_of_event(event, *end))) for end in ends)
    rounding = 1e3 * np.finfo(last.dtype).eps * np.maximum(np.abs(first), np.abs(last))
    beyond = finished[(last * event.counted > rounding)[finished]]
    if not beyond.size:
        return
    i, several = int(beyond[0]), trajectory.q.ndim == 3
    who = f"trajectory {i} ({beyond.size} of {last.size})" if several else "the motion"
    t = float(np.atleast_1d(np.asarray(trajectory.last[0]))[i])
    sides = ("below", "above") if event.counted < 0 else ("above", "below")
    warnings.warn(
        f"{who} ended at t = {t:.6g} s {sides[0]} its event, and did not meet it: the event's function is "
        f"{last[i]:.3g} there, {first[i]:.3g} at the start, and a {event.direction} crossing counts only once the "
        f"motion has been {sides[1]}. Start on that side, or give an event without direction",
        stacklevel=3,
    )


@jit_unoptimised
def _values_of_event(event, t, q, v):
    return event(t, q, v) if q.ndim == 1 else jax.vmap(event)(t, q, v)


def _complain_of_leap(system, problem, who, t, q, v, scale):
    """Where the constraints are, after one more step, where no motion can follow."""
    step = 1e-9 * scale.t if problem.dt is None else problem.dt
    worst = worst_row(system, t + step, q + step * rate(kinematic_map_of(system), q, v), v, scale)
    if worst.of_position and worst.missed > CONSISTENT:
        raise SimulationError(
            f"{who} stopped at t = {float(t):.6g} s, where it would have to leap to meet its constraints: {worst} is "
            f"{worst.size:.3g} after the next step. A prescribed path must not jump, and a constraint that begins to "
            "hold must be met when it does: let the motion end there, and another begin from ukjax.project. If the "
            "steps are too long to follow, take a smaller dt. throw=False returns what was computed"
        )


def _impossible(model, problem, t, q, v) -> str:
    """Why there is no acceleration at the last sound state or a little later, empty if there is one."""
    if not np.all(np.isfinite(np.concatenate([q, v]))):
        return ""
    ts, t = np.unique(np.asarray(problem.ts)), float(t)
    following = float(np.min(ts[ts > t], initial=ts[-1]))
    if problem.dt is None:  # within a step of unknown length, which became shorter or broke down at once
        ahead = (ts[-1] - ts[0]) * np.append(0, 10 ** np.linspace(-12, -1, 34))
    else:
        ahead = np.linspace(0, max(float(problem.dt), following - t), 33)
    q_dot = np.asarray(rate(kinematic_map_of(model), jnp.asarray(q), jnp.asarray(v)))
    for h in ahead:
        at = t + h, q + h * q_dot, v
        M, A = map(np.asarray, _mass_and_rows(model, *(jnp.asarray(x, q.dtype) for x in at)))
        about = f" at t = {float(at[0]):.6g} s", direction_names(model)
        complaint = complaint_of_mass(M, *about) or complaint_of_freedom(M, A, *about)
        if complaint:
            return complaint
    terms, acceleration = _first(model, t, q, v, problem.method)
    try:
        check_unique(terms, np.asarray(acceleration), type(problem.method).__name__, f" at t = {float(t):.6g} s")
    except ValueError as error:
        return str(error)
    return ""


@jit_unoptimised
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


def check_kept(trajectory: Trajectory, scale: Scale) -> None:
    """The constraints hold at every sample, or ``SimulationError`` naming where they first do not."""
    system = trajectory.model
    assert isinstance(system, AbstractSystem), "a bare function has no residuals to check"
    batched = lambda x, k: jnp.asarray(x).reshape(-1, *x.shape[-k:])
    t, q, v = (batched(x, k) for x, k in _state(trajectory))
    of_each = scale if trajectory.q.ndim == 3 else jax.tree.map(lambda x: x[None], scale)
    wrong = np.asarray(_off(system, t, q, v, of_each))
    if wrong.any():
        member, sample = np.argwhere(wrong)[0]
        who = f"trajectory {member}" if len(t) > 1 else "the motion"
        t, q, v = (x[member, sample] for x in (t, q, v))
        _complain_of_residual(system, trajectory.method, who, t, q, v, jax.tree.map(lambda x: x[member], of_each))


@jit_unoptimised
def _off(system, t, q, v, scale):
    """Which samples of a batch are off their constraints."""

    def one(scale, t, q, v):
        return scale.missed(system.violation(t, q, v)) > scale.kept(q)

    return jax.vmap(lambda scale, *of: jax.lax.map(lambda sample: one(scale, *sample), of))(scale, t, q, v)


def _complain_of_residual(system, method, who, t, q, v, scale):
    worst = worst_row(system, t, q, v, scale)
    against = _against(system, t, q, v, method, projection=False)[1]
    why = (
        f"There {' and '.join(against)} contradict each other: no acceleration meets all of them"
        if len(against) > 1
        else "Either the constraints cannot be met from there on (a path out of reach), or the pose is singular"
    )
    raise SimulationError(
        f"{who} leaves its constraints at t = {float(t):g} s: {worst} has residual {worst.size:.3g}. {why}. "
        "throw=False returns what was computed"
    )


def _state(trajectory):
    return (trajectory.t, 1), (trajectory.q, 2), (trajectory.v, 2)
