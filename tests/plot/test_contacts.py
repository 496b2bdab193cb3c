"""Contacts in figures and pages: impacts, intervals of contact, forces, and contact points."""

import base64
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax.contacts import Contact, Plane, Sphere

from .test_view import drawn, held

FIRST = np.sqrt(1.8 / 9.81)
REST = 3 * FIRST  # time at which impacts with restitution 1/2 accumulate


@pytest.fixture(scope="module")
def ball():
    """A ball of 0.1 m on a vertical rail, dropped from 1 m onto the ground, with a stop that it does not reach."""
    rail = uk.joints.Prismatic("ground", "ball", axis="z", limits=(-5.0, 5.0), restitution=0.0)
    touch = Contact(Sphere("ball", radius=0.1), Plane(), restitution=0.5)
    mechanism = uk.Mechanism({"ball": uk.Body(2.0)}, {"rail": rail}, contacts=[touch])
    return uk.simulate(mechanism, *mechanism.start({"rail": 1.0}), np.linspace(0, 1.5, 151))


def test_histories_show_impacts_intervals_and_forces_of_contact(ball):
    figure = uk.plot.histories(ball)
    axes = {ax.get_ylabel(): ax for ax in figure.axes}
    lines = axes["closed, sticks; impacts |"]
    names = [label.get_text() for label in lines.get_yticklabels()]
    assert names == ["rail", "ball on ground"]
    (bar,) = [np.asarray(path.vertices) for each in lines.collections for path in each.get_paths()]
    assert bar[:, 0].min() == pytest.approx(REST, abs=0.01) and bar[:, 0].max() == 1.5 and abs(bar[0, 1] - 1) < 0.3
    times = np.asarray(ball.contacts.impact_times)
    times = times[np.isfinite(times)]
    np.testing.assert_allclose(times[0], FIRST, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(lines.lines[1].get_xdata()), times)
    assert not np.size(lines.lines[0].get_xdata())  # the stop is not reached
    (force,) = [line for line in axes["contact force [N or N m]"].lines if line.get_label() == "ball on ground"]
    np.testing.assert_allclose(np.asarray(force.get_ydata()), np.where(ball.t > REST, 2 * 9.81, 0), atol=1e-12)
    marks = [line for line in axes["coordinate [m]"].lines if line.get_marker() == "|"]
    np.testing.assert_array_equal(np.asarray(marks[0].get_xdata()), times)


def test_page_marks_contact_points(ball, tmp_path):
    view = uk.view(ball)
    motion = held(view.page)
    touching = np.frombuffer(base64.b64decode(motion["touching"]), "<f4").reshape(151, 2, 3)
    assert np.isnan(touching[:, 0]).all()  # a stop has no position
    seen: Any = np.isfinite(touching[:, 1]).all(axis=1)
    resting: Any = np.asarray(ball.t) > REST
    assert seen[resting].all()
    assert seen[: int(FIRST * 100)].sum() == 0 and seen[round(FIRST * 100)]  # none in flight, one at the impact
    np.testing.assert_allclose(touching[resting, 1] + motion["centre"], 0, atol=1e-7)
    end = {"id": "when", "type": "input", "target": {"value": 1}}
    start, last = drawn(view, tmp_path, [end])
    assert last["dots"] == start["dots"] + 1


def test_contact_points_of_spheres_on_moving_bodies():
    """Two balls on rotating bodies: the point is on the line of centres, at the radius of each ball."""
    joints = {
        "a": uk.joints.Revolute("ground", "a", axis=(1, 2, 3)),
        "b": uk.joints.Revolute("a", "b", axis=(0, 1, 1), at=(0.3, 0.2, 0.1)),
    }
    body = uk.Body(1.0, inertia=(0.1, 0.1, 0.1))
    shapes = Sphere("b", centre=(0.1, 0.5, 0.2), radius=0.2), Sphere("a", centre=(0, 0.1, -0.4), radius=0.1)
    mechanism = uk.Mechanism({"a": body, "b": body}, joints, contacts=[Contact(*shapes)])
    q = jnp.array([0.7, -0.4])
    (point,) = jax.jit(lambda q: mechanism.contact_points(0.0, q))(q)
    pose = mechanism.pose(q)
    b, a = (pose[shape.body].p + pose[shape.body].R @ shape.centre for shape in shapes)
    np.testing.assert_allclose(point, a + 0.1 * (b - a) / np.linalg.norm(b - a), atol=1e-14)
