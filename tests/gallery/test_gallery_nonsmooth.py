"""Systems of the gallery with contacts and dry friction, against closed forms and published numbers."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

from ..helpers import central_difference

SAMPLES = 121
NAMES = (
    *("bouncing_ball", "friction_oscillator", "slack_rope", "rimless_wheel", "simplest_walker", "woodpecker"),
    "clearance_slider_crank",
)


def _motion(name):
    """Return the motion over the time span of the source."""
    system = uk.systems.named(name)
    return uk.simulate(system, *system.start(), np.linspace(0, system.end, SAMPLES), rtol=1e-10, atol=1e-10)


@pytest.fixture(scope="module")
def motions():
    """Return a function of motions by name; each is simulated on first access."""
    found = {}
    return lambda name: found[name] if name in found else found.setdefault(name, _motion(name))


def impacts(motion):
    times = np.asarray(motion.contacts.impact_times)
    return times[np.isfinite(times)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_forces_satisfy_the_laws_of_contact_and_friction(motions, name, check_run):
    """M q̈ = Q + Jᵀ λ, 0 ≤ g ⊥ λ ≥ 0, and |λ_t| ≤ μ λ or the limit, by functions of the system. Also ``ukjax run``."""
    motion = motions(name)
    check_run(name, SAMPLES)
    (law,) = motion.model.nonsmooth

    @jax.jit
    @jax.vmap
    def at(t, q, v):
        terms = motion.model(t, q, v)
        gap, slip = law.gaps(t, q), law.slips(t, q, v)[:, 0]
        J = jnp.concatenate([jax.jacfwd(law.gaps, 1)(t, q), jax.jacfwd(law.slips, 2)(t, q, v)[:, 0]])
        bound = law.limits(t, q, v, slip.size), law.coefficients(slip.size)
        return terms.M, terms.Q, gap, slip, J, *bound

    M, Q, gap, slip, J, limit, friction = (np.asarray(x) for x in at(motion.t, motion.q, motion.v))
    force = np.asarray(motion.contact_force)
    found = np.einsum("sij,sj->si", M, motion.acceleration)
    size = 1e-9 * (1 + np.abs(Q).max() + np.abs(force).max() * np.abs(J).max())
    np.testing.assert_allclose(found, Q + np.einsum("sr,sri->si", force, J), rtol=0, atol=size)
    normal, tangential = force[:, : gap.shape[1]], force[:, gap.shape[1] :]
    largest = np.abs(force).max()
    assert gap.min(initial=0) > -1e-12 and normal.min(initial=0) >= -1e-10 * largest
    assert np.all((gap < 1e-12) | (normal == 0))
    if tangential.size:
        allowed = limit + (friction * normal if normal.size else 0)
        assert np.all(np.abs(tangential) <= allowed * (1 + 1e-9) + 1e-12 * largest)
        slides = np.abs(slip) > 1e-6 * (1e-12 + np.abs(slip).max())
        np.testing.assert_allclose(
            np.where(slides, tangential, 0), np.where(slides, -allowed * np.sign(slip), 0), atol=1e-8 * largest
        )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "error"), (("bouncing_ball", 1e-12), ("friction_oscillator", 1e-8)))
def test_motions_match_closed_forms(motions, name, error):
    motion = motions(name)
    exact = jax.vmap(motion.model.reference)(motion.t)
    np.testing.assert_allclose(motion.q, exact, rtol=0, atol=error)


@pytest.mark.slow
def test_slack_interval_of_the_rope_matches_closed_form(motions):
    """The rope is slack from the angle β with the upward vertical, cos β = 1/2, for 4 √(l cos β/g) sin β."""
    motion, g = motions("slack_rope"), 9.81
    speed = lambda a: mpmath.sqrt(3.5 * g - 2 * g * (1 - mpmath.cos(a)))  # a: from the downward vertical
    slack = float(mpmath.quad(lambda a: 1 / speed(a), [0, 2 * mpmath.pi / 3]))
    taut = slack + 4 * np.sqrt(0.5 / g) * np.sin(np.pi / 3)
    np.testing.assert_allclose(impacts(motion), [taut], rtol=0, atol=1e-9)
    t, q = np.asarray(motion.t), np.asarray(motion.q)
    loose = (t > slack) & (t < taut)
    np.testing.assert_array_equal(np.asarray(motion.contacts.closed[:, 0]), ~loose)
    np.testing.assert_allclose(np.linalg.norm(q[~loose], axis=1), 1, atol=1e-12)
    before = g * 0.5 / 2 + g * 0.5  # energy
    since = taut - slack
    at = np.array([np.sin(np.pi / 3) - np.sqrt(g / 2) * 0.5 * since, 0.5 + np.sqrt(g / 2) * np.sin(np.pi / 3) * since])
    at[1] -= g * since**2 / 2
    velocity = np.sqrt(g / 2) * np.array([-0.5, np.sin(np.pi / 3)]) - np.array([0, g * since])
    after = before - (velocity @ at) ** 2 / 2
    np.testing.assert_allclose(motion.energy, np.where(t < taut, before, after), rtol=0, atol=1e-8)


@pytest.mark.slow
def test_speed_of_the_rimless_wheel_matches_closed_form(motions):
    """The squared speed after impact k is s + (ω₀² − s) η²ᵏ, where s is that of the steady speed: McGeer (1990)."""
    motion = motions("rimless_wheel")
    wheel = motion.model
    inertia, half, g = float(wheel.inertia) + 1, np.pi / 8, 9.81
    eta = (inertia - 1 + np.cos(2 * half)) / inertia
    gain = 2 * g * (np.cos(wheel.slope - half) - np.cos(wheel.slope + half)) / inertia
    steady = eta**2 * gain / (1 - eta**2)
    times, t = impacts(motion), np.asarray(motion.t)
    q, v = np.asarray(motion.q), np.asarray(motion.v)
    closed = np.asarray(motion.contacts.closed)
    step = np.searchsorted(times, t)
    is_inside = (np.abs(times[:, None] - t).min(axis=0) > 1e-9) & (closed.sum(axis=1) == 1)
    angle = np.asarray(jax.vmap(wheel.spokes)(motion.q))[closed & is_inside[:, None]]
    speed = v[is_inside, 2] ** 2 + 2 * g / inertia * (np.cos(angle + wheel.slope) - np.cos(half - wheel.slope))
    expected = steady + (1.6**2 - steady) * eta ** (2 * step[is_inside])
    assert step.max() >= 6
    np.testing.assert_allclose(speed, expected, rtol=0, atol=1e-8)
    assert np.diff(q[:, 0]).min() > 0


@pytest.mark.slow
def test_limit_cycle_of_the_woodpecker(motions):
    """Period 0.146 s and drop 19.5 mm, by time stepping with 20 µs in another program.

    In a period the upper edge jams, the beak hits, the upper edge jams again, and then the lower edge, twice.
    """
    motion = motions("woodpecker")
    times = impacts(motion)
    order = np.asarray(motion.contacts.impulses)[: times.size, :3].argmax(axis=1)
    np.testing.assert_array_equal(order, [2, 0, 2, 1, 1] * 4)
    beak = times[order == 0]
    np.testing.assert_allclose(np.diff(beak)[-1], 0.146, atol=5e-4)
    height = np.interp(beak[-2:], motion.t, motion.q[:, 0])
    np.testing.assert_allclose(-np.diff(height), 0.0195, atol=3e-4)


def slider_crank_by_scipy(ts):
    """Return the angles of crank and rod of the slider-crank with clearance, by SciPy, in two coordinates.

    The slider does not turn: both corners of a side touch together. Flight, impact, and sliding at y = ±c alternate.
    """
    l1, l2, c, e, mu, g = 0.153, 0.306, 0.001, 0.4, 0.01, 9.81
    m1, m2, m3, J1, J2 = 0.038, 0.038, 0.076, 7.4e-5, 5.9e-4
    k = (m2 / 2 + m3) * l1 * l2

    def at(z):
        (a, b), w = z[:2], z[2:]
        M = np.array([[J1 + (m1 / 4 + m2 + m3) * l1**2, k * np.cos(a - b)], [0, J2 + (m2 / 4 + m3) * l2**2]])
        M[1, 0] = M[0, 1]
        weight = g * np.array([(m1 / 2 + m2 + m3) * l1 * np.cos(a), (m2 / 2 + m3) * l2 * np.cos(b)])
        F = k * np.sin(a - b) * np.array([-(w[1] ** 2), w[0] ** 2]) - weight
        X, Y = -np.array([l1 * np.sin(a), l2 * np.sin(b)]), np.array([l1 * np.cos(a), l2 * np.cos(b)])
        bias = -np.array([l1 * np.sin(a), l2 * np.sin(b)]) @ w**2
        return M, F, X, Y, bias, l1 * np.sin(a) + l2 * np.sin(b)

    def press(z, side, slip):
        """Return acceleration and force for y constant at side c, with friction against the direction ``slip``."""
        M, F, X, Y, bias, _ = at(z)
        ray = np.linalg.solve(M, -side * Y - mu * slip * X)
        free = np.linalg.solve(M, F)
        force = -(Y @ free + bias) / (Y @ ray)
        return free + force * ray, force

    def sliding(side, slip):
        events = lambda t, z: press(z, side, slip)[1], lambda t, z: at(z)[2] @ z[2:] * slip
        return lambda t, z: [*z[2:], *press(z, side, slip)[0]], events

    def flying():
        events = lambda t, z: c - at(z)[5], lambda t, z: c + at(z)[5]
        return lambda t, z: [*z[2:], *np.linalg.solve(*at(z)[:2])], events

    t, z, side, slip, out, longest = 0.0, np.array([0, 0, 150.0, -75.0]), 0, 0.0, [], 1e-3
    options: dict[str, Any] = dict(method="DOP853", rtol=1e-11, atol=1e-13)
    for _ in range(2000):
        rates, events = sliding(side, slip) if side else flying()
        for event in events:
            event.terminal, event.direction = True, -1
        found = solve_ivp(rates, (t, ts[-1]), z, events=events, dense_output=True, max_step=longest, **options)
        out += [found.sol(x)[:2] for x in ts if t < x <= found.t[-1]]
        t, z = found.t[-1], found.y[:, -1]
        if found.status == 0:
            return np.array(out)
        longest = 1e-3
        if side:
            side, slip = (side, -slip) if found.t_events[1].size else (0, slip)
            continue
        M, F, X, Y, bias, y = at(z)
        side, slip = int(np.sign(y)), float(np.sign(X @ z[2:]))
        speed = Y @ z[2:]
        rests = abs(speed) < 1e-6
        ray = np.linalg.solve(M, -side * Y - mu * slip * X)
        z = np.array([*z[:2], *(z[2:] - (1 + e * (not rests)) * speed / (Y @ ray) * ray)])
        side = side if rests and press(z, side, slip)[1] > 0 else 0
        # A flight is limited to a few steps, so that its end is detected.
        longest = min(1e-3, abs(Y @ z[2:] / (Y @ np.linalg.solve(M, F) + bias)) / 2) if not side else 1e-3
    raise AssertionError("too many impacts")


@pytest.mark.slow
def test_slider_crank_with_clearance_matches_scipy(motions):
    """The published value, 3.054328 revolutions after 0.2 s (1.486722 after 0.0998 s), is not used.

    With it, energy grows from 7.496 to 8.593 J, although gravity, impacts and friction cannot increase it.
    """
    motion = motions("clearance_slider_crank")
    other = slider_crank_by_scipy(np.asarray(motion.t[1:]))
    np.testing.assert_allclose(motion.q[1:, :2], other, atol=1e-6)
    np.testing.assert_allclose(motion.q[:, 2], 0, atol=1e-9)
    np.testing.assert_allclose(motion.q[-1, 0] / (2 * np.pi), 2.878107, atol=1e-6)
    assert np.all(np.diff(motion.energy) < 1e-9)


THETA, PERIOD = 0.20031090049483, 3.882463752851
LIGHT = 2e-5  # feet have no mass in the paper, and 1e-6 of the mass here
MID_STANCE = (0.01860823, -0.13390473, 0.06485986, -0.24935197, 3.8825)


def garcia_step(x):
    """Return (θ, θ̇) after heel strike from those after the one before, by the equations of the paper, without feet."""

    def rates(t, y):
        theta, phi, theta_dot, phi_dot = y
        fall = np.sin(theta - 0.009)
        return theta_dot, phi_dot, fall, fall + (theta_dot**2 - np.cos(theta - 0.009)) * np.sin(phi)

    def strike(t, y):
        return y[1] - 2 * y[0]

    strike.terminal = True
    accuracy: dict[str, Any] = dict(method="DOP853", rtol=1e-13, atol=1e-14)
    start = x[0], 2 * x[0], x[1], x[1] * (1 - np.cos(2 * x[0]))
    swing = solve_ivp(rates, (0, 3), start, **accuracy)
    end = solve_ivp(rates, (3, 6), swing.y[:, -1], events=strike, **accuracy).y_events[0][0]
    return np.array([-end[0], np.cos(2 * end[0]) * end[2]])


@pytest.mark.slow
def test_gait_of_the_simplest_walker_matches_published_values(motions):
    """Step length 2 sin θ and period 3.882 of the stable gait for a slope of 0.009."""
    motion = motions("simplest_walker")
    times = impacts(motion)
    assert times.size == 5
    np.testing.assert_allclose(np.diff(times), PERIOD, atol=5 * LIGHT)
    feet = np.asarray(jax.vmap(motion.model.feet)(motion.q))
    closed = np.asarray(motion.contacts.closed)
    assert np.all(closed.sum(axis=1)[1:] == 1)
    standing = feet[closed]
    steps = np.diff([np.mean(standing[np.abs(standing[:, 0] - 2 * k * np.sin(THETA)) < 1e-3, 0]) for k in range(6)])
    np.testing.assert_allclose(steps, 2 * np.sin(THETA), atol=LIGHT)
    np.testing.assert_allclose(standing[:, 1], 0, atol=1e-12)


@pytest.mark.slow
def test_multipliers_of_the_simplest_walker_match_the_paper(motions):
    """Newton's method on the map of one period, from mid-stance to mid-stance, gives the gait and its multipliers.

    The map takes angles and rates of the stance and swing leg, and exchanges the legs. It has the multipliers of the
    paper, 1 along the motion, and 0, because two numbers determine the state after heel strike. Derivatives are
    differences: all motions have the number of samples of the source, and therefore share its program.
    """
    walker = motions("simplest_walker").model

    def step(z):
        angle, swing, rate, swing_rate, period = z
        x, y = np.sin(angle), np.cos(angle)
        q, v = np.stack([x, y, angle, swing]), np.stack([y * rate, -x * rate, rate, swing_rate])
        motion = uk.simulate(walker, q, v, np.linspace(0, period, SAMPLES), rtol=1e-10, atol=1e-10)
        return np.concatenate([motion.q[-1, :1:-1], motion.v[-1, :1:-1]])

    z = np.array(MID_STANCE)
    for _ in range(3):
        jacobian = central_difference(step, z, 1e-4)
        residual = np.append(step(z) - z[:4], 0.0)
        z = z - np.linalg.solve(np.vstack([jacobian - np.eye(4, 5), np.eye(1, 5)]), residual)
    assert np.abs(residual).max() < 1e-8
    np.testing.assert_allclose(z[4], PERIOD, atol=LIGHT)
    fixed = np.array([THETA, -0.19983247291764])
    np.testing.assert_allclose(garcia_step(fixed), fixed, atol=1e-11)
    differences = central_difference(garcia_step, fixed, 1e-5)
    expected = [0.0, 1.0, *np.linalg.eigvals(differences)]
    found = np.linalg.eigvals(np.asarray(jacobian[:, :4]))
    for value in expected:
        assert np.abs(found - value).min() < LIGHT
