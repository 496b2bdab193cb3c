"""Trajectories: quantities by name, members of batches, and the motion between samples."""

import inspect
from dataclasses import fields, replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..mechanisms import Pendulum

TS = np.linspace(0, 2, 5)
STARTS = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0]]), np.array([[0.0, 0.0], [0.0, 0.5], [1.0, 0.0]])
START = STARTS[0][0], STARTS[1][0]
OBSERVED = [field.name for field in fields(uk.Observation)]


class Oscillator(uk.AbstractSystem):
    """m q̈ = −k q"""

    m: jax.Array
    k: jax.Array
    constraints: ClassVar[tuple] = ()

    @property
    def dynamics(self):
        return uk.MassForce(jnp.reshape(self.m, (1, 1)), lambda t, q, v: -self.k * q)


OSCILLATOR = Oscillator(jnp.asarray(2.0), jnp.asarray(8.0))  # q = cos(2 t)


@pytest.fixture(scope="module")
def motion():
    return uk.simulate(Pendulum(), *START, TS)


@pytest.fixture(scope="module")
def batch():
    return uk.simulate(Pendulum(), *STARTS, TS)


def same(found, expected):
    """All arrays are equal."""
    for name in ("t", "q", "v", "result", "steps"):
        np.testing.assert_array_equal(getattr(found, name), expected[name], err_msg=name)
    for x, y in zip(found.last, expected["last"], strict=True):
        np.testing.assert_array_equal(x, y)


def picked(batch, at):
    names = "t", "q", "v", "result", "steps"
    return {name: np.asarray(getattr(batch, name))[at] for name in names} | {
        "last": [np.asarray(x)[at] for x in batch.last]
    }


# --- quantities by name -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBSERVED)
def test_each_quantity_is_a_documented_property(name):
    found = inspect.getattr_static(uk.Trajectory, name)
    assert isinstance(found, property) and found.fset is None
    summary, *rest = (found.__doc__ or "").splitlines()
    assert "samples" in summary and not any(line.strip() for line in rest[:1])  # one line, then notes if any
    assert "return" in found.fget.__annotations__


def test_quantities_are_listed_and_equal_those_of_observation(motion):
    assert set(OBSERVED) <= set(dir(motion))
    for name in OBSERVED:
        assert getattr(motion, name) is getattr(motion.observed(), name)
    with pytest.raises(AttributeError):
        motion.energie  # noqa: B018
    with pytest.raises(AttributeError):
        motion.energy = motion.t


def test_quantities_are_not_leaves_of_pytree(motion):
    leaves = len(jax.tree.leaves(motion))
    assert motion.energy.shape == (5,)
    assert len(jax.tree.leaves(motion)) == leaves
    assert jax.tree.map(lambda x: x, motion).q is motion.q


# --- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", (0, -1, np.int64(1), slice(1, None), slice(None, None, -1), [2, 0], np.array([1])))
def test_index_selects_members(batch, at):
    found = batch[at]
    same(found, picked(batch, at))
    assert found.model is batch.model and found.title == batch.title
    np.testing.assert_allclose(found.energy, np.asarray(batch.energy)[at], rtol=1e-12, atol=1e-12)


def test_members_match_single_motions(batch):
    assert len(batch) == 3
    members = list(batch)
    assert len(members) == 3
    for member, q0, v0 in zip(members, *STARTS, strict=True):
        alone = uk.simulate(Pendulum(), q0, v0, TS)
        assert member.q.shape == alone.q.shape and member.reason == alone.reason
        np.testing.assert_allclose(member.q, alone.q, rtol=0, atol=1e-7)
        np.testing.assert_allclose(member.constraint_force, alone.constraint_force, rtol=0, atol=1e-6)


def test_boolean_array_selects_members(batch):
    some = batch[np.array([True, False, True])]
    same(some, picked(batch, [0, 2]))
    assert len(batch[batch.finished]) == 3
    assert len(batch[~batch.finished]) == 0


def test_member_retains_evaluated_quantities(batch):
    kept = batch.with_observation()
    np.testing.assert_array_equal(kept[1].observation.energy, kept.observation.energy[1])
    np.testing.assert_array_equal(kept[1].without_model().residual, kept.residual[1])


def test_members_with_different_models():
    models = Oscillator(jnp.array([1.0, 2.0, 4.0]), jnp.array([4.0, 8.0, 4.0]))
    q0, v0 = jnp.ones((3, 1)), jnp.zeros((3, 1))
    motions = eqx.filter_vmap(lambda model, q0, v0: uk.simulate(model, q0, v0, TS))(models, q0, v0)
    for i, rate in enumerate((2.0, 2.0, 1.0)):
        member = motions[i]
        assert member.model.m == models.m[i] and member.model.m.shape == ()
        np.testing.assert_allclose(member.q[:, 0], np.cos(rate * TS), rtol=0, atol=1e-8)
        np.testing.assert_allclose(member.acceleration[:, 0], -(rate**2) * np.cos(rate * TS), rtol=0, atol=1e-7)
        np.testing.assert_allclose(member(1.3).q, [[np.cos(1.3 * rate)]], rtol=0, atol=1e-8)
    np.testing.assert_array_equal(motions[1:].model.k, models.k[1:])
    with pytest.raises(ValueError, match=r"use motion\[i\]\(t\)"):
        motions(0.5)


def test_common_model_with_axis_as_long_as_batch_is_not_indexed():
    model = uk.System(uk.MassForce(jnp.diag(jnp.array([1.0, 2.0, 3.0])), jnp.ones(3)))
    batch = uk.simulate(model, np.zeros((3, 3)), np.eye(3), [0.0, 1.0])
    np.testing.assert_allclose(batch[1].acceleration[0], [1, 1 / 2, 1 / 3], rtol=1e-12)
    np.testing.assert_allclose(batch[1](0.5).q[0], np.array([1 / 8, 1 / 2 + 1 / 16, 1 / 24]), rtol=1e-9)


def test_a_saved_batch_has_members(batch, tmp_path):
    loaded = uk.load_trajectory(batch.save(tmp_path / "batch.npz"))
    same(loaded[2], picked(batch, 2))
    np.testing.assert_array_equal(loaded[2].energy, batch.energy[2])
    assert loaded[2].coordinates == batch.coordinates


def test_batches_are_mapped_and_indexed_as_trees(batch):
    np.testing.assert_array_equal(jax.tree.map(lambda x: x[1], batch.without_model()).q, batch.q[1])
    ends = eqx.filter_vmap(lambda motion: motion.q[-1])(batch.without_model())
    np.testing.assert_array_equal(ends, batch.q[:, -1])


def test_member_of_single_trajectory_is_error(motion):
    for ask in (lambda: motion[0], lambda: motion[:2], lambda: len(motion), lambda: iter(motion)):
        with pytest.raises(TypeError, match=r"this is one trajectory.* use motion.q\[k\] for its sample k"):
            ask()
    assert motion  # bool does not use the length


@pytest.mark.parametrize("at", ("energy", 1.0, None, True, (0, 1), [[0], [1]], [True, False]))
def test_invalid_kind_of_index_is_error(batch, at):
    with pytest.raises(TypeError, match=r"motion\[i\] needs an integer, a slice, or an array"):
        batch[at]


@pytest.mark.parametrize("at", (3, -4, [0, 7]))
def test_an_index_beyond_the_batch_is_an_error(batch, at):
    with pytest.raises(IndexError, match="there is no member .* in a batch of 3"):
        batch[at]


# --- between samples --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ({}, {"dt": 0.01}, {"dt": 0.01, "solver": uk.RungeKutta4()}, {"drift": "none"}))
def test_values_between_samples_match_exact_solution(how):
    motion = uk.simulate(OSCILLATOR, [1.0], [0.0], [0.0, 1.5, 4.0], **how)
    times = np.array([3.9, 0.0, 0.1, 1.5, 1.5, 2.7, 4.0])  # in any order, some twice
    found = motion(times)
    np.testing.assert_array_equal(found.t, times)
    np.testing.assert_allclose(found.q[:, 0], np.cos(2 * times), rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.v[:, 0], -2 * np.sin(2 * times), rtol=0, atol=2e-7)
    np.testing.assert_allclose(found.acceleration[:, 0], -4 * np.cos(2 * times), rtol=0, atol=4e-7)
    assert found.reason == motion.reason
    np.testing.assert_array_equal(found.q[jnp.array([1, 3, 4, 6])], motion.q[jnp.array([0, 1, 1, 2])])


def test_values_between_samples_match_simulation_with_these_samples(motion):
    more = np.sort(np.append(TS, [0.1, 0.77, 1.99]))
    expected = uk.simulate(Pendulum(), *START, more, rtol=1e-12)
    found = motion(more)
    np.testing.assert_allclose(found.q, expected.q, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.constraint_force, expected.constraint_force, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.residual, 0, atol=1e-12)
    np.testing.assert_array_equal(motion(TS).q, motion.q)
    np.testing.assert_array_equal(motion(TS).v, motion.v)


def test_scalar_time_gives_one_sample(motion):
    found = motion(0.3)
    assert found.t.shape == (1,) and found.q.shape == (1, 2)
    np.testing.assert_array_equal(found.q, motion([0.3]).q)


def test_fixed_steps_between_samples_match_simulation_with_that_sample(motion):
    how = {"dt": 0.02, "solver": uk.RungeKutta4(), "drift": "none"}
    of = lambda ts: uk.simulate(Pendulum(), *START, ts, **how)
    np.testing.assert_allclose(of(TS)([0.7, 0.9]).q, of([0.0, 0.5, 0.7, 0.9]).q[2:], rtol=0, atol=1e-13)


@pytest.mark.parametrize("how", ({}, {"dt": 0.01}))
def test_times_within_rounding_of_samples_give_samples(how):
    motion = uk.simulate(Pendulum(), *START, TS, **how)
    near = [np.nextafter(0.5, 1), 0.5 + 1e-12, np.nextafter(2, 0), 1e-30]
    np.testing.assert_allclose(motion(near).q, motion.q[jnp.array([1, 1, 4, 0])], rtol=0, atol=1e-7)


def test_values_of_batch_between_samples_match_those_of_members(batch):
    found = batch([0.3, 1.7])
    assert found.q.shape == (3, 2, 2) and found.t.shape == (3, 2)
    for i, member in enumerate(batch):
        np.testing.assert_allclose(found.q[i], member([0.3, 1.7]).q, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(batch(TS).q, batch.q)


def test_motion_is_evaluated_only_up_to_its_event():
    floor = uk.Event(lambda t, q, v: q[0], direction="falling")
    members = uk.simulate(OSCILLATOR, [[1.0], [0.5]], [[0.0], [1.0]], [0.0, 0.5, 1.0], event=floor)
    with pytest.raises(ValueError, match="the same times"):
        members(0.2)
    motion = members[0]
    end = float(motion.last[0])
    assert motion.met_event and abs(end - np.pi / 4) < 1e-8
    np.testing.assert_allclose(motion([0.2, 0.6]).q[:, 0], np.cos([0.4, 1.2]), rtol=0, atol=1e-8)
    np.testing.assert_array_equal(motion(end).q[0], motion.last[1])
    with pytest.raises(ValueError, match="within the motion, 0 to 0.785398"):
        motion(0.9)


def test_evaluation_between_samples_uses_switches_of_motion():
    push = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: jnp.where((t > 1.0) & (t < 1.001), 1000.0, 0.0)[None]))
    motion = uk.simulate(push, [0.0], [0.0], [0.0, 3.0], switches=[1.0, 1.001])
    np.testing.assert_allclose(motion([0.9, 2.0]).v[:, 0], [0, 1], rtol=0, atol=1e-9)


def test_motion_of_function_is_evaluated_between_samples():
    free = lambda t, q, v: uk.Terms(jnp.eye(1), -4 * q, jnp.zeros((0, 1)), jnp.zeros(0))
    np.testing.assert_allclose(uk.simulate(free, [1.0], [0.0], [0.0, 2.0])(0.7).q, [[np.cos(1.4)]], rtol=0, atol=1e-7)


def test_values_between_samples_have_derivatives():
    def at(k, v0):
        model = Oscillator(jnp.asarray(2.0), k)
        return uk.simulate(model, jnp.array([1.0]), v0[None], [0.0, 0.5, 2.0])(1.2).q[0, 0]

    of_k, of_v = jax.grad(at, (0, 1))(8.0, 0.0)
    np.testing.assert_allclose(of_k, -1.2 * np.sin(2.4) / 8, rtol=1e-6)  # ω = √(k/2), dω/dk = 1/8
    np.testing.assert_allclose(of_v, np.sin(2.4) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("t", "said"),
    (
        (2.5, "t must lie within the motion, 0 to 2 s, got 2.5"),
        ([0.5, -0.1], r"t must lie within the motion, 0 to 2 s, got -0.1"),
        (np.nan, "t must be finite"),
        ([[0.5]], r"t must be one time \[s\], or times of shape \(k,\), got shape \(1, 1\)"),
        ([], r"got shape \(0,\)"),
        ("now", "t must be times, got 'now'"),
    ),
)
def test_invalid_times_are_errors(motion, t, said):
    with pytest.raises(ValueError, match=said):
        motion(t)


def test_evaluation_between_samples_without_model_is_error(motion, tmp_path):
    loaded = uk.load_trajectory(motion.save(tmp_path / "motion.npz"))
    for lacking in (loaded, motion.without_model()):
        with pytest.raises(ValueError, match="needs the model and the options"):
            lacking(0.3)


def test_traced_times_are_an_error(motion):
    with pytest.raises(ValueError, match="t must be known times: under jit"):
        jax.jit(lambda t: motion(t).q)(0.3)
    with pytest.raises(ValueError, match="for derivatives with respect to t"):
        jax.grad(lambda t: motion(t).q[0, 0])(0.3)
    with pytest.raises(ValueError, match="motion.t. needs known sample times. Under jit"):
        jax.jit(lambda v: uk.simulate(Pendulum(), jnp.array([-1.0, 0.0]), v, TS)(0.3).q)(jnp.zeros(2))


def test_single_precision_stays_single():
    in_single = jax.tree.map(lambda x: x.astype(jnp.float32), OSCILLATOR)
    motion = uk.simulate(in_single, np.ones(1, np.float32), np.zeros(1, np.float32), [0.0, 0.3, 1.0], rtol=1e-5)
    found = motion([0.1, 0.3, 1.0])
    assert found.q.dtype == jnp.float32
    np.testing.assert_array_equal(found.q[1:], motion.q[1:])
    np.testing.assert_allclose(found.q[0, 0], np.cos(0.2), atol=1e-4)


# --- returned classes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    "Combination Failure Identifiability Integration IntegrationEffect Labels Observation Plan Pose Reaction "
    "Simulator".split(),
)
def test_returned_classes_are_public_and_documented(name):
    assert name in dir(uk) and isinstance(getattr(uk, name), type)
    assert len(getattr(uk, name).__doc__) > 50


# --- record of options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", (uk.simulate, uk.ensemble, uk.export, uk.fit, uk.tune), ids=lambda f: f.__name__)
def test_functions_take_all_options_of_the_record(function):
    names = {field.name for field in fields(uk.Integration)}
    assert names <= inspect.signature(function).parameters.keys()


def test_record_is_a_mapping_of_the_given_options():
    how = uk.Integration(dt=0.1, drift="none")
    assert dict(how) == {"dt": 0.1, "drift": "none"} and len(how) == 2 and "rtol" not in how
    assert repr(how) == "Integration(dt=0.1, drift='none')"
    assert {**how, "dt": 0.2} == {"dt": 0.2, "drift": "none"}
    with pytest.raises(KeyError):
        how["rtol"]
    with pytest.raises(TypeError, match="tolerance"):
        uk.Integration(tolerance=1e-6)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    "how",
    [
        {"dt": 0.07, "solver": uk.RungeKutta4(), "drift": "none"},
        {"rtol": 1e-6, "atol": [1e-7], "method": "cholesky"},
        {"method": uk.Orthogonal(rtol=1e-9), "max_steps": 500},
    ],
)
def test_record_of_a_motion_repeats_it(how):
    start = OSCILLATOR, [1.0], [0.0], TS
    motion = uk.simulate(*start, **how)
    assert motion.integration is not None
    again = uk.simulate(*start, **motion.integration)
    np.testing.assert_array_equal(again.q, motion.q)
    np.testing.assert_array_equal(again.steps, motion.steps)
    assert how.keys() <= set(motion.integration) and motion.integration["method"] is how.get("method", "orthogonal")


# --- motions as trees -------------------------------------------------------------------------------------------------

OTHERWISE = {
    "fixed steps": {"dt": 0.01},
    "another solver": {"dt": 0.01, "solver": uk.RungeKutta4()},
    "tolerances": {"rtol": 1e-7, "atol": [1e-8]},
    "switches": {"switches": [0.3]},
    "its end": {"throw": False},
    "drift": {"drift": "none"},
}


def adaptive(q0):
    return uk.simulate(OSCILLATOR, q0, jnp.zeros(1), TS)


@pytest.mark.parametrize("how", OTHERWISE.values(), ids=OTHERWISE)
def test_motions_with_other_options_have_the_same_structure(how):
    """Either may be a branch of ``cond``, and the state of a ``scan``; two are combined by ``tree.map``."""
    other = lambda q0: uk.simulate(OSCILLATOR, q0, jnp.zeros(1), TS, **how)
    q0 = jnp.ones(1)
    one, two = adaptive(q0), other(2 * q0)
    choose = jax.jit(lambda first: jax.lax.cond(first, lambda: adaptive(q0), lambda: other(2 * q0)))
    np.testing.assert_allclose(choose(True).q, one.q, rtol=0, atol=1e-7)
    np.testing.assert_allclose(choose(False).q, two.q, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(jax.tree.map(lambda x, y: jnp.where(x == x, y, x), one, two).q, two.q)
    last = jax.lax.scan(lambda motion, _: (other(motion.q[-1]), None), one, length=1)[0]
    np.testing.assert_allclose(last.q[:, 0], np.cos(4.0) * np.cos(2 * TS), rtol=0, atol=1e-6)


def test_options_after_cond_are_those_of_chosen_motion_or_unknown():
    q0 = jnp.ones(1)
    fixed = lambda q0: uk.simulate(OSCILLATOR, q0, jnp.zeros(1), TS, dt=0.1, solver=uk.RungeKutta4())
    choose = jax.jit(lambda first: jax.lax.cond(first, adaptive, fixed, q0))
    np.testing.assert_allclose(choose(True)(0.3).q, [[np.cos(0.6)]], rtol=0, atol=1e-8)
    assert choose(False).integration is None
    with pytest.raises(uk.InputError, match="options of ukjax.simulate, which are not known.* jax.lax.cond"):
        choose(False)(0.3)
    members = uk.simulate(OSCILLATOR, jnp.ones((2, 1)), jnp.zeros((2, 1)), TS)
    coarse = uk.simulate(OSCILLATOR, jnp.ones((2, 1)), jnp.zeros((2, 1)), TS, dt=0.1, solver=uk.RungeKutta4())
    mixed = jax.tree.map(lambda x, y: x if x.ndim == 0 else jnp.concatenate([x[:1], y[1:]]), members, coarse)
    np.testing.assert_allclose(mixed[0](0.3).q, [[np.cos(0.6)]], rtol=0, atol=1e-8)
    with pytest.raises(uk.InputError, match="not known"):
        mixed[1](0.3)


@pytest.mark.parametrize("how", ({}, OTHERWISE["fixed steps"], OTHERWISE["switches"]))
def test_motions_under_jit_and_vmap_retain_options(how):
    of = lambda q0: uk.simulate(OSCILLATOR, q0, jnp.zeros(1), TS, **how)
    motion = of(jnp.ones(1))
    np.testing.assert_allclose(jax.jit(of)(jnp.ones(1))(0.3).q, motion(0.3).q, rtol=0, atol=1e-7)
    mapped = jax.vmap(of)(jnp.array([[1.0], [2.0]]))
    np.testing.assert_allclose(mapped[1](0.3).q, 2 * motion(0.3).q, rtol=0, atol=1e-6)
    again = jax.tree.map(lambda x: x, motion)
    np.testing.assert_array_equal(again(0.3).q, motion(0.3).q)


def test_options_that_jit_traces_are_unknown():
    of = lambda dt: uk.simulate(OSCILLATOR, jnp.ones(1), jnp.zeros(1), TS, dt=dt)
    for motion in (jax.jit(of)(0.01), jax.vmap(of)(jnp.array([0.01, 0.02]))[0]):
        np.testing.assert_allclose(motion.q[:, 0], np.cos(2 * TS), rtol=0, atol=1e-6)
        with pytest.raises(uk.InputError, match="jit or vmap traced a number among them"):
            motion(0.3)


def test_later_change_of_argument_array_does_not_change_options():
    dt = np.array(0.01)
    motion = uk.simulate(OSCILLATOR, jnp.ones(1), jnp.zeros(1), TS, dt=dt)
    expected = motion(0.3).q
    dt[...] = 0.5
    np.testing.assert_array_equal(motion(0.3).q, expected)


def test_motion_that_reached_max_steps_is_evaluated_up_to_its_end():
    motion = uk.simulate(Pendulum(), *START, TS, max_steps=1, throw=False)
    end = float(motion.last[0])
    assert 0 < end < 0.1
    np.testing.assert_allclose(motion(end / 2).v[0, 1], -9.81 * end / 2, rtol=1e-6)
    with pytest.raises(uk.InputError, match="within the motion"):
        motion(0.1)


def test_failed_integration_between_samples_is_error():
    """The samples are those of the motion. The model is replaced by one that cannot be integrated."""
    model = lambda at: uk.System(
        uk.MassForce(jnp.eye(1), jnp.zeros(1)), uk.Holonomic(lambda t, q: q - jnp.where(t < at, 0.0, 1.0))
    )
    ended = uk.simulate(model(0.2), [0.0], [0.0], TS, throw=False)
    changed = replace(uk.simulate(model(9.0), [0.0], [0.0], TS), model=ended.model, provenance=ended.provenance)
    with pytest.raises(uk.SimulationError, match="could not be integrated from the sample at t = 0 s to t = 0.3 s: it"):
        changed(0.3)


def test_members_that_fail_at_same_time_are_evaluated_before_it():
    jump = uk.Holonomic(lambda t, q: q - jnp.where(t < 1.2, 0.0, 1.0))
    model = uk.System(uk.MassForce(jnp.eye(1), jnp.zeros(1)), jump)
    motions = uk.simulate(model, np.zeros((2, 1)), np.zeros((2, 1)), TS, throw=False)
    assert not np.any(motions.finished)
    np.testing.assert_allclose(motions([0.3, 1.1]).q, np.zeros((2, 2, 1)), atol=1e-12)


def test_empty_batch(batch, tmp_path):
    none = batch[~batch.finished]
    assert len(none) == 0 and repr(none) == "Trajectory('Pendulum', 0 x 5 samples of 2 coordinates)"
    assert none.energy.shape == (0, 5)
    with pytest.raises(uk.InputError, match="this is a batch without members"):
        none(0.3)
    with pytest.raises(uk.InputError, match="cannot be saved"):
        none.save(tmp_path / "none.npz")


def test_error_for_time_just_after_end_shows_all_digits(motion):
    with pytest.raises(uk.InputError, match="0 to 2 s, got 2.0000000000000004"):
        motion(np.nextafter(2, 3))
