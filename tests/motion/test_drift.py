"""Violations of constraints without correction, with Baumgarte's method and with projection."""

from typing import Any

import numpy as np
import pytest

import ukjax as uk

from ..mechanisms import Pendulum

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}


def test_violation_grows_linearly_without_correction():
    """The equation gives φ̈ = 0 only, and so φ = φ0 + t φ̇0 for any motion."""
    motion = uk.simulate(Pendulum(), [-1.001, 0.0], [0.01, 0.0], np.linspace(0, 3, 31), drift="none", **TIGHT)
    phi, rate = motion.residual[0, 0], motion.velocity_residual[0, 0]
    assert abs(float(rate)) > 0.01
    np.testing.assert_allclose(motion.residual[:, 0], phi + rate * motion.t, rtol=0, atol=1e-8)


def test_critically_damped_violation_matches_closed_form():
    rate = 3.0
    alpha, beta = uk.critically_damped(rate)
    start = [-1.01, 0.0], [0.0, 0.5]
    motion = uk.simulate(Pendulum(alpha=alpha, beta=beta), *start, np.linspace(0, 4, 41), drift="none", **TIGHT)
    t, phi, phi_dot = (np.asarray(x) for x in (motion.t, motion.residual[:, 0], motion.velocity_residual[:, 0]))
    np.testing.assert_allclose(phi, (phi[0] + (phi_dot[0] + rate * phi[0]) * t) * np.exp(-rate * t), rtol=0, atol=1e-9)


def test_projection_keeps_constraints_at_rounding():
    motion = uk.simulate(Pendulum(), [-1.0, 0.0], [0.0, 0.0], np.linspace(0, 10, 101), rtol=1e-6, atol=1e-6)
    assert np.abs(motion.residual).max() < 1e-14
    assert np.abs(motion.velocity_residual).max() < 1e-13


def test_projection_of_velocities_never_adds_energy(rng):
    model = Pendulum()
    for _ in range(5):
        angle, v0 = rng.uniform(0, 6), rng.normal(size=2)
        q0 = np.array([np.sin(angle), -np.cos(angle)])
        _, v = uk.project(model, 0.0, q0, v0)
        assert float(v @ v) <= v0 @ v0 + 1e-14


@pytest.mark.parametrize("drift", ["projection", "none"])
def test_only_projection_needs_consistent_start(drift):
    simulate = lambda: uk.simulate(Pendulum(beta=9.0, alpha=6.0), [-1.1, 0.0], [0.0, 0.0], [0.0, 3.0], drift=drift)
    if drift == "projection":
        with pytest.raises(ValueError, match="off the constraints"):
            simulate()
    else:
        residual = simulate().residual
        assert abs(float(residual[-1, 0])) < 0.01 * abs(float(residual[0, 0]))
