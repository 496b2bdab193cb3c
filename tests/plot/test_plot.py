"""Figures and animations: their content, and that files are written completely or not at all."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, ScalarLike
from PIL import Image

import ukjax as uk
from ukjax.systems import AbstractMechanism, Parameter, parameter


class Crane(AbstractMechanism):
    """A load on two ropes, moved by two motors with different units."""

    m: Parameter = parameter(2.0)
    end: ClassVar[float] = 1.0
    coordinates: ClassVar[Any] = (("x", "m"), ("theta", "rad"))
    constraints: ClassVar[tuple[()]] = ()

    @property
    def dynamics(self):
        return uk.MassForce(self.m * jnp.eye(2), jnp.zeros(2))

    @property
    def control(self):
        task = uk.Nonholonomic(lambda t, q, v: v - jnp.stack([jnp.cos(t), jnp.ones(())]), name=("x", "theta"))
        return uk.control.Servo(jnp.eye(2), task, P=0.1, projected=False, inputs=(("winch", "N"), ("slew", "N m")))

    def start(self):
        return jnp.zeros(2), jnp.zeros(2)

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]):
        tip = jnp.stack([q[0] + jnp.cos(q[1]), jnp.sin(q[1])])
        return (jnp.stack([jnp.stack([q[0], 0 * q[0]]), tip]),)

    def published(self):
        return {"heavy": Crane(m=4.0), "light": self}


@pytest.fixture(scope="module")
def crane():
    model = Crane()
    return uk.simulate(model, *model.start(), jnp.linspace(0, 1, 101), dt=0.01)


@pytest.fixture(scope="module")
def scara():
    robot = uk.systems.Scara()
    q0, v0 = uk.project(robot, 0.0, *robot.start())
    return uk.simulate(robot, q0, v0, jnp.linspace(0, 10, 21))


def labels(figure):
    return [ax.get_ylabel() for ax in figure.axes]


def test_histories_show_the_controls_with_their_units(crane):
    shown = labels(uk.plot.histories(crane))
    assert {"coordinate [m]", "coordinate [rad]", "constraint force [N]", "constraint force [N m]"} <= set(shown)
    assert {"control [N]", "control [N m]"} <= set(shown)
    panel = uk.plot.histories(crane).axes[shown.index("control [N]")]
    (line,) = panel.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), crane.control[:, 0])
    assert line.get_label() == "winch"


def test_histories_of_a_user_defined_system():
    """Twelve coordinates with one unit, without control, energy or names: all curves look different."""
    system = uk.System(uk.MassForce(np.eye(12), lambda t, q, v: -q))
    motion = uk.simulate(system, np.arange(12.0), np.zeros(12), jnp.linspace(0, 1, 5), dt=0.05)
    figure = uk.plot.histories(motion)
    lines = figure.axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == 12
    forces, residuals = figure.axes[1], figure.axes[2]
    assert [text.get_text() for ax in (forces, residuals) for text in ax.texts] == ["no constraints"] * 2
    assert not forces.get_lines()  # forces that are only rounding
    rubbing = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -q), nonideal=lambda t, q, v: -v)
    motion = uk.simulate(rubbing, np.ones(1), np.zeros(1), jnp.linspace(0, 1, 5))
    assert uk.plot.histories(motion).axes[1].get_lines()


def test_a_prescribed_force_shows_its_power():
    control = uk.control.Feedback([[1.0]], lambda t, q, v: jnp.cos(t))
    motion = uk.simulate(uk.System(uk.MassForce([[1.0]], [0.0]), control=control), [0.0], [0.0], jnp.linspace(0, 1, 11))
    figure = uk.plot.histories(motion)
    (line,) = figure.axes[labels(figure).index("power of the control [W]")].get_lines()
    np.testing.assert_allclose(np.asarray(line.get_ydata()), np.cos(motion.t) * np.sin(motion.t), rtol=0, atol=1e-8)


def test_published_runs_are_overlaid_by_name(crane):
    runs = {
        name: uk.simulate(version, np.zeros(2), np.zeros(2), crane.t, drift="none")
        for name, version in crane.model.published().items()
    }
    figure = uk.plot.published(runs)
    panel = figure.axes[labels(figure).index("control [N]")]
    assert [line.get_label() for line in panel.get_lines()] == ["heavy", "light"]
    np.testing.assert_array_equal(panel.get_lines()[0].get_ydata(), np.asarray(runs["heavy"].control)[:, 0])


@pytest.mark.slow
def test_gif_has_all_frames(crane, tmp_path):
    path = uk.plot.save_animation(uk.plot.animate(crane), tmp_path / "crane.gif")
    film: Any
    with Image.open(path) as film:
        assert film.n_frames == 100
        film.seek(0)
        first = np.asarray(film.convert("L"), int)
        film.seek(99)
        assert np.abs(np.asarray(film.convert("L"), int) - first).max() > 100  # the picture changed
    assert [p.name for p in tmp_path.iterdir()] == ["crane.gif"]


def test_frames_show_the_pose_the_trace_and_the_speed(crane):
    animation: Any = uk.plot.animate(crane)
    *artists, title = animation._func(50)
    pose, trace = artists
    tip = np.asarray(crane.model.outline(crane.t[50], crane.q[50])[0])
    np.testing.assert_allclose(np.stack(pose.get_data(), axis=1), tip)
    assert len(trace.get_xdata()) == 51
    assert title.get_text() == "Crane, t = 0.50 s, 4× slower"
    animation._draw_was_started = True  # prevents a warning about an animation that was not drawn


def test_mp4_without_ffmpeg_raises_with_an_alternative(crane, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    animation: Any = uk.plot.animate(crane)
    animation._draw_was_started = True
    with pytest.raises(ValueError, match="crane.mp4 needs the program ffmpeg, .* choose .gif"):
        uk.plot.save_animation(animation, tmp_path / "crane.mp4")
    with pytest.raises(ValueError, match="an animation must end in .gif, .mp4, got .*crane.avi"):
        uk.plot.save_animation(animation, tmp_path / "crane.avi")
    with pytest.raises(ValueError, match="crane.html'; for a page, ukjax.view"):
        uk.plot.save_animation(animation, tmp_path / "crane.html")
    assert not list(tmp_path.iterdir())
