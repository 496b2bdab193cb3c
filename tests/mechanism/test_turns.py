"""Angles that are counted over several turns, for joints that close loops or are rows: against closed forms."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.joints import Cam, Drive, Gear, Planar, Prismatic, Revolute

WHEEL = uk.Body(1.0, inertia=(0.1, 0.1, 0.2))
CLOSELY: dict = dict(dt=0.05, solver=diffrax.Dopri8())


def in_form(bodies, plain, joints, form, gravity=(0, 0, 0)):
    """Build a mechanism with ``joints`` as tree joints, or as joints that close loops in parallel to ``plain`` ones."""
    return uk.Mechanism(bodies, (plain if form == "closing" else {}) | joints, gravity)


def wound(form):
    """A wheel on a spring that turns at 1 rad/s and moves a follower by a spiral cam.

    In joint coordinates, the wheel also drives a second wheel by a gear, three times as fast.
    """
    geared = form == "joint"  # tests below have gears with wheels whose bearings close loops
    stiffness = 0.2 + 9 * 0.2 * geared + 0.5 * 0.01**2
    bodies = {"first": WHEEL, "follower": uk.Body(0.5, inertia=(0.1, 0.1, 0.1))}
    plain = {"a": Planar("ground", "first"), "c": Planar("ground", "follower")}
    joints: dict = {
        "one": Revolute("ground", "first", stiffness=stiffness),
        "rod": Prismatic("ground", "follower", axis="x"),
        "cam": Cam("rod", "one", profile=lambda x: 0.01 * x),
    }
    if geared:
        bodies["second"] = WHEEL
        joints["two"] = Revolute("ground", "second", at=(1.0, 0, 0))
        joints["gears"] = Gear("two", "one", ratio=-3.0, offset=0.1)
    return in_form(bodies, plain, joints, form)


def read(mechanism, q, names):
    """The coordinates of these joints at each sample."""
    one = lambda q: jnp.concatenate([mechanism.joint_coordinates(q)[name] for name in names])
    return np.asarray(jax.jit(jax.vmap(one))(q))


@pytest.mark.slow
@pytest.mark.parametrize("form", ("joint", "closing"))
def test_spring_gear_and_cam_over_several_turns_match_closed_form(form):
    """The first wheel turns four times, the second twelve times, forward and back: x = x₀ cos t."""
    mechanism, ts, x0 = wound(form), np.linspace(0, 4, 9), 8 * np.pi
    q, v = mechanism.start({"one": x0})
    found = uk.simulate(mechanism, q, v, ts, **CLOSELY)
    x = x0 * np.cos(ts)
    angles = read(mechanism, found.q, ("one", "rod", "two") if form == "joint" else ("one", "rod"))
    exact = np.stack([x, 0.01 * x, 0.1 - 3 * x], axis=1)[:, : angles.shape[1]]
    np.testing.assert_allclose(angles, exact, rtol=0, atol=1e-9)
    # Couplings are satisfied for positions, not only for their rates.
    np.testing.assert_allclose(angles[:, 1], 0.01 * angles[:, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(angles[:, 2:] + 3 * angles[:, :1], 0.1, rtol=0, atol=1e-12)
    names = [name for name, _ in mechanism.coordinates]
    np.testing.assert_allclose(np.asarray(found.q)[:, names.index("one")], angles[:, 0], rtol=0, atol=1e-13)
    assert np.max(np.abs(np.asarray(found.residual))) < 1e-12
    energy = np.asarray(jax.jit(jax.vmap(mechanism.energy))(found.t, found.q, found.v))
    np.testing.assert_allclose(energy, energy[0], rtol=1e-10)


def geared(ratio, torque):
    """A wheel driven by a torque, geared to a wheel on a plane whose bearing closes a loop."""
    joints = {
        "b": Planar("ground", "second"),
        "one": Revolute("ground", "first"),
        "two": Revolute("ground", "second"),
        "gears": Gear("two", "one", ratio=ratio),
    }
    mechanism = uk.Mechanism({"first": WHEEL, "second": WHEEL}, joints, (0, 0, 0))
    return mechanism.driven(uk.control.Feedback(mechanism.along("one"), lambda t, q, v: torque[None]))


@pytest.mark.slow
def test_derivatives_over_several_turns_match_closed_form():
    """Ten turns of one wheel are 10/3 of the other, not a whole number: x = x₀ + M t²/2I."""
    x0 = 4.0

    def last(torque):
        mechanism = geared(1 / 3, torque)
        q = [0, 0, x0 / 3, x0, x0 / 3]
        return uk.simulate(mechanism, q, jnp.zeros(4), [0.0, 2.0], dt=0.05).q[-1, 3:]

    torque = 20 * np.pi * 0.2 * (1 + 1 / 9) / 2
    found, slopes = jax.jit(lambda torque: jax.jvp(last, (torque,), (1.0,)))(torque)
    x = x0 + 20 * np.pi
    np.testing.assert_allclose(found, [x, x / 3], rtol=0, atol=1e-10)
    np.testing.assert_allclose(slopes, [20 * np.pi / torque, 20 * np.pi / 3 / torque], rtol=1e-9)


def slider_crank(**drive):
    rod = lambda length: uk.Body(1.0, (length / 2, 0, 0), (1e-5, length**2 / 12, length**2 / 12))
    bodies = {"crank": rod(0.2), "rod": rod(0.5), "piston": uk.Body(0.5, inertia=(1e-3, 1e-3, 1e-3))}
    joints = {
        "motor": Revolute("ground", "crank"),
        "pin": Revolute("crank", "rod", at=(0.2, 0, 0)),
        "wrist": Revolute("rod", "piston", at=(0.5, 0, 0)),
        "guide": Prismatic("ground", "piston", axis="x"),
    }
    ((name, motion),) = drive.items()
    return uk.Mechanism(bodies, joints | {"drive": Drive(name, motion=motion)}, (0, -9.81, 0))


def piston(angle):
    return 0.2 * np.cos(angle) + np.sqrt(0.25 - (0.2 * np.sin(angle)) ** 2)


@pytest.mark.slow
def test_piston_of_a_driven_crank_matches_closed_form():
    """Nearly three turns: the angle at every sample is the prescribed one, and the piston position follows from it."""
    mechanism, ts = slider_crank(motor=lambda t: 0.3 + 9.0 * t), np.linspace(0, 2, 9)
    q, v = mechanism.start({"motor": 0.3}, {"motor": 9.0})
    found = uk.simulate(mechanism, q, v, ts, dt=0.02)
    angle = 0.3 + 9.0 * ts
    motor, guide = read(mechanism, found.q, ("motor", "guide")).T
    np.testing.assert_allclose(motor, angle, rtol=0, atol=1e-12)
    np.testing.assert_allclose(guide, piston(angle), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_turns_are_counted_in_absolute_coordinates():
    """A driven wheel turns nearly three times."""
    joints = {"motor": Revolute("ground", "wheel"), "drive": Drive("motor", motion=lambda t: 0.3 + 9.0 * t)}
    mechanism, ts = uk.Mechanism({"wheel": WHEEL}, joints).in_absolute(), np.linspace(0, 2, 9)
    angle = 0.3 + 9.0 * ts
    q = [0, 0, 0, np.cos(0.15), 0, 0, np.sin(0.15), 0.3]
    found = uk.simulate(mechanism, q, [0, 0, 0, 0, 0, 9.0], ts, dt=0.02)
    np.testing.assert_allclose(read(mechanism, found.q, ("motor",))[:, 0], angle, rtol=0, atol=1e-12)
    turned = found.q[:, [3, 6]] * np.sign(found.q[:, 3:4] * np.cos(angle / 2)[:, None])
    np.testing.assert_allclose(turned, np.stack([np.cos(angle / 2), np.sin(angle / 2)], axis=1), rtol=0, atol=1e-11)


@pytest.mark.slow
def test_start_satisfies_a_drive_of_a_joint_that_closes_a_loop():
    """The guide of the piston closes the loop. Start from two crank angles."""
    mechanism = slider_crank(guide=lambda t: 0.625 + 0.0 * t)
    for angle in (0.4, 1.2):
        changed = eqx.tree_at(
            lambda m: m.joints.motor.reference, mechanism, jnp.array(angle), is_leaf=lambda x: x is None
        )
        q, _ = changed.start()
        found = changed.joint_coordinates(q)
        np.testing.assert_allclose(found["guide"], 0.625, rtol=0, atol=1e-13)
        np.testing.assert_allclose(piston(found["motor"]), 0.625, rtol=0, atol=1e-12)


def test_start_accepts_a_joint_that_closes_a_loop_by_name():
    """Its angle over several turns and its rate have the requested values, and the coupled wheel follows."""
    mechanism = geared(3.0, jnp.zeros(()))
    assert mechanism.coordinates[-1] == ("two", "rad")
    q, v = mechanism.start({"two": 37.5}, {"two": 6.0})
    found = mechanism.joint_coordinates(q)
    np.testing.assert_allclose([found["one"][0], found["two"][0]], [12.5, 37.5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(q[-1], 37.5, rtol=0, atol=1e-12)
    kinematic_map, names = mechanism.kinematic_map, [name for name, _ in mechanism.coordinates]
    assert kinematic_map is not None
    rates = eqx.filter_jit(kinematic_map)(q, v)
    np.testing.assert_allclose([rates[names.index("one")], rates[-1]], [2.0, 6.0], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="positions names no coordinate 'onn'; did you mean 'one'"):
        mechanism.start({"onn": 1.0})


@pytest.mark.parametrize("form", ("joint", "closing"))
def test_motion_beyond_joint_limits_gives_a_warning(form):
    """At 2 rad/s from 0: beyond 1 rad after half a second. The angle is a coordinate, or that of a closing joint."""
    joints = {"hinge": Revolute("ground", "wheel", limits=(-0.5, 1.0))}
    mechanism = in_form({"wheel": WHEEL}, {"table": Planar("ground", "wheel")}, joints, form)
    assert vars(mechanism.joints.hinge)["limits"] == (-0.5, 1.0)
    q, v = mechanism.start(None, {"hinge": 2.0})
    with pytest.warns(UserWarning, match="joint 'hinge' passes its limits, -0.5 to 1 rad, first at t = 0.6 s"):
        uk.simulate(mechanism, q, v, np.linspace(0, 1, 11), dt=0.1)
    uk.simulate(mechanism, q, v, np.linspace(0, 0.4, 5), dt=0.1)
