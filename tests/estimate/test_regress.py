"""Linear regression on the equations of motion: against motions by SciPy and closed forms."""

import re
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import ukjax as uk
from ukjax.systems import Parameter, parameter

from .test_fit import Rod, Swing

TS = np.linspace(0.0, 6.0, 601)


class Lever(uk.AbstractSystem):
    """A body with one pivot, as a free body (x, y, angle) pinned at the origin: I q̈ = −g h sin q − k q̇ + torque."""

    h: Parameter = parameter(1.0)
    I: Parameter = parameter(1.0)
    k: Parameter = parameter(1.0)
    length: Parameter = parameter(1.0)
    torque: Parameter = parameter(np.zeros(601))

    @property
    def dynamics(self):
        def M(t, q):
            x, y = self.h * jnp.cos(q[2]), self.h * jnp.sin(q[2])
            one, none = 1 + 0 * x, 0 * x
            return jnp.array([[one, none, x], [none, one, y], [x, y, self.I]])

        def Q(t, q, v):
            out = self.h * v[2] ** 2
            turning = jnp.interp(t, TS, self.torque) - self.k * v[2] - 9.81 * self.h * jnp.sin(q[2])
            return jnp.stack([out * jnp.sin(q[2]), -out * jnp.cos(q[2]) - 9.81, turning])

        return uk.MassForce(M, Q)

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: q[:2] * self.length),)


TRUE = dict(h=0.7, I=0.4, k=0.15)


def torque(t):
    return 2.0 * np.sin(1.3 * t) + np.cos(3.1 * t)


def measured(noise=0.0, **more):
    """Return an experiment with the angle by SciPy."""
    rate = lambda t, y: [y[1], (torque(t) - TRUE["k"] * y[1] - 9.81 * TRUE["h"] * np.sin(y[0])) / TRUE["I"]]
    angle = scipy.integrate.solve_ivp(rate, (0.0, 6.0), [0.3, 0.0], t_eval=TS, rtol=1e-11, atol=1e-11).y[0]
    angle = angle + noise * np.random.default_rng(1).normal(size=angle.size)
    return uk.Experiment(TS, angle, [0.3, 0.0], setting={"torque": torque(TS)}, **more)


def coordinates_of(model, s):
    return jnp.concatenate([jnp.zeros(2), s])


HOW: dict[str, Any] = dict(cutoff=10.0, coordinates_of=coordinates_of)


def test_regress_estimates_inertia_and_friction_of_a_driven_lever():
    found = uk.regress(Lever(), measured(), ["h", "I", "k"], **HOW)
    np.testing.assert_allclose(found.values, list(TRUE.values()), rtol=1e-3)
    assert found.rms[0] < 5e-3  # of torques of 3 N m: the error of the filter
    assert np.all(found.identifiability.determined)
    assert "± standard error" in str(found) and found.as_dict()["parameters"]["I"]["estimate"] == found.values[1]
    np.testing.assert_allclose(found.model.h, found.values[0])


def test_standard_errors_match_the_effect_of_noise():
    noisy = [uk.regress(Lever(), measured(noise=2e-4 * s), ["h", "I", "k"], **HOW) for s in (1.0, -1.0)]
    apart = np.abs(noisy[0].values - noisy[1].values) / 2
    assert np.all(apart < 4 * noisy[0].errors) and np.all(noisy[0].errors < 0.05 * np.array([0.7, 0.4, 0.15]))


def test_missing_force_is_the_omitted_friction():
    true = replace(Lever(), **TRUE)
    _, nothing = uk.missing_force(true, measured(), **HOW)
    t, friction = uk.missing_force(replace(true, k=0.0), measured(), **HOW)
    rate = np.gradient(measured().y[:, 0], TS)
    np.testing.assert_allclose(friction[:, 0] - nothing[:, 0], -0.15 * np.interp(t, TS, rate), atol=2e-3)
    assert np.abs(nothing).max() < 0.05


def test_regress_with_constraints_and_measured_coordinates():
    """Gravity is estimated from the Cartesian track of a pendulum."""
    rate = lambda t, y: [y[1], -9.81 / 1.3 * np.sin(y[0])]
    angle = scipy.integrate.solve_ivp(rate, (0.0, 6.0), [1.0, 0.0], t_eval=TS, rtol=1e-11, atol=1e-11).y[0]
    track = 1.3 * np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    found = uk.regress(replace(Rod(), g=5.0), uk.Experiment(TS, track, np.zeros(4)), "g", cutoff=10.0)
    np.testing.assert_allclose(found.values, [9.81], rtol=1e-3)


def test_positive_parameters_stay_nonnegative():
    """The lever gains energy, so that the best friction would be negative."""
    experiment = measured()
    driven = uk.Experiment(TS, experiment.y[::-1], experiment.start, setting={"torque": torque(TS)[::-1].copy()})
    assert uk.regress(replace(Lever(), **TRUE), driven, "k", **HOW).values[0] == 0
    free = uk.regress(replace(Lever(), **TRUE), driven, "k", bounds={"k": None}, **HOW)
    np.testing.assert_allclose(free.values, [-0.15], rtol=2e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(free="length", coordinates_of=None, model=Rod(), y=np.ones((601, 2))), "Rod has no number 'length'"),
        (
            dict(model=Swing(), free=["k", "l"], setting=None, coordinates_of=None),
            "'l' does not enter the equations of motion",
        ),
        (dict(model=Swing(), free=["m", "g"], setting=None, coordinates_of=None), "m, g multiply each other"),
        (dict(model=Swing(), free=["m", "k"], setting=None, coordinates_of=None), "only up to a common factor"),
        (dict(cutoff=60.0), "cutoff must lie below half the samples per second, 50 Hz"),
        (dict(cutoff=0.5), "too short for a cutoff of 0.5 Hz"),
        (dict(coordinates_of=lambda s: s), "coordinates_of must take (model, s)"),
        (dict(measured=np.arange(601) > 3), "experiment 0 must have all values"),
        (dict(setting={"torque": np.zeros(600)}), "or a row for each of 601 samples"),
        (dict(experiments=[]), "experiments must be one ukjax.Experiment or several"),
    ],
)
def test_bad_input_raises(change, message):
    given: dict[str, Any] = dict(model=Lever(), free="h", y=measured().y[:, 0], setting=measured().setting, **HOW)
    given |= change
    about = {key: given.pop(key) for key in ("y", "setting", "measured") if key in given}
    given.setdefault("experiments", uk.Experiment(TS, about.pop("y"), [0.3, 0.0], **about))
    with pytest.raises(ValueError, match=re.escape(message)):
        uk.regress(**given)
