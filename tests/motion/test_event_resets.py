"""Several events, events that do not end the motion, and resets, against closed forms."""

# pyright: reportOptionalMemberAccess=false

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jaxtyping import Array
from scipy.special import ellipk

import ukjax as uk
from ukjax._motion.result import ACCUMULATED, EVENT_NAN

G = 9.81
TS = jnp.array([0.0, 1.0, 2.5])


def height(e, t):
    """Height of a ball of radius 0.1 m, dropped from 1 m, with coefficient of restitution e."""
    at = mpmath.sqrt(2 * mpmath.mpf("0.9") / mpmath.mpf("9.81"))
    g = mpmath.mpf("9.81")
    speed = g * at * e
    while at + 2 * speed / g < t:
        at, speed = at + 2 * speed / g, speed * e
    return mpmath.mpf("0.1") + speed * (t - at) - g * (t - at) ** 2 / 2


SLOPES = [float(mpmath.diff(lambda e, t=t: height(e, t), mpmath.mpf("0.9"))) for t in (1, mpmath.mpf("2.5"))]
BALL = uk.System(uk.MassForce(jnp.eye(1), jnp.array([-G])))


class Bounce(eqx.Module):
    """An impact with coefficient of restitution e."""

    e: Array = eqx.field(converter=jnp.asarray)

    def __call__(self, t, q, v):
        return -self.e * v


def height_above_floor(t, q, v):
    return q[0] - 0.1


def floor(e):
    return uk.Event(height_above_floor, "falling", reset=Bounce(e), name="floor")


APEX = uk.Event(lambda t, q, v: v[0], "falling", ends=False, name="apex")


def bounce(e, ts=TS, **options):
    return uk.simulate(BALL, [1.0], [0.0], ts, event=floor(e), **options)


def test_times_and_states_of_bounces_are_recorded():
    motion = bounce(0.9)
    first = np.sqrt(1.8 / G)
    bounces = first * (1 + 2 * np.cumsum([0, 0.9, 0.81]))
    np.testing.assert_allclose(motion.events.times("floor")[:3], bounces, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(motion.events.counts, [3])
    np.testing.assert_allclose(motion.events.v[0], -G * first, rtol=1e-13)  # before the reset
    np.testing.assert_allclose(motion.q[1:, 0], [float(height(mpmath.mpf("0.9"), t)) for t in (1, 2.5)], atol=1e-13)
    assert bool(motion.finished) and not np.any(motion.met_event)
    assert motion.plan.integrator == "event_driven"
    assert repr(motion.events) == "EventHistory(floor: 3)" and motion.events.missing.tolist() == [0]


def test_accumulating_impacts_end_motion():
    motion = bounce(0.9, jnp.array([0.0, 1.0, 9.0]), throw=False)
    assert int(motion.result) == ACCUMULATED
    np.testing.assert_allclose(motion.last[0], np.sqrt(1.8 / G) * 19, rtol=0, atol=1e-9)
    # Bounces follow one another in times 0.9ⁿ: the 257th is later than the 256th, and is not stored.
    assert np.isfinite(motion.events.times("floor")).sum() == 256 < int(motion.events.counts[0])
    assert motion.events.missing.tolist() == [int(motion.events.counts[0]) - 256]
    assert f"the last {int(motion.events.missing[0])} are counted only" in repr(motion.events)
    with pytest.raises(
        uk.SimulationError, match=r"ended at t = 8\.1387.* in times as short as rounding.*ukjax\.Unilateral"
    ):
        bounce(0.9, jnp.array([0.0, 1.0, 9.0]))


@pytest.mark.slow
def test_forward_derivatives_include_saltation_of_resets():
    np.testing.assert_allclose(jax.jacfwd(lambda e: bounce(e).q[1:, 0])(0.9), SLOPES, rtol=1e-12)


@pytest.mark.slow
def test_reverse_derivatives_of_jitted_batch_include_saltation_of_resets():
    of_batch = jax.jit(jax.vmap(jax.jacrev(lambda e: bounce(e).q[1:, 0])))(jnp.array([0.5, 0.7, 0.9]))
    np.testing.assert_allclose(of_batch[2], SLOPES, rtol=1e-12)
    for member, e in enumerate(("0.5", "0.7")):
        slope = float(mpmath.diff(lambda e: height(e, 1), mpmath.mpf(e)))
        np.testing.assert_allclose(of_batch[member, 0], slope, rtol=1e-12)


def clock(kick, cycles):
    """A damped linear pendulum. Its escapement adds ``kick`` to the velocity at each pass through zero to the right."""
    zeta = 0.05
    decay = float(np.exp(-2 * np.pi * zeta / np.sqrt(1 - zeta**2)))
    period = 2 * np.pi / np.sqrt(1 - zeta**2)
    pendulum = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -q - 2 * zeta * v))
    push = uk.Event(lambda t, q, v: q[0], "rising", reset=lambda t, q, v: v + kick, name="push")
    ts = [0.0, cycles * period]
    return decay, period, uk.simulate(pendulum, [0.0], [-1.0], ts, event=push, rtol=1e-12, atol=1e-12)


def test_clock_approaches_limit_cycle_of_its_escapement():
    """The velocity at zero obeys v ← ρ v + kick: a limit cycle in closed form."""
    decay, period, motion = clock(0.3, 12)
    np.testing.assert_allclose(motion.events.times("push")[:12], period * (np.arange(12) + 0.5), rtol=1e-11)
    first, limit = np.sqrt(decay) + 0.3, 0.3 / (1 - decay)
    last = limit + decay**11 * (first - limit)
    np.testing.assert_allclose(motion.v[-1, 0], -np.sqrt(decay) * last, rtol=1e-10)
    assert int(motion.events.counts[0]) == 12


@pytest.mark.slow
def test_events_count_passes_of_pendulum():
    """From 2 rad, with the rod as a constraint. The period is Legendre's integral."""
    rod = uk.Holonomic(lambda t, q: q @ q - 1.0)
    pendulum = uk.System(uk.MassForce(jnp.eye(2), jnp.array([0.0, -G])), rod)
    sides = ("both", None), ("right", "rising"), ("left", "falling")
    passes = [uk.Event(lambda t, q, v: q[0], way, ends=False, name=name) for name, way in sides]
    stop = uk.Event(lambda t, q, v: t - 20.0)
    start, period = [np.sin(2), -np.cos(2)], 4 * ellipk(np.sin(1) ** 2) / np.sqrt(G)
    motion = uk.simulate(pendulum, start, [0, 0], [0, 10, 30], event=[*passes, stop], rtol=1e-12, atol=1e-12)
    count = int(20 / period * 2 + 0.5)
    np.testing.assert_array_equal(motion.events.counts, [count, count // 2, (count + 1) // 2, 1])
    expected = period * (0.25 + 0.5 * np.arange(count))
    np.testing.assert_allclose(motion.events.times("both")[:count], expected, rtol=0, atol=1e-9)
    assert bool(motion.met_event) and motion.events.names[3] == "event 3"
    np.testing.assert_allclose(motion.t, [0, 10, 20], rtol=1e-14)
    with pytest.raises(uk.InputError, match="there is no event 'lift'.*did you mean 'left'"):
        motion.events.times("lift")

    # A velocity that violates the constraint is projected. A position that violates it is an error.
    wall = lambda reset: uk.Event(lambda t, q, v: q[0], "falling", reset=reset)
    stops = uk.simulate(pendulum, start, [0, 0], [0, 1.0], event=wall(lambda t, q, v: v * jnp.array([0.0, 1.0])))
    np.testing.assert_allclose(stops.q[-1], [0, -1], atol=1e-12)
    with pytest.raises(uk.SimulationError, match="leaves its constraints at t = 0"):
        uk.simulate(pendulum, start, [0, 0], [0, 1.0], event=wall(lambda t, q, v: (1.1 * q, v)))


def test_events_are_counted_together_with_contacts():
    floor = uk.Unilateral(lambda t, q: q[0], 0.5)
    ball = uk.System(uk.MassForce(jnp.eye(1), jnp.array([-G])), floor)
    high = uk.Event(lambda t, q, v: q[0] - 0.1, "rising", ends=False)
    motion = uk.simulate(ball, [1.0], [0.0], [0.0, 1.0, 3.0], event=[high, APEX], switches=[0.5])
    assert int(motion.contacts.impacts) == int(motion.events.counts[1]) > 10  # all apexes follow an impact
    assert int(motion.events.counts[0]) == 1  # 0.25 m, then 0.0625 m
    assert motion.contact_force.shape == (3, 1)


@pytest.mark.parametrize("how", ({}, {"dt": 0.1}), ids=("adaptive", "dt"))
def test_turning_points_of_an_oscillator_are_counted(how):
    oscillator = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -q))
    turns = [uk.Event(lambda t, q, v: v[0], ends=False, name="turn"), uk.Event(lambda t, q, v: q[0], ends=False)]
    motion = uk.simulate(oscillator, [1.0], [0.0], np.linspace(0, 7, 8), event=turns, **how)
    np.testing.assert_allclose(motion.events.times("turn")[:2], [np.pi, 2 * np.pi], atol=1e-6)
    assert motion.events.counts.tolist() == [2, 2] and motion.steps < 200


def test_invalid_events_are_errors():
    event = lambda **options: uk.Event(lambda t, q, v: q[0], "falling", **options)
    run = lambda event, **options: uk.simulate(BALL, [1.0], [0.0], [0.0, 1.0], event=event, **options)
    with pytest.raises(uk.InputError, match="ends=True is not possible with a reset"):
        event(reset=lambda t, q, v: v, ends=True)
    with pytest.raises(uk.InputError, match="name must be a text or None, got ''"):
        event(name="")
    with pytest.raises(uk.InputError, match="event must be an event or several, got none"):
        run([])
    with pytest.raises(uk.InputError, match="event must have a different name for each event, got 'a', 'a'"):
        run([event(name="a"), event(name="a")])
    with pytest.raises(uk.InputError, match=r"reset must return v of shape \(1,\), or q and v of shapes"):
        run(event(reset=lambda t, q, v: jnp.zeros(2)))
    with pytest.raises(uk.InputError, match="solver must be an explicit Runge-Kutta method .*, got Radau"):
        run([event(), APEX], solver=uk.Radau())
    with pytest.raises(uk.InputError, match="progress is not available for several events"):
        run([event(), APEX], progress=True)
    for speed in (-1.0, 0.0):
        with pytest.raises(uk.SimulationError, match="starts on one of its events, at t = 0 s"):
            uk.simulate(BALL, [0.1], [speed], TS, event=floor(0.9))


def test_event_function_that_becomes_nan_ends_motion():
    root = uk.Event(lambda t, q, v: jnp.sqrt(q[0]) + 1, ends=False)
    motion = uk.simulate(BALL, [1.0], [0.0], [0.0, 1.0], event=root, throw=False, dt=0.25, solver=uk.RungeKutta4())
    assert int(motion.result) == EVENT_NAN


def test_events_of_batch_are_saved_and_loaded(tmp_path):
    starts = np.array([[1.0], [2.0]])
    motion = uk.simulate(BALL, starts, [0.0], TS, event=[floor(0.8), APEX])
    first = np.sqrt(2 * (starts[:, 0] - 0.1) / G)
    np.testing.assert_allclose(motion.events.times("floor")[:, 0], first, rtol=1e-12)
    found = uk.load_trajectory(motion.save(tmp_path / "motion.npz"))
    assert repr(found.events) == repr(motion.events) and found.events.names == ("floor", "apex")
    np.testing.assert_array_equal(found[1].events.times("apex"), motion[1].events.times("apex"))
    with pytest.warns(UserWarning, match="motion.events are not written to .nc: use .npz"):
        assert uk.load_trajectory(motion.save(tmp_path / "motion.nc")).events is None


@pytest.mark.slow
def test_derivatives_through_events_and_impacts_in_a_batch():
    """A ball bounces at 0 with coefficient e. Its velocity is multiplied by k where it passes 0.6 m upwards."""
    ts = jnp.array([0.0, 0.3, 1.0])

    def run(x):
        ball = uk.System(BALL.dynamics, uk.Unilateral(lambda t, q: q[0], x[0]))
        kick = uk.Event(lambda t, q, v: q[0] - 0.6, "rising", reset=lambda t, q, v: x[1] * v)
        return uk.simulate(ball, jnp.stack([x[2:], x[2:] + 0.3]), jnp.zeros(1), ts, event=[kick, APEX])

    def last(e, k, h):
        fall = np.sqrt(2 * h / G)
        rise = (e * G * fall - np.sqrt((e * G * fall) ** 2 - 2 * G * 0.6)) / G
        speed, t = k * (e * G * fall - G * rise), 1.0 - fall - rise
        return 0.6 + speed * t - G * t**2 / 2

    def ends(x):
        motion = run(x)
        return motion.q[:, -1, 0], motion.events.counts

    x, along, step = np.array([0.9, 0.5, 1.0]), np.array([0.3, -0.4, 0.5]), 1e-5
    found, slope, counts = jax.jvp(ends, (jnp.asarray(x),), (jnp.asarray(along),), has_aux=True)
    both = lambda x: np.array([last(*x), last(x[0], x[1], x[2] + 0.3)])
    np.testing.assert_allclose(found, both(x), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(counts[:, 0], 1)
    difference = (both(x + step * along) - both(x - step * along)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-7)


def test_reset_as_argument_of_simulate_is_error():
    with pytest.raises(uk.InputError, match=r"write event=ukjax.Event\(function, reset=reset\)"):
        uk.simulate(BALL, [1.0], [0.0], TS, event=APEX, reset=Bounce(0.9))
