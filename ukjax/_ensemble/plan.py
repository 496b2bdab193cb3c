"""Check the arguments of ``ensemble`` and turn them into a ``Plan``; metadata and fingerprint of an ensemble."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from .._check import as_integer, as_numpy, check_finite, check_flag, check_function, memory, repr_of, size_of
from .._errors import InputError
from .._fingerprint import fingerprint
from .._labels import Named, named_coordinates, named_directions, title_of
from .._mechanism import Mechanism
from .._motion.consistent.project import project
from .._motion.determining import determining_values
from .._motion.event import MAX_EVENTS, Event, check_event, names_of
from .._motion.inputs import canonicalise, check_kinematic_map
from .._motion.problem import Problem
from .._motion.simulate.arguments import Arguments
from .._precision import warn_if_single
from .._system import kinematic_map_of, nonsmooth_of
from .._with_states import equations_of, with_initial_states
from .block import (
    CONTACT_ARRAYS,
    ENDING_ARRAYS,
    EVENT_ARRAYS,
    MOTION_ARRAYS,
    PADDING_MEMBERS,
    Task,
    kept_arrays,
    nothing_recorded,
    start_found,
    unprojected_start,
)
from .dataset import RESERVED
from .over import Over
from .shards import FINGERPRINT

MIN_BLOCK, MAX_BLOCK_CPU = 128, 1024  # members per block on a CPU; their data fit into a core's caches
MAX_BLOCK_ACCELERATOR = 65_536  # members per block on other devices, which process this many at once
BLOCK_BYTES = 2**28
"""Largest size of the samples of a block [bytes]."""

MAX_CHUNK_MEMBERS, CHUNK_MEMORY_DIVISOR = 65_536, 16
"""A default chunk has at most this many members, and takes at most memory / ``CHUNK_MEMORY_DIVISOR``."""

SAMPLED_PARTS = 8
"""Number of parts of an ensemble from which starts are checked before it begins."""

KEEP_OPTIONS = "samples", "end", "all"


class Plan(NamedTuple):
    """An ensemble with checked arguments.

    Attributes
    ----------
    task : Task
        The computation for every member.
    over : Over
        The swept numbers.
    q0, v0 : array, shape (n,) or (members, n)
        Starts, before the swept entries are put in.
    coordinates, directions : tuple of (str, str)
        Name and unit of each coordinate, and of each velocity; ``directions`` is None if velocities are the rates of
        the coordinates.
    title : str
        Name of the model.
    block, chunk : int
        Members per block and per chunk.
    numbers : int
        Number of stored numbers per member.
    names : tuple of str
        Names of the arrays that are stored for each member.
    """

    task: Task
    over: Over
    q0: Float[np.ndarray, "*members nq"]
    v0: Float[np.ndarray, "*members n"]
    coordinates: Named
    directions: Named | None
    title: str
    block: int
    chunk: int
    numbers: int
    names: tuple[str, ...]

    @property
    def members(self) -> int:
        return self.over.members

    @property
    def ts(self) -> np.ndarray:
        return np.asarray(self.task.problem.ts)

    def chunks(self) -> list[tuple[int, int]]:
        """The chunks as ranges of members, (first, last) with ``last`` excluded."""
        return chunks_of(0, self.members, self.chunk)

    def given(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Swept numbers, q0 and v0 of the members ``first``, ..., ``last`` - 1, one row for each."""
        of = lambda x: x[first:last] if x.ndim == 2 else np.broadcast_to(x, (last - first, x.size))
        return self.over.values(first, last), of(self.q0), of(self.v0)

    def size_in_words(self) -> str:
        """Text with the numbers of members and chunks, and the memory per chunk."""
        count, each = len(self.chunks()), min(self.chunk, self.members)
        grouped = lambda number: f"{number:,}".replace(",", " ")
        needed = in_bytes(8.0 * self.numbers * each)
        chunks = f"{count} chunks, {needed} per chunk of {grouped(each)}" if count > 1 else f"one chunk, {needed}"
        return f"{grouped(self.members)} members in {chunks}"


def chunks_of(first: int, last: int, size: int) -> list[tuple[int, int]]:
    """The range from ``first`` to ``last`` (excluded) in chunks of ``size`` members."""
    return [(i, min(i + size, last)) for i in range(first, last, size)]


def in_bytes(count: float) -> str:
    """A number of bytes as text, such as "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def plan_of(
    system: Any, over: Any, members: Any, ts: Any, q0: Any, v0: Any, combine: Any, seed: Any, start_of: Any,
    fix_swept: Any, keep: Any, chunk: Any, drift: Any, dt: Any, rtol: Any, atol: Any, method: Any, solver: Any,
    event: Any, max_steps: Any,
) -> Plan:  # fmt: skip
    """The plan for these arguments of ``ensemble``; raises ``InputError`` for bad input."""
    q, v, own_start = _starts(system, q0, v0)
    first = lambda x: x[0] if x.ndim == 2 else x
    extended, first_v = with_initial_states(system, first(q), first(v))
    arguments = Arguments.checked(extended, first(q), first_v, ts, drift, dt, solver, None, event, max_steps, False)
    if not callable(keep) and keep not in KEEP_OPTIONS:
        raise InputError(f"keep must be 'samples', 'end', 'all' or a function of a trajectory, got {repr_of(keep)}")
    if callable(keep):
        check_function("keep", keep, "motion")
    check_flag("fix_swept", fix_swept)
    if start_of is not None:
        check_function("start_of", start_of, "model, q0, v0")
    coordinates, directions = named_coordinates(system, q.shape[-1]), named_directions(extended, size_of(first_v)[-1])
    names = [[name for name, _ in named] for named in (coordinates, (directions or coordinates)[: v.shape[-1]])]
    swept = Over.of(system, over, members, combine, seed, *names)
    if q.ndim == 2 and len(q) != swept.members:
        raise InputError(f"q0 and v0 must have a row for each of {swept.members} members, got shape {q.shape}")
    model, first_q, first_v, times = canonicalise(extended, arguments.q0, arguments.v0, arguments.ts)
    check_kinematic_map(model, first_q, first_v)
    if rtol is None and dt is None:
        warn_if_single(first_q.dtype)
    problem = arguments.problem(model, first_q, times, rtol, atol, method)
    places = tuple(each.place for each in swept.swept if each.place is not None)
    if extended is not system:
        places = tuple(place._replace(path=("plant", *place.path)) for place in places)
    problem = replace(problem, places=places)
    for each in all_events(problem):
        check_event(each, times[0], first_q, first_v)
    columns = lambda kind: tuple((i, swept.swept[i].index) for i in swept.of_kind(kind))
    task = Task(
        problem=problem,
        q_entries=columns("q"),
        v_entries=columns("v"),
        parameter_columns=tuple(swept.of_kind("model")),
        own_start=own_start,
        reference=system.reference_pose()[0] if own_start and isinstance(system, Mechanism) else None,
        fix_swept=fix_swept,
        start_of=start_of,
        keep=keep,
        size=1,
    )
    numbers, kept_names = _numbers_kept(task, len(swept.swept), first_q, first_v)
    instants = MAX_EVENTS if problem.events else 0
    block = _block(swept.members, (problem.ts.size + instants) * (first_q.size + first_v.size))
    return Plan(
        task=replace(task, size=block + PADDING_MEMBERS if block >= MIN_BLOCK else block),
        over=swept,
        q0=q,
        v0=v,
        coordinates=coordinates,
        directions=directions,
        title=title_of(system),
        block=block,
        chunk=_chunk(chunk, block, numbers, swept.members),
        numbers=numbers,
        names=(*MOTION_ARRAYS, *kept_names) if isinstance(keep, str) else kept_names,
    )


def _starts(system, q0, v0):
    """q0 and v0, shape (n,) or (members, n), and whether they are the start of the model itself."""
    start = getattr(system, "start", None)
    if q0 is None and v0 is None:
        if not callable(start):
            raise InputError("q0 and v0 must be given, since the system has no method start() that returns them")
        return *(np.asarray(x, float) for x in start()), True
    if q0 is None or v0 is None:
        raise InputError(f"q0 and v0 must both be given, or neither, got {'v0' if q0 is None else 'q0'} alone")
    q, v = (as_numpy(name, x) for name, x in (("q0", q0), ("v0", v0)))
    fits = (
        v.shape in (q.shape, q.shape[-1:]) if kinematic_map_of(equations_of(system)) is None else v.ndim in (1, q.ndim)
    )
    if q.ndim not in (1, 2) or not q.size or not fits:
        raise InputError(
            f"q0 and v0 must have shape (n,), or (members, n) with a row for each, got shapes {size_of(q)} and "
            f"{size_of(v)}"
        )
    check_finite("q0", q)
    check_finite("v0", v)
    return q, np.broadcast_to(v, (*q.shape[:-1], v.shape[-1])), False


def _block(members, numbers_per_member):
    """Members per block. The block size affects rounding, so it must not depend on the machine's cores or memory."""
    by_memory = 2 ** int(np.log2(max(1, BLOCK_BYTES // (8 * numbers_per_member))))
    if jax.default_backend() == "cpu":  # small enough that several cores have a block
        return min(by_memory, MAX_BLOCK_CPU, max(MIN_BLOCK, 2 ** int(np.log2(max(1, members // 8)))))
    return min(by_memory, MAX_BLOCK_ACCELERATOR, max(MIN_BLOCK, 2 ** int(np.ceil(np.log2(members)))))


def _chunk(chunk, block, numbers, members):
    """Members per chunk: a whole number of blocks, not more than the ensemble has."""
    if chunk is None:
        at_most = max(
            block, int(min(MAX_CHUNK_MEMBERS, memory() / CHUNK_MEMORY_DIVISOR / (8 * numbers))) // block * block
        )
    else:
        at_most = -(-as_integer("chunk", chunk, 1) // block) * block
    return min(at_most, -(-members // block) * block)


def _numbers_kept(task, swept, q, v) -> tuple[int, tuple[str, ...]]:
    """The number of stored numbers per member, and the names of the arrays stored besides q, v and its end."""
    size, samples = q.size + v.size, task.problem.ts.size + task.problem.may_end
    end_size = 4 + swept + 2 * len(all_events(task.problem)) + 2 * bool(nonsmooth_of(task.problem.model))
    if task.keep == "end":
        return end_size + size, ()
    motion = (jax.ShapeDtypeStruct(shape, q.dtype) for shape in ((samples,), (samples, q.size), (samples, v.size)))
    if task.keep == "samples":
        return end_size + size * samples, ()
    count = jax.ShapeDtypeStruct((), int)
    last = tuple(jax.ShapeDtypeStruct(shape, q.dtype) for shape in ((), q.shape, v.shape))
    numbers = jax.ShapeDtypeStruct((swept,), q.dtype)
    recorded = jax.eval_shape(partial(nothing_recorded, task.problem), *last[1:])
    arrays = eqx.filter_eval_shape(kept_arrays, task, numbers, *motion, count, count, last, **recorded)
    number = sum(x.size for x in jax.tree.leaves(arrays))
    return end_size + (size * samples if task.keep == "all" else 0) + number, tuple(arrays)


def all_events(problem: Problem) -> tuple[Event, ...]:
    """The events of a problem, in the order of the argument ``event``."""
    return problem.events if problem.event is None else (problem.event,)


def check_names(plan: Plan) -> None:
    """Raise ``InputError`` if two of the swept numbers, stored arrays and reserved names have the same name."""
    reserved = (*MOTION_ARRAYS, *ENDING_ARRAYS, *EVENT_ARRAYS, *CONTACT_ARRAYS, *RESERVED, FINGERPRINT)
    returned = () if isinstance(plan.task.keep, str) else plan.names
    for name in returned:
        if name in reserved:
            raise InputError(
                f"keep returns {name!r}, which is a reserved name of an ensemble: choose another name, such "
                f"as 'my_{name}'. Reserved are {', '.join(reserved)}"
            )
        if name in plan.over.names:
            raise InputError(
                f"keep returns {name!r}, which is the name of a swept number: choose another name, such as 'my_{name}'"
            )
    reserved = tuple(dict.fromkeys((*reserved, *plan.names)))
    for name in plan.over.names:
        if name in reserved:
            raise InputError(
                f"over names {name!r}, which is a reserved name of an ensemble: rename that field of the "
                f"model, or write q1, dq1 for a coordinate. Reserved are {', '.join(reserved)}"
            )


def check_starts(plan: Plan) -> None:
    """Raise ``InputError`` if no member of a sample from all parts of the ensemble has a start on the constraints."""
    if not plan.task.problem.projection:
        return
    members_per_part = -(-plan.block // SAMPLED_PARTS) if plan.members > plan.block else plan.members
    firsts = (
        np.linspace(0, plan.members - members_per_part, SAMPLED_PARTS, dtype=int).tolist()
        if plan.members > plan.block
        else [0]
    )
    parts = [plan.given(i, i + members_per_part) for i in firsts]
    numbers, q0, v0 = (np.concatenate(x)[: plan.block] for x in zip(*parts, strict=True))
    if np.any(start_found(plan.task, numbers, q0, v0)):
        return
    first_member = jax.tree.map(lambda x: jax.numpy.asarray(x[0], plan.task.problem.ts.dtype), (numbers, q0, v0))
    values = ", ".join(f"{name} = {x:.6g}" for name, x in zip(plan.over.names, numbers[0], strict=True))
    try:
        model, q, v = unprojected_start(plan.task, *first_member)
        project(plan.task.with_fixed_entries(model, q, v), plan.ts[0], q, v, plan.task.problem.method)
        reason = "its starts are not finite"
    except ValueError as error:
        reason = str(error)
    raise InputError(
        f"over must allow starts on the constraints: none was found for the first {len(numbers)} members that were "
        f"tried. With {values}, {reason}"
    )


def metadata_of(plan: Plan) -> dict[str, Any]:
    """Description of the ensemble for its readers, as a dictionary that JSON can store."""
    pairs = lambda named: [list(pair) for pair in named]
    events = all_events(plan.task.problem)
    return {
        "model": plan.title,
        "over": plan.over.descriptions(),
        "members": plan.members,
        "combine": plan.over.combine,
        "seed": plan.over.seed,
        "keep": plan.task.keep if isinstance(plan.task.keep, str) else "a function",
        "times": plan.ts.tolist(),
        "coordinates": pairs(plan.coordinates),
        **({} if plan.directions is None else {"directions": pairs(plan.directions)}),
        **({"events": list(names_of(events))} if events else {}),
    }


def fingerprint_of(plan: Plan, purpose: str) -> dict[str, Any]:
    """``metadata_of(plan)`` and everything else that determines the members, to compare two ensembles.

    Raises ``InputError`` if a function of the user cannot be compared; the message names the argument ``purpose``.
    """
    problem, start = (
        plan.task.problem,
        None if plan.task.own_start and plan.task.reference is None else (plan.q0, plan.v0),
    )
    dtype = problem.ts.dtype
    shape = lambda *size: jax.ShapeDtypeStruct(size, dtype)
    options = {
        "dt": problem.dt,
        "rtol": problem.rtol if problem.dt is None else None,
        "atol": problem.atol,
        "drift": "projection" if problem.projection else "none",
        "method": problem.method,
        "solver": problem.solver,
        "event": [[each.direction, each.is_end, each.reset is not None] for each in all_events(problem)] or None,
        "max_steps": problem.max_steps,
        "fix_swept": plan.task.fix_swept,
        "block": plan.block,
    }
    return fingerprint(
        plan.title,
        problem.model,
        partial(_functions, plan.task),
        (shape(len(plan.over.swept)), shape(), shape(plan.q0.shape[-1]), shape(plan.v0.shape[-1])),
        {"q0": None, "v0": None} if start is None else {"q0": start[0], "v0": start[1]},
        options | metadata_of(plan),
        purpose,
    )


def _functions(task, numbers, t, q, v):
    """Values at one instant of all functions that determine a member: its model and the user's functions."""
    problem = task.problem
    model, q, v = unprojected_start(task, numbers, q, v)
    terms = lambda q, v: eqx.filter(model(t, q, v), eqx.is_array)
    values = [q, v, determining_values(model, t, q, v)]
    if problem.tableau is None:  # an implicit method, which uses derivatives
        values.append(jax.jvp(terms, (q, v), (q, v))[1])
    for event in all_events(problem):
        values += [event(t, q, v), *event.after(t, q, v)]
    if callable(task.keep):
        samples = lambda x: jax.numpy.stack([x] * problem.ts.size)
        count = jax.numpy.zeros((), int)
        values.append(
            kept_arrays(
                task,
                numbers,
                samples(t),
                samples(q),
                samples(v),
                count,
                count,
                (t, q, v),
                **nothing_recorded(task.problem, q, v),
            )
        )
    return eqx.filter(values, eqx.is_array)
