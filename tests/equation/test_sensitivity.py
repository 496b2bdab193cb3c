"""Derivatives of motions by parameters and starts, with each adjoint, against differences."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import ukjax as uk

from ..mechanisms import Pendulum, redundant_only_on_the_constraint

pytestmark = pytest.mark.optimised

AGREE = 1e-6  # central differences of a fixed-step motion: rounding / step + step²
FIXED: dict[str, Any] = {"dt": 0.01, "solver": dfx.Tsit5()}


def outcome(parameters, **how):
    """A scalar function of the length, the mass and the angle of the start."""
    length, mass, angle = parameters
    model = Pendulum(mass=mass, length=length)
    q0 = length * jnp.array([jnp.sin(angle), -jnp.cos(angle)])
    motion = uk.simulate(model, q0, jnp.zeros(2), jnp.array([0.0, 0.3, 0.5]), **how)
    return jnp.sum(motion.q[-1] * jnp.array([1.0, 2.0])) + motion.constraint_force[1, 1]


@pytest.fixture(scope="module")
def differences():
    at, step = jnp.array([1.0, 1.5, 1.2]), 1e-5
    compiled = jax.jit(lambda p: outcome(p, **FIXED))
    return np.array([(compiled(at + h) - compiled(at - h)) / (2 * step) for h in step * np.eye(3)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("derivative", "how"),
    [
        (jax.grad, {}),
        (jax.grad, {"adjoint": dfx.DirectAdjoint(), "max_steps": 64}),
        (jax.jacfwd, {"adjoint": dfx.ForwardMode()}),
    ],
    ids=["checkpoints", "direct", "forward"],
)
def test_adjoints_agree_with_differences(derivative, how, differences):
    at = jnp.array([1.0, 1.5, 1.2])
    np.testing.assert_allclose(jax.jit(derivative(lambda p: outcome(p, **FIXED, **how)))(at), differences, rtol=AGREE)


@pytest.mark.slow
def test_gradient_of_adaptive_steps_matches_differences(differences):
    at = jnp.array([1.0, 1.5, 1.2])
    np.testing.assert_allclose(jax.jit(jax.grad(lambda p: outcome(p)))(at), differences, rtol=1e-5)


@pytest.mark.slow
def test_gradient_with_redundant_rows_matches_that_of_single_row():
    def height(model, speed):
        return uk.simulate(model, jnp.array([-1.0, 0.0]), jnp.array([0.0, speed]), jnp.array([0.0, 0.5])).q[-1, 1]

    once, twice = (jax.grad(lambda s, m=m: height(m, s))(0.4) for m in (Pendulum(), redundant_only_on_the_constraint()))
    assert float(twice) == pytest.approx(float(once), rel=1e-6)


@pytest.mark.slow
def test_backsolve_gradient_matches_differences(differences):
    """Within tolerances, as the motion is integrated backwards with other steps."""
    at, tight = jnp.array([1.0, 1.5, 1.2]), {"rtol": 1e-10, "atol": 1e-11, "drift": "none"}
    found = jax.jit(jax.grad(lambda p: outcome(p, adjoint=dfx.BacksolveAdjoint(), **tight)))(at)
    np.testing.assert_allclose(found, differences, rtol=1e-5)


def test_backsolve_that_reaches_max_steps_is_an_error():
    """A gradient that does not is in ``test_backsolve_gradient_matches_differences``."""

    def end(k):
        model = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -k * q), ())
        how = {"drift": "none", "solver": dfx.Bosh3(), "adjoint": dfx.BacksolveAdjoint(max_steps=2)}
        return uk.simulate(model, jnp.ones(1), jnp.zeros(1), [0.0, 1.0, 1.5], **how).q[-1, 0]

    with pytest.raises(eqx.EquinoxRuntimeError, match="maximum number of solver steps"):
        eqx.filter_jit(jax.grad(end))(2.0)


@pytest.mark.parametrize("how", [{}, {"drift": "none", "event": lambda t, q, v: q[0]}])
def test_backsolve_with_projection_or_event_is_an_error(how):
    with pytest.raises(ValueError, match="adjoint=BacksolveAdjoint\\(\\) runs the motion backwards"):
        outcome(jnp.array([1.0, 1.5, 1.2]), adjoint=dfx.BacksolveAdjoint(), **how)


def test_differentiable_is_false_if_rank_changes():
    """The rank of a pendulum is constant. The same trajectory with a lower rank at one sample is not differentiable."""
    ts = np.linspace(0.0, 0.2, 11)
    swing = uk.simulate(Pendulum(), [-1.0, 0.0], [0.0, 0.0], ts)
    assert bool(swing.differentiable)
    flat = eqx.tree_at(lambda motion: motion.observation.rank, swing.with_observation(), swing.rank.at[4].add(-1))
    assert not bool(flat.differentiable)


def test_derivatives_of_oscillator_match_closed_form():
    """q = cos(√k t): derivatives by k and by the final time."""

    def end(k, t):
        model = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -k * q), ())
        return uk.simulate(model, jnp.ones(1), jnp.zeros(1), jnp.stack([0 * t, t]), rtol=1e-11, atol=1e-11).q[-1, 0]

    k, t = jnp.array(2.0), jnp.array(1.5)
    w = np.sqrt(2.0)
    by_k, by_t = jax.jit(jax.grad(end, argnums=(0, 1)))(k, t)
    assert float(by_k) == pytest.approx(-np.sin(w * 1.5) * 1.5 / (2 * w), rel=1e-8)
    assert float(by_t) == pytest.approx(-w * np.sin(w * 1.5), rel=1e-6)


def linear(stiffness, damping):
    """A linear system, its origin, and ∂q/∂(q, v) from the start to a time."""
    n, of = len(stiffness), lambda q, v: -jnp.asarray(stiffness) @ q - jnp.asarray(damping) @ v
    system = uk.System(uk.MassForce(jnp.eye(n), lambda t, q, v: of(q, v)), ())
    generator = np.block([[np.zeros((n, n)), np.eye(n)], [-np.asarray(stiffness), -np.asarray(damping)]])
    return system, np.zeros(n), lambda end: scipy.linalg.expm(generator * end)[:n]


def pendulum_at(angle):
    """A pendulum of 1 m at rest. It hangs down at the angle 0."""
    system = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -9.81 * jnp.sin(q)), ())
    generator = np.array([[0.0, 1.0], [-9.81 * np.cos(angle), 0.0]])
    return system, np.array([angle]), lambda end: scipy.linalg.expm(generator * end)[:1]


AT_REST = {
    "oscillator": (lambda: linear([[4.0]], [[0.0]]), 10.0),
    "pendulum above": (lambda: pendulum_at(np.pi), 3.0),
    "two time scales": (lambda: linear([[1e4 + 1, -1.0], [-1.0, 1.0]], [[0.5, 0.0], [0.0, 0.1]]), 3.0),
}


@pytest.mark.parametrize(
    ("case", "how"),
    [
        ("oscillator", "reverse"),
        pytest.param("oscillator", "forward", marks=pytest.mark.slow),
        pytest.param("oscillator", "jit", marks=pytest.mark.slow),
        pytest.param("pendulum above", "reverse", marks=pytest.mark.slow),
        pytest.param("two time scales", "batch", marks=pytest.mark.slow),
    ],
)
def test_a_motion_at_rest_has_the_derivatives_of_its_linearisation(case, how):
    """Nothing moves, so that the error of the motion does not limit the steps."""
    made, end = AT_REST[case]
    system, q0, exact = made()
    n = q0.size

    def final(y):
        q, v = (jnp.stack([x, x]) for x in (y[:n], y[n:])) if how == "batch" else (y[:n], y[n:])
        return jnp.atleast_2d(uk.simulate(system, q, v, [0.0, end]).q[..., -1, :])[-1]

    derivative = {"forward": jax.jacfwd, "jit": lambda f: jax.jit(jax.jacrev(f))}.get(how, jax.jacrev)
    start = jnp.concatenate([q0, np.zeros(n)])
    np.testing.assert_allclose(final(start), q0, rtol=0, atol=1e-9)
    found, expected = derivative(final)(start), exact(end)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.max(np.abs(expected)))


class Twice(uk.AbstractSystem):
    """A pendulum with two rows, of which one is redundant up to rounding. Gravity is a leaf."""

    gravity: Any

    @property
    def dynamics(self):
        return uk.MassForce(jnp.eye(2), lambda t, q, v: jnp.stack([0 * t, -self.gravity]))

    @property
    def constraints(self):
        return redundant_only_on_the_constraint().constraints


@pytest.mark.slow
def test_gradients_with_redundant_rows_are_as_smooth_as_the_motion():
    """With fixed steps at neighbouring parameters. Rounding errors of a redundant row affect neither."""

    def loss(gravity):
        motion = uk.simulate(Twice(9.81 * gravity), [-0.6, -0.8], [0.0, 0.0], np.array([0.0, 0.6]), dt=0.01)
        return jnp.sum(motion.q[-1] * jnp.array([1.0, 2.0]))

    near = np.linspace(-1e-3, 1e-3, 17)
    both = jax.jit(jax.value_and_grad(loss))
    losses, slopes = np.array([both(1 + x) for x in near]).T
    by_loss = np.polynomial.Polynomial.fit(near, losses, 6)
    np.testing.assert_allclose(losses, by_loss(near), rtol=0, atol=1e-12)
    np.testing.assert_allclose(slopes, by_loss.deriv()(near), rtol=0, atol=3e-9)  # 1e-12 of rounding over 1e-3
    np.testing.assert_allclose(slopes, np.polynomial.Polynomial.fit(near, slopes, 4)(near), rtol=0, atol=1e-10)


@pytest.mark.parametrize("outer", (jax.grad, jax.jacfwd))
def test_error_for_second_derivative_of_adaptive_steps_names_direct_adjoint(outer):
    with pytest.raises(ValueError, match=r"differentiated once: .* adjoint=diffrax.DirectAdjoint\(\), max_steps=256"):
        outer(
            jax.grad(
                lambda speed: uk.simulate(Pendulum(), [-1.0, 0.0], speed * jnp.array([0.0, 1.0]), [0.0, 0.1]).q[1, 1]
            )
        )(0.3)
