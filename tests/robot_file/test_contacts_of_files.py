"""Stops and contacts of robot files: pairs, distances and friction against MuJoCo."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.contacts import Box, Capsule, Cylinder, Plane, Sphere

from ..against_mujoco import Compiled, loaded

SCENE = """<mujoco>
  <option timestep="0.001"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1" pos="0 0 -6" euler="10 20 0" friction=".7"/>
    <geom name="wall" type="capsule" size=".2" fromto="3 0 0 3 1 2" friction="2"/>
    <body name="still" pos="0 0 1"><geom name="post" type="sphere" size=".2" contype="2"/></body>
    <body name="a" pos="1 2 3"><freejoint/>
      <geom name="ball" type="sphere" size=".3" pos=".1 .2 .3" friction=".3"/>
      <geom name="stick" type="capsule" size=".1 .5" euler="10 50 0" priority="1" condim="1"/>
      <geom name="ghost" type="sphere" size=".1" contype="0" conaffinity="0"/>
    </body>
    <body name="b" pos="-1 0 0"><joint name="b" axis="1 1 0"/>
      <geom name="box" type="box" size=".1 .2 .3" pos="0 .1 .2" euler="30 20 10"/>
      <body name="c" pos=".5 .5 0"><joint name="c" axis="0 0 1"/>
        <geom name="can" type="cylinder" size=".1 .4" pos=".1 0 .2" euler="40 10 0" condim="6"/>
        <body name="d" pos="0 .5 0"><geom name="knob" type="sphere" size=".15"/>
          <body name="e" pos="0 .5 0"><joint name="e" axis="1 0 0"/>
            <geom name="tip" type="capsule" size=".05 .2" priority="1" friction=".4"/>
          </body>
        </body>
      </body>
    </body>
    <body name="f" pos="0 3 0"><freejoint/>
      <geom name="egg" type="ellipsoid" size=".1 .2 .3"/>
      <geom name="low" type="sphere" size=".1" pos="0 0 1" contype="4" conaffinity="4"/>
    </body>
  </worldbody>
  <contact>
    <exclude body1="a" body2="e"/>
    <pair geom1="low" geom2="floor" friction=".25 .25 .1 .1 .1"/>
    <pair geom1="wall" geom2="ball" condim="4" friction=".6 .5 .1 .1 .1"/>
  </contact>
</mujoco>"""


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    path = tmp_path_factory.mktemp("scene") / "scene.xml"
    path.write_text(SCENE)
    with pytest.warns(UserWarning, match="what is not modelled") as caught:
        robot = uk.load(path, contacts=True)
    return path, robot, str(caught[0].message)


def test_contact_pairs_distances_and_friction_match_mujoco(scene):
    """With a margin larger than the scene, MuJoCo has a contact for each pair that it would check."""
    mujoco = pytest.importorskip("mujoco")
    path, robot, message = scene
    there = Compiled(path, robot)
    there.model.geom_margin[:] = there.model.pair_margin[:] = there.model.body_margin[:] = 100.0
    there.model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    mujoco.mj_forward(there.model, there.data)
    wanted, unsupported = {}, set()
    for contact in there.data.contact:
        names = frozenset(there.model.geom(i).name for i in contact.geom)
        kinds = {str(mujoco.mjtGeom(there.model.geom_type[i])).rpartition("_")[2].lower() for i in contact.geom}
        if not ("plane" in kinds and "ellipsoid" not in kinds or kinds <= {"sphere", "capsule"}):
            unsupported.add(" with ".join(sorted(kinds) if len(kinds) > 1 else [*kinds] * 2))
            continue
        friction = None if contact.dim == 1 else float(contact.friction[0])
        least = min(contact.dist, wanted.get(names, (np.inf,))[0])
        wanted[names] = least, friction
    found = {}
    all_gaps = jax.jit(lambda q: [constraint.gaps(jnp.zeros(()), q) for constraint in robot.nonsmooth])
    for constraint, gaps in zip(robot.nonsmooth, all_gaps(jnp.asarray(there.q)), strict=True):
        mu = constraint.coefficients(len(gaps)) if constraint.contacts[0].friction is not None else [None] * len(gaps)
        for name, gap, friction in zip(constraint.name, gaps, mu, strict=True):
            key = frozenset(name.partition("[")[0].split(" on "))
            least = min(float(gap), found.get(key, (np.inf,))[0])
            found[key] = least, None if friction is None else float(friction)
    assert set(found) == set(wanted)
    assert len(found) == len(robot.contacts) > 15
    for names, (distance, friction) in wanted.items():
        assert found[names][1] == pytest.approx(friction, abs=1e-12), names
        assert found[names][0] == pytest.approx(distance, abs=1e-9), names
    assert unsupported and all(f"contact of {words}" in message for words in unsupported)
    assert message.count("contact of ") == len(unsupported)
    assert "torsional and rolling friction" in message and "second coefficient of friction of <pair>" in message


def test_disabled_contacts_of_a_file_give_a_warning(tmp_path):
    path = tmp_path / "off.xml"
    path.write_text(SCENE.replace("<option ", '<option><flag contact="disable"/></option><option '))
    with pytest.warns(UserWarning, match="no contacts that can be modelled, although contacts are requested"):
        assert not uk.load(path, contacts=True).contacts


def test_warning_names_the_contacts_option(scene):
    with pytest.warns(UserWarning, match=r"contacts of <geom> \(lines 4, 5, 6, ...; modelled with contacts=True\)"):
        assert not uk.load(scene[0]).contacts


def test_joint_ranges_are_stops(tmp_path):
    text = """<mujoco><worldbody><body name="a"><joint name="a" axis="0 1 0" range="-30 60"/>
      <geom size=".1" pos=".5 0 0" contype="0" conaffinity="0"/>
      <body name="b"><joint name="b" type="ball" range="0 40"/><geom size=".1" contype="0" conaffinity="0"/></body>
      </body></worldbody></mujoco>"""
    path = tmp_path / "arm.xml"
    path.write_text(text)
    with pytest.warns(UserWarning, match=r"<joint range> \(lines 1, 3; modelled with stops=True\)$"):
        assert not uk.load(path).nonsmooth
    with pytest.warns(UserWarning, match=r"<joint range> of a ball \(line 3\)$"):
        arm: Any = uk.load(path, stops=True)
    (stops,) = arm.nonsmooth
    np.testing.assert_allclose(stops.gaps(jnp.zeros(()), jnp.array([0.2, 1, 0, 0, 0])), np.pi / 6 + 0.2)
    assert stops.name == ("a",) and float(arm.joints.a.restitution) == 0


URDF = """<robot name="cart">
  <link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 .2" rpy="0 0 1"/><geometry><box size=".4 .2 .1"/></geometry></collision>
    <collision><geometry><mesh filename="nowhere.stl"/></geometry></collision>
  </link>
  <link name="wheel"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin rpy="1.570796326794897 0 0"/><geometry><cylinder radius=".1" length=".05"/></geometry>
    </collision>
    <collision><origin xyz="0 .1 0"/><geometry><sphere radius=".02"/></geometry></collision>
    <collision><geometry><capsule radius=".02" length=".3"/></geometry></collision>
  </link>
  <joint name="axle" type="revolute"><parent link="base"/><child link="wheel"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="2" effort="3" velocity="4"/></joint>
</robot>"""


def test_collision_shapes_of_urdf_touch_a_plane(tmp_path):
    path = tmp_path / "cart.urdf"
    path.write_text(URDF)
    ground = Plane(at=(0, 0, -1))
    text = (
        r"<limit> \(line 13; modelled with stops=True\), <collision> \(lines 3, 4, 7, ...; modelled with contacts=ukj"
    )
    with pytest.warns(UserWarning, match=text):
        assert not uk.load(path).contacts
    with pytest.warns(UserWarning, match=r"not modelled: <collision> with <mesh> \(line 4\)$"):
        cart = uk.load(path, floating=True, stops=True, contacts=ground, friction=0.6)
    kinds = [(type(contact.a), contact.a.body, contact.name) for contact in cart.contacts]
    assert kinds == [
        (Box, "base", "base on ground"),
        (Cylinder, "wheel", "wheel on ground"),
        (Sphere, "wheel", "wheel on ground"),
        (Capsule, "wheel", "wheel on ground"),
    ]
    stops, contacts = cart.nonsmooth
    np.testing.assert_allclose(contacts.coefficients(21), 0.6)
    gaps = np.asarray(contacts.gaps(jnp.zeros(()), cart.start()[0]))
    np.testing.assert_allclose(np.sort(gaps[:8]), np.repeat([1.15, 1.25], 4), atol=1e-12)
    np.testing.assert_allclose([gaps[8:18].min(), *gaps[18:]], [0.9, 0.98, 0.83, 1.13], atol=1e-12)
    assert stops.name == ("axle",)
    # Bodies fixed to the ground have no contact with it.
    fixed = loaded(path, contacts=ground)
    assert {contact.a.body for contact in fixed.contacts} == {"wheel"} and fixed.contacts[0].friction is None


BAD = {
    "no plane": (dict(contacts=True), "contacts must be a plane for URDF, which has no ground"),
    "friction alone": (dict(friction=0.5), "friction is for contacts=ukjax.contacts.Plane"),
    "restitution": (dict(stops=True, restitution=2), "restitution must be one number not below 0"),
    "negative friction": (dict(contacts=Plane(), friction=-1), "friction must be one number not below 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_options_raise(tmp_path, what):
    path = tmp_path / "cart.urdf"
    path.write_text(URDF)
    options, message = BAD[what]
    with pytest.raises(uk.InputError, match=message):
        loaded(path, **options)


def test_contact_plane_with_mjcf_raises(scene):
    with pytest.raises(uk.InputError, match="contacts must be True or False for MJCF"):
        uk.load(scene[0], contacts=Plane())
