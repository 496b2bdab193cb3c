"""Derivatives of every mechanism of the gallery, by all parameters and its start at once, against differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

STENCIL = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
"""Central differences of eighth order: with steps of 1e-3 of each number's size, rounding is all that is left."""

STEP = 1e-3
AGREE = 1e-9


@pytest.fixture(scope="module", params=tuple(uk.systems.CATALOGUE))
def along(request):
    """A mechanism whose parameters and start all move with a number s, each in a direction of its own."""
    mechanism = uk.systems.named(request.param)
    rng = np.random.default_rng(3)
    numbers, rest = eqx.partition((mechanism, *mechanism.start()), eqx.is_inexact_array)
    direction = jax.tree.map(lambda x: 0.3 * rng.normal(size=x.shape) * np.maximum(np.abs(x), 0.1), numbers)

    def at(s):
        return eqx.combine(jax.tree.map(lambda x, d: x + s * d, numbers, direction), rest)

    yield at, numbers, direction, rest
    jax.clear_caches()


def differences(function):
    values = np.stack([np.asarray(function(STEP * k)) for k in range(-4, 5)])
    assert np.all(np.isfinite(values))
    return STENCIL @ values / STEP


def agree(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=AGREE * (1 + np.abs(expected).max()))


@pytest.mark.slow
def test_projection_acceleration_and_forces_have_their_derivatives(along):
    """From the start, brought onto the constraints, to the constrained motion there: forward."""
    at, *_ = along

    def outcome(s):
        mechanism, q, v = at(s)
        q, v = uk.project(mechanism, 0.0, q, v)
        motion = uk.constrained_motion(mechanism(0.1, q, v))
        return jnp.concatenate([q, v, motion.acceleration, motion.constraint_force])

    both = jax.jit(lambda s: jax.jvp(outcome, (s,), (1.0,)))
    agree(both(0.0)[1], differences(lambda s: both(s)[0]))


@pytest.mark.slow
def test_backwards_is_forwards(along):
    """The gradient by every number at once, along the direction, is the derivative along it."""
    at, numbers, direction, rest = along

    def outcome(numbers):
        mechanism, q, v = eqx.combine(numbers, rest)
        motion = uk.constrained_motion(mechanism(0.1, q, v))
        return jnp.sum(jnp.sin(motion.acceleration)) + jnp.sum(jnp.sin(motion.constraint_force))

    slope = jax.jit(jax.grad(outcome))(numbers)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope))
    parts = jax.tree.map(lambda x, d: np.sum(np.asarray(x) * d), slope, direction)
    size = sum(abs(x) for x in jax.tree.leaves(parts))
    forward = jax.jit(lambda x: jax.jvp(outcome, (x,), (direction,))[1])(numbers)
    assert abs(sum(jax.tree.leaves(parts)) - forward) <= 1e-12 * (1 + size)


@pytest.mark.slow
def test_motions_have_their_derivatives(along):
    """A few steps with projection: where they end."""
    at, *_ = along

    def outcome(s):
        mechanism, q, v = at(s)
        motion = uk.simulate(mechanism, q, v, [0.0, 0.02], dt=0.004, solver=uk.RungeKutta4())
        return jnp.concatenate([motion.q[-1], motion.v[-1]])

    both = jax.jit(lambda s: jax.jvp(outcome, (s,), (1.0,)))
    agree(both(0.0)[1], differences(lambda s: both(s)[0]))
