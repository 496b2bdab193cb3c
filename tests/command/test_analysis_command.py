"""The commands ``ukjax equilibrium`` and ``ukjax modes``."""

import json

import numpy as np
import pytest

from ukjax.__main__ import main

from .test_command import command

PENDULUM = """
from typing import ClassVar

import jax.numpy as jnp

import ukjax as uk


class Bob(uk.systems.AbstractMechanism):
    \"\"\"A bob on a rod.\"\"\"

    length: uk.systems.Parameter = uk.systems.parameter(0.5)
    end: ClassVar[float] = 1.0
    coordinates: ClassVar = (("x", "m"), ("y", "m"))

    @property
    def dynamics(self):
        return uk.MassForce(jnp.eye(2), lambda t, q, v: jnp.array([0.0, -9.81]) - 0.2 * v)

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: jnp.sqrt(q @ q) - self.length, name="rod"),)

    def start(self):
        return jnp.array([0.1, -0.5]), jnp.zeros(2)

    def outline(self, t, q):
        return (jnp.stack([jnp.zeros(2), q]),)
"""


@pytest.fixture(autouse=True)
def bob(tmp_path, monkeypatch):
    """Write a module with a pendulum into a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EQX_ON_ERROR", "raise")
    (tmp_path / "swinging.py").write_text(PENDULUM)


@pytest.mark.slow
def test_modes_of_a_pendulum_as_json_and_text(capsys):
    """ω² = g / l, damping ratio d / (2 m ω), and the weight as force of the rod."""
    assert main(["modes", "swinging:Bob", "--set", "length=0.8", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    frequency = np.sqrt(9.81 / 0.8)
    (mode,) = report["modes"]
    assert mode["frequency"] == pytest.approx(frequency, rel=1e-12)
    assert mode["hertz"] == pytest.approx(frequency / (2 * np.pi), rel=1e-12)
    assert mode["damping"] == pytest.approx(0.1 / frequency, rel=1e-12)
    assert mode["eigenvalue"][0] == pytest.approx(-0.1, rel=1e-12)
    assert report["stable"] is True and report["states"] == ["x", "dx"]
    assert report["q"] == pytest.approx({"x": 0.0, "y": -0.8}, abs=1e-12)
    assert report["multipliers"] == pytest.approx({"rod": -9.81}) and report["unique"] == {"rod": True}

    assert main(["modes", "swinging:Bob", "--set", "length=0.8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "A bob on a rod." and "  equilibrium   x 0 m, y -0.8 m" in lines
    assert lines[-1].split()[:3] == ["3.50179", "0.557326", "0.0286"] and lines[-1].endswith("x 1")


def test_equilibrium_from_above_and_with_a_fixed_coordinate(capsys):
    assert main(["equilibrium", "swinging:Bob", "--set", "y=0.5"]) == 0
    above = capsys.readouterr().out
    assert "y 0.5 m" in above and "no: a small deviation grows" in above
    assert main(["equilibrium", "swinging:Bob", "--hold", "x", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["q"]["x"] == pytest.approx(0.1) and report["q"]["y"] == pytest.approx(-np.sqrt(0.24))
    assert list(report["multipliers"]) == ["rod", "x as given"]
    tension = 9.81 * 0.5 / np.sqrt(0.24)
    assert report["multipliers"]["rod"] == pytest.approx(-tension)
    assert report["multipliers"]["x as given"] == pytest.approx(tension * 0.2)


def test_bad_input_gives_one_line_errors(capsys):
    assert command("modes", "pendulun") == 2
    assert "did you mean 'pendulum'" in capsys.readouterr().err
    assert command("equilibrium", "projectile") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "near must be closer to an equilibrium" in error
    assert command("equilibrium", "swinging:Bob", "--hold", "z") == 2
    assert "hold names no coordinate 'z'" in capsys.readouterr().err
