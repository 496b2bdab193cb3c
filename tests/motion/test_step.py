"""``uk.step`` takes the same steps as ``simulate``, also under transformations and in batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..mechanisms import GRAVITY, Pendulum, pendulum_exact

LEVEL, REST = [-1.0, 0.0], [0.0, 0.3]
MANY = np.stack([LEVEL, [0.0, -1.0], [0.6, 0.8]]), np.array([[0.0, 0.3], [0.5, 0.0], [-0.8, 0.6]])
DT, COUNT = 0.01, 20
SAME = 1e-14


def driven(copies=1):
    """The pendulum with a control law: a horizontal force −v at the bob."""
    plant = Pendulum(copies=copies)
    law = uk.control.Feedback(np.array([[1.0], [0.0]]), lambda t, q, v: -v[:1])
    return uk.System(plant.dynamics, plant.constraints, control=law)


def after(system, q0, v0, **how):
    state = uk.initial_state(system, q0, v0)
    for _ in range(COUNT):
        state = uk.step(system, state, DT, **how)
    return state


@pytest.mark.parametrize(
    ("system", "start"),
    (
        pytest.param(Pendulum(), (LEVEL, REST), id="one-free"),
        pytest.param(driven(), (LEVEL, REST), id="one-driven"),
        pytest.param(Pendulum(copies=2), (LEVEL, REST), id="one-redundant"),
        pytest.param(Pendulum(), MANY, id="batch-free"),
        pytest.param(driven(), MANY, id="batch-driven", marks=pytest.mark.slow),
        pytest.param(Pendulum(copies=2), MANY, id="batch-redundant", marks=pytest.mark.slow),
    ),
)
def test_steps_match_simulate(system, start):
    q0, v0 = start
    motion = uk.simulate(system, q0, v0, [0.0, COUNT * DT], dt=DT, solver=uk.RungeKutta4())
    state = after(system, q0, v0)
    np.testing.assert_allclose(state.q, motion.q[..., -1, :], rtol=0, atol=SAME)
    np.testing.assert_allclose(state.v, motion.v[..., -1, :], rtol=0, atol=SAME)
    np.testing.assert_allclose(state.t, COUNT * DT, rtol=0, atol=SAME)
    assert np.all(np.asarray(state.result) == 0) and np.all(state.reason == "reached its last time")


def test_steps_match_elliptic_functions():
    state = uk.initial_state(Pendulum(), LEVEL, [0.0, 0.0])
    for _ in range(10):
        state = uk.step(Pendulum(), state, 0.1, steps=100)
    np.testing.assert_allclose(state.q, pendulum_exact(1.0), rtol=0, atol=1e-9)


def test_several_steps_in_one_call_match_single_steps():
    once = uk.step(Pendulum(), uk.initial_state(Pendulum(), LEVEL, REST), COUNT * DT, steps=COUNT)
    one_by_one = after(Pendulum(), LEVEL, REST)
    np.testing.assert_allclose(once.q, one_by_one.q, rtol=0, atol=SAME)
    np.testing.assert_allclose(once.v, one_by_one.v, rtol=0, atol=SAME)


@pytest.mark.parametrize("copies", (1, 2), ids=("usual", "redundant"))
def test_steps_under_jit_and_scan_match_eager(copies):
    system = Pendulum(copies=copies)

    @jax.jit
    def rolled(state):
        return jax.lax.scan(lambda state, _: (uk.step(system, state, DT), None), state, length=COUNT)[0]

    found, expected = rolled(uk.initial_state(system, LEVEL, REST)), after(system, LEVEL, REST)
    np.testing.assert_allclose(found.q, expected.q, rtol=0, atol=10 * SAME)
    np.testing.assert_allclose(found.v, expected.v, rtol=0, atol=10 * SAME)


@pytest.mark.slow
def test_vmap_over_starts_matches_batch():
    together = uk.step(Pendulum(), uk.initial_state(Pendulum(), *MANY), DT)
    each = jax.vmap(lambda q, v: uk.step(Pendulum(), uk.initial_state(Pendulum(), q, v), DT).q)(*map(jnp.asarray, MANY))
    np.testing.assert_allclose(each, together.q, rtol=0, atol=SAME)


def test_explicit_input_replaces_control_law():
    """A constant horizontal force is equivalent to inclined gravity."""
    system, u = driven(), 2.0
    leaning = uk.System(uk.MassForce(np.eye(2), np.array([u, -GRAVITY])), Pendulum().constraints)
    given = after(system, LEVEL, REST, u=[u])
    np.testing.assert_allclose(given.q, after(leaning, LEVEL, REST).q, rtol=0, atol=1e-13)
    assert np.abs(given.q - after(system, LEVEL, REST).q).max() > 1e-4


def test_members_of_batch_have_different_inputs():
    system, u = driven(), np.array([[0.0], [1.0], [-2.0]])
    together = uk.step(system, uk.initial_state(system, *MANY), DT, u)
    for i in range(3):
        alone = uk.step(system, uk.initial_state(system, MANY[0][i], MANY[1][i]), DT, u[i])
        np.testing.assert_allclose(together.q[i], alone.q, rtol=0, atol=SAME)


def eighth_order(function, x, h):
    """f'(x) with an error of h⁸ times a ninth derivative."""
    weights = 4 / 5, -1 / 5, 4 / 105, -1 / 280
    return sum(w * (function(x + k * h) - function(x - k * h)) for k, w in enumerate(weights, 1)) / h


def test_gradients_match_finite_differences():
    system = driven(copies=2)

    def height(x):
        """A function of the input and of a mass."""
        model = uk.System(
            uk.MassForce(jnp.exp(x) * jnp.eye(2), jnp.exp(x) * jnp.array([0.0, -GRAVITY])),
            system.constraints,
            control=system.control,
        )
        state = uk.initial_state(model, LEVEL, REST)
        for _ in range(3):
            state = uk.step(model, state, 0.05, jnp.stack([jnp.sin(x)]))
        return state.q[1]

    gradient = float(jax.grad(height)(0.7))  # first, so that the rows are chosen while numbers are traced
    expected = eighth_order(lambda x: float(height(x)), 0.7, 0.05)
    assert abs(expected) > 1e-6
    assert gradient == pytest.approx(expected, rel=1e-8)
    assert float(jax.jacfwd(height)(0.7)) == pytest.approx(expected, rel=1e-8)


def test_models_of_same_structure_with_different_redundant_rows():
    """A point on a line under gravity, with three planes of which two are the same: the rows cached for one model are
    wrong for the next. Exact: v t + (g·e) e t²/2 along the line e."""

    def on_line(planes):
        phi = Planes(jnp.asarray(planes))
        return uk.System(uk.MassForce(np.eye(3), [0.0, 0.0, -GRAVITY]), uk.Holonomic(phi, name=("a", "b", "c")))

    def moved(planes, line):
        system = on_line(planes)
        state = uk.initial_state(system, np.zeros(3), line)
        return uk.step(system, uk.step(system, state, DT), DT).q

    a, b = np.array([1.0, 2.0, -1.0]), np.array([0.0, 1.0, 3.0])
    line = np.cross(a, b) / np.linalg.norm(np.cross(a, b))
    expected = 2 * DT * line - GRAVITY * line[2] * line * (2 * DT) ** 2 / 2
    orders = [a, a, b], [a, b, b], [b, a, b], [a, b, a]
    for planes in orders:
        np.testing.assert_allclose(moved(planes, line), expected, rtol=0, atol=SAME)
    traced = jax.jit(jax.vmap(moved, in_axes=(0, None)))(np.stack(orders), line)
    np.testing.assert_allclose(traced, np.tile(expected, (4, 1)), rtol=0, atol=SAME)


class Planes(eqx.Module):
    """Planes through the origin, by their normals (3, 3)."""

    normals: jax.Array

    def __call__(self, t, q):
        return self.normals @ q


def test_result_of_step_reports_failed_member():
    blown = uk.System(uk.MassForce(np.eye(2), lambda t, q, v: jnp.where(q > 0.5, jnp.nan, -q)), ())
    state = uk.step(blown, uk.initial_state(blown, [[0.1, 0.1], [0.9, 0.0]], [0.0, 0.0]), DT)
    assert np.asarray(state.reason).tolist() == ["reached its last time", "came to a number that is not finite"]


@pytest.mark.parametrize(
    ("asked", "message"),
    (
        (lambda: uk.initial_state(Pendulum(), [-1.0, 0.1], [0.0, 0.0]), r"the start is off the constraints.*'rod'"),
        (lambda: uk.initial_state(Pendulum(), -1.0, 0.0), r"q0 must have shape \(n,\), or \(batch, n\)"),
        (lambda: uk.initial_state(Pendulum(), LEVEL, [0.0]), r"v0 must have the shape of q0, \(2,\), got shape \(1,\)"),
        (
            lambda: uk.step(Pendulum(), uk.initial_state(Pendulum(), LEVEL, REST), DT, steps=0),
            r"steps must be a whole number from 1 on, got 0",
        ),
        (lambda: uk.step(Pendulum(), uk.initial_state(Pendulum(), LEVEL, REST), DT, drift="spring"), r"drift must be"),
        (lambda: uk.step(Pendulum(), uk.initial_state(Pendulum(), LEVEL, REST), DT, [1.0]), r"u is for the actuators"),
        (lambda: uk.step(driven(), uk.initial_state(driven(), LEVEL, REST), DT, [1.0, 2.0]), r"u must have 1 entries"),
    ),
)
def test_bad_input_is_named(asked, message):
    with pytest.raises(ValueError, match=message):
        asked()
