"""Tuning of gains by gradients: against known optimal gains."""

import re
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._constraint import as_written
from ukjax._estimate import following_error
from ukjax.systems import Parameter, parameter


class Oscillator(uk.AbstractSystem):
    """q̈ = −c q̇ − q: from q = 1 at rest, ∫ q² dt = (c + 1/c)/2 is minimal for c = 1."""

    c: Parameter = parameter(0.3)
    m: Parameter = parameter(1.0)

    constraints: ClassVar[tuple[()]] = ()

    @property
    def dynamics(self):
        return uk.MassForce(lambda t, q: self.m * jnp.eye(1), lambda t, q, v: -self.c * v - q)


class Summed(uk.AbstractSystem):
    """The oscillator with a second coordinate, s̈ = d/dt q², so that ṡ = q² from ṡ(0) = q(0)²."""

    c: Parameter = parameter(0.3)

    constraints: ClassVar[tuple[()]] = ()

    @property
    def dynamics(self):
        force = lambda t, q, v: jnp.stack([-self.c * v[0] - q[0], 2 * q[0] * v[0]])
        return uk.MassForce(np.eye(2), force)


class Commanded(Oscillator):
    """The oscillator with a commanded acceleration."""

    @property
    def control(self):
        return uk.control.Servo([[1.0]], uk.AccelerationConstraint([[1.0]], lambda t, q, v: -v), projected=False)


TS = np.linspace(0.0, 30.0, 601)
LONG: dict[str, Any] = dict(ts=TS, dt=0.05)


def squared(motion):
    return jnp.mean(motion.q[:, 0] ** 2)


def test_tune_finds_the_optimal_damping():
    found = uk.tune(Oscillator(), "c", [1.0], [0.0], cost=squared, held_out=([[2.0]], [[0.0]]), **LONG)
    np.testing.assert_allclose(found.values, [1.0], rtol=3e-3)
    # mean over 601 samples: the trapezoidal sum plus half of the first
    np.testing.assert_allclose(found.cost * 601 * 0.05, 1.0 + 0.025, rtol=1e-3)
    assert found.held_out is not None and found.first_held_out is not None
    np.testing.assert_allclose(found.held_out / found.cost, 4.0, rtol=1e-6)
    assert found.first_held_out > found.held_out and found.converged
    np.testing.assert_allclose(found.model.c, found.values[0])


def test_automatic_step_size_gives_an_accurate_cost():
    """The samples are six seconds apart, and the period of the motion is 6 s: a quarter of it would be too long.

    ∫ q² dt is a coordinate of the motion; its closed form is (c + 1/c)/2.
    """
    ts = np.linspace(0.0, 40.0, 8)
    found = uk.tune(Summed(), "c", [1.0, 0.0], [0.0, 1.0], ts, cost=lambda motion: motion.q[-1, 1])
    np.testing.assert_allclose(found.values, [1.0], rtol=0.02)
    np.testing.assert_allclose(found.cost, 1.0, rtol=0.02)
    assert found.cost_error is not None and abs(found.cost_error) < 0.02
    assert found.dt is not None and found.dt < 1.0
    assert "half of it changes the cost by" in str(found)


def test_settings_differ_between_starts():
    """For two masses, the optimal damping is between the optima √m of each."""
    both = uk.tune(Oscillator(), "c", [[1.0], [1.0]], [0.0], cost=squared, settings={"m": [0.5, 2.0]}, **LONG)
    assert np.sqrt(0.5) < both.values[0] < np.sqrt(2.0)


@pytest.mark.slow
def test_penalty_on_effort_reduces_gains():
    """SCARA moves to its path with and without a penalty on torques."""
    robot = uk.systems.Scara()
    q, v = robot.start()
    q = q + 0.01
    kept: dict[str, Any] = dict(ts=np.linspace(0.0, 1.0, 51), dt=0.01)
    free = [uk.tune(robot, ("alpha", "beta"), q, v, effort=effort, **kept) for effort in (0.0, 1e-4)]
    assert free[0].cost < free[0].first / 2
    assert free[1].values[1] < free[0].values[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(free="d"), "Oscillator has no number 'd'"),
        (dict(cost=lambda m: m.q[:, 0]), "cost must return one number per motion"),
        (dict(cost=lambda: 0.0), "cost must take (motion)"),
        (dict(settings={"mass": [1.0]}), "setting 'mass': Oscillator has no number 'mass'"),
        (dict(settings={"m": [1.0, 2.0, 3.0]}), "must have an entry for each of 1 starts"),
        (dict(model=Commanded()), "cost must be given"),
        (dict(start_of=lambda q, v: (q, v)), "start_of must take (model, q0, v0)"),
        (dict(q0=[1.0, 2.0]), "q0 and v0 must have shape"),
    ],
)
def test_bad_input_raises(change, message):
    given: dict[str, Any] = dict(model=Oscillator(), free="c", q0=[1.0], v0=[0.0], ts=[0.0, 1.0], dt=0.1) | change
    with pytest.raises(ValueError, match=re.escape(message)):
        uk.tune(**given)


def test_motion_that_diverges_raises():
    with pytest.raises(uk.SimulationError, match="start 0 has no finite cost .*: its motion .* at t = "):
        uk.tune(Oscillator(c=-5000.0), "c", [1.0], [0.0], [0.0, 10.0], dt=0.01)


@pytest.mark.parametrize(
    "how",
    [
        uk.Integration(rtol=1e-9),
        pytest.param(uk.Integration(rtol=1e-8, atol=1e-8, solver=uk.Radau()), marks=pytest.mark.slow),
    ],
)
def test_adaptive_steps_tune_to_the_result_of_short_fixed_steps(how):
    tuned = lambda **how: uk.tune(Oscillator(), "c", [1.0], [0.0], np.linspace(0, 2, 5), cost=cost, **how)
    cost = lambda motion: jnp.mean(motion.q**2) + 0.1 * motion.v[-1, 0] ** 2
    found, fixed = tuned(**how), tuned(dt=0.002)
    np.testing.assert_allclose(found.values, fixed.values, rtol=1e-5)
    np.testing.assert_allclose(found.cost, fixed.cost, rtol=1e-8)
    assert found.dt is None and found.cost_error is None


CONTROLLED = (
    *("swarm", "flexible_joint_manipulator", "two_mass_spring", "coordinated_robots", "parallel_robot"),
    *("parallel_robot_tracking", "parallel_manipulator", "cart_pole", "mobile_robot"),
)


def test_all_controlled_mechanisms_of_the_gallery_are_tested():
    assert {x for x in uk.systems.CATALOGUE if uk.systems.named(x).control is not None} == set(CONTROLLED)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x == "flexible_joint_manipulator")) for x in CONTROLLED]
)
def test_controlled_mechanisms_define_a_following_error(name):
    """The error is the mechanism's task_error, or the residual of the task of its control."""
    mechanism = uk.systems.named(name)
    q, v = mechanism.start()
    assert mechanism.control is not None
    own = mechanism.task_error(0.0, q, v)
    task = as_written(mechanism.control.task, 0.0, q, v, 0 * q)
    assert own is None or (own.ndim == 1 and np.all(np.isfinite(own)))

    motion = object.__new__(uk.Trajectory)  # two samples with only the data that the error needs, without a simulation
    twice = lambda x: jnp.stack([x, x])
    observation = object.__new__(uk.Observation)
    object.__setattr__(observation, "task_residual", twice(task))
    known = dict(model=mechanism, t=jnp.zeros(2), q=twice(q), v=twice(v), observation=observation)
    for field, value in known.items():
        object.__setattr__(motion, field, value)
    np.testing.assert_allclose(following_error(motion), twice(task if own is None else own), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_tuned_restitution_reaches_a_height_after_an_impact():
    """A ball from 1 m must be at 0.6 m after 1 s, with one impact. Closed form."""
    g, end, wanted = 9.81, 1.0, 0.6
    ball = uk.System(uk.MassForce(jnp.eye(1), jnp.array([-g])), uk.Unilateral(lambda t, q: q[0], 0.8))
    cost = lambda motion: (motion.q[-1, 0] - wanted) ** 2
    options: dict[str, Any] = dict(ts=[0.0, 0.5, end], dt=0.1, drift="projection")
    found = uk.tune(ball, "nonsmooth[0].restitution", [1.0], [0.0], cost=cost, **options)
    fall = np.sqrt(2 / g)
    best = (wanted + g * (end - fall) ** 2 / 2) / (g * fall * (end - fall))
    np.testing.assert_allclose(found.values, [best], rtol=1e-4)
    np.testing.assert_allclose(found.after.q[0, -1, 0], wanted, atol=1e-4)
    contacts = found.after.contacts
    assert contacts is not None and int(contacts.impacts[0]) == 1
