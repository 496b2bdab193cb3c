"""Robot files on the command line."""

import json
import os
import shutil

import numpy as np
import pytest

from ukjax import contacts, load, robots

from ..command.test_command import command, elsewhere  # noqa: F401

pytest.importorskip("mujoco")


def brought(name):
    return shutil.copy(robots.path(name), os.getcwd()) and robots.path(name).name


def test_check_reports_the_tree_and_loops_of_a_mechanism(capsys):
    assert command("check", brought("four_bar"), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(link["body"], link["parent"], link["joint"]) for link in told["tree"]] == [
        ("crank", "ground", "crank"),
        ("coupler", "crank", "coupler"),
        ("rocker", "ground", "rocker"),
    ]
    assert told["loops"] == [{"joint": "tip", "kind": "Spherical", "between": ["rocker", "coupler"]}]
    assert (told["degrees_of_freedom"], told["rank"], told["redundant"]) == (1, 2, ["tip y"])
    assert told["not_modelled"] == {} and told["looks_wrong"] == []
    assert command("check", brought("four_bar")) == 0
    said = capsys.readouterr().out
    assert "│ └ coupler, 0.2175 kg, Revolute coupler" in said
    assert "degrees of freedom 1: 3 coordinates, 3 rows of rank 2" in said


def test_check_reports_elements_not_modelled_and_suspicious_numbers(capsys):
    path = brought("furuta_pendulum")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace('xyz="0.2 0 0"', 'xyz="200 0 0"').replace("</robot>", "<gazebo/>\n</robot>"))
    assert command("check", path) == 1
    said = capsys.readouterr().out
    assert "looks wrong        joint pin in its parent is 200 m away: is it in millimetres?" in said
    assert f"not modelled       <gazebo>: line {len(text.splitlines())}" in said


def test_check_accepts_systems_of_the_gallery(capsys):
    assert command("check", "pendulum") == 0
    said = capsys.readouterr().out
    assert "degrees of freedom 1: 2 coordinates, 2 rows of rank 1" in said
    assert "redundant rows     rod again" in said


def test_floating_option_frees_the_root(capsys):
    assert command("check", brought("seven_axis_arm"), "--floating", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tree"][0]["kind"] == "Free" and told["degrees_of_freedom"] == 6 + 7


def test_run_a_file_with_changed_parameters(capsys):
    path = brought("furuta_pendulum")
    heavy = ["--set", "bodies.pendulum.mass=0.3", "--set", "pin=0.5", "--set", "dmotor=2", "--t1", "0.2"]
    assert command("run", path, *heavy, "--samples", "21", "--out", "turned.npz", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["system"] == path and told["title"] == "Furuta pendulum"
    q, title = (np.load("turned.npz")[name] for name in ("q", "title"))
    assert title == load(path).in_absolute().title == "Furuta pendulum"
    np.testing.assert_allclose(q[0], (0, 0.5))
    assert q[-1, 0] > 0.05
    assert command("run", path, "--t1", "0.2", "--samples", "21", "--out", "light.npz") == 0
    assert np.abs(np.load("light.npz")["q"]).max() < 1e-12  # it hangs at rest


LIFT = """<robot name="lift">
  <link name="base"/>
  <link name="ball"><inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius=".1"/></geometry></collision>
    <collision><geometry><mesh filename="ball.stl"/></geometry></collision>
  </link>
  <joint name="rail" type="prismatic"><parent link="base"/><child link="ball"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1.5" effort="3" velocity="4"/></joint>
</robot>"""


@pytest.fixture
def lift(tmp_path):
    path = tmp_path / "lift.urdf"
    path.write_text(LIFT)
    return str(path)


def test_check_lists_stops_and_contacts(lift, capsys):
    assert command("check", lift) == 0
    said = capsys.readouterr().out
    assert "not modelled       <limit> (with --stops): line 8" in said and "<collision> (with --contacts)" in said
    options = ("--stops", "--contacts", "--restitution", "0.5", "--friction", "0.3")
    assert command("check", lift, *options, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["stops"] == [{"joint": "rail", "kind": "Prismatic", "limits": [-1.0, 1.5], "restitution": 0.5}]
    (contact,) = told["contacts"]
    assert contact["shapes"] == ["Sphere", "Plane"] and (contact["friction"], contact["restitution"]) == (0.3, 0.5)
    assert list(told["not_modelled"]) == ["<collision> with <mesh>"]
    assert "the gap of ball on ground is -0.1 at the start, and must be at least 0" in told["looks_wrong"]


def test_check_reports_missing_stops_and_contacts(capsys):
    with open("rod.urdf", "w") as file:
        inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
        file.write(f'<robot name="rod"><link name="rod">{inertial}</link></robot>')
    assert command("check", "rod.urdf", "--floating", "--stops", "--contacts", "--json") == 1
    assert json.loads(capsys.readouterr().out)["looks_wrong"] == [
        "no joint limits, although stops are requested",
        "no contacts that can be modelled, although contacts are requested",
    ]
    with pytest.warns(UserWarning, match="no contacts that can be modelled"):
        load("rod.urdf", floating=True, contacts=contacts.Plane())


def test_run_reports_impacts_rest_and_the_largest_impulse(lift, capsys):
    """Dropped from 0.9 m above the ground, with restitution 0.5: closed forms of the bouncing ball."""
    options = ("--contacts", "--restitution", "0.5", "--set", "rail=1", "--t1", "2", "--samples", "41")
    assert command("run", lift, *options, "--json", "--out", "lift.npz") == 0
    printed = capsys.readouterr()
    assert "<limit> (line 8; modelled with --stops)" in printed.err
    told = json.loads(printed.out)["contacts"]
    first = np.sqrt(1.8 / 9.81)
    np.testing.assert_allclose(told["first_impact"], first, rtol=1e-12)
    np.testing.assert_allclose(told["max_impulse"]["value"], 2 * 1.5 * 9.81 * first, rtol=1e-12)
    assert told["max_impulse"]["t"] == told["first_impact"] and told["max_impulse"]["of"] == "ball on ground"
    np.testing.assert_allclose(told["max_force"]["value"], 2 * 9.81, rtol=1e-12)
    np.testing.assert_allclose(told["at_rest_from"], np.ceil(3 * first / 0.05) * 0.05)
    assert told["touching_end"] == ["ball on ground"] and told["max_penetration"] < 1e-12


@pytest.mark.parametrize(
    ("arguments", "says"),
    (
        (("run", "pendulum", "--stops"), "--stops applies only to robots"),
        (("run", "bouncing_ball", "--restitution", "0.5"), "--restitution applies only to robots (.urdf, .xml)"),
        (("run", "four_bar.xml", "--moreau-jean", "--dt", "0.01"), "four_bar.xml has none here"),
        (("check", "four_bar.xml", "--contacts", "--friction", "1"), "--friction needs --contacts and a URDF file"),
        (("run", "four_bar.xml", "--restitution", "0.5"), "--restitution needs --stops, --contacts or both"),
        (("run", "four_bar.xml", "--stops", "--restitution", "1.5"), "--restitution must be from 0 to 1, got 1.5"),
        (("view", "four_bar.xml", "--stops", "--moreau-jean"), "--moreau-jean needs --dt"),
        (("run", "nowhere.urdf"), "there is no file 'nowhere.urdf'"),
        (("check", "nowhere.xml"), "there is no file 'nowhere.xml'"),
        (("run", "broken.urdf"), "broken.urdf, line 2: not a complete XML file"),
        (("check", "broken.urdf"), "broken.urdf, line 2: not a complete XML file"),
        (("fit", "broken.urdf", "data.csv", "--free", "bodies.arm.mass"), ""),
        (("run", "furuta_pendulum.urdf", "--set", "bodies.arn.mass=1"), "has no number 'arn'; did you mean 'arm'?"),
        (("run", "furuta_pendulum.urdf", "--set", "pim=1"), "--set knows no 'pim'; did you mean 'pin'?"),
        (("run", "pendulum", "--floating"), "--floating applies only to URDF files, got 'pendulum'"),
        (("check", "four_bar.xml", "--floating"), "an MJCF file says itself what floats"),
        (("run", "furuta_pendulum.urdf", "--set", "tree=1"), "--set knows no 'tree'"),
    ),
)
def test_bad_input_gives_one_line_errors(arguments, says, capsys):
    brought("furuta_pendulum")
    brought("four_bar")
    with open("broken.urdf", "w") as file:
        file.write("<robot>\n")
    assert command(*arguments) == 2
    printed = capsys.readouterr()
    assert says in printed.err and printed.err.count("\n") == 1, printed.err
    assert printed.out == ""
