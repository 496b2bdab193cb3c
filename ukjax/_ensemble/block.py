"""Simulate one block of members.

A block is the unit of computation. All blocks of an ensemble have one size, and each block always contains the same
members in the same rows. A compiled program rounds a row in the same way every time, so the result of a member is
equal bit for bit for every chunk size, executor and process.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import as_array, call, repr_of
from .._contact.history import MAX_IMPACTS, ContactHistory, empty_contacts
from .._contact.moreau_jean import MoreauJean
from .._contact.rows import layout_of
from .._errors import InputError
from .._functions import two_arrays
from .._motion.consistent.local_chart import chart_at, point_of
from .._motion.consistent.newton import project_by_newton
from .._motion.consistent.search_traced import project_by_search
from .._motion.diagnose.servo import has_task, results_with_task
from .._motion.event import EventHistory, empty_history
from .._motion.fallback.policy import solve_every_member
from .._motion.integrate.named import batch_integrator
from .._motion.plan import choose as choose_plan
from .._motion.problem import InitialState, Problem, Solution
from .._motion.result import EVENT, NOT_ASSEMBLED, ended_well, finite
from .._motion.stepper.drift_correction import same_at_every_level
from .._motion.stepper.scaling import scale_of
from .._motion.trajectory.trajectory import OBSERVED, Trajectory
from .._run.compile import jit_batch, jit_unoptimised
from .._system import AbstractSystem, nonsmooth_of
from .._with_states import plant_of, with_initial_states
from .fixed_entries import with_fixed_entries

PADDING_MEMBERS = 8
"""Members added to a block as padding (copies of its last member), so that the row length is not a power of two.
Addresses that are a power of two apart map to the same cache sets."""

MOTION_ARRAYS, ENDING_ARRAYS = ("q", "v"), ("result", "steps", "last_t", "over")
"""Names of the arrays stored for each member: the motion (unless ``keep`` is a function), and those that are always
stored."""

EVENT_ARRAYS = "event_t", "event_counts"
"""Names of the arrays that are also stored for each member with events."""

CONTACT_ARRAYS = "impacts", "contact_changes"
"""Names of the arrays that are also stored for each member with contacts or dry friction."""

RETRY_BATCH, SEARCH_BATCH = 136, 16
"""Batch sizes: members that are simulated again with another linear solver, and members whose start is searched for
by ``project_by_search``."""


class Task(eqx.Module):
    """The computation for every member.

    The swept numbers of a member are the columns of its row in an array (members, p).

    Attributes
    ----------
    problem : Problem
        Initial value problem, without the numbers of a member.
    q_entries, v_entries : tuple of (int, int)
        Pairs (column, entry): the number in that column is that entry of q0 or v0.
    parameter_columns : tuple of int
        Columns that are parameters of the model.
    own_start : bool
        Whether the start is that of the member's own model instead of q0 and v0.
    reference : array, shape (n,), or None
        For a ``Mechanism`` with ``own_start``: its reference pose without swept numbers. The start of a member is q0
        shifted by the difference between its own reference pose and this one.
    fix_swept : bool
        Whether the projection of a start leaves swept entries of q0 and v0 unchanged.
    start_of : callable or None
        ``start_of(model, q0, v0) -> (q0, v0)``, applied before the projection.
    keep : {"samples", "end", "all"} or callable
        The part of each motion that is stored.
    size : int
        Members per block, padding included.
    """

    problem: Problem
    q_entries: tuple[tuple[int, int], ...] = eqx.field(static=True)
    v_entries: tuple[tuple[int, int], ...] = eqx.field(static=True)
    parameter_columns: tuple[int, ...] = eqx.field(static=True)
    own_start: bool = eqx.field(static=True)
    reference: Float[Array, " n"] | None
    fix_swept: bool = eqx.field(static=True)
    start_of: Callable | None
    keep: Any
    size: int = eqx.field(static=True)

    def model_of(self, numbers: Float[Array, " p"]) -> Any:
        """The model of the member with these swept numbers."""
        return self.problem.model_of(self.numbers_of_model(numbers))

    def with_fixed_entries(self, model: AbstractSystem, q: Array, v: Array) -> AbstractSystem:
        """``model``; with ``fix_swept`` also constraints that fix the swept entries of q and v."""
        entries = lambda pairs: tuple(entry for _, entry in pairs)
        return (
            with_fixed_entries(model, q, v, entries(self.q_entries), entries(self.v_entries))
            if self.fix_swept
            else model
        )

    def numbers_of_model(self, numbers: Float[Array, " p"]) -> Float[Array, " k"] | None:
        """The swept numbers that are parameters of the model; None if there are none."""
        return jnp.stack([numbers[i] for i in self.parameter_columns]) if self.parameter_columns else None


def run_block(
    task: Task, numbers: Float[np.ndarray, "some p"], q0: Float[np.ndarray, "some nq"], v0: Float[np.ndarray, "some n"]
) -> dict[str, np.ndarray]:
    """Simulate the members of one block, at most ``task.size``. Returns the stored arrays by name, (members, ...)."""
    members = len(numbers)
    padded = _padded(task, numbers, q0, v0)
    samples = _simulated(task, *_initial_states(task, members, *padded))
    succeeded = ended_well(samples.result)
    if task.keep == "end":
        kept = {"q": jnp.where(succeeded[:, None], samples.last[1], jnp.nan)[:, None]}
        kept |= {"v": jnp.where(succeeded[:, None], samples.last[2], jnp.nan)[:, None]}
    else:
        kept = {"q": samples.q, "v": samples.v}
    if callable(task.keep) or task.keep == "all":
        kept = ({} if callable(task.keep) else kept) | _run(_observed_arrays, task, padded[0], samples)
    arrays = kept | {"result": samples.result.astype(np.int8), "steps": samples.steps, "last_t": samples.last[0]}
    arrays |= _event_arrays(task.problem, samples)
    if samples.contacts is not None:
        arrays |= {"impacts": samples.contacts.impacts, "contact_changes": samples.contacts.changes}
    return {name: np.asarray(x)[:members] for name, x in arrays.items()} | {"over": numbers}


def _event_arrays(problem: Problem, samples: Solution) -> dict[str, Any]:
    """Time of the first occurrence of each event and number of its occurrences, (members, events); {} without."""
    if problem.event is not None:  # it ends the motion
        met = samples.result == EVENT
        return {"event_t": jnp.where(met, samples.last[0], jnp.nan)[:, None], "event_counts": met.astype(int)[:, None]}
    if samples.events is None:
        return {}
    history = samples.events
    first = jnp.stack([history.times(name)[:, 0] for name in history.names], axis=-1)
    return {"event_t": first, "event_counts": history.counts}


def _run(function, *arguments):
    return function.compiled(*arguments)(*arguments)


def _simulated(task, start, has_start) -> Solution:
    """Simulate all members. A member without a start is simulated from the start of another one, then set to NaN."""
    problem, valid = task.problem, np.flatnonzero(has_start)
    if valid.size == 0:
        return _all_failed(problem, start)
    if valid.size < has_start.size:
        stand_in = np.where(has_start, np.arange(has_start.size), valid[0])
        start = jax.tree.map(lambda x: x[stand_in], start)
    plan = choose_plan(problem, start)
    integrator = batch_integrator(plan.integrator)
    run = lambda problem, start: _run(integrator.program, start, problem)
    samples = solve_every_member(run, problem, start, plan, refuse=False, again=min(RETRY_BATCH, task.size))
    if has_task(problem.model):
        samples = samples._replace(result=_run(_results_with_task, problem, start, samples))
    if has_start.all():
        return samples
    nan_where = lambda x, rows: jnp.where(rows.reshape(-1, *(1,) * (x.ndim - 1)), jnp.nan, x)
    t0, nothing = problem.ts[0], _nothing_recorded(problem, start)
    recorded = {name: getattr(samples, name) for name in nothing}
    return samples._replace(
        q=nan_where(samples.q, ~has_start),
        v=nan_where(samples.v, ~has_start),
        result=jnp.where(has_start, samples.result, NOT_ASSEMBLED),
        steps=jnp.where(has_start, samples.steps, 0),
        last=(jnp.where(has_start, samples.last[0], t0), *(nan_where(x, ~has_start) for x in samples.last[1:])),
        **jax.tree.map(lambda x, y: jax.vmap(jnp.where)(has_start, x, y), recorded, nothing),
    )


_results_with_task = jit_batch(results_with_task)


def _all_failed(problem, start) -> Solution:
    members, samples = len(start.q), problem.ts.size + problem.may_end
    q, v = (jnp.full((members, samples, x.shape[1]), jnp.nan, x.dtype) for x in (start.q, start.v))
    zeros = jnp.zeros(members, int)
    last = jnp.full(members, problem.ts[0]), q[:, 0], v[:, 0]
    recorded = _nothing_recorded(problem, start)
    return Solution(q[..., 0], q, v, zeros + NOT_ASSEMBLED, zeros, last, zeros > 0, **recorded)


def _nothing_recorded(problem, start):
    return jax.vmap(lambda q, v: nothing_recorded(problem, q, v))(start.q, start.v)


def nothing_recorded(problem: Problem, q: Float[Array, " nq"], v: Float[Array, " n"]) -> dict[str, Any]:
    """Contacts, events and held inputs of one motion in which nothing happens, None for what the system lacks."""
    t, samples = problem.ts[0], problem.ts.size + problem.may_end
    contacts = events = held = None
    if (constraints := nonsmooth_of(problem.model)) and isinstance(problem.model, AbstractSystem):
        stored = 0 if isinstance(problem.solver, MoreauJean) else MAX_IMPACTS
        contacts = empty_contacts(layout_of(constraints, t, q, v), samples, stored, q.dtype)
    if problem.events:
        events = empty_history(problem.events, q, v)
    if problem.schedule is not None:
        p = eqx.filter_eval_shape(problem.model.command, t, q, v).u.size
        held = jnp.full((samples, p), jnp.nan, q.dtype)
    return {"contacts": contacts, "events": events, "held": held}


def start_found(task: Task, numbers: np.ndarray, q0: np.ndarray, v0: np.ndarray) -> Bool[np.ndarray, " some"]:
    """Whether each member has a start on the constraints. At most one block of members."""
    return _initial_states(task, len(numbers), *_padded(task, numbers, q0, v0))[1][: len(numbers)]


def _padded(task, *arrays):
    """Pad the arrays to ``task.size`` rows by repeating their last row."""
    missing = task.size - len(arrays[0])
    return [jnp.asarray(np.pad(x, ((0, missing), (0, 0)), mode="edge"), task.problem.ts.dtype) for x in arrays]


def _initial_states(task, members, numbers, q0, v0) -> tuple[InitialState, Bool[np.ndarray, " members"]]:
    """The initial states of the members, and whether each member has one. Rows from ``members`` on are padding."""
    method = task.problem.method
    fast_path = method.fast_path()
    fast = method if fast_path is None else fast_path
    start, has_start = _run(_project_near, task, fast, numbers, q0, v0)
    if not task.problem.projection or np.all(has_start):
        return start, np.asarray(has_start)
    if fast is not method:  # redundant rows are left to the method itself
        by_method, found = _run(_project_near, task, method, numbers, q0, v0)
        start = jax.tree.map(lambda x, y: jax.vmap(jnp.where)(has_start, x, y), start, by_method)
        has_start = has_start | found
    has_start = np.array(has_start)
    unsolved = np.flatnonzero(~has_start[:members])
    for part in (unsolved[i : i + SEARCH_BATCH] for i in range(0, unsolved.size, SEARCH_BATCH)):
        padded = np.pad(part, (0, SEARCH_BATCH - part.size), mode="edge")
        projected, converged = _run(_project_by_search, task, numbers[padded], q0[padded], v0[padded])
        start = jax.tree.map(lambda x, y, rows=part: x.at[rows].set(y[: rows.size]), start, projected)
        has_start[part] = np.asarray(converged)[: part.size]
    last = np.minimum(np.arange(task.size), members - 1)  # rows of padding are copies of the last member
    return jax.tree.map(lambda x: x[last], start), has_start[last]


def unprojected_start(task: Task, numbers: Array, q: Array, v: Array) -> tuple[Any, Array, Array]:
    """The model of a member, and its start before the projection onto the constraints."""
    model = task.model_of(numbers)
    if task.own_start and task.reference is not None:
        q = q + (plant_of(model).reference_pose()[0] - task.reference)
    elif task.own_start:
        q, v = (jnp.asarray(x, q.dtype) for x in plant_of(model).start())
    for column, entry in task.q_entries:
        q = q.at[entry].set(numbers[column])
    for column, entry in task.v_entries:
        v = v.at[entry].set(numbers[column])
    if task.start_of is not None:
        q, v = two_arrays("start_of", "(q0, v0)", call("start_of", task.start_of, plant_of(model), q, v))
    return model, q, with_initial_states(model, q, v)[1]


def _initial_state(task, model, numbers, q, v):
    ts = task.problem.ts
    return InitialState(q, v, scale_of(model, ts[0], q, v, ts[-1] - ts[0]), task.numbers_of_model(numbers))


def starts(task: Task, numbers: Array, q0: Array, v0: Array) -> InitialState:
    """Initial states from q0 and v0 that already satisfy the constraints."""
    return jax.vmap(lambda *member: _initial_state(task, task.model_of(member[0]), *member))(numbers, q0, v0)


@jit_unoptimised
def _project_near(task, method, numbers, q0, v0):
    """Project the starts by Newton's method with a linear solver; returns them, and whether each has converged."""
    problem = task.problem

    def project_one(numbers, q, v):
        model, q, v = unprojected_start(task, numbers, q, v)
        converged = finite(q, v)
        if problem.projection and isinstance(model, AbstractSystem):
            t = problem.ts[0]
            constrained = task.with_fixed_entries(model, q, v)
            chart, x, sizes = chart_at(constrained, q, v, scale_of(constrained, t, q, v))
            x, v, on_constraints = project_by_newton(chart, t, x, v, sizes, same_at_every_level(method))
            q = point_of(chart, x)
            converged = converged & on_constraints
        elif problem.projection:
            converged = jnp.asarray(False)
        return _initial_state(task, model, numbers, q, v), converged

    return jax.vmap(project_one)(numbers, q0, v0)


@jit_batch
def _project_by_search(task, numbers, q0, v0):
    """Project the starts by a global search, one member after the other; returns them, and whether each was found."""

    def project_one(member):
        numbers, q, v = member
        model, q, v = unprojected_start(task, numbers, q, v)
        t = task.problem.ts[0]
        constrained = task.with_fixed_entries(model, q, v)
        chart, x, sizes = chart_at(constrained, q, v, scale_of(constrained, t, q, v))
        x, v, converged, _ = project_by_search(chart, t, x, v, sizes, task.problem.method)
        return _initial_state(task, model, numbers, point_of(chart, x), v), converged

    return jax.lax.map(project_one, (numbers, q0, v0))


@jit_batch
def _observed_arrays(task, numbers, samples):
    """``kept_arrays`` of all members of a block."""
    motions = samples.t, samples.q, samples.v, samples.result, samples.steps, samples.last
    motions = *motions, samples.contacts, samples.held, samples.events
    return jax.vmap(lambda *member: kept_arrays(task, *member))(numbers, *motions)


def kept_arrays(
    task: Task,
    numbers: Array,
    t: Array,
    q: Array,
    v: Array,
    result: Array,
    steps: Array,
    last: Any,
    contacts: ContactHistory | None = None,
    held: Array | None = None,
    events: EventHistory | None = None,
) -> Any:
    """The arrays stored for one motion besides q, v and its end, name -> array."""
    model, method = plant_of(task.model_of(numbers)), task.problem.method
    motion = Trajectory(t, q, v, result, steps, last, model, method, contacts=contacts, held=held, events=events)
    if task.keep == "all":
        return {name: x for name in OBSERVED if (x := getattr(motion, name)) is not None}
    returned = call("keep", task.keep, motion)
    returned = returned if isinstance(returned, dict) else {"value": returned}
    for name in returned:
        if not isinstance(name, str):
            raise InputError(f"keep must return a dictionary whose keys are strings, got the key {repr_of(name)}")
    return {name: as_array("keep", x, "numbers, or a dictionary of them", "return") for name, x in returned.items()}
