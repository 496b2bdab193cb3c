"""Inverse kinematics against closed forms and forward kinematics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.joints import Distance, Revolute

ROD = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0, 0.1, 0.1))
TIP = {"lower": (0.8, 0, 0)}


def planar_arm(upper=1.0, limits=None):
    elbow = Revolute("upper", "lower", at=jnp.stack([jnp.asarray(upper), 0.0, 0.0]), limits=limits)
    return uk.Mechanism({"upper": ROD, "lower": ROD}, {"shoulder": Revolute("ground", "upper"), "elbow": elbow})


def two_links(x, y, upper=1.0, lower=0.8, sign=1.0):
    """Return the angles of a planar arm in closed form."""
    elbow = sign * np.arccos((x**2 + y**2 - upper**2 - lower**2) / (2 * upper * lower))
    return np.array([np.arctan2(y, x) - np.arctan2(lower * np.sin(elbow), upper + lower * np.cos(elbow)), elbow])


@pytest.mark.parametrize("sign", (1.0, -1.0))
def test_path_of_a_planar_arm_stays_on_one_branch(sign):
    angle = np.linspace(0.0, 2 * np.pi, 60)
    points = np.stack([0.9 + 0.5 * np.cos(angle), 0.4 + 0.5 * np.sin(angle), 0 * angle], axis=1)
    found = uk.reach(planar_arm(), {"lower": points}, near=two_links(*points[0, :2], sign=sign), at=TIP, path=True)
    assert np.all(found.reached)
    expected = np.array([two_links(x, y, sign=sign) for x, y, _ in points])
    np.testing.assert_allclose(found.q, expected, rtol=0, atol=1e-11)


def test_unreachable_target_error_gives_the_remaining_distance():
    arm = planar_arm()
    with pytest.raises(uk.InputError, match="misses 'lower' 0.7 m"):
        uk.reach(arm, {"lower": (1.5, 2.0, 0.0)}, near=[0.3, 0.5], at=TIP)
    found = uk.reach(arm, {"lower": (1.5, 2.0, 0.0)}, near=[0.3, 0.5], at=TIP, throw=False)
    assert not found.reached
    np.testing.assert_allclose(found.distance["lower"], 0.7, rtol=1e-12)  # 2.5 m away, with an arm of 1.8 m
    np.testing.assert_allclose(found.q, [np.arctan2(2.0, 1.5), 0.0], atol=1e-6)
    traced = jax.jit(lambda p: uk.reach(arm, {"lower": p}, near=jnp.array([0.3, 0.5]), at=TIP).q)
    assert np.all(np.isnan(traced(jnp.array([1.5, 2.0, 0.0]))))
    np.testing.assert_allclose(traced(jnp.array([1.0, 0.5, 0.0])), two_links(1.0, 0.5), atol=1e-12)


def test_reach_respects_joint_limits():
    """The elbow stops at 1 rad: the closest point is on the circle that the tip then describes."""
    found = uk.reach(planar_arm(limits=(-0.2, 1.0)), {"lower": (0.3, 0.2, 0)}, near=[0.3, 0.5], at=TIP, throw=False)
    longest = np.sqrt(1 + 0.64 + 1.6 * np.cos(1.0))
    np.testing.assert_allclose(found.q[1], 1.0, atol=1e-12)
    np.testing.assert_allclose(found.distance["lower"], longest - np.hypot(0.3, 0.2), rtol=1e-10)


def test_pose_of_a_planar_arm_matches_closed_form():
    """Three links: the wrist is one link before the tip, in the direction of the attitude."""
    links = {name: ROD for name in "abc"}
    joints = {
        "one": Revolute("ground", "a"),
        "two": Revolute("a", "b", at=(1, 0, 0)),
        "three": Revolute("b", "c", at=(0.8, 0, 0)),
    }
    arm = uk.Mechanism(links, joints)
    x, y, turn = 0.7, 0.9, 2.0
    R = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    tip = np.array([x, y, 0]) + R @ [0.5, 0, 0]
    found = uk.reach(arm, {"c": uk.Pose(jnp.array(R), jnp.array(tip))}, near=[0.2, 0.9, 0.3], at={"c": (0.5, 0, 0)})
    first, second = two_links(x, y)
    np.testing.assert_allclose(found.q, [first, second, turn - first - second], atol=1e-11)


def four_bar(**limits):
    """Crank 0.3 m, coupler 1 m, rocker 0.9 m, ground 1 m."""
    return uk.Mechanism(
        {"crank": ROD, "coupler": ROD, "rocker": ROD},
        {
            "crank": Revolute("ground", "crank"),
            "pin": Revolute("crank", "coupler", at=(0.3, 0, 0)),
            "rocker": Revolute("ground", "rocker", at=(1, 0, 0)),
            "close": Revolute("coupler", "rocker", at=(1, 0, 0), to=(0.9, 0, 0), **limits),
        },
    )


def coupler_point(crank):
    """Return the point 0.2 m beside the middle of the coupler, by the intersection of two circles."""
    A = 0.3 * np.array([np.cos(crank), np.sin(crank)])
    to_B = np.array([1.0, 0.0]) - A
    length = np.linalg.norm(to_B)
    along = (1.0 - 0.81 + length**2) / (2 * length)
    x = to_B / length
    u = along * x + np.sqrt(1.0 - along**2) * np.array([-x[1], x[0]])
    return A + 0.5 * u + 0.2 * np.array([-u[1], u[0]]), np.arctan2(u[1], u[0])


def test_four_bar_follows_a_coupler_point_through_a_turn():
    """The loop has redundant rows. Points on the coupler curve, in closed form, determine the crank angle."""
    mechanism, cranks = four_bar(), np.linspace(0.3, 0.3 + 2 * np.pi, 80)
    points = np.array([[*coupler_point(crank)[0], 0.0] for crank in cranks])
    near = [0.3, 0.9, 1.5]  # the loop is open at this pose
    path = uk.reach(mechanism, {"coupler": points}, near=near, at={"coupler": (0.5, 0.2, 0)}, path=True)
    assert np.all(path.reached)
    np.testing.assert_allclose(path.q[:, 0], cranks, atol=1e-10)
    turned = [coupler_point(crank)[1] - crank for crank in cranks]
    np.testing.assert_allclose(np.cos(path.q[:, 1]), np.cos(turned), atol=1e-10)
    assert np.abs(mechanism.position_residual(0.0, path.q[-1])).max() < 1e-14


@pytest.mark.slow
def test_reach_respects_limits_of_a_joint_that_closes_a_loop():
    near, end = [0.3, 0.9, 1.5], 2.5  # the loop is open at this pose
    pin, turned = coupler_point(end)
    joint = pin + np.array([0.5 * np.cos(turned) + 0.2 * np.sin(turned), 0.5 * np.sin(turned) - 0.2 * np.cos(turned)])
    there = [end, turned - end, np.arctan2(joint[1], joint[0] - 1)]  # pose at which the crank would reach its target
    closing = lambda q: float(four_bar().joint_coordinates(jnp.array(q))["close"][0])
    limit = (closing(there) + closing(near)) / 2
    held = four_bar(limits=sorted([limit, 2 * closing(near) - closing(there)]))
    target = {"crank": (0.3 * np.cos(end), 0.3 * np.sin(end), 0)}
    found = uk.reach(held, target, near=near, at={"crank": (0.3, 0, 0)}, throw=False)
    assert not found.reached and near[0] < found.q[0] < end
    np.testing.assert_allclose(closing(found.q), limit, atol=1e-9)


def test_six_axis_arm_reaches_a_batch_of_poses():
    """An elbow arm with a spherical wrist."""
    axes = [
        ("z", (0, 0, 0.3)),
        ("y", (0, 0, 0.2)),
        ("y", (0, 0, 0.6)),
        ("z", (0, 0, 0.5)),
        ("y", (0, 0, 0)),
        ("z", (0, 0, 0)),
    ]
    parents = ["ground", *"abcde"]
    joints = {f"axis{i}": Revolute(parents[i], "abcdef"[i], at=at, axis=axis) for i, (axis, at) in enumerate(axes)}
    arm = uk.Mechanism({name: ROD for name in "abcdef"}, joints)
    rng = np.random.default_rng(1)
    exact = np.array([0.3, 0.5, 0.8, 0.2, 0.9, -0.4]) + rng.uniform(-0.3, 0.3, (40, 6))
    poses = jax.vmap(lambda q: arm.pose(q)["f"])(exact)
    found = uk.reach(arm, {"f": poses}, near=exact + rng.uniform(-0.15, 0.15, exact.shape))
    assert np.all(found.reached)
    np.testing.assert_allclose(found.q, exact, atol=1e-9)


@pytest.mark.slow
def test_derivatives_by_target_and_length_match_closed_form():
    """First derivatives in reverse mode; second derivatives along x in forward mode."""

    def elbow(x, upper):
        return uk.reach(planar_arm(upper), {"lower": jnp.stack([x, 0.5, 0.0])}, near=[0.1, 0.9], at=TIP).q[1]

    exact = lambda x, upper: jnp.arccos((x**2 + 0.25 - upper**2 - 0.64) / (1.6 * upper))
    along = lambda function: jax.jvp(jax.grad(function, (0, 1)), (1.1, 0.9), (1.0, 0.0))
    first, second = jax.jit(lambda: along(elbow))()
    of_first, of_second = along(exact)
    np.testing.assert_allclose(first, of_first, rtol=1e-10)
    np.testing.assert_allclose(second, of_second, rtol=1e-9)


@pytest.mark.slow
def test_reach_a_pose_with_a_quaternion():
    """A floating plate on three rods, a trifilar pendulum: it rises where it turns about the vertical."""
    body = uk.Body(1.0, inertia=(0.1, 0.1, 0.1))
    corners = [np.array([np.cos(a), np.sin(a), 0]) for a in (0, 2 * np.pi / 3, 4 * np.pi / 3)]
    rods = {f"rod{i}": Distance("ground", "plate", at=c + [0, 0, 2], to=c, length=2.0) for i, c in enumerate(corners)}
    plate = uk.Mechanism({"plate": body}, rods)
    q0, _ = plate.start()
    angle = 0.7  # trifilar pendulum: z = 2 − sqrt(4 − 2 (1 − cos))
    height = 2 - np.sqrt(4 - 2 * (1 - np.cos(angle)))
    R = jnp.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1.0]])
    found = uk.reach(plate, {"plate": uk.Pose(R, jnp.array([0, 0, height]))}, near=q0)
    np.testing.assert_allclose(np.linalg.norm(found.q[3:7]), 1, atol=1e-14)
    np.testing.assert_allclose(plate.pose(found.q)["plate"].R, R, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    (
        (lambda arm: uk.reach(arm, {"lowr": (1, 0, 0)}, [0, 0]), "targets names no body 'lowr'; did you mean 'lower'"),
        (lambda arm: uk.reach(arm, {"lower": (1, 0)}, [0, 0]), r"targets\['lower'\] must be a position"),
        (lambda arm: uk.reach(arm, {"lower": (1, 0, 0)}, [0, 0, 0]), "near must have shape"),
        (
            lambda arm: uk.reach(arm, {"lower": (1, 0, 0)}, [0, 0], at={"upper": (1, 0, 0)}),
            "at names no target 'upper'",
        ),
        (lambda arm: uk.reach(arm, {"lower": (1, 0, 0)}, [0, 0], path=True), "path must be False"),
        (lambda arm: uk.reach(arm, {"lower": np.ones((3, 3))}, np.zeros((2, 2))), "batches of the same size"),
        (lambda arm: uk.reach(arm, {"lower": uk.Pose(jnp.ones((3, 3)), jnp.ones(3))}, [0, 0]), "a rotation matrix"),
        (lambda arm: uk.reach(arm, {"lower": uk.Pose(-jnp.eye(3), jnp.ones(3))}, [0, 0]), "got a reflection"),
    ),
)
def test_bad_input_raises(call, words):
    with pytest.raises(uk.InputError, match=words):
        call(planar_arm())
