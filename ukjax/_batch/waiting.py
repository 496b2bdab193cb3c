"""Compiled programs that are waited for by a thread that listens, so that Ctrl-C is answered while they run.

While a program runs, the thread that called it hears no signal. So it runs in another one; after an interrupt it ends
there unheard.
"""

import atexit
import os
import signal
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import equinox as eqx
import jax

from .._haste import compiled_soon

PROGRAMS = 32

_programs: "OrderedDict[Any, Callable]" = OrderedDict()
_lock = threading.Lock()
_working: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def interruptibly(function: Callable, *arguments: Any) -> Any:
    """``function(*arguments)``, an ``equinox.filter_jit`` of values that are known. The compiler itself cannot be
    interrupted: that is answered when it has done its work."""
    return side_by_side(compiled(function, *arguments), [arguments], 1)[0]


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
def _leave():
    """Python must not end under a program that runs: what ends by an interrupt ends here, anything else waits."""
    try:
        if getattr(sys, "last_type", None) is not KeyboardInterrupt:
            for thread in list(_working):
                thread.join()
    finally:
        if any(thread.is_alive() for thread in _working):
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)


def compiled(function: Callable, *arguments: Any) -> Callable:
    """``function`` compiled for arguments like these, once, whichever thread asks for it."""
    dynamic, static = eqx.partition(arguments, eqx.is_array)
    arrays, tree = jax.tree.flatten(dynamic)
    others, structure = jax.tree.flatten(static)
    key = (
        function,
        tree,
        structure,
        tuple(others),
        tuple((x.shape, x.dtype, x.weak_type) for x in map(jax.typeof, arrays)),
        frozenset(device for x in arrays if isinstance(x, jax.Array) for device in x.devices()),
    )
    with _lock:
        if key not in _programs:
            _programs[key] = compiled_soon(function, *arguments)
            if len(_programs) > PROGRAMS:
                _programs.popitem(last=False)
        _programs.move_to_end(key)
        return _programs[key]
