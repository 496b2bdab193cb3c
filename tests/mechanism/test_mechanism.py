"""Mechanisms of bodies and joints, against systems of point masses, closed forms and systems of the gallery."""

import copy
import pickle
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax import joints as kinds
from ukjax._flatten import FlattenedOnce, flat_of
from ukjax._parameters import find
from ukjax._rotation import of_quaternion as rotation
from ukjax._rotation import quaternion_of, quaternion_of_angles
from ukjax.joints import (
    Cam,
    Cylindrical,
    Distance,
    Drive,
    Fixed,
    Free,
    Gear,
    KnifeEdge,
    Planar,
    PointOnLine,
    PointOnSurface,
    Prismatic,
    Revolute,
    Rolling,
    Screw,
    Spherical,
    Strut,
    Universal,
)

from ..mechanisms import in_velocities


def rod(length, mass=1.0):
    """A thin rod along x from its frame's origin."""
    return uk.Body(mass, (length / 2, 0, 0), (1e-5, mass * length**2 / 12, mass * length**2 / 12))


def slider_crank(**more):
    bodies = {"crank": rod(0.1), "rod": rod(0.3), "slider": uk.Body(0.5)}
    joints = {
        "motor": Revolute("ground", "crank"),
        "pin": Revolute("crank", "rod", at=(0.1, 0, 0)),
        "wrist": Revolute("rod", "slider", at=(0.3, 0, 0)),
        "guide": Prismatic("ground", "slider", axis="x"),
    }
    return uk.Mechanism(bodies, joints, gravity=(0, -9.81, 0), **more)


CHAIN: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("a", Free, {}),
    ("b", Revolute, {"axis": "-y"}),
    ("c", Spherical, {}),
    ("d", Universal, {}),
    ("e", Screw, {"lead": 0.3, "axis": (1.0, 2.0, 3.0)}),
    ("f", Planar, {"axis": "x"}),
    ("g", Cylindrical, {}),
    ("h", Prismatic, {"axis": (1.0, 1.0, 0.0)}),
    ("i", Fixed, {}),
    ("j", Revolute, {"axis": "x"}),
)


def chain(rng):
    """A chain with every kind of joint, in general frames; two joints are reversed, and one body is on a branch."""
    bodies, joints, last = {}, {}, "ground"
    for name, kind, more in CHAIN:
        root = rng.normal(size=(3, 3))
        bodies[name] = uk.Body(rng.uniform(0.5, 2), 0.2 * rng.normal(size=3), 0.1 * root @ root.T)
        frames = {"at": 0.3 * rng.normal(size=3), "to": 0.2 * rng.normal(size=3)}
        frames |= {"turn": rng.normal(size=4), "to_turn": rng.normal(size=4)}
        ends = (name, last) if name in "dh" else (last, name)
        joints[f"to_{name}"] = kind(*ends, **frames, **more)
        last = name if name != "c" else last
    return uk.Mechanism(bodies, joints)


def state(mechanism, rng):
    """Return random q and v; the quaternions are not normalised."""
    return jnp.array(rng.normal(size=mechanism.tree.nq)), jnp.array(rng.normal(size=mechanism.tree.n))


def as_points(body):
    """Return seven points with the same mass, centre and inertia; some may have negative mass."""
    inertia = np.asarray(body.inertia_matrix())
    moments, axes = np.linalg.eigh(inertia)
    masses = np.tile((np.trace(inertia) / 2 - moments) / 2, 2)
    places = np.asarray(body.centre) + np.concatenate([axes.T, -axes.T, np.zeros((1, 3))])
    return places, np.append(masses, float(body.mass) - masses.sum())


def in_absolute(mechanism, other, q):
    """Return the absolute coordinates of ``other`` for the pose q of the mechanism."""
    poses = mechanism.pose(q)
    parts = [x for link in other.tree.links for x in (poses[link.body].p, quaternion_of(poses[link.body].R))]
    own = mechanism.joint_coordinates(q)
    return jnp.concatenate([*parts, *(own[counted.joint] for counted in other.tree.counted)])


def close(found, expected, tolerance=1e-10):
    size = np.max(np.abs(np.asarray(expected)), initial=0.1)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=tolerance * size)


@pytest.mark.slow
def test_M_and_Q_match_systems_of_point_masses():
    """M = Σ m JᵀJ and Q = Σ m Jᵀ(g − J̇ v), with derivatives of the positions of points by JAX."""
    mechanism = chain(np.random.default_rng(0))
    q, v = state(mechanism, np.random.default_rng(1))
    rate_of = cast(Callable, mechanism.kinematic_map)
    places, masses = zip(*(as_points(body) for _, body in mechanism.bodies.items()), strict=True)

    def points(q):
        poses = mechanism.pose(q)
        parts = [poses[name].p + x @ poses[name].R.T for name, x in zip(mechanism.bodies.names, places, strict=True)]
        return jnp.concatenate(parts).ravel()

    @jax.jit
    def kinematics(q, v):
        rate = lambda q, v: jax.jvp(points, (q,), (rate_of(q, v),))[1]
        J = jax.jacfwd(lambda v: rate(q, v))(v)
        return points(q), J, jax.jvp(lambda q: rate(q, v), (q,), (rate_of(q, v),))[1]

    @jax.jit
    def found(q, v):
        t = jnp.zeros(())
        return *mechanism.dynamics.terms(t, q, v), mechanism.energy(t, q, v)

    place, J, bias = map(np.asarray, kinematics(q, v))
    m = np.repeat(np.concatenate(masses), 3)
    g = np.tile(mechanism.gravity, m.size // 3)
    M, Q, energy = found(q, v)
    assert len(mechanism.coordinates) == len(q) > len(mechanism.velocities) == len(v)
    close(M, J.T @ (m[:, None] * J), 1e-13)
    close(Q, J.T @ (m * (g - bias)), 1e-13)
    close(energy, m @ ((J @ v) ** 2 / 2 - g * place), 1e-13)


@pytest.mark.parametrize("kind", [kind for kind in kinds.__dict__.values() if isinstance(kind, type)])
def test_residual_coordinates_and_velocities_of_a_joint_are_consistent(kind):
    """A joint's residual is zero at its poses, its coordinates are read back, its velocities are rates of its pose."""
    if not issubclass(kind, kinds.AbstractJoint) or kind is kinds.AbstractJoint:
        return
    more: dict = {"lead": 0.3} if kind is Screw else {}
    if "axis" in kind.__dataclass_fields__ and kind is not Universal:
        more["axis"] = jnp.array([0.3, -0.5, 0.8])
    joint, k, t = kind("ground", "body", **more), len(kind.coordinates), jnp.zeros(())
    rng = np.random.default_rng(3)
    freedom = len(joint.velocities)
    q, v = jnp.array(rng.uniform(-1, 1, k)), jnp.array(rng.normal(size=freedom))
    a = rng.normal(size=(2, 3))

    @jax.jit
    def look(q, v):
        R, p = joint.transform(t, q)
        shifted = lambda s: joint.residual(t, R @ rotation(quaternion_of_angles(s * a[0])), p + s * a[1])
        gap, opening = jax.jvp(shifted, (0.0,), (1.0,)) if kind.rows else (jnp.zeros(0),) * 2
        rates = joint.relative(t, q, v), kinds.AbstractJoint.relative(joint, t, q, v)
        return R @ R.T, gap, opening, joint.coordinates_of(R, p), rates

    square, gap, opening, read, rates = look(q, v)
    close(square, np.eye(3), 1e-14)
    close(gap, np.zeros(len(kind.rows)), 1e-14)
    assert len(kind.rows) == 6 - freedom
    if read is not None:
        close(read, q, 1e-14)
    assert np.all(np.abs(opening) > 1e-3)  # motion in a constrained direction changes the residual
    for own, derived in zip(*rates, strict=True):
        close(own, derived, 1e-13)


AXES = {"z": "z", "skew": jnp.array([0.3, -0.5, 0.8])}
LOWER_PAIRS = (Fixed, Revolute, Prismatic, Cylindrical, Screw, Planar, Universal)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("kind", LOWER_PAIRS)
def test_residual_of_a_joint_vanishes_only_at_poses_it_allows(kind, axis):
    """The child is turned by half a turn about 50 directions, among them the joint's axis and those across it.

    Screws are also turned by other angles. Either the residual is nonzero, or the joint's coordinates give the pose.
    """
    more: dict = {"lead": 0.3} if kind is Screw else {}
    if "axis" in kind.__dataclass_fields__:
        more["axis"] = AXES[axis]
    joint, t = kind("ground", "body", **more), jnp.zeros(())
    rng = np.random.default_rng(5)
    directions = np.concatenate(
        [np.eye(3), rng.normal(size=(46, 3)), [np.asarray(joint.axis.vector() if more else [1, 1, 0])]]
    )
    angles = np.array([np.pi, *rng.uniform(0.5, 6, 3)]) if kind is Screw else np.array([np.pi])

    @jax.jit
    @jax.vmap
    def look(q, direction, angle):
        R, p = joint.transform(t, q)
        half = angle / 2
        u = direction / jnp.linalg.norm(direction) * jnp.sin(half)
        R = R @ rotation(jnp.concatenate([jnp.cos(half)[None], u]))
        residual, read = joint.residual(t, R, p), joint.coordinates_of(R, p)
        there = joint.transform(t, read)
        return jnp.max(jnp.abs(residual)), jnp.max(jnp.abs(there[0] - R)) + jnp.max(jnp.abs(there[1] - p))

    given = [(rng.uniform(-3, 3, len(kind.coordinates)), d, a) for d in directions for a in angles]
    residual, away = map(np.asarray, look(*(jnp.array(x) for x in zip(*given, strict=True))))
    closed = residual < 1e-6
    assert np.all(away[closed] < 1e-5)
    assert np.any(~closed) and np.any(away > 1e-2)


@pytest.mark.parametrize("start", (0.3, 2.0, 4.0))
def test_screw_that_closes_a_loop_satisfies_its_lead(start):
    """A nut on a cylindrical shaft, with a screw in parallel. Start from several angles."""
    joints = {"shaft": Cylindrical("ground", "nut"), "thread": Screw("ground", "nut", lead=0.1)}
    mechanism = uk.Mechanism({"nut": uk.Body(1.0, inertia=(0.1, 0.1, 0.1))}, joints)
    q, _ = mechanism.start({"shaft_angle": start})
    turns = (q[1] / 0.1 - q[0] / (2 * jnp.pi)).item()
    np.testing.assert_allclose(turns, round(turns), rtol=0, atol=1e-12)
    close(mechanism.joint_coordinates(q)["thread"], [2 * np.pi * q[1] / 0.1])


def test_universal_joint_coordinates_with_axes_that_are_not_perpendicular():
    joint, q = Universal("ground", "body", axis="x", second=(1.0, 2.0, 0.5)), jnp.array([0.7, -2.1])
    close(joint.coordinates_of(*joint.transform(jnp.zeros(()), q)), q, 1e-14)


@pytest.mark.slow
def test_joint_and_absolute_coordinates_give_equal_accelerations_and_reactions():
    """A spatial loop: crank with a spring, rod on a universal joint, ball joint, nut on a screw, and a strut."""
    bodies = {name: rod(0.3) for name in ("crank", "rod", "nut")}
    joints = {
        "motor": Revolute("ground", "crank", axis="y", stiffness=2.0, damping=0.1, armature=0.01),
        "cross": Universal("crank", "rod", at=(0.3, 0, 0), axis="z", second="y", friction=0.02),
        "thread": Screw("ground", "nut", at=(0.7, 0.1, 0), axis=(1, 0, 0.2), lead=0.3),
        "far": Spherical("rod", "nut", at=(0.5, 0, 0), to=(0, 0.05, 0)),
        "strut": Strut("crank", "nut", at=(0.1, 0, 0), to=(0.3, 0, 0), stiffness=40.0, rest=0.2, damping=1.0),
    }
    mechanism = uk.Mechanism(bodies, joints)
    assert mechanism.tree.closures == ("far", "strut")
    q, v = mechanism.start({"motor": 0.2}, {"motor": 2.0})
    absolute = mechanism.in_absolute()
    assert mechanism.kinematic_map is None and absolute.coordinates[-1] == ("motor", "rad")
    place = lambda q: in_absolute(mechanism, absolute, q)

    @jax.jit
    def state(q, v, acceleration):
        """Return the state and the acceleration in the coordinates of ``absolute``."""
        along = lambda q, v: jax.jvp(place, (q,), (v,))[1]
        Q = place(q)
        V, V_dot = in_velocities(absolute, Q, *jax.jvp(along, (q, v), (v, acceleration)))
        return Q, V, V_dot, absolute.position_residual(0.0, Q), absolute.velocity_residual(0.0, Q, V)

    motion = uk.constrained_motion(mechanism(0.0, q, v))
    Q, V, expected, *residuals = state(q, v, motion.acceleration)
    close(residuals, np.zeros((2, 17)), 1e-12)
    other = uk.constrained_motion(absolute(0.0, Q, V))
    close(other.acceleration, expected, 1e-9)
    assert mechanism.tree.n - int(motion.rank) == absolute.tree.n - int(other.rank) == 1
    carried, also = mechanism.reactions(0.0, q, v), absolute.reactions(0.0, Q, V)
    assert list(carried) == list(joints)
    for name in joints:
        size = np.max(np.abs(also[name].force))
        np.testing.assert_allclose(carried[name].force, also[name].force, rtol=0, atol=1e-9 * size, err_msg=name)
        np.testing.assert_allclose(carried[name].moment, also[name].moment, rtol=0, atol=1e-9 * size, err_msg=name)


@pytest.fixture(scope="module")
def started():
    mechanism = slider_crank()
    return mechanism, *mechanism.start({"motor": 0.4}, {"motor": 10.0})


@pytest.mark.slow
def test_slider_crank_matches_closed_form_and_conserves_energy(started):
    mechanism, q, v = started
    close([q[0], v[0]], [0.4, 10], 0)
    trajectory = uk.simulate(mechanism, q, v, np.linspace(0, 0.5, 11))
    slider = lambda q: mechanism.pose(q)["slider"]

    @jax.jit
    @jax.vmap
    def read(q, v):
        return slider(q), jax.jvp(slider, (q,), (v,))[1].p, mechanism.energy(jnp.zeros(()), q, v)

    (R, p), rate, energy = jax.tree.map(np.asarray, read(trajectory.q, trajectory.v))
    s, c, zero = 0.1 * np.sin(trajectory.q[:, 0]), 0.1 * np.cos(trajectory.q[:, 0]), np.zeros(11)
    across = np.sqrt(0.3**2 - s**2)
    close(p, np.stack([c + across, zero, zero], axis=1), 1e-12)
    close(R, np.tile(np.eye(3), (11, 1, 1)), 1e-12)
    close(rate, np.stack([-s * trajectory.v[:, 0] * (1 + c / across), zero, zero], axis=1), 1e-12)
    close(energy, np.full(11, energy[0]), 1e-9)


def test_hinge_reactions_of_a_pendulum_match_closed_form():
    """The force is m l ω² + m g cos θ along the rod; the moment is zero."""
    pendulum = uk.Mechanism(
        {"rod": uk.Body(2.0, (0.5, 0.1, 0), (0, 0, 0.01))}, {"pin": Revolute("ground", "rod")}, (0, -9.81, 0)
    )
    angle, rate = 0.3, 1.7
    found = pendulum.reactions(0.0, [angle], [rate])["pin"]
    c, s = np.cos(angle), np.sin(angle)
    arm = np.array([0.5 * c - 0.1 * s, 0.5 * s + 0.1 * c])
    alpha = -2 * 9.81 * arm[0] / (0.01 + 2 * (0.5**2 + 0.1**2))
    force = 2 * (alpha * np.array([-arm[1], arm[0]]) - rate**2 * arm + np.array([0, 9.81]))
    close(found.force, [*force, 0], 1e-12)
    close(found.moment, np.zeros(3), 1e-12)


@pytest.mark.parametrize("angle", (1.5, 2.5))
def test_slider_crank_start_is_upright_without_extra_turns(angle):
    """The search starts with all links in line. The slider must not be upside down, no joint beyond one turn."""
    q, _ = slider_crank().start({"motor": angle})
    close(jnp.sum(q), 0.0, 1e-10)
    assert np.all(np.abs(np.asarray(q)) < 2 * np.pi)


def test_rolling_disc_matches_the_gallery():
    gallery = uk.systems.RollingDisk()
    disc = uk.Body(1.0, inertia=(0.01, 0.02, 0.01))
    mechanism = uk.Mechanism({"disc": disc}, {"table": Rolling("ground", "disc", radius=0.2)})
    q, v = gallery.start()

    def place(q):
        level, up, axis = gallery.frame(q)
        spin, s = jnp.cos(q[5]), jnp.sin(q[5])
        across = spin * level + s * up  # any direction in the disc's plane
        R = jnp.stack([across, axis, jnp.cross(across, axis)], axis=1)
        return jnp.concatenate([q[:3], quaternion_of(R)])

    # The sign of φ is that of the gallery: it follows from the angular velocity of the axis.
    level, _, axis = gallery.frame(q)
    Q, omega = place(q), v[3] * jnp.array([0.0, 0.0, 1.0]) + v[4] * level + v[5] * axis
    close(mechanism.position_residual(0.0, Q), np.zeros(1), 1e-12)
    found = uk.constrained_motion(mechanism(0.0, Q, jnp.concatenate([v[:3], omega])))
    expected = uk.constrained_motion(gallery(0.0, q, v))
    close(found.acceleration[:3], expected.acceleration[:3], 1e-9)


def test_a_ball_rolls_down_a_plane():
    slope = 0.3
    ball = uk.Body(2.0, inertia=(0.4 * 2 * 0.1**2,) * 3)
    table = Rolling("ground", "ball", radius=0.1, axis=None)
    gravity = (9.81 * np.sin(slope), 0, -9.81 * np.cos(slope))
    mechanism = uk.Mechanism({"ball": ball}, {"table": table}, gravity)
    found = uk.constrained_motion(mechanism(0.0, [0, 0, 0.1, 1, 0, 0, 0], np.zeros(6))).acceleration
    close(found[:3], [5 / 7 * 9.81 * np.sin(slope), 0, 0], 1e-12)


def test_knife_edge_matches_the_sleigh_of_the_gallery():
    gallery = uk.systems.ChaplyginSleigh()
    a, m, I = (float(x) for x in (gallery.a, gallery.m, gallery.J))
    sleigh = uk.Body(m, inertia=(0, 0, I))
    joints = {"ice": Planar("ground", "sleigh"), "blade": KnifeEdge("ground", "sleigh", to=(-a, 0, 0))}
    mechanism = uk.Mechanism({"sleigh": sleigh}, joints)
    along, across = np.array([np.cos(0.7), np.sin(0.7)]), np.array([-np.sin(0.7), np.cos(0.7)])
    q, v = [0.1, 0.2, 0.7], [*(0.3 * along + 1.1 * a * across), 1.1]
    expected = uk.constrained_motion(gallery(0.0, q, v)).acceleration
    close(uk.constrained_motion(mechanism(0.0, q, v)).acceleration, expected, 1e-12)


@pytest.mark.parametrize(("creep", "rate"), ((None, 5e-4), (3.0, 2.0)))
def test_forces_of_springs_dampers_friction_and_struts_match_closed_form(creep, rate):
    """A slide with a spring, a damper, an armature inertia and friction, and a strut that acts as a second spring."""
    along = {"stiffness": 30.0, "rest": 0.1, "damping": 2.0, "armature": 0.5, "friction": 0.7, "creep": creep}
    joints = {
        "slide": Prismatic("ground", "box", axis="x", **along),
        "strut": Strut("ground", "box", at=(0, 0.3, 0), stiffness=50.0, rest=0.2, damping=1.0),
    }
    mechanism = uk.Mechanism({"box": uk.Body(1.5)}, joints)
    x = 0.4
    d = np.hypot(x, 0.3)
    pull = 50 * (d - 0.2) + 1.0 * (x / d * rate)
    expected = (-30 * (x - 0.1) - 2 * rate - 0.7 * np.tanh(rate / (creep or 1e-3)) - pull * x / d) / (1.5 + 0.5)
    close(uk.constrained_motion(mechanism(0.0, [x], [rate])).acceleration, [expected], 1e-12)
    if creep is not None:
        return
    energy = 1.5 * rate**2 / 2 + 0.5 * rate**2 / 2 + 30 * (x - 0.1) ** 2 / 2 + 50 * (d - 0.2) ** 2 / 2
    close(eqx.filter_jit(mechanism.energy)(0.0, jnp.array([x]), jnp.array([rate])), energy, 1e-12)


@pytest.mark.slow
def test_rotational_spring_forces_are_the_energy_gradient_and_grow_with_the_angle():
    rest = np.array([0.1, -0.2, 0.3, *quaternion_of_angles(jnp.array([0.3, 0.5, -0.4]))])
    joints = {
        "ball": Spherical("ground", "a", stiffness=3.0, rest=rest[3:], turn=(0.1, 0.2, 0.3)),
        "free": Free("ground", "b", stiffness=5.0, rest=rest),
        "plain": Prismatic("b", "c", stiffness=7.0, rest=0.1, axis="x"),
    }
    robot = uk.Mechanism({name: uk.Body(1.0, inertia=(1, 1, 1)) for name in "abc"}, joints, gravity=(0, 0, 0))
    at_rest = jnp.asarray(np.concatenate([2 * rest[3:], rest, [0.1]]))
    energy = lambda q: robot.energy(jnp.zeros(()), q, jnp.zeros(10))
    force = lambda q: robot.dynamics.terms(jnp.zeros(()), q, jnp.zeros(10))[1]
    kinematic_map: Any = robot.kinematic_map

    @jax.jit
    def look(q):
        slope = jax.grad(energy)(q) @ jax.jacfwd(lambda v: kinematic_map(q, v))(jnp.zeros(10))
        return slope, force(q), jax.jacfwd(force)(q)

    for q in (at_rest, at_rest + 0.3 * np.random.default_rng(2).normal(size=12), -at_rest):
        slope, found, derivative = look(q)
        np.testing.assert_allclose(-slope, found, atol=1e-12)
        assert np.all(np.isfinite(derivative))
    np.testing.assert_allclose(look(at_rest)[1], 0, atol=1e-12)
    turned = at_rest.at[:4].set(quaternion_of_angles(jnp.array([0.0, 0.0, 3.0])))
    ball = uk.Mechanism({"a": robot.bodies["a"]}, {"ball": Spherical("ground", "a", stiffness=3.0)})
    np.testing.assert_allclose(ball(0.0, turned[:4], np.zeros(3)).Q, (0, 0, -9.0), atol=1e-12)


def test_gear_cam_and_drive_accelerations_match_closed_form():
    """A wheel drives another by gears and a follower by a cam; a third wheel has a prescribed motion."""
    wheel = uk.Body(1.0, inertia=(0.1, 0.1, 0.2))
    bodies = {"first": wheel, "second": wheel, "follower": uk.Body(0.5), "told": wheel}
    joints = {
        "one": Revolute("ground", "first"),
        "two": Revolute("ground", "second", at=(1, 0, 0)),
        "rod": Prismatic("ground", "follower", axis="x"),
        "third": Revolute("ground", "told"),
        "gears": Gear("two", "one", ratio=-2.0, offset=0.1),
        "cam": Cam("rod", "one", profile=lambda x: 0.1 * jnp.sin(x)),
        "drive": Drive("third", motion=lambda t: 0.3 * t**2),
    }
    x, rate = 0.4, 1.2
    slope, bend = 0.1 * np.cos(x), -0.1 * np.sin(x)
    expected = (3.0 - 0.5 * slope * bend * rate**2) / (0.2 + 4 * 0.2 + 0.5 * slope**2)
    angles = {"one": x, "two": -2 * x + 0.1, "third": 0.3}
    rates = {"one": rate, "two": -2 * rate, "third": 0.6}
    places = {"rod": 0.1 * np.sin(x), "follower_x": 0.1 * np.sin(x), "follower_qw": 1.0, "second_x": 1.0}
    speeds = {"drod": slope * rate, "dfollower_x": slope * rate}
    for body, joint in (("first", "one"), ("second", "two"), ("told", "third")):
        places |= {f"{body}_qw": np.cos(angles[joint] / 2), f"{body}_qz": np.sin(angles[joint] / 2)}
        speeds[f"{body}_wz"] = rates[joint]
    places |= angles
    speeds |= {f"d{joint}": value for joint, value in rates.items()}
    for formulation in ("joint", "absolute"):
        driven = uk.Mechanism(bodies, joints, (0, 0, 0), formulation=formulation)
        driven = driven.driven(uk.control.Feedback(driven.along("one"), lambda t, q, v: jnp.array([3.0])))
        names = [name for name, _ in driven.velocities]
        q = jnp.array([places.get(name, 0.0) for name, _ in driven.coordinates])
        v = jnp.array([speeds.get(name, 0.0) for name in names])
        found = jax.jit(lambda q, v, driven=driven: uk.constrained_motion(driven(1.0, q, v)).acceleration)(q, v)
        if formulation == "joint":
            close(found[:2], [expected, -2 * expected], 1e-12)
            close(found[3], 0.6, 1e-12)
        else:
            close(found[names.index("dfollower_x")], slope * expected + bend * rate**2, 1e-10)


def test_points_on_a_line_on_a_surface_and_at_a_distance():
    """A bead on a line, a point on a sphere, and a point at a fixed distance, which is the same sphere."""
    bodies = {"bead": uk.Body(1.0), "marble": uk.Body(1.0), "bob": uk.Body(1.0)}
    joints = {
        "wire": PointOnLine("ground", "bead", axis=(1, 0, -1)),
        "bowl": PointOnSurface("ground", "marble", surface=lambda t, p: p @ p - 4.0),
        "string": Distance("ground", "bob", length=2.0),
    }
    mechanism = uk.Mechanism(bodies, joints)
    names = [name for name, _ in mechanism.velocities]
    q = [
        {"marble_x": 2.0, "bob_x": 2.0}.get(name, 1.0 if name.endswith("qw") else 0.0)
        for name, _ in mechanism.coordinates
    ]
    v = [{"dmarble_y": 1.0, "dbob_y": 1.0}.get(name, 0.0) for name in names]
    # Point masses have no moments of inertia.
    with pytest.raises(ValueError, match="not unique"):
        uk.constrained_motion(mechanism(0.0, q, v))
    heavy = eqx.tree_at(lambda m: [body.inertia for body in m.bodies.things], mechanism, [jnp.full(3, 0.1)] * 3)
    found = dict(zip(names, uk.constrained_motion(heavy(0.0, q, v)).acceleration, strict=True))
    close([found["dbead_x"], found["dbead_y"], found["dbead_z"]], [9.81 / 2, 0, -9.81 / 2], 1e-12)
    for name in ("marble", "bob"):
        close([found[f"d{name}_x"], found[f"d{name}_y"], found[f"d{name}_z"]], [-0.5, 0, -9.81], 1e-12)


def test_parameters_have_names_and_derivatives():
    joints = {"motor": Revolute("ground", "crank"), "pin": Revolute("crank", "rod", at=(0.1, 0, 0))}
    mechanism = uk.Mechanism({"crank": rod(0.1), "rod": rod(0.3)}, joints, gravity=(0, -9.81, 0))
    q, v = np.array([0.4, 0.7]), np.array([10.0, -3.0])

    def first(mass, offset):
        where = lambda m: (m.bodies.rod.mass, m.joints.pin.to)
        changed = eqx.tree_at(where, mechanism, (mass, offset), is_leaf=lambda x: x is None)
        return uk.constrained_motion(changed(0.0, q, v)).acceleration[0]

    h, numbers = 1e-5, (jnp.array(1.0), jnp.array([0.0, 0.02, 0.0]))
    both = jax.jit(jax.value_and_grad(first, argnums=(0, 1)))
    slope = both(*numbers)[1]
    value_at = lambda d, e: both(numbers[0] + d, numbers[1] + e)[0]
    difference = lambda d, e: (value_at(d, e) - value_at(-d, -e)) / (2 * h)
    close(slope[0], difference(h, jnp.zeros(3)), 1e-7)
    close(slope[1][1], difference(0.0, jnp.array([0, h, 0])), 1e-6)
    place, value = find(mechanism, "bodies.rod.mass", "parameter")
    assert str(place) == "bodies.rod.mass" and float(value) == 1.0
    place, value = find(mechanism, "joints.pin.at[0]", "parameter")
    assert float(value[place.index]) == 0.1


def test_cached_data_of_a_mechanism_is_not_part_of_its_pytree():
    mechanism = slider_crank()
    structure = jax.tree.structure(mechanism)
    assert flat_of(mechanism) is flat_of(mechanism) and mechanism.dynamics is mechanism.dynamics
    for same in (mechanism, copy.copy(mechanism), copy.deepcopy(mechanism), pickle.loads(pickle.dumps(mechanism))):
        assert jax.tree.structure(same) == structure
        assert same is mechanism or flat_of(same) is not flat_of(mechanism)


def test_cached_leaves_are_updated_after_a_change():
    class Listed(FlattenedOnce):
        numbers: list[float]

    class Doubled(FlattenedOnce):
        number: float

        def __init__(self, number):
            self.number = number
            self.number = 2 * flat_of(self).leaves[0]

    assert flat_of(Doubled(1.0)).leaves == [2.0]
    listed = Listed([1.0])
    assert flat_of(listed).leaves == [1.0]
    listed.numbers.append(2.0)
    assert flat_of(listed).leaves == [1.0, 2.0]


def test_project_does_not_change_fixed_coordinates():
    free = uk.MassForce(np.eye(2), np.zeros(2))
    ring = uk.System(free, uk.Holonomic(lambda t, q: q @ q - 1), coordinates=(("x", "m"), ("y", "m")))
    q, v = uk.project(ring, 0.0, [0.6, 0.7], [0.3, 0.0], fixed=("x",))
    close(q, [0.6, 0.8], 1e-13)
    close(v, [0.3, -0.225], 1e-13)
    again = uk.project(ring, 0.0, [0.6, 0.7], [0.3, 0.0], fixed=(name for name in ["x"]))
    close(np.concatenate(again), [*q, *v], 1e-13)
    with pytest.raises(ValueError, match="fixed names no coordinate 'xx'; did you mean 'x'"):
        uk.project(ring, 0.0, q, v, fixed="xx")


class Geared(Revolute):
    """A joint whose velocity is half the rate of its coordinate."""

    def kinematic_map(self, q, v):
        return 2 * v


class Unread(Revolute):
    coordinates_of = kinds.AbstractActing.coordinates_of  # pyright: ignore[reportAssignmentType]


class Turntable(Revolute):
    """A hinge whose pose depends on time."""

    def transform(self, t, q):
        return self.axis.turn(q[0] + t), jnp.zeros(3)


def turntable():
    joints = {"table": Turntable("ground", "a"), "b": Planar("a", "b"), "c": Revolute("ground", "b", stiffness=1.0)}
    return uk.Mechanism({"a": BODY, "b": BODY}, joints)


BODY = uk.Body(1.0)
MISTAKES = (
    (lambda: uk.Body(-1.0), "mass must be one number .kg. not below 0 and finite, got -1"),
    (lambda: uk.Body(np.inf), "mass must be one number .kg. not below 0 and finite, got inf"),
    (lambda: uk.Body(1.0, (0, np.nan, 0)), "centre must be finite, got centre.1. = nan"),
    (lambda: uk.Body(1.0, inertia=(1, 1, np.inf)), "inertia must be finite, got inertia.2. = inf"),
    (lambda: uk.Body(1.0, buoyancy=np.inf), "buoyancy must be finite, got inf"),
    (lambda: uk.Body(1.0, (0, 0)), "centre must be three numbers .x, y, z., got shape .2,"),
    (lambda: uk.Body(1.0, inertia=(1, 1, -1)), "inertia must have no negative principal moment"),
    (lambda: uk.Body(1.0, inertia=(1, 1)), "inertia must be three moments"),
    (lambda: uk.Body(1.0, inertia=np.arange(9.0).reshape(3, 3)), "inertia must be symmetric"),
    (lambda: uk.Mechanism({}), "bodies must name at least one body"),
    (lambda: uk.Mechanism([BODY]), "bodies must be a dictionary"),
    (
        lambda: uk.Mechanism(
            {"a": BODY, "b": BODY}, {"base": Planar("ground", "a"), "base_x": Prismatic("a", "b", axis="x")}
        ),
        "two coordinates are named 'base_x', of two joints",
    ),
    (lambda: uk.Mechanism({"a b": BODY}), "names of letters, digits and _ that begin with a letter, got 'a b'"),
    (lambda: uk.Mechanism({"_arm": BODY}), "names that begin with a letter, got '_arm'"),
    (lambda: uk.Mechanism({"ground": BODY}), "bodies must not have the name 'ground'"),
    (lambda: uk.Mechanism({"items": BODY}), "bodies must not have the name 'items'"),
    (lambda: uk.Mechanism({"a": BODY}, {"of": Revolute("ground", "a")}), "joints must not have the name 'of'"),
    (lambda: uk.Mechanism({"things": BODY}), "bodies must not have the name 'things'"),
    (lambda: uk.Mechanism({"lambda": BODY}), "bodies must not have the name 'lambda'"),
    (lambda: uk.Mechanism({"a": 1.0}), "bodies\\['a'\\] must be a ukjax.Body"),
    (lambda: uk.Mechanism({"a": BODY}, {"j": BODY}), "joints\\['j'\\] must be one of ukjax.joints"),
    (lambda: uk.Mechanism({"a": BODY}, {"j": Revolute("ground", "b")}), "must join existing bodies, got 'b'"),
    (lambda: uk.Mechanism({"arm": BODY}, {"j": Revolute("grund", "arm")}), "did you mean 'ground'"),
    (lambda: uk.Mechanism({"a": BODY}, {"j": Revolute("a", "a")}), "must join two bodies, got 'a' twice"),
    (lambda: uk.Mechanism({"a": BODY}, {"g": Gear("x", "y")}), "refers to no joint 'x'"),
    (
        lambda: uk.Mechanism({"a": BODY}, {"b": Spherical("ground", "a"), "d": Drive("b", motion=lambda t: t)}),
        "must refer to joints with one coordinate, unlike 'b'",
    ),
    (
        lambda: uk.Mechanism({"a": BODY}, {"j": Spherical("ground", "a", damping=1.0)}, formulation="absolute"),
        "damping of joints.* must be left out: the joint has a quaternion, and is a constraint",
    ),
    (lambda: uk.Mechanism({"a": BODY}, {"j": Spherical("ground", "a", friction=[1, 2, 3])}), "must be one number"),
    (lambda: uk.Mechanism({"a": BODY}, {"j": Spherical("ground", "a", damping=[1, 2])}), "must be a number, or 3"),
    (lambda: uk.Mechanism({"a": BODY}, {"j": Spherical("ground", "a", rest=[1, 2])}), "must be its 4 coordinates"),
    (lambda: uk.Mechanism({"a": BODY}, {"j": Revolute("ground", "a", damping=[1, 2])}), "must be a number, or 1"),
    (
        lambda: uk.Mechanism({"a": BODY}, {"j": Revolute("ground", "a", reference=[1, 2])}),
        "reference of .* must be 1 numbers",
    ),
    (
        lambda: uk.Mechanism({"a": BODY})(0.0, np.ones(6), np.ones(6)),
        "q and v must have shapes .7,. and .6,., one entry",
    ),
    (lambda: uk.Mechanism({"a": BODY})(0.0, np.ones(8), np.ones(6)), "got shapes .8,. and .6,."),
    (lambda: uk.Mechanism({"a": BODY}, formulation="polar"), "formulation must be"),
    (lambda: uk.Mechanism({"a": BODY}, gravity=9.81), "gravity must be three numbers"),
    (lambda: uk.Mechanism({"a": BODY}, control=1), "control must be one of ukjax.control"),
    (lambda: Revolute(3, "a"), "parent must be the name of a body"),
    (lambda: Revolute("ground", "a", axis="w"), "axis must be x, y, z, -x, -y, -z or three numbers"),
    (lambda: Revolute("ground", "a", axis=(0, 0, 0)), "axis must not be zero"),
    (lambda: Revolute("ground", "a", at=(0, 0)), "at must be three numbers"),
    (lambda: Revolute("ground", "a", turn=(1, 2)), "turn must be roll, pitch and yaw"),
    (lambda: Revolute("ground", "a", damping=-1.0), "damping must be"),
    (lambda: Distance("ground", "a", length=0.0), "length must be"),
    (
        lambda: hinged(actuators=[uk.Actuator("m", "hing")]),
        "joint of actuator 'm' must be the name of a joint, got 'hing'; did you mean",
    ),
    (
        lambda: hinged(actuators=[uk.Actuator("m", "pair")]),
        "joint of actuator 'm' must have an angle or a length to act along, and 'pair' has none",
    ),
    (lambda: hinged(actuators=[uk.Actuator("m", "hinge")] * 2), "must have different names, got 'm' twice"),
    (lambda: hinged(actuators=[uk.Actuator("m", "hinge", np.nan)]), "gear of actuator 'm' must be finite, got nan"),
    (lambda: hinged(actuators=[uk.Actuator("m", "hinge", 1.0, (2, -2))]), "limits of actuator 'm' must be two numbers"),
    (lambda: on(PointOnSurface("ground", "a", surface=lambda t, p: p[:2])), "surface must have shape .1,., one entry"),
    (lambda: on(Drive("j", motion=lambda t: jnp.ones(2))), "motion must return one number, got shape .2,."),
    (lambda: on(Cam("j", "k", profile=lambda x: [x, x])), "profile must return one number, got shape .2,."),
    (lambda: Screw("ground", "a", lead=0.0), "lead must not be 0 .m.: a screw that does not advance is a Revolute"),
    (lambda: Universal("ground", "a", axis="x", second="-x"), "second must not be parallel to axis"),
    (
        lambda: uk.Mechanism({"a": BODY}, {"j": Geared("ground", "a")}),
        "joints\\['j'\\] must have no kinematic_map",
    ),
    (
        lambda: uk.Mechanism({"a": BODY}, {"j": Planar("ground", "a"), "k": Unread("ground", "a", damping=1.0)}),
        "joints\\['k'\\] closes a loop and has damping, but Unread has no coordinates_of",
    ),
    (
        lambda: uk.Mechanism({"a": BODY}, {"j": Planar("ground", "a", limits=(0, 1))}),
        "limits of joints\\['j'\\] must be left out: only a joint with one coordinate has limits, it has 3",
    ),
    (turntable, "joints\\['table'\\] must not depend on time"),
    (lambda: PointOnSurface("ground", "a", surface=3.0), "surface must be"),
    (lambda: slider_crank().start({"moter": 1.0}), "positions names no coordinate 'moter'; did you mean 'motor'"),
    (lambda: slider_crank().start({"motor": "x"}), r"positions\['motor'\] must be one number, got 'x'"),
    (lambda: slider_crank().start({"motor": [1, 2]}), r"positions\['motor'\] must be one number, got shape .2,."),
    (lambda: slider_crank().start({"motor": np.inf}), r"positions\['motor'\] must be finite, got inf"),
    (lambda: slider_crank().start(velocities={"motor": None}), r"velocities\['motor'\] must be one number, got None"),
    (lambda: slider_crank().along("guid"), "no joint with plain coordinates is named 'guid'; did you mean 'guide'"),
)


def test_start_accepts_numbers_of_any_type():
    arm = uk.Mechanism({"a": rod(1.0), "b": rod(1.0)}, {"j": Revolute("ground", "a"), "k": Revolute("a", "b")})
    for two in (2, np.float32(2), np.array([2.0]), [2], jnp.array(2)):
        q, v = arm.start({"k": two}, {"j": two})
        close(q, [0, 2], 0)
        close(v, [2, 0], 0)


def test_user_constraint_on_a_mechanism():
    """The tip of an arm of two rods slides on a ceiling: names, start, projection, and reactions."""
    arm = uk.Mechanism({"a": rod(1.0), "b": rod(1.0)}, ARM, gravity=(0, -9.81, 0))
    tip = lambda q: arm.pose(q)["b"].p[1] + arm.pose(q)["b"].R[1, 0]
    ceiling = uk.Holonomic(lambda t, q: tip(q) - 1.2, name="ceiling")
    bound = arm.constrained(ceiling)
    again = uk.Mechanism({"a": rod(1.0), "b": rod(1.0)}, ARM, gravity=(0, -9.81, 0), constraints=ceiling)
    assert [row.name for row in bound.constraints] == [row.name for row in again.constraints] == ["ceiling"]
    q, v = bound.start({"j": 1.2}, {"j": 0.5})
    close(np.sin(q[0]) + np.sin(q[0] + q[1]), 1.2, 1e-12)
    close(q[0], 1.2, 0)
    slope = np.cos(q[0]) * np.array([1, 0]) + np.cos(q[0] + q[1])
    close([v[0], slope @ v], [0.5, 0.0], 1e-12)
    motion = uk.constrained_motion(bound(0.0, q, v))
    force = motion.constraint_force / slope
    close(force[0], force[1], 1e-9)  # one vertical force at the tip
    # The constraint force acts along the coordinates, as motors do.
    found = bound.reactions(0.0, q, v)
    close(found["j"].moment[2], motion.constraint_force[0], 1e-9)
    close(found["k"].moment[2], motion.constraint_force[1], 1e-9)
    assert np.all(found["j"].force_is_unique)
    with pytest.raises(ValueError, match="constraint 'ceiling' is a function of joint coordinates"):
        bound.in_absolute()


ARM = {"j": Revolute("ground", "a"), "k": Revolute("a", "b", at=(1, 0, 0))}


def hinged(**more):
    joints = {"hinge": Revolute("ground", "a"), "pair": Gear("hinge", "hinge")}
    return uk.Mechanism({"a": BODY}, joints, **more)


def on(more):
    """Evaluate a mechanism with one more joint, at its reference pose."""
    bodies, joints = {"a": BODY, "b": BODY}, {"j": Revolute("ground", "a"), "k": Revolute("ground", "b")}
    return uk.Mechanism(bodies, joints | {"more": more})(0.0, np.zeros(2), np.zeros(2))


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_bad_input_raises(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
