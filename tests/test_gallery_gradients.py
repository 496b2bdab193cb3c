"""Derivatives of every mechanism of the gallery, by all parameters and its start at once, against differences."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

STENCIL = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
"""Central differences of eighth order: rounding is nearly all that is left."""

STEP = {"andrews_squeezer": 5e-6}  # which cannot close a thousandth further
AGREE = {"andrews_squeezer": 1e-8}

NOW = 0.103  # [s]: not where a recorded torque has a corner


class Along(NamedTuple):
    """A mechanism and its start (model, q0, v0) as functions of s; step and tolerance of the differences."""

    at: Callable
    numbers: Any
    direction: Any
    rest: Any
    step: float
    agree: float


@pytest.fixture(scope="module", params=tuple(uk.systems.CATALOGUE))
def along(request):
    """A mechanism whose parameters and start all move with a number s, each in a direction of its own."""
    mechanism = uk.systems.named(request.param)
    rng = np.random.default_rng(3)
    numbers, rest = eqx.partition((mechanism, *mechanism.start()), eqx.is_inexact_array)
    direction = jax.tree.map(lambda x: 0.3 * rng.normal(size=x.shape) * np.maximum(np.abs(x), 0.1), numbers)

    def at(s):
        return eqx.combine(jax.tree.map(lambda x, d: x + s * d, numbers, direction), rest)

    yield Along(at, numbers, direction, rest, STEP.get(request.param, 2e-5), AGREE.get(request.param, 1e-9))
    jax.clear_caches()


def check(along, outcome):
    """The derivative of ``outcome`` of s, at 0."""
    both = jax.jit(lambda s: jax.jvp(outcome, (s,), (1.0,)))
    values = np.stack([np.asarray(both(along.step * k)[0]) for k in range(-4, 5)])
    assert np.all(np.isfinite(values))
    expected = STENCIL @ values / along.step
    np.testing.assert_allclose(both(0.0)[1], expected, rtol=0, atol=along.agree * (1 + np.abs(expected).max()))


@pytest.mark.slow
def test_projection_acceleration_and_forces_have_their_derivatives(along):
    """From the start, brought onto the constraints, to the constrained motion there: forward."""

    def outcome(s):
        mechanism, q, v = along.at(s)
        q, v = uk.project(mechanism, 0.0, q, v)
        motion = uk.constrained_motion(mechanism(NOW, q, v))
        return jnp.concatenate([q, v, motion.acceleration, motion.constraint_force])

    check(along, outcome)


@pytest.mark.slow
def test_backwards_is_forwards(along):
    """The gradient by every number at once, along the direction, is the derivative along it."""

    def outcome(numbers):
        mechanism, q, v = eqx.combine(numbers, along.rest)
        motion = uk.constrained_motion(mechanism(NOW, q, v))
        return jnp.sum(jnp.sin(motion.acceleration)) + jnp.sum(jnp.sin(motion.constraint_force))

    slope = jax.jit(jax.grad(outcome))(along.numbers)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope))
    parts = jax.tree.map(lambda x, d: np.sum(np.asarray(x) * d), slope, along.direction)
    size = sum(abs(x) for x in jax.tree.leaves(parts))
    forward = jax.jit(lambda x: jax.jvp(outcome, (x,), (along.direction,))[1])(along.numbers)
    assert abs(sum(jax.tree.leaves(parts)) - forward) <= 1e-12 * (1 + size)


@pytest.mark.slow
def test_motions_have_their_derivatives(along):
    """A few steps with projection: where they end."""

    def outcome(s):
        mechanism, q, v = along.at(s)
        dt = min(0.004, mechanism.end / 1000)
        motion = uk.simulate(mechanism, q, v, [0.003, 0.003 + 5 * dt], dt=dt, solver=uk.RungeKutta4())
        return jnp.concatenate([motion.q[-1], motion.v[-1]])

    check(along, outcome)
