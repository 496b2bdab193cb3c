"""Motions from poses at which rows of constraints are dependent: the flat pose of a parallelogram."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import ukjax as uk

PULL, SPEED = 3.0, 2.5
TS = np.linspace(0, 20, 401)


class FourBar(uk.AbstractSystem):
    """Bars a, b, c between pins that are d apart, without forces, with the angles as coordinates of unit mass."""

    lengths: jax.Array

    @property
    def dynamics(self):
        return uk.MassForce(np.eye(3), jnp.zeros(3))

    @property
    def constraints(self):
        def closes(t, q):
            a, b, c, d = self.lengths
            x = a * jnp.cos(q[0]) + b * jnp.cos(q[1]) - c * jnp.cos(q[2]) - d
            return jnp.stack([x, a * jnp.sin(q[0]) + b * jnp.sin(q[1]) - c * jnp.sin(q[2])])

        return (uk.Holonomic(closes, name="loop"),)


@cache
def four_bar(lengths):
    """A four-bar and an initial state. The speed is constant, and the bars lie flat several times."""
    a, b, c, d = map(float, lengths)
    system = FourBar(jnp.array([a, b, c, d]))
    angle = 1.0 if abs(b - c) < np.hypot(d - a * np.cos(1.0), a * np.sin(1.0)) < b + c else 2.2
    pin, far = a * np.exp(1j * angle), complex(d)
    along = (b**2 - c**2 + abs(far - pin) ** 2) / (2 * abs(far - pin))
    tip = pin + (along + 1j * np.sqrt(b**2 - along**2)) * (far - pin) / abs(far - pin)
    return system, *uk.project(system, 0.0, [angle, np.angle(tip - pin), np.angle(tip - far)], [1.0, 0.0, 0.0])


def passed(motion):
    """The times of singular poses."""
    assert motion.singular_poses is not None
    return motion.singular_poses


@pytest.mark.parametrize("lengths", [(1, 2, 4, 3), (1, 4, 3, 2)])
def test_fixed_steps_pass_flat_poses_of_general_four_bars(lengths):
    motion = uk.simulate(*four_bar(lengths), np.linspace(0, 20, 201), dt=0.01)
    square = np.sum(np.asarray(motion.v) ** 2, axis=1)
    np.testing.assert_allclose(square, square[0], rtol=1e-5)
    turned = np.sin(np.asarray(motion.q[:, 0] - motion.q[:, 2]))
    assert np.sum(np.diff(np.sign(turned)) != 0) >= 1  # past a pose where all bars lie on one line


@pytest.mark.parametrize("lengths", [(1, 2, 4, 3), (2, 1, 4, 3), (1, 3, 2, 4), (2, 1, 3, 4), (2, 4, 3, 1)])
def test_adaptive_steps_pass_flat_poses_of_general_four_bars(lengths):
    """The speed is constant, and the direction of the velocity does not jump: the other branch has another
    direction."""
    motion = uk.simulate(*four_bar(lengths), TS)
    v = np.asarray(motion.v)
    np.testing.assert_allclose(np.sum(v**2, axis=1), np.sum(v[0] ** 2), rtol=1e-7)
    direction = v / np.linalg.norm(v, axis=1, keepdims=True)
    assert np.min(np.sum(direction[1:] * direction[:-1], axis=1)) > 0.98
    assert motion.plan is not None and motion.plan.notes
    assert all("passed a singular pose, where 'loop[0]'" in note for note in motion.plan.notes)


def test_batch_passes_flat_pose_as_single_motions_do():
    """Without forces, a motion with a quarter of the velocity is the same motion, four times slower."""
    system, q, v = four_bar((2, 1, 4, 3))
    batch = uk.simulate(system, jnp.stack([q, q]), jnp.stack([v, v / 4]), TS / 4)
    alone = uk.simulate(system, q, v, TS / 4)
    np.testing.assert_array_equal(batch.q[0], alone.q)
    np.testing.assert_allclose(batch.q[1, ::4], alone.q[:101], rtol=0, atol=1e-8)
    assert batch.plan is not None and [note[:9] for note in batch.plan.notes] == ["member 0:"]
    np.testing.assert_array_equal(passed(batch), [passed(alone), [np.nan]])
    np.testing.assert_array_equal(passed(batch[::-1]), [[np.nan], passed(alone)])
    assert passed(alone).shape == (1,) and passed(batch[1]).shape == (0,)


@pytest.mark.parametrize("options", [{}, pytest.param({"event": lambda t, q, v: t - 9}, marks=pytest.mark.slow)])
def test_under_jit_a_motion_ends_before_a_flat_pose(options: dict[str, Any]):
    """The samples have the energy of the start. On the other branch the energy differs."""
    system, q, v = four_bar((2, 1, 4, 3))
    motion = jax.jit(lambda v: uk.simulate(system, q, v, TS / 4, **options).without_model())(v)
    square = np.sum(np.asarray(motion.v) ** 2, axis=1)
    assert motion.reason == "came to a singular pose, where rounding errors would choose its branch"
    assert motion.singular_poses is None
    np.testing.assert_allclose(square[:139], square[0], rtol=1e-9)
    assert 1.725 < motion.last[0] < 1.7375 and np.all(np.isnan(square[139:401]))


def test_derivative_through_flat_pose_is_error():
    system, q, v = four_bar((2, 1, 4, 3))
    with pytest.raises(ValueError, match="the derivative of a motion through a singular pose"):
        jax.grad(lambda v: uk.simulate(system, q, v, TS / 4).q[-1, 0])(v)


def test_motion_passes_flat_pose_or_ends_before_it():
    """All samples have the energy of the start, also where the motion ends at a pose."""
    system, q, v = four_bar((1, 4, 3, 2))
    motion = uk.simulate(system, q, v, np.linspace(0, 20, 201), throw=False)
    energy = np.sum(np.asarray(motion.v) ** 2, axis=1)
    reached = np.isfinite(energy)
    np.testing.assert_allclose(energy[reached], energy[0], rtol=1e-7)
    assert reached[80] and bool(motion.finished) == bool(np.all(reached))


class Parallelogram(uk.AbstractSystem):
    """Bars of 1, 2 and 1 m between pins 2 m apart, with their angles as coordinates: both cranks have the same angle.
    It is flat where this angle is 180° from the line of the pins, which is tilted. A torque −3 cos(a − tilt) acts on
    one crank."""

    tilt: jax.Array

    @property
    def dynamics(self):
        force = lambda t, q, v: jnp.stack([-PULL * jnp.cos(q[0] - self.tilt), 0 * t, 0 * t])
        return uk.MassForce(np.eye(3), force)

    @property
    def constraints(self):
        def closes(t, q):
            first, middle, last = q
            x = jnp.cos(first) + 2 * jnp.cos(middle) - jnp.cos(last) - 2 * jnp.cos(self.tilt)
            y = jnp.sin(first) + 2 * jnp.sin(middle) - jnp.sin(last) - 2 * jnp.sin(self.tilt)
            return jnp.stack([x, y])

        return (uk.Holonomic(closes, name="loop"),)


def parallelogram(tilt):
    return Parallelogram(jnp.asarray(tilt))


def check_energy(found, tilt):
    """2 ä = −3 cos a: ȧ² + 3 sin a is constant, and both cranks have the same angle."""
    q, v = np.asarray(found.q), np.asarray(found.v)
    energy = v[:, 0] ** 2 + PULL * np.sin(q[:, 0] - tilt)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-7)
    np.testing.assert_allclose(q[:, 0], q[:, 2], rtol=0, atol=1e-8)
    np.testing.assert_allclose(q[:, 1], tilt, rtol=0, atol=1e-8)


def time_from(begin, end):
    """The time from one angle to another, with speed SPEED at the first."""
    rate = lambda a: 1 / np.sqrt(SPEED**2 + PULL * (np.sin(begin) - np.sin(a)))
    return quad(rate, begin, end, epsabs=1e-14)[0]


@pytest.mark.parametrize("how", [{}, {"dt": 0.01}], ids=["adaptive", "fixed"])
@pytest.mark.parametrize("tilt", [0.0, 0.4])
def test_motion_from_flat_pose_matches_closed_form(tilt, how: dict[str, Any]):
    begin = tilt + np.pi
    last = time_from(np.pi, np.pi + 2.0)
    found = uk.simulate(
        parallelogram(tilt), [begin, tilt, begin], [SPEED, 0.0, SPEED], np.linspace(0, last, 101), **how
    )
    check_energy(found, tilt)
    np.testing.assert_allclose(found.q[-1], [begin + 2, tilt, begin + 2], rtol=0, atol=1e-7)


BEFORE = np.pi - 1.5
TO_FLAT = time_from(BEFORE, np.pi)


def swing(tilt, times, **how):
    """A motion that starts before a flat pose and passes it at the time ``TO_FLAT``."""
    begin = tilt + BEFORE
    return uk.simulate(parallelogram(tilt), [begin, tilt, begin], [SPEED, 0.0, SPEED], times, **how)


@pytest.mark.parametrize("how", [{}, {"dt": 0.01}], ids=["adaptive", "fixed"])
@pytest.mark.parametrize("tilt", [0.0, 0.4])
def test_motion_with_sample_on_flat_pose_matches_closed_form(tilt, how: dict[str, Any]):
    found = swing(tilt, np.linspace(0, 2 * TO_FLAT, 101), **how)
    check_energy(found, tilt)
    np.testing.assert_allclose(passed(found), [TO_FLAT], rtol=1e-6)
    np.testing.assert_allclose(found.q[50, 0], tilt + np.pi, rtol=0, atol=1e-8)
    last = float(found.q[-1, 0]) - tilt
    np.testing.assert_allclose(time_from(BEFORE, last), 2 * TO_FLAT, rtol=1e-8)
    assert np.max(np.abs(parallelogram(tilt).position_residual(found.t[50], found.q[50]))) < 1e-8


def test_motion_with_step_that_ends_on_flat_pose_matches_closed_form():
    found = swing(0.4, [0.0, 2 * TO_FLAT], dt=TO_FLAT / 50)
    check_energy(found, 0.4)
    np.testing.assert_allclose(time_from(BEFORE, float(found.q[-1, 0]) - 0.4), 2 * TO_FLAT, rtol=1e-8)


@pytest.mark.parametrize("away", [1e-4, 1e-5, 1e-7, 0.0, -1e-7, -1e-4])
def test_samples_near_flat_pose_do_not_change_motion(away):
    end = time_from(BEFORE, np.pi + 1.5)
    found = swing(0.4, [0.0, TO_FLAT - away, end])
    check_energy(found, 0.4)
    np.testing.assert_allclose(found.q[-1, 0], 0.4 + np.pi + 1.5, rtol=0, atol=1e-8)


def test_motion_that_ends_on_flat_pose_matches_closed_form():
    found = swing(0.4, [0.0, TO_FLAT])
    check_energy(found, 0.4)
    np.testing.assert_allclose(found.q[-1, 0], 0.4 + np.pi, rtol=0, atol=1e-8)


def test_derivative_with_step_that_ends_on_flat_pose_is_error():
    def last(speed):
        begin = 0.4 + BEFORE
        start = jnp.stack([speed, 0 * speed, speed])
        return uk.simulate(parallelogram(0.4), [begin, 0.4, begin], start, np.linspace(0, 2 * TO_FLAT, 101)).q[-1, 0]

    with pytest.raises(ValueError, match="the derivative of a motion through a singular pose"):
        jax.grad(last)(SPEED)


@pytest.mark.slow
def test_event_and_derivative_behind_flat_pose_match_closed_form():
    """Fixed steps that do not end on the pose pass it, with an event behind it and with derivatives.

    With T(s, a) the time from the start to the angle a at the initial speed s, the derivative of a at a constant time
    is −(∂T/∂s) ȧ.
    """
    tilt, last_angle = 0.4, BEFORE + 2.9
    begin, last, change = tilt + BEFORE, time_from(BEFORE, last_angle), 1e-4
    rate = lambda a, s=SPEED: np.sqrt(s**2 + PULL * (np.sin(BEFORE) - np.sin(a)))
    time = lambda s: quad(lambda a: 1 / rate(a, s), BEFORE, last_angle, epsabs=1e-14)[0]
    of_time = (time(SPEED + change) - time(SPEED - change)) / (2 * change)

    motion = swing(tilt, [0.0, 2 * last], dt=0.01, event=lambda t, q, v: q[0] - tilt - last_angle)
    assert bool(motion.met_event)
    np.testing.assert_allclose(motion.last[0], last, rtol=1e-9)

    def last_position(speed):
        start = jnp.stack([speed, 0 * speed, speed])
        return uk.simulate(parallelogram(tilt), [begin, tilt, begin], start, [0.0, last], dt=0.01).q[-1, 0]

    np.testing.assert_allclose(jax.grad(last_position)(SPEED), -of_time * rate(last_angle), rtol=1e-7)


def rises_to(angle):
    return uk.Event(lambda t, q, v: q[0] - 0.4 - angle, "rising")


def check_event(motion, expected, angle):
    assert motion.reason == "ended where its event crossed zero"
    np.testing.assert_allclose(motion.t[-1], expected, rtol=1e-9)
    assert motion.t[-1] == motion.last[0] and np.all(np.diff(motion.t) > 0)
    assert -1e-14 < float(motion.q[-1, 0]) - 0.4 - angle <= 0  # on the near side of zero
    check_energy(motion, 0.4)


@pytest.mark.slow
def test_event_behind_sample_on_flat_pose_matches_closed_form():
    motion = swing(0.4, np.linspace(0, 4 * TO_FLAT, 101), event=rises_to(np.pi + 1))
    check_event(motion, time_from(BEFORE, np.pi + 1), np.pi + 1)
    np.testing.assert_allclose(passed(motion), [TO_FLAT], rtol=1e-6)


def test_event_behind_start_on_flat_pose_matches_closed_form():
    begin = 0.4 + np.pi
    start = [begin, 0.4, begin], [SPEED, 0.0, SPEED]
    motion = uk.simulate(parallelogram(0.4), *start, [0.0, 1.0], event=rises_to(np.pi + 1))
    check_event(motion, time_from(np.pi, np.pi + 1), np.pi + 1)


@pytest.mark.slow
def test_motion_with_several_events_ends_at_flat_pose():
    """The other branch has another energy."""
    events = [rises_to(np.pi + 1), uk.Event(lambda t, q, v: q[0] - 2, ends=False)]
    with pytest.raises(uk.SimulationError, match="came to a singular pose at t = 0.55509"):
        swing(0.4, [0.0, TO_FLAT - 1e-5, 2.0], event=events)


NEXT_TO_POSE = 1e-3
"""A step of this length ends 4e-7 s before the pose, if a sample is as far before it. The next step had 30 times the
speed, or 20 times in a batch, and no error."""


def test_fixed_steps_next_to_flat_pose_with_events_or_derivatives_end_there():
    samples = [0.0, TO_FLAT - NEXT_TO_POSE, 0.8]
    events = [rises_to(np.pi + 1), uk.Event(lambda t, q, v: q[0] - 2, ends=False)]
    with pytest.raises(uk.SimulationError, match="came to a singular pose at t = 0.55509"):
        swing(0.4, samples, event=events, dt=NEXT_TO_POSE)

    begin = 0.4 + BEFORE
    last = lambda speed: uk.simulate(
        parallelogram(0.4), [begin, 0.4, begin], jnp.stack([speed, 0 * speed, speed]), samples, dt=NEXT_TO_POSE
    ).q[-1, 0]
    with pytest.raises(uk.SimulationError, match="Take another dt or other samples"):
        jax.grad(last)(SPEED)


def test_members_of_batch_pass_flat_pose_next_to_fixed_step():
    begin = 0.4 + BEFORE
    q = jnp.tile(jnp.array([begin, 0.4, begin]), (2, 1))
    v = jnp.array([[SPEED, 0.0, SPEED], [SPEED / 2, 0.0, SPEED / 2]])
    motion = uk.simulate(parallelogram(0.4), q, v, [0.0, TO_FLAT - NEXT_TO_POSE, 0.8], dt=NEXT_TO_POSE)
    check_energy(motion[0], 0.4)
    np.testing.assert_allclose(passed(motion), [[TO_FLAT], [np.nan]], rtol=1e-6)


@pytest.mark.slow
def test_event_on_sample_of_batch_behind_flat_pose():
    """The second member is four times slower and does not come to the pose."""
    system, q, v = four_bar((2, 1, 4, 3))
    event = lambda t, q, v: t - 2.25
    motion = uk.simulate(system, jnp.stack([q, q]), jnp.stack([v, v / 4]), TS[:51], event=event)
    np.testing.assert_allclose(motion.last[0], 2.25, rtol=0, atol=1e-14)
    alone = uk.simulate(system, q, v, TS[:51])
    np.testing.assert_allclose(motion.q[0, :46], alone.q[:46], rtol=0, atol=1e-8)
    assert np.all(np.isnan(motion.q[0, 46:51])) and np.isfinite(motion.q[0, 51]).all()


def test_uk_step_reports_step_next_to_flat_pose():
    """The step increases the energy by 90 %."""
    begin = 0.4 + BEFORE
    state = uk.initial_state(parallelogram(0.4), [begin, 0.4, begin], [SPEED, 0.0, SPEED])
    before = TO_FLAT - 3.7e-7
    state = uk.step(parallelogram(0.4), state, before, steps=int(np.ceil(before / NEXT_TO_POSE)))
    assert state.reason == "reached its last time"
    state = uk.step(parallelogram(0.4), state, NEXT_TO_POSE)
    assert state.reason == "came to a singular pose, where rounding errors would choose its branch"
