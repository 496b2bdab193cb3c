"""Moreau–Jean time stepping against closed forms and against event-driven steps."""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from .test_event_driven import G, ball, block, oscillator


def test_the_order_of_convergence_is_one():
    """A block slides on an incline over 0.5 / a, stops and sticks. A ball falls on a floor without rebound."""
    rest = 0.5 / (G * (0.5 * np.cos(0.3) - np.sin(0.3)))
    errors = []
    for dt in (2e-2, 1e-2, 5e-3):
        motion = uk.simulate(block(0.5, 0.3), [0.0, 0.0], [1.0, 0.0], [0.0, 1.0], dt=dt, solver=uk.MoreauJean())
        assert motion.contacts.sticking[-1, 0] and motion.plan.integrator == "time_stepping"
        np.testing.assert_allclose(motion.contact_force[-1], 2 * G * np.array([np.cos(0.3), -np.sin(0.3)]), rtol=1e-9)
        errors.append(abs(float(motion.q[-1, 0]) - rest) / dt)
    assert max(errors) < 0.1  # of the distance of the last step, at most
    drop = uk.simulate(ball(0.0), [1.0], [0.0], jnp.linspace(0, 2, 21), dt=1e-3, solver=uk.MoreauJean())
    exact = np.maximum(1 - G * np.asarray(drop.t) ** 2 / 2, 0.1)
    np.testing.assert_allclose(drop.q[:, 0], exact, atol=2e-3)
    assert np.all(drop.q >= 0.1 - 1e-12)


def test_energy_never_rises_and_impacts_rebound():
    motion = uk.simulate(ball(0.8), [1.0], [0.0], jnp.linspace(0, 3, 301), dt=1e-3, solver=uk.MoreauJean())
    energy = np.asarray(motion.v[:, 0] ** 2 / 2 + G * motion.q[:, 0])
    assert np.all(np.diff(energy) < 1e-12)
    first = np.sqrt(1.8 / G)
    after = np.searchsorted(motion.t, first + 0.01)
    np.testing.assert_allclose(energy[after] - G * 0.1, 0.64 * 0.9 * G, rtol=2e-2)


def test_repeated_steps_match_one_simulation():
    model, solver = block(0.5, 0.3), uk.MoreauJean()
    whole = uk.simulate(model, [0.0, 0.0], [1.0, 0.0], [0.0, 0.5], dt=1e-2, solver=solver)
    state = uk.initial_state(model, [0.0, 0.0], [1.0, 0.0])
    for _ in range(5):
        state = uk.step(model, state, 0.1, steps=10, solver=solver)
    np.testing.assert_allclose(state.q, whole.q[-1], rtol=0, atol=1e-13)
    assert state.reason == "reached its last time"


def test_last_state_of_a_failed_motion_is_that_at_its_time():
    """A force is NaN from 0.45 s on. Before, the mass has the acceleration 1 m/s²."""
    force = lambda t, q, v: jnp.where(t < 0.45, 1.0, jnp.nan)[None]
    mass = uk.System(uk.MassForce(jnp.eye(1), force), uk.Unilateral(lambda t, q: q + 1))
    motion = uk.simulate(mass, [0.0], [0.0], [0.0, 1.0], dt=0.1, solver=uk.MoreauJean(), throw=False)
    t, q, v = motion.last
    assert not motion.finished
    np.testing.assert_allclose([t, q[0], v[0]], [0.4, 0.08, 0.4], rtol=0, atol=1e-14)


@pytest.mark.slow
def test_derivative_by_the_friction_coefficient_matches_closed_form():
    def rest(friction):
        return uk.simulate(block(friction, 0.3), [0.0, 0.0], [1.0, 0.0], [0.0, 0.2], dt=1e-2, solver=uk.MoreauJean()).q[
            -1, 0
        ]

    exact = -G * np.cos(0.3) * 0.2**2 / 2  # as long as it slides
    np.testing.assert_allclose(jax.jit(jax.jacfwd(rest))(0.5), exact, rtol=1e-9)
    slopes = jax.jit(jax.vmap(jax.grad(rest)))(jnp.array([0.4, 0.5]))
    np.testing.assert_allclose(slopes, exact, rtol=1e-9)


def test_friction_oscillator_matches_half_cosines_and_stops():
    """It moves about 1 to the left, about −1 to the right, and stops at −1/2 at 2π. The motion is one of a batch."""
    ts = np.linspace(0, 7.5, 6)
    stepped = uk.simulate(oscillator(), [[3.5], [3.5]], [[0.0], [0.0]], ts, dt=1e-3, solver=uk.MoreauJean())
    moving = np.where(ts < np.pi, 1 + 2.5 * np.cos(ts), -1 + 0.5 * np.cos(ts))
    exact = np.where(ts < 2 * np.pi, moving, -0.5)
    np.testing.assert_allclose(stepped.q[1, :, 0], exact, atol=3e-3)
    np.testing.assert_array_equal(stepped.contacts.sticking[0, 1:, 0], ts[1:] > 2 * np.pi)


def test_bar_dropped_on_one_end_comes_to_rest_or_conserves_energy():
    """Without restitution, both ends carry the bar at rest, within the distance that gravity moves it in a step.

    With restitution 1 its energy is constant: an impulse at one end moves the other into the floor, and projection of
    this end adds no energy.
    """
    M = jnp.diag(jnp.array([3.0, 0.05]))
    ends = lambda t, q: q[0] + jnp.array([-0.2, 0.2]) * jnp.sin(q[1]) - 0.1 * jnp.cos(q[1])
    fall, ts = uk.MassForce(M, jnp.array([-3.0 * G, 0.0])), jnp.linspace(0, 1, 11)
    bar = lambda e: uk.System(fall, uk.Unilateral(ends, e))
    run = lambda e: uk.simulate(bar(e), [0.3, 0.4], [0.0, 0.0], ts, dt=1e-2, solver=uk.MoreauJean())
    motion = run(0.0)
    np.testing.assert_allclose(motion.q[-1], [0.1, 0.0], rtol=0, atol=G * 1e-2**2 / 0.2)
    np.testing.assert_allclose(motion.v[-1], 0.0, rtol=0, atol=1e-12)
    motion = run(1.0)
    energy = motion.v**2 @ jnp.diagonal(M) / 2 + 3 * G * motion.q[:, 0]
    np.testing.assert_allclose(energy, 3 * G * 0.3, rtol=1e-12)
    assert np.all(jax.vmap(lambda q: ends(0.0, q))(motion.q) > -1e-12) and int(motion.contacts.changes) > 5


def test_point_that_passes_a_round_obstacle_is_not_deflected():
    """A step is twice the radius of the obstacle, and the point passes it at a distance of a fifth of the radius."""
    obstacle = uk.Unilateral(lambda t, q: jnp.sqrt(q @ q) - 0.1)
    point = uk.System(uk.MassForce(jnp.eye(2), jnp.zeros(2)), obstacle)
    motion = uk.simulate(point, [-0.55, 0.12], [20.0, 0.0], [0.0, 0.1], dt=1e-2, solver=uk.MoreauJean())
    np.testing.assert_allclose(motion.q[-1], [1.45, 0.12], rtol=0, atol=1e-14)
    assert not np.any(motion.contacts.closed) and int(motion.contacts.changes) == 0


def test_norm_of_quaternions_is_conserved():
    body = uk.Mechanism({"body": uk.Body(1.0, inertia=(1.0, 2.0, 3.0))}, gravity=(0, 0, 0))
    floor = uk.Unilateral(lambda t, q: q[2] + 1)
    start = [0, 0, 0, 1.0, 0, 0, 0], [0, 0, 0, 1.0, 5.0, 2.0]
    motion = uk.simulate(body.constrained(floor), *start, [0.0, 1.0], solver=uk.MoreauJean(), dt=1e-2)
    np.testing.assert_allclose(np.linalg.norm(motion.q[-1, 3:]), 1, atol=1e-8)
    smooth = uk.simulate(body, *start, [0.0, 1.0], dt=1e-2)
    np.testing.assert_allclose(motion.q[-1], smooth.q[-1], atol=3e-2)


@pytest.mark.parametrize("dt", (1e-2, 1e-3))
def test_contact_force_of_a_ball_at_rest_is_its_weight(dt):
    motion = uk.simulate(ball(0.5), [1.0], [0.0], [0.0, 1.0, 3.0], dt=dt, solver=uk.MoreauJean())
    np.testing.assert_allclose(motion.contact_force[-1], G, rtol=1e-9)
    assert int(motion.contacts.changes) < 30
