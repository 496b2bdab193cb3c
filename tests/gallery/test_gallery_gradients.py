"""Derivatives of the mechanisms of the gallery by all parameters and the start at once, against differences.

Derivatives of motions through impacts are in ``tests/contact/test_event_driven.py``.
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
"""Central differences of eighth order: the error is nearly all rounding."""

STEP = {
    "andrews_squeezer": 5e-6,  # 0.001 away from the start, the loop cannot close
    "simplest_walker": 1e-7,  # its feet have a mass of 1e-6 kg
    "woodpecker": 1e-9,  # its moments of inertia are as small as 5e-9 kg m²
    "rigid_body": 3e-3,  # its forces have errors of 1e-12, because M is singular
}
AGREE = {"andrews_squeezer": 1e-8}

ALIKE = (
    *("double_arm_pendulum", "triple_arm_pendulum", "double_pendulum", "parallel_robot_tracking"),
    *("parallel_manipulator", "coordinated_robots", "mobile_robot"),
)
"""Excluded systems: the acrobot has the same arms, the parallel robot the same chains, the cart-pole also has a servo,
and the sleigh also a velocity constraint."""

MOVED = "four_bar", "cart_pole", "knife_edge", "rigid_body"
"""A loop, a servo, a velocity constraint, and a singular M."""

NOW = 0.1032  # [s]: recorded torques have no corner at this time, nor at half steps after it


class Along(NamedTuple):
    """A mechanism and its start (model, q0, v0) as functions of s; step and tolerance of the differences."""

    at: Callable
    numbers: Any
    direction: Any
    rest: Any
    step: float
    agree: float


def along(name):
    """Return a mechanism whose parameters and start change with a number s, each in a random direction."""
    mechanism = uk.systems.Swarm(agents=2) if name == "swarm" else uk.systems.named(name)
    rng = np.random.default_rng(3)
    numbers, rest = eqx.partition((mechanism, *mechanism.start()), eqx.is_inexact_array)
    direction = jax.tree.map(lambda x: 0.3 * rng.normal(size=x.shape) * np.maximum(np.abs(x), 0.1), numbers)

    def at(s):
        return eqx.combine(jax.tree.map(lambda x, d: x + s * d, numbers, direction), rest)

    return Along(at, numbers, direction, rest, STEP.get(name, 2e-5), AGREE.get(name, 1e-9))


@pytest.fixture(autouse=True)
def forget_compiled_programs():
    """Clear compiled programs after each test: a process cannot map those of all mechanisms."""
    yield
    jax.clear_caches()


def check(along, found, values):
    """Compare a derivative by s at 0 with differences of ``values`` at s."""
    values = np.stack([np.asarray(values(along.step * k)) for k in range(-4, 5)])
    assert np.all(np.isfinite(values))
    expected = STENCIL @ values / along.step
    np.testing.assert_allclose(found, expected, rtol=0, atol=along.agree * (1 + np.abs(expected).max()))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in uk.systems.CATALOGUE if name not in ALIKE])
def test_reverse_derivatives_by_all_parameters_match_differences(name):
    """Reverse derivatives of the constrained acceleration and force, multiplied by the direction."""
    moved = along(name)

    def outcome(numbers):
        mechanism, q, v = eqx.combine(numbers, moved.rest)
        motion = uk.constrained_motion(mechanism(NOW, q, v))
        found = jnp.concatenate([motion.acceleration, motion.constraint_force])
        return jnp.sin(1.0 + jnp.arange(found.size)) @ found

    both = jax.jit(jax.value_and_grad(outcome))
    at = lambda s: jax.tree.map(lambda x, d: x + s * d, moved.numbers, moved.direction)
    slope = both(at(0.0))[1]  # of the types of the other values, for one program
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope))
    found = sum(jax.tree.leaves(jax.tree.map(lambda x, d: np.sum(np.asarray(x) * d), slope, moved.direction)))
    check(moved, found, lambda s: both(at(s))[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVED)
def test_forward_derivatives_of_starts_and_motions_match_differences(name):
    """The projected start, five steps, and acceleration and force at their end, for one mechanism of each kind."""
    moved = along(name)

    def outcome(s):
        mechanism, q, v = moved.at(s)
        q, v = uk.project(mechanism, NOW, q, v)
        dt = min(0.004, mechanism.end / 1000)
        motion = uk.simulate(mechanism, q, v, [NOW, NOW + 5 * dt], dt=dt, solver=uk.RungeKutta4())
        return jnp.concatenate([q, v, motion.q[-1], motion.v[-1], motion.acceleration[-1], motion.constraint_force[-1]])

    both = jax.jit(lambda s: jax.jvp(outcome, (s,), (1.0,)))
    check(moved, both(0.0)[1], lambda s: both(s)[0])
