"""Constraints that contradict each other: the motion satisfies them as closely as possible and reports the
contradiction."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion.result import FINISHED, INCONSISTENT, REASONS

PUSH = 0.2
TS = np.array([0.0, 0.65, 1.3])
REST = np.zeros(2)
FALL = uk.MassForce(np.eye(2), np.array([0.0, -9.81]))


def between(*gains, row=1.0):
    """One row sets x = 0, the other x = PUSH t²/2: the least-squares acceleration is PUSH/2, and so x = PUSH t²/4."""
    wall = uk.Holonomic(lambda t, q: row * q[:1], *gains, name="wall")
    pusher = uk.Holonomic(lambda t, q: row * (q[:1] - PUSH * t**2 / 2), *gains, name="pusher")
    return uk.System(FALL, [wall, pusher])


def shoved():
    """The same as acceleration constraints, for which there is no projection."""
    wall, pusher = (uk.AccelerationConstraint([[1.0, 0.0]], [b], name=n) for b, n in ((0.0, "wall"), (PUSH, "pusher")))
    return uk.System(FALL, [wall, pusher])


def agreed(t, q, v):
    """The same as a function that returns the matrices."""
    A = jnp.array([[1.0, 0.0], [2.0, 0.0]])
    return uk.Terms(jnp.eye(2), jnp.array([0.0, -9.81]), A, jnp.array([0.0, 2 * PUSH]))


EVEN_OR_ADAPTIVE = [{"dt": 0.05}, pytest.param({}, marks=pytest.mark.slow)]


def test_contradictory_constraints_are_an_error_in_a_batch():
    at = np.zeros((2, 2))
    how: dict[str, Any] = {"dt": 0.05}
    with pytest.raises(uk.SimulationError, match=r"contradict each other at t = 0 s: 'wall' and 'pusher'\. .* by 0\.1"):
        uk.simulate(between(), at, REST, TS, drift="none", **how)
    motion = uk.simulate(between(), at, REST, TS, drift="none", throw=False, **how)
    assert np.all(np.asarray(motion.result) == INCONSISTENT) and not np.any(motion.finished)
    assert np.all(np.asarray(motion.reason) == REASONS[INCONSISTENT])
    np.testing.assert_allclose(motion.q[..., 0], np.tile(PUSH * TS**2 / 4, (2, 1)), atol=1e-12)
    np.testing.assert_allclose(motion.last[0], TS[[-1, -1]])
    with pytest.raises(
        uk.SimulationError, match=r"leaves its constraints .* 'wall' and 'pusher' contradict each other"
    ):
        uk.simulate(between(), at, REST, TS, **how)


@pytest.mark.parametrize(
    ("model", "how", "which"),
    (
        (shoved(), {"dt": 0.05}, "'wall' and 'pusher'"),
        (agreed, {"dt": 0.05}, "row 0 of A and row 1 of A"),
        (between(*uk.critically_damped(5.0)), {"dt": 0.05, "drift": "none"}, "'wall' and 'pusher'"),
        (between(row=1e-6), {"dt": 0.05, "drift": "none"}, "'wall' and 'pusher'"),
        pytest.param(
            shoved(), {"solver": dfx.Heun(), "event": lambda t, q, v: q[1] + 1}, "'wall'", marks=pytest.mark.slow
        ),
    ),
    ids=["accelerations", "matrices", "Baumgarte", "small rows", "event"],
)
def test_contradiction_is_found_for_any_kind_and_scaling_of_rows(model, how: dict[str, Any], which):
    with pytest.raises(uk.SimulationError, match=f"contradict each other at t = 0 s: {which}"):
        uk.simulate(model, REST, REST, TS, **how)


@pytest.mark.parametrize(("how", "members"), [({"dt": 0.05}, (2,)), ({}, ())], ids=["even", "adaptive"])
def test_result_under_jit_reports_contradiction(how, members):
    ended = jax.jit(lambda q: uk.simulate(between(), q, 0 * q, TS, drift="none", **how).result)
    assert np.all(np.asarray(ended(jnp.zeros((*members, 2)))) == INCONSISTENT)


@pytest.mark.parametrize("how", EVEN_OR_ADAPTIVE, ids=["even", "adaptive"])
def test_contradiction_is_reported_only_for_affected_member(how):
    """The second constraint contradicts the first where y > 0."""
    wall = uk.AccelerationConstraint([[1.0, 0.0]], [0.0], name="wall")
    pusher = uk.AccelerationConstraint([[1.0, 0.0]], lambda t, q, v: jnp.where(q[1:] > 0, PUSH, 0.0), name="pusher")
    model = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), [wall, pusher])
    starts = np.array([[0.0, -1.0], [0.0, 1.0], [0.0, -2.0]])
    motion = uk.simulate(model, starts, REST, TS, throw=False, **how)
    np.testing.assert_array_equal(motion.result, [FINISHED, INCONSISTENT, FINISHED])


def test_consistent_redundant_rows_are_not_a_contradiction():
    """Also where Baumgarte's gains correct a violation differently in each row: a rod by its length, and by its
    square."""
    gains = uk.critically_damped(5.0)
    rods = [
        uk.Holonomic(lambda t, q: q @ q - 1, *gains, name="square"),
        uk.Holonomic(lambda t, q: jnp.sqrt(q @ q) - 1, *gains, name="length"),
    ]
    swing = uk.System(FALL, rods)
    for beside in (0.0, 1e-3, 0.05):
        motion = uk.simulate(swing, [0.0, -1 - beside], [0.5, 0.0], TS, drift="none", dt=0.01)
        assert motion.finished
    alone = uk.simulate(uk.System(FALL, rods[1]), [0.0, -1.0], [0.5, 0.0], TS, drift="none", dt=0.01)
    together = uk.simulate(swing, [0.0, -1.0], [0.5, 0.0], TS, drift="none", dt=0.01)
    np.testing.assert_allclose(together.q, alone.q, atol=1e-9)


@pytest.mark.parametrize("drift", ("none", "projection"))
def test_state_retains_failure_of_earlier_step(drift):
    """The contradiction ends before the second step. A new state takes that step without failure."""
    wall = uk.Holonomic(lambda t, q: q[:1], name="wall")
    pusher = uk.Holonomic(lambda t, q: q[:1] - jnp.where(t < 0.15, PUSH * t**2 / 2, q[:1]), name="pusher")
    model = uk.System(FALL, [wall, pusher])
    state, reasons = uk.initial_state(model, np.zeros((2, 2)), REST), []
    for _ in range(2):
        state = uk.step(model, state, 0.1, drift=drift)
        reasons.append(str(state.reason[0]))
    first = REASONS[INCONSISTENT] if drift == "none" else "left its constraints"
    assert reasons == [first] * 2
    fresh = uk.step(model, uk.initial_state(model, 0 * state.q, 0 * state.v, t=0.2), 0.1, drift=drift)
    assert fresh.reason[0] == "reached its last time"


def test_state_retains_non_finite_result():
    blown = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: jnp.where(t < 0.1, jnp.nan, 0 * q)), ())
    state = uk.step(blown, uk.initial_state(blown, [0.1], [0.0]), 0.1)
    assert state.reason == uk.step(blown, state, 0.1).reason == "came to a number that is not finite"
