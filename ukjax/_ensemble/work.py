"""Compute chunks of members, on the devices of this process or by an executor."""

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
from .._errors import InputError
from .._run.threads import map_in_order
from .block import run_block
from .parcel import packed, unpacked
from .plan import Plan

Chunk = tuple[int, int]
Arrays = dict[str, np.ndarray]

MAX_SUBMITTED = 64
"""Largest number of tasks submitted at a time to an executor with an unknown number of workers."""


def check_executor(executor: Any) -> None:
    """Raise ``InputError`` if ``executor`` has no method ``submit`` as the executors of ``concurrent.futures`` have."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InputError(
            "executor must have submit(function, *arguments), as dask.distributed.Client and the executors of "
            f"concurrent.futures have, got {repr_of(executor)}"
        )


def compute_locally(plan: Plan, chunks: list[Chunk]) -> Iterator[tuple[Chunk, Arrays]]:
    """Compute the chunks in order, with their blocks in parallel: one thread per core, or per device that is not a CPU.

    If an allocation fails, the remaining chunks are halved.
    """
    devices = jax.local_devices()
    threads = max(len(devices), _cores() if devices[0].platform == "cpu" else 1)
    remaining = chunks
    while remaining:
        try:
            for chunk, arrays in _in_parallel(plan, remaining, devices, threads):
                yield chunk, arrays
                remaining = remaining[1:]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            smaller = [part for chunk in remaining for part in halves(chunk, plan.block)]
            if len(smaller) == len(remaining) and threads == 1:
                raise _too_large(plan) from error
            remaining, threads = smaller, threads if len(smaller) > len(remaining) else 1


def _in_parallel(plan, chunks, devices, threads):
    """Yield each chunk and its arrays. Blocks are computed by a pool of threads and distributed over the devices."""
    put = lambda device: jax.tree.map(lambda x: jax.device_put(x, device) if eqx.is_array(x) else x, plan.task)
    tasks = [put(device) for device in devices] if len(devices) > 1 else [plan.task]
    counter = itertools.count()

    def block(first, last):
        i = next(counter) % len(devices)
        # With a default device JAX compiles programs again. A single device is the default already.
        with jax.default_device(devices[i]) if len(devices) > 1 else contextlib.nullcontext():
            return run_block(tasks[i], *plan.given(first, last))

    parts = (part for chunk in chunks for part in blocks_of(chunk, plan.block))
    results = map_in_order(block, parts, threads, 2 * threads)
    with contextlib.closing(results):
        for chunk in chunks:
            yield chunk, joined([next(results) for _ in blocks_of(chunk, plan.block)])


def compute_by_executor(executor: Any, plan: Plan, chunks: list[Chunk]) -> Iterator[tuple[Chunk, Arrays]]:
    """Compute the chunks by the workers of ``executor``, in any order. A chunk whose allocation fails is halved."""
    parcel = packed(plan.task)
    waiting, finished = list(reversed(chunks)), SimpleQueue()
    max_running = 4 * _workers_of(executor) or MAX_SUBMITTED
    submit = partial(executor.submit, pure=False) if hasattr(executor, "scheduler_info") else executor.submit
    running: dict[int, tuple[Any, Chunk]] = {}
    numbers = itertools.count()
    try:
        while waiting or running:
            while waiting and len(running) < max_running:
                chunk, number = waiting.pop(), next(numbers)
                running[number] = submit(work, parcel, plan.block, *plan.given(*chunk)), chunk
                running[number][0].add_done_callback(lambda _, number=number: finished.put(number))
            future, chunk = running.pop(finished.get())
            try:
                arrays = future.result()
            except Exception as error:
                smaller = halves(chunk, plan.block)
                if not is_out_of_memory(error):
                    raise
                if len(smaller) == 1:
                    raise _too_large(plan) from error
                waiting += smaller
                continue
            yield chunk, arrays
    finally:
        for future, _ in running.values():
            future.cancel()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the host or on a device."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def halves(chunk: Chunk, block: int) -> list[Chunk]:
    """Split a chunk into two of whole blocks; a chunk of one block is returned as it is."""
    first, last = chunk
    middle = first + -(-(last - first) // (2 * block)) * block
    return [chunk] if middle >= last else [(first, middle), (middle, last)]


def _too_large(plan):
    return MemoryError(f"a block of {plan.block} members does not fit into memory: keep='end', or ask for fewer times")


def work(parcel: bytes, block: int, numbers: np.ndarray, q0: np.ndarray, v0: np.ndarray) -> Arrays:
    """Compute one chunk, in a worker. Its blocks run one after the other, since other workers use the other cores."""
    task = unpacked(parcel)
    parts = blocks_of((0, len(numbers)), block)
    return joined([run_block(task, numbers[a:b], q0[a:b], v0[a:b]) for a, b in parts])


def blocks_of(chunk: Chunk, block: int) -> list[Chunk]:
    """The blocks of a chunk, as (first, last) with ``last`` excluded."""
    first, last = chunk
    return [(i, min(i + block, last)) for i in range(first, last, block)]


def joined(parts: list[Arrays]) -> Arrays:
    """Concatenate the arrays of consecutive members."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _workers_of(executor) -> int:
    """Number of workers, 0 if unknown."""
    if hasattr(executor, "scheduler_info"):
        return len(executor.scheduler_info(n_workers=-1)["workers"])
    return getattr(executor, "_max_workers", None) or 0


def _cores():
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
