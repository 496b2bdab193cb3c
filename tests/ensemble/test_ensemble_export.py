"""An exported simulator gives the results of the model, without the model."""

import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion.result import OUT_OF_REACH

from ..mechanisms import LostActuator, Pendulum

pytestmark = pytest.mark.optimised

pytest.importorskip("flatbuffers")
TS = [0.0, 0.2, 0.5]
LEVEL, REST = np.array([1.0, 0.0]), np.zeros(2)


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "pendulum.bin"
    uk.export(Pendulum(), TS, path, over=["length"], q0=LEVEL, v0=REST, dt=0.02, derivatives=True)
    return path


@pytest.fixture(scope="module")
def without_derivatives(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "sooner.bin"
    uk.export(Pendulum(), TS, path, over=(name for name in ["length"]), q0=LEVEL, v0=REST, dt=0.02)
    return path


def test_over_accepts_a_generator_of_names(without_derivatives):
    simulator = uk.load_simulator(without_derivatives)
    assert simulator.names == ("length",)
    lengths = np.array([0.5, 1.0])
    found = simulator(lengths[:, None] * LEVEL, REST, {"length": lengths})
    np.testing.assert_allclose(np.linalg.norm(found.q[:, -1], axis=1), lengths, rtol=1e-10)


def test_file_contains_its_provenance(without_derivatives):
    about = uk.load_simulator(without_derivatives).provenance
    assert (about["ukjax"], about["jax"], about["dt"]) == (uk.__version__, jax.__version__, 0.02)
    assert about["model"] == "Pendulum" and about["numbers of the model"]["length"] == 1.0
    assert about["over"] == ["length"] and about["times"] == TS and about["method"].startswith("Orthogonal(")
    assert len(about["fingerprint"]) == 64 and "members" not in about


def test_incompatible_versions_give_a_warning_or_an_error(without_derivatives, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["ukjax._ensemble.export"], "NUMERICS", 99)
        with pytest.warns(UserWarning, match="was written by ukjax .*: ukjax .* computes other numbers than that"):
            uk.load_simulator(without_derivatives)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version__", "0.9.99")
        with pytest.warns(
            UserWarning, match="was written by .* JAX .*: JAX 0.9.99, which is older, runs files of newer"
        ):
            uk.load_simulator(without_derivatives)
        patch.setattr(jax, "__version__", "99.1.0")  # a newer version reads the file without a warning
        uk.load_simulator(without_derivatives)
    with np.load(without_derivatives) as held:
        arrays: dict[str, Any] = dict(held)
    changes: Any = (
        ({"format": np.array(99)}, "in format 99, and this ukjax, .*, reads format .*: export it again"),
        ({"program": arrays["program"][:100]}, "written by ukjax .* and JAX .*, cannot be read by JAX"),
        ({"provenance": np.array("none")}, "is not a simulator that ukjax.export wrote"),
    )
    for change, said in changes:
        with open(tmp_path / "changed.bin", "wb") as file:
            np.savez(file, **arrays | change)
        with pytest.raises(ValueError, match=said):
            uk.load_simulator(tmp_path / "changed.bin")


@pytest.mark.slow
def test_exported_simulator_matches_simulate(even):
    simulator = uk.load_simulator(even)
    assert simulator.names == ("length",) and simulator.coordinates == (("x", "m"), ("y", "m"))
    one, own = simulator(LEVEL, REST), uk.simulate(Pendulum(), LEVEL, REST, TS, dt=0.02)
    np.testing.assert_allclose(one.q, own.q, atol=1e-13)
    assert one.q.shape == (3, 2) and bool(one.finished) and one.coordinates == own.coordinates
    lengths = np.linspace(0.5, 1.5, 150)  # more than one block
    many = simulator(lengths[:, None] * LEVEL, REST, {"length": lengths})
    assert many.finished.all() and many.q.shape == (150, 3, 2)
    for k in (0, 149):
        model = Pendulum(length=lengths[k])
        np.testing.assert_allclose(many.q[k], uk.simulate(model, lengths[k] * LEVEL, REST, TS, dt=0.02).q, atol=1e-13)


@pytest.mark.slow
def test_exported_simulator_is_differentiable(even):
    simulator = uk.load_simulator(even)
    end = lambda v: simulator(LEVEL, v).q[-1, 0]
    moved = lambda by: float(end(speed + np.array([0.0, by])))
    speed = np.array([0.0, 0.3])
    found = jax.grad(end)(speed)
    assert found[1] == pytest.approx((moved(1e-5) - moved(-1e-5)) / 2e-5, rel=1e-7)


def test_start_that_violates_constraints_does_not_finish(without_derivatives):
    found = uk.load_simulator(without_derivatives)(np.stack([LEVEL, 2 * LEVEL]), REST, {"length": [1.0, 0.2]})
    assert np.asarray(found.finished).tolist() == [True, False]


@pytest.mark.slow
def test_exported_adaptive_simulator_runs_without_the_model_module(tmp_path):
    path = uk.export(uk.systems.Pendulum(), TS, tmp_path / "pendulum.bin")
    script = f"""
import sys
import ukjax as uk
uk.enable_float64()
found = uk.load_simulator({str(path)!r})([1.0, 0.0], [0.0, 0.0])
assert not [name for name in sys.modules if name.startswith("ukjax.systems.pendulum")]
print(repr(found.q[-1, 0].item()), found.reason)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    x, reason = done.stdout.split(maxsplit=1)
    own = uk.simulate(uk.systems.Pendulum(), LEVEL, REST, TS)
    assert float(x) == pytest.approx(float(own.q[-1, 0]), abs=1e-11) and reason.strip() == own.reason


def test_bad_input_raises(without_derivatives, tmp_path):
    simulator = uk.load_simulator(without_derivatives)
    with pytest.raises(
        ValueError, match=r"numbers names no parameter 'lenght'; did you mean 'length'\? There are: length"
    ):
        simulator(LEVEL, REST, {"lenght": 1.0})
    with pytest.raises(ValueError, match=r"q0 and v0 must have shape \(2,\) or \(members, 2\), got shapes \(3,\)"):
        simulator(np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match=r"numbers\['length'\] must be a number, or have shape \(1,\), got \(3,\)"):
        simulator(LEVEL, REST, {"length": [1.0, 2.0, 3.0]})
    (tmp_path / "robot.bin").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="robot.bin' is not a simulator that ukjax.export wrote"):
        uk.load_simulator(tmp_path / "robot.bin")
    for how, said in (
        ({"over": "length"}, "over must name numbers of the model, such as"),
        ({"over": ["lenght"]}, "did you mean 'length'"),
        ({"over": ["x"]}, "q0 and v0 are always inputs"),
        ({"derivatives": True}, "derivatives need fixed steps"),
        ({"path": tmp_path / "none" / "robot.bin"}, "cannot be written"),
    ):
        given: dict[str, Any] = {"path": tmp_path / "robot.bin", "q0": LEVEL, "v0": REST} | how
        with pytest.raises(ValueError, match=said):
            uk.export(Pendulum(), TS, given.pop("path"), **given)


@pytest.mark.slow
@pytest.mark.parametrize("solver", (None, uk.MoreauJean()), ids=("event-driven", "MoreauJean"))
def test_exported_motion_with_impacts_matches_simulate(solver, tmp_path):
    dynamics = uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: 9.81 * q[0])
    ball = uk.System(dynamics, [uk.Unilateral(lambda t, q: q[0], restitution=0.9, name="floor")])
    how: Any = {"dt": 0.01, "solver": solver}
    uk.export(ball, TS, tmp_path / "ball.bin", q0=[0.1], v0=[0.0], derivatives=solver is not None, **how)
    simulator = uk.load_simulator(tmp_path / "ball.bin")
    heights = np.array([[0.1], [0.5], [0.2]])
    found = simulator(heights, np.zeros((3, 1)))
    for q, height in zip(found.q, heights, strict=True):
        np.testing.assert_allclose(q, uk.simulate(ball, height, [0.0], TS, **how).q, atol=1e-12)
    if solver is None:
        with pytest.raises(ValueError, match="MoreauJean"):
            uk.export(ball, TS, tmp_path / "other.bin", q0=[0.1], v0=[0.0], dt=0.01, derivatives=True)
        return
    end = lambda h: simulator(jax.numpy.stack([h]), np.zeros(1)).q[-1, 0]
    own = lambda h: uk.simulate(ball, jax.numpy.stack([h]), np.zeros(1), TS, **how).q[-1, 0]
    assert float(jax.grad(end)(0.1)) == pytest.approx(float(jax.grad(own)(0.1)), rel=1e-10)


@pytest.mark.slow
def test_exported_motion_of_a_sampled_motor_matches_simulate(tmp_path):
    """The current is a state, whose initial value may be given with the start."""
    law = uk.control.Feedback([[1.0]], lambda t, q, v: -2 * q - v, inputs=[("motor", "V")])
    motor = uk.control.DCMotor(law, resistance=1.3, inductance=0.2, constant=0.7, initial=0.1)
    cart = uk.System(uk.MassForce([[2.0]], [0.0]), control=uk.control.Sampled(motor, 0.1))
    uk.export(cart, TS, tmp_path / "cart.bin", q0=[0.4], v0=[0.0], dt=0.02)
    simulator = uk.load_simulator(tmp_path / "cart.bin")
    for current, v0 in ((0.1, [0.0]), (0.5, [0.0, 0.5])):
        found, own = simulator([0.4], v0), uk.simulate(cart, [0.4], [0.0, current], TS, dt=0.02)
        np.testing.assert_allclose(found.q, own.q, atol=1e-13)
        np.testing.assert_allclose(found.v, own.v, atol=1e-13)
        np.testing.assert_array_equal(found.states["current motor"], found.v[:, 1])
    assert len(repr(simulator)) < 500


@pytest.mark.slow
def test_exported_motion_whose_actuators_cannot_perform_the_task_does_not_count_as_finished(tmp_path):
    """The actuator is lost at 1 m, after 1 s."""
    how: Any = {"q0": [0.0, 0.0], "v0": [1.0, 1.0], "dt": 0.1}
    simulator = uk.load_simulator(uk.export(LostActuator(), [0.0, 1.2], tmp_path / "lost.bin", over=["end"], **how))
    assert simulator([[0.0, 0.0]] * 2, [1.0, 1.0], {"end": [1.0, 3.0]}).result.tolist() == [OUT_OF_REACH, 0]
