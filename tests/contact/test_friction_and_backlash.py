"""Static friction above sliding friction, and backlash of gears, against closed forms."""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportArgumentType=false

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.contacts import Contact, Plane, Sphere
from ukjax.joints import Gear, Revolute

G = 9.81


def test_period_of_stick_slip_on_a_belt_matches_closed_form():
    """m = k = 1 on a belt of speed V.

    The mass sticks until x = S. Then it slips about x = K as a sine until its speed is V again, at x = 2 K − S. With d
    = S − K, it slips for 2π − 2 atan(d/V) and sticks for 2 d/V.
    """
    V, K, S = 0.5, 1.0, 1.6
    belt = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -q), uk.Coulomb(lambda t, q, v: v - V, limit=K, static=S))
    slips = 2 * np.pi - 2 * np.arctan((S - K) / V)
    first, period = S / V, slips + 2 * (S - K) / V
    ts = [0, first - 1e-6, first + 1e-6, first + slips - 1e-6, first + slips + 1e-6, first + 10 * period]
    motion = uk.simulate(belt, [0.0], [V], ts, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(motion.contacts.sticking[:5, 0], [True, True, False, False, True])
    np.testing.assert_allclose(motion.q[[2, 4, 5], 0], [S, 2 * K - S, S], rtol=0, atol=1e-6)
    np.testing.assert_allclose(motion.q[-1, 0], S, rtol=0, atol=1e-10)
    np.testing.assert_allclose(motion.contact_force[[1, 2], 0], [S, K], rtol=0, atol=1e-6)
    coarse, fine = (
        uk.simulate(belt, [0.0], [V], [0, first + period], dt=dt, solver=uk.MoreauJean()).q[-1, 0] - S
        for dt in (1e-2, 1e-3)
    )
    assert abs(fine) < 3e-4 and abs(fine) < abs(coarse) / 5


@pytest.mark.slow
def test_block_on_an_incline_sticks_by_static_friction_and_slides_above_it():
    """The slope tan 0.3 = 0.31 is between the coefficients 0.2 and 0.4.

    A block thrown up sticks where it stops, a block at rest sticks, and a growing load releases it at 0.4.
    """

    # The third coordinate is constant: the rate at which the load grows.
    force = lambda t, q, v: jnp.array([G * jnp.sin(0.3) + q[2] * t, -G * jnp.cos(0.3), 0.0])
    incline = uk.Unilateral(lambda t, q: q[1], friction=0.2, static_friction=0.4, slip=lambda t, q, v: v[:1])
    block = uk.System(uk.MassForce(jnp.eye(3), force), incline)
    until = G * (0.4 * np.cos(0.3) - np.sin(0.3))
    starts = np.diag([0.0, 0.0, 1.0]), np.diag([-1.0, 0.0, 0.0])
    motion = uk.simulate(block, *starts, [0.0, 0.1, until - 1e-3, until + 1.0])
    turn = -0.5 / (G * (np.sin(0.3) + 0.2 * np.cos(0.3)))
    np.testing.assert_allclose(motion.q[:2, -1, 0], [turn, 0], rtol=1e-12)
    sticking = [[False, False, True, True], [True] * 4, [True, True, True, False]]
    np.testing.assert_array_equal(motion.contacts.sticking[..., 0], sticking)
    np.testing.assert_allclose(motion.contact_force[0, -1, 1], -G * np.sin(0.3), rtol=1e-12)
    slope = G * (np.sin(0.3) - 0.2 * np.cos(0.3)) + until
    np.testing.assert_allclose(motion.q[2, 2:, 0], [0, slope / 2 + 1 / 6], atol=1e-9)


@pytest.mark.slow
def test_static_friction_of_a_joint_and_of_a_contact():
    """With a load of 4.9 N m and friction of 4 to 6 N m, a rod at rest sticks; with an initial speed it turns."""
    rod = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0, 1 / 12, 1 / 12))
    hinge = Revolute("ground", "rod", axis="y", friction=4.0, static_friction=6.0, sticks=True)
    motion = uk.simulate(uk.Mechanism({"rod": rod}, {"hinge": hinge}), [[0.0], [0.0]], [[0.0], [1e-3]], [0.0, 1.0])
    angle = float(motion.q[1, -1, 0])
    np.testing.assert_allclose(motion.q[0, -1], 0, atol=1e-15)
    np.testing.assert_allclose(
        float(motion.v[1, -1, 0]) ** 2 / 6, 1e-6 / 6 + G / 2 * np.sin(angle) - 4 * angle, rtol=1e-6
    )
    contact = Contact(Sphere("box", radius=0.1), Plane(), friction=0.2, static_friction=0.4)
    (floor,) = uk.Mechanism({"box": uk.Body(1.0)}, contacts=[contact]).nonsmooth
    assert floor.has_static
    np.testing.assert_allclose([*floor.coefficients(1), *floor.static_coefficients(1)], [0.2, 0.4])


def test_impacts_of_gear_teeth_with_backlash_match_closed_form():
    """Inertias 1 and 2, ratio −2: the play r = qa + 2 qb has the inverse inertia 1 + 4/2.

    With e = 1/2, its rate is 1, −1/2, 1/4 between impacts, which are at 0.05 and 0.1/0.5 and 0.1/0.25 later.
    """

    def wheels(**play):
        bodies = {"a": uk.Body(1.0, inertia=(1, 1, 1)), "b": uk.Body(1.0, inertia=(1, 1, 2))}
        joints = {name: Revolute("ground", name[-1], axis="z") for name in ("ja", "jb")}
        return uk.Mechanism(bodies, joints | {"gear": Gear("ja", "jb", ratio=-2.0, **play)}, gravity=(0, 0, 0))

    loose = wheels(backlash=0.1, restitution=0.5)
    motion = uk.simulate(loose, [0.0, 0.0], [1.0, 0.0], [0.0, 0.1, 0.3])
    np.testing.assert_allclose(motion.contacts.impact_times[:2], [0.05, 0.25], rtol=1e-12)
    np.testing.assert_allclose(motion.v, [[1, 0], [0.5, -0.5], [0.75, -0.25]], rtol=1e-12)
    assert motion.rows["contact_force"] == ("gear low", "gear high")
    np.testing.assert_array_equal(motion.contact_force, 0)
    with pytest.raises(uk.InputError, match="inside of a contact: the gap of 'gear high' is -0.05"):
        uk.simulate(loose, [0.1, 0.0], [0.0, 0.0], [0.0, 1.0])


@pytest.mark.parametrize(
    ("make", "words"),
    (
        (lambda: Gear("a", "b", backlash=0.0), "backlash must be"),
        (lambda: Gear("a", "b", restitution=0.9), "restitution of a Gear needs backlash"),
        (lambda: Revolute("ground", "a", static_friction=1.0), "static_friction needs friction and sticks=True"),
        (lambda: uk.Coulomb(lambda t, q, v: v, 2.0, 1.0), "static must be at least limit"),
        (lambda: uk.Unilateral(lambda t, q: q, static_friction=1.0), "static_friction needs friction and slip"),
        (
            lambda: Contact(Sphere("a", radius=0.1), Plane(), friction=0.2, static_friction=0.1),
            "static_friction must be at least friction, got 0.1 with friction = 0.2",
        ),
    ),
)
def test_bad_input_raises(make, words):
    with pytest.raises(uk.InputError, match=words):
        make()
