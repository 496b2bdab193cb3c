"""Motions with contacts, dry friction and events, by steps that end where the contact mode changes, and on events.

Between two changes the motion is smooth: closed gaps and sticking friction act as constraints. A step that ends beyond
a change is repeated with a shorter length, aimed at the change along a cubic polynomial (gaps and events) or lines
(forces and slips), until a step ends within rounding of it. There the resets of events are applied, and the transition
computes impacts and the next mode. Each member of a batch has its own steps, modes and instants. With sampled control
steps also end on its stops, where the transition computes the mode for the next inputs (see ``schedule``).

Derivatives are those of the steps and transitions. An instant depends on the state before it: a Newton iteration of
value zero adds the derivatives of the root. So a derivative of the motion contains the saltation matrix
Ξ = DR + (f⁺ − DR f⁻) ∇gᵀ / (∇g · f⁻) of each change.
"""

import math
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
from ..._contact.rows import gaps, layout_of
from ..._contact.transition import directions_along, settle, transition
from ..._jaxpr.tracing import without_derivatives
from ..._kernel import per_member_forward
from ..._kinematic_map import rate
from ..._run.compile import jit_batch
from ..._solve import AbstractMethod
from ..._system import Driven, kinematic_map_of, nonsmooth_of
from ..event import MAX_EVENTS, EventHistory, Step, check_event, names_of, on_surface
from ..fallback.policy import solve_differentiated, solve_eagerly
from ..plan import Plan
from ..problem import SMALLEST_STEP, InitialState, Problem, Solution, StepCounts
from ..result import NEEDS_FALLBACK, RUNNING, classify, finite, reached_last_time, reached_times
from ..stepper.contact_setting import compiled, pushed_off_task, setting_of
from ..stepper.drift_correction import MethodPerLevel, assumption_failed_for, correct_drift, methods_at
from ..stepper.error_control import control_error
from ..stepper.model_batch import SingleModel
from ..stepper.runge_kutta import acceleration, step
from ..stepper.singular_turn import in_doubt, is_close, turned
from ..stepper.tableau import Tableau
from .base import AbstractBatchIntegrator
from .schedule import SampledInputs, ScheduledStops, nothing_sampled, scheduled_stops
from .surfaces import Outlook, Surfaces

MIN_CELLS, CELLS_OF_MOTION = 8, 512
"""Numbers of cells in which gaps and events are evaluated: in a step at least, and in the whole time. Forces are
evaluated at as many points of the whole time, and at the end of each step."""

MAX_CHANGES_AT_ONCE = 12
"""Changes at one instant, after which the motion ends: no mode is consistent, or events accumulate."""

MAX_STEPS_OF_LOOP = 1_000_000
"""Largest number of steps of ``contact_loop``."""

CHECKPOINTS = 256
"""Largest number of states saved for a derivative in reverse mode."""


class EventDriven(AbstractBatchIntegrator):
    """Integrator for motions with contacts, dry friction and events, see the module."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        problem = problem.without_largest_count
        if plan.eager:
            return solve_eagerly(_solve, problem, start, plan)
        solve = _solve_forward if plan.differentiation == "forward" else _solve_reverse
        return solve_differentiated(lambda problem, start: solve(start, problem), problem, start, plan)


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
    stop, taken
        Index of the next stop, a sample or a stop of sampled control, and number of fixed steps taken since the stop
        before.
    q, v, mode
        State and contact mode.
    values
        Values at the state that are positive as long as the contact mode holds.
    side
        The side of each event, see ``Surfaces``.
    at_once
        Number of changes since the last step of positive length.
    steps
        Number of steps; −1 before the start is projected onto the constraints.
    result
        Code of ``_motion.result``.
    inconsistent
        Whether constraints contradicted each other so far.
    grazing
        Whether a gap touched zero without speed so far.
    close
        Whether the state is close to a singular pose, see ``singular_turn.py``.
    held
        Held inputs of sampled control, otherwise None.
    """

    t: Float[Array, ""]
    h: Float[Array, ""]
    wanted: Float[Array, ""]
    stop: Int[Array, ""]
    taken: Int[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    mode: ContactMode
    values: Float[Array, " values"]
    side: Float[Array, " events"]
    at_once: Int[Array, ""]
    steps: Int[Array, ""]
    result: Int[Array, ""]
    inconsistent: Bool[Array, ""]
    grazing: Bool[Array, ""]
    close: Bool[Array, ""]
    held: SampledInputs | None


class Output(NamedTuple):
    """States at stops, impacts and events so far, with the fields of ``ContactHistory`` and ``EventHistory``.

    ``state`` has q, v, and the held inputs of sampled control.
    """

    state: Float[Array, "stops nq+n+p"]
    closed: Bool[Array, "stops gaps"]
    sticking: Bool[Array, "stops groups"]
    direction: Float[Array, "stops groups dim"]
    impact_times: Float[Array, " stored"]
    impulses: Float[Array, "stored rows"]
    event_times: Float[Array, " instants"]
    event_states: Float[Array, "instants nq+n"]
    met: Bool[Array, "instants events"]
    impacts: Int[Array, ""]
    changes: Int[Array, ""]
    instants: Int[Array, ""]
    counts: Int[Array, " events"]


WRITTEN = (
    "state",
    "closed",
    "sticking",
    "direction",
    "impact_times",
    "impulses",
    "event_times",
    "event_states",
    "met",
)
"""Fields of ``Output`` that are written entry by entry."""


class Entries(NamedTuple):
    """Output of one step: its end, if it ``landed`` on a stop, an impact, and the events that it ``met``, with the
    state ``before`` them."""

    stop: Int[Array, ""]
    landed: Bool[Array, ""]
    state: Float[Array, " nq+n+p"]
    mode: ContactMode
    is_impact: Bool[Array, ""]
    time: Float[Array, ""]
    impulse: Float[Array, " rows"]
    changed: Bool[Array, ""]
    met: Bool[Array, " events"]
    before: Float[Array, " nq+n"]


def _write(output, entries, put_entry):
    put = lambda into, *entry: put_entry(into, *entry) if math.prod(into.shape) else into
    at, landed = entries.stop, entries.landed
    stores = entries.is_impact & (output.impacts < MAX_IMPACTS)
    is_event = jnp.any(entries.met)
    records = is_event & (output.instants < MAX_EVENTS)
    return Output(
        state=put(output.state, at, entries.state, landed),
        closed=put(output.closed, at, entries.mode.closed, landed),
        sticking=put(output.sticking, at, entries.mode.sticking, landed),
        direction=put(output.direction, at, entries.mode.direction, landed),
        impact_times=put(output.impact_times, output.impacts, entries.time, stores),
        impulses=put(output.impulses, output.impacts, entries.impulse, stores),
        event_times=put(output.event_times, output.instants, entries.time, records),
        event_states=put(output.event_states, output.instants, entries.before, records),
        met=put(output.met, output.instants, entries.met, records),
        impacts=output.impacts + entries.is_impact,
        changes=output.changes + entries.changed,
        instants=output.instants + is_event,
        counts=output.counts + entries.met,
    )


def _put(into, index, value, wanted):
    """``into`` with row ``index`` replaced if ``wanted``. Kernels update slices in place; scatters compare each row."""
    old = jax.lax.dynamic_index_in_dim(into, index, keepdims=False)
    return jax.lax.dynamic_update_index_in_dim(into, jnp.where(wanted, value, old), index, 0)


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
    kernel = lambda loop: compiled(loop, problem.model, start.q, start.v)
    one = lambda start, ts: _solve_one(problem, start, ts, _forward_loop, False, kernel)
    return _for_each(one, start, problem)


@jit_batch
def _solve_forward(start, problem):
    kernel = lambda loop: compiled(loop, problem.model, start.q, start.v, per_member_forward)
    one = lambda start, ts: _solve_one(problem, start, ts, _forward_loop, True, kernel)
    return _for_each(one, start, problem)


@jit_batch
def _solve_reverse(start, problem):
    loop = partial(_reversible_loop, compile_body=lambda body: compiled(body, problem.model, start.q, start.v))
    one = lambda start, ts: _solve_one(problem, start, ts, loop, True)
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
    solution = _solve_one(problem, start, ts, _forward_loop, True)
    return solution.q, solution.v, solution.result == NEEDS_FALLBACK


def _solve_one(problem, start, ts, loop, derivatives, compile_loop=lambda loop: loop):
    """The solution for one start. ``compile_loop`` is applied to the loop alone: a kernel writes out operations on the
    samples one by one."""
    q0, v0, schedule = start.q, start.v, problem.schedule
    for event in problem.events:
        check_event(event, ts[0], q0, v0)
    layout = layout_of(nonsmooth_of(problem.model), ts[0], q0, v0)
    events = len(problem.events)

    def run(start, ts):
        model, q, v, scale = problem.model_of(start.numbers), start.q, start.v, start.scale
        setting = setting_of(model, problem.current_method, ts[0], q, v, scale)
        surfaces = Surfaces.of(problem.events, kinematic_map_of(model), scale, ts[0], q, v)
        held = None if schedule is None else nothing_sampled(model, schedule, ts[0], q, v)
        stops = scheduled_stops(model, schedule, ts)
        state = _initial_state(layout, events, q, v, held), _initial_output(layout, events, stops, q, v, held)
        is_running = lambda state: state.result == RUNNING
        body = lambda state: _iterate(problem, setting, surfaces, stops, scale, derivatives, state)
        return loop(is_running, body, _write, state)

    last, output = compile_loop(run)(start, ts)
    reached = (jnp.arange(len(output.state)) < last.stop)[:, None]
    state, modes = jnp.where(reached, output.state, jnp.nan), (output.closed, output.sticking, output.direction)
    if schedule is not None:
        state, modes = jax.tree.map(lambda x: x[schedule.places], (state, modes))
    split = lambda state: jnp.split(state, [q0.size, q0.size + v0.size], axis=1)
    (q, v, u), (q_before, v_before, _) = split(state), split(output.event_states)
    finished = reached_last_time(last.result)
    end = jnp.where(finished, ts[-1], ts[0] + last.t), last.q, last.v
    displaced = start.displaced(jnp, q[0], v0)  # an impact at the start may change v
    t, modes = reached_times(ts, q, v), ContactMode(*modes)
    if any(event.is_end for event in problem.events):  # where it ended is an additional sample
        with_end = lambda xs, x: jnp.concatenate([xs, x[None]])
        (t, q, v), modes = jax.tree.map(with_end, ((t, q, v), modes), (end, last.mode))
        u = u if last.held is None else with_end(u, last.held.u)
    impacts = output.impact_times, output.impulses, output.impacts, output.changes, last.grazing
    contacts = ContactHistory(modes.closed, modes.sticking, modes.direction, *impacts)
    names = names_of(problem.events)
    history = EventHistory(output.event_times, q_before, v_before, output.met, output.counts, names)
    return Solution(
        t=t,
        q=q,
        v=v,
        result=last.result,
        steps=last.steps,
        last=end,
        displaced=displaced,
        contacts=contacts if layout.rows else None,
        events=history if events else None,
        held=None if schedule is None else u,
    )


def _initial_state(layout, events, q, v, held):
    zero, count = jnp.zeros((), q.dtype), lambda x: jnp.asarray(x, np.int32)
    values, side = jnp.zeros(layout.gaps + layout.groups, q.dtype), jnp.zeros(events, q.dtype)
    return LoopState(
        zero, zero, zero, count(0), count(0), q, v, all_open(layout, q.dtype), values, side, count(0), count(-1),
        count(RUNNING), jnp.asarray(False), jnp.asarray(False), jnp.asarray(False), held,
    )  # fmt: skip


def _initial_output(layout, events, stops, q, v, held):
    samples, inputs = stops.time.size, 0 if held is None else held.u.size
    zeros = lambda *shape: jnp.zeros(shape, q.dtype)
    none = lambda *shape: jnp.zeros(shape, bool)
    counts = lambda *shape: jnp.zeros(shape, np.int32)
    stored, instants = MAX_IMPACTS if layout.rows else 0, MAX_EVENTS if events else 0
    return Output(
        state=zeros(samples, q.size + v.size + inputs),
        closed=none(samples, layout.gaps),
        sticking=none(samples, layout.groups),
        direction=zeros(samples, layout.groups, layout.dim),
        impact_times=zeros(stored) + jnp.nan,
        impulses=zeros(stored, layout.rows),
        event_times=zeros(instants) + jnp.nan,
        event_states=zeros(instants, q.size + v.size) + jnp.nan,
        met=none(instants, events),
        impacts=counts(),
        changes=counts(),
        instants=counts(),
        counts=counts(events),
    )


def _cells(share_of_motion):
    """Number of cells in which gaps and events are evaluated along a step."""
    return jnp.clip(jnp.ceil(CELLS_OF_MOTION * share_of_motion), MIN_CELLS, CELLS_OF_MOTION).astype(jnp.int32)


def _outlook(setting, mode, values, forces, step_taken: Step, t0, h, share_of_motion):
    """Look for a change of the mode along a step."""
    layout = setting.layout
    new, rounding = jax.lax.stop_gradient(event_values(forces, mode, layout, setting.gap_rounding, setting.rate_size))
    is_open = jnp.concatenate([~mode.closed, jnp.zeros(layout.groups, bool)])

    # Open gaps along the cubic polynomial of the step.
    crossing = GapCrossing(jnp.asarray(False), jnp.ones_like(h), jnp.asarray(False))
    if layout.gaps:
        gaps_at = lambda x: _gaps_along(setting, step_taken, t0, x)
        crossing = first_crossing(
            gaps_at, ~mode.closed, rounding[: layout.gaps], setting.grazing, _cells(share_of_motion)
        )

    # Forces and slips, which may vanish and return within a step in which nothing moves.
    def values_at(x):
        t, q, v = step_taken.at(x)
        along = InContact(setting.system, mode, layout, setting.method).forces(t0 + t, q, v)
        return event_values(along, mode, layout, setting.gap_rounding, setting.rate_size).value

    release_cells = jnp.where(mode.acts(), jnp.ceil(share_of_motion * CELLS_OF_MOTION), 1).astype(jnp.int32)
    release = first_release(values_at, ~is_open, rounding, values, new, release_cells)
    beyond = crossing.found | release.found
    aim = h * jnp.minimum(crossing.fraction, release.fraction)

    falls = (values > rounding) & (new < values)
    approaches = jnp.concatenate([layout.split(forces.contacts.rate)[0] < 0, jnp.zeros(layout.groups, bool)])
    met = ~beyond & (new <= rounding) & jnp.where(is_open, approaches, falls)
    return Outlook(new, beyond, aim, met, crossing.grazes)


def _grazes(setting, met, speeds, after):
    """Whether a closing gap would, at its speed, open again before it falls below −``setting.grazing``."""
    count = setting.layout.gaps
    speed, opening = speeds[:count], after.response.free[:count]
    return jnp.any(met[:count] & (speed < 0) & (opening > 0) & (speed**2 <= 2 * opening * setting.grazing))


def _gaps_along(setting, step_taken, t0, x):
    """The gaps at the fraction x of a step; at its end they are exact, with their slopes."""
    t, q, _ = step_taken.at(x)
    h, q_dot = step_taken.t1 - step_taken.t0, rate(step_taken.kinematic_map, step_taken.q1, step_taken.v1)
    q = jnp.where(x < 1, q, step_taken.q1 + (x - 1) * h * q_dot)
    return gaps(setting.system.nonsmooth, t0 + t, q)


def _iterate(
    problem, setting, surfaces, stops: ScheduledStops, scale, derivatives, state: LoopState
) -> tuple[LoopState, Entries]:
    """One step, and the changes at its end: events, the inputs of sampled control, and the contact mode."""
    layout, model, method = setting.layout, setting.system, problem.current_method
    system = model if state.held is None else Driven(model, state.held.u)
    setting = setting._replace(system=system)
    t0, span = stops.time[0], stops.time[-1] - stops.time[0]
    least = SMALLEST_STEP * span
    t, q, v, mode = state.t, state.q, state.v, state.mode
    first = state.steps < 0
    target, is_stop, stop_before = stops.time[state.stop] - t0, jnp.asarray(True), jnp.maximum(state.stop - 1, 0)
    if problem.counts is not None:
        before = stops.time[stop_before] - t0
        count = jnp.where(state.stop > 0, problem.counts.per_interval[stop_before], 1)
        is_stop = state.taken + 1 >= count
        target = jnp.where(is_stop, target, before + (state.taken + 1) * (target - before) / count)
    remaining = target - t
    shorter = jax.lax.stop_gradient(jnp.minimum(state.h, remaining))
    lands = first | (state.h >= jax.lax.stop_gradient(remaining))
    h = jnp.where(first, 0, jnp.where(lands, remaining, shorter))

    in_mode = lambda system, mode: InContact(system, mode, layout, setting.method) if layout.rows else system
    in_contact, kinematic_map = in_mode(system, mode), kinematic_map_of(system)
    accelerate = lambda model: lambda t, q, v: acceleration(model, t, q, v, setting.method, problem.projection).v_rate
    stepped = step(SingleModel(in_contact), t0 + t, h, q, v, method, problem.tableau, problem.projection, scale)
    t1 = jnp.where(lands, target, t + h)
    if problem.counts is None:
        control = control_error(q, v, stepped, problem.tableau, problem.tolerance(scale), scale, h, jnp.asarray(False))
        # A jump onto the constraints is repeated with a shorter step, as an error is.
        good, fine = control.good & ~stepped.jumped | first, control.fine(h * control.factor, least)
        following = h * jnp.where(stepped.jumped, jnp.minimum(control.factor, 0.5), control.factor)
        following = jnp.where(first, jnp.maximum(control.first, 1e3 * least), following)
        doubtful = jnp.asarray(False)
    else:
        good = fine = jnp.asarray(True)
        doubtful = ~first & in_doubt(state.close, stepped.moved, q, stepped.q, scale)
        following = jnp.asarray(jnp.inf, q.dtype)

    q1, v1, false = stepped.q, stepped.v, jnp.asarray(False)
    outlook = Outlook(state.values, false, h, jnp.zeros(state.values.size, bool), false)
    needs_fallback = inside = off_task = false
    share = jax.lax.stop_gradient(h / span)
    if layout.rows:
        q1, v1, contacts, response = settle(setting, t0 + t1, q1, v1, mode)
        forces = forces_in(mode, contacts, response, layout)
        inputs = without_derivatives((forces, Step(t, q, v, t1, q1, v1, kinematic_map), t0, h))
        outlook = _outlook(setting, mode, state.values, *inputs, share_of_motion=share)
        needs_fallback, inside = response.needs_fallback, first & jnp.any(contacts.gap < -setting.max_penetration)
        off_task = pushed_off_task(system, response, forces.force, t0 + t1, q1, v1)
    ahead = Outlook(state.side, false, h, jnp.zeros(state.side.size, bool), false)
    if surfaces.events:
        taken = without_derivatives((Step(t, q, v, t1, q1, v1, kinematic_map), t0, h))
        ahead = surfaces.outlook(*taken, _cells(share), state.side, accelerate(in_contact))
    fine = fine & (~good | finite(q1, v1))

    resolution = setting.time_rounding / 4
    at_resolution = jax.lax.stop_gradient(h) <= resolution
    beyond = ~first & (outlook.beyond | ahead.beyond)
    aim = jnp.minimum(outlook.aim, ahead.aim)
    forced = beyond & at_resolution
    accepted = good & fine & (~beyond | forced) & ~stepped.jumped & ~doubtful
    of = lambda ahead: ~first & jnp.where(forced, ahead.values < 0, ~beyond & ahead.met)
    met, crossed = of(outlook), of(ahead) & (state.side != 0)
    changes = accepted & (first | jnp.any(met) | jnp.any(crossed))
    ends_on_stop, stop = lands & (first | is_stop), stops.at(state.stop)
    if state.held is not None:
        acting = stops.acting[stop_before]
        stop = stop._replace(instant=stop.instant & ends_on_stop, acting=jnp.where(ends_on_stop, stop.acting, acting))
        changes = changes | accepted & (stop.instant | (stop.acting != acting))
    counted = accepted & crossed & surfaces.counts(state.side)

    # A step that was shortened does not show the step size that the motion would allow.
    grown = jnp.where(accepted & (h < state.wanted), jnp.maximum(state.wanted, following), following)
    wanted = jax.lax.stop_gradient(jnp.where(good & ~accepted, state.wanted, grown))

    def keep(t1, q1, v1):
        return Change(
            t1, q1, v1, mode, outlook.values, state.side, jnp.zeros(layout.rows, q.dtype), jnp.concatenate([q1, v1]),
            wanted, outlook.grazes, unsolved=false, several_modes=false, gains_energy=false, needs_fallback=false,
            off=false, off_task=false, starts_on_event=false, held=state.held,
        )  # fmt: skip

    def change(t1, q1, v1):
        tm, qm, vm = t0 + t1, q1, v1
        if derivatives:
            index = jnp.argmax(jnp.concatenate([met, crossed]))
            event = lambda t, q, v: _value(setting, surfaces, mode, index, t, q, v)
            is_met = ~first & (jnp.any(met) | jnp.any(crossed))
            tm, qm, vm = on_surface(event, kinematic_map, accelerate(in_contact), tm, qm, vm, is_met)
        before, off = jnp.concatenate([qm, vm]), false
        if surfaces.events:
            qm, vm, off = _reset(problem, system, surfaces, counted, scale, tm, qm, vm)
        changed = keep(tm - t0, qm, vm)._replace(before=before, off=off)
        system_after = system if state.held is None else state.held.system_at(stop, model)
        if layout.rows:
            released = met & jnp.concatenate([mode.closed, mode.sticking])
            after = transition(setting._replace(system=system_after), tm, qm, vm, mode, released, derivatives)
            forces = forces_in(after.mode, after.contacts, after.response, layout)
            changed = changed._replace(
                v=after.v,
                mode=after.mode,
                values=event_values(forces, after.mode, layout, setting.gap_rounding, setting.rate_size).value,
                impulse=after.impulse,
                h=jnp.minimum(wanted, _flight(setting, forces, after.mode)),
                grazes=outlook.grazes | _grazes(setting, met, contacts.rate, after),
                unsolved=~after.solved,
                several_modes=after.several,
                gains_energy=after.gains,
                off_task=pushed_off_task(system_after, after.response, after.impulse, tm, qm, after.v),
                needs_fallback=after.response.needs_fallback,
            )
        if state.held is not None:
            changed = changed._replace(held=state.held.after(stop, model, tm, qm, changed.v))
        if surfaces.events:
            at = tm, qm, changed.v
            value, rates = (
                surfaces.values(*at),
                surfaces.rates(*at, accelerate(in_mode(system_after, changed.mode))(*at)),
            )
            side = surfaces.side(value, rates)
            changed = changed._replace(
                side=side,
                h=jnp.minimum(changed.h, surfaces.flight(value, side, rates)),
                starts_on_event=first & surfaces.held(value, side, rates),
            )
        return changed

    changed: Change = jax.lax.cond(changes, change, keep, t1, q1, v1)
    t1, q1, v1 = changed.t, changed.q, changed.v
    needs_fallback = method.has_fallback & (
        stepped.beyond(method) | needs_fallback | changed.needs_fallback | assumption_failed_for(setting.method)
    )
    values, side = jax.lax.stop_gradient((changed.values, changed.side))
    event_nan = jnp.any(jnp.isnan(surfaces.values(t0 + t1, q1, v1))) if surfaces.events else false

    advances = accepted & (jax.lax.stop_gradient(h) > resolution)
    at_once = jnp.where(changes, jnp.where(advances, 0, state.at_once) + 1, jnp.where(advances, 0, state.at_once))
    landed = accepted & ends_on_stop
    stops_done = state.stop + landed
    next_h = jnp.where(accepted | ~good, changed.h, jnp.clip(aim, resolution, 0.999 * h))
    stuck = ~accepted & ~good & (following < least)
    repeats = accepted & (at_once > MAX_CHANGES_AT_ONCE)
    no_mode = accepted & changed.unsolved | repeats & ~jnp.any(crossed)
    several_modes, gains_energy = accepted & changed.several_modes, accepted & changed.gains_energy
    accumulated = repeats & jnp.any(crossed)
    off = accepted & (stepped.off | changed.off) | inside
    off_task = (accepted | stepped.jumped) & off_task | accepted & changed.off_task
    singular = doubtful | accepted & ~first & turned(stepped.independence, h, v, stepped.v, scale)
    ends, starts_on_event = surfaces.ends(counted) & ~off & ~singular, accepted & changed.starts_on_event
    fails = no_mode | several_modes | gains_energy | accumulated | off | off_task | singular
    fails = fails | starts_on_event | event_nan
    result = classify(
        finished=(stops_done >= stops.time.size) & ~(ends | fails),
        event=ends,
        on_event=starts_on_event,
        event_nan=accepted & event_nan,
        off_task=off_task,
        no_mode=no_mode,
        several_modes=several_modes,
        gains_energy=gains_energy,
        accumulated=accumulated,
        needs_fallback=needs_fallback & (accepted | ~fine),
        singular=singular,
        jumped=stepped.jumped & (stuck if problem.counts is None else True),
        off=off,
        not_finite=~fine,
        stuck=stuck,
        exhausted=state.steps + 1 >= problem.max_steps,
        inconsistent=state.inconsistent | (accepted & stepped.inconsistent),
    )
    choose = lambda new, old: jax.tree.map(lambda x, y: jnp.where(accepted, x, y), new, old)
    entries = Entries(
        stop=state.stop,
        landed=landed,
        state=jnp.concatenate([q1, v1] if changed.held is None else [q1, v1, changed.held.u]),
        mode=changed.mode,
        is_impact=accepted & jnp.any(changed.impulse != 0),
        time=t0 + t1,
        impulse=changed.impulse,
        changed=changes & ~first & (jnp.any(met) | jnp.any(changed.impulse != 0) | _differs(mode, changed.mode)),
        met=counted,
        before=changed.before,
    )
    next_mode = changed.mode
    if layout.rows:
        next_mode = jax.lax.cond(changes, lambda: changed.mode, lambda: _turned(setting, changed.mode, t0 + t1, q1, v1))
    state = LoopState(
        t=choose(t1, t),
        h=jax.lax.stop_gradient(next_h),
        wanted=wanted,
        stop=stops_done,
        taken=jnp.where(landed, 0, state.taken + (accepted & lands & ~first)),
        q=choose(q1, q),
        v=choose(v1, v),
        mode=choose(next_mode, mode),
        values=choose(values, state.values),
        side=choose(side, state.side),
        at_once=at_once,
        steps=state.steps + 1,
        result=result,
        inconsistent=state.inconsistent | (accepted & stepped.inconsistent),
        grazing=state.grazing | (accepted & changed.grazes),
        close=choose(is_close(stepped.independence), state.close),
        held=choose(changed.held, state.held),
    )
    return state, entries


class Change(NamedTuple):
    """The changes at the end of a step.

    Attributes
    ----------
    t, q, v, mode, values, side
        The fields of ``LoopState`` after it.
    impulse
        Impulses of contacts (rows,).
    before
        q and v before it (nq + n,).
    h
        Next step size [s].
    grazes
        Whether a gap touches zero without speed.
    unsolved, several_modes
        Whether no next contact mode was found, or several.
    gains_energy
        Whether an impact increases the energy.
    needs_fallback
        Whether the method was not applicable.
    off
        Whether a reset violates the constraints.
    off_task
        Whether impulses push the motion off the task of its control.
    starts_on_event
        Whether the motion starts on an event and does not leave it.
    held
        Held inputs of sampled control after it.
    """

    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    mode: ContactMode
    values: Float[Array, " values"]
    side: Float[Array, " events"]
    impulse: Float[Array, " rows"]
    before: Float[Array, " nq+n"]
    h: Float[Array, ""]
    grazes: Bool[Array, ""]
    unsolved: Bool[Array, ""]
    several_modes: Bool[Array, ""]
    gains_energy: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]
    off: Bool[Array, ""]
    off_task: Bool[Array, ""]
    starts_on_event: Bool[Array, ""]
    held: SampledInputs | None


def _reset(problem, system, surfaces, counted, scale, t, q, v):
    """q and v after the resets, projected onto the constraints; and whether q violates them."""
    false = jnp.asarray(False)
    if all(event.reset is None for event in surfaces.events):
        return q, v, false

    def apply(q, v):
        q, v = surfaces.reset(counted, t, q, v)
        if not problem.projection:
            return q, v, false
        phi, method = system.position_residual(t, q), problem.current_method
        is_off = jnp.max(jnp.abs(phi) / scale.rows[: phi.size], initial=0) > scale.max_violation(q)
        levels = method if isinstance(method, MethodPerLevel) else methods_at(system, t, q, v, method)
        corrected = correct_drift(system, t, q, v, levels, scale)
        return corrected.q, corrected.v, corrected.off | is_off

    return jax.lax.cond(surfaces.resets(counted), apply, lambda q, v: (q, v, false), q, v)


def _flight(setting, forces, mode):
    """Time until a gap that has just opened would close again, at constant acceleration."""
    layout, response = setting.layout, forces.response
    rate = layout.split(forces.contacts.rate)[0]
    falling = -layout.split(response.W @ forces.force + response.free)[0]
    returns = ~mode.closed & (forces.contacts.gap <= setting.gap_rounding) & (rate > 0) & (falling > 0)
    return jnp.min(jnp.where(returns, 2 * rate / jnp.where(returns, falling, 1), jnp.inf), initial=jnp.inf)


def _differs(mode, other):
    """Whether different gaps are closed, or different friction forces stick."""
    return jnp.any(mode.closed != other.closed) | jnp.any(mode.sticking != other.sticking)


def _turned(setting, mode, t, q, v):
    """The mode with the present directions of slip in space."""
    if setting.layout.dim == 1:
        return mode
    return directions_along(mode, setting.contacts(t, q, v), setting.layout)


def _value(setting, surfaces, mode, index, t, q, v):
    """The value number ``index`` of those of the contact mode and of the events, differentiable."""
    values = surfaces.values(t, q, v)
    if setting.layout.rows:
        forces = InContact(setting.system, mode, setting.layout, setting.method).forces(t, q, v)
        of_mode = event_values(forces, mode, setting.layout, setting.gap_rounding, setting.rate_size).value
        values = jnp.concatenate([of_mode, values])
    return values[index]
