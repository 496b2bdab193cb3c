"""Motions under each transformation of JAX, and with arrays from outside a compiled function."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion.result import JUMPED, REASONS

from ..mechanisms import Pendulum

PENDULUM = Pendulum()
T0, TS = jnp.asarray(0.0), jnp.array([0.0, 0.1, 0.25])
Q0, V0 = jnp.array([-1.0, 0.0]), jnp.array([0.0, 0.3])
RTOL, DT, STEP = jnp.asarray(1e-8), jnp.asarray(0.01), 0.01


# --- arrays from outside a compiled function ------------------------------------------------------------------------

DOORS: dict[str, Any] = {
    "forces of a motion": lambda: uk.simulate(PENDULUM, Q0, V0, TS).constraint_force,
    "constrained_motion": lambda: uk.constrained_motion(PENDULUM(T0, Q0, V0)).acceleration,
    "acceleration": lambda: uk.acceleration(PENDULUM, T0, Q0, V0),
    "project": lambda: uk.project(PENDULUM, T0, 1.1 * Q0, V0)[0],
    "simulate with an array of rtol": lambda: uk.simulate(PENDULUM, Q0, V0, TS, rtol=RTOL).q,
    "simulate with an array of dt": lambda: uk.simulate(PENDULUM, Q0, V0, TS, dt=DT).q,
}


@pytest.mark.parametrize("door", DOORS)
def test_arrays_from_outside_a_compiled_function_can_be_used_within(door):
    """JAX traces operations on these arrays, though the arrays are not tracers."""
    if door == "forces of a motion":  # evaluated within, on first access
        motion = uk.simulate(PENDULUM, Q0, V0, TS)
        inside = lambda: motion.constraint_force
    elif door == "constrained_motion":
        terms = PENDULUM(T0, Q0, V0)
        inside = lambda: uk.constrained_motion(terms).acceleration
    else:
        inside = DOORS[door]
    found = jax.jit(lambda factor: factor * inside())(2.0)
    np.testing.assert_allclose(found, 2 * np.asarray(DOORS[door]()), rtol=1e-9, atol=1e-9)


# --- one meaning of dt, one integrator, one type of every number ----------------------------------------------------


def swing(height=1.0):
    """A pendulum with its angle as coordinate, which is quick to compile."""
    return uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -9.81 * height * jnp.sin(q)), ())


ANGLE, RATE, TIMES = jnp.array([1.0]), jnp.array([0.5]), jnp.array([0.0, 0.05, 0.15, 1.03])
STARTS = jnp.array([[1.0], [0.3], [2.0]]), jnp.array([[0.5], [0.0], [-1.0]])
SLOW = pytest.mark.slow


def swung(v, q=ANGLE):
    """A scalar for derivatives, and the values that a test compares."""
    motion = uk.simulate(swing(), q, v, TIMES, rtol=1e-9)
    found = motion.q, motion.v, motion.steps, motion.result, motion.last
    return jnp.sum(jnp.sin(motion.q[..., -1, :])), found


def test_every_transformation_gives_the_same_motion():
    """Steps, results, types and values are the same, also under a derivative.

    ``test_parity`` has other problems, single motions and fixed steps.
    """
    q, v = STARTS
    of = lambda v: swung(v, q)
    _, plain = of(v)
    found = {"jit": jax.jit(of)(v)[1], "grad": jax.value_and_grad(of, has_aux=True)(v)[0][1]}
    for how, each in found.items():
        for x, y in zip(jax.tree.leaves(plain), jax.tree.leaves(each), strict=True):
            assert x.dtype == y.dtype, how
            np.testing.assert_allclose(y, x, rtol=0, atol=1e-12, err_msg=how)


def test_forward_and_reverse_derivatives_match_finite_differences():
    of = swung
    (_, plain), slope = of(RATE), jax.grad(lambda v: of(v)[0])(RATE)
    forward, found = jax.jacfwd(of, has_aux=True)(RATE)
    np.testing.assert_allclose(forward, slope, rtol=1e-12)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-12), found, plain)
    h = 1e-3
    difference = lambda h: float(of(RATE + h)[0] - of(RATE - h)[0]) / (2 * h)
    np.testing.assert_allclose(slope, (4 * difference(h) - difference(2 * h)) / 3, rtol=1e-6)


def kutta(q, v, ts, counts):
    """The Runge–Kutta method in NumPy, with these numbers of steps between samples."""
    rates = lambda y: np.array([y[1], -9.81 * np.sin(y[0])])
    y, found = np.array([q, v]), [q]
    for a, b, count in zip(ts, ts[1:], counts, strict=False):
        h = (b - a) / count
        for _ in range(count):
            k1 = rates(y)
            k2 = rates(y + h / 2 * k1)
            k3 = rates(y + h / 2 * k2)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + rates(y + h * k3))
        found.append(y[0])
    return np.array(found)


@pytest.mark.parametrize(
    "traced",
    ("dt", "ts", *(pytest.param(x, marks=SLOW) for x in ("mapped", "forward", "reverse"))),
)
def test_traced_dt_gives_equal_steps_that_meet_samples(traced):
    expected = kutta(1.0, 0.5, np.asarray(TIMES), (1, 1, 9))
    step: dict[str, Any] = {"dt": 0.1}
    of = lambda **how: (lambda motion: (motion.q, motion.steps))(
        uk.simulate(swing(), ANGLE, RATE, how.pop("ts", TIMES), solver=uk.RungeKutta4(), **step | how)
    )
    if traced == "dt":
        q, steps = jax.jit(lambda dt: of(dt=dt))(0.1)
    elif traced == "ts":
        q, steps = jax.jit(lambda ts: of(ts=ts))(TIMES)
    elif traced == "mapped":
        q, steps = (
            x[1] for x in jax.vmap(lambda dt, ts: of(dt=dt, ts=ts))(jnp.array([0.05, 0.1]), jnp.stack([TIMES, TIMES]))
        )
    elif traced == "forward":
        q, steps = jax.jvp(lambda dt: of(dt=dt), (0.1,), (1.0,))[0]
    else:
        q, steps = jax.vjp(lambda dt: of(dt=dt), 0.1)[0]
    np.testing.assert_allclose(q[:, 0], expected, rtol=0, atol=1e-12)
    assert int(steps) == 11


def leaping():
    """A rod whose length jumps at t = 0.5 s."""
    length = lambda t: jnp.where(t < 0.5, 1.0, 1.3)
    rod = uk.Holonomic(lambda t, q: q @ q - length(t) ** 2, name="rod")
    return uk.System(uk.MassForce(jnp.eye(2), jnp.array([0.0, -9.81])), rod)


@pytest.mark.parametrize("how", ({}, pytest.param({"event": lambda t, q, v: q[0] - 5.0}, marks=SLOW)))
def test_jump_of_constraint_has_same_result_with_and_without_event(how):
    q0, v0 = np.array([0.6, -0.8]), np.zeros(2)
    motion = uk.simulate(leaping(), q0, v0, [0.0, 1.0], throw=False, **how)
    assert motion.reason == REASONS[JUMPED]
    with pytest.raises(uk.SimulationError, match="only a jump could satisfy its constraints: 'rod' is 0.69"):
        uk.simulate(leaping(), q0, v0, [0.0, 1.0], **how)


@SLOW
def test_max_steps_is_not_named_for_another_failure():
    """A batch with ``dt`` fails for another reason after more than ``max_steps`` steps. ``max_steps`` does not apply to
    ``dt``."""
    with pytest.raises(uk.SimulationError, match="only a jump could satisfy"):
        uk.simulate(leaping(), np.tile([0.6, -0.8], (2, 1)), np.zeros(2), np.linspace(0, 1, 11), dt=0.01, max_steps=5)


# --- derivatives by a time, and single precision --------------------------------------------------------------------


def test_derivative_by_scalar_time():
    """The projection of a point on a growing rod, and a motion of constant force by its first time."""
    growing = uk.System(
        uk.MassForce(jnp.eye(2), jnp.zeros(2)), uk.Holonomic(lambda t, q: q @ q - (1 + t) ** 2, name="rod")
    )
    slope = jax.grad(lambda t: uk.project(growing, t, jnp.array([0.6, 0.8]), jnp.zeros(2))[0][1])(0.0)
    assert float(slope) == pytest.approx(0.8)
    falling = uk.System(uk.MassForce(jnp.eye(1), jnp.array([-2.0])), ())
    end = lambda t: uk.simulate(falling, jnp.zeros(1), jnp.zeros(1), jnp.stack([t, 1.0 + 0 * t])).q[-1, 0]
    assert float(jax.grad(end)(0.0)) == pytest.approx(2.0)


@pytest.mark.parametrize("how", ("one", "batch", pytest.param("jit", marks=SLOW)))
def test_tolerances_are_converted_to_precision_of_motion(how):
    M, force = jnp.eye(1, dtype=jnp.float32), jnp.ones(1, jnp.float32)
    system = uk.System(uk.MassForce(M, lambda t, q, v: -q * force), ())
    q0 = jnp.ones((2, 1) if how == "batch" else 1, jnp.float32)
    run = lambda q0: uk.simulate(system, q0, 0 * q0, [0.0, 1.0], rtol=np.float64(1e-5), atol=np.array([1e-6])).q
    found = (jax.jit(run) if how == "jit" else run)(q0)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found[..., -1, :], np.cos(1.0), atol=1e-4)


# --- strict settings of JAX -----------------------------------------------------------------------------------------


STRICT = {"jax_numpy_rank_promotion": "raise", "jax_numpy_dtype_promotion": "strict", "jax_debug_nans": True}


def test_strict_settings_of_jax_change_nothing():
    """One motion and its derivative."""
    before = {option: getattr(jax.config, option) for option in STRICT}
    end = lambda v: uk.simulate(swing(), ANGLE, v, [0.0, 0.2, 0.4]).q[-1, 0]
    expected = jax.value_and_grad(end)(RATE)
    try:
        for option, value in STRICT.items():
            jax.config.update(option, value)
        jax.clear_caches()
        found = jax.value_and_grad(end)(RATE)
        np.testing.assert_allclose(jax.jit(end)(RATE), expected[0], rtol=1e-12)
    finally:
        for option, value in before.items():
            jax.config.update(option, value)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), found, expected)
