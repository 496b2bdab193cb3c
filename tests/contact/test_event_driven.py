"""Event-driven contacts and dry friction, against closed forms."""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportArgumentType=false

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import ukjax as uk

G = 9.81


def clearance(t, q):
    return q[0] - 0.1


def ball(restitution):
    """A bouncing ball. Balls with any restitution share functions, and therefore compiled programs."""
    return uk.System(uk.MassForce(jnp.eye(1), jnp.array([-G])), uk.Unilateral(clearance, restitution, name="floor"))


def height(restitution, t, drop="0.9"):
    """Return the height of a ball dropped from 0.9 m above the floor, in closed form."""
    first = mpmath.sqrt(2 * mpmath.mpf(drop) / mpmath.mpf("9.81"))
    g = mpmath.mpf("9.81")
    if t < first:
        return mpmath.mpf("0.1") + mpmath.mpf(drop) - g * t**2 / 2
    at, speed = first, g * first * restitution
    while at + 2 * speed / g < t:
        at, speed = at + 2 * speed / g, speed * restitution
    return mpmath.mpf("0.1") + speed * (t - at) - g * (t - at) ** 2 / 2


def heights(restitution):
    return uk.simulate(ball(restitution), [1.0], [0.0], jnp.array([0.0, 1.0, 2.5])).q[1:, 0]


EXACT = [float(mpmath.diff(lambda e, t=t: height(e, t), mpmath.mpf("0.9"))) for t in (1, mpmath.mpf("2.5"))]


def test_impact_times_and_impulses_of_a_bouncing_ball_match_closed_form():
    motion = uk.simulate(ball(0.9), [1.0], [0.0], jnp.linspace(0, 10, 11))
    first = np.sqrt(1.8 / G)
    instants = first * (1 + 2 * np.cumsum(0.9 ** np.arange(1, 21)))
    np.testing.assert_allclose(motion.contacts.impact_times[:21], [first, *instants], rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.contacts.impulses[:3, 0], G * first * 1.9 * 0.9 ** np.arange(3), rtol=1e-12)
    accumulation = first * (1 + 2 * 0.9 / 0.1)
    assert abs(float(np.nanmax(motion.contacts.impact_times)) - accumulation) < 1e-9
    assert bool(motion.finished) and bool(motion.differentiable)
    assert motion.contacts.closed[-1, 0] and not motion.contacts.closed[8, 0]
    np.testing.assert_allclose(motion.q[-1], 0.1, atol=1e-14)
    np.testing.assert_allclose(motion.contact_force[:, 0], np.where(motion.t > accumulation, G, 0), atol=1e-12)
    assert motion.plan.integrator == "event_driven"


def test_forward_derivatives_contain_the_saltation_of_every_impact():
    slope = jax.jit(lambda e: jax.jvp(heights, (e,), (1.0,))[1])(0.9)
    np.testing.assert_allclose(slope, EXACT, rtol=1e-12)


@pytest.mark.slow
def test_reverse_derivatives_through_impacts_are_exact_in_batches():
    of_batch = jax.jit(jax.vmap(jax.jacrev(heights)))(jnp.array([0.5, 0.7, 0.9]))
    np.testing.assert_allclose(of_batch[2], EXACT, rtol=1e-12)
    for member, e in enumerate(("0.5", "0.7")):  # two impacts before 1 s, and one
        slope = mpmath.diff(lambda e: height(e, 1), mpmath.mpf(e))
        np.testing.assert_allclose(of_batch[member, 0], float(slope), rtol=1e-12)
    np.testing.assert_allclose(of_batch[:2, 1], 0, atol=1e-9)  # at rest


@pytest.mark.slow
def test_members_of_a_batch_have_separate_impact_times():
    """Balls dropped from three heights, of which one comes to rest."""
    drops, ts = np.array([[1.0], [0.3], [2.0]]), np.linspace(0, 2, 5)
    motion = uk.simulate(ball(0.8), drops, np.zeros((3, 1)), ts)
    np.testing.assert_allclose(motion.contacts.impact_times[:, 0], np.sqrt(2 * (drops[:, 0] - 0.1) / G), rtol=1e-13)
    rests = 9 * np.sqrt(2 * (drops - 0.1) / G) < ts  # the sum of all flights
    assert np.sum(rests) == 1
    np.testing.assert_array_equal(motion.contacts.closed[..., 0], rests)
    for i, drop in enumerate(("0.9", "0.2", "1.9")):
        exact = [
            0.1 if rest else float(height(mpmath.mpf("0.8"), t, drop)) for t, rest in zip(ts, rests[i], strict=True)
        ]
        np.testing.assert_allclose(motion[i].q[:, 0], exact, rtol=0, atol=1e-11)


def spring(t, q, v):
    return -q


def speed(t, q, v):
    return v[0]


def oscillator():
    return uk.System(uk.MassForce(jnp.eye(1), spring), uk.Coulomb(speed, 1.0))


def test_friction_oscillator_stops_at_the_closed_form_position():
    """m = k = 1, friction 1, from 12 at 6: the closed form is a chain of half cosines."""
    start = np.arctan2(6, 13) + 7 * np.pi
    ts = np.array([0.0, start - 1e-6, start + 1e-6, 30.0])
    motion = uk.simulate(oscillator(), [12.0], [6.0], ts, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(motion.q[2:, 0], 0.6821789367236466, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(motion.contacts.sticking[:, 0], [False, False, True, True])
    np.testing.assert_allclose(motion.contact_force[-1, 0], 0.6821789367236466, rtol=1e-11)


def above(t, q):
    return q[1]


def block(friction, angle):
    weight = 2 * G * jnp.array([jnp.sin(angle), -jnp.cos(angle)])
    incline = uk.Unilateral(above, friction=friction, slip=speed, name="incline")
    return uk.System(uk.MassForce(2 * jnp.eye(2), weight), incline)


def test_a_block_on_an_incline_sticks_slips_and_turns_back():
    starts = np.array([[1.0, 0.0], [-1.0, 0.0]])
    holds = uk.simulate(block(0.5, 0.3), np.zeros((2, 2)), starts, [0.0, 0.1, 2.0])
    down, up = (G * (np.sin(0.3) + sign * 0.5 * np.cos(0.3)) for sign in (-1, 1))
    np.testing.assert_allclose(holds.q[:, -1, 0], [0.5 / -down, -0.5 / up], rtol=1e-12)
    assert np.all(holds.contacts.sticking[:, -1]) and not np.any(holds.contacts.sticking[:, 1])
    np.testing.assert_allclose(holds.contact_force[:, -1], [2 * G * np.array([np.cos(0.3), -np.sin(0.3)])] * 2)
    slips = uk.simulate(block(0.2, 0.3), np.zeros((2, 2)), starts[[1, 1]], [0.0, 1.0, 2.0])[0]
    down, up = (G * (np.sin(0.3) + sign * 0.2 * np.cos(0.3)) for sign in (-1, 1))
    turn = 1 / up
    expected = [-0.5 / up + down * (t - turn) ** 2 / 2 for t in (1, 2)]
    np.testing.assert_allclose(slips.q[1:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(slips.q[:, 1], 0, atol=1e-14)


def test_a_puck_slides_along_a_line_and_stops():
    """In three dimensions the friction force is opposite to the velocity: the model is a cone, not a pyramid."""
    table = uk.Unilateral(lambda t, q: q[2], friction=0.3, slip=lambda t, q, v: v[None, :2])
    puck = uk.System(uk.MassForce(jnp.eye(3), lambda t, q, v: jnp.array([0, 0, -G])), table)
    motion = uk.simulate(puck, np.zeros(3), [1.0, 2.0, 0.0], [0.0, 0.5, 1.0])
    np.testing.assert_allclose(motion.q[-1], [*(5 / (0.6 * G) * np.array([1, 2]) / np.sqrt(5)), 0], atol=1e-12)
    np.testing.assert_allclose(motion.contact_force[1, 1:], -0.3 * G * np.array([1, 2]) / np.sqrt(5), rtol=1e-9)
    assert motion.contacts.sticking[-1, 0] and not motion.contacts.sticking[1, 0]


@pytest.mark.slow
def test_mass_on_a_rope_loses_radial_velocity_and_swings():
    """Dropped 0.6 m beside the pivot of a 1 m rope: the radial velocity becomes zero, then it is a pendulum."""
    rope = uk.Unilateral(lambda t, q: 1 - q @ q, name="rope")
    fall = uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: G * q[1])
    motion = uk.simulate(uk.System(fall, rope), [0.6, 0.0], [0.0, 0.0], jnp.linspace(0, 0.9, 10))
    np.testing.assert_allclose(motion.contacts.impact_times[0], np.sqrt(1.6 / G), rtol=1e-13)
    taut = motion.t > np.sqrt(1.6 / G)
    np.testing.assert_allclose(np.linalg.norm(motion.q[taut], axis=1), 1, atol=1e-14)
    lost = 1.6 * G / 2 * 0.8**2  # the radial direction is (0.6, −0.8)
    np.testing.assert_allclose(np.asarray(motion.energy), np.where(taut, -lost, 0), atol=1e-9)


def test_elastic_ball_between_walls_conserves_energy():
    walls = uk.Unilateral(lambda t, q: [q[0], 1 - q[0]], restitution=1.0)
    motion = uk.simulate(
        uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: 0 * v), walls), [0.3], [1.0], [0.0, 1e5], max_steps=10**6
    )
    assert int(motion.contacts.impacts) == 10**5 and int(motion.contacts.missing) == 10**5 - 256
    np.testing.assert_allclose(abs(motion.v[-1, 0]), 1, rtol=1e-10)


@pytest.mark.slow
def test_balls_in_contact_share_the_impact():
    """Newton's impact law for all contacts at once: Λ solves tridiag(−1, 2, −1) Λ = (2, 0, 0, 0) m v."""
    gaps = uk.Unilateral(lambda t, q: q[1:] - q[:-1] - 0.1, restitution=1.0)
    cradle = uk.System(uk.MassForce(jnp.eye(5), lambda t, q, v: 0 * v), gaps)
    motion = uk.simulate(cradle, [-1.0, 0.1, 0.2, 0.3, 0.4], [1.0, 0, 0, 0, 0], [0.0, 2.0])
    np.testing.assert_allclose(motion.v[-1], [-0.6, 0.4, 0.4, 0.4, 0.4], atol=1e-12)
    np.testing.assert_allclose(motion.contacts.impulses[0], np.array([4, 3, 2, 1]) * 0.4, atol=1e-12)
    apart = uk.simulate(cradle, [-1.0, 0.1, 0.3, 0.5, 0.7], [1.0, 0, 0, 0, 0], [0.0, 5.0])
    np.testing.assert_allclose(apart.v[-1], [0, 0, 0, 0, 1], atol=1e-12)  # separate impacts


@pytest.mark.slow
def test_redundant_constraint_rows_do_not_change_a_motion_with_impacts():
    """A bouncing ball on a line; the constraint of the line is written twice."""
    weight, ts = uk.MassForce(jnp.eye(3), lambda t, q, v: jnp.array([0.0, 0, -G])), np.linspace(0, 1.2, 4)
    floor = uk.Unilateral(lambda t, q: q[2] - 0.1, restitution=0.5)
    twice = uk.System(weight, [uk.Holonomic(lambda t, q: [q[0] - q[1], 2 * (q[0] - q[1])]), floor])
    motion = uk.simulate(twice, [0.0, 0, 1], [1.0, 1, 0], ts)
    exact = [[t, t, float(height(mpmath.mpf("0.5"), t))] for t in ts]
    np.testing.assert_allclose(motion.q, exact, rtol=0, atol=1e-12)
    assert int(motion.contacts.impacts) == 4


ROD = uk.MassForce(jnp.diag(jnp.array([1.0, 1.0, 1 / 3])), jnp.array([0, -G, 0]))


def tip_of_rod(q):
    return jnp.array([q[0] - jnp.cos(q[2]), q[1] - jnp.sin(q[2])])


def gap_of_rod(t, q):
    return tip_of_rod(q)[1]


def slip_of_rod(t, q, v):
    return jax.jvp(tip_of_rod, (q,), (v,))[1][:1]


@pytest.mark.slow
def test_painleve_rod_reports_no_consistent_force_or_several():
    """A slender rod of length 2 slides on a floor with its lower end, and turns at the rate ω.

    The gap satisfies g̈ = ω² sin θ − G + p λ/m with p = 1 + 3 cos θ (cos θ − μ sin θ). At tan θ = 2, p is negative for
    μ > (tan²θ + 4)/(3 tan θ) = 4/3. Then no λ ≥ 0 prevents penetration; and if ω² sin θ > G, both λ = 0 and a positive
    λ are possible.
    """
    angle = np.arctan(2.0)

    def reason(friction, turning):
        floor = uk.Unilateral(gap_of_rod, friction=friction, slip=slip_of_rod)
        v = np.array([-1.0 - np.sin(angle) * turning, np.cos(angle) * turning, turning])
        return uk.simulate(uk.System(ROD, floor), [0.0, np.sin(angle), angle], v, [0.0, 0.01], throw=False).reason

    assert reason(1.2, 0.0) == reason(1.2, 4.0) == "reached its last time"
    assert reason(1.5, 0.0) == "came to contacts and friction without consistent forces"
    assert reason(1.5, 4.0) == "came to contacts and friction with several consistent forces"
    with pytest.raises(uk.SimulationError, match="no forces of contacts and dry friction are consistent"):
        uk.simulate(
            uk.System(ROD, uk.Unilateral(gap_of_rod, friction=1.5, slip=slip_of_rod)),
            [0.0, np.sin(angle), angle],
            [-1.0, 0.0, 0.0],
            [0.0, 0.01],
        )


def mass_of_links(q):
    return jnp.array([[4 / 3, jnp.cos(q[0] - q[1]) / 2], [jnp.cos(q[0] - q[1]) / 2, 1 / 3]])


def gap_of_links(t, q):
    return np.cos(np.pi / 9) + np.cos(np.pi / 6) - jnp.cos(q[0]) - jnp.cos(q[1])


def slip_of_links(t, q, v):
    return (jnp.cos(q) @ v)[None]


LINKS = uk.Lagrangian(lambda t, q, v: v @ mass_of_links(q) @ v / 2, lambda t, q: 0 * q[0])


@pytest.mark.slow
def test_an_impact_that_would_increase_the_energy_ends_the_motion():
    """Kane's double pendulum, at 20° and 30° with −0.1 and −0.2 rad/s, hits a floor with its tip.

    Impulses of the laws of Newton and Coulomb, case by case, increase the energy for μ > 0.26 and e = 0.5.
    """
    q, v, e = np.array([np.pi / 9, np.pi / 6]), np.array([-0.1, -0.2]), 0.5
    M, J = np.asarray(mass_of_links(q)), np.array([np.sin(q), np.cos(q)])
    W, before = J @ np.linalg.solve(M, J.T), J @ v

    def change_of_energy(friction):
        sticks = np.linalg.solve(W, [-(1 + e) * before[0], -before[1]])
        cases = [sticks] if abs(sticks[1]) <= friction * sticks[0] else []
        for sign in (1, -1):  # the sign of the slip after the impact
            ray = np.array([1, -sign * friction])
            impulse = -(1 + e) * before[0] / (W[0] @ ray) * ray
            cases += [impulse] if sign * (before + W @ impulse)[1] > 0 else []
        (impulse,) = cases
        return impulse @ (before + W @ impulse / 2)

    for friction in (0.0, 0.1, 0.3, 0.5):
        floor = uk.Unilateral(gap_of_links, e, friction, slip_of_links)
        motion = uk.simulate(uk.System(LINKS, floor), q, v, [0.0, 1e-9], throw=False)
        gain = change_of_energy(friction)
        assert bool(motion.finished) == (gain <= 0)
        if gain <= 0:
            after = motion.v[-1] @ M @ motion.v[-1] / 2
            np.testing.assert_allclose(after - v @ M @ v / 2, gain, rtol=1e-6)
        else:
            assert motion.reason == "came to an impact whose laws increase the energy"
    with pytest.raises(uk.SimulationError, match="would increase the energy"):
        uk.simulate(uk.System(LINKS, floor), q, v, [0.0, 1e-9])


@pytest.mark.parametrize(
    ("make", "words"),
    (
        (lambda: uk.Unilateral(lambda t, q: q, restitution=1.5), "restitution must be"),
        (lambda: uk.Unilateral(lambda t, q: q, friction=-0.1, slip=lambda t, q, v: v), "friction must be"),
        (lambda: uk.Unilateral(lambda t, q: q, friction=0.1), "friction and slip belong together"),
        (lambda: uk.Coulomb(lambda t, q, v: v, -1.0), "limit must be"),
        (lambda: uk.simulate(ball(0.5), [0.05], [0.0], [0.0, 1.0]), "the gap of 'floor' is -0.05"),
        (lambda: uk.simulate(ball(0.5), [[1.0], [0.0]], [[0.0], [0.0]], [0.0, 1.0]), "trajectory 1 starts inside"),
        (lambda: uk.simulate(ball(0.5), [1.0], [0.0], [0.0, 1.0], progress=True), "progress is not avail"),
        (lambda: uk.simulate(ball(0.5), [1.0], [0.0], [0.0, 1.0], drift="none"), "drift must be 'projection'"),
        (lambda: uk.simulate(ball(0.5), [1.0], [0.0], [0.0, 1.0], solver=uk.MoreauJean()), "needs dt"),
        (lambda: uk.initial_state(ball(0.5), [0.05], [0.0]), "the gap of 'floor' is -0.05"),
        (lambda: uk.acceleration(ball(0.5), 0.0, [1.0], [0.0]), "acceleration is not available"),
        (lambda: uk.linearize(ball(0.5), [1.0]), "linearize is not available"),
        (lambda: uk.step(ball(0.5), uk.initial_state(ball(0.5), [1.0], [0.0]), 0.1), "give solver=ukjax.MoreauJean"),
    ),
)
def test_bad_input_raises(make, words):
    with pytest.raises(uk.InputError, match=words):
        make()


def test_contact_inside_one_long_step_is_detected():
    """In free flight a step is as long as the motion: a ball meets a peg of radius 0.1 m after 1 m."""
    peg = uk.Unilateral(lambda t, q: jnp.hypot(q[0] - 1, q[1]) - 0.1, restitution=1.0)
    flight = uk.System(uk.MassForce(jnp.eye(2), lambda t, q, v: 0 * v), peg)
    motion = uk.simulate(flight, [0.0, 0.0], [1.0, 0.0], [0.0, 100.0])
    np.testing.assert_allclose(motion.contacts.impact_times[0], 0.9, rtol=1e-12)
    np.testing.assert_allclose(motion.q[-1], [0.9 - 99.1, 0], atol=1e-9)


def test_body_in_contact_without_load_lifts_off_under_a_growing_force():
    pull = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: t[None]), uk.Unilateral(lambda t, q: q[0]))
    motion = uk.simulate(pull, [0.0], [0.0], [0.0, 1.0])
    np.testing.assert_allclose(motion.q[-1], 1 / 6, rtol=1e-9)


@pytest.mark.parametrize("load", (1 - 1e-9, 1 - 1e-12, 1.0))
def test_mass_sticks_at_loads_up_to_the_friction_limit(load):
    motion = uk.simulate(oscillator(), [load], [0.0], [0.0, 1.0])
    assert motion.finished and motion.contacts.sticking[-1, 0]
    np.testing.assert_array_equal(motion.q[-1], load)


def test_impacts_accumulate_at_late_times(start=1e9):
    """Bouncing ends when flights are shorter than the resolution of the time."""
    motion = uk.simulate(ball(0.5), [1.0], [0.0], start + np.linspace(0, 12, 11))
    assert motion.finished and motion.contacts.closed[-1, 0]
    np.testing.assert_allclose(motion.q[-1], 0.1, atol=1e-9)


@pytest.mark.slow
def test_load_that_varies_at_rest_gives_the_same_motion_as_small_fixed_steps():
    """Adaptive steps of a body at rest are long.

    A load 2 m g sin(20 t) lifts a body three times in a second. Friction of 1 N is exceeded by 1.5 sin(20 t) N at
    times.
    """
    ts = [0.0, 1.0]
    lifted = uk.System(
        uk.MassForce(jnp.eye(1), lambda t, q, v: G * (2 * jnp.sin(20 * t) - 1)[None]),
        uk.Unilateral(lambda t, q: q[0]),
    )
    held = uk.System(
        uk.MassForce(jnp.eye(1), lambda t, q, v: 1.5 * jnp.sin(20 * t)[None]), uk.Coulomb(lambda t, q, v: v[0], 1.0)
    )
    for system, changes in ((lifted, 7), (held, 13)):
        motion = uk.simulate(system, [0.0], [0.0], ts)
        fixed = uk.simulate(system, [0.0], [0.0], ts, dt=1e-3)
        np.testing.assert_allclose(motion.q, fixed.q, rtol=0, atol=1e-9)
        np.testing.assert_allclose(motion.v, fixed.v, rtol=0, atol=1e-9)
        np.testing.assert_allclose(motion.contacts.impact_times, fixed.contacts.impact_times, rtol=0, atol=1e-9)
        assert int(motion.contacts.changes) == int(fixed.contacts.changes) == changes


def test_start_inside_a_contact_fails_under_jit():
    final = jax.jit(lambda z: uk.simulate(ball(0.5), z, jnp.zeros(1), jnp.array([0.0, 1.0])).without_model())
    assert final(jnp.array([0.05])).reason == "left its constraints"
    assert final(jnp.array([0.5])).finished


def test_motion_with_a_grazing_contact_is_not_differentiable():
    """A ball is thrown at a ceiling at 1 m. Where it just reaches it, its height has an infinite slope by the speed.

    The eight speeds: the exact one, relative deviations of ±1e-10 and ±1e-6, an impact, no contact, and a rise of 5 mm
    above the ceiling, with an impact between two samples.
    """
    ceiling = uk.Unilateral(lambda t, q: 1 - q[0], restitution=0.5)
    throw = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: jnp.array([-G])), ceiling)
    speed = np.sqrt(2 * G) * np.array([1, 1 - 1e-10, 1 + 1e-10, 1 - 1e-6, 1 + 1e-6, 1.1, 0.9, np.sqrt(1.005)])
    motion = uk.simulate(throw, np.zeros((8, 1)), speed[:, None], [0.0, 0.3, 1.0])
    np.testing.assert_array_equal(motion.differentiable, [False] * 3 + [True] * 5)
    assert not motion[0].differentiable and motion[5].differentiable
    # Penetration of 2e-6 m for 1e-3 s, far less than a step, is also an impact.
    np.testing.assert_array_equal(motion.contacts.impacts, [0, 0, 1, 0, 1, 1, 0, 1])
    at_ceiling = np.sqrt(0.01 * G)
    since = 1.0 - (speed[-1] - at_ceiling) / G
    exact = 1 - 0.5 * at_ceiling * since - G * since**2 / 2
    np.testing.assert_allclose(motion.q[-1, -1], exact, rtol=1e-12)


def ahead(t, q):
    return q[1] - q[0]


def path(t, q):
    return q[0] - t**2 / 2


def pusher():
    """A mass that follows x = t²/2 by a servo motor of 1 N, and another of 2 kg in front of it."""
    servo = uk.control.Servo([[1.0], [0.0]], uk.Holonomic(path, name="path"))
    return uk.System(uk.MassForce(np.diag([1.0, 2.0]), np.zeros(2)), uk.Unilateral(ahead, name="ahead"), control=servo)


@pytest.mark.parametrize(
    ("distance", "how"),
    [(0.0, {}), (0.1, {}), (0.0, {"dt": 0.1}), (0.1, {"dt": 0.1, "solver": uk.MoreauJean()})],
    ids=["closed at the start", "hit later", "fixed steps", "Moreau-Jean"],
)
def test_contact_that_pushes_off_a_servo_task_ends_the_motion(distance, how):
    """The motor does not know the force of the contact, so that the masses are slower than the task."""
    motion = uk.simulate(pusher(), [0.0, distance], [0.0, 0.0], [0.0, 0.4, 1.0], throw=False, **how)
    assert motion.reason == "was pushed off the task of its control by contact forces"
    assert abs(float(motion.last[0]) - np.sqrt(2 * distance)) < 0.1
