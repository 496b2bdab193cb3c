"""Contact geometry: gaps and slips against closed forms and finite differences."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import ukjax as uk
from ukjax._constraint import AbstractNonsmooth
from ukjax.contacts import Box, Capsule, Contact, Cylinder, Plane, Point, Sphere
from ukjax.contacts.touching import OPPOSITE, across, nearest_points

GRAVITY = 9.81
T0 = jnp.zeros(())


@eqx.filter_jit
def gaps(constraint, q):
    return constraint.gaps(T0, q)


@eqx.filter_jit
def slip_matrix(constraint, q, n):
    """Derivative of the slips with respect to v (groups, 2, n)."""
    return jax.jacfwd(lambda v: constraint.slips(T0, q, v))(jnp.zeros(n))


def attitude(rng):
    u = rng.normal(size=4)
    return u / np.linalg.norm(u)


def floating(*contacts):
    """Two floating bodies that touch each other or the ground."""
    return uk.Mechanism({"a": uk.Body(1.0, inertia=(1, 1, 1)), "b": uk.Body(1.0, inertia=(1, 1, 1))}, contacts=contacts)


def pose(p, u=(1, 0, 0, 0)):
    return [*p, *u]


FAR = pose((9.0, 9.0, 9.0))


# --- gaps --------------------------------------------------------------------------------------------------------


def test_gaps_to_a_plane_match_closed_form():
    """The body is turned by 30° about y: points (x, 0, z) are at heights h − x sin 30° + z cos 30°."""
    s, c, h = 0.5, np.sqrt(3) / 2, 2.0
    u = (np.cos(np.pi / 12), 0, np.sin(np.pi / 12), 0)
    solids = {
        "point": (Point("a", at=(0.1, 0.2, 0.3)), [h - 0.1 * s + 0.3 * c]),
        "sphere": (Sphere("a", centre=(0.1, 0.2, 0.3), radius=0.05), [h - 0.1 * s + 0.3 * c - 0.05]),
        "capsule": (Capsule("a", ends=[(0, 0, -1), (0, 0, 1)], radius=0.1), [h - c - 0.1, h + c - 0.1]),
        "box": (
            Box("a", size=(0.2, 0.4, 0.6)),
            np.repeat([h + x * s + z * c for x in (-0.1, 0.1) for z in (-0.3, 0.3)], 2),
        ),
    }
    for name, (solid, wanted) in solids.items():
        (constraint,) = floating(Contact(solid, Plane())).nonsmooth
        found = gaps(constraint, jnp.array([*pose((5, 6, h), u), *FAR]))
        found, wanted = (np.sort(found), np.sort(wanted)) if name == "box" else (found, wanted)
        np.testing.assert_allclose(found, wanted, atol=1e-15, err_msg=name)


def test_gaps_of_a_standing_lying_and_tilted_cylinder():
    (constraint,) = floating(Contact(Cylinder("a", radius=0.1, length=0.6), Plane())).nonsmooth
    at = lambda angle: np.sort(
        gaps(constraint, jnp.array([*pose((0, 0, 1), (np.cos(angle / 2), np.sin(angle / 2), 0, 0)), *FAR]))
    )
    np.testing.assert_allclose(at(0)[:5], 0.7, atol=1e-15)  # it stands: the five points of its lower end
    np.testing.assert_allclose(at(np.pi / 2)[:2], 0.9, atol=1e-15)  # it lies: the lowest point of each end
    np.testing.assert_allclose(at(np.pi / 2)[2:4], 0.901, atol=1e-15)  # the fixed points are inside
    for angle in (1e-9, 0.3, 2.0):
        lowest = 1 - 0.3 * abs(np.cos(angle)) - 0.1 * abs(np.sin(angle))
        np.testing.assert_allclose(at(angle)[0], lowest, atol=1e-15)


def test_gaps_between_moving_bodies_match_closed_form(rng):
    """Gaps depend on the relative pose of the two bodies."""
    contacts = (
        Contact(Sphere("a", radius=0.1), Plane("b", at=(0, 0, 0.2), normal=(1, 2, 2))),
        Contact(Sphere("a", radius=0.1), Capsule("b", ends=[(0, 0, 0), (1, 0, 0)], radius=0.2), friction=0.1),
    )
    with_friction, without = floating(*contacts).nonsmooth
    assert (with_friction.name, without.name) == (("a on b",), ("a on b",))
    q = jnp.array([*pose((3, 4, 5)), *pose((2.5, 4, 4))])
    np.testing.assert_allclose(gaps(without, q), np.array([0.5, 0, 0.8]) @ [1, 2, 2] / 3 - 0.1, atol=1e-15)
    np.testing.assert_allclose(gaps(with_friction, q), 1 - 0.3, atol=1e-15)


@pytest.mark.parametrize("kind", ("crossing", "parallel", "collinear", "ends"))
def test_nearest_points_of_segments_match_bounded_least_squares(kind, rng):
    for _ in range(20):
        a, b = rng.normal(size=(2, 2, 3))
        if kind in ("parallel", "collinear"):
            b = a + rng.normal() * (a[1] - a[0]) + (rng.normal(size=3) if kind == "parallel" else 0)
        if kind == "ends":
            b = b + 10
        x, y = nearest_points(jnp.asarray(a), jnp.asarray(b))
        matrix = np.stack([a[1] - a[0], b[0] - b[1]], axis=1)
        found = scipy.optimize.lsq_linear(matrix, b[0] - a[0], bounds=(0, 1), tol=1e-15)
        np.testing.assert_allclose(np.linalg.norm(x - y), np.sqrt(2 * found.cost), atol=1e-7)


def test_parallel_capsules_touch_in_the_middle_of_their_common_part():
    a, b = jnp.array([[0.0, 0, 0], [4, 0, 0]]), jnp.array([[9.0, 0, 1], [2, 0, 1]])
    x, y = nearest_points(a, b)
    np.testing.assert_allclose([x, y], [(3, 0, 0), (3, 0, 1)], atol=1e-15)


# --- slips -------------------------------------------------------------------------------------------------------


def tree():
    """Two arms of two links on a turning base, and a plate that swings on the ground."""
    link = uk.Body(1.0, (0.2, 0.1, 0), (0.1, 0.2, 0.3))
    names = ("base", "left", "right", "hand", "plate")
    joints = {
        "turn": uk.joints.Revolute("ground", "base", axis="z"),
        "shoulder": uk.joints.Revolute("base", "left", at=(0.3, 0, 0.1), axis=(1, 2, 0)),
        "ball": uk.joints.Spherical("base", "right", at=(-0.3, 0.2, 0.1)),
        "wrist": uk.joints.Revolute("right", "hand", at=(0.2, 0.2, 0), axis=(0, 1, 1)),
        "swing": uk.joints.Revolute("ground", "plate", at=(0, 1, -1), axis="x"),
    }
    return {name: link for name in names}, joints


PAIRS = {
    "sphere and ground": (Sphere("hand", centre=(0.1, 0, 0), radius=0.2), Plane(normal=(1, 0.2, 3))),
    "box and plate": (Box("hand", size=(0.1, 0.2, 0.3), turn=(1, 2, 3)), Plane("plate", normal=(0, 1, 1))),
    "cylinder and plate": (Cylinder("left", axis=(1, 2, 3), radius=0.1, length=0.4), Plane("plate")),
    "sphere and sphere": (Sphere("hand", radius=0.1), Sphere("left", centre=(0.1, 0, 0), radius=0.2)),
    "capsule and sphere": (
        Capsule("left", ends=[(0, 0, 0), (0.4, 0, 0.1)], radius=0.05),
        Sphere("plate", radius=0.1),
    ),
    "capsule and capsule": (
        Capsule("left", ends=[(0, 0, 0), (0.4, 0, 0.1)], radius=0.05),
        Capsule("hand", ends=[(0, 0, 0), (0, 0.3, 0.1)], radius=0.1),
    ),
}


@pytest.fixture(scope="module")
def touching_tree():
    bodies, joints = tree()
    return uk.Mechanism(bodies, joints, contacts=[Contact(*pair, friction=0.5) for pair in PAIRS.values()])


def test_gap_rates_and_slips_match_finite_differences_of_poses(touching_tree, rng):
    """Bodies are moved by small displacements, with the material points at which the shapes touch."""
    mechanism, h = touching_tree, 1e-6
    (constraint,) = mechanism.nonsmooth
    q = jnp.asarray(rng.normal(size=mechanism.tree.nq) / 2)
    n = mechanism.tree.n
    contacts = mechanism.contacts
    S = np.asarray(slip_matrix(constraint, q, n))
    G = np.asarray(jax.jit(jax.jacfwd(lambda q: constraint.gaps(T0, q)))(q))
    ground = {"ground": jax.tree.map(np.asarray, uk.Pose(jnp.eye(3), jnp.zeros(3)))}
    rates = jax.jit(jax.vmap(lambda v: mechanism.kinematic_map(q, v)))(jnp.eye(n))
    places = jnp.concatenate([q[None], q + h * rates, q - h * rates])
    poses = jax.tree.map(np.asarray, jax.jit(jax.vmap(mechanism.pose))(places))
    at, *moved = (jax.tree.map(lambda x, i=i: x[i], poses) | ground for i in range(1 + 2 * n))

    def velocity(name, x, i):
        ahead, behind = (pose[name].p + pose[name].R @ x for pose in (moved[i], moved[n + i]))
        return (ahead - behind) / (2 * h)

    G = G @ np.asarray(rates).T
    local = lambda name, x: at[name].R.T @ (x - at[name].p)
    row = 0
    for contact in contacts:
        a, b = contact.a, contact.b
        R, p = at[b.body].R.T @ at[a.body].R, at[b.body].R.T @ (at[a.body].p - at[b.body].p)
        for k in range(contact.points):
            if isinstance(b, Plane):
                up = np.asarray(b.normal.vector())
                normal = at[b.body].R @ up
                x = at[b.body].p + at[b.body].R @ (p + R @ np.asarray(a.lowest(jnp.asarray(R.T @ up)))[k])
            else:
                x, y = map(np.asarray, nearest_points(jnp.asarray(p + np.asarray(a.core()) @ R.T), b.core()))
                normal = at[b.body].R @ (x - y) / np.linalg.norm(x - y)
                x = at[b.body].p + at[b.body].R @ y + np.asarray(b.radius) * normal
            relative = np.stack(
                [velocity(a.body, local(a.body, x), i) - velocity(b.body, local(b.body, x), i) for i in range(n)],
                axis=1,
            )
            np.testing.assert_allclose(G[row], normal @ relative, atol=1e-8)
            tangential = relative - np.outer(normal, normal @ relative)
            # The two directions are orthonormal, so products of slips equal products of tangential velocities.
            np.testing.assert_allclose(S[row].T @ S[row], tangential.T @ tangential, atol=1e-8)
            row += 1
    assert row == len(S) == sum(contact.points for contact in contacts)


@pytest.mark.slow
def test_rows_are_the_derivatives_of_gaps_and_slips(rng):
    """Rows by recursion over the tree, against automatic differentiation through the poses of the bodies."""
    pairs = PAIRS["box and plate"], PAIRS["capsule and sphere"]
    mechanism = uk.Mechanism(*tree(), contacts=[Contact(*pair, friction=0.5) for pair in pairs])
    (constraint,) = mechanism.nonsmooth
    q, v = jnp.asarray(rng.normal(size=mechanism.tree.nq) / 2), jnp.asarray(rng.normal(size=mechanism.tree.n))
    rows = jax.jit(lambda q, v: constraint.rows(T0, q, v, mechanism.kinematic_map))(q, v)
    wanted = jax.jit(lambda q, v: AbstractNonsmooth.rows(constraint, T0, q, v, mechanism.kinematic_map))(q, v)
    for found, derivative in zip(rows, wanted, strict=True):
        np.testing.assert_allclose(found, derivative, atol=1e-13)


def test_directions_of_slip_are_continuous_in_the_normal():
    angle = np.linspace(0, 2 * np.pi, 2001)
    zero = np.zeros_like(angle)
    c, s = np.cos(angle), np.sin(angle)
    for circle in ((c, s, zero), (c, zero, s), (zero, c, s)):
        normals = np.stack(circle, axis=1)
        frames = np.concatenate([normals[:, None], jax.vmap(across)(jnp.asarray(normals))], axis=1)
        np.testing.assert_allclose(
            frames @ frames.transpose(0, 2, 1), np.broadcast_to(np.eye(3), (2001, 3, 3)), atol=1e-14
        )
        np.testing.assert_allclose(np.linalg.det(frames), 1, atol=1e-13)
        assert np.abs(np.diff(frames, axis=0)).max() < 0.05
    np.testing.assert_allclose(np.linalg.norm(OPPOSITE), 1, atol=1e-15)


# --- motions -----------------------------------------------------------------------------------------------------


def along_incline(slope, **how):
    """Return a ball of radius 0.1 on an incline, in a vertical plane, and its start at rest."""
    normal = np.array([np.sin(slope), 0, np.cos(slope)])
    ball = uk.Mechanism(
        {"ball": uk.Body(2.0, inertia=[0.4 * 2.0 * 0.1**2] * 3)},
        {"plane": uk.joints.Planar("ground", "ball", axis="y")},  # coordinates: z, x and the angle
        contacts=[Contact(Sphere("ball", radius=0.1), Plane(normal=jnp.asarray(normal)), **how)],
    )
    return ball, jnp.array([0.1 * normal[2], 0.1 * normal[0], 0])


STEPS: Any = dict(solver=uk.MoreauJean(), dt=0.01)


def test_a_ball_rolls_down_an_incline_and_slips_on_a_steep_one():
    """It sticks if tan(slope) ≤ 7/2 μ, with the acceleration 5/7 g sin(slope), else g (sin(slope) − μ cos(slope))."""
    friction = 0.2
    for slope in (0.3, np.arctan(3.5 * friction) - 0.01, np.arctan(3.5 * friction) + 0.01, 1.0):
        ball, q0 = along_incline(slope, friction=friction)
        motion: Any = uk.simulate(ball, q0, jnp.zeros(3), [0.0, 0.5], **STEPS)
        sticks = np.tan(slope) < 3.5 * friction
        wanted = 5 / 7 * np.sin(slope) if sticks else np.sin(slope) - friction * np.cos(slope)
        along = np.array([-np.sin(slope), np.cos(slope)])
        np.testing.assert_allclose(motion.v[-1, :2] @ along, wanted * GRAVITY * 0.5, rtol=1e-10)
        np.testing.assert_allclose(motion.contact_force[-1, 0], 2 * GRAVITY * np.cos(slope), rtol=1e-9)
        assert bool(motion.contacts.sticking[-1, 0]) == sticks
        torque = min(2 / 7 * np.tan(slope), friction) * 2 * GRAVITY * np.cos(slope) * 0.1  # friction times radius
        np.testing.assert_allclose(motion.v[-1, 2], torque * 0.5 / (0.4 * 2 * 0.1**2), rtol=1e-9)


CRATE = uk.Body(3.0, inertia=[3.0 / 12 * (a**2 + b**2) for a, b in ((0.3, 0.2), (0.4, 0.2), (0.4, 0.3))])


@pytest.mark.slow
def test_box_on_three_feet_slides_and_stops():
    """In a vertical plane, three feet are redundant: single forces are not unique, but their sum is."""
    plane = {"plane": uk.joints.Planar("ground", "crate", axis="y")}  # coordinates: z, x and the angle
    feet = [Contact(Point("crate", at=(x, 0, -0.1)), Plane(), friction=0.4) for x in (-0.2, 0.1, 0.2)]
    box, v0 = uk.Mechanism({"crate": CRATE}, plane, contacts=feet), 1.2
    motion: Any = uk.simulate(box, [0.1, 0.0, 0.0], [0.0, v0, 0.0], [0.0, 0.1, 0.5, 1.0])
    np.testing.assert_allclose(motion.v[1], [0, v0 - 0.4 * GRAVITY * 0.1, 0], atol=1e-9)
    rest = [0.1, v0**2 / (2 * 0.4 * GRAVITY), 0]  # after v0 / (μ g)
    np.testing.assert_allclose(motion.q[2:], [rest, rest], atol=1e-9)
    np.testing.assert_allclose(motion.q[2], motion.q[3], atol=1e-12)
    np.testing.assert_allclose(motion.v[2:], 0, atol=1e-12)
    force = np.asarray(motion.contact_force[:, :3])
    np.testing.assert_allclose(force.sum(axis=1), 3 * GRAVITY, rtol=1e-9)
    assert np.all(motion.contacts.closed) and np.all(force >= 0)
    load = force[2]  # two feet suffice
    np.testing.assert_array_equal(motion.contacts.sticking[2], load > 1e-9)
    assert np.sum(load > 1e-9) >= 2


@pytest.mark.slow
def test_a_box_dropped_with_a_tilt_comes_to_rest():
    """Corners stay within the distance that gravity moves them in a step, and four of them carry the weight."""
    box = uk.Mechanism({"crate": CRATE}, contacts=[Contact(Box("crate", size=(0.4, 0.3, 0.2)), Plane(), friction=0.5)])
    assert len(box.nonsmooth[0].name) == 8 and box.nonsmooth[0].name[7] == "crate on ground[7]"
    tilted, v0 = jnp.array(pose((0, 0, 0.3), (0.99500, 0.07987, 0.05990, 0.0))), jnp.array([0.3, 0, 0, 0, 0, 0])
    dt = 1e-3
    motion: Any = uk.simulate(box, tilted, v0, [0.0, 1.5, 1.501], dt=dt, solver=uk.MoreauJean())
    np.testing.assert_allclose(motion.v[1:], 0, atol=1e-12)
    np.testing.assert_allclose(motion.q[1], motion.q[2], atol=1e-14)
    assert np.sum(motion.contacts.closed[2]) == 4
    force = motion.contact_force[2, :8]
    np.testing.assert_allclose(force.sum(), 3 * GRAVITY, rtol=1e-9)
    assert np.all(force >= 0)
    height = [each.gaps(jnp.array(1.5), motion.q[1]) for each in box.nonsmooth]
    lowest = np.sort(np.concatenate([np.atleast_1d(x) for x in height]))[:4]
    assert np.all(lowest > -1e-12) and np.all(lowest < GRAVITY * dt**2)


def test_rolling_cylinder_has_zero_gap_and_slip():
    """It touches at one point of each end. At all angles, both have zero gap and zero velocity."""
    contact = Contact(Cylinder("can", radius=0.1, length=0.4), Plane(), friction=0.6)
    can = uk.Mechanism({"can": uk.Body(1.0, inertia=(0.02, 0.02, 0.005))}, contacts=[contact])
    (constraint,), v = can.nonsmooth, jnp.array([0.5, 0, 0, 0, 5.0, 0])
    kinematic_map: Any = can.kinematic_map

    @jax.jit
    @jax.vmap
    def touching(angle):
        c, s = jnp.cos(angle / 2), jnp.sin(angle / 2)  # its axis is along −y
        q = jnp.array([0.1 * angle, 0, 0.1, *(np.sqrt(0.5) * jnp.array([c, c, s, -s]))])
        gaps, rates = jax.jvp(lambda q: constraint.gaps(T0, q), (q,), (kinematic_map(q, v),))
        return gaps, rates, jnp.linalg.norm(constraint.slips(T0, q, v), axis=1)

    found = np.stack(touching(jnp.linspace(0, 7, 20)), axis=2)
    found = np.take_along_axis(found, np.argsort(found[:, :, :1], axis=1), axis=1)
    np.testing.assert_allclose(found[:, :2], 0, atol=1e-14)
    assert np.all(found[:, 2:, 0] > 5e-4) and np.all(found[:, 2:, 2] > 1e-3)


# --- bad input ---------------------------------------------------------------------------------------------------


BAD = {
    "a radius": (lambda: Sphere("a", radius=0), r"radius must be one number \[m\] above 0 and finite, got 0"),
    "a body": (lambda: Point(3), "body must be the name of a body, or 'ground', got 3"),
    "ends": (lambda: Capsule("a", ends=(0, 0, 1), radius=1), r"ends must be two points .* got shape \(3,\)"),
    "equal ends": (lambda: Capsule("a", ends=np.ones((2, 3)), radius=1), "ends must be two different points"),
    "edges": (lambda: Box("a", size=(1, 2, 0)), "size must be numbers above 0"),
    "an axis": (lambda: Cylinder("a", axis="w", radius=1, length=1), "axis must be x, y, z"),
    "a normal": (lambda: Plane(normal=(0, 0, 0)), "normal must not be zero"),
    "no shape": (lambda: Contact("a", Plane()), "a must be a shape of ukjax.contacts, got str"),
    "the pair": (
        lambda: Contact(Box("a", size=(1, 1, 1)), Sphere("b", radius=1)),
        "a contact of Box and Sphere is not supported. Supported are Point, Sphere, Capsule, Box or Cylinder with Pl",
    ),
    "two planes": (lambda: Contact(Plane(), Plane("a")), "a contact of Plane and Plane is not supported"),
    "one body": (lambda: Contact(Sphere("a", radius=1), Plane("a")), "must be on two bodies, got 'a' twice"),
    "friction": (lambda: Contact(Point("a"), Plane(), friction=-1), "friction must be one number not below 0"),
    "restitution": (lambda: Contact(Point("a"), Plane(), restitution=1.1), "restitution must be .* not above 1"),
    "the name of a body": (
        lambda: floating(Contact(Point("aa"), Plane())),
        r"contacts\[0\] has a Point on 'aa', which is not a body; did you mean 'a'\?",
    ),
    "no contact": (lambda: floating(Point("a")), r"contacts\[0\] must be a ukjax.contacts.Contact, got Point"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_raises(what):
    make, message = BAD[what]
    with pytest.raises(uk.InputError, match=message):
        make()


def test_start_inside_a_contact_raises():
    ball, q0 = along_incline(0.0, friction=0.2)
    with pytest.raises(uk.InputError, match="the gap of 'ball on ground' is -0.02"):
        uk.simulate(ball, q0.at[0].add(-0.02), jnp.zeros(3), [0.0, 1.0], **STEPS)


def test_contact_radius_can_be_replaced_and_contacts_can_be_added():
    ball, q0 = along_incline(0.0, friction=0.2)
    (constraint,) = ball.nonsmooth
    other = eqx.tree_at(lambda ball: ball.contacts[0].a.radius, ball, jnp.asarray(0.07))
    np.testing.assert_allclose(gaps(other.nonsmooth[0], q0), 0.03, atol=1e-15)
    assert ball.with_contacts(Contact(Point("ball"), Plane(), name="centre")).nonsmooth[1].name == ("centre",)
    assert ball.driven(uk.control.Feedback(jnp.eye(3), lambda t, q, v: -v)).nonsmooth[0].name == constraint.name
