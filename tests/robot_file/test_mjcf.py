"""Attributes of <compiler>, <inertial>, <joint> and <equality> in MuJoCo's XML reference, against MuJoCo."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..against_mujoco import Compiled, check_against_mujoco, loaded, terms

mujoco = pytest.importorskip("mujoco")

BODIES = """
  <worldbody>
    <body name="base" pos=".1 .2 .3"><geom size=".2"/>
      <body name="a" euler="20 30 -40"><joint name="a" axis="1 2 3" pos=".1 0 0"/>
        <geom type="box" size=".1 .2 .3" pos=".1 .2 .1" group="1"/>
        <geom type="capsule" size=".1 .2" pos=".1 .3 .1" euler="30 0 10" group="3" contype="0" conaffinity="0"/>
        <body name="still" pos=".1 0 .2"><geom size=".1" pos=".3 0 0" contype="0" conaffinity="0"/></body>
      </body>
    </body>
    <body name="b" pos="1 2 3" euler="10 20 30"><freejoint/>
      <inertial pos=".1 .2 .3" mass="5" diaginertia=".1 .2 .25"/><geom type="cylinder" size=".1 .3" pos=".1 0 0"/>
    </body>
    <body name="c"><joint name="c" type="slide" axis="0 1 1"/>
      <inertial pos="0 .1 0" mass="2" fullinertia="1 2 2.5 .1 .2 .3"/>
    </body>
  </worldbody>
"""
MESH = """
  <asset><mesh name="m" file="{}"/></asset>
  <worldbody>
    <body name="a"><joint name="a" axis="1 2 3"/><geom type="{}" mesh="m" pos=".1 .2 .3" euler="1 2 3"/></body>
  </worldbody>
"""
LIGHT = '<inertial pos="0 0 1" mass="1e-3" diaginertia="1e-4 2e-4 2e-4"/>'
NO_BODY = '<inertial pos="0 0 1" mass="1" fullinertia="1 2 9 .1 .2 .3"/>'
ONE = '<worldbody><body name="a"><joint name="a"/>{}</body></worldbody>'

COMPILER = {
    "autolimits": '<compiler autolimits="false"/>' + BODIES,
    "boundmass": '<compiler boundmass="2"/>' + ONE.format(LIGHT),
    "boundinertia": '<compiler boundinertia=".5"/>' + ONE.format(LIGHT),
    "boundmass and boundinertia": '<compiler boundmass=".5" boundinertia=".7"/>' + ONE.format(""),
    "settotalmass": '<compiler settotalmass="9"/>' + BODIES,
    "settotalmass, after boundmass": '<compiler settotalmass="9" boundmass="6"/>' + BODIES,
    "balanceinertia": '<compiler balanceinertia="true"/>' + ONE.format(NO_BODY),
    "strippath": '<compiler strippath="true"/>' + MESH.format("nowhere/wedge.stl", "mesh"),
    "coordinate": '<compiler coordinate="local"/>' + BODIES,
    "angle": '<compiler angle="radian"/>' + BODIES,
    "fitaabb": '<compiler fitaabb="true" meshdir="meshes"/>' + MESH.format("wedge.stl", "ellipsoid"),
    "fitaabb false": '<compiler meshdir="meshes"/>' + MESH.format("wedge.stl", "capsule"),
    "eulerseq": '<compiler eulerseq="ZxY"/>' + BODIES,
    "meshdir": '<compiler meshdir="meshes"/>' + MESH.format("wedge.stl", "mesh"),
    "texturedir": '<compiler texturedir="nowhere"/>' + BODIES,
    "assetdir": '<compiler assetdir="meshes"/>' + MESH.format("wedge.stl", "mesh"),
    "discardvisual": '<compiler discardvisual="true"/>' + BODIES,
    "usethread": '<compiler usethread="false"/>' + BODIES,
    "fusestatic": '<compiler fusestatic="true"/>' + BODIES,
    "inertiafromgeom auto": '<compiler inertiafromgeom="auto"/>' + BODIES,
    "inertiafromgeom true": '<compiler inertiafromgeom="true"/>' + BODIES,
    "inertiafromgeom false": '<compiler inertiafromgeom="false"/>' + ONE.format(LIGHT + '<geom size="1"/>'),
    "alignfree": '<compiler alignfree="true"/>' + BODIES,
    "inertiagrouprange": '<compiler inertiagrouprange="1 1"/>'
    + ONE.format('<geom size="1"/><geom size=".5" group="1"/>'),
    "inertiagrouprange, none in it": '<compiler inertiagrouprange="2 2" inertiafromgeom="true"/>'
    + ONE.format(LIGHT + '<geom size="1"/>'),
    "saveinertial": '<compiler saveinertial="true"/>' + BODIES,
    "lengthrange": '<compiler><lengthrange mode="none"/></compiler>' + BODIES,
}
INERTIAL = {
    "pos": 'pos=".1 .2 .3" mass="2" diaginertia="1 2 1.5"',
    "mass": 'pos="0 0 0" mass="1e-9" diaginertia="1 2 1.5"',
    "diaginertia": 'pos="0 0 0" mass="2" diaginertia="1e-9 1e-12 1e-9"',
    "fullinertia": 'pos=".1 0 0" mass="2" fullinertia="1 2 2.5 .1 .2 .3"',
    "quat": 'pos=".1 0 0" mass="2" diaginertia="1 2 1.5" quat="1 2 3 4"',
    "axisangle": 'pos=".1 0 0" mass="2" diaginertia="1 2 1.5" axisangle="1 2 3 40"',
    "xyaxes": 'pos=".1 0 0" mass="2" diaginertia="1 2 1.5" xyaxes="1 2 3 0 1 0"',
    "zaxis": 'pos=".1 0 0" mass="2" diaginertia="1 2 1.5" zaxis="1 2 3"',
    "euler": 'pos=".1 0 0" mass="2" diaginertia="1 2 1.5" euler="10 20 30"',
}
JOINT = {
    "type hinge": 'type="hinge"',
    "type slide": 'type="slide"',
    "type ball": 'type="ball"',
    "type free": 'type="free"',
    "class": 'class="d"',
    "group, user": 'group="3"',
    "pos, axis": 'pos=".1 .2 .3" axis="1 2 3"',
    "pos of a ball": 'type="ball" pos=".1 .2 .3"',
    "springdamper": 'springdamper=".1 1" pos=".1 .2 .3"',
    "springdamper of a slide": 'springdamper=".1 .5" type="slide"',
    "springdamper of a ball": 'springdamper=".1 1" type="ball"',
    "solreflimit, solimplimit": 'solreflimit=".1 1" solimplimit=".8 .9 .01"',
    "solreffriction, solimpfriction": 'solreffriction=".1 1" solimpfriction=".8 .9 .01"',
    "stiffness": 'stiffness="30"',
    "stiffness of a slide": 'stiffness="30" type="slide"',
    "stiffness of a ball": 'stiffness="30" type="ball"',
    "stiffness of what is free": 'stiffness="30" type="free"',
    "range, limited, margin": 'range="-10 20" limited="true" margin=".1"',
    "range of a ball": 'range="0 20" type="ball"',
    "actuatorfrcrange, actuatorfrclimited": 'actuatorfrcrange="-1 1" actuatorfrclimited="true"',
    "actuatorgravcomp": 'actuatorgravcomp="true"',
    "ref": 'ref="30" axis="1 2 3" pos=".1 .2 .3"',
    "ref of a slide": 'ref=".3" type="slide" axis="1 2 3"',
    "springref": 'springref="30" stiffness="20" ref="10"',
    "springref of a slide": 'springref=".3" stiffness="20" type="slide"',
    "armature": 'armature=".3"',
    "armature of a ball": 'armature=".3" type="ball"',
    "armature of what is free": 'armature=".3" type="free"',
    "damping": 'damping="3"',
    "damping of a ball": 'damping="3" type="ball"',
    "damping of what is free": 'damping="3" type="free"',
    "frictionloss": 'frictionloss=".3"',
    "of a motor": 'name="driven"',
}
FREE = {"freejoint": "", "freejoint align": 'align="true"'}
TURNED = """<frame pos=".1 .2 .3" euler="10 20 30"><body name="b{}" euler="30 0 20">{}
  <geom type="box" size=".1 .2 .3" pos=".1 .2 .1"/></body></frame>"""


def write(tmp_path, text):
    """Write an MJCF file, with a wedge as a mesh."""
    path = tmp_path / "some.xml"
    path.write_text(f"<mujoco>{text}</mujoco>")
    corners = np.array([[0, 0, 0], [0.5, 0, 0], [0, 0.3, 0], [0, 0, 0.2]])
    faces = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
    for folder in (tmp_path, tmp_path / "meshes"):
        folder.mkdir(exist_ok=True)
        as_binary(corners[np.array(faces)], folder / "wedge.stl")
    return path


def as_binary(triangles, path):
    """Write binary STL, the only form that MuJoCo reads."""
    kind = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("more", "<u2")])
    found = np.zeros(len(triangles), kind)
    found["corners"] = triangles
    path.write_bytes(bytes(80) + np.uint32(len(triangles)).tobytes() + found.tobytes())


@pytest.mark.parametrize("name", COMPILER)
def test_compiler_attributes_match_mujoco(name, tmp_path):
    check_against_mujoco(write(tmp_path, COMPILER[name]))


def test_inertial_attributes_match_mujoco(tmp_path):
    body = "<body name='b{}' pos='.1 .2 .3'><joint axis='1 2 3'/><inertial {}/></body>"
    bodies = [body.format(i, text) for i, text in enumerate(INERTIAL.values())]
    check_against_mujoco(write(tmp_path, f"<worldbody>{''.join(bodies)}</worldbody>"))


@pytest.mark.parametrize("angle", ("degree", "radian"))
def test_joint_attributes_match_mujoco(angle, tmp_path):
    joints = [f"<joint {text}/>" for text in JOINT.values()] + [f"<freejoint {text}/>" for text in FREE.values()]
    bodies = [TURNED.format(i, joint) for i, joint in enumerate(joints)]
    text = f"""<compiler angle="{angle}"/><default><default class="d"><joint damping="2"/></default></default>
        <worldbody>{"".join(bodies)}</worldbody>
        <actuator><motor joint="driven" gear="3" armature=".2" damping=".5"/></actuator>"""
    check_against_mujoco(write(tmp_path, text))


PAIR = """
    <body name="one{0}" pos="0 0 1" euler="0 20 0"><freejoint/><geom type="box" size=".1 .2 .3"/>
      <site name="on one{0}" pos=".1 .2 .3" euler="10 20 30"/></body>
    <body name="two{0}" pos=".3 .1 1.2" euler="30 0 10"><freejoint/><geom type="box" size=".1 .2 .3"/>
      <site name="on two{0}" pos=".2 .1 .2" euler="30 20 -30"/></body>
"""
HINGED = """<body name="three{0}"><joint name="x{0}" ref="40" axis="0 1 0"/>
    <joint name="y{0}" type="slide" ref=".2"/><geom size=".1"/></body>"""
RELPOSE = 'relpose=".3 .1 .2 .9 .3 .2 .1"'
EQUALITY = {
    "connect: body1, body2, anchor": '<connect {} body1="one{}" body2="two{}" anchor=".3 .2 .1"/>',
    "connect: body1, anchor": '<connect {} body1="one{}" anchor=".3 .2 .1"/>',
    "connect: site1, site2": '<connect {} site1="on one{}" site2="on two{}"/>',
    "connect: solref, solimp": '<connect {} body1="one{}" body2="two{}" anchor="0 0 1" solref=".1 1" solimp=".8"/>',
    "weld: body1": '<weld {} body1="two{}"/>',
    "weld: body1, body2": '<weld {} body1="one{}" body2="two{}"/>',
    "weld: relpose": f'<weld {{}} body1="one{{}}" body2="two{{}}" {RELPOSE}/>',
    "weld: anchor": '<weld {} body1="one{}" body2="two{}" anchor=".3 .2 .1"/>',
    "weld: anchor on the world": '<weld {} body1="one{}" anchor=".3 .2 .1"/>',
    "weld: relpose, anchor": f'<weld {{}} body1="one{{}}" body2="two{{}}" {RELPOSE} anchor=".3 .2 .1"/>',
    "weld: torquescale": f'<weld {{}} body1="one{{}}" body2="two{{}}" {RELPOSE} anchor=".3 0 1" torquescale=".3"/>',
    "weld: torquescale 0": f'<weld {{}} body1="one{{}}" body2="two{{}}" {RELPOSE} anchor=".3 0 1" torquescale="0"/>',
    "weld: site1, site2": '<weld {} site1="on one{}" site2="on two{}"/>',
    "weld: site1, site2, torquescale 0": '<weld {} site1="on one{}" site2="on two{}" torquescale="0"/>',
    "joint: joint1": '<joint {} joint1="x{}" polycoef=".2 7 0 0 0"/>',
    "joint: joint1, joint2": '<joint {} joint1="y{}" joint2="x{}"/>',
    "joint: polycoef": '<joint {} joint1="y{}" joint2="x{}" polycoef=".1 .2 -.3 .4 -.5"/>',
}


class Closed:
    """MuJoCo's pose where all equalities hold, by Newton's method from the pose of the file, and their Jacobian."""

    def __init__(self, path):
        self.model = mujoco.MjModel.from_xml_path(str(path))
        for flag in ("CONTACT", "LIMIT", "FRICTIONLOSS"):
            self.model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
        self.model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
        self.data = mujoco.MjData(self.model)
        random = np.random.default_rng(3)
        mujoco.mj_integratePos(self.model, self.data.qpos, random.normal(size=self.model.nv), 0.3)
        for _ in range(50):
            mujoco.mj_forward(self.model, self.data)
            missed = self.data.efc_pos[: self.data.ne]
            step = -np.linalg.pinv(self.rows(), rcond=1e-9) @ missed
            mujoco.mj_integratePos(self.model, self.data.qpos, step, 1.0)
        mujoco.mj_forward(self.model, self.data)

    def rows(self):
        return self.data.efc_J.reshape(-1, self.model.nv)[: self.data.ne]


def test_equalities_constrain_the_same_directions_as_mujoco(tmp_path):
    bodies = [(HINGED if name.startswith("joint") else PAIR).format(i) for i, name in enumerate(EQUALITY)]
    rows = [text.replace("{}", f'name="e{i}"', 1).replace("{}", str(i)) for i, text in enumerate(EQUALITY.values())]
    path = write(tmp_path, f"<worldbody>{''.join(bodies)}</worldbody><equality>{''.join(rows)}</equality>")
    mechanism, there = loaded(path), Closed(path)
    ne, q = there.data.ne, jnp.asarray(there.data.qpos)
    np.testing.assert_allclose(there.data.efc_pos[:ne], 0, atol=1e-12)
    N = Compiled(path, mechanism, there.data.qpos).N
    labels = [label.split()[0] for constraint in mechanism.constraints for label in constraint.name]
    missed, slopes = missed_and_slopes(mechanism, q, jnp.zeros(mechanism.tree.n))
    for i, name in enumerate(EQUALITY):
        ours = [k for k, label in enumerate(labels) if label == f"e{i}"]
        np.testing.assert_allclose(missed[np.array(ours)], 0, atol=1e-12, err_msg=name)
        A, J = slopes[np.array(ours)] @ N, there.rows()[there.data.efc_id[:ne] == i]
        rank = np.linalg.matrix_rank(J, tol=1e-9)
        both = np.linalg.matrix_rank(np.concatenate([A, J]), tol=1e-9)
        assert np.linalg.matrix_rank(A, tol=1e-9) == rank == len(A) == both, name


@eqx.filter_jit
def missed_and_slopes(mechanism, q, v):
    """Return the residuals of all rows, and their derivatives by the velocities."""
    missed = lambda q: mechanism.position_residual(0.0, q)
    return missed(q), jax.jacfwd(missed)(q) @ jax.jacfwd(lambda v: mechanism.kinematic_map(q, v))(v)


def test_gravcomp_matches_mujoco(tmp_path):
    text = """<worldbody><body name="a"><joint axis="0 1 0"/><geom size=".1" pos=".3 0 0"/>
        <body name="b" gravcomp="1.3"><joint axis="0 1 0"/><geom size=".1" pos=".6 0 0"/></body></body></worldbody>"""
    mechanism = check_against_mujoco(write(tmp_path, text))
    q = jnp.array([0.3, 0.4])
    slope = eqx.filter_jit(jax.grad(lambda q: mechanism.dynamics.energy(jnp.zeros(()), q, jnp.zeros(2))))(q)
    np.testing.assert_allclose(-slope, terms(mechanism.dynamics, q, jnp.zeros(2))[1], rtol=1e-12)


def test_reaction_is_the_weight_minus_buoyancy():
    bodies = {"a": uk.Body(2.0, buoyancy=0.25), "wheel": uk.Body(1.0, inertia=(1, 1, 1))}
    joints = {"bolt": uk.joints.Fixed("ground", "a"), "pin": uk.joints.Revolute("a", "wheel")}
    found = uk.Mechanism(bodies, joints).reactions(0.0, [0.0], [0.0])
    np.testing.assert_allclose(found["bolt"].force, (0, 0, (0.75 * 2.0 + 1.0) * 9.81), atol=1e-12)


@pytest.mark.parametrize("flag", ("gravity", "spring", "damper", "frictionloss", "equality", "constraint"))
def test_disable_flags_match_mujoco(flag, tmp_path):
    text = f"""<option><flag {flag}="disable"/></option><worldbody><body name="a">
        <joint name="a" stiffness="3" damping="2" frictionloss=".1"/><geom size=".1" pos=".1 0 0"/></body></worldbody>
        <equality><connect body1="a" anchor=".1 0 0"/></equality>"""
    mechanism = check_against_mujoco(write(tmp_path, text))
    assert (mechanism.joints.a.friction is None) == (flag in ("frictionloss", "constraint"))
    assert (not mechanism.tree.closures) == (flag in ("equality", "constraint"))


def test_meshes_of_an_included_file_are_found_by_a_relative_path(tmp_path, monkeypatch):
    write(tmp_path, '<include file="meshes/arm.xml"/>')
    (tmp_path / "meshes" / "arm.xml").write_text(f"<mujoco>{MESH.format('../meshes/wedge.stl', 'mesh')}</mujoco>")
    wanted = loaded(tmp_path / "some.xml").bodies.a.mass
    monkeypatch.chdir(tmp_path.parent)
    assert loaded(f"{tmp_path.name}/some.xml").bodies.a.mass == wanted


@pytest.mark.parametrize("mass", ("", 'mass="0"'))
def test_pose_of_a_mesh_with_and_without_mass(mass, tmp_path):
    path = write(
        tmp_path,
        f"""<asset><mesh name="m" file="wedge.stl" scale="2 1 1"/></asset><worldbody><body name="a"><joint/>
        <geom size=".1" pos="0 0 1"/><geom type="mesh" mesh="m" pos=".1 .2 .3" quat=".8 0 .6 0" {mass}/>
        </body></worldbody>""",
    )
    body = loaded(path).bodies.a
    ball, mesh = body.shapes
    np.testing.assert_allclose((*mesh.at, *mesh.turn), (0.1, 0.2, 0.3, 0.8, 0.0, 0.6, 0.0), atol=1e-12)
    assert (ball.kind, mesh.kind, mesh.size) == ("sphere", "mesh", (2.0, 1.0, 1.0))
    assert mesh.path == str(tmp_path / "wedge.stl")
    assert (float(body.mass) > 4.2) == (not mass)  # the ball has 4.19 kg


def test_motor_on_a_ball_joint_gives_a_warning(tmp_path):
    text = """<worldbody><body><joint name="a" type="ball"/><geom size=".1" contype="0" conaffinity="0"/>
        </body></worldbody><actuator><motor joint="a" gear="1 2 3"/></actuator>"""
    with pytest.warns(UserWarning, match="not modelled: <actuator> on a ball or free joint"):
        mechanism = uk.load(write(tmp_path, text))
    assert mechanism.actuators == ()


def test_inactive_equality_gives_a_warning(tmp_path):
    bodies = f"<worldbody>{PAIR.format('')}</worldbody>"
    path = write(tmp_path, bodies + '<equality><weld body1="one" active="false"/></equality>')
    with pytest.warns(UserWarning, match=r"inactive <equality> \(line 6\)$"):
        mechanism: Any = uk.load(path)
    assert not mechanism.tree.closures


def test_friction_axes_of_ball_and_free_joints_match_mujoco(tmp_path):
    body = """<body name="{0}"><joint type="{0}" frictionloss="{1}"/>
        <geom type="box" size=".1 .2 .3" pos=".1 0 0"/></body>"""
    path = write(tmp_path, f"<worldbody>{body.format('ball', 0.3)}{body.format('free', 0.2)}</worldbody>")
    mechanism = loaded(path)
    there = Compiled(path, mechanism)
    c = mechanism.nonideal(jnp.zeros(()), jnp.asarray(there.q), jnp.asarray(there.v))
    np.testing.assert_allclose(there.N.T @ c, there.data.qfrc_constraint, atol=1e-9)
    np.testing.assert_allclose(np.abs(there.data.qfrc_constraint), [0.3] * 3 + [0.2] * 6, atol=1e-9)  # all slide
