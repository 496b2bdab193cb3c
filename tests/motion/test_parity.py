"""Every integrator computes the same motion, and ends with the same result, however ``simulate`` is called.

``simulate`` chooses among several integrators: by the steps, by the number of starts, and by what is traced. Motions
are compared with the eager motion of each start alone.
"""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion.result import FINISHED, JUMPED, NOT_FINITE, OFF_CONSTRAINTS
from ukjax._precision import in_precision

from ..mechanisms import Pendulum
from ..system.test_kinematic_map import OMEGA, Top

slow = pytest.mark.slow
TS = np.array([0.0, 0.05, 0.13, 0.3])
STEPS = {"fixed": {"dt": 0.02}, "adaptive": {}}
FIXED_STEPS = 3 + 4 + 9  # the fewest steps that are not longer than dt
ROUNDING = 1e-11
"""Of fixed steps, and of derivatives of them: a few hundred operations with numbers of up to 10."""
ERROR = 1e-8
"""Of adaptive steps: ten times the default rtol. A rounding error of the error estimate changes the length of a step,
and the two motions differ by no more than each of them from the exact one."""
FALL = uk.MassForce(np.eye(2), np.array([0.0, -9.81]))
REST = [0.0, 0.0]


def served():
    """A pendulum whose x is prescribed, x = 0.6 + sin(t)²/10, by a horizontal force."""
    rod = uk.Holonomic(lambda t, q: (q @ q - 1) / 2, name="rod")
    task = uk.Holonomic(lambda t, q: q[0] - 0.6 - 0.1 * jnp.sin(t) ** 2, name="task")
    return uk.System(FALL, rod, control=uk.control.Servo(np.array([[1.0], [0.0]]), task)), [0.6, -0.8], REST


PROBLEMS = {
    "pendulum": lambda: (Pendulum(), [-1.0, 0.0], [0.0, 0.3]),
    "redundant rods": lambda: (Pendulum(copies=2), [-1.0, 0.0], [0.0, 0.3]),
    "servo": served,
    "quaternion": lambda: (Top(height=0.1), [1.0, 0.0, 0.0, 0.0], OMEGA),
}


def start_of(problem):
    model, *start = PROBLEMS[problem]()
    return model, *(jnp.asarray(x, float) for x in start)


def arrays(motion: uk.Trajectory) -> dict[str, Any]:
    return {name: getattr(motion, name) for name in ("t", "q", "v", "result", "steps", "last")}


def with_loss(motion):
    return jnp.sum(motion["q"][..., -1, :]) + jnp.sum(motion["v"][..., -1, :]), motion


# Each of these calls f, a function of q0 and v0 that returns the arrays of a motion, and returns them and, if there is
# one, the derivative of the loss by q0 and v0.
def eager(f, q0, v0):
    return f(q0, v0), None


def jit(f, q0, v0):
    return jax.jit(f)(q0, v0), None


def vmap(f, q0, v0):
    return jax.vmap(f)(q0, v0), None


def jvp(f, q0, v0):
    return jax.jvp(f, (q0, v0), (q0, v0))[0], None


def grad(f, q0, v0):
    (_, motion), slope = _value_and_grad(f)(q0, v0)
    return motion, slope


def jit_of_grad(f, q0, v0):
    (_, motion), slope = jax.jit(_value_and_grad(f))(q0, v0)
    return motion, slope


def vmap_of_grad(f, q0, v0):
    (_, motion), slope = jax.vmap(_value_and_grad(f))(q0, v0)
    return motion, slope


def _value_and_grad(f):
    return jax.value_and_grad(lambda q0, v0: with_loss(f(q0, v0)), (0, 1), has_aux=True)


# test_transformations and test_traced have a batch of adaptive steps under jit, with its derivative.
ONE = {"fixed": (grad, jit_of_grad, jvp), "adaptive": (grad, jit_of_grad)}
MANY = {"fixed": (eager, jit_of_grad, vmap_of_grad), "adaptive": (eager, grad, vmap_of_grad)}
EXACT = eager, grad
"""With fixed steps, these run the program of the eager motion, or one with the same rounding errors."""


def assert_same_types(found, expected):
    kinds = lambda motion: jax.tree.map(lambda x: (x.dtype, getattr(x, "weak_type", False)), motion)
    assert kinds(found) == kinds(expected)
    assert found["steps"].dtype == found["result"].dtype == np.int32


def cases(quick, *others):
    """Problems with kinds of steps, of which all but the first are slow."""
    marks = lambda case: [] if case == quick else slow
    return [pytest.param(*case, marks=marks(case), id=", ".join(case)) for case in (quick, *others)]


# Each problem is here or in the next test with fixed or adaptive steps, both kinds with each list of calls.
@pytest.mark.parametrize(("problem", "steps"), cases(("redundant rods", "fixed"), ("servo", "adaptive")))
def test_a_motion_is_the_same_in_every_transformation(problem, steps):
    model, q0, v0 = start_of(problem)
    f = lambda q0, v0: arrays(uk.simulate(model, q0, v0, TS, **STEPS[steps]))
    expected, slope = f(q0, v0), None
    assert int(expected["result"]) == FINISHED
    if steps == "fixed":
        assert int(expected["steps"]) == FIXED_STEPS
    for call in ONE[steps]:
        found, this_slope = call(f, q0, v0)
        check(found, expected, steps, call)
        slope = slope or this_slope
        if this_slope is not None:
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=10 * ERROR), this_slope, slope)


@pytest.mark.parametrize(("problem", "steps"), cases(("pendulum", "adaptive"), ("quaternion", "fixed")))
def test_batch_matches_single_motions_of_its_members(problem, steps):
    model, q0, v0 = start_of(problem)
    f = lambda q0, v0: arrays(uk.simulate(model, q0, v0, TS, **STEPS[steps]))
    Q, V = jnp.stack([q0] * 3), jnp.stack([v0, 0.9 * v0, 0.5 * v0])
    expected = jax.tree.map(lambda *x: jnp.stack(x), *(f(q, v) for q, v in zip(Q, V, strict=True)))
    slope = None
    for call in MANY[steps]:
        found, this_slope = call(f, Q, V)
        check(found, expected, steps, call)
        slope = slope or this_slope
        if this_slope is not None:
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=10 * ERROR), this_slope, slope)


def check(found, expected, steps, call):
    assert_same_types(found, expected)
    for name in ("t", "result", "steps"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{call.__name__}: {name}")
    close = 0 if call in EXACT and steps == "fixed" else ROUNDING if steps == "fixed" else ERROR
    same = lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=close, err_msg=call.__name__)
    for name in ("q", "v", "last"):
        jax.tree.map(same, found[name], expected[name])


@pytest.mark.parametrize("steps", STEPS)
def test_motion_under_grad_equals_eager_motion_bitwise(steps):
    """The same program computes both."""
    model, q0, v0 = start_of("pendulum")
    f = lambda q0, v0: arrays(uk.simulate(model, q0, v0, TS, **STEPS[steps]))
    jax.tree.map(np.testing.assert_array_equal, grad(f, q0, v0)[0], f(q0, v0))


# --- failures ------------------------------------------------------------------------------------------------------

LONG = np.array([0.0, 0.3, 0.9, 1.2])
LONG_STEPS = {"fixed": {"dt": 0.06}, "adaptive": {}}  # no step ends where a rod jumps
FAR = uk.Event(lambda t, q, v: jnp.sum(q) + 100.0)
"""An event that is not met. The motion with it is integrated by diffrax's loop."""


def lengthened():
    """A pendulum whose rod is 1 m long until 0.5 s, and 1.2 m after it."""
    rod = uk.Holonomic(lambda t, q: (q @ q - jnp.where(t < 0.5, 1.0, 1.44)) / 2, name="rod")
    return uk.System(FALL, rod), [0.6, -0.8], REST


def blown():
    """A spring whose force is NaN after 0.5 s."""
    return uk.System(uk.MassForce(np.eye(2), lambda t, q, v: jnp.where(t > 0.5, jnp.nan, -q))), [1.0, 0.0], REST


FAILURES = {
    "rod jumps": (lengthened, JUMPED),
    "not finite": (blown, NOT_FINITE),
}


def failing(failure, steps, **besides):
    make, result = FAILURES[failure]
    model, *start = make()
    q0, v0 = (jnp.asarray(x, float) for x in start)
    how = {"throw": False, **LONG_STEPS[steps], **besides}
    return lambda q0, v0: arrays(uk.simulate(model, q0, v0, LONG, **how)), q0, v0, result


# The results of the other failures, alone, in a batch and under jit, are in test_result.
@pytest.mark.parametrize(("failure", "steps"), cases(("not finite", "fixed"), ("rod jumps", "adaptive")))
def test_failure_has_same_result_in_every_transformation(failure, steps):
    """The same samples are NaN, and the motion reaches the same time. With fixed steps all values are the same."""
    f, q0, v0, result = failing(failure, steps)
    expected = f(q0, v0)
    assert int(expected["result"]) == result
    np.testing.assert_array_equal(np.isfinite(expected["t"]), np.isfinite(expected["q"]).all(-1))
    both = jnp.stack([q0, q0]), jnp.stack([v0, v0])
    calls = [(jit, (q0, v0)), (eager, both), (jit, both), (vmap, both)]
    for call, start in [*calls, (grad, (q0, v0)), (grad, both)] if result == NOT_FINITE else calls:
        found, _ = call(f, *start)
        assert_same_types(found, expected)
        each = lambda x, start=start: [x] if start[0].ndim == 1 else list(x)
        for i in range(start[0].ndim):
            one = jax.tree.map(lambda x, i=i, each=each: each(x)[i], found)
            assert int(one["result"]) == result
            np.testing.assert_array_equal(one["t"], expected["t"])
            np.testing.assert_allclose(one["last"][0], expected["last"][0], rtol=0, atol=1e-10)
            if steps == "fixed":
                assert int(one["steps"]) == int(expected["steps"])
                for name in ("q", "v", "last"):
                    same = lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=ROUNDING)
                    jax.tree.map(same, one[name], expected[name])


def test_failure_with_event_that_is_not_met_has_same_result():
    """At the same time and in the same state as without the event."""
    f, q0, v0, result = failing("not finite", "fixed")
    with_event, *_ = failing("not finite", "fixed", event=FAR)
    expected, found = f(q0, v0), with_event(q0, v0)
    assert_same_types(found, expected)
    assert int(found["result"]) == result
    for x, y in zip(found["last"], expected["last"], strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("how", [LONG_STEPS["fixed"], pytest.param({"event": FAR}, marks=slow)], ids=["fixed", "event"])
def test_start_off_constraints_is_error_or_result_code(how):
    """An error if the start is concrete. If it is traced, a result code, and no sample is reached."""
    f = lambda q0, v0: arrays(uk.simulate(Pendulum(), q0, v0, LONG, throw=False, **how))
    q0 = jnp.array([-1.1, 0.0])
    with pytest.raises(ValueError, match="off the constraints: at t = 0 s 'rod' is 0.105"):
        f(q0, 0 * q0)
    found, _ = jit(f, q0, 0 * q0)
    assert int(found["result"]) == OFF_CONSTRAINTS and float(found["last"][0]) == 0
    assert not np.any(np.isfinite(found["q"][:4]))


# --- float32 beside float64 ----------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize(("steps", "event"), [("fixed", None), ("adaptive", FAR)], ids=["fixed", "adaptive, event"])
def test_a_float32_model_stays_float32(steps, event):
    """With tolerances, times and dt of any precision."""
    model = in_precision(Pendulum(), np.dtype(np.float32))
    tolerances: dict[str, Any] = {"rtol": np.float64(1e-5), "atol": np.array([1e-6, 1e-6])}
    how: dict[str, Any] = tolerances | ({"dt": np.float64(0.02)} if steps == "fixed" else {})
    f = lambda q0, v0: arrays(uk.simulate(model, q0, v0, TS, event=event, **how))
    start = jnp.array([-1.0, 0.0], np.float32), jnp.array([0.0, 0.3], np.float32)
    expected = f(*start)
    both = tuple(jnp.stack([x, x]) for x in start)
    assert int(expected["result"]) == FINISHED
    # Types are known before anything is compiled.
    found, traced = expected, [jax.eval_shape(_value_and_grad(f), *start)]
    if not event:
        found = f(*both)
        assert_same_types(found, expected)
        np.testing.assert_allclose(found["q"][:, :4], jnp.broadcast_to(expected["q"], (2, 4, 2)), atol=1e-4)
        traced += [jax.eval_shape(lambda *x: jvp(f, *x), *start), jax.eval_shape(jax.vmap(_value_and_grad(f)), *both)]
    for leaf in jax.tree.leaves((found, traced)):
        assert leaf.dtype in (np.float32, np.int32)


# --- several devices -----------------------------------------------------------------------------------------------

SHARDED = """
import jax, jax.numpy as jnp, numpy as np, sys
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
import ukjax as uk

uk.enable_float64()
system = uk.System(
    uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: 9.81 * q[1]), uk.Holonomic(lambda t, q: (q @ q - 1) / 2)
)
angles = np.linspace(0.1, 1.5, 8)
starts = np.stack([np.sin(angles), -np.cos(angles)], axis=-1)
simulate = lambda q: uk.simulate(system, q, 0 * q, [0.0, 0.1, 0.3], **HOW).q
expected = simulate(starts)

def check(q, spec):
    np.testing.assert_allclose(q, expected, rtol=0, atol=1e-10)
    assert len(q.devices()) == 4 and q.sharding.spec[:1] == spec, (q.sharding, spec)

mesh = jax.make_mesh((4,), ("members",), axis_types=(KIND,))
replicated, over = (jax.device_put(starts, NamedSharding(mesh, spec)) for spec in (P(), P("members")))
"""
EAGER = "check(simulate(replicated), ()); check(simulate(over), ('members',))"
SHARD_MAP = """
how = dict(mesh=mesh, in_specs=P("members"), out_specs=P("members"), check_vma=False)  # of kernels JAX knows no vma
check(jax.jit(jax.shard_map(simulate, **how))(over), ("members",))
"""
JIT = """
found = jax.jit(simulate)(over)
np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
assert found.sharding.is_fully_replicated, "XLA partitions a kernel now: say so in the documentation"
"""
"""XLA does not partition a kernel: every device computes all members, unless ``jax.shard_map`` partitions them."""
REFUSED = """
try:
    simulate(over)
except ValueError:  # also jax's ShardingTypeError
    pass
else:
    raise AssertionError("an array over a mesh axis of type Explicit is taken now: say so in the documentation")
"""


@slow
def test_batch_over_several_devices_matches_one_device():
    """The result stays on these devices, each with its share of the members."""
    fixed = {"dt": 0.02}
    parts = (fixed, "Auto", EAGER, JIT), ({}, "Auto", EAGER, SHARD_MAP), (fixed, "Explicit", SHARD_MAP, REFUSED)
    script = "".join(
        "\n".join([SHARDED.replace("HOW", repr(how)).replace("KIND", f"AxisType.{kind}"), *asked])
        for how, kind, *asked in parts
    )
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"XLA_FLAGS": flags})
