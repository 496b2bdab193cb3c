"""The front door of ensembles."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from .._check import as_integer, check_flag, memory
from .._motion.event import Event
from .._motion.result import ended_well
from .._motion.simulate import MOST_STEPS
from .._precision import Numbers
from .._solve import AbstractMethod
from .opened import Ensemble, open_ensemble
from .parcel import is_running_script
from .plan import Plan, check_names, check_starts, chunks_of, fingerprint_of, in_bytes, metadata_of, plan_of
from .store import Store, remaining
from .work import check_executor, done_by, done_here, joined

LOGGER = logging.getLogger("ukjax")


def ensemble(
    system: Any,
    over: Mapping[str, Any],
    members: int | None = None,
    *,
    ts: Numbers,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    combine: str | None = None,
    seed: int = 0,
    start_of: Callable | None = None,
    fix_swept: bool = False,
    keep: "str | Callable" = "samples",
    store: str | os.PathLike | None = None,
    chunk: int | None = None,
    executor: Any = None,
    rank: int | None = None,
    world: int | None = None,
    drift: str | None = None,
    dt: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    method: str | AbstractMethod = "orthogonal",
    solver: Any = None,
    event: Event | Callable | None = None,
    max_steps: int = MOST_STEPS,
    progress: bool = False,
) -> Ensemble:
    """Motions of ``members`` of one system, which differ in the numbers that are swept ``over``.

    **What is swept.** ``over`` has a name for each number: one of the model's, ``"m2"``, ``"ma[0]"``, ``"control.P"``,
    or of the start, a coordinate's ``"theta"`` or ``"q1"``, its rate ``"dtheta"`` or ``"dq1"``. Its values are an
    array, a range ``(low, high, count)`` of as many, or they are drawn: from a range ``(low, high)``, or from a
    distribution of ``scipy.stats``. ``combine`` says how: ``"grid"``, every value of one with every value of the
    others, and what is drawn for each of ``members``; ``"each"``, arrays with a value for each member, which is what is
    taken if they have so many; ``"random"`` or ``"sobol"``, arrays too are picked from, at random or evenly by Sobol's
    points. ``seed`` is that of what is drawn.

    **Starts.** ``q0`` and ``v0``, (n,) or (members, n); left out, those of the mechanism with the member's numbers in
    it. What is swept of them is put in; ``start_of(model, q0, v0) -> (q0, v0)`` may put right what follows from it; and
    the result is brought onto the constraints, as by ``project``, unless ``drift="none"``: to the nearest point,
    where what was swept may have moved; or, with ``fix_swept``, to the nearest one at which what was swept of the start
    has its swept values.

    **What is kept.** q and v at the times ``ts`` [s]; with ``keep="end"`` at the last alone; with ``"all"`` forces,
    residuals and all else that a ``Trajectory`` has, too; with a function of the ``Trajectory`` of a member what it
    returns, an array or a dictionary of them, whose names are neither swept nor those of an ensemble's own results.
    ``store`` names a folder that has it, chunk by chunk, while it is being computed: as a Zarr 3 group where the name
    ends in .zarr, which needs the package zarr, else as NumPy's archives. Left out, all is kept in memory.

    **Resuming.** If the folder is there, the members that it lacks are computed, ``chunk`` at a time (as many as memory
    takes easily; those of a Zarr group stay as many as they were). It is refused, with the first difference, where the
    model, a function, a number, an option, the draws, or the version of ukjax or JAX is another one. Functions are
    compared by what JAX traces them to; one that ``pure_callback`` calls by its code and what it holds.

    **Members.** A member is the same, bit for bit, whatever the chunk and whoever computes it, on one kind of device.
    One that fails has its time and reason in the result, and NaN where it did not come to; it changes no other.

    **Workers.** All devices of this machine; or those of an ``executor``, anything with ``submit`` such as a
    ``dask.distributed.Client``: a chunk is a task. Or let each of ``world`` jobs do its share, with a ``rank`` of its
    own and one ``store`` for all, whose first chunk decides who does which members; the processes of
    ``jax.distributed``, where that was initialised, do so unless they are told otherwise. A job that has done its share
    while others are not ready returns what is there, and logs a warning that says how much.

    The rest as in ``simulate``. ``progress`` shows how far it is, how fast and how many failed, and first how much
    memory a chunk takes, which is also logged as information of ``logging.getLogger("ukjax")``. Raises ``ValueError``
    for bad input, before anything is computed, ``ImportError`` where a package is missing, and ``OSError`` where the
    store cannot be written any more: what is there is whole, and the same call goes on from it.
    """
    if is_running_script():
        raise ValueError(
            "a worker reads this script for its definitions: put what the script does under if __name__ == '__main__':"
        )
    check_executor(executor)
    check_flag("progress", progress)
    rank, world = _share(rank, world)
    if world > 1 and store is None:
        raise ValueError(
            f"store must be given where the work is shared, world = {world}: else nobody has all of it. With world=1 "
            "each does all of it"
        )
    folder = None if store is None else Store(store)
    insist = chunk is not None
    if folder is not None and folder.chunk_is_fixed and chunk is None:
        chunk = folder.chunk
    plan = plan_of(
        system, over, members, ts, q0, v0, combine, seed, start_of, fix_swept, keep, chunk, drift, dt, rtol, atol,
        method, solver, event, max_steps,
    )  # fmt: skip
    check_names(plan)
    check_memory(plan, folder is None)
    if folder is None:
        _begin(plan, progress)
        parts = dict(_done(plan, plan.chunks(), executor, progress))
        return Ensemble.in_memory(metadata_of(plan), joined([parts[key] for key in sorted(parts)]))
    with folder.writing(fingerprint_of(plan, "store"), plan.chunk, rank, world, insist) as write:
        assert folder.chunk is not None
        if folder.chunk_is_fixed:
            plan = plan._replace(chunk=folder.chunk)
        left = remaining(_shares(plan, folder.chunk, rank, world), folder.done())
        if left:
            _begin(plan, progress)
        for (first, last), found in _done(plan, left, executor, progress):
            write(first, last, found)
    found = open_ensemble(folder.path)
    if not found.complete:
        LOGGER.warning(
            f"store {str(folder.path)!r} has {found.done} of {found.members} members: the share of rank {rank} of "
            f"{world} is done, and what others do is read by ukjax.open_ensemble when they are ready"
        )
    return found


def _shares(plan, chunk, rank, world) -> list[tuple[int, int]]:
    """The members that are done here, in chunks. Which these are follows from the ``chunk`` of the store, the same for
    all ranks, and not from this machine's memory, which only decides how many are done at a time."""
    if world == 1:
        return plan.chunks()
    mine = chunks_of(0, plan.members, chunk)[rank::world]
    return [part for first, last in mine for part in chunks_of(first, last, plan.chunk)]


def _share(rank, world) -> tuple[int, int]:
    """Which part of the work is done here, of how many; or ``ValueError``."""
    if rank is None and world is None and jax.distributed.is_initialized():
        return jax.process_index(), jax.process_count()
    world = 1 if world is None else as_integer("world", world, 1)
    rank = 0 if rank is None else as_integer("rank", rank)
    if rank >= world:
        raise ValueError(f"rank must be below world = {world}, got {rank}")
    return rank, world


def check_memory(plan: Plan, all_of_it: bool) -> None:
    """What is in memory at a time fits, or ``ValueError``."""
    at_a_time = plan.members if all_of_it else min(plan.chunk, plan.members)
    needed, there = 8.0 * plan.numbers * at_a_time, memory()
    if needed <= there:
        return
    advice = "give a store, a folder" if all_of_it else "take a smaller chunk"
    raise ValueError(
        f"{'members' if all_of_it else 'chunk'} = {at_a_time} asks for {in_bytes(needed)} of memory, and there are "
        f"{in_bytes(there)}: {advice}, keep='end', or fewer times"
    )


def _begin(plan, progress):
    """Say how large it is, and look whether it has starts."""
    LOGGER.info(plan.size_in_words())
    if progress:
        print(plan.size_in_words(), file=sys.stderr)
    check_starts(plan)


def _done(plan, chunks, executor, progress):
    """The chunks as they are done, with a meter if there is to be one."""
    found = done_here(plan, chunks) if executor is None else done_by(executor, plan, chunks)
    if not progress:
        yield from found
        return
    from tqdm import tqdm

    left = sum(last - first for first, last in chunks)
    failed = 0
    with tqdm(total=plan.members, initial=plan.members - left, unit=" members", unit_scale=True) as meter:
        for chunk, arrays in found:
            failed += int(np.sum(~np.asarray(ended_well(arrays["result"]))))
            meter.set_postfix(failed=failed)
            meter.update(chunk[1] - chunk[0])
            yield chunk, arrays
