"""``dt`` gives steps of equal length between samples, with any other options."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..mechanisms import Pendulum

TS = np.array([0.0, 0.025, 0.1, 0.37])
DT, STEPS = 0.01, 3 + 8 + 27  # the fewest steps that are not longer than dt
START = [-1.0, 0.0], [0.0, 0.3]
MANY = np.stack([START[0], [0.0, -1.0], [0.6, 0.8]]), np.array([[0.0, 0.3], [0.5, 0.0], [-0.8, 0.6]])


@pytest.fixture(scope="module")
def plain():
    return uk.simulate(Pendulum(), *START, TS, dt=DT, solver=uk.RungeKutta4())


@pytest.mark.parametrize(
    "besides",
    (
        {"adjoint": dfx.RecursiveCheckpointAdjoint()},
        {"progress": True},
        {"event": lambda t, q, v: q[1] - 2.0},
    ),
    ids=("adjoint", "progress", "event"),
)
def test_other_options_do_not_change_fixed_steps(plain, besides):
    motion = uk.simulate(Pendulum(), *START, TS, dt=DT, solver=uk.RungeKutta4(), **besides)
    assert int(motion.steps) == int(plain.steps) == STEPS
    np.testing.assert_array_equal(motion.t, TS)
    np.testing.assert_allclose(motion.q, plain.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.v, plain.v, rtol=0, atol=1e-12)


def test_steps_match_runge_kutta_4_formula():
    """Without projection, against the formula in NumPy."""
    motion = uk.simulate(Pendulum(), *START, TS, dt=DT, solver=uk.RungeKutta4(), drift="none")

    def rates(y):
        q, v = y[:2], y[2:]
        pull = (9.81 * q[1] - v @ v) / (q @ q)
        return np.concatenate([v, [0, -9.81] + pull * q])

    y, samples = np.concatenate(START), [np.concatenate(START)]
    for length, count in zip(np.diff(TS), (3, 8, 27), strict=True):
        h = length / count
        for _ in range(count):
            k1 = rates(y)
            k2 = rates(y + h / 2 * k1)
            k3 = rates(y + h / 2 * k2)
            k4 = rates(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        samples.append(y)
    np.testing.assert_allclose(np.concatenate([motion.q, motion.v], axis=1), samples, rtol=0, atol=1e-13)
    assert int(motion.steps) == STEPS


def test_batch_takes_same_fixed_steps_as_single_motions():
    together = uk.simulate(Pendulum(), *MANY, TS, dt=DT, solver=uk.RungeKutta4())
    assert np.asarray(together.steps).tolist() == [STEPS] * 3
    for i in range(3):
        alone = uk.simulate(Pendulum(), MANY[0][i], MANY[1][i], TS, dt=DT, solver=uk.RungeKutta4())
        np.testing.assert_allclose(together.q[i], alone.q, rtol=0, atol=1e-12)
        np.testing.assert_allclose(together.v[i], alone.v, rtol=0, atol=1e-12)


def test_fixed_steps_under_jit_match_eager():
    import jax

    alone = uk.simulate(Pendulum(), *START, TS, dt=DT)
    end = jax.jit(lambda v0: uk.simulate(Pendulum(), jnp.array(START[0]), v0, TS, dt=DT).q)
    np.testing.assert_allclose(end(jnp.array(START[1])), alone.q, rtol=0, atol=1e-12)


def stacked(jaxpr, steps):
    """The count of numbers per step that each loop over this many steps saves, nested loops included."""
    found = []
    for equation in jaxpr.eqns:
        parts = [
            part for value in equation.params.values() for part in (value if isinstance(value, tuple) else (value,))
        ]
        inner = [getattr(part, "jaxpr", part) for part in parts if hasattr(getattr(part, "jaxpr", part), "eqns")]
        if equation.primitive.name == "scan" and equation.params["length"] == steps:
            kept = [x.aval for x in equation.outvars[equation.params["num_carry"] :]]
            found.append(sum(x.size for x in kept) / steps)
        for part in inner:
            found += stacked(part, steps)
    return found


def test_derivative_of_batch_saves_only_state_at_start_of_each_step():
    """q, v and whether the step was taken. Values that all steps share are not saved at each step."""
    members, steps = 128, 30
    q0, v0 = (np.tile(x, (members, 1)) for x in START)
    after = lambda speed: jnp.sum(uk.simulate(Pendulum(), q0, speed * v0, [0.0, 0.3], dt=0.01).q[:, -1])
    assert max(stacked(jax.make_jaxpr(jax.grad(after))(1.0).jaxpr, steps)) <= 5 * members
    # The derivative is correct.
    h, slope = 1e-4, float(jax.grad(after)(1.0))
    difference = (8 * (after(1 + h) - after(1 - h)) - (after(1 + 2 * h) - after(1 - 2 * h))) / (12 * h)
    assert slope == pytest.approx(float(difference), rel=1e-8)
