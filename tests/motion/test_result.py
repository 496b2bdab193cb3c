"""How motions end: result codes, also under ``jit`` and in batches, and the reasons in words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion.result import (
    EVENT,
    FINISHED,
    MOST_STEPS,
    NOT_FINITE,
    OFF_CONSTRAINTS,
    REASONS,
    TOO_SMALL,
    ended_well,
    in_words,
)

from ..mechanisms import Pendulum

LEVEL, REST = [-1.0, 0.0], [0.0, 0.0]


def stretched():
    """Two rods of 1 m whose tip is pulled away, stretched at 2 s."""
    tip = lambda t, q: jnp.array([jnp.sum(jnp.cos(q)) - 1 - t / 2, jnp.sum(jnp.sin(q))])
    model = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), uk.Holonomic(tip, name="tip"))
    third = np.pi / 3
    return model, [third, -third], [-0.5 / (2 * np.sin(third)), 0.5 / (2 * np.sin(third))]


def blown():
    """A spring whose force is NaN after 0.5 s."""
    return uk.System(uk.MassForce(np.eye(2), lambda t, q, v: jnp.where(t > 0.5, jnp.nan, -q)), ()), [1.0, 0.0], REST


PENDULUM = Pendulum(), LEVEL, REST
CASES = {  # those of events are in test_events
    "finished": (PENDULUM, [0.0, 1.0], {}, FINISHED),
    "even": (PENDULUM, [0.0, 1.0], {"dt": 0.01}, FINISHED),
    "most steps": (PENDULUM, [0.0, 10.0], {"max_steps": 4}, MOST_STEPS),
    "out of reach": (stretched(), [0.0, 1.0, 4.0], {}, TOO_SMALL),
    "out of reach in even steps": (stretched(), [0.0, 1.0, 4.0], {"dt": 0.01}, OFF_CONSTRAINTS),
    "not finite": (blown(), [0.0, 0.4, 1.0], {}, NOT_FINITE),
    "not finite in even steps": (blown(), [0.0, 0.4, 1.0], {"dt": 0.01}, NOT_FINITE),
}
EACH = pytest.mark.parametrize("case", CASES)


@EACH
def test_single_motion_has_result_and_last_state(case):
    (model, q0, v0), ts, how, outcome = CASES[case]
    motion = uk.simulate(model, q0, v0, ts, throw=False, **how)
    assert int(motion.result) == outcome and motion.reason == REASONS[outcome]
    assert bool(motion.finished) == (outcome == FINISHED) and not motion.met_event
    t, q, v = motion.last
    assert ts[0] <= float(t) <= ts[-1] and np.isfinite(q).all() and np.isfinite(v).all()
    if outcome == OFF_CONSTRAINTS:
        assert float(t) == pytest.approx(2.0, abs=0.011)
    if outcome == FINISHED:
        for came_to, samples in zip((t, q, v), (np.array(ts), motion.q, motion.v), strict=True):
            np.testing.assert_array_equal(came_to, samples[-1])
    reached = np.isfinite(motion.q).all(axis=1)
    np.testing.assert_array_equal(reached, np.isfinite(motion.t))
    assert reached.all() == bool(motion.finished)


@EACH
def test_each_member_of_batch_has_result(case):
    (model, q0, v0), ts, how, outcome = CASES[case]
    motion = uk.simulate(model, np.stack([q0, q0]), v0, ts, throw=False, **how)
    assert motion.result.shape == motion.finished.shape == np.shape(motion.reason) == (2,)
    assert (np.asarray(motion.finished) == (outcome == FINISHED)).all()
    assert not np.asarray(motion.met_event).any()
    assert all(reason == REASONS[int(code)] for reason, code in zip(motion.reason, motion.result, strict=True))
    if case != "not finite":  # there a batch reduces the step until it is too small
        assert (np.asarray(motion.result) == outcome).all()


@pytest.mark.parametrize("case", ("finished", "most steps", "not finite"))
def test_last_state_of_each_member_is_where_it_ended(case):
    """It matches a motion up to that time. It is not the state at the sample before."""
    (model, q0, v0), ts, how, _ = CASES[case]
    for t, q, v in zip(*uk.simulate(model, np.stack([q0, q0]), v0, ts, throw=False, **how).last, strict=True):
        until = uk.simulate(model, q0, v0, [ts[0], float(t)], throw=False)
        np.testing.assert_allclose(q, until.q[-1], rtol=0, atol=1e-7)
        np.testing.assert_allclose(v, until.v[-1], rtol=0, atol=1e-7)


@EACH
def test_result_under_jit_matches_eager(case):
    (model, q0, v0), ts, how, outcome = CASES[case]

    @jax.jit
    def ended(q0):
        motion = uk.simulate(model, q0, jnp.asarray(v0), ts, **how)
        return motion.result, motion.finished

    result, finished = ended(jnp.asarray(q0))
    assert in_words(result) == REASONS[int(result)]
    assert bool(finished) == (outcome == FINISHED)
    if outcome not in (NOT_FINITE, OFF_CONSTRAINTS):  # under jit the host does not check each step
        assert int(result) == outcome


def test_members_of_batch_have_different_results():
    speeds = np.array([[0.0, 0.1], [0.0, 40.0], [0.0, 0.2]])
    motion = uk.simulate(Pendulum(), np.tile(LEVEL, (3, 1)), speeds, [0.0, 1.0], max_steps=60, throw=False)
    assert np.asarray(motion.reason).tolist() == [REASONS[FINISHED], REASONS[MOST_STEPS], REASONS[FINISHED]]
    assert np.asarray(motion.finished).tolist() == [True, False, True]


def test_result_codes_and_reasons_are_one_to_one():
    assert len(set(REASONS.values())) == len(REASONS) == 20
    codes = jnp.array(sorted(REASONS))
    assert np.asarray(in_words(codes)).tolist() == [REASONS[int(code)] for code in codes]
    np.testing.assert_array_equal(np.flatnonzero(ended_well(codes)), [FINISHED, EVENT])


@pytest.mark.parametrize("members", [(), (3,)])
def test_step_with_overflow_is_repeated_with_smaller_size(members):
    """A point moves freely towards a wall, q̈ = −exp(κ q). Its steps grow until one leads far into the wall, where the
    force overflows. The exact motion is e^{κ q} = κ/2 sech²(κ (t − τ)/2)."""
    kappa = 100.0
    wall = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -jnp.exp(kappa * q)))
    motion = uk.simulate(wall, np.full((*members, 1), -20.0), np.ones((*members, 1)), [0.0, 40.0])
    np.testing.assert_allclose(motion.q[..., -1, 0], -20 + 2 * np.log(2 * kappa) / kappa, rtol=1e-9)
    np.testing.assert_allclose(motion.v[..., -1, 0], -1, rtol=1e-8)
    assert np.all(motion.steps < 100)
