"""Ensembles: each member is the motion that ``simulate`` returns, independent of other members and of chunks."""

import doctest
import itertools
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.stats import qmc

import ukjax as uk
from ukjax._ensemble import block as block_module
from ukjax._ensemble import parcel as parcel_module
from ukjax._ensemble import plan as plan_module
from ukjax._ensemble import run as run_module
from ukjax._ensemble.over import Over
from ukjax._motion.result import OUT_OF_REACH, REASONS
from ukjax._run import compile as compile_module

from ..mechanisms import LostActuator, Pendulum

pytestmark = pytest.mark.optimised

TS = [0.0, 0.3, 0.6]
LEVEL, REST = [1.0, 0.0], [0.0, 0.0]
GRID = {"length": np.array([0.5, 1.0, 1.5]), "mass": np.array([1.0, 2.0])}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Set small blocks, so that few members are several blocks."""
    monkeypatch.setattr(plan_module, "MIN_BLOCK", 8)


class Blows(eqx.Module):
    """A force that is NaN from a given time on."""

    when: jax.Array

    def __call__(self, t, q, v):
        return jnp.where(t > self.when, jnp.nan, jnp.array([0.0, -9.81]))


def sweep(over: Any = None, model: Any = None, **given: Any):
    how: dict[str, Any] = {"ts": TS, "q0": LEVEL, "v0": REST, "dt": 0.02} | given
    return uk.ensemble(
        Pendulum() if model is None else model, {"length": uk.Grid(0.5, 1.5, 40)} if over is None else over, **how
    )


def same(a, b):
    assert a.names == b.names
    for name in a.names:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    for name in a.over:
        np.testing.assert_array_equal(a.over[name], b.over[name])


@pytest.fixture(scope="module")
def forty():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "MIN_BLOCK", 8)
        yield sweep()


# --- members against simulate ---------------------------------------------------------------------------------------


def test_members_match_simulate(forty):
    assert forty.members == 40 and forty.finished.all() and forty.q.shape == (40, 3, 2)
    assert set(forty.reason) == {REASONS[0]} and not forty.failures
    for k in (0, 17, 39):
        model = Pendulum(length=forty.over["length"][k])
        q0, v0 = uk.project(model, 0.0, LEVEL, REST)
        alone = uk.simulate(model, q0, v0, TS, dt=0.02)
        np.testing.assert_allclose(forty.q[k], alone.q, atol=1e-12)
        np.testing.assert_allclose(forty.v[k], alone.v, atol=1e-11)
        assert forty.steps[k] == alone.steps == 30 and forty.last_t[k] == TS[-1]


def test_members_match_simulate_with_adaptive_steps():
    found = sweep(dt=None, members=20, over={"length": uk.Uniform(0.5, 1.5), "dx": uk.Uniform(0.0, 1.0)}, v0=[0.0, 1.0])
    for k in (3, 19):
        model = Pendulum(length=found.over["length"][k])
        q0, v0 = uk.project(model, 0.0, LEVEL, [found.over["dx"][k], 1.0])
        np.testing.assert_allclose(found.q[k], uk.simulate(model, q0, v0, TS).q, atol=1e-9)
    same(
        found,
        sweep(
            dt=None,
            members=20,
            over={"length": uk.Uniform(0.5, 1.5), "dx": uk.Uniform(0.0, 1.0)},
            v0=[0.0, 1.0],
            chunk=1,
        ),
    )


def test_members_have_separate_starts():
    rng = np.random.default_rng(0)
    angle = rng.uniform(-1, 1, 12)
    q0 = np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    found = sweep(over={"mass": np.ones(12)}, members=12, q0=q0, v0=REST)
    np.testing.assert_allclose(found.q[:, 0], q0, atol=1e-14)
    with pytest.raises(ValueError, match="a row for each of 6 members"):
        sweep(over=GRID, q0=q0, v0=REST)


def test_default_start_uses_the_swept_parameters():
    over = {"speed": [1.0, 2.0], "alpha": [0.3, 0.5]}
    found = uk.ensemble(uk.systems.RoughIncline(), over, ts=[0.0, 0.1], dt=0.01)
    np.testing.assert_allclose(found.v[:, 0, 0], found.over["speed"] * np.cos(found.over["alpha"]), rtol=1e-12)


def test_swept_start_is_projected_or_fixed_by_fix_swept():
    over = {"x": uk.Grid(-0.5, 0.5, 5)}
    nearest = sweep(over, q0=[0.5, -1.0])
    for k in range(5):
        q0, _ = uk.project(Pendulum(), 0.0, [nearest.over["x"][k], -1.0], REST)
        np.testing.assert_allclose(nearest.q[k, 0], q0, atol=1e-12)
    held = sweep(over, q0=[0.5, -1.0], fix_swept=True)
    np.testing.assert_allclose(held.q[:, 0, 0], held.over["x"], atol=1e-15)
    np.testing.assert_allclose(held.q[:, 0, 1], -np.sqrt(1 - held.over["x"] ** 2), atol=1e-12)


def test_start_of_computes_a_start_from_the_model_of_the_member():
    start_of = lambda model, q, v: (jnp.stack([q[0], -jnp.sqrt(model.length**2 - q[0] ** 2)]), v)
    found = sweep({"x": uk.Grid(-0.4, 0.4, 5)}, start_of=start_of)
    np.testing.assert_allclose(found.q[:, 0, 0], found.over["x"], atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(found.q[:, 0], axis=1), 1, atol=1e-14)


# --- bitwise equality -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", (1, 16, 24, 1000))
def test_results_are_bitwise_equal_for_all_chunk_sizes(forty, chunk):
    same(forty, sweep(chunk=chunk))


@pytest.mark.slow
def test_failing_member_does_not_change_other_members():
    """Members of its block are bitwise equal to those without a failure, for all chunk sizes."""
    model = uk.System(
        uk.MassForce(np.eye(2), Blows(jnp.asarray(9.0))), uk.Holonomic(lambda t, q: q @ q - 1, name="rod")
    )
    over = {"dynamics.force.when": np.where(np.arange(20) % 7 == 3, 0.25, 9.0)}
    found = sweep(over, model, members=20)
    well = sweep({"dynamics.force.when": np.full(20, 9.0)}, model, members=20)
    good = np.arange(20) % 7 != 3
    np.testing.assert_array_equal(found.finished, good)
    np.testing.assert_array_equal(found.q[good], well.q[good])
    assert [failure.member for failure in found.failures] == [3, 10, 17]
    assert all(failure.reason == REASONS[4] and failure.t <= 0.25 for failure in found.failures)
    assert np.isfinite(found.q[3, 0]).all() and np.isnan(found.q[3, 1:]).all()
    same(found, sweep(over, model, members=20, chunk=8))


# --- swept values ---------------------------------------------------------------------------------------------------


def over_of(over, members=None, combine=None, seed=0, names=("x", "y")):
    return Over.of(Pendulum(), over, members, combine, seed, names, names)


def test_grid_is_the_cartesian_product_of_values():
    found = over_of(GRID)
    assert found.members == 6
    np.testing.assert_array_equal(found.values(0, 6), list(itertools.product(*GRID.values())))


def test_sequences_are_values_and_ranges_are_grid_or_uniform():
    for values in ((0.5, 1.0), (1.0, 2.0, 3.0), [1, 2, 3], range(1, 4), jnp.array([2.0, 1.0]), np.ones(2, np.float32)):
        np.testing.assert_array_equal(over_of({"length": values}).swept[0].values, values)
    grid = uk.Grid(np.float32(0.5), jnp.asarray(1.5), np.int64(7))
    assert grid == uk.Grid(0.5, 1.5, 7) and type(grid.low) is type(grid.high) is float and type(grid.count) is int
    found = over_of({"length": grid, "x": uk.Uniform(-1, 2)}, 7)
    values = found.values(0, 7)
    np.testing.assert_array_equal(values[:, 0], np.linspace(0.5, 1.5, 7))
    assert np.all((-1 < values[:, 1]) & (values[:, 1] < 2)) and len(np.unique(values[:, 1])) == 7
    assert found.descriptions() == {
        "length": "7 values from 0.5 to 1.5 (f210256f794800f8)",  # the same hash in every process
        "x": "between -1.0 and 2.0",
    }
    assert pickle.loads(pickle.dumps(found)).values(2, 5).tolist() == values[2:5].tolist()


def test_ranges_do_not_initialise_jax():
    script = """
import ukjax as uk
uk.Grid(0.5, 1.5, 7), uk.Uniform(0, 1)
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_distribution_with_a_grid_is_sampled_for_each_member():
    found = over_of(GRID | {"x": uk.Uniform(-1.0, 1.0)}, 600)
    values = found.values(0, 600)
    np.testing.assert_array_equal(values[:, :2], np.tile(list(itertools.product(*GRID.values())), (100, 1)))
    assert len(np.unique(values[:, 2])) == 600 and np.abs(values[:, 2]).max() < 1


def test_values_are_paired_with_members_if_counts_match_or_combine_is_each():
    both = {"length": np.arange(1.0, 5.0), "mass": np.arange(5.0, 9.0)}
    np.testing.assert_array_equal(over_of(both, 4).values(0, 4), np.stack(list(both.values()), axis=1))
    np.testing.assert_array_equal(
        over_of(both, combine="each").values(1, 3), np.stack(list(both.values()), axis=1)[1:3]
    )
    assert over_of(both).members == 16


@pytest.mark.parametrize("combine", ("random", "sobol"))
def test_samples_follow_their_distribution(combine):
    over = {"length": scipy.stats.lognorm(0.1, scale=2.0), "mass": uk.Uniform(1.0, 3.0), "x": [1.0, 2.0, 4.0]}
    values = over_of(over, 5000, combine).values(0, 5000)
    assert scipy.stats.kstest(values[:, 0], over["length"].cdf).pvalue > 1e-3
    assert scipy.stats.kstest(values[:, 1], scipy.stats.uniform(1, 2).cdf).pvalue > 1e-3
    assert set(values[:, 2]) == {1.0, 2.0, 4.0}
    assert np.abs(np.mean(values[:, 2] == 2.0) - 1 / 3) < 0.03


@pytest.mark.parametrize("combine", ("grid", "random", "sobol"))
def test_values_of_a_member_depend_only_on_its_index_and_the_seed(combine):
    over = {"length": uk.Uniform(0.5, 1.5), "mass": scipy.stats.norm(2.0, 0.1)}
    found = over_of(over, 3000, combine)
    whole = found.values(0, 3000)
    for first, last in ((0, 1), (5, 1030), (1024, 2048), (2999, 3000)):
        np.testing.assert_array_equal(found.values(first, last), whole[first:last])
    assert not np.array_equal(over_of(over, 3000, combine, seed=1).values(0, 9), whole[:9])


def test_sobol_points_match_scipy():
    found = over_of({"length": uk.Uniform(0.0, 1.0), "mass": uk.Uniform(0.0, 1.0)}, 1024, "sobol", seed=3).values(
        0, 1024
    )
    np.testing.assert_array_equal(found, qmc.Sobol(2, rng=np.random.default_rng(3)).random(1024))


def test_swept_numbers_can_be_named_by_coordinate_or_index():
    robot = uk.systems.ParallelManipulator()
    names = [name for name, _ in robot.coordinates]
    named = Over.of(robot, {"qa1": [0.1], "dqb3": [0.2], "ma[1]": [2.0]}, None, None, 0, names, names)
    assert [(each.kind, each.index) for each in named.swept] == [("q", 0), ("v", 5), ("model", 0)]
    assert [(each.kind, each.index) for each in over_of({"q2": [0.1], "dq1": [0.2], "v2": [1.0]}).swept] == [
        ("q", 1),
        ("v", 0),
        ("v", 1),
    ]


SIMULATING = uk.ensemble, uk.open_ensemble, uk.export, uk.load_simulator


@pytest.mark.parametrize(
    "documented", (uk.Grid, uk.Uniform, *(pytest.param(each, marks=pytest.mark.slow) for each in SIMULATING))
)
def test_docstring_examples_pass(documented, tmp_path, monkeypatch):
    if documented in (uk.export, uk.load_simulator):
        pytest.importorskip("flatbuffers")
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestParser().get_doctest(documented.__doc__, {}, documented.__name__, None, None)
    assert doctest.DocTestRunner().run(examples).failed == 0 and examples.examples


def test_programs_for_starts_are_compiled_once():
    """The check of the starts and the first block share programs. Redundant rows need no global search."""
    rows = uk.Holonomic(lambda t, q: jnp.stack([q @ q - 1, 2 * (q @ q) - 2]), name="rod")
    pendulum = uk.System(uk.MassForce(jnp.eye(2), jnp.array([0.0, -9.81])), rows, coordinates=[("x", "m"), ("y", "m")])
    before = set(compile_module._programs)
    found = sweep({"x": [0.3, 0.5, 0.7]}, pendulum, ts=[0.0, 0.02], q0=[0.0, -0.9])
    np.testing.assert_allclose(np.linalg.norm(found.q, axis=-1), 1, rtol=1e-14)
    keys: Any = [hashed.key for hashed in set(compile_module._programs) - before]
    compiled = [key[0] for key in keys if len(key) == 4]  # shorter keys belong to functions that are only traced
    assert compiled.count(block_module._project_near) == 2  # for the fast path, and for the usual method
    assert block_module._project_by_search not in compiled


# --- failures of members --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_members_without_a_consistent_start_are_reported():
    found = sweep({"x": [0.5, 2.0, -0.5, -3.0]}, q0=[0.0, -1.0], fix_swept=True)
    np.testing.assert_array_equal(found.finished, [True, False, True, False])
    assert [(f.member, f.t, f.reason) for f in found.failures] == [(1, 0.0, REASONS[9]), (3, 0.0, REASONS[9])]
    none = "over must allow starts on .* the first 4 members that were tried. With x = 2, no consistent initial"
    with pytest.raises(uk.InputError, match=none):
        sweep({"x": [2.0, 3.0, -2.0, -3.0]}, q0=[0.0, -1.0], fix_swept=True)
    assert np.isnan(found.q[1]).all() and np.isfinite(found.q[0]).all()


def test_invalid_mass_fails_only_its_member():
    found = sweep({"mass": [1.0, -1.0, 2.0]}, drift="none")
    np.testing.assert_array_equal(found.finished, [True, False, True])
    assert found.failures[0].reason == REASONS[8]


def test_member_that_needs_too_many_steps_is_reported():
    found = sweep({"length": [1e-4, 1.0]}, dt=None, max_steps=60, q0=[1.0, 0.0])
    np.testing.assert_array_equal(found.finished, [False, True])
    assert found.failures[0].reason == REASONS[2] and 0 < found.failures[0].t < TS[-1]


# --- stored results -------------------------------------------------------------------------------------------------


def test_keep_end_stores_the_last_sample(forty):
    found = sweep(keep="end")
    np.testing.assert_array_equal(found.q[:, 0], forty.q[:, -1])
    assert found.t.tolist() == TS[-1:]


def test_keep_function_results_are_stored(forty):
    found = sweep(keep=lambda motion: {"lowest": motion.q[:, 1].min(), "force": motion.constraint_force[-1]})
    assert found.names[:2] == ("lowest", "force") or set(found.names) > {"lowest", "force"}
    np.testing.assert_array_equal(found["lowest"], forty.q[..., 1].min(axis=1))
    k = 11
    motion = uk.simulate(Pendulum(length=forty.over["length"][k]), forty.q[k, 0], REST, TS, dt=0.02)
    np.testing.assert_allclose(found["force"][k], motion.constraint_force[-1], rtol=1e-10)


@pytest.mark.slow
def test_keep_all_stores_every_quantity():
    found = sweep({"length": [1.0, 0.7]}, keep="all")
    motion = uk.simulate(Pendulum(length=0.7), found.q[1, 0], REST, TS, dt=0.02)
    for name in ("acceleration", "constraint_force", "energy", "rank"):
        np.testing.assert_allclose(found[name][1], getattr(motion, name), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_terminal_event_is_stored_as_last_sample():
    found = sweep({"length": [1.0, 0.7]}, event=uk.Event(lambda t, q, v: q[0], "falling"), ts=[0.0, 2.0])
    assert found.q.shape == (2, 3, 2) and not found.finished.any() and not found.failures
    np.testing.assert_allclose(found.q[:, 2, 0], 0, atol=1e-12)
    assert found.met_event.all() and (found.event_counts == 1).all()
    np.testing.assert_array_equal(found.event_t[:, 0], found.last_t)


HEIGHTS = np.array([0.25, 2.0, 6.0])


def falling_balls(restitution=0.8, **given):
    """Simulate three falling balls. Within 1 s the first bounces three times, the second once, and the third never."""
    reset = lambda t, q, v: -restitution * v
    floor = uk.Event(lambda t, q, v: q[0], "falling", reset=reset, name="floor")
    apex = uk.Event(lambda t, q, v: v[0], "falling", ends=False, name="apex")
    model = uk.System(uk.MassForce(jnp.eye(1), jnp.array([-9.81])))
    how: dict[str, Any] = {"q0": [0.0], "v0": [0.0], "ts": [0.0, 1.0], "dt": 0.1, "keep": "end"} | given
    return uk.ensemble(model, {"q1": HEIGHTS}, event=[floor, apex], **how)


def test_start_on_surface_of_event_is_result_of_its_member_alone():
    model, heights = uk.System(uk.MassForce(jnp.eye(1), jnp.array([-9.81]))), np.array([0.0, 2.0, 6.0])
    floor = uk.Event(lambda t, q, v: q[0], "falling")
    found = uk.ensemble(model, {"q1": heights}, q0=[0.0], v0=[-1.0], ts=[0.0, 0.8], dt=0.1, keep="end", event=floor)
    assert found.reason.tolist() == [
        "started on its event and did not leave it",
        "ended where its event crossed zero",
        "reached its last time",
    ]
    fall = (np.sqrt(1 + 2 * 9.81 * heights[1]) - 1) / 9.81
    np.testing.assert_allclose(found.last_t, [0.0, fall, 0.8], rtol=1e-12)


def test_impacts_are_counted_for_each_member():
    floor = uk.Unilateral(lambda t, q: q[0], restitution=0.8)
    model = uk.System(uk.MassForce(jnp.eye(1), jnp.array([-9.81])), floor)
    first = lambda motion: motion.contacts.impact_times[0]
    found = uk.ensemble(model, {"q1": HEIGHTS}, q0=[0.0], v0=[0.0], ts=[0.0, 1.0], dt=0.1, keep=first)
    np.testing.assert_array_equal([found.impacts, found.contact_changes], [[3, 1, 0]] * 2)
    expected = np.where(HEIGHTS < 9.81 / 2, np.sqrt(2 * HEIGHTS / 9.81), np.nan)
    np.testing.assert_allclose(found["value"], expected, rtol=1e-12)


def test_event_times_are_stored_for_each_member(tmp_path):
    found = falling_balls(store=tmp_path / "balls")
    fall = np.sqrt(2 * HEIGHTS / 9.81)
    assert found.finished.all() and not found.met_event.any() and found.event_names == ("floor", "apex")
    first = [[fall[0], 1.8 * fall[0]], [fall[1], np.nan], [np.nan, np.nan]]
    np.testing.assert_allclose(found.event_t, first, rtol=1e-12)
    np.testing.assert_array_equal(found.event_counts, [[3, 3], [1, 0], [0, 0]])
    with pytest.raises(ValueError, match="holds another ensemble"):
        falling_balls(restitution=0.7, store=tmp_path / "balls")
    same(falling_balls(store=tmp_path / "balls"), found)


def test_size_of_the_ensemble_is_reported_before_it_starts(caplog, capsys, monkeypatch):
    def stop(plan):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "check_starts", stop)
    for progress in (False, True):
        with caplog.at_level("INFO", "ukjax"), pytest.raises(KeyboardInterrupt):
            sweep(chunk=16, progress=progress)
    said = "40 members in 3 chunks, 2.12 KiB per chunk of 16"  # (5 + 2 · 3 · 2) numbers of 8 bytes
    assert caplog.messages == [said] * 2
    assert capsys.readouterr() == ("", said + "\n")


def test_progress_meter_counts_failed_members(capsys):
    sweep({"mass": [1.0, -1.0, 2.0]}, drift="none", progress=True)
    said = capsys.readouterr()
    assert not said.out and "3.00/3.00" in said.err and "failed=1" in said.err


# --- executors and memory -------------------------------------------------------------------------------------------


def test_executor_gives_the_same_results(forty):
    with ThreadPoolExecutor(2) as executor:
        same(forty, sweep(executor=executor, chunk=8))


def test_chunk_is_halved_where_memory_is_insufficient(forty, monkeypatch, tmp_path):
    from ukjax._ensemble import work

    def joined(parts):
        if len(parts) > 2:
            raise MemoryError
        return whole(parts)

    whole = work.joined
    monkeypatch.setattr(work, "joined", joined)
    same(forty, sweep(store=tmp_path / "a", chunk=40))
    assert len(list((tmp_path / "a").glob("*.npz"))) == 4  # 24 and 16 members, each in halves of whole blocks
    with ThreadPoolExecutor(1) as executor:
        same(forty, sweep(store=tmp_path / "b", chunk=40, executor=executor))


def test_block_larger_than_memory_raises(monkeypatch):
    def none(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(block_module, "_simulated", none)
    with pytest.raises(MemoryError, match="a block of 8 members does not fit"):
        sweep(members=8, over={"length": uk.Uniform(0.5, 1.5)})


@pytest.mark.slow
def test_members_start_from_the_reference_pose_of_their_model():
    """In absolute coordinates, a swept position of a joint must not rotate the links at the start."""
    rod = lambda: uk.Body(1.0, inertia=0.01 * jnp.eye(3))
    double = uk.Mechanism(
        {"upper": rod(), "lower": rod()},
        {
            "shoulder": uk.joints.Revolute("ground", "upper", axis=(0, 1, 0), reference=0.5),
            "elbow": uk.joints.Revolute("upper", "lower", axis=(0, 1, 0), at=(0.0, 0.0, -1.0), reference=-0.3),
        },
        formulation="absolute",
    )
    offsets = np.array([-1.0, 0.0, 5.0])
    result = uk.ensemble(double, {"joints.elbow.at[0]": offsets}, ts=[0.0, 0.01], dt=0.01)
    for k, offset in enumerate(offsets):
        own = eqx.tree_at(lambda m: m.joints.elbow.at, double, jnp.array([offset, 0.0, -1.0]))
        np.testing.assert_allclose(result.q[k, 0], own.start()[0], atol=1e-12)


def test_reading_a_script_in_one_thread_does_not_affect_others():
    """One thread of a worker may compute while another reads the script for its classes."""
    source = """
from concurrent.futures import ThreadPoolExecutor
from ukjax._ensemble.parcel import is_running_script
with ThreadPoolExecutor(1) as pool:
    found = is_running_script(), pool.submit(is_running_script).result()
"""
    assert parcel_module._class_of_script(source, "found") == (True, False)
    assert not parcel_module.is_running_script()


@pytest.mark.slow
def test_member_whose_actuators_cannot_perform_the_task_does_not_count_as_finished():
    """The actuator is lost at 1 m, after 1 s; with keep="end" the coordinates of that member are NaN."""
    how: Any = {"q0": [0.0, 0.0], "v0": [1.0, 1.0], "ts": [0.0, 1.2], "dt": 0.1, "keep": "end"}
    found = uk.ensemble(LostActuator(), {"end": [1.0, 3.0]}, **how)
    assert found.result.tolist() == [OUT_OF_REACH, 0] and [x.member for x in found.failures] == [0]
    np.testing.assert_allclose(found.ends(), [[np.nan, np.nan], [np.sin(1.2), 1.2]], rtol=0, atol=1e-6)
