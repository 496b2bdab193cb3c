"""The README's example does what its comments say."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

pytestmark = pytest.mark.optimised

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_example_runs_and_its_numbers_are_right(capsys):
    found = re.search(r"<!-- example -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    np.testing.assert_allclose(names["motion"].q[-1], [-0.275087462576117, -0.961419205099125], rtol=0, atol=1e-8)
    assert "[-0.27508746 -0.96141921]" in capsys.readouterr().out


def test_the_tumbling_body_keeps_energy_and_momentum():
    found = re.search(r"<!-- kinematic map -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    names = {}
    exec(found.group(1), names)
    inertia, motion = np.asarray(names["inertia"]), names["motion"]
    momentum = inertia * np.asarray(motion.v)
    for kept in (np.sum(momentum * motion.v, axis=1), np.sum(momentum**2, axis=1)):
        np.testing.assert_allclose(kept, kept[0], rtol=1e-9)
    assert motion.finished and np.min(motion.v[:, 1]) < -1.9  # it has turned over
    np.testing.assert_allclose(np.linalg.norm(motion.q, axis=1), 1, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_robots_lift_their_load():
    found = re.search(r"<!-- servo -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    motion = names["motion"]
    np.testing.assert_allclose(motion.control[0], [8.225, 0, -8.225, 8.225, 0, -8.225], rtol=0, atol=1e-9)
    assert np.abs(motion.residual).max() < 1e-14


def test_the_ball_bounces_and_comes_to_the_end(capsys):
    found = re.search(r"<!-- event -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    impacts = np.sqrt(2 / 9.81) * np.cumsum([1, *2 * 0.8 ** np.arange(1, 6)])
    said = [float(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(said, impacts, rtol=1e-14)
    assert names["flight"].finished and float(names["t"]) == 3.0


@pytest.mark.slow
def test_the_engine_turns():
    found = re.search(r"<!-- mechanism -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    angle = names["motion"].q[-1, 0]
    x = 0.1 * np.cos(angle) + np.sqrt(0.3**2 - (0.1 * np.sin(angle)) ** 2)
    # The piston's frame turns with nothing: its place is the textbook's function of the crank's angle.
    np.testing.assert_allclose(names["engine"].pose(names["motion"].q[-1])["piston"].p, [x, 0, 0], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_five_bar_goes_where_its_motors_hold_it():
    pytest.importorskip("mujoco")
    found = re.search(r"<!-- robot -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    motion, robot = names["motion"], names["robot"]
    # Motors, gravity, the loop: what is left of the motion after two seconds is nothing.
    assert np.abs(motion.v[-1]).max() < 1e-3
    there = robot.pose(motion.q[-1])
    tips = [
        there["left_lower"].p + there["left_lower"].R @ jnp.array([0.26, 0, 0.15]),
        there["right_lower"].p + there["right_lower"].R @ jnp.array([-0.26, 0, 0.15]),
    ]
    np.testing.assert_allclose(tips[0], tips[1], rtol=0, atol=1e-12)


def test_the_pole_stands_after_all_those_steps():
    found = re.search(r"<!-- step -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    state = names["state"]
    assert state.reason == "reached its last time" and float(state.t) == pytest.approx(8.0)
    np.testing.assert_allclose([*state.q, *state.v], np.zeros(4), rtol=0, atol=0.01)


def test_the_swing_is_identified(capsys):
    found = re.search(r"<!-- fit -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    result = names["found"]
    assert result.undetermined == ("m", "k") and result.converged
    exact = {"m": 0.8, "l": 1.3, "k": 0.2}
    for combination in result.combinations:
        assert abs(combination.value - combination.of(exact)) < 4 * combination.error
    assert 1 / 3 < result.values[0] < 3  # what is not determined stays near the guess
    assert {"m / k = 4.", "k / m = 0.2"} & set(re.findall(r"m / k = 4\.|k / m = 0\.2", capsys.readouterr().out))


@pytest.mark.slow
def test_thousands_move_at_once():
    found = re.search(r"<!-- batch -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    motion = names["motion"]
    assert motion.q.shape == (2000, 2, 6) and bool(motion.finished.all())
    assert np.abs(motion.residual).max() < 1e-12
    assert int(motion.steps.max()) > int(motion.steps.min())
    # No gravity and no motors: the kinetic energy is kept.
    mass = jax.vmap(lambda q: names["free"](0.0, q, q).M)
    kinetic = lambda q, v: jnp.einsum("bi,bij,bj->b", v, mass(q), v)
    first, last = (kinetic(motion.q[:, k], motion.v[:, k]) for k in (0, -1))
    np.testing.assert_allclose(last, first, rtol=0, atol=1e-7 * float(first.max()))


def test_the_gallery_is_all_there():
    listed = set(re.findall(r"`([a-z_]+)`", README.split("## The gallery")[1].split("##")[0]))
    assert set(uk.systems.CATALOGUE) <= listed


def test_what_it_names_between_the_examples_is_there():
    """``uk.tune`` and its like, and the attributes of what the examples call ``found`` and ``motion``."""
    text = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    named = re.findall(r"\b(uk|found|motion)\.(\w+)(?:\.(\w+))?", " ".join(re.findall(r"`([^`]+)`", text)))
    assert ("found", "covariance", "") in named and ("uk", "plot", "tuned") in named
    owners = {"uk": uk, "found": uk.Fit, "motion": uk.Trajectory}
    for owner, name, deeper in named:
        known = dir(owners[owner]) + list(getattr(owners[owner], "__dataclass_fields__", ()))
        assert name in known, f"{owner}.{name}"
        assert not deeper or hasattr(getattr(owners[owner], name), deeper), f"{owner}.{name}.{deeper}"


@pytest.mark.slow
def test_the_four_bars_come_to_their_ends(capsys):
    found = re.search(r"<!-- ensemble -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found
    names = {}
    exec(found.group(1), names)
    ensemble = names["found"]
    assert ensemble.finished.all() and ensemble.q.shape == (1000, 1, 3) and not ensemble.failures
    theta, speed = ensemble.q[:, 0, 0], ensemble.over["dtheta1"]
    swing = np.abs(speed) < 0.1  # near the upright, θ1 is that of an inverted pendulum: it falls to its own side
    np.testing.assert_array_equal(np.sign(theta[swing]), np.sign(speed[swing]))
    assert capsys.readouterr().out.startswith("1000 ")


def test_both_commands_are_there():
    for name in ("main", "test"):
        assert re.search(rf"<!-- {name} -->\n```bash\npython3 -m venv .*\n```", README)


def test_the_tables_are_made_of_the_saved_results():
    """`python -m benchmarks readme` renews them."""
    from benchmarks import readme

    assert readme.renewed(README) == README
