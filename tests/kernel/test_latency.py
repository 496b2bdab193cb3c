"""Waiting times, by counts that do not depend on the machine: traces, compilations and imports."""

import logging
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import wraps

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._kernel import without_unused
from ukjax._mechanism import between, dynamics
from ukjax._motion.integrate import fixed_step, single
from ukjax._motion.stepper.drift_correction import MethodPerLevel

from ..mechanisms import GRAVITY, Pendulum
from ..motion.test_fallback import tied, tied_starts

LEVEL, REST = [-1.0, 0.0], [0.0, 0.0]
LINES = 20
"""The limit for the pendulum's program, which calls one kernel. It had 6 lines when this was written."""


class Counted:
    """A pendulum whose functions count how often they are traced."""

    def __init__(self):
        self.rod = self.kinetic = 0
        self.system = uk.System(
            uk.Lagrangian(self._kinetic, lambda t, q: GRAVITY * q[1]), uk.Holonomic(self._rod, name="rod")
        )

    def _rod(self, t, q):
        self.rod += 1
        return q @ q - 1

    def _kinetic(self, t, q, v):
        self.kinetic += 1
        return v @ v / 2

    @property
    def times(self):
        return self.rod, self.kinetic


@contextmanager
def compiling():
    """The names of the programs that are compiled within the block."""
    names = []

    class Listener(logging.Handler):
        def emit(self, record):
            names.extend(re.findall(r"Finished XLA compilation of jit\((.+?)\) in", record.getMessage()))

    listener, log = Listener(), logging.getLogger("jax")
    log.addHandler(listener)
    try:
        with jax.log_compiles():
            yield names
    finally:
        log.removeHandler(listener)


def height(system, speed):
    return uk.simulate(system, LEVEL, jnp.array([0.0, 1.0]) * speed, np.linspace(0, 1, 3)).q[-1, 1]


def test_listener_records_compilations():
    """Otherwise no test below could fail."""
    with compiling() as programs:
        jax.jit(lambda x: x + 3)(1.0)
    assert len(programs) >= 1


def test_the_program_of_a_motion_is_short(monkeypatch):
    given, run = [], single._piece
    monkeypatch.setattr(single, "_piece", lambda *arguments: given.append(arguments) or run(*arguments))
    uk.simulate(Pendulum(), LEVEL, REST, np.linspace(0, 1, 11))
    (arguments,) = given
    assert len(run.lower(*arguments).as_text().splitlines()) < LINES


def after_even_steps(speed, copies=1):
    motion = uk.simulate(Pendulum(copies=copies), LEVEL, jnp.array([0.0, 1.0]) * speed, np.linspace(0, 1, 3), dt=0.02)
    return motion.q[-1, 1]


def test_the_program_of_a_derivative_is_short():
    lines = lambda derivative: len(jax.jit(derivative).lower(0.5).as_text().splitlines())
    assert lines(after_even_steps) < 600  # 460 when this was written
    assert lines(jax.grad(after_even_steps)) < 600


def test_the_program_of_adaptive_steps_is_short_within_jit():
    lines = lambda derivative: len(jax.jit(derivative).lower(0.5).as_text().splitlines())
    adaptive = lambda speed: height(Pendulum(), speed)
    assert lines(adaptive) < 750  # 593 when this was written
    assert lines(jax.grad(adaptive)) < 1700  # 1340


@pytest.mark.slow
def test_derivative_uses_fast_method_where_applicable(monkeypatch):
    """Whether it is applicable is known from the motion."""
    tried, run = [], fixed_step._solve
    monkeypatch.setattr(fixed_step, "_solve", lambda *given: tried.append(given[1].attempt) or run(*given))
    slope = jax.grad(after_even_steps)(0.5)
    assert len(tried) == 1 and isinstance(tried[0], MethodPerLevel)
    tried.clear()
    assert float(jax.grad(lambda speed: after_even_steps(speed, 3))(0.5)) == pytest.approx(float(slope), rel=1e-9)
    assert [method.acceleration.kept for method in tried] == [(0,)]  # checked before the first step
    tried.clear()
    q0, upwards = tied_starts([0.0, 0.0])[0], np.array([0.0, 1.0, 0.0, 0.0])
    of_tied = lambda speed: uk.simulate(tied(), q0, upwards * speed, np.linspace(0, 1, 3), dt=0.02).q[1, -1, 1]
    assert float(jax.grad(of_tied)(0.5)) == pytest.approx(float(slope), rel=1e-9)
    assert [method.acceleration.kept for method in tried] == [None, (0,)]  # found during the motion
    h, at = 1e-4, lambda speed: float(after_even_steps(speed))
    difference = (8 * (at(0.5 + h) - at(0.5 - h)) - (at(0.5 + 2 * h) - at(0.5 - 2 * h))) / (12 * h)
    assert float(slope) == pytest.approx(difference, rel=1e-9)


def test_unused_results_are_not_differentiated():
    def squared(x):
        jax.lax.map(jnp.sin, x)  # an unused result
        return {"square": x**2, "size": x.size}

    slope = lambda function: str(jax.make_jaxpr(lambda x: jax.jvp(lambda x: function(x)["square"], (x,), (x,)))(x))
    x = jnp.arange(3.0)
    assert "sin" in slope(squared) and "sin" not in slope(without_unused(squared))
    found, change = jax.jvp(lambda x: without_unused(squared)(x)["square"], (x,), (x,))
    np.testing.assert_array_equal([found, change], [x**2, 2 * x**2])
    assert without_unused(squared)(x)["size"] == 3


@pytest.mark.parametrize(
    ("ask", "rod", "kinetic"),
    (
        (lambda system: uk.simulate(system, LEVEL, REST, np.linspace(0, 1, 11)), 8, 8),
        (lambda system: uk.simulate(system, LEVEL, REST, np.linspace(0, 1, 11), dt=0.01), 8, 8),
        (lambda system: uk.project(system, 0.0, LEVEL, REST), 6, 4),
        (lambda system: uk.constrained_motion(system(0.0, LEVEL, REST)), 2, 3),
        (lambda system: jax.grad(lambda speed: height(system, speed))(0.5), 15, 13),
    ),
    ids=("simulate", "even steps", "project", "constrained_motion", "gradient"),
)
def test_functions_of_the_user_are_traced_a_few_times(ask, rod, kinetic):
    counted = Counted()
    ask(counted.system)
    assert 0 < counted.rod <= rod and 0 < counted.kinetic <= kinetic


def counting(calls, function):
    @wraps(function)
    def counted(*arguments):
        calls.append(function)
        return function(*arguments)

    return counted


def test_a_mechanism_is_traced_once(monkeypatch):
    """Three programs evaluate the mass matrix and the residual of the loop, together at fifteen places."""
    of_bodies, of_loops = [], []
    monkeypatch.setattr(dynamics, "moving", counting(of_bodies, dynamics.moving))
    monkeypatch.setattr(between, "moving", counting(of_loops, between.moving))
    linkage = uk.load(uk.robots.path("four_bar"))
    uk.simulate(linkage, *linkage.start({"crank": 0.5}), [0.0, 0.01], dt=0.005)
    assert len(of_bodies) == len(of_loops) == 1


@pytest.mark.parametrize(
    "other",
    (
        {"ts": np.linspace(0, 1, 13)},  # up to sixteen samples are one program
        {"rtol": 1e-6, "atol": 1e-7},
        {"q0": [0.0, -1.0], "v0": [0.3, 0.0]},
        {"ts": np.linspace(0, 2, 11)},
    ),
    ids=("samples", "tolerances", "start", "times"),
)
def test_other_samples_tolerances_and_starts_use_same_program(other):
    counted, usual = Counted(), {"q0": LEVEL, "v0": REST, "ts": np.linspace(0, 1, 11)}
    uk.simulate(counted.system, **usual)
    before = counted.times
    with compiling() as programs:
        uk.simulate(counted.system, **usual | other)
    assert counted.times == before and "_piece" not in programs


def test_other_fixed_steps_use_same_program():
    counted, ts = Counted(), np.linspace(0, 1, 11)
    uk.simulate(counted.system, LEVEL, REST, ts, dt=0.01)
    before = counted.times
    with compiling() as programs:
        uk.simulate(counted.system, LEVEL, REST, ts, dt=0.02)
        uk.simulate(counted.system, LEVEL, REST, ts[:7], dt=0.02)
    assert counted.times == before and "_piece" not in programs


def test_other_numbers_in_the_model_compile_nothing():
    ts = np.linspace(0, 1, 11)
    for _ in range(4):  # until checks, whose first calls are evaluated by NumPy, are compiled as well
        uk.simulate(Pendulum(), LEVEL, REST, ts)
    with compiling() as programs:
        uk.simulate(Pendulum(mass=2.0, length=0.5), [-0.5, 0.0], REST, ts)
    assert not programs


def test_another_gradient_compiles_nothing():
    counted = Counted()
    slope = jax.grad(lambda speed: height(counted.system, speed))
    slope(0.5)
    before = counted.times
    with compiling() as programs:
        slope(0.7)
    assert counted.times == before and not programs


def test_motion_with_redundant_rows_compiles_one_program():
    """NumPy selects the independent rows before the compilation."""
    with compiling() as programs:
        uk.simulate(Pendulum(copies=3), LEVEL, REST, np.linspace(0, 1, 11))
    assert programs.count("_piece") == 1


def test_few_redundant_rows_compile_one_program():
    """The first motion shows that the models of this structure have redundant rows."""
    twice = uk.Holonomic(lambda t, q: jnp.stack([q @ q - 1, 2 * (q @ q - 1)]))
    pendulum = uk.System(uk.MassForce(np.eye(3), [0.0, 0.0, -GRAVITY]), twice)
    with compiling() as programs:
        for side in (1.0, -1.0):
            motion = uk.simulate(pendulum, [side, 0.0, 0.0], np.zeros(3), np.linspace(0, 1, 3))
            assert motion.plan and motion.plan.notes == ["from the start: solved by FastPath with 1 independent rows"]
    assert programs.count("_piece") == 1


def test_quantities_are_computed_on_first_access():
    counted = Counted()
    motion = uk.simulate(counted.system, LEVEL, REST, np.linspace(0, 1, 11))
    with compiling() as programs:
        assert motion.finished and motion.reason == "reached its last time"
    assert "_observed_one" not in programs
    with compiling() as programs:
        assert np.abs(np.asarray(motion.energy)).max() < 1e-6 and np.abs(motion.residual).max() < 1e-12
    assert programs.count("_observed_one") == 1


def test_the_second_step_compiles_nothing():
    counted = Counted()
    state = uk.step(counted.system, uk.initial_state(counted.system, LEVEL, REST), 0.01)
    before = counted.times
    with compiling() as programs:
        state = uk.step(counted.system, state, 0.01)
        uk.step(counted.system, state, 0.02)
    assert counted.times == before and not programs


SCRIPT = """
import sys
import ukjax as uk
uk.enable_float64()
pendulum = uk.System(
    uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: 9.81 * q[1]), uk.Holonomic(lambda t, q: q @ q - 1)
)
q0, v0 = uk.project(pendulum, 0.0, [-1.0, 0.0], [0.0, 0.0])
assert uk.simulate(pendulum, q0, v0, [0.0, 0.1]).finished
uk.step(pendulum, uk.initial_state(pendulum, q0, v0), 0.01)
print([name for name in ("diffrax", "optimistix", "lineax") if name in sys.modules])
import diffrax
print("diffrax" in sys.modules)
"""


def test_motion_imports_no_unneeded_library():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]
