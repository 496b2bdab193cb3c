"""Tolerances scale with the problem: results do not depend on units, and a violated constraint is always an error."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._jaxpr.sizes import sizes
from ukjax._motion.stepper.scaling import scale_of

TWO = 2.0**30  # units that are powers of two change no digit


class Rod(uk.AbstractSystem):
    """A mass on a rod, in any units: a length, a mass, and gravity g."""

    length: jax.Array
    mass: jax.Array
    g: jax.Array

    @property
    def dynamics(self):
        return uk.Lagrangian(lambda t, q, v: self.mass * v @ v / 2, lambda t, q: self.mass * self.g * q[1])

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: q @ q - self.length**2, name="rod"),)


def swung(length, mass, time, dtype=jnp.float64, **how):
    """The motion of a pendulum of 1 m and 1 kg for 2 s, computed in other units and returned in metres."""
    rod = Rod(*(jnp.asarray(x, dtype) for x in (length, mass, 9.81 * length / time**2)))
    q0, v0 = jnp.array([-0.8, -0.6], dtype) * length, jnp.array([0.75, -1.0], dtype) * length / time
    motion = uk.simulate(rod, q0, v0, jnp.array([0.0, 1.0, 2.0], dtype) * time, **how)
    return np.asarray(motion.q, float) / length, int(motion.steps)


UNITS = [(TWO, 1, 1), (1 / TWO, 1, 1), (1, TWO, 1), (1, 1 / TWO, 1), (1, 1, TWO), (1, 1, 1 / TWO), (TWO, TWO, 1 / TWO)]


@pytest.mark.parametrize("how", [{}, {"dt": None}], ids=["adaptive", "even"])
@pytest.mark.parametrize("units", UNITS, ids=str)
def test_units_change_no_digit(units, how):
    step = lambda time: {"dt": 0.01 * time} if how else {}
    expected, steps = swung(1.0, 1.0, 1.0, **step(1.0))
    found, as_many = swung(*units, **step(units[2]))
    assert as_many == steps
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("units", [tuple(x ** (1 / 3) for x in units) for units in UNITS], ids=str)
def test_units_change_no_digit_in_single_precision(units):
    units = tuple(2.0 ** round(np.log2(x)) for x in units)  # 2 ** ±10
    expected, steps = swung(1.0, 1.0, 1.0, jnp.float32, rtol=1e-5)
    found, as_many = swung(*units, dtype=jnp.float32, rtol=1e-5)
    assert as_many == steps
    np.testing.assert_array_equal(found, expected)


def test_units_change_no_digit_of_a_batch():
    def batch(length):
        rod = Rod(*map(jnp.asarray, (length, 1.0, 9.81 * length)))
        q0 = jnp.tile(jnp.array([-0.8, -0.6]) * length, (3, 1))
        v0 = jnp.linspace(0, 1, 3)[:, None] * jnp.array([0.75, -1.0]) * length
        return uk.simulate(rod, q0, v0, [0.0, 1.0]).q / length

    np.testing.assert_array_equal(batch(TWO), batch(1.0))
    np.testing.assert_array_equal(batch(1 / TWO), batch(1.0))


@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9])
def test_projection_in_any_unit(unit):
    rod = Rod(*map(jnp.asarray, (unit, 1.0, 9.81)))
    q, v = uk.project(rod, 0.0, jnp.array([0.9, 1.2]) * unit, jnp.array([1.0, 0.0]) * unit)
    np.testing.assert_allclose(q / unit, [0.6, 0.8], rtol=1e-14)
    np.testing.assert_allclose(v / unit, [0.64, -0.48], rtol=1e-13)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("inertia", [0.0, 0.5], ids=["piston without inertia", "piston with inertia"])
def test_projection_of_lengths_and_angles_in_any_unit(unit, inertia):
    """A slider-crank of three angles: its slide is a row in units of length, the turn of its piston is one of 1."""
    crank, rod = 0.1 * unit, 0.3 * unit
    slide = uk.Holonomic(lambda t, q: crank * jnp.sin(q[0]) + rod * jnp.sin(q[0] + q[1]), name="slide")
    turn = uk.Holonomic(lambda t, q: q[0] + q[1] + q[2], name="turn")
    driven = uk.Holonomic(lambda t, q: q[0] - 0.4 - 3 * t, name="drive")
    masses = unit**2 * np.diag([1.0, 2.0, inertia])
    engine = uk.System(uk.MassForce(masses, np.zeros(3)), (slide, turn, driven))
    q, v = uk.project(engine, 0.0, [0.4, 0.3, 0.1], [0.0, 0.0, 0.0])
    angle = -np.arcsin(np.sin(0.4) / 3)  # of the rod
    rate = -np.cos(0.4) / np.cos(angle)
    np.testing.assert_allclose(q, [0.4, angle - 0.4, -angle], rtol=1e-12)
    np.testing.assert_allclose(v, [3.0, rate - 3.0, -rate], rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("beside", [3e-6, 0.3])
def test_start_off_its_rod_is_error_in_any_unit(unit, beside):
    rod = Rod(*map(jnp.asarray, (unit, 1.0, 9.81)))
    with pytest.raises(ValueError, match="off the constraints.*'rod'"):
        uk.simulate(rod, jnp.array([unit * (1 + beside), 0.0]), [0.0, 0.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="off the constraints.*'rod'"):
        uk.initial_state(rod, jnp.array([unit * (1 + beside), 0.0]), [0.0, 0.0])


def test_start_exact_to_rounding_is_accepted_in_any_unit():
    for unit in (1e-6, 1e6):
        rod = Rod(*(jnp.asarray(x, jnp.float32) for x in (unit, 1.0, 9.81)))
        q0 = (np.array([0.6, 0.8]) * unit).astype(np.float32)
        assert uk.simulate(rod, q0, np.zeros(2, np.float32), np.array([0, 1e-4], np.float32), rtol=1e-5).finished


def test_large_unrelated_coordinate_does_not_hide_violation():
    """The coordinate of 1e8 is not in the constraint."""
    system = uk.System(
        uk.MassForce(lambda t, q: jnp.eye(3), lambda t, q, v: jnp.zeros(3)),
        uk.Holonomic(lambda t, q: q[:2] @ q[:2] - 1, name="loop"),
    )
    with pytest.raises(ValueError, match="'loop' is 0.12"):
        uk.simulate(system, [1.06, 0.0, 1e8], [0.0, 0.0, 0.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="trajectory 1 starts off"):
        uk.simulate(system, [[1.0, 0.0, 1e8], [1.06, 0.0, 0.0]], np.zeros((2, 3)), [0.0, 1.0])


def jumping(at):
    """A bead on a line. Its prescribed position jumps by 1 m at the time ``at``."""
    return uk.System(
        uk.MassForce(lambda t, q: jnp.eye(2), lambda t, q, v: jnp.array([0.0, -9.81])),
        uk.Holonomic(lambda t, q: q[0] - jnp.where(t > at, 1.0, 0.0) - t / 10, name="path"),
    )


@pytest.mark.parametrize(("how", "members"), [({"dt": 0.01}, 3), ({}, None)], ids=["even", "free"])
def test_jump_of_constraint_ends_motion(how, members):
    q0, v0 = [0.0, 0.0], [0.1, 0.0]
    if members is not None:
        q0, v0 = (np.tile(x, (members, 1)) for x in (q0, v0))
    with pytest.raises(uk.SimulationError, match=r"at t = 0\.(49\d*|5) s.*jump.*'path' is 1") as caught:
        uk.simulate(jumping(0.5), q0, v0, [0.0, 0.25, 1.0], **how)
    assert "trajectory 0 (3 of 3 failed)" in str(caught.value) or members is None
    ended = uk.simulate(jumping(0.5), q0, v0, [0.0, 0.25, 1.0], throw=False, **how)
    assert np.all(np.asarray(ended.reason) == "could only continue by a jump onto its constraints")
    assert np.all(np.isfinite(ended.q[..., 1, :]))
    assert not np.any(np.isfinite(ended.q[..., 2, :]))


def test_step_reports_jump_of_constraint():
    state = uk.initial_state(jumping(0.05), [0.0, 0.0], [0.1, 0.0])
    state = uk.step(jumping(0.05), state, 0.04)
    assert state.reason == "reached its last time"
    assert uk.step(jumping(0.05), state, 0.04).reason == "could only continue by a jump onto its constraints"


@pytest.mark.parametrize("begin", [1.7e9, 1e12])
def test_batch_measures_time_from_its_start(begin):
    """With adaptive steps, the time of a member is not summed from 1970."""
    spring = uk.MassForce(lambda t, q: jnp.eye(1), lambda t, q, v: -q)
    later = uk.simulate(uk.System(spring), [[1.0], [2.0]], np.zeros((2, 1)), begin + np.array([0.0, 8.0]))
    np.testing.assert_allclose(later.q[:, -1, 0], np.cos(8) * np.array([1, 2]), rtol=0, atol=3e-8)


def test_too_coarse_time_gives_warning_if_model_depends_on_time():
    """Near 1.7e9 s, times in float64 are 2.4e-7 s apart."""
    driven = uk.MassForce(lambda t, q: jnp.eye(1), lambda t, q, v: jnp.cos(t) - q)
    with pytest.warns(UserWarning, match="depends on t, and times near 1.7e[+]09 s are 2e-07 s apart in float64"):
        uk.simulate(uk.System(driven), [1.0], [0.0], 1.7e9 + np.array([0.0, 1.0]), dt=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        uk.simulate(uk.System(driven), [1.0], [0.0], 100 + np.array([0.0, 1.0]), dt=0.1)


def test_sizes_of_terms_match_values_by_hand():
    """Against values computed by hand."""
    f = lambda q: jnp.stack(
        [q[0] ** 2 - 1, jnp.cos(q[1]) - 1, q[0] * (q[0] - 1), jnp.sum(jnp.array([1e8, -1e8]) * q[0])]
    )
    x = jnp.array([1.0, 0.0])
    np.testing.assert_allclose(sizes(f, (x,), (jnp.abs(x),)), [3.0, 2.0, 2.0, 2e8])


def test_sizes_of_loops_branches_and_calls():
    def f(q):
        summed = jax.lax.fori_loop(0, 4, lambda i, s: s + jnp.where(i % 2 == 0, q[0], -q[0]), 0.0)
        scanned = jax.lax.scan(lambda s, x: (s + x, s - x), 0.0, jnp.array([3.0, -3.0]) * q[0])
        chosen = jax.lax.cond(q[0] > 0, lambda x: x - 5.0, lambda x: x + 1.0, q[0])
        called = jax.jit(lambda x: x - 7.0)(q[0])
        return summed, scanned[0], chosen, called

    found = jax.jit(lambda q: (f(q), sizes(f, (q,), (jnp.abs(q),))))(jnp.array([1.0]))
    values, of = found
    np.testing.assert_allclose(values, [0.0, 0.0, -4.0, -6.0])
    np.testing.assert_allclose(of, [4.0, 6.0, 6.0, 8.0])


def test_rounding_error_is_bounded_by_sizes(rng):
    """For each row of a random polynomial, the error in single precision is at most 8 eps times the size."""
    coefficients = rng.normal(size=(40, 6)) * 10.0 ** rng.integers(-3, 4, size=(40, 6))

    def f(q):
        powers = jnp.stack([q**0, q, q**2, q**3, jnp.sin(q), jnp.cos(q)])
        return jnp.asarray(coefficients, q.dtype) @ powers

    x = rng.normal(size=1)[0]
    single = f(jnp.asarray(x, jnp.float32))
    exact = f(jnp.asarray(np.float32(x), jnp.float64))
    allowed = 8 * np.finfo(np.float32).eps * np.asarray(sizes(f, (jnp.asarray(x),), (jnp.abs(jnp.asarray(x)),)))
    assert np.all(np.abs(np.asarray(single, float) - exact) <= allowed)


def test_scale_of_pendulum_released_from_horizontal():
    """A rod of 2 m: positions of 2 m, and a speed √(2 · 9.81), that of a fall of 2 m up to a constant factor."""
    found = scale_of(Rod(*map(jnp.asarray, (2.0, 3.0, 9.81))), jnp.zeros(()), jnp.array([2.0, 0.0]), jnp.zeros(2))
    np.testing.assert_allclose(found.q, [2.0, 2.0])
    np.testing.assert_allclose(found.v, [np.sqrt(2 * 9.81)] * 2)
    np.testing.assert_allclose(found.rows, [8.0])


def test_scale_of_body_does_not_grow_at_small_tilt():
    """A rotation changes the first entry of the quaternion by half the tilt. A scale from this entry alone would be
    unbounded at zero tilt, and with it the allowed error."""
    body = uk.Mechanism({"body": uk.Body(2.0, inertia=(0.1, 0.2, 0.3))}, {"free": uk.joints.Free("ground", "body")})
    tilts = np.array([0.5, 0.0, 1e-30, 1e-12, 1e-4])
    one = np.ones(5)
    at = np.stack([one, 2 * one, 3 * one, np.cos(tilts / 2), 0 * one, np.sin(tilts / 2), 0 * one], axis=1)
    scale = jax.jit(jax.vmap(lambda q: scale_of(body, jnp.asarray(0.0), q, jnp.zeros(6), jnp.asarray(1.0))))(at)
    unit, v = np.asarray(scale.unit_of_q), np.asarray(scale.v)
    assert np.all(unit[1:] > unit[0] / 10) and np.all(v[1:] < 10 * v[0])


class Beside(uk.AbstractSystem):
    """Two rows prescribe x, and differ by ``apart`` for a short time. z is free and is in neither row."""

    apart: jax.Array

    @property
    def dynamics(self):
        return uk.MassForce(np.eye(3), np.array([0.0, -9.81, 0.0]))

    @property
    def constraints(self):
        bump = lambda t: self.apart * jnp.exp(-(((t - 0.5) / 0.1) ** 2))
        return uk.Holonomic(lambda t, q: q[0], name="x"), uk.Holonomic(lambda t, q: q[0] - bump(t), name="x again")


@pytest.mark.parametrize("members", [(), pytest.param((2,), marks=pytest.mark.slow)])
def test_speed_of_unrelated_coordinate_does_not_change_result(members):
    """Rows that differ by rounding do not contradict each other, and rows that differ by 1 mm do, at any speed of z."""
    at, ts = np.zeros((*members, 3)), [0.0, 0.5, 1.0]
    for apart, finished in ((1e-16, True), (1e-3, False)):
        for speed in (1e-9, 1.0, 1e6):
            v0 = np.array([0.0, 0.0, speed])
            motion = uk.simulate(Beside(jnp.asarray(apart)), at, v0, ts, dt=0.05, throw=False)
            assert np.all(motion.finished) == finished and np.all(motion.finished) == np.any(motion.finished)


@pytest.mark.parametrize("speed", [1e-9, 1.0, 1e6])
def test_size_of_row_depends_only_on_its_coordinates(speed):
    """1 for x, by default; 4 for y − 2 at y = 2. z is in neither row."""
    two = uk.Holonomic(lambda t, q: jnp.stack([q[0], q[1] - 2.0]))
    model = uk.System(uk.MassForce(np.eye(3), np.zeros(3)), two)
    found = scale_of(model, jnp.zeros(()), jnp.array([0.0, 2.0, 0.0]), jnp.array([0.0, 0.0, speed]), jnp.asarray(1.0))
    np.testing.assert_allclose(found.rows, [1.0, 4.0])
