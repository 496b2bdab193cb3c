"""Estimation of parameters of a system with impacts."""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..helpers import central_difference

G, SIGMA = 9.81, 1e-3
T = np.linspace(0, 2, 81)


class Ball(uk.systems.AbstractMechanism):
    """A ball without spin, thrown from 1 m at 3 m/s along the floor. It bounces, and friction slows it at impacts."""

    e: uk.systems.Parameter = uk.systems.parameter(0.8)
    mu: uk.systems.Parameter = uk.systems.parameter(0.2)
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("x", "m"), ("z", "m"))

    @property
    def dynamics(self):
        return uk.MassForce(jnp.eye(2), jnp.array([0.0, -G]))

    @property
    def nonsmooth(self):
        return (uk.Unilateral(lambda t, q: q[1:], self.e, self.mu, lambda t, q, v: v[:1], name="floor"),)

    def start(self):
        return jnp.array([0.0, 1.0]), jnp.array([3.0, 0.0])

    def outline(self, t, q):
        return (q[None],)


def closed_form(x):
    """Return (x, z) at the times T for x = (e, mu)."""
    e, mu = x
    out, t, q, v = [], 0.0, np.array([0.0, 1.0]), np.array([3.0, 0.0])
    for at in T:
        while True:
            flight = (v[1] + np.sqrt(v[1] ** 2 + 2 * G * q[1])) / G
            if t + flight > at:
                break
            down = np.sqrt(v[1] ** 2 + 2 * G * q[1])
            q, t = np.array([q[0] + v[0] * flight, 0.0]), t + flight
            v = np.array([max(v[0] - mu * (1 + e) * down, 0.0), e * down])
        s = at - t
        out.append(q + v * s - np.array([0, G * s**2 / 2]))
    return np.ravel(out)


@pytest.mark.slow
def test_fitted_restitution_and_friction_and_standard_errors_match_closed_form(rng):
    truth = np.array([0.8, 0.2])
    y = closed_form(truth) + SIGMA * rng.normal(size=2 * T.size)
    experiment = uk.Experiment(T, y.reshape(-1, 2), Ball().start(), sigma=SIGMA)
    found = uk.fit(Ball(e=0.75, mu=0.17), experiment, ["e", "mu"], fit_starts=False)
    J = central_difference(closed_form, truth, 1e-7) / SIGMA
    errors = np.sqrt(np.diag(np.linalg.inv(J.T @ J)))
    assert np.all(np.abs(found.values - truth) < 4 * errors)
    residuals = (y - closed_form(found.values)) / SIGMA
    best = found.values + np.linalg.lstsq(J, residuals, rcond=None)[0]
    np.testing.assert_allclose(found.values, best, atol=1e-3 * errors.min())  # a minimum of the closed form
    scale = np.sqrt(residuals @ residuals / (y.size - 2))
    np.testing.assert_allclose(found.errors / scale, errors, rtol=1e-3)
