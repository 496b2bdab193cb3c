"""Periodic motions and their multipliers against closed forms, published numbers and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import ukjax as uk
from ukjax._analysis import stability
from ukjax._analysis.orbit import InContact
from ukjax.joints import Spherical

from ..kernel.test_latency import compiling


def twice(t, q):
    return jnp.stack([q @ q - 1, 3 * (q @ q - 1)])


PENDULUM = uk.System(
    uk.MassForce(np.eye(2), [0.0, -9.81]), uk.Holonomic(twice, name="rod"), coordinates=(("x", "m"), ("y", "m"))
)
"""A point on a rod, with a repeated row."""


def test_period_of_a_pendulum_matches_the_elliptic_integral():
    """From rest at arctan(4/3). The derivative by gravity uses the angle as coordinate."""
    orbit = uk.periodic(PENDULUM, [0.8, -0.6], [0.0, 0.0], 2.0, hold=("x", "dx"))
    exact = 4 / np.sqrt(9.81) * scipy.special.ellipk(np.sin(np.arctan2(0.8, 0.6) / 2) ** 2)
    np.testing.assert_allclose(orbit.period, exact, rtol=1e-13)
    assert orbit.monodromy.shape == (2, 2) and orbit.stable  # two states; q and v have four numbers
    np.testing.assert_allclose(orbit.multipliers, 1, atol=1e-6)  # double: time and energy
    np.testing.assert_allclose(np.linalg.det(orbit.monodromy), 1, rtol=1e-11)
    np.testing.assert_allclose(orbit.q, [0.8, -0.6], atol=1e-14)
    motion = orbit.trajectory(5)
    np.testing.assert_allclose(motion.q[2::2], [[-0.8, -0.6], [0.8, -0.6]], atol=1e-11)

    def period(gravity):
        angle = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -gravity * jnp.sin(q)))
        return uk.periodic(angle, [np.arctan2(0.8, 0.6)], [0.0], 2.0, hold=("q1", "dq1")).period

    _, derivative = jax.jvp(period, (9.81,), (1.0,))
    np.testing.assert_allclose(derivative, -exact / 2 / 9.81, rtol=1e-9)


VAN_DER_POL = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: (1 - q**2) * v - q))


def test_limit_cycle_of_van_der_pol():
    """The published period at μ = 1; the product of multipliers is exp ∫ (1 − x²) dt (Liouville)."""
    orbit = uk.periodic(VAN_DER_POL, [1.5], [0.5], 6.0)
    np.testing.assert_allclose(orbit.period, 6.6632868593, atol=5e-11)
    other, one = np.sort(np.real(orbit.multipliers))
    np.testing.assert_allclose(one, 1, atol=1e-10)
    x = orbit.trajectory(2001).q[:-1, 0]
    np.testing.assert_allclose(other, np.exp(np.mean(1 - x**2) * orbit.period), rtol=1e-9)


def test_too_few_steps_give_a_warning():
    """A relaxation oscillation, whose jumps take a small part of the period."""
    stiff = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: 5 * (1 - q**2) * v - q))
    with pytest.warns(UserWarning, match="64 steps are too few for this periodic motion"):
        uk.periodic(stiff, [2.0], [0.0], 11.6, steps=64)


@pytest.mark.parametrize("find", (uk.monodromy, lambda *orbit, **how: uk.periodic(*orbit, **how).monodromy))
def test_too_few_steps_for_the_monodromy_matrix_of_a_motion_at_rest_give_a_warning(find):
    """The steps have no error at rest. That of Mathieu's equation at a = 30, q = 20 is 1e-3 in 8 of them."""
    system = uk.System(uk.MassForce(jnp.eye(1), lambda t, x, v: -(30 - 40 * jnp.cos(2 * t)) * x))
    with pytest.warns(UserWarning, match="8 steps are too few for this .* differs by 0.0"):
        find(system, [0.0], [0.0], np.pi, steps=8)


@pytest.mark.parametrize("compiled", (pytest.param(False, marks=pytest.mark.slow), True))
def test_too_few_steps_for_a_chart_give_a_warning(compiled, monkeypatch):
    """Mathieu's equation in two blocks of points, the second of which is incomplete."""
    monkeypatch.setattr(stability, "BLOCK", 3)
    at = lambda a, q: uk.System(uk.MassForce(jnp.eye(1), lambda t, x, v: -(a - 2 * q * jnp.cos(2 * t)) * x))
    matrix = lambda a, q: uk.monodromy(at(a, q), jnp.zeros(1), jnp.zeros(1), np.pi, states=("q1", "dq1"), steps=8)
    matrix = jax.jit(matrix) if compiled else matrix
    with pytest.warns(UserWarning, match=r"too few for this chart: at \(2, 40\) the matrix"):
        chart = uk.stability_chart(matrix, [1.0, 2.0], [0.1, 40.0], multipliers=True)
    assert chart.stable.tolist() == [[False, True], [False, False]]


def mathieu(a, q):
    """x″ + (a − 2 q cos 2t) x = 0 as a pendulum of 1 m with a vertically moving pivot."""
    pivot = lambda t: q / 2 * jnp.cos(2 * t)
    rod = uk.Holonomic(lambda t, x: x[0] ** 2 + (x[1] - pivot(t)) ** 2 - 1, name="rod")
    weight = lambda t, x, v: jnp.stack([0.0 * x[0], -a + 0.0 * x[0]])
    system = uk.System(uk.MassForce(np.eye(2), weight), rod)
    start = jnp.stack([0.0, q / 2 - 1.0])
    return jnp.trace(uk.monodromy(system, start, jnp.zeros(2), np.pi, states=("q1", "dq1")))


@pytest.mark.slow
def test_multipliers_on_stability_boundaries_of_mathieu():
    """The multipliers are 1 on boundaries of even order, and −1 on those of odd order."""
    a, b = scipy.special.mathieu_a, scipy.special.mathieu_b
    boundaries = [(a(0, 1), 1.0, 2), (b(1, 1), 1.0, -2), (a(1, 1), 1.0, -2), (b(2, 1), 1.0, 2), (a(0, 5), 5.0, 2)]
    values, q, trace = jnp.array(boundaries).T
    h = 1e-4
    found, above, below = jax.jit(jax.vmap(mathieu))(
        jnp.concatenate([values, values + h, values - h]), jnp.tile(q, 3)
    ).reshape(3, -1)
    slope = (above - below) / (2 * h)
    assert np.all(np.abs((found - trace) / slope) < 1e-9)  # distance from the boundary, by a step of Newton's method


def test_forced_oscillator_response_and_multipliers_match_closed_form():
    """A damped oscillator with a periodic force. The multipliers are exp(λ T)."""
    system = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: jnp.cos(2 * t) - 0.2 * v - 3.0 * q))
    orbit = uk.periodic(system, [0.0], [0.0], np.pi)
    response = 1 / (3 - 4 + 0.4j)
    np.testing.assert_allclose([orbit.q[0], orbit.v[0]], [response.real, (2j * response).real], rtol=1e-11)
    roots = np.roots([1, 0.2, 3.0])
    np.testing.assert_allclose(np.sort_complex(orbit.multipliers), np.sort_complex(np.exp(roots * np.pi)), rtol=1e-10)


def test_orbit_that_advances_by_a_turn():
    """A spherical pendulum on a cone, ω² = g / cos θ; in rotating axes, deviations oscillate with sqrt(4 − 3 sin²θ)
    ω."""
    theta, gravity = 0.6, 9.81
    rate = np.sqrt(gravity / np.cos(theta))

    kinetic = lambda t, q, v: (v[1] ** 2 + (jnp.sin(q[1]) * v[0]) ** 2) / 2
    bob = uk.Lagrangian(kinetic, lambda t, q: -gravity * jnp.cos(q[1]))
    system = uk.System(bob, coordinates=(("turn", "rad"), ("tilt", "rad")))
    orbit = uk.periodic(
        system, [0.0, theta], [1.05 * rate, 0.0], 1.7, advance={"turn": 2 * np.pi}, hold=("turn", "tilt", "dtilt")
    )
    np.testing.assert_allclose(orbit.v, [rate, 0.0], atol=1e-9)
    np.testing.assert_allclose(orbit.period, 2 * np.pi / rate, rtol=1e-10)
    angle = 2 * np.pi * np.sqrt(4 - 3 * np.sin(theta) ** 2)
    np.testing.assert_allclose(np.trace(orbit.monodromy), 2 + 2 * np.cos(angle), rtol=1e-8)


@pytest.mark.slow
def test_orbit_of_a_body_whose_quaternion_changes_sign():
    """A free symmetric body: the multipliers of its steady spin are those of a uniform motion, all 1."""
    body = uk.Mechanism(
        {"top": uk.Body(1.0, inertia=(1.0, 1.0, 2.0))}, {"free": Spherical("ground", "top")}, gravity=(0, 0, 0)
    )
    orbit = uk.periodic(body, [1.0, 0, 0, 0], [0, 0, 1.0], 6.1, hold="free_wz")
    np.testing.assert_allclose(orbit.period, 2 * np.pi, rtol=1e-10)
    # The axis of a free body precesses with C/A ω = 2 ω, twice in a turn, so that Φ differs from 1 by the phase only.
    expected = np.eye(6)
    expected[2, 5] = 2 * np.pi
    np.testing.assert_allclose(orbit.monodromy, expected, atol=1e-9)


@pytest.mark.parametrize("fixed", (None, False))
def test_wrong_period_of_a_forced_motion_raises(fixed):
    system = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: jnp.cos(t) - 0.2 * v - q))
    with pytest.raises(uk.InputError, match="period must be that of the system"):
        uk.periodic(system, [0.0], [0.0], 5.0, fixed_period=fixed)


def test_search_without_a_periodic_motion_raises():
    with pytest.raises(uk.InputError, match="period must be closer to that of a periodic motion"):
        uk.periodic(VAN_DER_POL, [2.0], [0.0], 2.2)
    stiff = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: 10 * (1 - q**2) * v - q))
    with pytest.raises(uk.InputError, match="steps must give a finite motion"):
        uk.periodic(stiff, [2.0], [0.0], 19.0, steps=16)


@pytest.mark.slow
def test_multipliers_of_a_ball_on_a_vibrating_table():
    """One bounce in each period T of the table, at the phase where its speed is w: g T/2 − w = e (g T/2 + w).

    Deviations after an impact pass a flight of T and an impact, whose time they change. The multipliers have the
    product e².
    """
    g, e, omega, size = 9.81, 0.8, 2 * np.pi, 0.2
    period = 2 * np.pi / omega
    up = g * period / 2
    w = up * (1 - e) / (1 + e)
    phase = np.arccos(w / (size * omega))
    table = lambda t: size * jnp.sin(omega * t + phase)  # the impacts are at 0, T, ...
    ball = uk.System(uk.MassForce(np.eye(1), [-g]), uk.Unilateral(lambda t, q: q - table(t), restitution=e))
    t = period / 4  # the start is in flight
    q = float(table(0.0)) + up * t - g * t**2 / 2
    with compiling() as programs:
        orbit = uk.periodic(ball, [q + 0.01], [up - g * t - 0.02], period, t=t)
    # The check of the steps has the program of the search. The other one is that of 17 samples of the equations.
    assert programs.count("_solve_forward") == 1 and programs.count("_solve") == 1
    np.testing.assert_allclose([orbit.q[0], orbit.v[0]], [q, up - g * t], rtol=1e-9)
    flight = np.array([[1.0, period], [0.0, 1.0]])
    late = 1 / (up + w)  # an impact is later by δz/(speed relative to the table)
    pull = -size * omega**2 * np.sin(phase)  # acceleration of the table
    # After it: δz' = δz − late (v⁻ − v⁺) δz ..., v⁺ = (1 + e) w(t) − e v⁻(t), both at the moved time.
    impact = np.array([[1 - late * 2 * up, 0.0], [late * ((1 + e) * (pull + g)), -e]])
    expected = impact @ flight
    np.testing.assert_allclose(np.linalg.det(expected), e**2, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.det(orbit.monodromy), e**2, rtol=1e-8)
    np.testing.assert_allclose(np.trace(orbit.monodromy), np.trace(expected), rtol=1e-8)


GROUND = uk.Unilateral(lambda t, q: q[1:], friction=0.5, slip=lambda t, q, v: v[:1])
BLOCK = uk.System(uk.MassForce(np.eye(2), [0.1, -9.81]), GROUND)


@pytest.mark.parametrize(
    "height, slip, closed, sticking", ((0.0, 0.0, (0,), (0,)), (0.0, 1.0, (0,), ()), (0.5, 0.0, (), ()))
)
def test_contacts_at_the_start_are_those_of_the_motion(height, slip, closed, sticking):
    """They are found without compiling the motion."""
    q, v = np.array([0.0, height]), np.array([slip, 0.0])
    contacts = uk.simulate(BLOCK, q, v, [0.0, 1e-3], dt=1e-3).contacts
    assert contacts is not None
    assert (*np.flatnonzero(contacts.closed[0]),) == closed and (*np.flatnonzero(contacts.sticking[0]),) == sticking
    found = InContact.at((BLOCK, jnp.array(0.0), jnp.asarray(q), jnp.asarray(v), jnp.array(1e-3)))
    assert (found.closed, found.sticking) == (closed, sticking)


@pytest.mark.parametrize(
    ("call", "words"),
    (
        (lambda s: uk.periodic(s, [0.0, -1.0], [0.1, 0.0], -2.0), "period must be"),
        (lambda s: uk.periodic(s, [0.8, -0.6], [0.0, 0.0], 2.0, hold="z"), "hold names no coordinate or velocity 'z'"),
        (lambda s: uk.periodic(s, [0.8, -0.6], [0.0, 0.0], 2.0, advance={"z": 1.0}), "advance names no coordinate 'z'"),
        (lambda s: uk.periodic(s, [0.0, -1.0], [0.0, 0.0], 2.0), "ends in one"),
        (lambda s: uk.monodromy(s, [0.0, -1.1], [0.0, 0.0], 2.0), "on the constraints"),
    ),
)
def test_bad_input_raises(call, words):
    with pytest.raises(uk.InputError, match=words):
        call(PENDULUM)
