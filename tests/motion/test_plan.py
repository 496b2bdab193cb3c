"""The plan of a motion: its integrator, its steps, and notes on fallbacks."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import pytest

import ukjax as uk
from ukjax._jaxpr.tracing import is_forward_mode
from ukjax._solve.fast_path import FastPath

from ..mechanisms import Pendulum

START, TS = ([0.6, -0.8], [0.0, 0.0]), jnp.linspace(0.0, 0.3, 4)
BATCH = jnp.asarray([START[0], [0.8, -0.6]]), jnp.zeros(2)


def swing(start=START, **options):
    q0, v0 = start
    return uk.simulate(Pendulum(), q0, v0, TS, **options)


@pytest.mark.parametrize(
    ("options", "integrator", "reason"),
    (
        ({}, "single", "known"),
        ({"dt": 0.01}, "single", "known"),
        ({"start": BATCH}, "adaptive_batch", "kernels"),
        ({"start": BATCH, "dt": 0.01}, "fixed_step", "number of steps"),
        ({"start": BATCH, "method": uk.Sparse()}, "lanes", "XLA"),
        pytest.param(
            {"solver": dfx.Kvaerno3(), "rtol": 1e-4, "drift": "none"}, "diffrax", "Runge-Kutta", marks=pytest.mark.slow
        ),
        pytest.param(
            {"adjoint": dfx.DirectAdjoint(), "max_steps": 64, "rtol": 1e-3},
            "diffrax",
            "adjoint",
            marks=pytest.mark.slow,
        ),
    ),
)
def test_plan_names_integrator_and_reason(options, integrator, reason):
    plan = swing(**options).plan
    assert plan is not None
    assert (plan.integrator, plan.differentiation, plan.notes) == (integrator, "none", [])
    assert reason in plan.reason and plan.integrator in str(plan) and plan.steps in str(plan)


def test_plan_names_steps_solver_and_method():
    plan = swing(solver=uk.RungeKutta4(), dt=0.01).plan
    assert plan is not None
    assert "RungeKutta4" in plan.steps and "fixed" in plan.steps and "Orthogonal" in plan.method


def test_plan_notes_omitted_redundant_rows():
    """Two equal rods: the rows of one are omitted from the start."""
    rod = uk.Holonomic(lambda t, q: q @ q - 1)
    system = uk.System(uk.MassForce(jnp.eye(2), lambda t, q, v: jnp.array([0.0, -9.81])), [rod, rod])
    motion = uk.simulate(system, *START, TS)
    assert motion.plan is not None
    assert any("1 independent rows" in note for note in motion.plan.notes), str(motion.plan)


def test_plan_notes_members_that_use_fallback():
    """In space two equal rods leave a coordinate free, so that the count of rows does not show that one is
    redundant."""
    rod = uk.Holonomic(lambda t, q: q @ q - 1)
    system = uk.System(uk.MassForce(jnp.eye(3), lambda t, q, v: jnp.array([0.0, 0.0, -9.81])), [rod, rod])
    motion = uk.simulate(system, [[0.6, 0.0, -0.8], [0.8, 0.0, -0.6]], jnp.zeros(3), TS)
    assert motion.plan is not None
    assert any("2 members" in note for note in motion.plan.notes), str(motion.plan)


@pytest.mark.parametrize("transform", (lambda f: f, lambda f: jax.jit(jax.grad(f))))
def test_plan_names_method_that_factorises(transform, monkeypatch):
    """With fixed steps. Each method records its name when it is traced."""
    used, plans = [], []
    for method in (FastPath, uk.Orthogonal):
        factorise, name = method.factorise, method.__name__
        noted = lambda *arguments, factorise=factorise, name=name: used.append(name) or factorise(*arguments)
        monkeypatch.setattr(method, "factorise", noted)
    rod = uk.Holonomic(lambda t, q: q @ q - 1)
    system = uk.System(uk.MassForce(jnp.eye(2), lambda t, q, v: jnp.array([0.0, -9.81])), rod)

    def end(x):
        motion = uk.simulate(system, jnp.stack([x, -0.8]), jnp.zeros(2), TS, dt=0.05)
        plans.append(motion.plan)
        return motion.q[-1, 0]

    transform(end)(jnp.asarray(0.6))
    assert set(used) == {"FastPath" if plans[0].method.startswith("FastPath") else plans[0].method}


def test_plan_is_not_part_of_pytree():
    motion, other = swing(), swing(dt=0.01)
    assert jax.tree.structure(motion.without_model()) == jax.tree.structure(motion.without_model())
    assert motion.without_model().plan is None
    assert other.plan is not None and motion.plan is not None
    assert motion.plan.steps != other.plan.steps


def test_forward_mode_is_recognised():
    seen = []
    forward = lambda x: (seen.append(is_forward_mode(x)), x**2)[1]
    jax.jvp(forward, (2.0,), (1.0,))
    jax.jacfwd(forward)(jnp.asarray(2.0))
    jax.vmap(lambda x: jax.jvp(forward, (x,), (1.0,))[1])(jnp.arange(3.0))
    jax.jvp(jax.vmap(forward), (jnp.arange(3.0),), (jnp.ones(3),))
    jax.jit(lambda x: jax.jvp(forward, (x,), (1.0,))[1])(2.0)
    jax.jit(lambda x: jax.jvp(jax.vmap(forward), (x,), (x,))[1])(jnp.arange(3.0))
    assert all(seen) and len(seen) == 6
    seen.clear()
    jax.grad(forward)(2.0)
    jax.vmap(jax.grad(forward))(jnp.arange(3.0))
    jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(forward)(x))))(jnp.arange(3.0))
    jax.jit(forward)(2.0)
    forward(2.0)
    assert not any(seen) and len(seen) == 5


def test_forward_mode_derivative_of_motion_matches_finite_differences():
    end = lambda angle: swing((jnp.stack([jnp.sin(angle), -jnp.cos(angle)]), jnp.zeros(2))).q[-1, 0]
    h = 1e-4
    expected = (end(0.5 + h) - end(0.5 - h)) / (2 * h)
    assert jax.jacfwd(end)(jnp.asarray(0.5)) == pytest.approx(float(expected), rel=1e-6)
