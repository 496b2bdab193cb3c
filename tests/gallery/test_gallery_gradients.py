"""Derivatives of every mechanism of the gallery, by all parameters and its start at once, against differences.

Those of motions through impacts are in ``test_gallery_nonsmooth``.
"""

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

STEP = {
    "andrews_squeezer": 5e-6,  # a thousandth further it cannot close
    "simplest_walker": 1e-7,  # its feet have 1e-6 kg
    "woodpecker": 1e-9,  # its moments of inertia are as small as 5e-9 kg m²
    "rigid_body": 3e-3,  # its forces, with a singular M, are worth 1e-12 and no more
}
AGREE = {"andrews_squeezer": 1e-8}

MOVED = ("pendulum", "four_bar", "scara", "knife_edge", "rigid_body", "flexible_joint_manipulator", "acrobot")

NOW = 0.1032  # [s]: not where a recorded torque has a corner, nor half a step of a motion further on


class Along(NamedTuple):
    """A mechanism and its start (model, q0, v0) as functions of s; step and tolerance of the differences."""

    name: str
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

    yield Along(
        request.param, at, numbers, direction, rest, STEP.get(request.param, 2e-5), AGREE.get(request.param, 1e-9)
    )
    jax.clear_caches()


def check(along, found, values):
    """A derivative by s at 0 against differences of the ``values`` at s."""
    values = np.stack([np.asarray(values(along.step * k)) for k in range(-4, 5)])
    assert np.all(np.isfinite(values))
    expected = STENCIL @ values / along.step
    np.testing.assert_allclose(found, expected, rtol=0, atol=along.agree * (1 + np.abs(expected).max()))


def check_forward(along, outcome):
    both = jax.jit(lambda s: jax.jvp(outcome, (s,), (1.0,)))
    check(along, both(0.0)[1], lambda s: both(s)[0])


@pytest.mark.slow
def test_projection_acceleration_and_forces_have_their_derivatives(along):
    """From the start, brought onto the constraints, to the constrained motion there: forward."""

    def outcome(s):
        mechanism, q, v = along.at(s)
        q, v = uk.project(mechanism, 0.0, q, v)
        motion = uk.constrained_motion(mechanism(NOW, q, v))
        return jnp.concatenate([q, v, motion.acceleration, motion.constraint_force])

    check_forward(along, outcome)


@pytest.mark.slow
def test_gradients_by_every_number_at_once_are_right(along):
    """In reverse, taken along the direction."""

    def outcome(numbers):
        mechanism, q, v = eqx.combine(numbers, along.rest)
        motion = uk.constrained_motion(mechanism(NOW, q, v))
        found = jnp.concatenate([motion.acceleration, motion.constraint_force])
        return jnp.sin(1.0 + jnp.arange(found.size)) @ found

    both = jax.jit(jax.value_and_grad(outcome))
    slope = both(along.numbers)[1]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope))
    found = sum(jax.tree.leaves(jax.tree.map(lambda x, d: np.sum(np.asarray(x) * d), slope, along.direction)))
    moved = lambda s: jax.tree.map(lambda x, d: x + s * d, along.numbers, along.direction)
    check(along, found, lambda s: both(moved(s))[0])


@pytest.mark.slow
def test_motions_have_their_derivatives(along):
    """A few steps with projection: where they end, for one mechanism of each kind."""
    if along.name not in MOVED:
        pytest.skip("its like is tried")

    def outcome(s):
        mechanism, q, v = along.at(s)
        q, v = uk.project(mechanism, NOW, q, v)
        dt = min(0.004, mechanism.end / 1000)
        motion = uk.simulate(mechanism, q, v, [NOW, NOW + 5 * dt], dt=dt, solver=uk.RungeKutta4())
        return jnp.concatenate([motion.q[-1], motion.v[-1]])

    check_forward(along, outcome)
