"""Cases that once failed without an error, in single precision, in batches, under ``jit`` and with each method. A
motion is correct or reports its failure."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

pytestmark = pytest.mark.optimised

METHODS = ["orthogonal", "cholesky", "svd", "kkt", "udwadia_phohomsiri"]
WAYS = ["one", "batch", "jit", "jit of a batch"]
STEPS: dict[str, dict[str, Any]] = {"adaptive": {}, "even": {"dt": 0.02, "solver": uk.RungeKutta4()}}


def asked(system, q0, v0, ts, way, dtype, method, **how: Any):
    """Whether the motion finished, and its last q, for a single motion or for two members."""
    q0, v0, ts = (np.asarray(x, dtype) for x in (q0, v0, ts))
    if "batch" in way:
        q0, v0 = np.tile(q0, (2, 1)), np.tile(v0, (2, 1))
    if dtype is np.float32:
        how = {"rtol": 1e-5} | how

    def motion(q0, v0):
        found = uk.simulate(system, q0, v0, ts, method=method, throw=False, **how)
        return found.finished, found.q[..., -1, :]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of functions without kernels, and of single precision
        finished, q = (jax.jit(motion) if "jit" in way else motion)(q0, v0)
    return np.atleast_1d(finished), np.atleast_2d(q)


def masses(*m, force=None):
    n = len(m)
    force = jnp.zeros(n) if force is None else jnp.asarray(force)
    return uk.MassForce(lambda t, q: jnp.diag(jnp.asarray(m, q.dtype)), lambda t, q, v: force.astype(q.dtype))


SYSTEMS = {
    "reach": (
        uk.System(masses(1.0, 1.0), uk.Holonomic(lambda t, q: jnp.cos(q[0]) + jnp.cos(q[1]) - 1 - t, name="reach")),
        [np.pi / 2, 0.0],
        [-1.0, 0.0],
    ),
    "jump": (
        uk.System(
            masses(1.0, 1.0), uk.Holonomic(lambda t, q: q[0] - jnp.where(t > 0.5, 1.0, 0.0) - t / 10, name="path")
        ),
        [0.0, 0.0],
        [0.1, 0.3],
    ),
}

PRECISIONS = [np.float64, np.float32]
USUAL = [(way, METHODS[0], PRECISIONS[k % 2]) for k, way in enumerate(WAYS)]
"""Each way with the default method. Each other method has one motion."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "steps", "way", "method", "dtype"),
    [(system, steps, *how) for system in SYSTEMS for steps in STEPS for how in USUAL]
    + [("reach", "adaptive", "one", method, np.float64) for method in METHODS[1:3]]
    + [("jump", "even", "one", method, np.float32) for method in METHODS[3:]],
)
def test_constraints_that_cannot_be_satisfied_are_reported(system, way, dtype, method, steps):
    finished, _ = asked(*SYSTEMS[system], [0.0, 0.4, 2.0], way, dtype, method, **STEPS[steps])
    assert not finished.any()


@pytest.mark.slow
@pytest.mark.parametrize(("way", "method", "dtype"), USUAL)
def test_motion_does_not_depend_on_units(way, dtype, method):
    """A pendulum of 1 µm moves as one of 1 m, in a thousandth of the time."""
    unit = 2.0**-20

    def swing(unit):
        system = uk.System(masses(1.0, 1.0, force=[0.0, -9.81]), uk.Holonomic(lambda t, q: q @ q - unit**2, name="rod"))
        ts = np.array([0.0, 1.0]) * np.sqrt(unit)
        return asked(system, [-unit, 0.0], [0.0, 0.0], ts, way, dtype, method)

    (small, there), (large, here) = swing(unit), swing(1.0)
    assert small.all() and large.all()
    np.testing.assert_array_equal(there / unit, here)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_motion_does_not_depend_on_origin_of_time(way):
    spring = uk.System(uk.MassForce(lambda t, q: jnp.eye(2), lambda t, q, v: -q), uk.Holonomic(lambda t, q: q[1]))
    finished, q = asked(spring, [1.0, 0.0], [0.0, 0.0], 1.7e9 + np.array([0.0, 8.0]), way, np.float64, METHODS[0])
    assert finished.all()
    np.testing.assert_allclose(q[:, 0], np.cos(8.0), rtol=0, atol=3e-8)
