"""Reactions of joints: unique components against closed forms, others against the least-norm solution by NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.joints import Fixed, Gear, Prismatic, Revolute

MASS, CENTRE, HEIGHTS = 10.0, np.array([0.4, 0.05, 1.1]), (0.2, 1.8)
G = np.array([0.0, 0.0, -9.81])


def door(mass=MASS, **more):
    hinges = {f"hinge{i}": Revolute("ground", "door", at=(0, 0, z), to=(0, 0, z)) for i, z in enumerate(HEIGHTS)}
    return uk.Mechanism({"door": uk.Body(mass, CENTRE, (1.0, 1.5, 0.7))}, hinges, **more)


def vector(reactions):
    return np.concatenate([np.concatenate([x.force, x.moment]) for x in reactions.values()])


def flags(reactions):
    return np.concatenate([np.concatenate([x.force_is_unique, x.moment_is_unique]) for x in reactions.values()])


def skew(r):
    return np.cross(np.eye(3), r)


def of_door(mass, speed):
    """Return least-norm reactions of the door at angle 0 with this speed, and which of them are unique.

    The 12 unknowns satisfy 8 equations: those of Newton and Euler, and the zero moments about the hinge axis.
    """
    points = [np.array([0, 0, z]) for z in HEIGHTS]
    push = mass * (-(speed**2) * CENTRE * [1, 1, 0] - G)
    rows = np.zeros((8, 12))
    for i, point in enumerate(points):
        rows[:3, 6 * i : 6 * i + 3] = np.eye(3)
        rows[3:6, 6 * i : 6 * i + 3], rows[3:6, 6 * i + 3 : 6 * i + 6] = skew(point), np.eye(3)
        rows[6 + i, 6 * i + 5] = 1
    known = np.concatenate([push, np.cross(CENTRE, push), [0, 0]])
    all_points = np.array([CENTRE, *points])
    square = np.mean(np.sum((all_points - all_points.mean(0)) ** 2, axis=1))
    unit = np.tile([1, 1, 1, *[np.sqrt(square)] * 3], 2)
    U, s, Vh = np.linalg.svd(rows * unit)
    free = Vh[int(np.sum(s > 1e-12)) :]
    return unit * (np.linalg.pinv(rows * unit) @ known), np.all(np.abs(free) < 1e-9, axis=0)


def test_reactions_of_a_door_on_two_hinges():
    """In absolute coordinates, the weight is shared evenly, and sums satisfy Newton's equation.

    A test below has the door in joint coordinates, in other units.
    """
    expected, unique = of_door(MASS, 2.0)
    assert not np.all(unique) and np.any(unique)
    found = door().in_absolute().reactions(0.0, [0, 0, 0, 1.0, 0, 0, 0], [0, 0, 0, 0, 0, 2.0])
    np.testing.assert_allclose(vector(found), expected, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(flags(found), unique)
    np.testing.assert_allclose([x.force[2] for x in found.values()], [49.05, 49.05], atol=1e-9)
    assert "49.05*" in repr(found) and "not unique" in repr(found)
    total = sum(np.asarray(x.force) for x in found.values())
    np.testing.assert_allclose(total, MASS * (-4.0 * CENTRE * [1, 1, 0] - G), atol=1e-9)


@pytest.mark.slow
def test_derivatives_of_reactions_that_are_not_unique():
    """All reactions are linear in the mass and in the square of the speed."""

    def of(x):
        found = door(x[0]).reactions(0.0, jnp.zeros(1), x[1:])
        return jnp.concatenate([x for hinge in ("hinge0", "hinge1") for x in found[hinge][:2]])

    least = lambda mass, speed: of_door(mass, speed)[0]
    expected = np.stack([least(MASS, 2.0) / MASS, (least(MASS, 3.0) - least(MASS, 1.0)) / 2], axis=1)
    found = jax.jit(jax.jacrev(of))(jnp.array([MASS, 2.0]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


def four_bar(gear=False):
    rod = lambda length: uk.Body(1.0, (length / 2, 0, 0), (1e-3, 0.02, 0.02))
    joints = {
        "left": Revolute("ground", "crank"),
        "lower": Revolute("crank", "rod", at=(0.5, 0, 0)),
        "upper": Revolute("rod", "rocker", at=(1.0, 0, 0), to=(0.5, 0, 0)),
        "right": Revolute("ground", "rocker", at=(1.0, 0, 0)),
    }
    more = {"gear": Gear("right", "left")} if gear else {}
    bodies = {"crank": rod(0.5), "rod": rod(1.0), "rocker": rod(0.5)}
    return uk.Mechanism(bodies, {**joints, **more}, (0, -9.81, 0))


def test_in_plane_reactions_of_a_planar_four_bar_are_unique():
    """The in-plane forces of a parallelogram, by Newton's equations of its links; the mechanism has redundant rows."""
    mechanism = four_bar()
    q, v = np.array([1.2, -1.2, 1.2]), np.array([2.0, -2.0, 2.0])
    acceleration = np.asarray(uk.constrained_motion(mechanism(0.0, q, v)).acceleration)
    found = mechanism.reactions(0.0, q, v)
    for reaction in found.values():
        assert list(reaction.force_is_unique) == [True, True, False]
        assert list(reaction.moment_is_unique) == [False, False, True]
        np.testing.assert_allclose([reaction.force[2], *reaction.moment], 0, atol=1e-9)
    # The coupler moves on a circle without turning: forces at its ends and its weight equal mass times acceleration.
    along, across = np.array([np.cos(1.2), np.sin(1.2)]), np.array([-np.sin(1.2), np.cos(1.2)])
    of_rod = 0.5 * (acceleration[0] * across - 4.0 * along) + [0, 9.81]
    lower, upper = (np.asarray(found[name].force[:2]) for name in ("lower", "upper"))
    np.testing.assert_allclose(lower - upper, of_rod, atol=1e-9)
    # The moment about its centre is zero, so that the forces across it at both ends are equal.
    np.testing.assert_allclose(lower[1], -upper[1], atol=1e-9)


@pytest.mark.slow
def test_redundant_gear_in_a_loop_carries_a_share_of_the_moment():
    """Both cranks satisfy the equations of Newton and Euler with the moment of the gear, which is not unique."""
    found = four_bar(True).reactions(0.0, [1.2, -1.2, 1.2, 1.2], [2.0, -2.0, 2.0])
    assert not found["right"].moment_is_unique[2] and not found["left"].moment_is_unique[2]
    end = 0.5 * np.array([np.cos(1.2), np.sin(1.2), 0])
    alpha = -9.81 * np.cos(1.2) / (2 * (0.02 + 0.25**2) + 0.5**2)  # the cranks turn; the coupler moves with their ends
    acceleration = alpha * np.cross([0, 0, 1], end / 2) - 4.0 * end / 2
    for foot, far in (
        (found["left"], -np.asarray(found["lower"].force)),
        (found["right"], np.asarray(found["upper"].force)),
    ):
        np.testing.assert_allclose(foot.force + far, acceleration - G[[0, 2, 1]], rtol=0, atol=1e-9)
        moment = foot.moment + np.cross(end / 2, far - foot.force)
        np.testing.assert_allclose(moment, [0, 0, 0.02 * alpha], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["left"].moment, -np.asarray(found["right"].moment), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_reactions_of_a_determinate_mechanism_are_unique():
    """A post on the ground with a slide: reactions are those of statics with the damper's force."""
    bodies = {"post": uk.Body(2.0, (0.1, 0, 0.5)), "block": uk.Body(3.0, (0, 0, 0))}
    joints = {"foot": Fixed("ground", "post"), "slide": Prismatic("post", "block", at=(0, 0, 1), axis="x", damping=2.0)}
    mechanism = uk.Mechanism(bodies, joints)
    found = mechanism.reactions(0.0, [0.3], [1.5])
    assert np.all(flags(found)) and "unique" not in repr(found)
    np.testing.assert_allclose(found["slide"].force, [-3.0, 0, 3 * 9.81], atol=1e-9)
    np.testing.assert_allclose(found["foot"].force, [-3.0, 0, 5 * 9.81], atol=1e-9)
    np.testing.assert_allclose(found["foot"].moment, [0, -3.0 - 9.81 * (2 * 0.1 + 3 * 0.3), 0], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("unit", (1e3, 1e-3))
def test_uniqueness_does_not_depend_on_the_unit_of_length(unit):
    hinge = lambda z: Revolute("ground", "door", at=(0, 0, z * unit), to=(0, 0, z * unit))
    hinges = {f"hinge{i}": hinge(z) for i, z in enumerate(HEIGHTS)}
    small = uk.Mechanism({"door": uk.Body(MASS, CENTRE * unit, unit**2 * np.array([1.0, 1.5, 0.7]))}, hinges, G * unit)
    found = small.reactions(0.0, [0.0], [2.0])
    expected, unique = of_door(MASS, 2.0)
    scale = np.tile([unit] * 3 + [unit**2] * 3, 2)
    np.testing.assert_allclose(vector(found) / scale, expected, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(flags(found), unique)
