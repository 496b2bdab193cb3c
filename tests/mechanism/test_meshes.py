"""Meshes named by robot files are located, and drawn by lines on their surface."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ukjax as uk
from ukjax._mechanism.mesh import RIBS

HALF = np.array([1.0, 0.5, 2.0])
"""Half lengths of the edges of a box."""


def box(path: Path) -> Path:
    """Write a box around the origin as twelve triangles, in text form."""
    triangles = []
    for axis in range(3):
        u, v = np.eye(3)[axis - 2], np.eye(3)[axis - 1]
        for side in (-1, 1):
            a, b, c, d = (
                HALF * (side * np.eye(3)[axis] + x * u + y * v) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))
            )
            triangles += [(a, b, c), (a, c, d)]
    rows = ["solid box"]
    for triangle in triangles:
        rows += [
            "facet normal 0 0 0",
            "outer loop",
            *("vertex {} {} {}".format(*x) for x in triangle),
            "endloop",
            "endfacet",
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*rows, "endsolid box", ""]))
    return path


URDF = """<robot name="one"><link name="base"/>
  <link name="arm"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><origin xyz="0 0 {z}"/><geometry><mesh filename="{name}" scale="0.1 0.1 0.1"/></geometry></visual></link>
  <joint name="pin" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>
</robot>"""


def robot(folder: Path, name: str, z: float = 0.0) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "one.urdf").write_text(URDF.format(name=name, z=z))
    return uk.load(folder / "one.urdf")


def points(mechanism: Any, angle: float = 0.0) -> np.ndarray:
    ((name, lines),) = mechanism.edges().items()
    there = mechanism.pose([angle])[name]
    return np.asarray(there.p + lines[np.all(np.isfinite(lines), axis=1)] @ there.R.T)


@pytest.mark.parametrize(
    ("name", "there", "urdf"),
    [
        ("meshes/box.stl", "meshes/box.stl", ""),
        ("../box.stl", "box.stl", "urdf"),
        ("package://arm/meshes/box.stl", "arm/meshes/box.stl", "urdf"),
        ("package://arm/meshes/box.stl", "arm/meshes/box.stl", "arm/urdf"),
    ],
)
def test_lines_of_a_box_lie_on_its_surface_in_any_pose(tmp_path, name, there, urdf):
    box(tmp_path / there)
    mechanism = robot(tmp_path / urdf, name, z=0.3)
    found = points(mechanism)
    beside = (found - [0, 0, 0.3]) / (0.1 * HALF)
    np.testing.assert_allclose(np.max(np.abs(beside), axis=1), 1, rtol=0, atol=1e-6)  # on its surface
    assert {round(float(z), 6) for z in beside[:, 2]} >= {round(2 * share - 1, 6) for share in RIBS}
    turned = points(mechanism, np.pi / 2)
    np.testing.assert_allclose(turned, found @ np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]]), rtol=0, atol=1e-15)


def test_mesh_file_is_read_again_after_it_was_corrected(tmp_path):
    (tmp_path / "box.stl").write_text("solid box")
    mechanism = robot(tmp_path, "box.stl")
    with pytest.warns(UserWarning, match="not drawn"):
        assert mechanism.edges() == {}
    box(tmp_path / "box.stl")
    assert len(points(mechanism))


def test_lines_of_a_ball_are_circles(tmp_path):
    import trimesh

    trimesh.creation.icosphere(subdivisions=4, radius=2.0).export(tmp_path / "ball.obj")
    found = points(robot(tmp_path, "ball.obj")) / 0.1
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2, rtol=5e-3)
    for share in RIBS:  # across the longest axis; for a ball it may be any axis
        assert any(np.sum(np.abs(found[:, axis] - 2 * (2 * share - 1)) < 0.02) > 10 for axis in range(3))


def test_meshdir_of_mjcf_is_used(tmp_path):
    box(tmp_path / "assets" / "box.stl")
    (tmp_path / "one.xml").write_text(
        """<mujoco><compiler meshdir="assets"/><asset><mesh name="box" file="box.stl" scale="0.1 0.1 0.1"/></asset>
        <worldbody><body name="arm"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><joint axis="0 0 1"/>
        <geom type="mesh" mesh="box" mass="0" contype="0" conaffinity="0"/></body></worldbody></mujoco>"""
    )
    mechanism = uk.load(tmp_path / "one.xml")
    np.testing.assert_allclose(np.max(np.abs(points(mechanism) / (0.1 * HALF)), axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("nowhere.stl", None, "does not exist"),
        ("package://nowhere/link.stl", None, "does not exist"),
        ("https://example.org/link.stl", None, "does not exist"),
        ("box.step", "ISO-10303-21;", "is not a file of type .stl"),
        ("cut.stl", "solid box\nfacet normal 0 0 0\nouter loop\nvertex 0 0", "(has no triangles|cannot be read)"),
        ("bytes.obj", "f 1 2 3\nf 7 8 9", "(has no triangles|cannot be read)"),
        ("bomb.dae", '<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;">]><a>&c;</a>', "has entities"),
        ("empty.dae", "<a/>", "cannot be read"),
    ],
)
def test_mesh_that_cannot_be_drawn_gives_one_warning(tmp_path, name, content, why):
    if content is not None:
        (tmp_path / name).write_text(content)
    mechanism = robot(tmp_path, name)
    with pytest.warns(UserWarning, match=f"a mesh is not drawn: .*{name}' {why}") as said:
        assert mechanism.edges() == {}
    assert len(said) == 1
