"""How steps of a batch are done: as a whole what they are in turns, and chosen where that is worth it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._batch.length import operations
from ukjax._batch.lowering import FEW
from ukjax._motion.base import Start
from ukjax._motion.correct import at_every_level
from ukjax._motion.even_steps import roll
from ukjax._motion.manner import LONG, OFTEN, SHORT, STEPS_PER_OPERATION, Manner, of_each
from ukjax._motion.scale import scales
from ukjax._motion.tableau import RUNGE_KUTTA4

from .mechanisms import Pendulum
from .test_attempts import LEVEL, tied, tied_starts

ASKED = uk.Orthogonal()
usual = ASKED.usual()
assert usual is not None
USUAL = at_every_level(replace(usual, assumes=True))
TS = jnp.array([0.0, 0.1, 0.3])


def rolled(model, q0, v0, method, whole):
    q0, v0 = jnp.asarray(q0), jnp.asarray(v0)
    start = jax.tree.map(jnp.transpose, Start(q0, v0, scales(model, TS[0], q0, v0, TS[-1])))
    steps = jnp.array([5, 10]), 10
    run = lambda start: roll(lambda _: model, start, TS, *steps, method, RUNGE_KUTTA4, True, Manner(whole))
    q, v, went = jax.jit(run)(start)
    return np.moveaxis(q, -1, 0), np.moveaxis(v, -1, 0), went


def test_as_a_whole_it_is_what_it_is_in_turns():
    starts = np.tile(LEVEL, (FEW, 1)), np.linspace(0, 2, FEW)[:, None] * [0.0, 1.0]
    (q, v, went), (q_turns, v_turns, _) = (rolled(Pendulum(), *starts, USUAL, whole) for whole in (USUAL, None))
    np.testing.assert_allclose(q, q_turns, rtol=0, atol=1e-13)
    np.testing.assert_allclose(v, v_turns, rtol=0, atol=1e-12)
    assert not np.any(went.beyond)


def test_who_is_beyond_it_is_done_again_and_nobody_else():
    """By a method that doubles in place of one that is beyond what is negative."""

    def turn(each, method, x):
        (found,) = each(lambda model, x: (model * x * (1 if method is USUAL else 2),), x)
        return found, (x < 0) & (method is USUAL)

    x = np.where(np.arange(FEW) == 3, -1.0, np.arange(FEW))
    models = jnp.full(FEW, 3.0)
    found, beyond = of_each(turn, lambda number: number, ASKED, Manner(USUAL))(models, jnp.asarray(x))
    np.testing.assert_array_equal(found, np.where(x < 0, 6 * x, 3 * x))
    assert not np.any(beyond)
    found, beyond = of_each(turn, lambda number: number, USUAL, Manner(USUAL))(models, jnp.asarray(x))
    np.testing.assert_array_equal(found, 3 * x)
    np.testing.assert_array_equal(beyond, x < 0)


def test_a_member_with_redundant_rows_changes_no_bit_of_the_others():
    """The row that ties w to 0 is nothing where c is 0: there the rank is 1."""
    ones = np.ones(FEW)
    some = np.where(np.arange(FEW) == 3, 0.0, ones)
    (q, v, went), (q_turns, v_turns, _) = (rolled(tied(), *tied_starts(some), ASKED, whole) for whole in (USUAL, None))
    assert not np.any(went.beyond)
    np.testing.assert_allclose(q, q_turns, rtol=0, atol=1e-12)
    np.testing.assert_allclose(v, v_turns, rtol=0, atol=1e-12)
    of_usual, _, _ = rolled(tied(), *tied_starts(ones), ASKED, USUAL)
    np.testing.assert_array_equal(np.delete(q, 3, axis=0), np.delete(of_usual, 3, axis=0))
    _, _, alone = rolled(tied(), *tied_starts(some), USUAL, USUAL)
    assert np.flatnonzero(alone.beyond).tolist() == [3]


class Chosen(Exception):
    """How steps are to be done, before anything is compiled."""


@pytest.fixture
def choice(monkeypatch):
    """What is chosen for a batch of so many."""

    def tell(request, start):
        raise Chosen(choose(request, start))

    choose = Manner.of
    monkeypatch.setattr(Manner, "of", tell)

    def of(members, model, q0, v0, ts, **how):
        with pytest.raises(Chosen) as chosen:
            uk.simulate(model, np.tile(q0, (members, 1)), np.tile(v0, (members, 1)), ts, **how)
        return chosen.value.args[0]

    return of


def test_short_steps_are_done_so_unless_members_are_few(choice):
    swinging = Pendulum(), LEVEL, [0.0, 0.1], np.linspace(0, 0.5, 7)
    assert choice(2 * FEW, *swinging) == (USUAL, 2)
    assert choice(FEW - 1, *swinging) == (None, 2)


def test_longer_ones_are_done_so_if_there_are_many(choice):
    double, members = uk.systems.DoublePendulum(), 2 * FEW
    q0, v0 = double.start()
    accelerate = lambda q, v: uk.constrained_motion(double(0.0, q, v)).acceleration
    of_stage = operations(accelerate, q0, v0, most=LONG)
    assert of_stage is not None and SHORT < 4 * of_stage < LONG  # of Runge and Kutta's four stages
    enough = 4 * of_stage * STEPS_PER_OPERATION / members
    for steps, expected in ((0.5 * enough, (None, 2)), (2 * enough, (USUAL, 2))):
        end = 1e-3 * int(steps)
        assert choice(members, double, q0, v0, [0.0, end], dt=1e-3, solver=uk.RungeKutta4()) == expected
    assert choice(members, double, q0, v0, [0.0, 1.0]) == (None, 2)  # nobody knows how many


def test_long_stages_of_a_few_are_not_written_out_for_a_few_steps(choice):
    robot = uk.systems.ParallelManipulator()
    free = uk.System(robot.dynamics, robot.loops)
    q0, v0 = uk.project(free, 0.0, *robot.start())
    for steps, expected in ((OFTEN // 2, FEW), (OFTEN, 2)):
        manner = choice(3, free, q0, v0, [0.0, 1e-3 * steps], dt=1e-3)
        assert manner == (None, expected)


def test_one_motion_in_a_program_is_written_out_where_it_is_mapped(monkeypatch):
    """Which ``vmap`` around it shows too late to choose otherwise."""
    found, choose = [], Manner.of
    monkeypatch.setattr(Manner, "of", lambda *given: found.append(choose(*given)) or found[-1])

    @jax.jit
    @jax.vmap
    def end(speed):
        return uk.simulate(Pendulum(), LEVEL, jnp.array([0.0, 1.0]) * speed, [0.0, 0.01], dt=0.001).q[-1]

    text = end.lower(jnp.ones(FEW)).as_text()
    ((whole, few),) = found
    assert isinstance(whole, uk.Orthogonal) and few == FEW
    assert text.count("stablehlo.transpose") < 15  # 7; 22 where arrays are turned around at each stage
