"""Motions in time against exact solutions and published numbers."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..mechanisms import (
    GRAVITY,
    Pendulum,
    pendulum_exact,
    redundant_only_on_the_constraint,
)

LEVEL, REST = [-1.0, 0.0], [0.0, 0.0]
TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}
GLOBAL = 1e-9  # global error of these motions after 10 s at a local tolerance of 1e-11


@pytest.fixture(scope="module")
def pendulum():
    return uk.simulate(Pendulum(), LEVEL, REST, np.array([0, 1, 5, 9.99, 10]), **TIGHT)


def test_pendulum_matches_published_positions(pendulum):
    published = [  # IFToMM benchmark A01
        (0.986291751131875, -0.165010853125541),
        (-0.942305435043757, -0.334754338414001),
        (-0.316436469913031, -0.948613704575777),
        (-0.275087462576117, -0.961419205099125),
    ]
    np.testing.assert_allclose(pendulum.q[1:], published, rtol=0, atol=GLOBAL)
    np.testing.assert_allclose(pendulum.q, pendulum_exact(pendulum.t), rtol=0, atol=GLOBAL)


def test_constraint_forces_match_newtons_law_and_do_no_work(pendulum):
    gravity = np.array([0, -GRAVITY])
    np.testing.assert_allclose(pendulum.acceleration, gravity + pendulum.constraint_force, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.sum(pendulum.constraint_force * pendulum.v, axis=1), 0, rtol=0, atol=1e-10)
    pull = -np.sum(np.asarray(pendulum.constraint_force * pendulum.q), axis=1)  # = v² − g·q: the rod's tension
    np.testing.assert_allclose(
        pull, np.sum(np.asarray(pendulum.v) ** 2, axis=1) - GRAVITY * pendulum.q[:, 1], rtol=0, atol=1e-10
    )


def test_energy_is_constant_and_zero_at_start(pendulum):
    np.testing.assert_allclose(pendulum.energy, 0, rtol=0, atol=1e-8)


def test_car_axis_reaches_its_reference():
    problem = uk.verify.problem("car_axis")
    motion = uk.simulate(*problem.model(), [0.0, 3.0], **TIGHT)
    assert problem.error(motion.q[-1]) < 5e-10
    v = [-0.0770583684040972358, 0.00744686658723778553, 0.0175568157537232222, 0.770341043779251976]
    np.testing.assert_allclose(motion.v[-1], v, rtol=0, atol=5e-9)


def test_constant_speed_is_a_constraint_nonlinear_in_velocity():
    """|v|² = 4 under gravity: the speed stays 2 and the velocity turns downwards, tan(φ/2) = e^(−gt/2)."""
    speed = uk.Nonholonomic(lambda t, q, v: v @ v - 4.0, name="speed")
    model = uk.System(uk.MassForce(np.eye(2), np.array([0.0, -GRAVITY])), speed)
    motion = uk.simulate(model, REST, [2.0, 0.0], np.linspace(0, 1, 5), **TIGHT)
    turned = 2 * np.arctan(np.tan(np.pi / 4) * np.exp(-GRAVITY * np.asarray(motion.t) / 2))  # from straight down
    np.testing.assert_allclose(motion.v, 2 * np.stack([np.sin(turned), -np.cos(turned)], axis=-1), rtol=0, atol=GLOBAL)


def test_redundant_constraints_change_nothing():
    motion = uk.simulate(redundant_only_on_the_constraint(), LEVEL, REST, np.array([0.0, 5.0, 10.0]), **TIGHT)
    np.testing.assert_allclose(motion.q, pendulum_exact(motion.t), rtol=0, atol=3e-8)
    assert (np.asarray(motion.rank) == 1).all()


@pytest.mark.parametrize(("solver", "order"), [(dfx.Tsit5(), 5), (dfx.Bosh3(), 3)], ids=["Tsit5", "Bosh3"])
def test_fixed_steps_with_projection_keep_the_order_of_the_solver(solver, order):
    ts = np.array([0.0, 2.0])
    errors = [
        np.abs(uk.simulate(Pendulum(), LEVEL, REST, ts, dt=dt, solver=solver).q[-1] - pendulum_exact(2.0)).max()
        for dt in (0.04, 0.02, 0.01)
    ]
    rates = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert (rates > order - 0.5).all(), rates


@pytest.mark.slow
@pytest.mark.parametrize("how", (dict(rtol=1e-8, atol=1e-8), dict(dt=0.01)), ids=("adaptive", "fixed steps"))
def test_implicit_solver_matches_exact_solution(how):
    motion = uk.simulate(Pendulum(), LEVEL, REST, np.array([0.0, 1.0]), solver=dfx.Kvaerno5(), **how)
    np.testing.assert_allclose(motion.q, pendulum_exact(motion.t), rtol=0, atol=1e-6)


def test_batch_of_starts_matches_single_motions():
    angles = np.array([0.3, 1.0, 2.0])
    q0 = np.stack([np.sin(angles), -np.cos(angles)], axis=-1)
    ts = np.linspace(0, 1, 4)
    together = uk.simulate(Pendulum(), q0, REST, ts, **TIGHT)
    assert together.q.shape == (3, 4, 2)
    assert together.rank.shape == together.t.shape == (3, 4)
    for i, start in enumerate(q0):
        alone = uk.simulate(Pendulum(), start, REST, ts, **TIGHT)
        np.testing.assert_allclose(together.q[i], alone.q, rtol=0, atol=1e-9)


def test_function_is_accepted_as_model():
    terms = lambda t, q, v: uk.Terms(np.eye(2), np.array([0, -GRAVITY]), 2 * q[None], -2 * (v @ v)[None])
    motion = uk.simulate(terms, LEVEL, REST, np.array([0.0, 1.0]), **TIGHT)
    np.testing.assert_allclose(motion.q, pendulum_exact(motion.t), rtol=0, atol=1e-8)
    assert motion.position_residual.shape == (2, 0)
    assert np.abs(motion.acceleration_residual).max() < 1e-12


def test_new_values_need_no_new_compilation():
    traced = []

    def potential(t, q):
        traced.append(1)
        return GRAVITY * q[1]

    rod = uk.Holonomic(lambda t, q: q @ q - 1)
    energies = uk.Lagrangian(lambda t, q, v: v @ v / 2, potential)
    ts = np.linspace(0, 0.1, 3)
    uk.simulate(uk.System(energies, rod), LEVEL, REST, ts)
    once = len(traced)
    uk.simulate(uk.System(energies, rod), [0.0, -1.0], [0.1, 0.0], 2 * ts, rtol=1e-6)
    assert len(traced) == once


def test_progress_is_printed(capsys):
    spring = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -q))
    uk.simulate(spring, [1.0], [0.0], np.linspace(0, 0.1, 3), progress=True)
    assert "100.00%" in capsys.readouterr().out


def test_unreachable_constraint_error_names_time_and_constraint():
    """Two rods of 1 m whose tip is pulled away: stretched at 2 s."""
    tip = lambda t, q: jnp.array([jnp.sum(jnp.cos(q)) - 1 - t / 2, jnp.sum(jnp.sin(q))])
    model = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), uk.Holonomic(tip, name=("tip x", "tip y")))
    q0, v0 = uk.project(model, 0.0, [1.0, -1.0], REST)
    ts = np.linspace(0, 4, 9)
    with pytest.raises(uk.SimulationError, match=r"the motion ended at t = 2 s.*'tip x' acts hardest there"):
        uk.simulate(model, q0, v0, ts)
    partial = uk.simulate(model, q0, v0, ts, throw=False)
    assert not partial.finished
    assert np.isfinite(partial.q[:4]).all()
    assert np.isnan(partial.q[5:]).all()


def test_error_for_max_steps_gives_time_and_limit():
    with pytest.raises(uk.SimulationError, match=r"reached only t = .* s in max_steps = 4 steps: increase max_steps"):
        uk.simulate(Pendulum(), LEVEL, REST, [0.0, 10.0], max_steps=4)


def test_simulate_under_jit_matches_exact_solution():
    end = jax.jit(lambda v0: uk.simulate(Pendulum(), jnp.array(LEVEL), v0, jnp.array([0.0, 1.0])).q[-1])
    np.testing.assert_allclose(end(jnp.zeros(2)), pendulum_exact(1.0), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q0": [-1.0, 0.1]}, r"off the constraints: at t = 0 s 'rod' is 0.005.*uk.?.?.?.?project"),
        ({"v0": [1.0, 0.0]}, r"off the constraints: at t = 0 s the velocity of 'rod' is 1"),
        ({"q0": [[-1.0, 0.0], [0.0, -2.0]]}, r"trajectory 1 starts off the constraints"),
        (
            {"q0": [-1.0, 0.0, 0.0], "v0": [0.0, 0.0, 0.0]},
            r"the model has 2 coordinates \(x, y\), but q0 has shape \(3,\)",
        ),
        ({"q0": -1.0}, r"q0 must have shape \(n,\), or \(batch, n\) for many starts, got shape \(\)"),
        ({"v0": [0.0]}, r"v0 must have the shape of q0, \(2,\), got shape \(1,\)"),
        ({"q0": [np.nan, 0.0]}, r"q0 must be finite"),
        ({"ts": [0.0]}, r"ts must be at least two times"),
        ({"ts": [0.0, 2.0, 1.0]}, r"ts must increase strictly"),
        ({"drift": "spring"}, r"drift must be 'projection' or 'none', got 'spring'"),
        ({"dt": -0.1}, r"dt must be one number \[s\] above 0, got -0.1"),
        ({"model": lambda t, q, v: q}, r"model must return ukjax.Terms"),
        ({"method": "choleski"}, r"did you mean 'cholesky'"),
        ({"event": lambda t, q, v: q[0] > 0}, r"event must return one number.*bool"),
        ({"adjoint": dfx.BacksolveAdjoint()}, r"adjoint=BacksolveAdjoint\(\) runs the motion backwards"),
    ],
)
def test_bad_input_is_named(changed, message):
    given: dict[str, Any] = {"model": Pendulum(), "q0": LEVEL, "v0": REST, "ts": [0.0, 1.0]} | changed
    with pytest.raises(ValueError, match=message):
        uk.simulate(**given)


def test_projection_for_function_is_error():
    with pytest.raises(ValueError, match="drift='projection' needs a ukjax.System"):
        uk.simulate(lambda t, q, v: uk.Terms(q, q, q, q), LEVEL, REST, [0.0, 1.0], drift="projection")


def test_non_finite_terms_at_start_are_error():
    model = uk.System(uk.MassForce(np.eye(2), lambda t, q, v: q / 0.0 * 0.0), ())
    with pytest.raises(ValueError, match=r"Q is not finite at t = 0 s: Q\[0\] = nan"):
        uk.simulate(model, LEVEL, REST, [0.0, 1.0])


@pytest.mark.slow  # annotations of shapes, which the other tests check, add a line of their own
def test_a_warning_names_the_line_that_calls_simulate():
    rod = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0, 1 / 12, 1 / 12))
    swing = uk.Mechanism({"rod": rod}, {"hinge": uk.joints.Revolute("ground", "rod", axis="y", limits=(-0.1, 0.1))})
    with pytest.warns(UserWarning, match="passes its limits") as caught:
        uk.simulate(swing, [0.0], [0.0], [0.0, 1.0])
    assert [warning.filename for warning in caught] == [__file__]
