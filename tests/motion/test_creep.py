"""Creep of joints at rest under dry friction."""

import re
import warnings

import numpy as np
import pytest

import ukjax as uk

MASS, ARM, FRICTION = 0.02, 0.03, 0.01
LOAD = MASS * 9.81 * ARM


def finger(**how):
    """A horizontal link. The friction of its joint is larger than the torque of its weight."""
    body = uk.Body(MASS, inertia=[1e-6] * 3)
    joint = uk.joints.Revolute("ground", "tip", axis=[0, 1, 0], to=[-ARM, 0, 0], friction=FRICTION, **how)
    return uk.Mechanism({"tip": body}, {"knuckle": joint})


def test_creep_warning_gives_distance_of_creep():
    """At the rate of creep, friction equals the load: creep · artanh(load / friction)."""
    width = 0.05
    exact = width * np.arctanh(LOAD / FRICTION) * 0.2
    with pytest.warns(
        UserWarning, match=r"'knuckle' is held by dry friction but creeps by .*smooth below its creep"
    ) as told:
        found = uk.simulate(finger(creep=width), [0.0], [0.0], np.linspace(0, 0.2, 11), dt=5e-5)
    assert float(found.q[-1, 0]) == pytest.approx(exact, rel=0.1)
    said = float(str(told[0].message).split("creeps by ")[1].split(":")[0])
    assert said == pytest.approx(exact, rel=0.1)


def number(text, warning):
    """The number that follows this text in a warning."""
    found = re.search(text + r"([-+.e\d]+)", str(warning.message))
    assert found, warning.message
    return float(found[1].rstrip("."))


def test_warning_for_too_long_steps_gives_suitable_step():
    ts = np.linspace(0, 0.05, 11)
    too_long = r"'knuckle' is held .* steps of dt = 0\.001 s are too long for its friction"
    with pytest.warns(UserWarning, match=too_long) as told:
        uk.simulate(finger(), [0.0], [0.0], ts, dt=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = uk.simulate(finger(), [0.0], [0.0], ts, dt=number("take steps of ", told[0]))
    assert abs(float(found.q[-1, 0])) < 1e-3


SLOPE, WEIGHT = np.pi / 6, 2 * 9.81


def block(friction, **how):
    """A block of 2 kg on an incline."""
    downhill = [np.cos(SLOPE), 0, -np.sin(SLOPE)]
    slide = uk.joints.Prismatic("ground", "block", axis=downhill, friction=friction, **how)
    return uk.Mechanism({"block": uk.Body(2.0, inertia=[1.0] * 3)}, {"slide": slide})


@pytest.mark.parametrize("absolute", (False, pytest.param(True, marks=pytest.mark.slow)), ids=("joint", "absolute"))
def test_creep_warning_gives_suitable_creep_for_block_on_incline(absolute):
    """By default the block creeps at 1e-3 m/s artanh(load / friction). With the creep from the warning, no warning
    follows."""
    friction, ts = 12.0, np.linspace(0, 2.0, 21)
    exact = 1e-3 * np.arctanh(WEIGHT * np.sin(SLOPE) / friction) * ts[-1]

    def crept(model):
        q0, v0 = model.start()
        found = uk.simulate(model, q0, v0, ts)
        return float(np.linalg.norm(found.q[-1, :3] - found.q[0, :3])) if absolute else float(found.q[-1, 0])

    made = lambda **how: block(friction, **how).in_absolute() if absolute else block(friction, **how)
    with pytest.warns(UserWarning, match=r"'slide' is held .* 0\.001 per second, the default\. creep=") as told:
        assert crept(made()) == pytest.approx(exact, rel=0.01)
    assert number("creeps by ", told[0]) == pytest.approx(exact, rel=0.05)
    creep = number("creep=", told[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert crept(made(creep=creep)) == pytest.approx(exact * creep / 1e-3, rel=0.01)


def test_sliding_block_matches_coulomb_friction_and_energy_loss():
    """a = g sin α − f / m; the energy loss is f times the distance."""
    friction = 6.0
    model = block(friction)
    found = uk.simulate(model, [0.0], [0.2], [0.0, 1.0])
    way = 0.2 + (9.81 * np.sin(SLOPE) - friction / 2) / 2
    assert float(found.q[-1, 0]) == pytest.approx(way, rel=1e-7)
    energy = np.asarray(found.energy)
    assert energy[0] - energy[-1] == pytest.approx(friction * way, rel=1e-7)


def test_oscillator_with_dry_friction_stops_at_exact_time_and_position():
    """m = k = f = 1 from x = 12, v = 6: half cycles about 1 and −1 in turn, then rest at 15 − √205 from t = atan2(6,
    13) + 7π."""
    slide = uk.joints.Prismatic("ground", "block", axis="x", stiffness=1.0, friction=1.0)
    model = uk.Mechanism({"block": uk.Body(1.0, inertia=[1.0] * 3)}, {"slide": slide})
    rests = np.arctan2(6, 13) + 7 * np.pi
    found = uk.simulate(model, [12.0], [6.0], [0.0, rests - 0.5, rests, rests + 0.5])
    rest = 15 - np.sqrt(205)
    q = np.asarray(found.q[:, 0])
    np.testing.assert_allclose(q[1], 1 - (1 - rest) * np.cos(0.5), atol=2e-3)
    np.testing.assert_allclose(q[2:], rest, atol=2e-3)


BALL = {"arm": uk.joints.Spherical("ground", "arm", friction=3.0, creep=0.02)}
LOOP = {
    "left": uk.joints.Revolute("ground", "arm", axis="y"),
    "middle": uk.joints.Revolute("arm", "rod", axis="y", at=[0.2, 0, 0]),
    "right": uk.joints.Revolute("ground", "other", axis="y", at=[0.3, 0, 0]),
    "last": uk.joints.Revolute("rod", "other", axis="y", at=[0.3, 0, 0], to=[0.2, 0, 0], friction=30.0, creep=0.02),
}
AROUND = {"left": 0.8, "middle": -0.8, "right": 0.8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("joints", "start", "name"), ((BALL, {}, "arm_wy"), (LOOP, AROUND, "last")), ids=("ball", "closes a loop")
)
def test_creep_warning_for_spherical_joint_and_closed_loop(joints, start, name):
    bodies = {body: uk.Body(1.0, (0.1, 0, 0), inertia=[1e-2] * 3) for body in ("arm", "rod", "other")[: len(joints)]}
    model = uk.Mechanism(bodies, joints)
    with pytest.warns(UserWarning, match=f"'{name}' is held by dry friction but creeps"):
        uk.simulate(model, *model.start(start), np.linspace(0, 2.0, 21))


def test_no_creep_warning_for_sliding_or_unloaded_joint():
    level = uk.Mechanism(
        {"cart": uk.Body(1.0, inertia=[1.0] * 3)},
        {"rail": uk.joints.Prismatic("ground", "cart", axis=[1, 0, 0], friction=0.5, creep=0.01)},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        uk.simulate(level, [0.0], [1.0], np.linspace(0, 1.0, 11), dt=1e-3)
        uk.simulate(level, [0.0], [0.0], np.linspace(0, 1.0, 11), dt=1e-3)
