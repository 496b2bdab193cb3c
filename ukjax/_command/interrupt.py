"""Handle Ctrl-C also while the interpreter is blocked: in a compiled loop, in the compiler, in an import."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

GRACE_SECONDS = 1.0
"""Time after an interrupt in which Python's own handler may end the command."""


class Interrupts:
    """Signal handler that raises ``KeyboardInterrupt`` and records in ``received`` that it was called."""

    def __init__(self):
        self.received = False

    def __call__(self, *_):
        self.received = True
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupt_guard(on_exit: Callable[[], None]) -> Iterator[Interrupts]:
    """Context manager: end the process if an interrupt has not ended it after ``GRACE_SECONDS``.

    The process then calls ``on_exit`` and exits with code 130. In a thread other than the main one, nothing is
    installed: the program that embeds ukjax handles its own interrupts.

    Python's C-level signal handler writes the signal number to a socket immediately, in any state of the interpreter
    (``signal.set_wakeup_fd``). A daemon thread reads the socket: the main thread may be blocked in compiled code, and
    a module that is being imported may swallow the ``KeyboardInterrupt``. A socket is used because a pipe cannot be
    made non-blocking on Windows before Python 3.12.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    finished = threading.Event()
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def watch():
        while signals := receiver.recv(1):
            if signals[0] == signal.SIGINT and not finished.wait(GRACE_SECONDS):
                on_exit()
                os._exit(130)

    handler = signal.signal(signal.SIGINT, interrupts)
    old_hook, sys.unraisablehook = sys.unraisablehook, _without_keyboard_interrupts(sys.unraisablehook)
    old_wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield interrupts
    finally:
        finished.set()
        signal.set_wakeup_fd(old_wakeup)
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = old_hook
        sender.close()
        watcher.join()
        receiver.close()


def _without_keyboard_interrupts(hook):
    """Wrap ``sys.unraisablehook`` to ignore ``KeyboardInterrupt``: the watcher thread ends the process."""

    def filtered(unraisable):
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)

    return filtered
