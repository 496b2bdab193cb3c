"""Stops at the limits of joints, and joint friction with sticking."""

# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportArgumentType=false

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.joints import Planar, Prismatic, Revolute


def rod(length, mass):
    return uk.Body(mass, centre=(length / 2, 0, 0), inertia=(0, mass * length**2 / 12, mass * length**2 / 12))


def two_links(**stops):
    return uk.Mechanism(
        {"upper": rod(1.0, 1.0), "lower": rod(1.0, 1.0)},
        {
            "shoulder": Revolute("ground", "upper", axis="y", limits=(-0.5, 0.5), **stops),
            "elbow": Revolute("upper", "lower", at=(1, 0, 0), axis="y", limits=(-1.0, 0.2), **stops),
        },
    )


def test_forces_of_links_at_rest_on_stops_match_statics():
    with pytest.warns(UserWarning, match="nothing stops it there"):
        uk.simulate(two_links(), [0.0, 0.0], [0.0, 0.0], [0.0, 0.5], dt=0.05)
    arm = two_links(restitution=0.3)
    motion = uk.simulate(arm, [0.0, 0.0], [0.0, 0.0], jnp.linspace(0, 3, 7))
    np.testing.assert_allclose(motion.q[-1], [0.5, 0.2], atol=1e-13)
    lower = 9.81 * 0.5 * np.cos(0.7)
    shoulder = 9.81 * (0.5 + 1.0) * np.cos(0.5) + lower
    np.testing.assert_allclose(motion.contact_force[-1], [shoulder, lower], rtol=1e-10)
    assert motion.rows["contact_force"] == ("shoulder", "elbow")
    same = uk.simulate(two_links().with_stops(0.3), [0.0, 0.0], [0.0, 0.0], jnp.linspace(0, 3, 7))
    np.testing.assert_array_equal(same.q, motion.q)


@pytest.mark.slow
def test_stop_of_a_joint_that_closes_a_loop():
    """A box falls along a vertical rail onto its stop and bounces.

    The rail closes a loop, and some of its rows are redundant. The stop pushes beside the centre of mass; the rail
    carries the moment.
    """
    joints = {
        "table": Planar("ground", "box", axis="y"),
        "rail": Prismatic("ground", "box", axis="z", limits=(-0.1, 0.5), restitution=0.5),
    }
    box = uk.Mechanism({"box": uk.Body(2.0, (0, 0.1, 0.2), (0.3, 0.2, 0.1))}, joints)
    q = box.reference_pose()[0]
    motion = uk.simulate(box, q, np.zeros(box.tree.n), [0.0, 0.32])
    first = np.sqrt(2 * 0.1 / 9.81)  # 0.1 m down, and half of the speed afterwards
    speed = 9.81 * first / 2
    second = first + 2 * speed / 9.81
    np.testing.assert_allclose(motion.contacts.impact_times[:3], [first, second, np.nan], rtol=1e-11)
    s = 0.32 - second
    expected = -0.1 + speed / 2 * s - 9.81 * s**2 / 2
    pose = box.pose(motion.q[-1])["box"]
    np.testing.assert_allclose(pose.p, [0, 0, expected], rtol=0, atol=1e-11)
    np.testing.assert_allclose(pose.R, np.eye(3), rtol=0, atol=1e-12)


def wheel_in_absolute_coordinates(low, high):
    hinge = Revolute("ground", "wheel", limits=(low, high), restitution=0.5)
    return uk.Mechanism({"wheel": uk.Body(1.0, inertia=(0.1, 0.1, 0.2))}, {"hinge": hinge}, (0, 0, 0)).in_absolute()


@pytest.mark.parametrize(("high", "angle"), ((3.5, 3.2), (np.pi, 3.1), (np.pi, 3.2), (9.0, 8.0)))
def test_distance_to_a_stop_beyond_half_a_turn_in_absolute_coordinates(high, angle):
    (stops,) = wheel_in_absolute_coordinates(0.0, high).nonsmooth
    q = jnp.array([0, 0, 0, np.cos(angle / 2), 0, 0, np.sin(angle / 2), angle])
    np.testing.assert_allclose(stops.gaps(jnp.zeros(()), q), [min(angle, high - angle)], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_wheel_rebounds_from_a_stop_at_half_a_turn_in_absolute_coordinates():
    """At 1 rad/s from 3 rad onto the stop at π, and back at half of the speed."""
    wheel = wheel_in_absolute_coordinates(-np.pi, np.pi)
    q, v = wheel.start({"hinge": 3.0}, {"hinge": 1.0})
    motion = uk.simulate(wheel, q, v, [0.0, 0.1, 1.0], dt=0.1)
    found = [wheel.joint_coordinates(q)["hinge"][0] for q in motion.q]
    np.testing.assert_allclose(found, [3.0, 3.1, np.pi - 0.5 * (4 - np.pi)], rtol=0, atol=1e-11)
    np.testing.assert_allclose(motion.contacts.impact_times[0], np.pi - 3, rtol=0, atol=1e-12)


def test_rod_stops_by_joint_friction_and_sticks():
    """A rod with joint friction of 6 N m turns until friction has used its energy, then sticks."""
    pendulum = uk.Mechanism(
        {"rod": rod(1.0, 1.0)}, {"hinge": Revolute("ground", "rod", axis="y", friction=6.0, sticks=True)}
    )
    motion = uk.simulate(pendulum, [0.0], [3.0], jnp.linspace(0, 3, 4))
    angle = float(motion.q[-1, 0])
    # I ω²/2 + m g l/2 sin θ = 6 θ
    np.testing.assert_allclose(9 / 6 + 9.81 / 2 * np.sin(angle), 6 * angle, rtol=1e-9)
    np.testing.assert_allclose(motion.q[3], motion.q[2], rtol=1e-14)
    np.testing.assert_allclose(motion.contact_force[-1], -9.81 / 2 * np.cos(angle), rtol=1e-10)
    with pytest.raises(uk.InputError, match="Mechanism.reactions is not available"):
        pendulum.reactions(0.0, motion.q[-1], motion.v[-1])
