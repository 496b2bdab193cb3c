"""Compiled programs run in threads, so that Ctrl-C is answered while they run.

While a program runs, the thread that called it receives no signal. So it runs in another thread. After an interrupt
that thread goes on to the end of the program, and nobody waits for its result.
"""

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import jax

from .compile import Program

PATIENCE = 1.0  # seconds that Python's end waits for a program before it says so

_working: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def interruptibly(program: Program, *arguments: Any) -> Any:
    """``program(*arguments)`` of values that are known. Compiling cannot be interrupted: an interrupt is answered when
    the compiler is done."""
    return side_by_side(program.compiled(*arguments), [arguments], 1)[0]


def side_by_side(program: Callable, parts: Iterable[tuple], workers: int) -> list[Any]:
    """What ``program(*part)`` gives for each of the parts, so many at a time."""
    return list(in_turn(program, parts, workers))


def in_turn(
    program: Callable, parts: Iterable[tuple], workers: int, ahead: int | None = None
) -> Generator[Any, None, None]:
    """The same, each result as soon as it and those before it are there; parts are taken, and done, no further than
    ``ahead`` of the result that is waited for, if that is given."""
    waiting, found, parts = threading.Lock(), SimpleQueue(), iter(parts)
    allowed = threading.Semaphore(ahead or 2**31)
    stopped = threading.Event()

    def work():
        while not stopped.is_set():
            allowed.acquire()
            with waiting:
                future = Future()
                try:
                    part = None if stopped.is_set() else next(parts, None)
                except BaseException as error:
                    future.set_exception(error)
                    found.put(future)
                    return
                if part is None:
                    found.put(None)
                    return
                found.put(future)
            try:
                future.set_result(jax.block_until_ready(program(*part)))
            except BaseException as error:
                future.set_exception(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        _working.add(thread)
        thread.start()
    try:
        while (future := found.get()) is not None:
            yield future.result()
            allowed.release()
    finally:
        stopped.set()
        allowed.release(workers)


@atexit.register
def _wait():
    """Python must not end while a program runs, since that crashes the process. So it waits; the user may decide
    otherwise by a second Ctrl-C."""
    left = [thread for thread in list(_working) if thread.is_alive()]
    try:
        if getattr(sys, "last_type", None) is KeyboardInterrupt:
            for thread in left:
                thread.join(PATIENCE)
            if any(thread.is_alive() for thread in left):
                said = "ukjax: waiting for a compiled program to end; press Ctrl-C again to end the process at once"
                print(said, file=sys.stderr, flush=True)
        for thread in left:
            thread.join()
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)
