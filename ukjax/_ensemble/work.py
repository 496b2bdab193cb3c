"""Chunks, done here by all devices or elsewhere by an executor, each handed over when it is complete."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._check import repr_of
from .._run.threads import in_turn
from .block import run_block
from .parcel import packed, unpacked
from .plan import Plan

Chunk = tuple[int, int]
Arrays = dict[str, np.ndarray]

MAX_SUBMITTED = 64
"""Chunks that an executor of unknown size is given at a time."""


def check_executor(executor: Any) -> None:
    """``executor`` takes tasks as those of ``concurrent.futures`` do, or ``ValueError``."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ValueError(
            "executor must have submit(function, *arguments), as dask.distributed.Client and the executors of "
            f"concurrent.futures have, got {repr_of(executor)}"
        )


def compute_locally(plan: Plan, chunks: list[Chunk]) -> Iterator[tuple[Chunk, Arrays]]:
    """The chunks one after the other, their blocks side by side: a thread for each core, or for each device that is no
    CPU. An allocation that fails halves the chunks that are left."""
    devices = jax.local_devices()
    threads = max(len(devices), _cores() if devices[0].platform == "cpu" else 1)
    left = chunks
    while left:
        try:
            for chunk, found in _in_parallel(plan, left, devices, threads):
                yield chunk, found
                left = left[1:]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            smaller = [part for chunk in left for part in halves(chunk, plan.block)]
            if len(smaller) == len(left) and threads == 1:
                raise _too_large(plan) from error
            left, threads = smaller, threads if len(smaller) > len(left) else 1


def _in_parallel(plan, chunks, devices, threads):
    on = lambda device: jax.tree.map(lambda x: jax.device_put(x, device) if eqx.is_array(x) else x, plan.task)
    tasks = [on(device) for device in devices] if len(devices) > 1 else [plan.task]
    turn = itertools.count()

    def block(first, last):
        i = next(turn) % len(devices)
        with jax.default_device(devices[i]):
            return run_block(tasks[i], *plan.given(first, last))

    parts = (part for chunk in chunks for part in blocks_of(chunk, plan.block))
    found = in_turn(block, parts, threads, 2 * threads)
    with contextlib.closing(found):
        for chunk in chunks:
            yield chunk, joined([next(found) for _ in blocks_of(chunk, plan.block)])


def compute_by_executor(executor: Any, plan: Plan, chunks: list[Chunk]) -> Iterator[tuple[Chunk, Arrays]]:
    """The chunks by whoever works for the ``executor``, in any order. An allocation that fails halves the chunk."""
    parcel = packed(plan.task)
    left, ended = list(reversed(chunks)), SimpleQueue()
    at_most = 4 * _workers_of(executor) or MAX_SUBMITTED
    submit = partial(executor.submit, pure=False) if hasattr(executor, "scheduler_info") else executor.submit
    under_way: dict[int, tuple[Any, Chunk]] = {}
    numbers = itertools.count()
    try:
        while left or under_way:
            while left and len(under_way) < at_most:
                chunk, number = left.pop(), next(numbers)
                under_way[number] = submit(work, parcel, plan.block, *plan.given(*chunk)), chunk
                under_way[number][0].add_done_callback(lambda _, number=number: ended.put(number))
            future, chunk = under_way.pop(ended.get())
            try:
                found = future.result()
            except Exception as error:
                smaller = halves(chunk, plan.block)
                if not is_out_of_memory(error):
                    raise
                if len(smaller) == 1:
                    raise _too_large(plan) from error
                left += smaller
                continue
            yield chunk, found
    finally:
        for future, _ in under_way.values():
            future.cancel()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, here or on a device."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def halves(chunk: Chunk, block: int) -> list[Chunk]:
    """A chunk in two, of whole blocks; itself if it is one block."""
    first, last = chunk
    middle = first + -(-(last - first) // (2 * block)) * block
    return [chunk] if middle >= last else [(first, middle), (middle, last)]


def _too_large(plan):
    return MemoryError(f"a block of {plan.block} members does not fit into memory: keep='end', or ask for fewer times")


def work(parcel: bytes, block: int, numbers: np.ndarray, q0: np.ndarray, v0: np.ndarray) -> Arrays:
    """A chunk, by a worker: one process or one thread of many, which has the other threads' cores for other chunks."""
    task = unpacked(parcel)
    parts = blocks_of((0, len(numbers)), block)
    return joined([run_block(task, numbers[a:b], q0[a:b], v0[a:b]) for a, b in parts])


def blocks_of(chunk: Chunk, block: int) -> list[Chunk]:
    """The members of each."""
    first, last = chunk
    return [(i, min(i + block, last)) for i in range(first, last, block)]


def joined(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _workers_of(executor) -> int:
    if hasattr(executor, "scheduler_info"):
        return len(executor.scheduler_info(n_workers=-1)["workers"])
    return getattr(executor, "_max_workers", None) or 0


def _cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
