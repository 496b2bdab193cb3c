"""What is done at once: a block of members, always of one size and always the same members.

A program rounds alike wherever the same numbers stand in the same places. So a member is the same, bit for bit, in
whatever chunk its block is, whoever computes it, and whenever.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import as_array, call, repr_of
from .._functions import two_arrays
from .._motion.consistent.local_chart import chart_at, point_of
from .._motion.consistent.newton import project_by_newton
from .._motion.consistent.search_traced import project_by_search
from .._motion.fallback.policy import solve_every_member
from .._motion.problem import AbstractBatchIntegrator, InitialState, Problem, Solution
from .._motion.result import NOT_ASSEMBLED, ended_well, finite
from .._motion.simulate import choose_integrator
from .._motion.stepper.drift_correction import same_at_every_level
from .._motion.stepper.scaling import scale_of
from .._motion.trajectory.trajectory import OBSERVED, Trajectory
from .._run.compile import jit_batch
from .._system import AbstractSystem
from .held import with_fixed_entries

PADDING_MEMBERS = 8
"""Members that are there twice, so that rows of numbers are not a power of two long: they would share places in the
caches."""

MOTION_ARRAYS, ENDING_ARRAYS = ("q", "v"), ("result", "steps", "last_t", "over")
"""Names of what is kept of each member: of its motion, unless only a function of that is kept, and in any case."""

RETRY_BATCH, SEARCH_BATCH = 136, 16
"""Members at a time that need another method, and of which a start is looked for the long way."""


class Task(eqx.Module):
    """What is to be done for every member: the ``problem``; which of its numbers are entries of q0 and v0; where it
    begins: by a start of the model's own, which for a mechanism of bodies is sought near the given one's, as far from
    it as its pose of ``reference`` is from this; by ``start_of``, if there is one; by ``fix_swept`` with what was swept
    of it unchanged; and what to ``keep`` of its motion."""

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
        """The model of a member, by all of its numbers."""
        return self.problem.model_of(self.numbers_of_model(numbers))

    def held(self, model: AbstractSystem, q: Array, v: Array) -> AbstractSystem:
        """What a start is to obey: the model's constraints, and what is held."""
        places = lambda pairs: tuple(at for _, at in pairs)
        return (
            with_fixed_entries(model, q, v, places(self.q_entries), places(self.v_entries)) if self.fix_swept else model
        )

    def numbers_of_model(self, numbers: Float[Array, " p"]) -> Float[Array, " k"] | None:
        """The numbers that are its model's; None if there are none."""
        return jnp.stack([numbers[i] for i in self.parameter_columns]) if self.parameter_columns else None


def run_block(
    task: Task, numbers: Float[np.ndarray, "some p"], q0: Float[np.ndarray, "some nq"], v0: Float[np.ndarray, "some n"]
) -> dict[str, np.ndarray]:
    """What becomes of the members of a block, no more than its size, by the names of a store."""
    members = len(numbers)
    filled = _padded(task, numbers, q0, v0)
    samples = _simulated(task, *_initial_states(task, *filled))
    good = ended_well(samples.result)
    if task.keep == "end":
        kept = {"q": jnp.where(good[:, None], samples.last[1], jnp.nan)[:, None]}
        kept |= {"v": jnp.where(good[:, None], samples.last[2], jnp.nan)[:, None]}
    else:
        kept = {"q": samples.q, "v": samples.v}
    if callable(task.keep) or task.keep == "all":
        kept = ({} if callable(task.keep) else kept) | _run(_observed_arrays, task, filled[0], samples)
    found = kept | {"result": samples.result.astype(np.int8), "steps": samples.steps, "last_t": samples.last[0]}
    return {name: np.asarray(x)[:members] for name, x in found.items()} | {"over": numbers}


def _run(function, *arguments):
    return function.compiled(*arguments)(*arguments)


def _simulated(task, start, there) -> Solution:
    """The motions; those without a start are done as if they had another's."""
    problem, at = task.problem, np.flatnonzero(there)
    if at.size == 0:
        return _all_failed(problem, start)
    if at.size < there.size:
        stand_in = np.where(there, np.arange(there.size), at[0])
        start = jax.tree.map(lambda x: x[stand_in], start)
    loop = choose_integrator(problem, start)
    assert isinstance(loop, AbstractBatchIntegrator), "a block is a batch"
    run = lambda problem, start: _run(loop.program, start, problem)
    samples = solve_every_member(run, problem, start, refuse=False, again=min(RETRY_BATCH, task.size))
    if there.all():
        return samples
    spoilt = lambda x, where: jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), jnp.nan, x)
    t0 = problem.ts[0]
    return samples._replace(
        q=spoilt(samples.q, ~there),
        v=spoilt(samples.v, ~there),
        result=jnp.where(there, samples.result, NOT_ASSEMBLED),
        steps=jnp.where(there, samples.steps, 0),
        last=(jnp.where(there, samples.last[0], t0), *(spoilt(x, ~there) for x in samples.last[1:])),
    )


def _all_failed(problem, start) -> Solution:
    members, samples = len(start.q), problem.ts.size + (problem.event is not None)
    q, v = (jnp.full((members, samples, x.shape[1]), jnp.nan, x.dtype) for x in (start.q, start.v))
    zeros = jnp.zeros(members, int)
    last = jnp.full(members, problem.ts[0]), q[:, 0], v[:, 0]
    return Solution(q[..., 0], q, v, zeros + NOT_ASSEMBLED, zeros, last, zeros > 0)


def start_found(task: Task, numbers: np.ndarray, q0: np.ndarray, v0: np.ndarray) -> Bool[np.ndarray, " some"]:
    """Which of some members, no more than a block, have a start."""
    return _initial_states(task, *_padded(task, numbers, q0, v0))[1][: len(numbers)]


def _padded(task, *arrays):
    """A whole block."""
    more = task.size - len(arrays[0])
    return [jnp.asarray(np.pad(x, ((0, more), (0, 0)), mode="edge"), task.problem.ts.dtype) for x in arrays]


def _initial_states(task, numbers, q0, v0) -> tuple[InitialState, Bool[np.ndarray, " members"]]:
    """Where the members begin, and which of them have a start at all."""
    start, sure = _run(_project_near, task, numbers, q0, v0)
    sure = np.array(sure)
    doubtful = np.flatnonzero(~sure)
    if not doubtful.size or not task.problem.projection:
        return start, sure
    for part in np.split(doubtful, range(SEARCH_BATCH, doubtful.size, SEARCH_BATCH)):
        filled = np.pad(part, (0, SEARCH_BATCH - part.size), mode="edge")
        found, there = _run(_project_by_search, task, numbers[filled], q0[filled], v0[filled])
        start = jax.tree.map(lambda x, y, at=part: x.at[at].set(y[: at.size]), start, found)
        sure[part] = np.asarray(there)[: part.size]
    return start, sure


def unprojected_start(task: Task, numbers: Array, q: Array, v: Array) -> tuple[Any, Array, Array]:
    """The model of a member, and its start before it is brought onto the constraints."""
    model = task.model_of(numbers)
    if task.own_start and task.reference is not None:
        q = q + (model.reference_pose()[0] - task.reference)
    elif task.own_start:
        q, v = (jnp.asarray(x, q.dtype) for x in model.start())
    for i, at in task.q_entries:
        q = q.at[at].set(numbers[i])
    for i, at in task.v_entries:
        v = v.at[at].set(numbers[i])
    if task.start_of is not None:
        q, v = two_arrays("start_of", "(q0, v0)", call("start_of", task.start_of, model, q, v))
    return model, q, v


def _initial_state(task, model, numbers, q, v):
    ts = task.problem.ts
    return InitialState(q, v, scale_of(model, ts[0], q, v, ts[-1] - ts[0]), task.numbers_of_model(numbers))


def starts(task: Task, numbers: Array, q0: Array, v0: Array) -> InitialState:
    """Starts that are on the constraints as they are given."""
    return jax.vmap(lambda *each: _initial_state(task, task.model_of(each[0]), *each))(numbers, q0, v0)


@jit_batch
def _project_near(task, numbers, q0, v0):
    """Starts, and whether they are sure: the usual ones, which are near."""
    problem, usual = task.problem, task.problem.method.usual()

    def one(numbers, q, v):
        model, q, v = unprojected_start(task, numbers, q, v)
        sure = finite(q, v)
        if problem.projection and usual is not None and isinstance(model, AbstractSystem):
            t = problem.ts[0]
            held = task.held(model, q, v)
            seen, x, sizes = chart_at(held, q, v, scale_of(held, t, q, v))
            x, v, found = project_by_newton(seen, t, x, v, sizes, same_at_every_level(usual))
            q = point_of(seen, x)
            sure = sure & found
        elif problem.projection:
            sure = jnp.asarray(False)
        return _initial_state(task, model, numbers, q, v), sure

    return jax.vmap(one)(numbers, q0, v0)


@jit_batch
def _project_by_search(task, numbers, q0, v0):
    """The same, one after the other, for those that need more."""

    def one(given):
        numbers, q, v = given
        model, q, v = unprojected_start(task, numbers, q, v)
        t = task.problem.ts[0]
        held = task.held(model, q, v)
        seen, x, sizes = chart_at(held, q, v, scale_of(held, t, q, v))
        x, v, found, _ = project_by_search(seen, t, x, v, sizes, task.problem.method)
        return _initial_state(task, model, numbers, point_of(seen, x), v), found

    return jax.lax.map(one, (numbers, q0, v0))


@jit_batch
def _observed_arrays(task, numbers, samples):
    """What is kept of each motion besides where it was."""

    motions = samples.t, samples.q, samples.v, samples.result, samples.steps, samples.last
    return jax.vmap(lambda *each: kept_arrays(task, *each))(numbers, *motions)


def kept_arrays(
    task: Task, numbers: Array, t: Array, q: Array, v: Array, result: Array, steps: Array, last: Any
) -> Any:
    """The same of one, name -> array."""
    motion = Trajectory(t, q, v, result, steps, last, task.model_of(numbers), task.problem.method)
    if task.keep == "all":
        return {name: x for name in OBSERVED if (x := getattr(motion, name)) is not None}
    found = call("keep", task.keep, motion)
    found = found if isinstance(found, dict) else {"value": found}
    for name in found:
        if not isinstance(name, str):
            raise ValueError(f"keep must return a dictionary whose keys are words, got the key {repr_of(name)}")
    return {name: as_array("keep", x, "numbers, or a dictionary of them", "return") for name, x in found.items()}
