"""Ctrl-C is handled within two seconds in all phases."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from ukjax._command.interrupt import interrupt_guard

pytestmark = pytest.mark.optimised

SOON = 2.0

HEAD = '''
import os, signal, sys, threading, time

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell started in the background

def interrupt_in(seconds, daemon=False):
    def interrupt():
        print("at", time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(seconds, interrupt)
    timer.daemon = daemon
    timer.start()

def interrupt_while_jax_is_imported():
    def interrupt():
        while "jax" not in sys.modules:
            time.sleep(0.01)
        interrupt_in(0.05)
    threading.Thread(target=interrupt, daemon=True).start()

def interrupt_when_it_runs():
    """In a thread; or, for one motion, piece by piece."""
    import ukjax._run.threads as waiting
    import ukjax._motion.integrate.single as one
    piece, run = one._piece, threading.Thread.start
    def first(*arguments):
        one._piece = piece
        found = piece(*arguments)
        interrupt_in(0.3)
        return found
    one._piece = first
    def start(thread):
        if thread.__class__ is threading.Thread and "work" in thread.name:
            threading.Thread.start = run
            interrupt_in(0.3)
        run(thread)
    threading.Thread.start = start
'''

LIBRARY = """
import diffrax as dfx, jax.numpy as jnp, numpy as np, ukjax as uk
uk.enable_float64()
def slowly(t, q, v):
    for _ in range(15):
        q = jnp.sin(q)
    return -q
model = uk.System(uk.MassForce(np.eye(20), slowly), ())
interrupt_when_it_runs()
q0 = np.zeros({shape})
try:
    uk.simulate(model, q0, q0, [0.0, 1.0], dt={dt}, solver={solver})
except KeyboardInterrupt:
    print("answered", time.time(), flush=True)
    {then}
"""

COMMAND = """
{when}
from ukjax.__main__ import main
sys.exit(main("{words}".split()))
"""


def run(script, folder):
    """Return seconds from the signal to its handling and to the end of the process, the exit code, and stderr."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder), "EQX_ON_ERROR": "off"}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], capture_output=True, text=True, timeout=150, cwd=folder, env=environment
    )
    ended = time.time()
    times = {word: float(at) for word, at in re.findall(r"(at|answered) ([\d.]+)", done.stdout)}
    assert "at" in times, done.stdout + done.stderr
    return times.get("answered", ended) - times["at"], ended - times["at"], done.returncode, done.stderr


@pytest.mark.parametrize(
    ("shape", "dt", "solver"),
    [
        pytest.param((20,), 1e-6, "uk.RungeKutta4()", id="one", marks=pytest.mark.slow),
        pytest.param((3, 20), 3e-5, "uk.RungeKutta4()", id="few"),
        pytest.param((600, 20), 4e-3, "uk.RungeKutta4()", id="blocks", marks=pytest.mark.slow),
        pytest.param((20,), 1e-4, "dfx.Kvaerno5()", id="diffrax", marks=pytest.mark.slow),
    ],
)
def test_interrupt_leaves_a_compiled_loop(shape, dt, solver, tmp_path):
    """The script catches the interrupt, continues, and ends normally."""
    answered, _, code, said = run(LIBRARY.format(shape=shape, dt=dt, solver=solver, then="pass"), tmp_path)
    assert (code, said) == (0, "") and answered < SOON


@pytest.mark.slow
def test_second_interrupt_ends_a_script_that_does_not_catch_the_first(tmp_path):
    """A process must not end while a compiled program runs. A message tells what it waits for."""
    again = "interrupt_in(2.0, daemon=True); raise"  # before the library, Python itself waits for other threads
    _, ended, code, said = run(LIBRARY.format(shape=(3, 20), dt=3e-6, solver="uk.RungeKutta4()", then=again), tmp_path)
    assert code == 130 and "KeyboardInterrupt\nukjax: waiting for a compiled program to end; press Ctrl-C" in said
    assert ended < SOON  # measured from the second interrupt


@pytest.mark.parametrize(
    ("when", "words"),
    [
        pytest.param("interrupt_while_jax_is_imported()", "run scara", id="import of JAX"),
        pytest.param("interrupt_in(3.5)", "run andrews_squeezer", id="compiler"),
        pytest.param("interrupt_when_it_runs()", "run two_mass_spring --dt 1e-7", id="loop", marks=pytest.mark.slow),
    ],
)
def test_interrupted_command_gives_one_line(when, words, tmp_path):
    _, ended, code, said = run(COMMAND.format(when=when, words=words), tmp_path)
    assert (code, said) == (130, "ukjax run: interrupted\n") and ended < SOON


def test_interrupt_guard_works_without_posix_functions(monkeypatch):
    """On Windows before Python 3.12 there is no ``os.set_blocking``."""
    for name in ("set_blocking", "get_blocking", "pipe"):
        monkeypatch.delattr(os, name)
    said = []
    with interrupt_guard(lambda: said.append("interrupted")) as interrupts:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
            time.sleep(1)
    assert interrupts.received and not said
