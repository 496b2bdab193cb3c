"""Checks of the named examples of the documentation: a function of (names, printed) for each.

``names`` are the variables of the page after the block, ``printed`` is the output of the block.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np


def example(names, printed):
    np.testing.assert_allclose(names["motion"].q[-1], [-0.275087462576117, -0.961419205099125], rtol=0, atol=1e-8)
    assert "[-0.27508746 -0.96141921]" in printed


def kinematic_map(names, printed):
    """Energy and angular momentum of the tumbling body are conserved."""
    inertia, motion = np.asarray(names["inertia"]), names["motion"]
    momentum = inertia * np.asarray(motion.v)
    for kept in (np.sum(momentum * motion.v, axis=1), np.sum(momentum**2, axis=1)):
        np.testing.assert_allclose(kept, kept[0], rtol=1e-9)
    assert motion.finished and np.min(motion.v[:, 1]) < -1.9  # the body has turned over
    np.testing.assert_allclose(np.linalg.norm(motion.q, axis=1), 1, rtol=0, atol=1e-12)


def servo(names, printed):
    """The two robots lift their load."""
    motion = names["motion"]
    np.testing.assert_allclose(motion.control[0], [8.225, 0, -8.225, 8.225, 0, -8.225], rtol=0, atol=1e-9)
    assert np.abs(motion.residual).max() < 1e-14


def event(names, printed):
    """The ball bounces, and the motion reaches its last time."""
    impacts = np.sqrt(2 / 9.81) * np.cumsum([1, *2 * 0.8 ** np.arange(1, 6)])
    said = [float(line.split()[0]) for line in printed.splitlines()]
    np.testing.assert_allclose(said, impacts, rtol=1e-14)
    assert names["flight"].finished and float(names["t"]) == 3.0


def mechanism(names, printed):
    """The piston position matches the textbook function of the crank angle."""
    angle = names["motion"].q[-1, 0]
    x = 0.1 * np.cos(angle) + np.sqrt(0.3**2 - (0.1 * np.sin(angle)) ** 2)
    np.testing.assert_allclose(names["engine"].pose(names["motion"].q[-1])["piston"].p, [x, 0, 0], rtol=0, atol=1e-12)


def robot(names, printed):
    """The five-bar comes to rest at the targets of its motors, with a closed loop."""
    motion, loaded = names["motion"], names["robot"]
    assert np.abs(motion.v[-1]).max() < 1e-3
    there = loaded.pose(motion.q[-1])
    tips = [
        there["left_lower"].p + there["left_lower"].R @ jnp.array([0.26, 0, 0.15]),
        there["right_lower"].p + there["right_lower"].R @ jnp.array([-0.26, 0, 0.15]),
    ]
    np.testing.assert_allclose(tips[0], tips[1], rtol=0, atol=1e-12)


def step(names, printed):
    """The pole is upright."""
    state = names["state"]
    assert state.reason == "reached its last time" and abs(float(state.t) - 8.0) < 1e-5
    np.testing.assert_allclose([*state.q, *state.v], np.zeros(4), rtol=0, atol=0.01)


def fit(names, printed):
    """The parameters of the swing are identified as far as the data determine them."""
    result = names["found"]
    assert result.undetermined == ("m", "k") and result.converged
    exact = {"m": 0.8, "l": 1.3, "k": 0.2}
    for combination in result.combinations:
        assert abs(combination.value - combination.of(exact)) < 4 * combination.error
    assert 1 / 3 < result.values[0] < 3  # a parameter that the data do not determine stays near the guess
    assert {"m / k = 4.", "k / m = 0.2"} & set(re.findall(r"m / k = 4\.|k / m = 0\.2", printed))


def batch(names, printed):
    """All members finish on the constraints. Without gravity and motors, kinetic energy is conserved."""
    motion = names["motion"]
    assert motion.q.shape == (2000, 2, 6) and bool(motion.finished.all())
    assert np.abs(motion.residual).max() < 1e-12
    assert int(motion.steps.max()) > int(motion.steps.min())
    mass = jax.vmap(lambda q: names["free"](0.0, q, q).M)
    kinetic = lambda q, v: jnp.einsum("bi,bij,bj->b", v, mass(q), v)
    first, last = (kinetic(motion.q[:, k], motion.v[:, k]) for k in (0, -1))
    np.testing.assert_allclose(last, first, rtol=0, atol=1e-7 * float(first.max()))


def ensemble(names, printed):
    """Near the upright position, θ1 is that of an inverted pendulum: it falls to the side where it started."""
    found = names["found"]
    assert found.finished.all() and found.q.shape == (1000, 1, 3) and not found.failures
    theta, speed = found.q[:, 0, 0], found.over["dtheta1"]
    swing = np.abs(speed) < 0.1
    np.testing.assert_array_equal(np.sign(theta[swing]), np.sign(speed[swing]))
    assert printed.startswith("1000 ")


CHECKS = {
    "example": example,
    "kinematic map": kinematic_map,
    "servo": servo,
    "event": event,
    "mechanism": mechanism,
    "robot": robot,
    "step": step,
    "fit": fit,
    "batch": batch,
    "ensemble": ensemble,
}
