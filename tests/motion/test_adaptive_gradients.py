"""Gradients of adaptive motions with ``jax.grad``."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._kernel import lowering
from ukjax._motion.integrate import single

from ..mechanisms import Pendulum

TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
TS = np.array([0.0, 0.3, 0.7, 1.1])
WEIGHTS = np.random.default_rng(3).normal(size=(4, 2))


def looked_at(motion):
    """A scalar function of the positions and velocities at all samples."""
    return jnp.sum(WEIGHTS * motion.q) + jnp.sum(jnp.sin(WEIGHTS * motion.v))


class Pushed(uk.AbstractSystem):
    """A pendulum of variable length under a constant horizontal force."""

    length: jax.Array
    push: jax.Array
    nonideal: ClassVar[Any] = None

    @property
    def dynamics(self):
        return uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: 9.81 * q[1] - self.push * q[0])

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: q @ q - self.length**2, name="rod"),)


def of_model_and_start(x):
    length = jnp.exp(x[0])
    q0 = jnp.stack([jnp.sin(x[2]), -jnp.cos(x[2])]) * length
    v0 = x[3] * jnp.stack([jnp.cos(x[2]), jnp.sin(x[2])])
    return looked_at(uk.simulate(Pushed(length, x[1]), q0, v0, TS, **TIGHT))


def of_ts(x):
    ts = jnp.array([0.0, 0.3, 0.7, 1.1]) + jnp.array([[0.5, 1, 0, 0], [0, 0, 0.5, -0.5]]).T @ x
    return looked_at(uk.simulate(driven_by_time(), [-1.0], [0.0], ts, **TIGHT))


def driven_by_time():
    """A pendulum with its angle as coordinate, under a force that depends on time."""
    return uk.System(uk.MassForce(np.eye(1), lambda t, q, v: jnp.sin(3 * t) - 9.81 * jnp.sin(q)))


def test_gradient_by_model_and_start_matches_finite_differences():
    """Derivatives with respect to the model and the initial state."""
    at = np.array([0.1, 0.2, -1.4, 0.3])
    assert_is_that_of_differences(of_model_and_start, at, jax.grad(of_model_and_start)(jnp.asarray(at)))


@pytest.mark.slow
def test_gradient_by_sample_times_matches_finite_differences():
    at = np.array([0.1, 0.2])
    assert_is_that_of_differences(of_ts, at, jax.grad(of_ts)(jnp.asarray(at)))


def assert_is_that_of_differences(function, at, gradient):
    h, weights = 0.002, (4 / 5, -1 / 5, 4 / 105, -1 / 280)
    for i, e in enumerate(np.eye(len(at))):
        of = lambda k, e=e: float(function(jnp.asarray(at + k * h * e)))
        slope = sum(w * (of(k) - of(-k)) for k, w in enumerate(weights, 1)) / h
        assert abs(slope) > 0.01
        assert gradient[i] == pytest.approx(slope, rel=1e-8, abs=1e-8)


def test_derivative_of_position_by_sample_time_is_velocity():
    """∂q(tₖ)/∂tₖ = v(tₖ). For an autonomous system, ∂q(tₖ)/∂t₀ = −v(tₖ)."""
    start = [-1.0, 0.0], [0.0, 0.0]
    motion = uk.simulate(Pendulum(), *start, TS, **TIGHT)
    found = jax.grad(lambda ts: jnp.sum(WEIGHTS * uk.simulate(Pendulum(), *start, ts, **TIGHT).q))(jnp.asarray(TS))
    speeds = np.sum(WEIGHTS * np.asarray(motion.v), axis=1)
    np.testing.assert_allclose(found[1:], speeds[1:], rtol=0, atol=1e-9)
    assert float(found[0]) == pytest.approx(-speeds[1:].sum(), abs=1e-9)


def test_jacrev_matches_gradient_of_each_component():
    end = lambda v: uk.simulate(Pendulum(), [-1.0, 0.0], jnp.array([0.0, 1.0]) * v, TS).q[-1]
    rows = [jax.grad(lambda v, i=i: end(v)[i])(0.5) for i in range(2)]
    np.testing.assert_allclose(jax.jacrev(end)(0.5), rows, rtol=0, atol=1e-10)


def test_gradient_with_redundant_rows_matches_gradient_without():
    rod = lambda v, copies: uk.simulate(Pendulum(copies=copies), [-1.0, 0.0], jnp.array([0.0, 1.0]) * v, TS, **TIGHT).q[
        -1, 1
    ]
    assert float(jax.grad(lambda v: rod(v, 3))(0.5)) == pytest.approx(
        float(jax.grad(lambda v: rod(v, 1))(0.5)), abs=1e-9
    )


def test_forward_derivative_with_redundant_rows_needs_one_kernel(monkeypatch):
    """The redundant row is left out, as in a motion without derivative, and motion and tangents are one kernel."""
    rod = lambda length, copies: uk.simulate(
        Pendulum(length=length, copies=copies), jnp.array([-1.0, 0.0]) * length, [0.0, 0.5], TS, **TIGHT
    )
    built, build = [], lowering._built
    monkeypatch.setattr(lowering, "_built", lambda *arguments: built.append(1) or build(*arguments))
    jax.clear_caches()
    motion, slope = jax.jvp(lambda length: rod(length, 2).q[-1], (0.9,), (1.0,))
    assert len(built) == 1
    expected, expected_slope = jax.jvp(lambda length: rod(length, 1).q[-1], (0.9,), (1.0,))
    np.testing.assert_allclose(motion, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(slope, expected_slope, rtol=0, atol=1e-9)
    reverse = jax.jacrev(lambda length: rod(length, 2).q[-1])(0.9)
    np.testing.assert_allclose(slope, reverse, rtol=0, atol=1e-8)


@pytest.fixture
def short_pieces(monkeypatch):
    """Each call of the compiled program takes at most seven steps."""
    jax.clear_caches()
    monkeypatch.setattr(single, "STEPS_PER_CALL", 7)
    yield
    jax.clear_caches()


def test_motion_in_several_calls_of_program_matches_one_call(request):
    speed = jnp.array(0.5)
    ask = lambda v: uk.simulate(driven_by_time(), [-1.0], v[None], TS, rtol=1e-9)
    whole, gradient_of_whole = ask(speed), jax.grad(lambda v: looked_at(ask(v)))(speed)
    pieces, run = [], single._piece
    request.getfixturevalue("short_pieces")
    request.getfixturevalue("monkeypatch").setattr(single, "_piece", lambda *given: pieces.append(1) or run(*given))
    motion = ask(speed)
    assert 2 < len(pieces) <= -(-(int(whole.steps) + 1) // 7)  # rejected steps are not counted
    np.testing.assert_allclose(motion.q, whole.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.v, whole.v, rtol=0, atol=1e-13)
    assert int(motion.steps) == int(whole.steps)
    found = jax.grad(lambda v: looked_at(ask(v)))(speed)
    assert float(found) == pytest.approx(float(gradient_of_whole), abs=1e-12)
