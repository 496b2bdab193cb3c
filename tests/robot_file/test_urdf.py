"""URDF files with mistakes and with elements of other programs.

All that changes a motion is read as the specification states, or reported with name and line. Where MuJoCo reads the
same, its compiled model is the comparison.
"""

import re
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest

import ukjax as uk
from ukjax._robot_file import read

ARM = """
<robot name="arm">
  <link name="base"/>
  <link name="arm">
    <inertial><origin xyz="0.3 0.1 0"/><mass value="2"/>
      <inertia ixx="0.02" iyy="0.03" izz="0.04" ixy="0.001" ixz="0" iyz="0"/></inertial>
  </link>
  <link name="hand">
    <inertial><origin xyz="0.1 0 0"/><mass value="1"/>
      <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="shoulder" type="revolute"><origin xyz="0 0 1"/>
    <parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="5" velocity="3"/><dynamics damping="0.4" friction="0.1"/>
  </joint>
  <joint name="wrist" type="continuous"><origin xyz="0.5 0 0"/>
    <parent link="arm"/><child link="hand"/><axis xyz="0 0 1"/>
    <mimic joint="shoulder" multiplier="2" offset="0.1"/>
  </joint>
</robot>
""".removeprefix("\n")

TABLE = Path(__file__).parents[1] / "mistakes" / "urdf.toml"
WARNED = {row["what"]: row for row in tomllib.loads(TABLE.read_text())["warned"]}


def write(tmp_path, text):
    path = tmp_path / "arm.urdf"
    path.write_text(text)
    return path


@pytest.mark.parametrize("what", WARNED)
def test_warning_about_a_mistake_has_name_and_line(what, tmp_path):
    row = WARNED[what]
    assert row["part"] in ARM
    before, after = ARM.split(row["part"], 1)
    lines = f"{before}{row['written']}".splitlines()
    with pytest.warns(UserWarning) as caught:
        uk.load(write(tmp_path, before + row["written"] + after))
    (warning,) = caught
    at = re.search(re.escape(row["says"]) + r" \(line (\d+)\)", str(warning.message))
    assert at, str(warning.message)
    assert len(lines) - 1 <= int(at[1]) <= len(lines)  # the line of the element, which may begin one line earlier


def test_correct_file_gives_only_a_warning_of_elements_not_modelled(tmp_path):
    text = r"arm.urdf has what is not modelled: <limit> \(line 13; modelled with stops=True\)$"
    with pytest.warns(UserWarning, match=text):
        uk.load(write(tmp_path, ARM))


def quiet(path, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return uk.load(path, **how)


def test_defaults_of_omitted_elements_match_mujoco(tmp_path):
    """The axis is x without <axis>; blank lines before the XML declaration are allowed."""
    mujoco = pytest.importorskip("mujoco")
    text = ARM.replace('<axis xyz="0 1 0"/>', "")
    ours = quiet(write(tmp_path, "\n\n<?xml version='1.0'?>\n" + text))
    theirs = mujoco.MjModel.from_xml_string(text)
    np.testing.assert_allclose(theirs.jnt_axis[0], [1, 0, 0])
    q, v = np.array([0.3, 0.7]), np.zeros(2)
    data = mujoco.MjData(theirs)
    data.qpos[:] = q
    mujoco.mj_forward(theirs, data)
    M = np.stack([_times(mujoco, theirs, data, column) for column in np.eye(2)])
    np.testing.assert_allclose(ours(0.0, q, v).M, M, rtol=1e-12, atol=1e-15)


def _times(mujoco, model, data, vector):
    found = np.zeros(model.nv)
    mujoco.mj_mulM(model, data, found, vector)
    return found


def test_line_numbers_are_correct_after_blank_lines_before_the_declaration(tmp_path):
    text = "\n\n<?xml version='1.0'?>\n" + ARM.replace('xyz="0 1 0"', 'xzy="0 1 0"')
    ((lines),) = [lines for what, lines in read(write(tmp_path, text)).suspicious.items() if "xzy" in what]
    assert lines == [1 + text.splitlines().index(next(line for line in text.splitlines() if "xzy" in line))]


@pytest.mark.parametrize("scale", ("0.001", "0.001 0.001 0.001 1", "small"))
def test_unusual_scale_of_a_visual_mesh_does_not_raise(scale, tmp_path):
    mesh = f'<visual><geometry><mesh filename="a.stl" scale="{scale}"/></geometry></visual></link>'
    mechanism = quiet(write(tmp_path, ARM.replace("</inertial>\n  </link>", "</inertial>\n" + mesh, 1)))
    assert mechanism.bodies.arm.shapes[0].size == ((1.0, 1.0, 1.0) if scale == "small" else (0.001,) * 3)


def test_floating_frees_the_link_fixed_to_world(tmp_path):
    world = ARM.replace('<link name="base"/>', '<link name="world"/><link name="base"/>').replace(
        "</robot>", '<joint name="on" type="fixed"><parent link="world"/><child link="base"/></joint></robot>'
    )
    fixed, floating = quiet(write(tmp_path, world)), quiet(write(tmp_path, world), floating=True)
    assert (fixed.tree.n, floating.tree.n) == (2, 8)
    held = world.replace('"on" type="fixed"', '"on" type="continuous"')
    with pytest.raises(ValueError, match="<link name='world'> is the ground, and no joint fixes a link to it"):
        quiet(write(tmp_path, held), floating=True)


def test_arm_without_masses_has_poses_but_no_motion(tmp_path):
    text = "\n".join(line for line in ARM.splitlines() if "inerti" not in line)
    with pytest.warns(UserWarning, match="no body with a mass: poses, but no motion"):
        mechanism = uk.load(write(tmp_path, text))
    q, v = mechanism.start({"shoulder": 0.4})
    np.testing.assert_allclose(q, [0.4, 0.9], rtol=1e-12)  # the wrist mimics the shoulder
    at = mechanism.pose(q)["hand"].p
    np.testing.assert_allclose(at, [0.5 * np.cos(0.4), 0, 1 - 0.5 * np.sin(0.4)], atol=1e-12)
    with pytest.raises(ValueError, match="no mass|not unique|not determined|singular"):
        uk.constrained_motion(mechanism(0.0, q, v))


def test_joint_that_moves_no_mass_gives_a_warning(tmp_path):
    hand = ARM[ARM.index('  <link name="hand">') : ARM.index('  <joint name="shoulder')]
    mimic = ARM[ARM.index("<mimic") : ARM.index("/>", ARM.index("<mimic")) + 2]
    text = ARM.replace(hand, '  <link name="hand"/>\n').replace(mimic, "")
    with pytest.warns(UserWarning, match="<joint name='wrist'> moves 'hand', which has no mass and carries none"):
        uk.load(write(tmp_path, text))


def test_entities_of_a_mesh_file_are_detected_in_any_encoding(tmp_path):
    pytest.importorskip("trimesh")
    from ukjax._mechanism.mesh import mesh_drawing

    text = '<?xml version="1.0" encoding="{}"?><!DOCTYPE COLLADA [<!ENTITY v "0 0 0">]><COLLADA>&v;</COLLADA>'
    for encoding in ("utf-8", "utf-16"):
        path = tmp_path / f"{encoding}.dae"
        path.write_bytes(text.format(encoding).encode(encoding))
        drawing = mesh_drawing(str(path))
        assert not drawing.lines and drawing.reason == "has entities, which are not expanded"
