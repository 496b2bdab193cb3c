"""Diagnosis of a failed motion: trajectory, time, constraint and remedy."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._check_terms import check_terms, check_unique, complaint_of_freedom, complaint_of_mass
from ..._constraint import AbstractConstraint, names_of
from ..._contact.moreau_jean import MoreauJean
from ..._equation import motion_by
from ..._errors import InputError, SimulationError
from ..._jaxpr.dependence import depends_on
from ..._jaxpr.tracing import is_concrete, without_derivatives
from ..._kernel.if_repeated import jit_if_repeated
from ..._kinematic_map import rate, speeds
from ..._labels import direction_names
from ..._solve import AbstractMethod, has_fast_path
from ..._system import AbstractSystem, System, dynamics_of, kinematic_map_of, structure_of
from ..event import Event
from ..fallback.nearly_dependent import warn_of_nearly_dependent
from ..fallback.row_noise import mass_and_rows
from ..integrate.base import AbstractIntegrator
from ..problem import InitialState, Problem
from ..result import (
    ACCUMULATED,
    ENERGY_GAINED,
    EVENT_NAN,
    INCONSISTENT,
    JUMPED,
    MOST_STEPS,
    NO_CONTACT_MODE,
    OFF_CONSTRAINTS,
    OFF_TASK,
    ON_EVENT,
    OUT_OF_REACH,
    SEVERAL_CONTACT_MODES,
    SINGULAR_POSE,
    TOO_SMALL,
    all_ended_well,
    ended_well,
)
from ..stepper.inconsistent_rows import acceleration_only_rows, inconsistent_rows, pull_of
from ..stepper.runge_kutta import acceleration
from ..stepper.scaling import Scale
from ..trajectory.trajectory import Trajectory

COARSE = 0.1  # resolution of time that matters, relative to √eps of the whole time
CONSISTENT = 1e-6  # a start given with seven digits counts as consistent; the first step projects it


def names(system: AbstractSystem, read: Callable[[AbstractConstraint], Array]) -> list[str]:
    """A name for each entry that ``read`` returns for the constraints of the system."""
    return names_of(system.enforced, read)


class Worst(NamedTuple):
    """The most violated constraint.

    ``name``: its name; ``of_position``: whether it is violated by positions, else by velocities; ``size``: its
    residual; ``relative_size``: the residual relative to the sizes of its terms.
    """

    name: str
    of_position: bool
    size: float
    relative_size: float

    def __str__(self) -> str:
        return f"{self.name!r}" if self.of_position else f"{self.name!r} (velocity)"


def worst_row(system: AbstractSystem, t: Array, q: Array, v: Array, scale: Scale) -> Worst:
    """The most violated constraint at (t, q, v), relative to the sizes of its terms.

    It is a constraint on positions if one of these is violated by more than a start may be, else one on velocities.
    """
    residuals = _residuals(system, t, *jax.tree.map(lambda x: jnp.asarray(x)[None], (q, v, scale)))
    return worst_of(jax.tree.map(lambda x: np.asarray(x)[0], residuals), system, t, q, v)


def worst_of(residuals: Any, system: AbstractSystem, t: Array, q: Array, v: Array) -> Worst:
    """The most violated constraint, from pairs of a residual and the sizes of its terms, for positions and
    velocities.
    """
    labels = names(system, lambda c: c.position(t, q)), names(system, lambda c: c.velocity(t, q, v))
    worst = Worst("", True, 0.0, 0.0)
    for of_position, pair, row_names in zip((True, False), residuals, labels, strict=True):
        if not row_names or worst.relative_size > CONSISTENT:
            continue
        residual, terms = map(np.abs, pair)
        relative = np.nan_to_num(residual / terms, nan=np.inf)
        i = int(relative.argmax())
        worst = Worst(row_names[i], of_position, float(residual[i]), float(relative[i]))
    return worst


def warn_of_coarse_time(model: Any, ts: np.ndarray, q: Float[Array, "*batch nq"], v: Float[Array, "*batch n"]) -> None:
    """Warn if times are so large that intermediate times can hardly be represented, and the model depends on time."""
    last = float(np.max(np.abs(ts)))
    resolution, span = float(np.spacing(np.asarray(last, q.dtype))), float(ts[-1] - ts[0])
    if resolution <= COARSE * float(np.finfo(q.dtype).eps) ** 0.5 * span:
        return
    q, v = (x.reshape(-1, x.shape[-1])[0] for x in (q, v))

    def outputs(t):
        of_constraints = model.violation(t, q, v) if isinstance(model, AbstractSystem) else None
        return eqx.filter((model(t, q, v), of_constraints), eqx.is_array)

    if depends_on(outputs, jnp.asarray(ts[0], q.dtype)):
        warnings.warn(
            f"the model depends on t, and times near {last:.3g} s are {resolution:.1g} s apart in {q.dtype}: the "
            "motion cannot be more exact than that. Let time begin at 0, and add the time of the clock in the model",
            stacklevel=3,
        )


def check_start(
    trajectory: Trajectory,
    problem: Problem,
    loop: AbstractIntegrator,
    start: InitialState,
    displaced: Bool[Array | np.ndarray, "*batch"],
) -> None:
    """Raise ``InputError`` if no motion is possible from the start.

    The start is checked only if the motion did not end well, or began ``displaced`` from it.
    """
    model, q0, v0 = trajectory.equations, start.q, start.v
    batch, is_displaced = q0.ndim == 2, problem.projection and bool(np.any(np.asarray(displaced)))
    succeeded = all_ended_well(trajectory.result)
    was_checked = loop.checks_every_step and has_fast_path(problem.method)
    if succeeded and was_checked and not is_displaced:
        return
    t0 = problem.begin.reshape(-1)[0]
    where = f" for trajectory 0 at t = {float(t0):g} s" if batch else f" at t = {float(t0):g} s"
    q, v = jnp.atleast_2d(q0)[0], jnp.atleast_2d(v0)[0]
    if not succeeded or not was_checked:
        terms, motion = _terms_and_acceleration(model, t0, q, v, problem.method)
        labels = direction_names(model)
        check_terms(terms, where, labels)
        check_unique(terms, np.asarray(motion), type(problem.method).__name__, where, labels)
        if not was_checked:  # otherwise it was checked when the fast path was abandoned
            warn_of_nearly_dependent(mass_and_rows, problem, terms.M, terms.A, t0, q, v, where)
    if not isinstance(model, AbstractSystem):
        return
    if is_displaced or problem.projection and not succeeded:
        check_consistent(model, problem.begin, q0, v0, start.scale)


def check_model(system: AbstractSystem, t: Array, q: Array, v: Array, method: AbstractMethod) -> None:
    """Raise ``InputError`` if the terms are invalid at (t, q, v), or ``method`` is not applicable."""
    where = f" at t = {float(t):g} s"
    passive = System(dynamics_of(system), system.enforced, kinematic_map=system.kinematic_map)
    terms, acceleration = _terms_and_acceleration(passive, t, q, v, method)
    labels = direction_names(system)
    check_terms(terms, where, labels)
    check_unique(terms, np.asarray(acceleration), type(method).__name__, where, labels)


@jit_if_repeated
def _terms_and_acceleration(model, t, q, v, method):
    terms = model(t, q, v)
    return terms, motion_by(method, terms)[0].acceleration


@jit_if_repeated
def _residuals(system, t, q, v, scale):
    """For each member of a batch: (φ, sizes of its terms) and (φ̇ and ψ, sizes of their terms), at one time or many."""

    def of_member(t, q, v, scale):
        position, velocity = system.position_residual, system.velocity_residual
        tiny = jnp.finfo(q.dtype).tiny
        of_position, of_velocity = scale.of(position, t, q), scale.of(velocity, t, q, v)
        return (
            (position(t, q), jnp.maximum(of_position, tiny)),
            (velocity(t, q, v), jnp.maximum(of_velocity, tiny)),
        )

    return jax.vmap(of_member, in_axes=(0 if t.ndim else None, 0, 0, 0))(t, q, v, scale)


def check_end(trajectory: Trajectory, problem: Problem, loop: AbstractIntegrator, start: InitialState) -> None:
    """Raise ``SimulationError`` unless every motion finished and satisfied its constraints."""
    check_finished(trajectory, problem, start)
    if problem.projection and not loop.checks_every_step:
        check_kept(trajectory, start.scale)


def check_consistent(system: AbstractSystem, t: Array, q0: Array, v0: Array, scale: Scale) -> None:
    """Raise ``InputError``, naming the worst constraint, unless the starts are on the constraints.

    q0 and v0 are (n,), or (batch, n), at t (), or (batch,).
    """
    batch, times = q0.ndim == 2, np.broadcast_to(t, q0.shape[:-1] or (1,))
    residuals = _residuals(system, t, *((q0, v0, scale) if batch else jax.tree.map(lambda x: x[None], (q0, v0, scale))))
    t, q, v = jnp.asarray(times[0]), jnp.atleast_2d(q0)[0], jnp.atleast_2d(v0)[0]
    levels = (
        ("", lambda c: c.position(t, q), residuals[0]),
        ("the velocity of ", lambda c: c.velocity(t, q, v), residuals[1]),
    )
    tolerance = max(CONSISTENT, 100 * float(np.finfo(q.dtype).eps))
    for level, rows_of, pair in levels:
        residual, terms = (np.abs(np.asarray(x)) for x in pair)
        relative = residual / terms
        if relative.size and relative.max() > tolerance:
            labels = names(system, rows_of)
            member, i = np.unravel_index(int(relative.argmax()), relative.shape)
            subject = f"trajectory {member} starts" if batch else "the start is"
            raise InputError(
                f"{subject} off the constraints: at t = {times[member]:g} s {level}{labels[i]!r} is "
                f"{residual[member, i]:.3g}, not 0. Use q0, v0 = ukjax.project(model, t, q0, v0) for the nearest "
                "consistent start, or drift='none' with Baumgarte gains to approach the constraints during the motion"
            )


def check_differentiated(trajectory: Trajectory, problem: Problem, start: InitialState) -> None:
    """``check_finished`` for motions that JAX differentiates, if their results are known."""
    result = without_derivatives(trajectory.result)
    if is_concrete(result) and not all_ended_well(result):
        check_finished(*without_derivatives((trajectory, problem, start)))


def check_finished(trajectory: Trajectory, problem: Problem, start: InitialState) -> None:
    """Raise ``SimulationError`` unless every trajectory reached its last sample or its event."""
    if all_ended_well(trajectory.result):
        return
    finished = np.atleast_1d(np.asarray(ended_well(trajectory.result)))
    member = int(np.argmin(finished))
    of_member = lambda x: jnp.asarray(x).reshape(finished.size, *x.shape[trajectory.result.ndim :])[member]
    t, q, v = map(of_member, trajectory.last)
    scale = jax.tree.map(of_member, start.scale)
    failed = int((~finished).sum())
    subject = f"trajectory {member} ({failed} of {finished.size} failed)" if finished.size > 1 else "the motion"
    result = int(np.atleast_1d(np.asarray(trajectory.result))[member])
    if result == INCONSISTENT:
        samples = [of_member(x) for x in (trajectory.t, trajectory.q, trajectory.v)]
        _raise_contradiction(trajectory.equations, problem, subject, *samples)
    if result == MOST_STEPS:
        raise SimulationError(
            f"{subject} reached only t = {float(t):.6g} s in max_steps = {problem.max_steps} steps: increase "
            "max_steps, or take longer steps by a larger rtol or, for a stiff motion, by solver=ukjax.Radau(). "
            "throw=False returns what was computed"
        )
    if result == ACCUMULATED:
        raise SimulationError(
            f"{subject} ended at t = {float(t):.6g} s: its events follow one another in times as short as rounding. "
            "This happens when a body comes to rest by impacts, and when a reset does not lead away from the surface "
            "of its event. End the motion earlier, or use ukjax.Unilateral, whose contact then stays closed. "
            "throw=False returns what was computed"
        )
    if result == ON_EVENT and problem.event is None:
        raise SimulationError(
            f"{subject} starts on one of its events, at t = {float(t):.6g} s, and does not leave it: it rests there, "
            "or crosses zero at once in the direction that counts. Reverse its velocity first, as the reset does. "
            "throw=False returns what was computed"
        )
    if result == ON_EVENT and _rests(trajectory.equations, problem, t, q, v, scale):
        raise SimulationError(
            f"{subject} starts on its event, at t = {float(t):.6g} s, and returns to it in a step as short as "
            "rounding: the body rests on the surface of the event, as after impacts that become smaller and smaller. "
            "Continue with a model in which the surface is a constraint. throw=False returns what was computed"
        )
    if result == ON_EVENT:
        raise SimulationError(
            f"{subject} starts on its event, at t = {float(t):.6g} s, and does not leave it: it crosses zero at once "
            "in the direction that counts. Reverse its velocity first, as an impact does; or count the crossings of "
            "the other direction. throw=False returns what was computed"
        )
    if result == EVENT_NAN:
        raise SimulationError(
            f"{subject} ended at t = {float(t):.6g} s: the value of its event function is NaN there, so that a "
            "crossing cannot be detected. Look for a division by zero or a root of a negative number in the function. "
            "throw=False returns what was computed"
        )
    if result == OFF_TASK:
        raise SimulationError(
            f"{subject} is pushed off the task of its control by contact forces at t = {float(t):.6g} s: the control "
            "does not take them into account. Avoid the contact, or give the control projected=False and the task "
            "gains, ukjax.Holonomic(phi, *ukjax.critically_damped(...)). throw=False returns what was computed"
        )
    if result == OUT_OF_REACH:
        raise SimulationError(
            f"{subject} came to a task that its actuators cannot perform: see Trajectory.unreachable for the samples "
            "and the part of the task that is out of reach. throw=False returns what was computed"
        )
    if result == NO_CONTACT_MODE:
        time_stepping = isinstance(problem.solver, MoreauJean)
        other = "dt" if time_stepping else "coefficient, or solver=ukjax.MoreauJean() with dt"
        raise SimulationError(
            f"{subject} ended at t = {float(t):.6g} s: no forces of contacts and dry friction are consistent there, or "
            "the contact mode changes again and again without a step. Large coefficients of friction can be the reason "
            f"(Painlevé's problem): use a smaller {other}. throw=False returns what was computed"
        )
    if result == SEVERAL_CONTACT_MODES:
        raise SimulationError(
            f"{subject} ended at t = {float(t):.6g} s: a sliding contact may open or stay closed there. Both have "
            "consistent forces, so that the motion is not determined (Painlevé's problem). A smaller coefficient of "
            "friction avoids it. throw=False returns what was computed"
        )
    if result == ENERGY_GAINED:
        raise SimulationError(
            f"{subject} ended at t = {float(t):.6g} s: by the laws of Newton and Coulomb, an impact there would "
            "increase the energy (Kane's problem). Use restitution=0, less friction, or the same restitution for all "
            "contacts that take part. throw=False returns what was computed"
        )
    if result == SINGULAR_POSE:
        other_steps = (
            "Take fixed steps, dt=..., which pass such poses, and compare the motions with two values of dt"
            if problem.dt is None
            else "Take another dt or other samples, so that no step starts close to the pose. One motion without "
            "events, contacts, derivatives and jit passes it with any steps"
        )
        raise SimulationError(
            f"{subject} came to a singular pose at t = {float(t):.6g} s: constraints become dependent there, the "
            f"motion has several branches, and rounding errors would choose one. {other_steps}. throw=False returns "
            "what was computed"
        )
    if problem.projection and (result == JUMPED or result == TOO_SMALL and problem.dt is None):
        _raise_leap(trajectory.equations, problem, subject, t, q, v, scale)
    if result == OFF_CONSTRAINTS:
        if finished.size > 1:
            check_kept(trajectory, start.scale)
        _raise_residual(trajectory.equations, problem.method, subject, t, q, v, scale)
    impossible = _impossible(trajectory.equations, problem, t, q, v)
    if impossible:
        raise SimulationError(
            f"{subject} ended at t = {float(t):.6g} s: {impossible}. throw=False returns what was computed"
        )
    strongest = _strongest_constraint(trajectory.equations, t, q, v)
    if problem.dt is not None:
        raise SimulationError(
            f"{subject} failed after t = {float(t):.6g} s, in steps of dt = {float(problem.dt):g} s{strongest}. "
            "Take a smaller dt, or leave dt out for adaptive steps. If these fail there too, the constraints can no "
            "longer be satisfied, or forces grow without bound. throw=False returns what was computed"
        )
    raise SimulationError(
        f"{subject} ended at t = {float(t):.6g} s, since no step was small enough to continue{strongest}. "
        "The usual reasons are constraints that can no longer be satisfied (a path out of reach, a mechanism fully "
        "stretched), or forces that grow without bound. At a singular pose take fixed steps, dt=..., and compare the "
        "motions with two values of dt, or try method=ukjax.Orthogonal(rtol=1e-4). "
        "throw=False returns what was computed"
    )


def _raise_contradiction(model, problem, subject, t, q, v):
    """Raise ``SimulationError`` with the first sample at which constraints contradict each other, and their names."""
    for sample in zip(t, q, v, strict=True):
        residual, contradicting = _contradicting_rows(model, *sample, problem.method, problem.projection)
        if contradicting:
            break
    named = ": " + " and ".join(contradicting) if contradicting else ", or between that sample and others"
    raise SimulationError(
        f"{subject} has constraints that contradict each other at t = {float(sample[0]):.6g} s{named}. No "
        f"acceleration satisfies all of them: the nearest one violates one by {residual:.3g}. Remove the constraints "
        "that are not intended. throw=False returns the motion that satisfies them in the least-squares sense"
    )


def _contradicting_rows(model, t, q, v, method, projection):
    """The largest residual of A q̈ = b, and the names of the rows that contradict each other."""
    residual, mask = map(np.asarray, _contradiction(model, t, q, v, method, projection))
    labels = names_of(structure_of(model), lambda c: c.rows(t, q, v)[1]) if isinstance(model, AbstractSystem) else None
    name = lambda i: f"row {i} of A" if labels is None else repr(labels[i])
    return float(np.max(np.abs(residual), initial=0)), [name(i) for i in np.flatnonzero(mask)]


@jit_if_repeated
def _contradiction(model, t, q, v, method, projection):
    """A q̈ − b, and a mask of the contradicting rows."""
    terms, solution = model(t, q, v), acceleration(model, t, q, v, method, projection)
    relevant = acceleration_only_rows(model, projection, t, q, v)
    contradicting = inconsistent_rows(terms, solution.v_rate, method, pull_of(model, t, q, v))
    return terms.A @ solution.v_rate - terms.b, contradicting if relevant is True else contradicting & relevant


def _rests(model, problem, t, q, v, scale) -> bool:
    """Whether a motion that starts on its event does not cross it, except for rounding."""
    _, motion = _terms_and_acceleration(model, t, q, v, problem.method)
    slope, size = map(float, _slope_of_event(kinematic_map_of(model), problem.event, t, q, v, motion, scale))
    counted = problem.event.counted
    return (slope * counted if counted else -abs(slope)) <= float(np.finfo(q.dtype).eps) ** 0.5 * size


@jit_if_repeated
def _slope_of_event(kinematic_map, event, t, q, v, motion, scale):
    """The rate of the event's value, and its size for motions of this scale."""
    of_t, of_q, of_v = jax.grad(event, (0, 1, 2))(t, q, v)
    slope = of_t + of_q @ rate(kinematic_map, q, v) + of_v @ motion
    size = jnp.abs(of_t) + jnp.abs(of_q) @ speeds(kinematic_map, q, scale.v) + jnp.abs(of_v) @ scale.v / scale.t
    return slope, size


def warn_of_unarmed_event(trajectory: Trajectory, event: Event) -> None:
    """Warn once if a motion was on the far side of its event from the start, so that no crossing counted.

    The motion then reached its last time on the side to which it should have crossed.
    """
    finished = np.flatnonzero(np.atleast_1d(np.asarray(trajectory.finished)))
    if not event.counted or not finished.size:
        return
    ends = trajectory.last, (trajectory.t[..., 0], trajectory.q[..., 0, :], trajectory.v[..., 0, :])
    last, first = (np.atleast_1d(np.asarray(_values_of_event(event, *end))) for end in ends)
    rounding = 1e3 * np.finfo(last.dtype).eps * np.maximum(np.abs(first), np.abs(last))
    on_far_side = finished[(last * event.counted > rounding)[finished]]
    if not on_far_side.size:
        return
    i, is_batch = int(on_far_side[0]), trajectory.q.ndim == 3
    subject = f"trajectory {i} ({on_far_side.size} of {last.size})" if is_batch else "the motion"
    t = float(np.atleast_1d(np.asarray(trajectory.last[0]))[i])
    sides = ("below", "above") if event.counted < 0 else ("above", "below")
    warnings.warn(
        f"{subject} reached its last time, t = {t:.6g} s, without its event: the event's function is {first[i]:.3g} at "
        f"the start and {last[i]:.3g} at the end, {sides[0]} zero, and a {event.direction} crossing counts only after "
        f"the function has been {sides[1]} zero. Start on that side, or give an event without direction",
        stacklevel=3,
    )


@jit_if_repeated
def _values_of_event(event, t, q, v):
    return event(t, q, v) if q.ndim == 1 else jax.vmap(event)(t, q, v)


def _raise_leap(system, problem, subject, t, q, v, scale):
    """Raise ``SimulationError`` if no motion can follow the constraints in the next step."""
    step = 1e-9 * scale.t if problem.dt is None else problem.dt
    worst = worst_row(system, t + step, q + step * rate(kinematic_map_of(system), q, v), v, scale)
    if worst.of_position and worst.relative_size > CONSISTENT:
        raise SimulationError(
            f"{subject} ended at t = {float(t):.6g} s, where only a jump could satisfy its constraints: "
            f"{worst} is {worst.size:.3g} after the next step. A prescribed path must not jump, and a constraint that "
            "becomes active must be satisfied at that time: end the motion there, and start another from "
            "ukjax.project. If the steps are too long to follow, take a smaller dt. throw=False returns what was "
            "computed"
        )


def _impossible(model, problem, t, q, v) -> str:
    """The reason why there is no acceleration at the last valid state or slightly later; empty if there is one."""
    if not np.all(np.isfinite(np.concatenate([q, v]))):
        return ""
    ts, t = np.unique(np.asarray(problem.ts)), float(t)
    next_time = float(np.min(ts[ts > t], initial=ts[-1]))
    if problem.dt is None:  # the failed step may have had any length
        delays = (ts[-1] - ts[0]) * np.append(0, 10 ** np.linspace(-12, -1, 34))
    else:
        delays = np.linspace(0, max(float(problem.dt), next_time - t), 33)
    q_dot = np.asarray(rate(kinematic_map_of(model), jnp.asarray(q), jnp.asarray(v)))
    for h in delays:
        state = t + h, q + h * q_dot, v
        M, A = map(np.asarray, _mass_and_rows(model, *(jnp.asarray(x, q.dtype) for x in state)))
        context = f" at t = {float(state[0]):.6g} s", direction_names(model)
        complaint = complaint_of_mass(M, *context) or complaint_of_freedom(M, A, *context)
        if complaint:
            return complaint
    terms, acceleration = _terms_and_acceleration(model, t, q, v, problem.method)
    try:
        check_unique(terms, np.asarray(acceleration), type(problem.method).__name__, f" at t = {float(t):.6g} s")
    except ValueError as error:
        return str(error)
    return ""


@jit_if_repeated
def _mass_and_rows(model, t, q, v):
    terms = model(t, q, v)
    return terms.M, terms.A


def _strongest_constraint(model, t, q, v) -> str:
    """The constraint with the largest multiplier times the norm of its row, as a part of a message."""
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
    """q̈ of minimum norm from the multiplier equations, which may be singular: accurate enough to name a constraint."""
    m = b.size
    matrix = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    return np.linalg.lstsq(matrix, np.concatenate([Q, b]), rcond=None)[0][: Q.size]


def check_kept(trajectory: Trajectory, scale: Scale) -> None:
    """Raise ``SimulationError``, naming the first violation, unless the constraints hold at every sample."""
    system = trajectory.equations
    assert isinstance(system, AbstractSystem), "a bare function has no residuals to check"
    batched = lambda x, k: jnp.asarray(x).reshape(-1, *x.shape[-k:])
    t, q, v = (batched(x, k) for x, k in _sample_arrays(trajectory))
    scales = scale if trajectory.q.ndim == 3 else jax.tree.map(lambda x: x[None], scale)
    is_off = np.asarray(_is_off(system, t, q, v, scales))
    if is_off.any():
        member, sample = np.argwhere(is_off)[0]
        subject = f"trajectory {member}" if len(t) > 1 else "the motion"
        t, q, v = (x[member, sample] for x in (t, q, v))
        _raise_residual(system, trajectory.method, subject, t, q, v, jax.tree.map(lambda x: x[member], scales))


@jit_if_repeated
def _is_off(system, t, q, v, scale):
    """Mask of the samples of a batch that are off their constraints."""

    def is_violated(scale, t, q, v):
        return scale.relative_violation(system.violation(t, q, v)) > scale.max_violation(q)

    return jax.vmap(lambda scale, *of: jax.lax.map(lambda sample: is_violated(scale, *sample), of))(scale, t, q, v)


def _raise_residual(system, method, subject, t, q, v, scale):
    worst = worst_row(system, t, q, v, scale)
    contradicting = _contradicting_rows(system, t, q, v, method, projection=False)[1]
    reason = (
        f"There {' and '.join(contradicting)} contradict each other: no acceleration satisfies all of them"
        if len(contradicting) > 1
        else "Either the constraints cannot be satisfied from there on (a path out of reach), or the pose is singular"
    )
    raise SimulationError(
        f"{subject} leaves its constraints at t = {float(t):g} s: {worst} has residual {worst.size:.3g}. {reason}. "
        "throw=False returns what was computed"
    )


def _sample_arrays(trajectory):
    return (trajectory.t, 1), (trajectory.q, 2), (trajectory.v, 2)
