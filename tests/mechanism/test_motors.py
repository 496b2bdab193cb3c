"""Motors of mechanisms: control laws, limits and reports, against MuJoCo and closed forms."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

mujoco: Any = pytest.importorskip("mujoco")

ARM = """
<mujoco><worldbody><body><joint name="turn" axis="0 1 0" ref="10" actuatorfrcrange="-3 3"/>
  <geom type="box" size=".1 .2 .3" pos=".1 0 .3" contype="0" conaffinity="0"/>
  <body pos="0 0 .6"><joint name="bend" axis="0 1 0" armature=".1"/>
    <geom type="box" size=".1 .1 .3" pos="0 .1 .3" contype="0" conaffinity="0"/>
    <body pos="0 0 .6"><joint name="reach" type="slide" axis="1 0 1"/>
      <geom type="box" size=".1 .1 .1" contype="0" conaffinity="0"/></body></body></body></worldbody>
<actuator>
  <motor name="pull" joint="turn" gear="3" ctrlrange="-.8 1.2"/>
  <position name="angle" joint="bend" kp="40" kv="3" gear="2" forcerange="-20 30"/>
  <position name="damped" joint="bend" kp="5" dampratio="1" ctrlrange="-1 2"/>
  <velocity name="rate" joint="reach" kv="7"/>
  <damper name="brake" joint="bend" kv="2" ctrlrange="0 2"/>
  <general name="mixed" joint="reach" gear="-.5" ctrlrange="-1 1" forcerange="-2 1"
    gaintype="affine" gainprm="2 1 .5" biastype="affine" biasprm=".3 -2 -.1"/>
</actuator></mujoco>"""

LOOP = """
<mujoco><option><flag clampctrl="disable"/></option><worldbody>
  <body><joint name="left" axis="0 1 0"/><geom type="capsule" size=".02" fromto="0 0 0 0 0 .3" contype="0"
    conaffinity="0"/><body pos="0 0 .3"><joint name="top" axis="0 1 0"/><geom type="capsule" size=".02"
    fromto="0 0 0 .5 0 0" contype="0" conaffinity="0"/></body></body>
  <body name="right" pos=".5 0 0"><joint name="right" axis="0 1 0"/><geom type="capsule" size=".02"
    fromto="0 0 0 0 0 .3" contype="0" conaffinity="0"/></body></worldbody>
<equality><connect body1="right" anchor="0 0 .3"/></equality>
<actuator><motor joint="left" ctrlrange="-1 1" gear="2"/>
  <position joint="right" kp="20" forcerange="-.5 .5"/></actuator></mujoco>"""


@pytest.fixture(scope="module", params=(ARM, LOOP), ids=("arm", "loop"))
def pair(request, tmp_path_factory):
    """A robot, and MuJoCo's model and data of the same file."""
    path = tmp_path_factory.mktemp("motors") / "robot.xml"
    path.write_text(request.param)
    with pytest.warns(UserWarning, match=r"<actuator> that holds its joint .*modelled with robot.driven\(robot.motors"):
        robot = uk.load(path)
    model = mujoco.MjModel.from_xml_path(str(path))
    return robot, model, mujoco.MjData(model)


def test_motor_forces_match_mujoco(pair):
    robot, model, data = pair
    motors, random = robot.motors(), np.random.default_rng(0)
    force, of_motors_at = eqx.filter_jit(motors.force), eqx.filter_jit(motors.motor_force)
    saturated = np.zeros(model.nu)
    for _ in range(20):
        q, v, u = random.normal(size=model.nq), random.normal(size=model.nv), 2 * random.normal(size=model.nu)
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, v, u
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(
            force(jnp.zeros(()), jnp.array(q), jnp.array(v), jnp.array(u)), data.qfrc_actuator, rtol=1e-13, atol=1e-13
        )
        of_motors = of_motors_at(jnp.zeros(()), jnp.array(q), jnp.array(v), jnp.array(u))
        # MuJoCo limits the total force of the joint (actuatorfrcrange); ukjax limits that of its only motor.
        expected_force = np.clip(data.actuator_force, *np.asarray(motors.force_limits).T)
        np.testing.assert_allclose(of_motors.force, expected_force, rtol=1e-13, atol=1e-13)
        saturated += of_motors.saturated
        if not robot.tree.closures:  # MuJoCo's loops are soft
            driven = robot.driven(robot.motors(u))
            acceleration = uk.constrained_motion(driven(0.0, q, v)).acceleration
            np.testing.assert_allclose(acceleration, data.qacc, rtol=1e-11, atol=1e-11)
    expected = {"pull": True, "angle": True, "damped": True, "rate": False, "brake": True, "mixed": True}
    names = [name for name, _ in motors.inputs]
    assert [n > 0 for n in saturated] == [expected.get(name, name == "motor_2") for name in names]


def test_inputs_of_motors_have_units(pair):
    robot, _, _ = pair
    units = dict(robot.motors().inputs)
    expected = {"pull": "N m", "angle": "rad", "damped": "rad", "rate": "m/s", "brake": "", "mixed": ""}
    assert units == (expected if "pull" in units else {"motor_1": "N m", "motor_2": "rad"})


def sliding(*actuators: uk.Actuator, mass=2.0):
    """A mass on a rail, without gravity along it."""
    rail = uk.joints.Prismatic("ground", "cart", axis="x")
    return uk.Mechanism({"cart": uk.Body(mass, (0, 0, 0), (1, 1, 1))}, {"rail": rail}, actuators=actuators)


@pytest.fixture(scope="module")
def servo():
    return sliding(uk.Actuator.position("servo", "rail", kp=18.0, gear=2.0, force_limits=(-50.0, 10.0)))


def test_a_position_servo_swings_about_its_target(servo):
    """2 ẍ = gear kp (u − gear x): ω² = 36, about u / gear."""
    ts = jnp.linspace(0, 2, 21)
    motion: Any = uk.simulate(servo.driven(servo.motors({"servo": 0.5})), [0.0], [0.0], ts, rtol=1e-11)
    np.testing.assert_allclose(motion.q[:, 0], 0.25 * (1 - np.cos(6 * ts)), atol=1e-9)
    assert not np.any(motion.motors.saturated)
    np.testing.assert_allclose(motion.motors.force[:, 0], 18 * (0.5 - 2 * motion.q[:, 0]), atol=1e-12)


def test_a_position_servo_turns_past_half_a_turn_in_absolute_coordinates():
    """Its torque at 4 rad is 2.5 − 4 N m, and about the axis z."""
    wheel = uk.Mechanism(
        {"wheel": uk.Body(1.0, inertia=(0.1, 0.1, 0.2))},
        {"hinge": uk.joints.Revolute("ground", "wheel")},
        (0, 0, 0),
        actuators=[uk.Actuator.position("servo", "hinge", kp=1.0)],
    ).in_absolute()
    q = jnp.array([0, 0, 0, np.cos(2.0), 0, 0, np.sin(2.0), 4.0])
    force = wheel.motors().force(jnp.zeros(()), q, jnp.zeros(6), jnp.array([2.5]))
    np.testing.assert_allclose(force, [0, 0, 0, 0, 0, -1.5], rtol=0, atol=1e-12)


def test_motion_with_a_force_limit_and_its_derivative_match_closed_form(servo):
    """The force is 10 N times the gear until x = (u − 10/kp)/2; then an oscillation. x(0.3) in closed form."""

    def at_end(u, **options):
        return uk.simulate(servo.driven(servo.motors(jnp.array([u]))), [0.0], [0.0], [0.0, 0.3], **options)

    def by_hand(u):
        x = (u - 10 / 18) / 2
        t, speed = np.sqrt(2 * x / 10), np.sqrt(2 * x * 10)  # 10 m/s² = 2 · 10 N / 2 kg
        angle = 6 * (0.3 - t)
        return u / 2 - (u / 2 - x) * np.cos(angle) + speed / 6 * np.sin(angle)

    motion: Any = at_end(1.0, rtol=1e-11)
    np.testing.assert_allclose(motion.q[-1, 0], by_hand(1.0), atol=1e-9)
    assert motion.motors.saturated[:, 0].tolist() == [True, False]
    assert str(motion.motors) == "servo: largest force 10, at a limit in 1 of 2 samples, first at t = 0 s"
    _, slope = jax.jvp(lambda u: at_end(u, dt=2e-4).q[-1, 0], (1.0,), (1.0,))
    h = 1e-6
    np.testing.assert_allclose(slope, (by_hand(1 + h) - by_hand(1 - h)) / (2 * h), rtol=1e-3)


def test_step_accepts_inputs_of_motors(servo):
    robot = servo.driven(servo.motors())
    state = uk.initial_state(robot, [[0.0], [0.1]], [[0.0], [0.0]])
    state = uk.step(robot, state, 0.1, u=[[0.5], [0.2]], steps=100)
    np.testing.assert_allclose(state.q[:, 0], [0.25 * (1 - np.cos(0.6)), 0.1], atol=1e-8)


def test_derivative_by_a_motor_gain_matches_closed_form(servo):
    """The frequency is 2 √(kp/m): the derivative of x by kp in closed form."""
    robot = servo.driven(servo.motors({"servo": 0.5}))

    def end(kp):
        control = robot.control
        gain, bias = control.gain.at[0, 0].set(kp), control.bias.at[0, 1].set(-kp)
        changed = eqx.tree_at(lambda m: (m.control.gain, m.control.bias), robot, (gain, bias))
        return uk.simulate(changed, [0.0], [0.0], [0.0, 0.4], dt=1e-3).q[-1, 0]

    np.testing.assert_allclose(jax.grad(end)(18.0), 0.25 * np.sin(2.4) * 0.4 * 6 / 36, rtol=1e-8)


def test_linearize_contains_the_gain_of_a_servo(servo):
    linear = uk.linearize(servo.driven(servo.motors()), [0.0])
    np.testing.assert_allclose(linear.A, [[0, 1], [-36, 0]], atol=1e-12)
    np.testing.assert_allclose(linear.B, [[0], [18]], atol=1e-12)
    assert linear.inputs == (("servo", "m"),)


def test_each_joint_of_a_transmission_has_its_own_reduction(tmp_path):
    body = '<inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    links = "".join(f'<link name="{name}">{body}</link>' for name in "abc")
    joints = "".join(
        f'<joint name="{x}{y}" type="continuous"><parent link="{x}"/><child link="{y}"/><axis xyz="0 0 1"/></joint>'
        for x, y in ("ab", "bc")
    )
    gears = "".join(
        f'<joint name="{name}"><mechanicalReduction>{ratio}</mechanicalReduction></joint>'
        for name, ratio in (("ab", 50), ("bc", -30))
    )
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="r">{links}{joints}<transmission name="t">{gears}</transmission></robot>')
    assert [(each.joint, each.gear) for each in uk.load(path).actuators] == [("ab", 50.0), ("bc", -30.0)]


def test_effort_and_velocity_limits_of_a_urdf(tmp_path):
    path = tmp_path / "robot.urdf"
    link = '<inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    path.write_text(
        f'<robot name="r"><link name="base"/><link name="cart">{link}</link><joint name="rail" type="prismatic">'
        '<parent link="base"/><child link="cart"/><axis xyz="1 0 0"/>'
        '<limit lower="-9" upper="9" effort="4" velocity="1.5"/></joint></robot>'
    )
    with pytest.warns(UserWarning, match="<limit>"):
        robot = uk.load(path)
    motion: Any = uk.simulate(robot.driven(robot.motors({"rail": 100.0})), *robot.start(), [0.0, 0.5, 1.0])
    np.testing.assert_allclose(motion.q[:, 0], [0, 0.25, 1.0], atol=1e-9)  # 4 N on 2 kg
    assert motion.motors.too_fast[:, 0].tolist() == [False, False, True]
    assert "faster than its speed limit in 1 of 3 samples, first at t = 1 s" in str(motion.motors)


SMALL = """<mujoco><worldbody><body><joint name="a" axis="0 1 0" {}/><geom size=".1" contype="0" conaffinity="0"/>
  <site name="s"/></body></worldbody><tendon><fixed name="t"><joint joint="a" coef="2"/></fixed></tendon>
  <actuator>{}</actuator></mujoco>"""


@pytest.mark.parametrize(
    ("joint", "actuator", "reason"),
    (
        ("", '<motor tendon="t"/>', "<actuator> on no joint"),
        ("", '<motor site="s" gear="1 0 0 0 0 0"/>', "<actuator> on no joint"),
        ("", '<intvelocity joint="a" kp="2" actrange="-1 1"/>', "<actuator> with a state of its own"),
        ("", '<cylinder joint="a" timeconst=".1"/>', "<actuator> with a state of its own"),
        ('actuatorfrcrange="-1 1"', '<motor joint="a"/><motor joint="a"/>', "actuatorfrcrange limits several forces"),
    ),
)
def test_unsupported_actuator_gives_a_warning(joint, actuator, reason, tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text(SMALL.format(joint, actuator))
    with pytest.warns(UserWarning, match=re.escape(reason)):
        robot = uk.load(path)
    assert robot.actuators == ()
    with pytest.raises(uk.InputError, match="has no actuators"):
        robot.motors()


def test_default_name_of_a_motor_does_not_repeat_a_name_of_the_file(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text(SMALL.format("", '<motor joint="a" gear="2"/><motor name="motor_1" joint="a" gear="3"/>'))
    with pytest.warns(UserWarning, match="<tendon>"):
        robot = uk.load(path)
    assert [(motor.name, motor.gear) for motor in robot.actuators] == [("motor_1_", 2.0), ("motor_1", 3.0)]


wrong_gain: Any = (1.0, 2.0)


def on_a_cylindrical_joint():
    joint = uk.joints.Cylindrical("ground", "cart", axis="x")
    body = uk.Body(1.0, (0, 0, 0), (1, 1, 1))
    return uk.Mechanism({"cart": body}, {"rail": joint}, actuators=[uk.Actuator("m", "rail")]).motors()


@pytest.mark.parametrize(
    ("wrong", "message"),
    (
        (lambda: sliding(uk.Actuator("m", "rail", gain=wrong_gain)), "gain of actuator 'm' must be a number or three"),
        (lambda: sliding(uk.Actuator("m", "rail", bias=(0, np.nan, 0))), "bias of actuator 'm' must be three numbers"),
        (lambda: sliding(uk.Actuator("m", "rail", force_limits=(2, 1))), "force_limits of actuator 'm' must be two"),
        (lambda: sliding(uk.Actuator("m", "rail", speed_limit=-1.0)), "speed_limit of actuator 'm' must be one number"),
        (lambda: sliding(uk.Actuator("motor", "rail")).motors({"moto": 1.0}), "no motor 'moto'; did you mean 'motor'"),
        (lambda: sliding(uk.Actuator("motor", "rail")).motors({"motor": "x"}), r"law\['motor'\] must be one number"),
        (on_a_cylindrical_joint, "must be on a joint with one coordinate, and 'rail' has 2"),
    ),
)
def test_bad_actuators_raise(wrong, message):
    with pytest.raises(uk.InputError, match=message):
        wrong()


def test_wrong_number_of_inputs_raises(servo):
    with pytest.raises(uk.InputError, match=r"law must have shape \(1,\), one entry per motor, got shape \(2,\)"):
        uk.simulate(servo.driven(servo.motors([1.0, 2.0])), [0.0], [0.0], [0.0, 1.0])
