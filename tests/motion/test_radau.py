"""The solver for stiff systems, and the warning that names it."""

import warnings

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk
from ukjax._motion.fallback.stiffness import stability_limit
from ukjax._motion.stepper.radau import ERROR_WEIGHTS, INVERSE, STAGES, WEIGHTS, C
from ukjax._motion.stepper.tableau import DOPRI8, RUNGE_KUTTA4

TS = [0.0, 1.0, 3.0]
RADAU = {"solver": uk.Radau(), "rtol": 1e-8, "atol": 1e-8}


def test_weights_have_the_order_of_radau_iia():
    b, powers = WEIGHTS[-1], np.arange(1, 2 * STAGES)
    np.testing.assert_allclose(b @ C[:, None] ** (powers - 1), 1 / powers, atol=1e-13)
    for k in range(1, STAGES + 1):
        np.testing.assert_allclose(WEIGHTS @ C ** (k - 1), C**k / k, atol=1e-13)
    assert abs(1 - b @ INVERSE @ np.ones(STAGES)) < 1e-10  # L-stable: R(∞) = 0


def test_error_estimate_is_zero_for_polynomials_of_its_degree():
    eigenvalues = np.linalg.eigvals(INVERSE)
    real = eigenvalues[np.argmin(np.abs(eigenvalues.imag))].real
    for k in range(1, STAGES + 1):
        rate_at_start = float(k == 1)  # of tᵏ, whose Z are cᵏ
        assert abs(rate_at_start + ERROR_WEIGHTS @ C**k) < 1e-10 * real


def following(stiffness):
    """A mass on a stiff damped spring, driven so that q = cos t solves it exactly."""

    def force(t, q, v):
        q_error, v_error = q - jnp.cos(t), v + jnp.sin(t)
        return -stiffness * q_error - 2 * stiffness**0.5 * v_error - jnp.cos(t)

    return uk.System(uk.MassForce(np.eye(1), force))


def test_steps_do_not_depend_on_the_stiffness():
    steps = []
    for stiffness in (1e4, 1e10):
        system = following(stiffness)
        motion = uk.simulate(system, [1.0], [0.0], [0.0, 5.0, 10.0], **RADAU)
        np.testing.assert_allclose(motion.q[:, 0], np.cos([0.0, 5.0, 10.0]), atol=1e-7)
        steps.append(int(motion.steps))
        assert "Radau" in str(motion.plan)
    assert max(steps) < 100
    automatic = uk.simulate(system, [1.0], [0.0], [0.0, 5.0, 10.0], solver="auto", rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(automatic.q, motion.q)
    assert automatic.steps == motion.steps and "stiff for Dopri8: its 5000 steps" in str(automatic.plan)


def bead(stiffness):
    """A bead on a ring of radius 1, held near an angle by a stiff damped spring, under gravity."""
    force = lambda t, q, v: -stiffness * (q - jnp.array([0.6, 0.8])) - 400 * v - jnp.array([0.0, 9.81])
    return uk.System(uk.MassForce(jnp.eye(2), force), uk.Holonomic(lambda t, q: q @ q - 1.0, name="ring"))


def by_angle(stiffness):
    """q at the last time by SciPy, in the angle of the ring."""

    def slope(t, y):
        s, c = np.sin(y[0]), np.cos(y[0])
        return [y[1], stiffness * (0.8 * c - 0.6 * s) - 400 * y[1] - 9.81 * c]

    angle = solve_ivp(slope, (0, TS[-1]), [0.0, 0.0], "Radau", rtol=1e-12, atol=1e-13).y[0, -1]
    return np.array([np.cos(angle), np.sin(angle)])


def test_constrained_motion_and_its_derivatives_agree_with_another_solver():
    weights, h = np.array([1.0, 2.0]), 10.0
    end = lambda k: uk.simulate(bead(k), jnp.array([1.0, 0.0]), jnp.zeros(2), TS, **RADAU).q[-1]
    of = lambda k: (lambda q: (q @ weights, q))(end(k))
    (_, q), slope = jax.value_and_grad(of, has_aux=True)(jnp.asarray(2000.0))
    np.testing.assert_allclose(q, by_angle(2000.0), rtol=0, atol=1e-8)
    assert abs(q @ q - 1) < 1e-10
    difference = lambda h: weights @ (by_angle(2000 + h) - by_angle(2000 - h)) / (2 * h)
    np.testing.assert_allclose(slope, (4 * difference(h) - difference(2 * h)) / 3, rtol=1e-6)


@pytest.mark.slow
def test_forward_derivative_within_jit():
    end = lambda k: uk.simulate(bead(k), jnp.array([1.0, 0.0]), jnp.zeros(2), TS, adjoint=dfx.ForwardMode(), **RADAU).q
    q, slope = jax.jit(lambda k: jax.jvp(end, (k,), (1.0,)))(2000.0)
    np.testing.assert_allclose(q[-1], by_angle(2000.0), rtol=0, atol=1e-8)
    h = 10.0
    difference = lambda h: (by_angle(2000 + h) - by_angle(2000 - h)) / (2 * h)
    np.testing.assert_allclose(slope[-1], (4 * difference(h) - difference(2 * h)) / 3, rtol=1e-6)


@pytest.mark.slow
def test_members_of_batch_take_different_numbers_of_steps():
    angles = np.array([0.0, 0.5, 3.0])
    q0 = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    batch = uk.simulate(bead(2000.0), q0, np.zeros((3, 2)), TS, **RADAU)
    one = uk.simulate(bead(2000.0), q0[2], np.zeros(2), TS, **RADAU)
    assert len(set(np.asarray(batch.steps).tolist())) > 1
    np.testing.assert_allclose(batch.q[2], one.q, atol=1e-10)


@pytest.mark.slow
def test_fixed_steps_have_a_high_order():
    pendulum = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -9.81 * jnp.sin(q)))
    slope = lambda t, y: [y[1], -9.81 * np.sin(y[0])]
    reference = solve_ivp(slope, (0, 2), [1.0, 0.5], "DOP853", rtol=1e-13, atol=1e-14).y[0, -1]
    coarse, fine = (
        abs(float(uk.simulate(pendulum, [1.0], [0.5], [0.0, 2.0], dt=dt, solver=uk.Radau()).q[-1, 0]) - reference)
        for dt in (0.4, 0.2)
    )
    assert coarse / fine > 2**7


@pytest.mark.parametrize(("tableau", "limit"), ((RUNGE_KUTTA4, 2.785), (DOPRI8, 5.25)), ids=("RungeKutta4", "Dopri8"))
def test_stability_limit_on_the_real_axis(tableau, limit):
    # RungeKutta4: Hairer & Wanner, Solving Ordinary Differential Equations II, IV.2.
    assert abs(stability_limit(tableau) - limit) < 0.1


def test_stiffness_gives_one_warning():
    with pytest.warns(UserWarning, match=r"stiff.*ukjax\.Radau") as warned:
        uk.simulate(following(1e8), [1.0], [0.0], [0.0, 1.0])
    assert len(warned) == 1


def test_oscillation_with_many_steps_is_not_reported_as_stiff():
    spring = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -1e4 * q))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        motion = uk.simulate(spring, [1.0], [0.0], [0.0, 80.0])
        automatic = uk.simulate(spring, [1.0], [0.0], [0.0, 80.0], solver="auto")
    assert motion.steps > 5000
    assert jax.tree.all(jax.tree.map(np.array_equal, motion.without_model(), automatic.without_model()))
    assert automatic.plan is not None and "Dopri8" in automatic.plan.steps and not automatic.plan.notes


@pytest.mark.slow
def test_derivative_with_automatic_solver():
    """The bead comes to rest where stiffness (0.8 x − 0.6 y) = 9.81 x."""
    k = jnp.asarray(2000.0)
    at_rest = lambda k: 1 / jnp.sqrt(1 + ((0.8 * k - 9.81) / (0.6 * k)) ** 2)
    moved = lambda k: uk.simulate(bead(k), jnp.array([1.0, 0.0]), jnp.zeros(2), [0.0, 60.0], solver="auto").q[-1, 0]
    np.testing.assert_allclose(jax.grad(moved)(k), jax.grad(at_rest)(k), rtol=1e-4)


def test_automatic_solver_is_error_where_it_is_not_available():
    system = following(1e4)
    start = [1.0], [0.0], TS
    two_events = [lambda t, q, v: q[0], lambda t, q, v: v[0]]
    with pytest.raises(uk.InputError, match=r"solver='auto' is not available with fixed steps.*ukjax\.Radau"):
        uk.simulate(system, *start, solver="auto", dt=0.1)
    with pytest.raises(uk.InputError, match="solver='auto' is not available for several events"):
        uk.simulate(system, *start, solver="auto", event=two_events)
    with pytest.raises(uk.InputError, match=r"under jit.*ukjax\.Radau.*the default"):
        jax.jit(lambda q: uk.simulate(system, q, *start[1:], solver="auto").q)(jnp.ones(1))
    with pytest.raises(uk.InputError, match=r"'auto' is for ukjax\.simulate"):
        uk.ensemble(system, {"q1": [1.0]}, ts=TS, q0=[1.0], v0=[0.0], solver="auto")
