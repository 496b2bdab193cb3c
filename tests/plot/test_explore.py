"""Sliders that simulate again: motions, the page and its server, and the animated SVG."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import ukjax as uk
from ukjax._view import moving_picture
from ukjax._view.server import server_of

from .browser import visited, with_actions


@pytest.fixture(scope="module")
def pendulum():
    return uk.explore(uk.systems.Pendulum(), t1=2.0, samples=21, ranges={"length": (0.5, 2.0)})


@contextlib.contextmanager
def serving(exploration):
    """Yield the address of the page while it is served."""
    with server_of(exploration, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_sliders_are_parameters_and_independent_coordinates(pendulum):
    found = {slider.name: slider[1:] for slider in pendulum.sliders}
    assert list(found) == ["m", "length", "g", "y", "dy"]  # x follows from y at a level rod
    assert found["length"] == (1.0, 0.5, 2.0) and found["y"] == (0.0, -np.pi, np.pi)


def test_sliders_change_the_motion(pendulum):
    """The rod has the new length, the coordinate of its slider is met, and v² = 2 g (y₀ − y) with the new g."""
    motion = pendulum.motion(length=0.7, g=3.0, y=0.2)
    assert motion.finished and float(motion.model.length) == 0.7
    np.testing.assert_allclose(np.linalg.norm(motion.q, axis=1), 0.7, rtol=0, atol=1e-9)
    np.testing.assert_allclose(motion.q[0, 1], 0.2, rtol=0, atol=1e-12)
    square = np.sum(np.asarray(motion.v) ** 2, axis=1)
    np.testing.assert_allclose(square, 6.0 * (0.2 - np.asarray(motion.q)[:, 1]), rtol=0, atol=1e-5)
    with pytest.raises(uk.InputError, match="no slider 'lenght'; did you mean 'length'"):
        pendulum.motion(lenght=1.0)
    with pytest.raises(uk.InputError, match="no start on the constraints"):
        pendulum.motion(length=0.5, y=3.0)


def test_bad_input_of_explore_raises():
    pendulum = uk.systems.Pendulum()
    bare = uk.System(uk.MassForce([[1.0]], [0.0]))
    refused: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (3.0, {}, "system must be a ukjax.System"),
        (bare, {}, "explore needs outline"),
        (bare, dict(outline=lambda t, q: [[0, 0], [q[0], 0]]), "explore needs q0 and v0"),
        (pendulum, dict(names=["lenght"]), "did you mean 'length'"),
        (pendulum, dict(ranges={"length": (2.0, 3.0)}), "must contain the first value 1"),
        (pendulum, dict(ranges={"length": 3.0}), "must be two numbers"),
        (pendulum, dict(names=["m"], ranges={"g": (1, 20)}), "ranges names 'g', which has no slider"),
        (pendulum, dict(samples=1), "samples must be a whole number"),
    )
    for system, arguments, words in refused:
        with pytest.raises(uk.InputError, match=words):
            uk.explore(system, **arguments)


def test_server_answers_only_this_machine_and_stops(pendulum):
    def answer(path, host=None):
        request = urllib.request.Request(urllib.parse.urljoin(address, path), headers={"Host": host} if host else {})
        try:
            with urllib.request.urlopen(request) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    with serving(pendulum) as address:
        status, page = answer("/")
        assert status == 200 and not re.search(r"https?:|<link|\bsrc=|@import|url\(", page)
        status, text = answer("motion?length=0.7&y=0.2")
        assert status == 200 and json.loads(text)["title"] == "Pendulum"
        assert answer("motion?lenght=0.7") == (400, "there is no slider 'lenght'; did you mean 'length'?")
        assert answer("motion?length=nan")[0] == answer("motion?length=x")[0] == answer("motion?length")[0] == 400
        assert answer("other")[0] == 404
        assert answer("/", "elsewhere.example:80")[0] == 403
        port = urllib.parse.urlsplit(address).port
        with pytest.raises(uk.InputError, match=f"port {port} at 127.0.0.1 cannot be used"):
            pendulum.serve(port)
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", port))


def test_animated_svg_shows_the_motion(pendulum):
    """In each frame the bob is on a circle about the pivot, at its position. The picture loads nothing."""
    motion = pendulum.motion()
    picture = ElementTree.fromstring(moving_picture(motion))
    name = "{http://www.w3.org/2000/svg}"
    moving = [line for line in picture.iter(f"{name}polyline") if line.find(f"{name}animate") is not None]
    (rod,) = [[text.split() for text in line[0].get("values", "").split(";")] for line in moving]
    points = np.array([[[float(x) for x in point.split(",")] for point in frame] for frame in rod])
    assert points.shape == (21, 2, 2)
    arms = (points[:, 1] - points[:, 0]) * [1, -1]
    scale = np.linalg.norm(arms[0])
    np.testing.assert_allclose(arms / scale, motion.q, rtol=0, atol=2e-3)
    assert not any("href" in key or key == "src" for element in picture.iter() for key in element.attrib)


def test_widget_of_a_notebook_updates_the_picture(pendulum):
    pytest.importorskip("ipywidgets")
    picture, sliders = pendulum.widget().children
    before = picture.value
    sliders.children[1].value = 0.7
    assert before.startswith("<svg") and picture.value.startswith("<svg") and picture.value != before
    sliders.children[3].value = 3.0
    assert "no start on the constraints" in sliders.children[-1].value


@pytest.mark.slow
def test_sliders_of_the_page_change_the_picture(pendulum, monkeypatch):
    actions = """
    element("when").value = 0.4;
    slide("when", 0.4); await shot();
    for (let k = 0; k < 20; k++) { slide("slider length", 1 + k / 40); await rest(20); }
    await rest(1000); await shot();
    slide("slider y", 3); await rest(500);
    told = element("problem").textContent;"""
    page = with_actions(pendulum.page(), actions)
    monkeypatch.setattr(pendulum, "page", lambda: page)
    with serving(pendulum) as address:
        found = visited(address)
    assert len(set(found["pictures"])) == 2 and "no start on the constraints" in found["told"]
    asked = [each for each in found["loaded"] if not each.endswith("favicon.ico")]
    assert asked and all(each.startswith(f"{address}motion?") for each in asked)
    assert not [words for words in found["problems"] if "400" not in words and "404" not in words]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process")
def test_the_command_serves_until_ctrl_c():
    command = [sys.executable, "-u", "-m", "ukjax", "explore", "pendulum", "--t1", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, DISPLAY="")) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        with urllib.request.urlopen(address) as answer:
            assert b'"sliders"' in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
