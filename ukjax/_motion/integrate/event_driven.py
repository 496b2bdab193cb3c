"""Motions with contacts and dry friction, by steps that end where the contact mode changes.

Between two changes the motion is smooth: closed gaps and sticking friction act as constraints. A step that ends beyond
a change is repeated with a shorter length, aimed at the change along a cubic polynomial (gaps) or lines (forces and
slips), until a step ends within rounding of it. There the transition computes impacts and the next mode. Each member of
a batch has its own steps, modes and instants.

Derivatives are those of the steps and transitions. An instant depends on the state before it: a Newton iteration of
value zero adds the derivatives of the root. So a derivative of the motion contains the saltation matrix
Ξ = DR + (f⁺ − DR f⁻) ∇gᵀ / (∇g · f⁻) of each change.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._contact.crossing import GapCrossing, first_crossing, first_release
from ..._contact.history import MAX_IMPACTS, ContactHistory
from ..._contact.mode import ContactMode, InContact, all_open, event_values, forces_in
from ..._contact.rows import gaps
from ..._contact.transition import directions_along, settle, transition
from ..._kinematic_map import rate
from ..._run.compile import jit_batch
from ..._solve import AbstractMethod
from ..event import Step, on_surface
from ..fallback.policy import solve_eagerly
from ..plan import Plan
from ..problem import SMALLEST_STEP, InitialState, Problem, Solution, StepCounts
from ..result import NEEDS_FALLBACK, RUNNING, classify, finite, reached_last_time, reached_times
from ..stepper.contact_setting import compiled, setting_of
from ..stepper.drift_correction import MethodPerLevel, assumption_failed_for
from ..stepper.error_control import control_error
from ..stepper.model_batch import SingleModel
from ..stepper.runge_kutta import acceleration, step
from ..stepper.tableau import Tableau
from .base import AbstractBatchIntegrator

MIN_CELLS, CELLS_OF_MOTION = 8, 512
"""Numbers of cells in which gaps are evaluated: in a step at least, and in the whole time. Forces are evaluated at as
many points of the whole time, and at the end of each step."""

MAX_CHANGES_AT_ONCE = 12
"""Changes of the mode at one instant, after which the motion ends: no mode is consistent."""

MAX_STEPS_OF_LOOP = 1_000_000
"""Largest number of steps of ``contact_loop``."""

CHECKPOINTS = 256
"""Largest number of states saved for a derivative in reverse mode."""


class EventDriven(AbstractBatchIntegrator):
    """Integrator for systems with contacts and dry friction, see the module."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        if plan.eager:
            return solve_eagerly(_solve, problem, start, plan)
        return (_solve_forward if plan.differentiation == "forward" else _solve_reverse)(start, problem)


class LoopState(NamedTuple):
    """State of the loop over time.

    Attributes
    ----------
    t
        Time since the start [s].
    h
        Next step size [s].
    wanted
        Step size that the error estimate suggests [s].
    sample, taken
        Index of the next sample, and number of fixed steps taken since the sample before.
    q, v, mode
        State and contact mode.
    values
        Event values at the state.
    at_once
        Number of changes of the mode since the last step of positive length.
    steps
        Number of steps; −1 before the start is projected onto the constraints.
    result
        Code of ``_motion.result``.
    inconsistent
        Whether constraints contradicted each other so far.
    grazing
        Whether a gap touched zero without speed so far.
    """

    t: Float[Array, ""]
    h: Float[Array, ""]
    wanted: Float[Array, ""]
    sample: Int[Array, ""]
    taken: Int[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    mode: ContactMode
    values: Float[Array, " events"]
    at_once: Int[Array, ""]
    steps: Int[Array, ""]
    result: Int[Array, ""]
    inconsistent: Bool[Array, ""]
    grazing: Bool[Array, ""]


class Output(NamedTuple):
    """Samples and impacts so far, as the fields of ``ContactHistory``."""

    state: Float[Array, "samples nq+n"]
    closed: Bool[Array, "samples gaps"]
    sticking: Bool[Array, "samples groups"]
    direction: Float[Array, "samples groups dim"]
    impact_times: Float[Array, " stored"]
    impulses: Float[Array, "stored rows"]
    impacts: Int[Array, ""]
    changes: Int[Array, ""]


WRITTEN = "state", "closed", "sticking", "direction", "impact_times", "impulses"
"""Fields of ``Output`` that are written entry by entry."""


class Entries(NamedTuple):
    """Output of one step: its end, if it ``landed`` on a sample, and an impact."""

    sample: Int[Array, ""]
    landed: Bool[Array, ""]
    state: Float[Array, " nq+n"]
    mode: ContactMode
    is_impact: Bool[Array, ""]
    time: Float[Array, ""]
    impulse: Float[Array, " rows"]
    changed: Bool[Array, ""]


def _write(output, entries, put):
    at, landed = entries.sample, entries.landed
    stores = entries.is_impact & (output.impacts < MAX_IMPACTS)
    return Output(
        state=put(output.state, at, entries.state, landed),
        closed=put(output.closed, at, entries.mode.closed, landed),
        sticking=put(output.sticking, at, entries.mode.sticking, landed),
        direction=put(output.direction, at, entries.mode.direction, landed),
        impact_times=put(output.impact_times, output.impacts, entries.time, stores),
        impulses=put(output.impulses, output.impacts, entries.impulse, stores),
        impacts=output.impacts + entries.is_impact,
        changes=output.changes + entries.changed,
    )


def _put(into, index, value, wanted):
    return into.at[jnp.where(wanted, index, len(into))].set(value, mode="drop")


def _forward_loop(is_running, body, write, state):
    def iterate(state):
        loop_state, output = state
        loop_state, entries = body(loop_state)
        return loop_state, write(output, entries, _put)

    return jax.lax.while_loop(lambda state: is_running(state[0]), iterate, state)


def _reversible_loop(is_running, body, write, state, compile_body):
    """A loop that can be differentiated in reverse mode. Only states are saved, not the outputs."""
    put = lambda into, index, value, wanted: into.at[index].set(value, pred=wanted)
    body = compile_body(body)

    def iterate(state):
        loop_state, output = state
        loop_state, entries = body(loop_state)
        return loop_state, write(output, entries, put)

    outputs = lambda state: tuple(getattr(state[1], name) for name in WRITTEN)
    running = lambda state: is_running(state[0])
    return eqxi.while_loop(running, iterate, state, kind="checkpointed", checkpoints=CHECKPOINTS, buffers=outputs)


@jit_batch
def _solve(start, problem):
    one = lambda start, ts: _solve_one(problem, start, ts, _forward_loop, derivatives=False)
    return _for_each(compiled(one, problem.model, start), start, problem)


@jit_batch
def _solve_forward(start, problem):
    one = lambda start, ts: _solve_one(problem, start, ts, _forward_loop, derivatives=True)
    return _for_each(compiled(one, problem.model, start), start, problem)


@jit_batch
def _solve_reverse(start, problem):
    loop = partial(_reversible_loop, compile_body=lambda body: compiled(body, problem.model, start))
    one = lambda start, ts: _solve_one(problem, start, ts, loop, derivatives=True)
    return _for_each(one, start, problem)


def _for_each(one, start, problem):
    if start.q.ndim == 1:
        return one(start, problem.ts)
    return jax.vmap(one, in_axes=(0, 0 if problem.ts.ndim == 2 else None))(start, problem.ts)


def contact_loop(
    model: Any,
    start: InitialState,
    ts: Float[Array, " samples"],
    per_interval: Int[Array, " intervals"],
    method: AbstractMethod | MethodPerLevel,
    tableau: Tableau,
) -> tuple[Array, Array, Bool[Array, ""]]:
    """q and v at the samples of one motion with fixed steps, and whether another method is needed.

    It has derivatives in forward mode. The motion is NaN after its end.
    """
    counts = StepCounts(per_interval, most=0)  # the loop needs no largest number
    problem = Problem(
        model,
        ts,
        dt=None,
        counts=counts,
        rtol=jnp.zeros((), ts.dtype),
        atol=None,
        method=method.acceleration if isinstance(method, MethodPerLevel) else method,
        solver=None,
        adjoint=None,
        event=None,
        tableau=tableau,
        projection=True,
        max_steps=MAX_STEPS_OF_LOOP,
        progress=False,
        attempt=method,
    )
    solution = _solve_one(problem, start, ts, _forward_loop, derivatives=True)
    return solution.q, solution.v, solution.result == NEEDS_FALLBACK


def _solve_one(problem, start, ts, loop, derivatives):
    model, q0, v0, scale = problem.model_of(start.numbers), start.q, start.v, start.scale
    setting = setting_of(model, problem.current_method, ts[0], q0, v0, scale)
    state = _initial_state(setting.layout, q0, v0), _initial_output(setting.layout, ts.size, q0, v0)
    is_running = lambda state: state.result == RUNNING
    body = lambda state: _iterate(problem, setting, ts, scale, derivatives, state)
    last, output = loop(is_running, body, _write, state)
    reached = (jnp.arange(ts.size) < last.sample)[:, None]
    q, v = jnp.split(jnp.where(reached, output.state, jnp.nan), [q0.size], axis=1)
    finished = reached_last_time(last.result)
    return Solution(
        t=reached_times(ts, q, v),
        q=q,
        v=v,
        result=last.result,
        steps=last.steps,
        last=(jnp.where(finished, ts[-1], ts[0] + last.t), last.q, last.v),
        displaced=start.displaced(jnp, q[0], v0),  # an impact at the start may change v
        contacts=ContactHistory(
            output.closed, output.sticking, output.direction, output.impact_times, output.impulses,
            output.impacts, output.changes, last.grazing,
        ),
    )  # fmt: skip


def _initial_state(layout, q, v):
    zero, count = jnp.zeros((), q.dtype), lambda x: jnp.asarray(x, np.int32)
    values = jnp.zeros(layout.gaps + layout.groups, q.dtype)
    return LoopState(
        zero, zero, zero, count(0), count(0), q, v, all_open(layout, q.dtype), values, count(0), count(-1),
        count(RUNNING), jnp.asarray(False), jnp.asarray(False),
    )  # fmt: skip


def _initial_output(layout, samples, q, v):
    zeros = lambda *shape: jnp.zeros(shape, q.dtype)
    none = lambda *shape: jnp.zeros(shape, bool)
    return Output(
        state=zeros(samples, q.size + v.size),
        closed=none(samples, layout.gaps),
        sticking=none(samples, layout.groups),
        direction=zeros(samples, layout.groups, layout.dim),
        impact_times=zeros(MAX_IMPACTS) + jnp.nan,
        impulses=zeros(MAX_IMPACTS, layout.rows),
        impacts=jnp.zeros((), np.int32),
        changes=jnp.zeros((), np.int32),
    )


class Outlook(NamedTuple):
    """Event values at the end of a step.

    Attributes
    ----------
    values
        Event values there (events,).
    beyond
        Whether the step ends beyond a change of the mode, or crosses one.
    aim
        Length of a shorter step to that change [s].
    met
        The events that the step ends on (events,).
    grazes
        Whether an open gap touches zero without speed.
    """

    values: Float[Array, " events"]
    beyond: Bool[Array, ""]
    aim: Float[Array, ""]
    met: Bool[Array, " events"]
    grazes: Bool[Array, ""]


def _outlook(setting, mode, values, forces, step_taken: Step, t0, h, share_of_motion, first):
    """Look for a change of the mode along a step."""
    layout = setting.layout
    new, rounding = jax.lax.stop_gradient(event_values(forces, mode, layout, setting.gap_rounding, setting.rate_size))
    is_open = jnp.concatenate([~mode.closed, jnp.zeros(layout.groups, bool)])

    # Open gaps along the cubic polynomial of the step.
    crossing = GapCrossing(jnp.asarray(False), jnp.ones_like(h), jnp.asarray(False))
    if layout.gaps:
        cells = jnp.clip(jnp.ceil(CELLS_OF_MOTION * share_of_motion), MIN_CELLS, CELLS_OF_MOTION).astype(jnp.int32)
        gaps_at = lambda x: _gaps_along(setting, step_taken, t0, x)
        crossing = first_crossing(gaps_at, ~mode.closed, rounding[: layout.gaps], setting.grazing, cells)

    # Forces and slips, which may vanish and return within a step in which nothing moves.
    def values_at(x):
        t, q, v = step_taken.at(x)
        along = InContact(setting.system, mode, layout, setting.method).forces(t0 + t, q, v)
        return event_values(along, mode, layout, setting.gap_rounding, setting.rate_size).value

    release_cells = jnp.where(mode.acts(), jnp.ceil(share_of_motion * CELLS_OF_MOTION), 1).astype(jnp.int32)
    release = first_release(values_at, ~is_open, rounding, values, new, release_cells)
    beyond = ~first & (crossing.found | release.found)
    aim = h * jnp.minimum(crossing.fraction, release.fraction)

    falls = (values > rounding) & (new < values)
    approaches = jnp.concatenate([layout.split(forces.contacts.rate)[0] < 0, jnp.zeros(layout.groups, bool)])
    met = ~first & ~beyond & (new <= rounding) & jnp.where(is_open, approaches, falls)
    return Outlook(new, beyond, aim, met, crossing.grazes)


def _grazes(setting, met, speeds, after):
    """Whether a gap closes at its speed that would open again before it is negative by ``setting.grazing``."""
    count = setting.layout.gaps
    speed, opening = speeds[:count], after.response.free[:count]
    return jnp.any(met[:count] & (speed < 0) & (opening > 0) & (speed**2 <= 2 * opening * setting.grazing))


def _gaps_along(setting, step_taken, t0, x):
    """The gaps at the fraction x of a step; at its end they are exact, with their slopes."""
    t, q, _ = step_taken.at(x)
    h, q_dot = step_taken.t1 - step_taken.t0, rate(step_taken.kinematic_map, step_taken.q1, step_taken.v1)
    q = jnp.where(x < 1, q, step_taken.q1 + (x - 1) * h * q_dot)
    return gaps(setting.system.nonsmooth, t0 + t, q)


def _iterate(problem, setting, ts, scale, derivatives, state: LoopState) -> tuple[LoopState, Entries]:
    """One step, and the change of the mode at its end if there is one."""
    layout, system, method = setting.layout, setting.system, problem.current_method
    t0, times, least = ts[0], ts - ts[0], SMALLEST_STEP * (ts[-1] - ts[0])
    t, q, v, mode, sample = state.t, state.q, state.v, state.mode, state.sample
    first = state.steps < 0
    target, is_sample = times[sample], jnp.asarray(True)
    if problem.counts is not None:
        before = times[jnp.maximum(sample - 1, 0)]
        count = jnp.concatenate([jnp.ones(1, np.int32), problem.counts.per_interval])[sample]
        is_sample = state.taken + 1 >= count
        target = jnp.where(is_sample, target, before + (state.taken + 1) * (target - before) / count)
    remaining = target - t
    shorter = jax.lax.stop_gradient(jnp.minimum(state.h, remaining))
    lands = first | (state.h >= jax.lax.stop_gradient(remaining))
    h = jnp.where(first, 0, jnp.where(lands, remaining, shorter))

    model = InContact(system, mode, layout, setting.method)
    stepped = step(SingleModel(model), t0 + t, h, q, v, method, problem.tableau, problem.projection, scale)
    t1 = jnp.where(lands, target, t + h)
    if problem.counts is None:
        control = control_error(q, v, stepped, problem.tableau, problem.tolerance(scale), scale, h, jnp.asarray(False))
        # A jump onto the constraints is repeated with a shorter step, as an error is.
        good, fine = control.good & ~stepped.jumped | first, control.fine(h * control.factor, least)
        following = h * jnp.where(stepped.jumped, jnp.minimum(control.factor, 0.5), control.factor)
        following = jnp.where(first, jnp.maximum(control.first, 1e3 * least), following)
    else:
        good = fine = jnp.asarray(True)
        following = jnp.asarray(jnp.inf, q.dtype)
    q1, v1, contacts, response = settle(setting, t0 + t1, stepped.q, stepped.v, mode)
    fine = fine & (~good | finite(q1, v1))

    hermite = Step(t, q, v, t1, q1, v1, system.kinematic_map)
    forces = forces_in(mode, contacts, response, layout)
    inputs = jax.lax.stop_gradient((forces, hermite, t0, h, h / times[-1]))
    outlook = _outlook(setting, mode, state.values, *inputs, first)
    resolution = setting.time_rounding / 4
    at_resolution = jax.lax.stop_gradient(h) <= resolution
    forced = outlook.beyond & at_resolution
    accepted = good & fine & (~outlook.beyond | forced) & ~stepped.jumped
    met = jnp.where(forced, outlook.values < 0, outlook.met)
    changes = accepted & (first | jnp.any(met))

    # A step that was shortened does not show the step size that the motion would allow.
    grown = jnp.where(accepted & (h < state.wanted), jnp.maximum(state.wanted, following), following)
    wanted = jax.lax.stop_gradient(jnp.where(good & ~accepted, state.wanted, grown))

    def change(t1, q1, v1):
        tm, qm, vm = t0 + t1, q1, v1
        if derivatives:
            event = lambda t, q, v: _event_value(setting, mode, jnp.argmax(met), t, q, v)
            v_dot = lambda t, q, v: acceleration(model, t, q, v, setting.method, problem.projection).v_rate
            tm, qm, vm = on_surface(event, system.kinematic_map, v_dot, tm, qm, vm, jnp.any(met) & ~first)
        released = met & jnp.concatenate([mode.closed, mode.sticking])
        after = transition(setting, tm, qm, vm, mode, released, derivatives)
        forces = forces_in(after.mode, after.contacts, after.response, layout)
        values = event_values(forces, after.mode, layout, setting.gap_rounding, setting.rate_size).value
        following = jnp.minimum(wanted, _flight(setting, forces, after.mode))
        needs_fallback = after.response.needs_fallback
        grazes = outlook.grazes | _grazes(setting, met, contacts.rate, after)
        faults = jnp.stack([~after.solved, after.several, after.gains])
        return tm - t0, qm, after.v, after.mode, values, after.impulse, faults, following, needs_fallback, grazes

    def keep(t1, q1, v1):
        faults, impulse = jnp.zeros(3, bool), jnp.zeros(layout.rows, q.dtype)
        return t1, q1, v1, mode, outlook.values, impulse, faults, wanted, jnp.asarray(False), outlook.grazes

    t1, q1, v1, new_mode, values, impulse, faults, after_step, change_needs_fallback, grazes = jax.lax.cond(
        changes, change, keep, t1, q1, v1
    )
    needs_fallback = method.has_fallback & (
        stepped.beyond(method) | response.needs_fallback | change_needs_fallback | assumption_failed_for(setting.method)
    )
    values = jax.lax.stop_gradient(values)

    advances = accepted & (jax.lax.stop_gradient(h) > resolution)
    at_once = jnp.where(changes, jnp.where(advances, 0, state.at_once) + 1, jnp.where(advances, 0, state.at_once))
    landed = accepted & lands & (first | is_sample)
    sample_done = sample + landed
    next_h = jnp.where(accepted | ~good, after_step, jnp.clip(outlook.aim, resolution, 0.999 * h))
    stuck = ~accepted & ~good & (following < least)
    inside = first & jnp.any(contacts.gap < -setting.max_penetration)
    unsolved, several_modes, gains_energy = faults
    no_mode = (unsolved | (at_once > MAX_CHANGES_AT_ONCE)) & accepted
    several_modes, gains_energy = several_modes & accepted, gains_energy & accepted
    ends_here = no_mode | several_modes | gains_energy
    result = classify(
        finished=(sample_done >= ts.size) & ~ends_here & ~stepped.off & ~inside,
        no_mode=no_mode,
        several_modes=several_modes,
        gains_energy=gains_energy,
        needs_fallback=needs_fallback & (accepted | ~fine),
        jumped=stepped.jumped & (stuck if problem.counts is None else True),
        off=accepted & stepped.off | inside,
        not_finite=~fine,
        stuck=stuck,
        exhausted=state.steps + 1 >= problem.max_steps,
        inconsistent=state.inconsistent | (accepted & stepped.inconsistent),
    )
    choose = lambda new, old: jax.tree.map(lambda x, y: jnp.where(accepted, x, y), new, old)
    is_impact = accepted & jnp.any(impulse != 0)
    entries = Entries(
        sample=sample, landed=landed, state=jnp.concatenate([q1, v1]), mode=new_mode, is_impact=is_impact, time=t0 + t1,
        impulse=impulse, changed=changes & ~first,
    )  # fmt: skip
    turned = jax.lax.cond(changes, lambda: new_mode, lambda: _turned(setting, new_mode, t0 + t1, q1, v1))
    state = LoopState(
        t=choose(t1, t),
        h=jax.lax.stop_gradient(next_h),
        wanted=wanted,
        sample=sample_done,
        taken=jnp.where(landed, 0, state.taken + (accepted & lands & ~first)),
        q=choose(q1, q),
        v=choose(v1, v),
        mode=choose(turned, mode),
        values=choose(values, state.values),
        at_once=at_once,
        steps=state.steps + 1,
        result=result,
        inconsistent=state.inconsistent | (accepted & stepped.inconsistent),
        grazing=state.grazing | (accepted & grazes),
    )
    return state, entries


def _flight(setting, forces, mode):
    """Time until a gap that has just opened would close again, at constant acceleration."""
    layout, response = setting.layout, forces.response
    rate = layout.split(forces.contacts.rate)[0]
    falling = -layout.split(response.W @ forces.force + response.free)[0]
    returns = ~mode.closed & (forces.contacts.gap <= setting.gap_rounding) & (rate > 0) & (falling > 0)
    return jnp.min(jnp.where(returns, 2 * rate / jnp.where(returns, falling, 1), jnp.inf), initial=jnp.inf)


def _turned(setting, mode, t, q, v):
    """The mode with the directions of slip in space as they are now."""
    if setting.layout.dim == 1:
        return mode
    return directions_along(mode, setting.contacts(t, q, v), setting.layout)


def _event_value(setting, mode, index, t, q, v):
    """The value of one event, differentiable."""
    forces = InContact(setting.system, mode, setting.layout, setting.method).forces(t, q, v)
    return event_values(forces, mode, setting.layout, setting.gap_rounding, setting.rate_size).value[index]
