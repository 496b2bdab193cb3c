"""What an ensemble is to be: all that its members follow from, checked, and in words that tell it from another."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from .._check import as_integer, as_numpy, check_finite, check_flag, check_function, memory, repr_of, size_of
from .._fingerprint import fingerprint
from .._kinematic_map import rate
from .._mechanism import Mechanism
from .._motion.consistent.project import project
from .._motion.inputs import canonicalise, check_kinematic_map
from .._motion.labels import Named, named_coordinates, named_directions, title_of
from .._motion.simulate import Arguments
from .._precision import warn_if_single
from .._system import AbstractSystem, kinematic_map_of
from .block import ENDING_ARRAYS, MOTION_ARRAYS, PADDING_MEMBERS, Task, kept_arrays, start_found, unprojected_start
from .dataset import RESERVED
from .over import Over
from .shards import FINGERPRINT

MIN_BLOCK, MAX_BLOCK_CPU = 128, 1024  # members of a block on a CPU; what all of them need stays in a core's caches
MAX_BLOCK_ACCELERATOR = 65_536  # on other devices, which do as many at once
BLOCK_BYTES = 2**28
"""What the samples of a block may take."""

MAX_CHUNK_MEMBERS, CHUNK_MEMORY_DIVISOR = 65_536, 16
"""A chunk is of no more members than this, and takes no more than such a part of memory."""

SAMPLED_PARTS = 8
"""Of so many parts of an ensemble some starts are looked at before it begins."""

KEEP_OPTIONS = "samples", "end", "all"


class Plan(NamedTuple):
    """Members in blocks of ``block``, chunks of ``chunk``; ``numbers`` are how many are kept of each member, and
    ``names`` what they are called."""

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
        """The members of each: from, and up to which."""
        return chunks_of(0, self.members, self.chunk)

    def given(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers and starts of some members."""
        of = lambda x: x[first:last] if x.ndim == 2 else np.broadcast_to(x, (last - first, x.size))
        return self.over.values(first, last), of(self.q0), of(self.v0)

    def size_in_words(self) -> str:
        """How large this is."""
        count, each = len(self.chunks()), min(self.chunk, self.members)
        grouped = lambda number: f"{number:,}".replace(",", " ")
        needed = in_bytes(8.0 * self.numbers * each)
        chunks = f"{count} chunks, {needed} per chunk of {grouped(each)}" if count > 1 else f"one chunk, {needed}"
        return f"{grouped(self.members)} members in {chunks}"


def chunks_of(first: int, last: int, size: int) -> list[tuple[int, int]]:
    """Members from ``first`` up to ``last`` in chunks of a ``size``."""
    return [(i, min(i + size, last)) for i in range(first, last, size)]


def in_bytes(count: float) -> str:
    """So many bytes, as a person says it."""
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
    """What ``ensemble`` was given, or ``ValueError``."""
    q, v, own_start = _starts(system, q0, v0)
    first = lambda x: x[0] if x.ndim == 2 else x
    asked = Arguments.checked(system, first(q), first(v), ts, drift, dt, solver, None, event, max_steps, False)
    if not callable(keep) and keep not in KEEP_OPTIONS:
        raise ValueError(f"keep must be 'samples', 'end', 'all' or a function of a trajectory, got {repr_of(keep)}")
    if callable(keep):
        check_function("keep", keep, "motion")
    check_flag("fix_swept", fix_swept)
    if start_of is not None:
        check_function("start_of", start_of, "model, q0, v0")
    coordinates, directions = named_coordinates(system, q.shape[-1]), named_directions(system, v.shape[-1])
    names = [[name for name, _ in named] for named in (coordinates, directions or coordinates)]
    swept = Over.of(system, over, members, combine, seed, *names)
    if q.ndim == 2 and len(q) != swept.members:
        raise ValueError(f"q0 and v0 must have a row for each of {swept.members} members, got shape {q.shape}")
    model, first_q, first_v, times = canonicalise(system, asked.q0, asked.v0, asked.ts)
    check_kinematic_map(model, first_q, first_v)
    if rtol is None and dt is None:
        warn_if_single(first_q.dtype)
    problem = asked.problem(model, first_q, times, rtol, atol, method)
    problem = replace(problem, places=tuple(each.place for each in swept.swept if each.place is not None))
    pairs = lambda kind: tuple((i, swept.swept[i].index) for i in swept.of_kind(kind))
    task = Task(
        problem=problem,
        q_entries=pairs("q"),
        v_entries=pairs("v"),
        parameter_columns=tuple(swept.of_kind("model")),
        own_start=own_start,
        reference=system.reference_pose()[0] if own_start and isinstance(system, Mechanism) else None,
        fix_swept=fix_swept,
        start_of=start_of,
        keep=keep,
        size=1,
    )
    numbers, kept = _numbers_kept(task, len(swept.swept), first_q, first_v)
    block = _block(swept.members, problem.ts.size * (first_q.size + first_v.size))
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
        names=(*MOTION_ARRAYS, *kept) if isinstance(keep, str) else kept,
    )


def _starts(system, q0, v0):
    """q0 and v0, (n,) or (members, n), and whether they are the model's own."""
    own = getattr(system, "start", None)
    if q0 is None and v0 is None:
        if not callable(own):
            raise ValueError(
                "q0 and v0 must be given: the system has no start of its own, as the gallery's mechanisms have"
            )
        return *(np.asarray(x, float) for x in own()), True
    if q0 is None or v0 is None:
        raise ValueError(f"q0 and v0 must both be given, or neither, got {'v0' if q0 is None else 'q0'} alone")
    q, v = (as_numpy(name, x) for name, x in (("q0", q0), ("v0", v0)))
    fits = v.shape in (q.shape, q.shape[-1:]) if kinematic_map_of(system) is None else v.ndim in (1, q.ndim)
    if q.ndim not in (1, 2) or not q.size or not fits:
        raise ValueError(
            f"q0 and v0 must have shape (n,), or (members, n) with a row for each, got shapes {size_of(q)} and "
            f"{size_of(v)}"
        )
    check_finite("q0", q)
    check_finite("v0", v)
    return q, np.broadcast_to(v, (*q.shape[:-1], v.shape[-1])), False


def _block(members, numbers_of_each):
    """How many are done at once: this decides how they round, and must not depend on the machine's size."""
    within = 2 ** int(np.log2(max(1, BLOCK_BYTES // (8 * numbers_of_each))))
    if jax.default_backend() == "cpu":  # in pieces that occupy several cores
        return min(within, MAX_BLOCK_CPU, max(MIN_BLOCK, 2 ** int(np.log2(max(1, members // 8)))))
    return min(within, MAX_BLOCK_ACCELERATOR, max(MIN_BLOCK, 2 ** int(np.ceil(np.log2(members)))))


def _chunk(chunk, block, numbers, members):
    """Whole blocks, and no more than there are."""
    if chunk is None:
        at_most = max(
            block, int(min(MAX_CHUNK_MEMBERS, memory() / CHUNK_MEMORY_DIVISOR / (8 * numbers))) // block * block
        )
    else:
        at_most = -(-as_integer("chunk", chunk, 1) // block) * block
    return min(at_most, -(-members // block) * block)


def _numbers_kept(task, swept, q, v) -> tuple[int, tuple[str, ...]]:
    """How many numbers are kept of each member, and the names of what is kept besides q and v and the way it ended."""
    size, samples = q.size + v.size, task.problem.ts.size + (task.problem.event is not None)
    ends = 4 + swept
    if task.keep == "end":
        return ends + size, ()
    motion = (jax.ShapeDtypeStruct(shape, q.dtype) for shape in ((samples,), (samples, q.size), (samples, v.size)))
    if task.keep == "samples":
        return ends + size * samples, ()
    count = jax.ShapeDtypeStruct((), int)
    last = tuple(jax.ShapeDtypeStruct(shape, q.dtype) for shape in ((), q.shape, v.shape))
    numbers = jax.ShapeDtypeStruct((swept,), q.dtype)
    kept = eqx.filter_eval_shape(kept_arrays, task, numbers, *motion, count, count, last)
    number = sum(x.size for x in jax.tree.leaves(kept))
    return ends + (size * samples if task.keep == "all" else 0) + number, tuple(kept)


def check_names(plan: Plan) -> None:
    """No two of what is swept, what is kept and what an ensemble has in any case have one name, or ``ValueError``."""
    reserved = (*MOTION_ARRAYS, *ENDING_ARRAYS, *RESERVED, FINGERPRINT)
    own = () if isinstance(plan.task.keep, str) else plan.names
    for name in own:
        if name in reserved:
            raise ValueError(
                f"keep returns {name!r}, which is the name of something else in an ensemble: call it otherwise, such "
                f"as 'my_{name}'. Reserved are {', '.join(reserved)}"
            )
        if name in plan.over.names:
            raise ValueError(
                f"keep returns {name!r}, which is the name of a number that is swept: call it otherwise, such as "
                f"'my_{name}'"
            )
    reserved = tuple(dict.fromkeys((*reserved, *plan.names)))
    for name in plan.over.names:
        if name in reserved:
            raise ValueError(
                f"over names {name!r}, which is the name of something else in an ensemble: rename that field of the "
                f"model, or write q1, dq1 for a coordinate. Reserved are {', '.join(reserved)}"
            )


def check_starts(plan: Plan) -> None:
    """Some members, of all parts of the ensemble, have starts on the constraints, or ``ValueError``."""
    if not plan.task.problem.projection:
        return
    each = -(-plan.block // SAMPLED_PARTS) if plan.members > plan.block else plan.members
    begins = (
        np.linspace(0, plan.members - each, SAMPLED_PARTS, dtype=int).tolist() if plan.members > plan.block else [0]
    )
    parts = [plan.given(i, i + each) for i in begins]
    numbers, q0, v0 = (np.concatenate(x)[: plan.block] for x in zip(*parts, strict=True))
    if np.any(start_found(plan.task, numbers, q0, v0)):
        return
    here = jax.tree.map(lambda x: jax.numpy.asarray(x[0], plan.task.problem.ts.dtype), (numbers, q0, v0))
    values = ", ".join(f"{name} = {x:.6g}" for name, x in zip(plan.over.names, numbers[0], strict=True))
    try:
        model, q, v = unprojected_start(plan.task, *here)
        project(plan.task.held(model, q, v), plan.ts[0], q, v, plan.task.problem.method)
        reason = "its starts are not finite"
    except ValueError as error:
        reason = str(error)
    raise ValueError(
        f"over leads off the constraints: none of {len(numbers)} members tried has a start. With {values}, {reason}"
    )


def metadata_of(plan: Plan) -> dict[str, Any]:
    """What a reader of an ensemble needs to know of it, as JSON has it."""
    pairs = lambda named: [list(pair) for pair in named]
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
    }


def fingerprint_of(plan: Plan, purpose: str) -> dict[str, Any]:
    """The same, with all else that the members follow from: two ensembles that differ in any of it are not the same.
    ``ValueError`` where a function of the user's cannot be compared; ``purpose`` is the argument that wants it."""
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
        "event": None if problem.event is None else problem.event.direction,
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
    """What the functions of a member's model, and all others that were given, return at one instant."""
    problem = task.problem
    model, q, v = unprojected_start(task, numbers, q, v)
    terms = lambda q, v: eqx.filter(model(t, q, v), eqx.is_array)
    found = [q, v, terms(q, v), rate(kinematic_map_of(model), q, v)]
    if isinstance(model, AbstractSystem):
        found.append(model.violation(t, q, v))
    if problem.tableau is None:  # an implicit method, whose steps use derivatives
        found.append(jax.jvp(terms, (q, v), (q, v))[1])
    if problem.event is not None:
        found.append(problem.event.function(t, q, v))
    if callable(task.keep):
        samples = lambda x: jax.numpy.stack([x] * problem.ts.size)
        count = jax.numpy.zeros((), int)
        found.append(kept_arrays(task, numbers, samples(t), samples(q), samples(v), count, count, (t, q, v)))
    return eqx.filter(found, eqx.is_array)
