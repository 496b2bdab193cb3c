"""Robot files against MuJoCo, and errors for broken files."""

import tomllib
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax import robots
from ukjax._robot_file import doubts, read
from ukjax.joints.axis import CoordinateAxis

from ..against_mujoco import Compiled, check_against_mujoco, loaded

mujoco = pytest.importorskip("mujoco")

LONG = {"delta", "humanoid", "leg", "stewart_platform"}
"""Files with motions that take seconds to compile."""

MIXED = """
<mujoco>
  <compiler angle="degree" eulerseq="zyx"/>
  <option gravity="0.3 0 -9"><flag contact="disable" limit="disable"/></option>
  <default><joint damping="2"/></default>
  <worldbody>
    <frame pos="1 0 0" euler="0 0 90"><frame pos="0 0 1" axisangle="1 1 0 30">
      <body name="a" pos="0 1 0" euler="10 20 30">
        <joint name="j" range="-10 20" ref="5" stiffness="3" springref="7" axis="1 .2 0" pos=".1 .2 .3"/>
        <joint name="slide" type="slide" ref=".3" axis="0 1 1" armature=".3"/>
        <joint name="k" ref="30" axis="0 -1 0" pos=".1 .2 .9" armature=".3"/>
        <geom type="capsule" fromto="0 0 0 1 0 .3" size=".1"/>
        <geom type="box" fromto="0 0 .2 1 .5 .3" size=".1 .2"/>
        <geom type="box" fromto="1 .5 .3  0 0 .2" size=".05" density="300"/>
        <frame pos="1 2 3" xyaxes="0 1 0 0 0 1">
          <geom type="ellipsoid" fromto="0 0 0 1 0 .3" size=".1"/>
          <geom type="cylinder" size=".1 .3" mass="4" zaxis="1 2 3"/>
        </frame>
        <frame pos="1 0 .3" euler="9 8 7"><body name="c"><joint pos="1 2 .3"/><geom size=".3"/></body></frame>
        <body name="d" pos="1 0 0">
          <joint name="jd" type="ball" damping="0" pos=".1 .2 .3"/>
          <inertial pos=".1 .2 .3" mass="3" fullinertia="1 2 2.5 .1 .2 .3"/>
          <body name="e" quat="1 2 3 4"><geom size=".2"/>
            <body name="f-1"><joint name="lambda"/>
              <inertial pos=".1 0 0" quat="1 1 0 .3" mass="2" diaginertia="1 2 1.5"/>
            </body>
          </body>
        </body>
      </body>
    </frame></frame>
    <body name="b" pos="1 2 3" euler="10 20 30"><freejoint/><geom type="box" size=".1 .2 .3"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in robots.names()])
def test_shipped_files_match_mujoco(name):
    check_against_mujoco(robots.path(name))


def test_frames_and_masses_of_mjcf_match_mujoco(tmp_path):
    path = tmp_path / "mixed.xml"
    path.write_text(MIXED)
    mechanism = check_against_mujoco(path)
    assert mechanism.bodies.names[:3] == ("a_1", "a_2", "a")
    assert "f_1" in mechanism.bodies and "lambda_" in mechanism.joints
    assert mechanism.joints.j.limits == pytest.approx(np.radians([-10, 20]))
    there = mujoco.MjModel.from_xml_path(str(path))
    start = dict(zip((name for name, _ in mechanism.coordinates), mechanism.reference_pose()[0], strict=True))
    assert start["j"] == pytest.approx(np.radians(5)) and start["slide"] == 0.3
    np.testing.assert_allclose([start[f"b_{x}"] for x in ("x", "y", "z", "qw", "qx", "qy", "qz")], there.qpos0[-7:])


EQUALITIES = """
<mujoco>
  <compiler angle="degree"/>
  <option><flag contact="disable"/></option>
  <worldbody>
    <body name="one" pos="0 0 1" euler="0 20 0">
      <joint name="x" ref="40" axis="0 1 0"/><geom size=".1"/>
      <body name="two" pos=".3 .1 .2" euler="30 0 0"><joint name="y" axis="1 0 0"/><geom size=".1"/></body>
    </body>
    <body name="three" pos="1 0 0" euler="0 0 50"><joint name="z" ref="10"/><joint name="s" type="slide" ref=".1"/>
      <geom size=".1"/><site name="on three" pos=".1 .2 .3"/></body>
    <site name="on ground" pos=".5 0 0"/>
  </worldbody>
  <equality>
    <connect name="point" body1="two" body2="three" anchor=".3 .2 .1"/>
    <connect name="pin" body1="three" anchor="0 .2 .1"/>
    <connect name="sites" site1="on ground" site2="on three"/>
    <joint name="gear" joint1="y" joint2="x" polycoef=".1 -2 0 0 0"/>
    <joint name="cam" joint1="s" joint2="z" polycoef=".1 .2 -.3 .4 0"/>
    <joint name="held" joint1="z" polycoef=".2 0 0 0 0"/>
    <connect name="off" body1="two" body2="three" anchor="0 0 0" active="false"/>
  </equality>
</mujoco>
"""


def test_residuals_of_equalities_match_mujoco(tmp_path):
    path = tmp_path / "equalities.xml"
    path.write_text(EQUALITIES)
    with pytest.warns(UserWarning, match="equalities.xml has what is not modelled: inactive <equality> \\(line 21\\)$"):
        mechanism: Any = uk.load(path)
    there = Compiled(path, mechanism)
    theirs = there.data.efc_pos[: there.data.ne]
    couplings: dict[str, Any] = {name: mechanism.joints[name] for name in ("gear", "cam", "held")}
    assert [type(joint).__name__ for joint in couplings.values()] == ["Gear", "Cam", "Drive"]
    q = dict(zip((name for name, _ in mechanism.coordinates), there.q, strict=True))
    missed = [
        float(joint.residual(jnp.zeros(()), jnp.array([q[name] for name in joint.joints]))[0])
        for joint in couplings.values()
    ]
    np.testing.assert_allclose(missed, theirs[9:12], atol=1e-12)
    residual = np.asarray(mechanism.position_residual(0.0, jnp.asarray(there.q)))
    assert set(mechanism.tree.closures) == {"point", "pin", "sites"}
    ours = np.linalg.norm(np.reshape(residual[:9], (3, 3)), axis=1)  # MuJoCo's rows are along the axes of space
    np.testing.assert_allclose(ours, np.linalg.norm(np.reshape(theirs[:9], (3, 3)), axis=1), rtol=1e-12)


TABLE = Path(__file__).parents[1] / "mistakes" / "robot_files.toml"
BROKEN = [(ending, row) for ending, rows in tomllib.loads(TABLE.read_text()).items() for row in rows]


@pytest.mark.parametrize(("ending", "row"), BROKEN, ids=[f"{ending}-{row['what']}" for ending, row in BROKEN])
def test_broken_file_gives_a_one_line_error(ending, row, tmp_path):
    path = tmp_path / f"broken.{ending}"
    path.write_text(row["text"].removeprefix("\n"))
    with pytest.raises(ValueError) as caught:
        loaded(path)
    said = str(caught.value)
    assert row["says"].replace("FILE", str(path)) in said
    assert "\n" not in said


URDF = """<robot name="two links">
  <link name="base link"/>
  <link name="1st"><inertial><origin xyz="0.1 0 0"/><mass value="{mass}"/>
    <inertia ixx="{I}" iyy="{I}" izz="{I}" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><box size="0.2 0.05 0.05"/></geometry></visual>
    <visual><geometry><mesh filename="package://nowhere/link.stl"/></geometry></visual></link>
  <link name="2nd"><inertial><origin xyz="0.1 0 0"/><mass value="1"/>
    <inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial><collision/></link>
  <joint name="first" type="revolute"><parent link="base link"/><child link="1st"/><axis xyz="0 0 2"/>
    <limit lower="-1" upper="1" effort="8" velocity="3"/><dynamics damping="0.5" friction="0.25"/></joint>
  <joint name="second" type="continuous"><parent link="1st"/><child link="2nd"/><axis xyz="0 1 0"/>
    <origin xyz="{x} 0 0" rpy="0 0 0.3"/><mimic joint="first" multiplier="-2" offset="0.1"/></joint>
  <transmission name="t"><joint name="first"/><actuator name="m">
    <mechanicalReduction>4</mechanicalReduction></actuator></transmission>
  <gazebo/>
</robot>
"""


def written(tmp_path, mass="1", I="1e-3", x="0.2"):
    path = tmp_path / "two.urdf"
    path.write_text(URDF.format(mass=mass, I=I, x=x))
    return path


def test_joint_properties_and_shapes_of_urdf(tmp_path):
    text = r"two.urdf has what is not modelled: <gazebo> \(line 15\), <limit> \(line 10; modelled with stops=True\), "
    with pytest.warns(UserWarning, match=text) as said:
        mechanism: Any = uk.load(written(tmp_path))
    assert len(said) == 1
    assert mechanism.bodies.names == ("base_link", "body_1st", "body_2nd")
    assert mechanism.joints.names == ("base_link", "first", "second", "second_mimic")
    first, gear = mechanism.joints.first, mechanism.joints.second_mimic
    assert (float(first.damping), float(first.friction), first.limits) == (0.5, 0.25, (-1.0, 1.0))
    assert isinstance(gear, uk.joints.Gear) and (float(gear.ratio), float(gear.offset)) == (-2.0, 0.1)
    assert mechanism.actuators == (uk.Actuator("first", "first", 4.0, (-2.0, 2.0), speed_limit=3.0),)
    assert isinstance(first.axis, CoordinateAxis) and first.turn is None and first.at is None
    kinds = [(shape.kind, shape.path) for shape in mechanism.bodies.body_1st.shapes]
    assert kinds == [("box", ""), ("mesh", "package://nowhere/link.stl")]
    assert mechanism.coordinates == (("first", "rad"), ("second", "rad"))
    np.testing.assert_allclose(mechanism.gravity, (0, 0, -9.81))
    assert read(written(tmp_path)).ignored["<limit>"] == [10]


def test_floating_option_of_load(tmp_path):
    floating = loaded(written(tmp_path), floating=True)
    assert [name for name, _ in floating.coordinates][:4] == [
        "base_link_x",
        "base_link_y",
        "base_link_z",
        "base_link_qw",
    ]
    with pytest.raises(ValueError, match="an MJCF file says itself what floats"):
        uk.load(robots.path("delta"), floating=True)
    with pytest.raises(ValueError, match="<link name='world'> is the ground, and no joint fixes a link to it"):
        uk.load(robots.path("furuta_pendulum"), floating=True)


def test_keyframe_home_is_the_reference_pose(tmp_path):
    path = tmp_path / "home.xml"
    home = '<keyframe><key name="other" qpos="0 0"/><key name="home" qpos=".1 .2"/></keyframe>'
    body = '<body name="{0}"><joint name="{0}"/><geom size="1"/></body>'
    path.write_text(f"<mujoco><worldbody>{body.format('a')}{body.format('b')}</worldbody>{home}</mujoco>")
    np.testing.assert_allclose(loaded(path).reference_pose()[0], (0.1, 0.2))


@pytest.mark.parametrize(
    ("given", "line"),
    (
        ({}, None),
        ({"x": "200"}, "joint second in its parent is 200 m away: is it in millimetres?"),
        ({"I": "1e3"}, "body_1st has its mass 31.6 m about its centre"),
        ({"mass": "1000"}, "body_1st has 1000 kg in the 0.0005 m³ of its shapes: is its mass in kg?"),
    ),
)
def test_numbers_in_wrong_units_are_reported(tmp_path, given, line):
    path = written(tmp_path, **given)
    if "mass" in given:  # meshes have no known volume
        path.write_text("\n".join(row for row in path.read_text().splitlines() if "mesh" not in row) + "")
        path.write_text(
            path.read_text().replace("</geometry></visual>\n  <link", "</geometry></visual></link>\n  <link")
        )
    found = doubts(loaded(path))
    assert (found == []) if line is None else any(line in each for each in found), found


@pytest.mark.parametrize(
    ("moments", "line"),
    (
        ('ixx="1e-3" iyy="1e-3" izz="3e-3" ixy="0"', "of its moments 0.001, 0.001, 0.003 two are less than the third"),
        ('ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="3e-3"', "of its moments -0.002, 0.001, 0.004 one is negative"),
    ),
)
def test_impossible_inertias_are_reported(tmp_path, moments, line):
    path = written(tmp_path)
    path.write_text(path.read_text().replace('ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0"', moments))
    assert [line in each for each in doubts(loaded(path))] == [True, True]


def test_missing_mujoco_error_names_the_package_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match=r"an MJCF file needs the package mujoco: pip install 'ukjax\[mjcf\]'"):
        uk.load(robots.path("delta"))


def test_too_old_mujoco_raises(monkeypatch):
    monkeypatch.setattr(mujoco, "__version__", "3.3.6")
    with pytest.raises(ImportError, match=r"needs mujoco 3\.3\.7 or later, got 3\.3\.6: pip install -U"):
        uk.load(robots.path("delta"))
    wanted = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert wanted["project"]["optional-dependencies"]["mjcf"] == ["mujoco>=3.3.7"]


def test_robot_names_and_misspelt_name():
    assert len(robots.names()) == 10
    with pytest.raises(ValueError, match="no robot is named 'dleta'; did you mean 'delta'?"):
        robots.path("dleta")


def test_start_can_be_traced_and_batched():
    """Ensembles and estimates do this, for members whose parameters may change the start."""
    joints = {"pin": uk.joints.Revolute("ground", "pendulum")}
    mechanism = uk.Mechanism({"pendulum": uk.Body(0.1, (0.1, 0, 0))}, joints)
    masses = jnp.array([0.1, 0.2])

    def start(mass):
        return eqx.tree_at(lambda m: m.bodies.pendulum.mass, mechanism, mass).start({"pin": 0.3})

    q, v = jax.eval_shape(jax.vmap(start), masses)
    assert q.shape == v.shape == (2, 1)
