"""Events that end a motion: their times, directions and derivatives, and restarts after them."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.optimize import brentq
from scipy.special import ellipk, ellipkinc

import ukjax as uk
from ukjax._motion.result import EVENT, FINISHED, ON_EVENT, REASONS

from ..kernel.test_latency import compiling
from ..mechanisms import GRAVITY, Pendulum

MODELS = {
    dtype: uk.System(uk.MassForce(np.eye(2, dtype=dtype), np.array([0.0, -GRAVITY], dtype)), ())
    for dtype in (np.float64, np.float32)
}
BALL = MODELS[np.float64]
TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}
UNIT = {np.float64: 2.3e-16, np.float32: 1.2e-7}
ADAPTIVE: dict[str, Any] = {}


class Line(eqx.Module):
    """The height above a horizontal line. The height of the line is a leaf."""

    height: Array = eqx.field(default=0.0, converter=jnp.asarray)

    def __call__(self, t, q, v):
        return q[1] - self.height


class Side(eqx.Module):
    """The distance to the right of a wall."""

    place: Array = eqx.field(default=0.0, converter=jnp.asarray)

    def __call__(self, t, q, v):
        return q[0] - self.place


HEIGHT = Line()
FLOOR = uk.Event(HEIGHT, direction="falling")


def dropped(heights, dtype=np.float64):
    """Balls released at these heights, with a horizontal velocity of 1 m/s."""
    heights = np.asarray(heights, dtype)
    return np.stack([0 * heights, heights], axis=-1), np.broadcast_to(np.array([1, 0], dtype), (*heights.shape, 2))


@pytest.mark.parametrize(
    ("event", "how", "dtype"),
    [
        (FLOOR, ADAPTIVE, np.float64),
        (FLOOR, {"dt": 2.0}, np.float64),
        pytest.param(FLOOR, ADAPTIVE, np.float32, marks=pytest.mark.slow),
    ],
    ids=["adaptive", "long", "adaptive, float32"],
)
def test_ball_stays_above_floor_in_fifty_bounces(event, how, dtype):
    """A flight lasts 2 √(2h/g), less than the long step. Each flight starts where the one before ended, and uses the
    same compiled program."""
    (q, v), t, turn = dropped(1.0, dtype), 0.0, np.array([1, -1], dtype)
    found = []
    with compiling() as programs:
        for k in range(50):
            flight = uk.simulate(MODELS[dtype], q, v, [t, 60.0], event=event, **({"rtol": 1e-5} | how))
            assert int(flight.result) == EVENT and flight.met_event and not flight.finished
            t, q, v = flight.last
            assert q.dtype == v.dtype == dtype
            v = v * turn
            found.append((t, q, v))
            if k == 4:  # checks are compiled after a few calls that NumPy evaluates
                programs.clear()
    assert not programs
    t, q, v = (np.array([state[i] for state in found], float) for i in range(3))
    exact = (2 * np.arange(50) + 1) * np.sqrt(2 / GRAVITY)
    rounding = 200 * UNIT[dtype] * exact[-1]  # a rounding of the speed shortens all flights that follow
    np.testing.assert_allclose(t, exact, rtol=0, atol=rounding)
    np.testing.assert_allclose(q[:, 1], 0, atol=100 * UNIT[dtype])  # the rounding of a step of 4 m, and of its instant
    np.testing.assert_allclose(q[:, 0], t, rtol=0, atol=rounding)
    np.testing.assert_allclose(v[:, 1], np.sqrt(2 * GRAVITY), rtol=250 * UNIT[dtype])


def test_ball_that_comes_to_rest_on_floor_is_error():
    """Each flight is a fifth as long as the one before, much shorter than a fixed step. At the end the ball is at
    rest."""
    (q, v), t, part = dropped(1.0), 0.0, 0.2
    exact = fall = np.sqrt(2 / GRAVITY)
    with pytest.raises(uk.SimulationError, match=r"starts on its event, at t = 0\.677.* the body rests on the surface"):
        for k in range(40):
            flight = uk.simulate(BALL, q, v, [t, 60.0], event=FLOOR, dt=2.0)
            t, q, v = flight.last
            assert float(t) == pytest.approx(exact, abs=1e-14 * (k + 1)) and 0 <= float(q[1]) < 1e-14
            v = v * np.array([1.0, -part])
            exact += 2 * fall * part ** (k + 1)
    assert k > 8


@pytest.mark.parametrize("event", [FLOOR, HEIGHT], ids=["falling", "both"])
@pytest.mark.parametrize("off", [0.0, 1e-17, -1e-17, 1e-12, -1e-12])
@pytest.mark.parametrize("speed", [3.0, 1e-3])
def test_start_on_floor_with_upward_velocity_meets_floor_again(event, off, speed):
    flight = uk.simulate(BALL, [0.0, off], [0.0, speed], [0.0, 60.0], event=event, rtol=1e-5)
    if event is HEIGHT and off == -1e-12:  # below the floor by more than rounding: the upward crossing counts
        assert float(flight.t[-1]) == pytest.approx(1e-12 / speed, rel=1e-2)
    else:
        assert flight.met_event and float(flight.t[-1]) == pytest.approx(2 * speed / GRAVITY, rel=1e-5)


@pytest.mark.parametrize("how", [ADAPTIVE, {"dt": 0.1}], ids=["adaptive", "fixed"])
@pytest.mark.parametrize(("off", "speed"), [(0, -1), (0, 0), (1e-17, -1), (-1e-17, -1)])
def test_start_on_floor_without_upward_velocity_is_error(how, off, speed):
    start = BALL, [0.0, off], [1.0, speed], [0.0, 60.0]
    what = "Reverse its velocity first" if speed else "the body rests on the surface of the event"
    with pytest.raises(uk.SimulationError, match=rf"starts on its event, at t = 0 s.*{what}"):
        uk.simulate(*start, event=FLOOR, **how)
    found = uk.simulate(*start, event=FLOOR, throw=False, **how)
    assert int(found.result) == ON_EVENT and found.reason == REASONS[ON_EVENT]
    assert not found.finished and not found.met_event
    np.testing.assert_array_equal(found.t, [0.0])
    np.testing.assert_array_equal(found.last[1], [0.0, off])


def test_restart_on_event_of_both_directions_meets_next_crossing():
    """A pendulum passes its lowest point each half period, from alternate sides. Each motion starts where the one
    before ended."""
    t, q, v = 0.0, [-1.0, 0.0], [0.0, 0.0]
    lowest = uk.Event(Side())
    quarter = 2.36784194757623745 / 4
    for k in range(4):
        t, q, v = uk.simulate(Pendulum(), q, v, [t, 10.0], event=lowest, **TIGHT).last
        assert float(t) == pytest.approx((2 * k + 1) * quarter, abs=1e-9)


def test_pendulum_with_elastic_impacts_keeps_energy_and_impact_times():
    """A pendulum starts at rest at 90°, and a wall at 30° before its lowest point reflects it without loss. The time
    between two impacts is twice ∫ dθ / √(2g (cos θ)) from 30° to 90°, in Legendre's integrals with k = sin 45°."""
    wall = uk.Event(Side(-0.5))
    k2 = 0.5
    way = (ellipk(k2) - ellipkinc(np.arcsin(np.sin(np.pi / 12) / np.sqrt(k2)), k2)) / np.sqrt(GRAVITY)
    t, q, v = 0.0, [-1.0, 0.0], [0.0, 0.0]
    for k in range(10):
        swing = uk.simulate(Pendulum(), q, v, [t, 30.0], event=wall, **TIGHT)
        t, q, v = swing.last
        assert float(t) == pytest.approx((2 * k + 1) * way, abs=1e-9)
        np.testing.assert_allclose(q, [-0.5, -np.sqrt(0.75)], rtol=0, atol=1e-14)
        np.testing.assert_allclose(np.asarray(swing.energy), 0, atol=1e-9)
        np.testing.assert_allclose(swing.residual, 0, atol=1e-15)
        v = -v


@pytest.mark.parametrize(("direction", "instant"), [("falling", 1.0), ("rising", 0.5), (None, 0.5)])
def test_only_crossings_in_direction_of_event_end_motion(direction, instant):
    """y = −½ g (t − ½)(t − 1)."""
    speed, low = GRAVITY * 0.75, -GRAVITY / 4
    found = uk.simulate(BALL, [0.0, low], [0.0, speed], [0.0, 60.0], event=uk.Event(HEIGHT, direction))
    assert float(found.t[-1]) == pytest.approx(instant, abs=1e-14)


@pytest.mark.parametrize("above", [0.1, 1e-3, 1e-6])
@pytest.mark.parametrize("how", [ADAPTIVE, {"dt": 30.0}, {"dt": 0.9}], ids=["adaptive", "one step", "few"])
def test_two_crossings_within_one_step_are_found(above, how):
    """A ball thrown up to 1 m crosses a line a little below its apex. Both crossings lie in one step."""
    speed = np.sqrt(2 * GRAVITY)
    first = (speed - np.sqrt(2 * GRAVITY * above)) / GRAVITY
    found = uk.simulate(BALL, [0.0, 0.0], [0.0, speed], [0.0, 60.0], event=Line(1 - above), **how)
    assert found.met_event
    assert float(found.t[-1]) == pytest.approx(first, abs=1e-14 / np.sqrt(above))


def test_event_that_is_not_met_does_not_change_motion():
    speed = np.sqrt(2 * GRAVITY)
    found = uk.simulate(BALL, [0.0, 0.0], [0.0, speed], [0.0, 2.0], event=Line(1 + 1e-6))
    assert found.finished and not found.met_event and int(found.result) == FINISHED
    assert found.plan is not None and found.plan.integrator == "diffrax" and "event" in found.plan.reason
    np.testing.assert_array_equal(found.t, [0.0, 2.0])
    np.testing.assert_allclose(found.q[-1], [0, 2 * speed - 2 * GRAVITY], rtol=1e-13)


@pytest.mark.parametrize("how", [ADAPTIVE, {"dt": 0.1}], ids=["adaptive", "fixed"])
@pytest.mark.parametrize(("unit", "begin"), [(1e-9, 0.0), (1e9, 1.7e9)])
def test_events_do_not_depend_on_units_and_origin_of_time(how, unit, begin):
    """Lengths in other units, and times since 1970, which are 0.2 µs apart in float64."""
    model = uk.System(uk.MassForce(np.eye(2), np.array([0.0, -GRAVITY / unit])), ())
    scaled = {"rtol": 1e-9, "atol": 1e-9 / unit} | how
    q, v = np.array([0.0, 1.0]) / unit, np.array([1.0, 0.0]) / unit
    fall = np.sqrt(2 / GRAVITY)
    for flight in range(3):
        found = uk.simulate(model, q, v, [begin, begin + 60.0], event=FLOOR, **scaled)
        _, q, v = found.last
        np.testing.assert_allclose(q * unit, [(2 * flight + 1) * fall, 0], rtol=1e-14, atol=1e-14)
        v = v * np.array([1.0, -1.0])


def test_members_of_batch_meet_event_at_different_times():
    q, v = dropped([1.0, 4.0, 900.0, 0.0])
    v = v + np.array([[0, 0], [0, 0], [0, 0], [0, -1.0]])
    ts = np.array([0.0, 0.6, 1.2])
    found = uk.simulate(BALL, q, v, ts, event=FLOOR, throw=False)
    np.testing.assert_array_equal(found.result, [EVENT, EVENT, FINISHED, ON_EVENT])
    np.testing.assert_array_equal(found.met_event, [True, True, False, False])
    np.testing.assert_array_equal(found.finished, [False, False, True, False])
    assert np.asarray(found.reason).tolist() == [REASONS[int(code)] for code in found.result]
    fall = np.sqrt(2 * np.array([1.0, 4.0]) / GRAVITY)
    np.testing.assert_allclose(found.t[:2, -1], fall, rtol=1e-15)
    np.testing.assert_allclose(found.last[0], [*fall, 1.2, 0.0], rtol=1e-15)
    left_out = [[True, True], [False, True], [False, False], [True, True]]
    np.testing.assert_array_equal(np.isnan(found.t[:, 1:3]), left_out)
    with pytest.raises(uk.SimulationError, match=r"trajectory 3 \(1 of 4 failed\) starts on its event"):
        uk.simulate(BALL, q, v, ts, event=FLOOR)


def test_results_of_events_under_jit_and_vmap():
    @jax.jit
    @jax.vmap
    def fall(q, v):
        found = uk.simulate(BALL, q, v, jnp.array([0.0, 1.0]), event=FLOOR)
        return found.result, found.finished, found.met_event, found.last[0]

    q, v = dropped([1.0, 900.0, 0.0])
    result, finished, met, t = fall(jnp.asarray(q), jnp.asarray(v))
    np.testing.assert_array_equal(result, [EVENT, FINISHED, ON_EVENT])
    np.testing.assert_array_equal(finished, [False, True, False])
    np.testing.assert_array_equal(met, [True, False, False])
    np.testing.assert_allclose(t, [np.sqrt(2 / GRAVITY), 1.0, 0.0], rtol=1e-15)


EVEN: dict[str, Any] = {"dt": 0.5, "solver": uk.RungeKutta4()}  # exact for a fall
"""A short program. A derivative of adaptive steps to an event is in ``tests/system/test_values``."""


def met(start, line, **how):
    """Time, x and vertical velocity at which a ball from the height start[0], thrown up at start[1], meets the line."""
    q, v = jnp.stack([0 * start[0], start[0]]), jnp.stack([0 * start[0] + 2, start[1]])
    found = uk.simulate(BALL, q, v, [0.0, 60.0], event=uk.Event(Line(line), "falling"), **how)
    return jnp.stack([found.last[0], found.last[1][0], found.last[2][1]])


def met_exactly(start, line):
    """t = (v + √(v² + 2 g (h − line))) / g."""
    speed = jnp.sqrt(start[1] ** 2 + 2 * GRAVITY * (start[0] - line))
    t = (start[1] + speed) / GRAVITY
    return jnp.stack([t, 2 * t, -speed])


def test_derivatives_of_event_time_and_state_match_closed_form():
    """With respect to the start and the height of the line. The second ball does not meet the line: its last state has
    the derivative of a motion without an event, and its last time has the derivative zero."""
    starts, line = jnp.array([[1.0, 0.5], [1.0, 400.0]]), jnp.array(0.2)
    some = np.array([0.7, -0.4, 1.3])  # of the time, the place and the speed
    reverse = jax.jit(jax.grad(lambda *at: some @ met(*at, **EVEN), argnums=(0, 1)))
    by_start, by_line = zip(*(reverse(start, line) for start in starts), strict=True)
    exactly_by_start, exactly_by_line = jax.grad(lambda *at: some @ met_exactly(*at), (0, 1))(starts[0], line)
    np.testing.assert_allclose(by_start[0], exactly_by_start, rtol=1e-12)
    np.testing.assert_allclose(by_line[0], exactly_by_line, rtol=1e-12)
    np.testing.assert_allclose(by_start[1], [0, some[2]], atol=1e-12)
    assert by_line[1] == 0


@pytest.mark.slow
def test_second_derivatives_of_event_time_match_closed_form():
    at, line = jnp.array([1.0, 0.5]), jnp.array(0.2)
    one, other = jnp.array([0.3, -1.0]), jnp.array([1.0, 0.4])
    along = lambda f: lambda at: jax.jvp(lambda x: jax.jvp(f, (x,), (one,))[1], (at,), (other,))[1]
    found = jax.jit(along(lambda at: met(at, line, adjoint=dfx.ForwardMode(), **EVEN)))(at)
    np.testing.assert_allclose(found, along(lambda at: met_exactly(at, line))(at), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_derivatives_are_finite_if_event_is_not_met():
    """The event function has zero rate at the end of the motion, at rest."""
    still = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), ())
    some = jnp.array([2.0, 3.0])
    end = lambda q: some @ uk.simulate(still, q, jnp.zeros(2), [0.0, 1.0], event=FLOOR, **EVEN).q[-1]
    np.testing.assert_array_equal(jax.jit(jax.grad(end))(jnp.ones(2)), some)


def test_invalid_direction_is_error():
    with pytest.raises(ValueError, match=r"direction must be 'falling', 'rising' or None for both, got 'down'"):
        uk.Event(HEIGHT, "down")


@pytest.mark.parametrize("event", [lambda t, q, v: q, lambda t, q, v: q[1] > 0, lambda t, q, v: 1])
@pytest.mark.parametrize("wrap", [lambda x: x, jax.jit], ids=["plain", "jit"])
def test_event_function_must_return_one_real_number(event, wrap):
    with pytest.raises(ValueError, match=r"event must return one number that crosses zero, got shape"):
        wrap(lambda q: uk.simulate(BALL, q, jnp.zeros(2), [0.0, 1.0], event=event).q)(jnp.ones(2))


class Hill(eqx.Module):
    """The height above a hill, 2 m high and about 0.2 m wide."""

    place: float = 5.0

    def __call__(self, t, q, v):
        return q[1] - 2 * jnp.exp(-(((q[0] - self.place) / 0.1) ** 2))


def test_narrow_hill_within_one_step_is_found(ts=(0.0, 3.0)):
    """A ball thrown at 10 m/s from 1 m comes down 8.5 m away."""
    found = uk.simulate(BALL, [0.0, 1.0], [10.0, 3.0], ts, event=uk.Event(Hill(), "falling"))
    gap = lambda t: 1 + 3 * t - GRAVITY * t**2 / 2 - 2 * np.exp(-(((10 * t - 5) / 0.1) ** 2))
    assert found.met_event
    assert float(found.last[0]) == pytest.approx(brentq(gap, 0.48, 0.5, xtol=1e-15), abs=1e-12)


def test_narrow_minimum_of_event_function_is_found():
    """A wall 2 µm wide in the path of a ball with constant velocity. The slope of the event function shows where it
    is."""
    still = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), ())
    near = lambda t, q, v: (q[0] - 0.3711) ** 2 - 1e-12
    found = uk.simulate(still, [0.0, 0.0], [1.0, 0.0], [0.0, 1.0], event=near)
    assert found.met_event and float(found.last[0]) == pytest.approx(0.3711 - 1e-6, abs=1e-9)


def test_discontinuous_event_function_is_located_in_few_steps():
    sides = uk.Event(lambda t, q, v: jnp.sign(q[1]), "falling")
    found = uk.simulate(BALL, [0.0, 1.0], [1.0, 0.0], [0.0, 3.0], event=sides)
    assert found.met_event and int(found.steps) < 60
    assert float(found.last[0]) == pytest.approx(np.sqrt(2 / GRAVITY), abs=1e-14)
    assert np.all(np.isfinite(found.q))


def test_event_function_that_becomes_nan_is_error():
    root = uk.Event(lambda t, q, v: jnp.sqrt(q[1]) - 1e-9, "falling")
    with pytest.raises(uk.SimulationError, match="the value of its event function is NaN there"):
        uk.simulate(BALL, *dropped(1.0), [0.0, 3.0], event=root, dt=0.1)


def test_motion_below_its_event_all_the_time_gives_warning():
    with pytest.warns(UserWarning, match=r"t = 1 s, without its event.*is -1 at the start and -5\.9 at the end, below"):
        assert uk.simulate(BALL, *dropped(-1.0), [0.0, 1.0], event=FLOOR).finished


def test_body_at_rest_on_its_event_is_error():
    with pytest.raises(uk.SimulationError, match="the body rests on the surface of the event"):
        uk.simulate(BALL, *dropped(0.0), [0.0, 3.0], event=FLOOR)


def test_batch_restarts_after_events_at_different_times():
    """Balls that lose no speed meet the floor at odd multiples of the time of their fall. One ball does not reach
    it."""
    heights, last = np.array([1.0, 2.0, 100.0]), 3.0
    (q, v), t, met = dropped(heights), np.zeros(3), []
    while True:
        flights = uk.simulate(BALL, q, v, np.stack([t, np.full(3, last)], axis=1), event=FLOOR)
        if np.all(flights.finished):
            break
        t, q, v = map(np.asarray, flights.last)
        met.append(np.where(flights.met_event, t, np.nan))
        v = np.where(np.asarray(flights.met_event)[:, None], v * np.array([1.0, -1.0]), v)
    fall = np.sqrt(2 * heights / GRAVITY)
    exact = (2 * np.arange(3)[:, None] + 1) * fall
    np.testing.assert_allclose(met, np.where(exact < last, exact, np.nan), rtol=1e-14)
    np.testing.assert_allclose(flights.last[1][2], [last, 100 - GRAVITY * last**2 / 2], rtol=1e-14)
    with pytest.raises(ValueError, match=r"ts must have shape \(samples,\), or \(batch, samples\)"):
        uk.simulate(BALL, q, v, np.zeros((2, 2)), event=FLOOR)


def bounced(e, end, impacts):
    """The final height of a ball of radius 0.1 m, released with its centre at 1 m, with coefficient of restitution
    e."""
    t, q, v = 0.0 * e, jnp.array([0.0, 1.0]) + 0 * e, jnp.zeros(2) + 0 * e
    for _ in range(impacts):
        floor = uk.Event(Line(0.1), "falling")
        t, q, v = uk.simulate(BALL, q, v, jnp.stack([t, jnp.asarray(60.0)]), event=floor, **EVEN).last
        v = v * jnp.stack([jnp.ones_like(e), -e])
    return q[1] + v[1] * (end - t) - GRAVITY * (end - t) ** 2 / 2


def bounced_exactly(e, end, impacts):
    """With w the speed after the last impact, at t: 0.1 + w (end − t) − ½ g (end − t)²."""
    t = np.sqrt(2 * 0.9 / GRAVITY)
    w = GRAVITY * t * e
    for _ in range(impacts - 1):
        t, w = t + 2 * w / GRAVITY, w * e
    return 0.1 + w * (end - t) - GRAVITY * (end - t) ** 2 / 2


@pytest.mark.slow
def test_derivative_through_impacts_and_restarts_matches_closed_form(end=2.0, impacts=2):
    """Of the height by the coefficient of restitution, which also changes the times of impacts."""
    of = lambda e: bounced(e, end, impacts)
    slope = float(jax.grad(lambda e: bounced_exactly(e, end, impacts))(0.9))
    value, reverse = jax.value_and_grad(of)(0.9)
    assert float(value) == pytest.approx(float(bounced_exactly(0.9, end, impacts)), abs=1e-12)
    assert float(reverse) == pytest.approx(slope, abs=1e-10)
