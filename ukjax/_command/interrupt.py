"""Ctrl-C, answered also while Python itself does not listen: in a compiled loop, in the compiler, in an import."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

GRACE = 1.0  # seconds in which Python may answer by itself


class Interrupts:
    """Whether there was one."""

    def __init__(self):
        self.seen = False

    def __call__(self, *_):
        self.seen = True
        raise KeyboardInterrupt


@contextlib.contextmanager
def answered_in_time(say: Callable[[], None]) -> Iterator[Interrupts]:
    """Within, an interrupt that has led to nothing ``GRACE`` seconds later ends the process, with what ``say`` prints
    and exit code 130.

    Python's own handler of signals writes to a socket, at once and in whatever thread it runs; a thread reads from it,
    since the first one may be busy in what is not Python, and what it imports may take an interrupt for an error of its
    own. A pipe would do but on Windows, where it cannot be made non-blocking before Python 3.12.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts  # somebody else's program, which answers for itself
        return
    answered = threading.Event()
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def watch():
        while signals := receiver.recv(1):
            if signals[0] == signal.SIGINT and not answered.wait(GRACE):
                say()
                os._exit(130)

    handler = signal.signal(signal.SIGINT, interrupts)
    unraisable, sys.unraisablehook = sys.unraisablehook, _of_no_interrupt(sys.unraisablehook)
    wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield interrupts
    finally:
        answered.set()
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = unraisable
        sender.close()
        watching.join()
        receiver.close()


def _of_no_interrupt(hook):
    """Says nothing of an interrupt that came where nothing can be raised, and is answered by the watch."""

    def told(unraisable):
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)

    return told
