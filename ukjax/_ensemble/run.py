"""``ensemble``: simulate many members of one system."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._check import as_integer, check_flag, memory
from .._errors import InputError
from .._motion.event import Event
from .._motion.result import ended_well
from .._motion.simulate.arguments import DEFAULT_MAX_STEPS
from .._precision import Numbers
from .._solve import AbstractMethod
from .opened import Ensemble, open_ensemble
from .parcel import is_running_script
from .plan import Plan, check_names, check_starts, chunks_of, fingerprint_of, in_bytes, metadata_of, plan_of
from .store import Store, remaining
from .work import check_executor, compute_by_executor, compute_locally, joined

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
    keep: str | Callable = "samples",
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
    event: Event | Callable | Sequence[Event | Callable] | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
    progress: bool = False,
) -> Ensemble:
    """Simulate many members of one system, which differ in the numbers that are swept.

    Each member is the motion of the system with its own parameters and initial conditions. A member has the same
    result, bit for bit, for every ``chunk`` and ``executor``, on one kind of device. A member that fails has its time
    and reason in the result, and NaN at the samples that it did not reach. Other members do not change.

    Parameters
    ----------
    system : AbstractSystem or callable
        The model, as in ``simulate``.
    over : dict
        The swept numbers: names and values. A name is that of a parameter (``"m2"``, ``"ma[0]"``, ``"control.P"``), of
        a coordinate at the start (``"theta"`` or ``"q1"``) or of its rate (``"dtheta"`` or ``"dq1"``). Values are in
        the unit of that number, and are given as

        - ``Grid(low, high, count)``: equally spaced values;
        - a sequence or array of numbers: these values;
        - ``Uniform(low, high)``: a number drawn for each member;
        - a frozen distribution of ``scipy.stats``, such as ``scipy.stats.norm(1.0, 0.1)``: the same.
    members : int, optional
        Number of members. Default: the number of points of the grid. Required if numbers are drawn.
    ts : array_like, shape (samples,)
        Times of the samples [s]. Each motion starts at ``ts[0]``.
    q0, v0 : array_like, shape (n,) or (members, n), optional
        Initial coordinates and velocities, before the swept entries are set. Default: those of the mechanism with the
        parameters of the member. They are then projected onto the constraints, unless ``drift="none"``.
    combine : {"grid", "each", "random", "sobol"}, optional
        How the values of several numbers are combined.

        - ``"grid"``: every value of one number with every value of the others. Numbers that are drawn are drawn for
          each member, and ``members`` is a multiple of the number of grid points.
        - ``"each"``: member k has the k-th value of each number.
        - ``"random"``: values and distributions are sampled at random, independently.
        - ``"sobol"``: they are sampled by a scrambled Sobol sequence, which fills the space more evenly.

        Default: ``"each"`` if every number with values has ``members`` of them, else ``"grid"``.
    seed : int, optional
        Seed of the random numbers. Default: 0.
    start_of : callable, optional
        ``start_of(model, q0, v0) -> (q0, v0)`` changes the start of a member before the projection, for coordinates
        that depend on the swept numbers.
    fix_swept : bool, optional
        Whether the projection changes only coordinates and velocities that are not swept. Default: False, the nearest
        point on the constraints, where swept coordinates may change.
    keep : {"samples", "end", "all"} or callable, optional
        The part of each motion that is stored.

        - ``"samples"``: q and v at all times. This is the default.
        - ``"end"``: q and v at the end.
        - ``"all"``: also forces, residuals and the other fields of ``Trajectory``.
        - a function of the ``Trajectory`` of one member: the array, or the dictionary of arrays, that it returns.
          Names in the dictionary differ from those that are swept and from those of ``Ensemble``.
    store : path, optional
        Folder for the result, written chunk by chunk: a Zarr 3 group if the name ends in ``.zarr`` (needs the package
        zarr), else NumPy archives. Default: the result is in memory only. If the folder exists, only missing members
        are computed. See Notes.
    chunk : int, optional
        Members that are computed and written together. Default: as many as fit easily into memory, and for an
        existing Zarr group its own chunk.
    executor : optional
        Computes the chunks, one task each: an object with ``submit``, such as ``dask.distributed.Client`` or an
        executor of ``concurrent.futures``. Default: all devices of this machine.
    rank, world : int, optional
        This process computes share ``rank`` of ``world`` shares of the members. All processes write to one ``store``,
        whose first chunk determines the shares. Default: the process index and count of ``jax.distributed`` if it is
        initialised, else 0 and 1.
    drift, dt, rtol, atol, method, solver, max_steps : optional
        As in ``simulate``.
    event : Event, callable, or list of these, optional
        As in ``simulate``: each member ends at its own event, or continues after its ``reset``. ``event_t`` and
        ``event_counts`` of the result, shape (members, events), are the time of the first occurrence of each event and
        the number of occurrences. Both are always stored. All instants are in ``motion.events``, for a function given
        as ``keep``. A single event that ends the motion is at ``motion.last``. With contacts or dry friction,
        ``impacts`` and ``contact_changes`` of the result, shape (members,), are the numbers of impacts and of changes
        of the contact mode.
    progress : bool, optional
        Whether to show the memory per chunk, a progress bar and the number of failures on stderr. Default: False.
        The memory per chunk is also logged by ``logging.getLogger("ukjax")`` at level INFO.

    Returns
    -------
    Ensemble
        The swept numbers, the stored arrays, and how each member ended. If other processes have not finished their
        shares, it has the members computed so far, and a warning is logged.

    Raises
    ------
    InputError
        For bad input, before anything is computed. Also if ``store`` contains another ensemble; the message names the
        first difference.
    ImportError
        If a package is missing.
    OSError
        If the store can no longer be written, for instance because the disk is full. The chunks in it are intact, and
        the same call resumes.

    Notes
    -----
    A store is resumed only by the same ensemble: model, functions, numbers, options, draws, and versions of ukjax and
    JAX are compared. Functions are compared by the operations that JAX traces them to. A function that
    ``jax.pure_callback`` calls is compared by its code and by the values to which it refers.

    Examples
    --------
    Pendulums of three lengths, each with two initial velocities:

    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> over = {"length": uk.Grid(0.5, 1.5, 3), "dy": [0.0, -1.0]}
    >>> found = uk.ensemble(uk.systems.Pendulum(), over, ts=[0.0, 1.0], dt=0.01)
    >>> found.members, found.q.shape
    (6, (6, 2, 2))
    >>> found.over["length"]
    array([0.5, 0.5, 1. , 1. , 1.5, 1.5])
    >>> bool(found.finished.all())
    True

    Masses drawn from a normal distribution:

    >>> import scipy.stats
    >>> drawn = {"m": scipy.stats.norm(1.0, 0.1), "length": uk.Uniform(0.5, 1.5)}
    >>> uk.ensemble(uk.systems.Pendulum(), drawn, 100, ts=[0.0, 1.0], dt=0.01, keep="end").q.shape
    (100, 1, 2)
    """
    if is_running_script():
        raise InputError(
            "a worker executes this script to import its classes, and must not start the ensemble again: put the main "
            "part of the script under if __name__ == '__main__':"
        )
    check_executor(executor)
    check_flag("progress", progress)
    rank, world = _rank_and_world(rank, world)
    if world > 1 and store is None:
        raise InputError(
            f"store must be given if the work is shared, world = {world}: without it no process has all members. With "
            "world=1 each process computes all of them"
        )
    folder = None if store is None else Store(store)
    strict = chunk is not None
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
    with folder.writing(fingerprint_of(plan, "store"), plan.chunk, rank, world, strict) as write:
        assert folder.chunk is not None
        if folder.chunk_is_fixed:
            plan = plan._replace(chunk=folder.chunk)
        missing = remaining(_shares(plan, folder.chunk, rank, world), folder.done())
        if missing:
            _begin(plan, progress)
        for (first, last), result in _done(plan, missing, executor, progress):
            write(first, last, result)
    result = open_ensemble(folder.path)
    if not result.complete:
        LOGGER.warning(
            f"store {str(folder.path)!r} has {result.done} of {result.members} members: the share of rank {rank} of "
            f"{world} is done, and what others do is read by ukjax.open_ensemble when they are ready"
        )
    return result


def _shares(plan, chunk, rank, world) -> list[tuple[int, int]]:
    """The members that this rank computes, in chunks.

    The shares of the ranks are counted in chunks of the store (``chunk``), which is the same for all ranks. The memory
    of this machine determines only ``plan.chunk``, the number of members that are computed together.
    """
    if world == 1:
        return plan.chunks()
    own_chunks = chunks_of(0, plan.members, chunk)[rank::world]
    return [part for first, last in own_chunks for part in chunks_of(first, last, plan.chunk)]


def _rank_and_world(rank, world) -> tuple[int, int]:
    """Checked ``rank`` and ``world``; raises ``InputError`` for bad input."""
    if rank is None and world is None and jax.distributed.is_initialized():
        return jax.process_index(), jax.process_count()
    world = 1 if world is None else as_integer("world", world, 1)
    rank = 0 if rank is None else as_integer("rank", rank)
    if rank >= world:
        raise InputError(f"rank must be below world = {world}, got {rank}")
    return rank, world


def check_memory(plan: Plan, all_members: bool) -> None:
    """Raise ``InputError`` if the arrays that are in memory at the same time do not fit."""
    members = plan.members if all_members else min(plan.chunk, plan.members)
    needed, available = 8.0 * plan.numbers * members, memory()
    if needed <= available:
        return
    advice = "give a store, a folder" if all_members else "take a smaller chunk"
    raise InputError(
        f"{'members' if all_members else 'chunk'} = {members} needs {in_bytes(needed)} of memory, but "
        f"{in_bytes(available)} are available: {advice}, keep='end', or fewer times"
    )


def _begin(plan, progress):
    """Log the size of the ensemble, and check that it has starts."""
    LOGGER.info(plan.size_in_words())
    if progress:
        print(plan.size_in_words(), file=sys.stderr)
    check_starts(plan)


def _done(plan, chunks, executor, progress):
    """Yield each computed chunk and its arrays, with a progress bar if ``progress``."""
    computed = compute_locally(plan, chunks) if executor is None else compute_by_executor(executor, plan, chunks)
    if not progress:
        yield from computed
        return
    from tqdm import tqdm

    left = sum(last - first for first, last in chunks)
    failed = 0
    with tqdm(total=plan.members, initial=plan.members - left, unit=" members", unit_scale=True) as bar:
        for chunk, arrays in computed:
            failed += int(np.sum(~np.asarray(ended_well(arrays["result"]))))
            bar.set_postfix(failed=failed)
            bar.update(chunk[1] - chunk[0])
            yield chunk, arrays
