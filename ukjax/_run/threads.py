"""Run compiled programs in threads, so that Ctrl-C is handled while they run.

The thread that calls a compiled program receives no signal until it returns. Therefore the program runs in another
thread. After an interrupt that thread runs to the end of the program, and its result is dropped.
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

from .compile import Program, split

EXIT_MESSAGE_DELAY = 1.0  # seconds; at exit, wait this long for a program before printing a message

_workers: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def run_interruptibly(program: Program, *arguments: Any) -> Any:
    """Return ``program(*arguments)`` of concrete arguments. An interrupt during compilation is handled after it."""
    static, arrays = split(arguments)
    return run_parallel(program.executable(static, arrays), [tuple(arrays)], 1)[0]


def run_parallel(program: Callable, parts: Iterable[tuple], workers: int) -> list[Any]:
    """Return the list of ``program(*part)`` for all parts, run by ``workers`` threads."""
    return list(map_in_order(program, parts, workers))


def map_in_order(
    program: Callable, parts: Iterable[tuple], workers: int, ahead: int | None = None
) -> Generator[Any, None, None]:
    """Yield ``program(*part)`` for each part, in order, as soon as it and all earlier results are available.

    At most ``ahead`` parts are started beyond the result that is waited for (None: no limit).
    """
    lock, futures, parts = threading.Lock(), SimpleQueue(), iter(parts)
    allowed = threading.Semaphore(ahead or 2**31)
    stopped = threading.Event()

    def work():
        while not stopped.is_set():
            allowed.acquire()
            with lock:
                future = Future()
                try:
                    part = None if stopped.is_set() else next(parts, None)
                except BaseException as error:
                    future.set_exception(error)
                    futures.put(future)
                    return
                if part is None:
                    futures.put(None)
                    return
                futures.put(future)
            try:
                future.set_result(jax.block_until_ready(program(*part)))
            except BaseException as error:
                future.set_exception(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        _workers.add(thread)
        thread.start()
    try:
        while (future := futures.get()) is not None:
            yield future.result()
            allowed.release()
    finally:
        stopped.set()
        allowed.release(workers)


@atexit.register
def _wait_at_exit():
    """Wait at exit for programs that still run, since ending Python would crash the process.

    A second Ctrl-C ends the process at once.
    """
    running = [thread for thread in list(_workers) if thread.is_alive()]
    try:
        if getattr(sys, "last_type", None) is KeyboardInterrupt:
            for thread in running:
                thread.join(EXIT_MESSAGE_DELAY)
            if any(thread.is_alive() for thread in running):
                message = "ukjax: waiting for a compiled program to end; press Ctrl-C again to end the process at once"
                print(message, file=sys.stderr, flush=True)
        for thread in running:
            thread.join()
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(130)
