"""Ensembles stored in folders: resumed after interruption, computed once, and not mixed with other ensembles."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax import _fingerprint as fingerprint_module
from ukjax._ensemble import plan as plan_module
from ukjax._ensemble import run as run_module
from ukjax._ensemble.store import remaining

from ..mechanisms import Pendulum

pytestmark = pytest.mark.optimised

TS = [0.0, 0.3, 0.6]
WORDS = {"XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(plan_module, "MIN_BLOCK", 8)


def sweep(store, members: Any = 40, model: Any = None, over: Any = None, **how: Any):
    over = {"length": uk.Uniform(0.5, 1.5), "x": uk.Uniform(-0.1, 0.1)} if over is None else over
    given = {"ts": TS, "q0": [1.0, 0.0], "v0": [0.0, 0.0], "dt": 0.02, "chunk": 8, "store": store} | how
    return uk.ensemble(Pendulum() if model is None else model, over, members, **given)


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder and its subfolders, without locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "MIN_BLOCK", 8)
        folder = tmp_path_factory.mktemp("whole") / "store"
        sweep(folder)
        yield folder


def test_stored_ensemble_equals_the_one_in_memory(whole):
    found, kept = uk.open_ensemble(whole), sweep(None)
    assert found.names == kept.names and found.complete and found.members == 40
    for name in ("q", "v", "result", "steps", "last_t"):
        np.testing.assert_array_equal(found[name], kept[name])
    for name in kept.over:
        np.testing.assert_array_equal(found.over[name], kept.over[name])
        np.testing.assert_array_equal(found[name], kept.over[name])
    np.testing.assert_array_equal(found.reason, kept.reason)
    assert found.summary() == kept.summary() and found.summary()["finished"] == 40
    np.testing.assert_array_equal(found.ends(), found.q[:, -1])
    assert "40 Pendulum" in repr(found) and "length, x" in repr(found)


def test_resumed_sweep_computes_only_missing_members(whole, tmp_path, monkeypatch):
    folder = tmp_path / "store"
    monkeypatch.setattr(run_module, "compute_locally", stopping_after(2))
    with pytest.raises(KeyboardInterrupt):
        sweep(folder)
    part = uk.open_ensemble(folder)
    assert part.done == 16 and not part.complete and set(part.reason[16:]) == {"is not done yet"}
    assert np.isnan(part.q[16:]).all() and np.isfinite(part.q[:16]).all() and part.summary()["done"] == 16
    monkeypatch.undo()
    monkeypatch.setattr(plan_module, "MIN_BLOCK", 8)
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.npz")}
    sweep(folder)
    assert content(folder) == content(whole)
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    monkeypatch.setattr(run_module, "check_starts", None)  # nothing is computed
    assert sweep(folder).complete


def stopping_after(count):
    def done(plan, chunks):
        for i, each in enumerate(real(plan, chunks)):
            if i == count:
                raise KeyboardInterrupt
            yield each

    real = run_module.compute_locally
    return done


def test_a_store_written_with_a_grid_is_resumed(tmp_path, monkeypatch):
    over = lambda high=1.5: {"length": uk.Grid(0.5, high, 24)}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run_module, "compute_locally", stopping_after(2))
        sweep(tmp_path / "s", None, over=over())
    assert uk.open_ensemble(tmp_path / "s").done == 16
    found = sweep(tmp_path / "s", None, over=over())
    assert found.complete
    np.testing.assert_array_equal(found.over["length"], np.linspace(0.5, 1.5, 24))
    np.testing.assert_array_equal(found.q, sweep(None, None, over=over()).q)
    with pytest.raises(ValueError, match="'over', 'length', is '24 values from 0.5 to 1.5 .*' there"):
        sweep(tmp_path / "s", None, over=over(1.6))


def test_store_of_another_ensemble_raises_and_names_the_difference(whole):
    x = uk.Uniform(-0.1, 0.1)
    for how, said in (
        ({"dt": 0.01}, "'dt' is 0.02 there, and 0.01 now"),
        ({"members": 48}, "'members' is 40 there, and 48 now"),
        ({"seed": 1}, "'seed' is 0 there, and 1 now"),
        ({"ts": [0.0, 0.3, 0.7]}, "'times' is"),
        ({"q0": [0.9, 0.0]}, "'q0' is"),
        ({"keep": "end"}, "'keep' is"),
        ({"over": {"length": uk.Uniform(0.5, 1.6), "x": x}}, "'over', 'length', is 'between 0.5 and 1.5' there"),
        ({"model": Pendulum(mass=2.0)}, "'numbers of the model', 'mass', is 1.0 there, and 2.0 now"),
        ({"model": Pendulum(copies=2)}, "'functions of the model' is"),
        ({"model": Other()}, "'model' is 'Pendulum' there, and 'Other' now"),
    ):
        with pytest.raises(ValueError, match="holds another ensemble: ") as error:
            sweep(whole, **how)
        assert said in str(error.value), said


class Other(Pendulum):
    pass


def test_store_of_another_version_raises(whole, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint_module, "__version__", "9.9")
        with pytest.raises(ValueError, match="'ukjax' is '.*' there, and '9.9' now"):
            sweep(whole)
    monkeypatch.setattr(fingerprint_module, "NUMERICS", 99)
    with pytest.raises(ValueError, match="'numerics' is .* there, and 99 now"):
        sweep(whole)


def test_store_works_without_package_metadata(tmp_path, monkeypatch):
    """A copy of the package inside another program has no metadata."""

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert sweep(tmp_path / "s", 8).complete


def test_model_with_another_function_of_the_same_name_raises(tmp_path):
    model = lambda size: uk.System(uk.MassForce(np.eye(2), lambda t, q, v: size * jnp.array([0.0, -9.81])))
    over = {"q1": [0.0, 1.0]}
    sweep(tmp_path / "s", None, model(1.0), over)
    sweep(tmp_path / "s", None, model(1.0), over)
    with pytest.raises(ValueError, match="'functions of the model' is"):
        sweep(tmp_path / "s", None, model(2.0), over)


def with_table(table):
    """A force that a function compiled by JAX interpolates in a table."""
    force = jax.jit(lambda t, q, v: jnp.interp(q[0], np.arange(3.0), np.asarray(table))[None])
    return uk.System(uk.MassForce(np.eye(1), force))


def test_model_with_another_table_in_a_compiled_function_raises(tmp_path):
    go = lambda table, **how: uk.ensemble(
        with_table(table), {"q1": [0.1, 0.2, 0.3]}, ts=[0.0, 0.1], q0=[0.5], v0=[0.0], dt=0.1, **how
    )
    first = go([1.0, 2.0, 3.0], store=tmp_path / "s")
    np.testing.assert_allclose(first.v[:, -1, 0], np.array([1.1, 1.2, 1.3]) * 0.1, rtol=0.02)
    with pytest.raises(ValueError, match="holds another ensemble: 'functions of the model' is"):
        go([7.0, 8.0, 9.0], store=tmp_path / "s")


@pytest.mark.parametrize("name", ("q", "result", "steps", "last_t", "over", "time", "fingerprint"))
def test_keep_with_a_reserved_name_raises(name):
    with pytest.raises(ValueError, match=f"keep returns '{name}', which is a reserved name .* 'my_{name}'"):
        sweep(None, keep=lambda motion: {name: motion.q[-1, 0], "x1": motion.q[0, 0]})


def test_keep_and_over_with_the_same_name_raise():
    with pytest.raises(ValueError, match="keep returns 'length', which is the name of a swept number"):
        sweep(None, keep=lambda motion: {"length": motion.q[-1, 0]})
    with pytest.raises(ValueError, match="keep must return a dictionary whose keys are strings, got the key 1"):
        sweep(None, keep=lambda motion: {1: motion.q[-1, 0]})
    with pytest.raises(ValueError, match="over names 'rank', which is a reserved name"):
        sweep(None, keep="all", model=Ranked(), over={"rank": [1.0, 2.0]}, members=None)


class Ranked(Pendulum):
    rank: Any = eqx.field(default=1.0, converter=jnp.asarray)


def test_ranks_of_unequal_memory_compute_all_members(whole, tmp_path, monkeypatch, caplog):
    """Ranks with different memory would choose different chunk sizes."""
    each = 8 * (4 * 3 + 6)  # bytes of a member
    for rank, blocks in ((0, 2), (1, 1)):
        monkeypatch.setattr(plan_module, "memory", lambda blocks=blocks: 16.0 * each * 8 * blocks)
        caplog.clear()
        found = sweep(tmp_path / "s", chunk=None, rank=rank, world=2)
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert [f"has {found.done} of 40 members: the share of rank {rank} of 2" in words for words in said] == (
            [] if found.complete else [True]
        )
    assert found.complete and json.loads((tmp_path / "s" / "ensemble.json").read_text())["chunk"] == 16
    assert sorted(path.name for path in (tmp_path / "s").glob("members-*"))[1:3] == [
        "members-000000016-000000024.npz",
        "members-000000024-000000032.npz",
    ]
    np.testing.assert_array_equal(found.q, uk.open_ensemble(whole).q)


def test_first_of_two_simultaneous_writers_sets_the_chunk(whole, tmp_path):
    from ukjax._ensemble.store import Store

    told = json.loads((whole / "ensemble.json").read_text())
    one, other = Store(tmp_path / "s"), Store(tmp_path / "s")  # neither process sees a manifest yet
    with one.writing(told, 8, 0, 2), other.writing(told, 24, 1, 2):
        assert one.chunk == other.chunk == 8


def test_writer_with_another_number_of_jobs_raises(whole, tmp_path):
    from ukjax._ensemble.store import Store

    told = json.loads((whole / "ensemble.json").read_text())
    with Store(tmp_path / "s").writing(told, 8, 0, 2):
        with pytest.raises(ValueError, match="is being written by a job of world = 2, and this one is of 3"):
            with Store(tmp_path / "s").writing(told, 8, 1, 3):
                pass


def test_members_in_two_files_are_counted_once(whole, tmp_path):
    folder = copied(whole, tmp_path / "s")
    files = [np.load(folder / f"members-{first:09d}-{first + 8:09d}.npz") for first in (0, 8)]
    both: dict[str, Any] = {
        name: files[0][name] if name == "fingerprint" else np.concatenate([file[name] for file in files])
        for name in files[0].files
    }
    np.savez(folder / "members-000000000-000000016.npz", **both)
    found = uk.open_ensemble(folder)
    assert found.done == 40 and found.complete
    np.testing.assert_array_equal(found.q, uk.open_ensemble(whole).q)


def copied(whole, folder):
    folder.mkdir()
    for name, data in content(whole).items():
        (folder / name).write_bytes(data)
    return folder


def test_files_of_another_ensemble_raise(whole, tmp_path):
    folder = copied(whole, tmp_path / "s")
    first = folder / "members-000000000-000000008.npz"
    beyond = first.rename(folder / "members-000000040-000000048.npz")
    with pytest.raises(ValueError, match="members-000000040-.* is of another ensemble .there are 40 members here"):
        uk.open_ensemble(folder)
    beyond.rename(first)
    with np.load(first) as held:
        arrays: dict[str, Any] = dict(held)
    np.savez(first, **arrays | {"fingerprint": 255 - arrays["fingerprint"]})
    with pytest.raises(ValueError, match="members-000000000-.* is of another ensemble .its fingerprint"):
        uk.open_ensemble(folder).q  # noqa: B018
    np.savez(first, **arrays | {"q": arrays["q"][:5]})
    with pytest.raises(ValueError, match="members-000000000-.* is damaged .'q' has shape .5, 3, 2. for 8 members"):
        uk.open_ensemble(folder).q  # noqa: B018


def test_second_writer_of_the_same_share_raises(whole, tmp_path):
    from ukjax._ensemble.store import Store

    told = json.loads((whole / "ensemble.json").read_text())
    store = Store(tmp_path / "s")
    with store.writing(told, 8, 0, 1):
        for rank, world in ((0, 1), (0, 2)):
            with pytest.raises(ValueError, match="is being written by another process"):
                with Store(tmp_path / "s").writing(told, 8, rank, world):
                    pass
    with store.writing(told, 8, 0, 2), Store(tmp_path / "s").writing(told, 8, 1, 2):
        with pytest.raises(ValueError, match="is being written by another process"):
            with Store(tmp_path / "s").writing(told, 8, 1, 2):
                pass


def test_two_jobs_write_the_same_files_as_one(whole, tmp_path):
    first = sweep(tmp_path / "s", rank=1, world=2)
    assert first.done == 16 and not first.complete
    assert sweep(tmp_path / "s", rank=0, world=2).complete
    assert content(tmp_path / "s") == content(whole)


def test_sweep_can_be_resumed_after_a_full_disk(whole, tmp_path, monkeypatch):
    real = np.lib.format.write_array

    def full(file, array, **how):
        if len(list(tmp_path.glob("s/members-*"))) == 2:
            file.write(b"half of it")
            raise OSError(28, "No space left on device")
        return real(file, array, **how)

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array", full)
        with pytest.raises(OSError, match="No space left on device") as error:
            sweep(tmp_path / "s")
    assert "members-000000016-000000024.npz" in str(error.value)
    assert uk.open_ensemble(tmp_path / "s").done == 16
    sweep(tmp_path / "s")
    assert content(tmp_path / "s") == content(whole)


def test_files_contain_no_pickles(whole):
    for path in whole.glob("*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[name].dtype.kind in "fiu" for name in arrays.files)


def test_damaged_file_raises_and_is_named(whole, tmp_path):
    folder = copied(whole, tmp_path / "s")
    (folder / "members-000000008-000000016.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="'.*members-000000008-000000016.npz' is damaged .*: remove it, and run"):
        uk.open_ensemble(folder).q  # noqa: B018
    (folder / "members-000000008-000000016.npz").unlink()
    sweep(folder)
    assert content(folder) == content(whole)
    (folder / "ensemble.json").write_text("[]")
    with pytest.raises(ValueError, match="does not describe an ensemble"):
        uk.open_ensemble(folder)


def test_sweep_can_be_resumed_with_another_chunk(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "compute_locally", stopping_after(2))
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "s")
    monkeypatch.undo()
    monkeypatch.setattr(plan_module, "MIN_BLOCK", 8)
    found = sweep(tmp_path / "s", chunk=24)
    assert sorted(path.name for path in (tmp_path / "s").glob("*.npz"))[2:] == [
        "members-000000016-000000024.npz",
        "members-000000024-000000040.npz",
    ]
    np.testing.assert_array_equal(found.q, uk.open_ensemble(whole).q)


def test_remaining_ranges_of_chunks():
    assert remaining([(0, 8), (8, 16)], []) == [(0, 8), (8, 16)]
    assert remaining([(0, 8), (8, 16)], [(0, 4), (6, 12)]) == [(4, 6), (12, 16)]
    assert remaining([(0, 8)], [(0, 16)]) == []


# --- the dataset ----------------------------------------------------------------------------------------------------


def test_dataset_has_names_and_units_and_reads_lazily(whole, monkeypatch):
    from ukjax._ensemble.store import Store

    found, read, real = uk.open_ensemble(whole), [], Store.read
    q = uk.open_ensemble(whole).q

    def noted(self, first, last, names=None):
        read.append((first, names))
        return real(self, first, last, names)

    monkeypatch.setattr(Store, "read", noted)
    data = found.dataset
    assert dict(data.sizes) == {"coordinate": 2, "member": 40, "time": 3}
    assert data.q.dims == ("member", "time", "coordinate") and data.q.attrs["units"] == "m"
    assert data.v.attrs["units"] == "m s-1" and data.time.attrs["units"] == "s"
    assert data.coordinate.values.tolist() == ["x", "y"] and data.unit.values.tolist() == ["m", "m"]
    assert read == [(0, None)]
    np.testing.assert_array_equal(data.q.sel(coordinate="y").isel(member=[39, 3], time=-1), q[[39, 3], -1, 1])
    assert read[1:] == [(0, ["q"]), (32, ["q"])]
    np.testing.assert_array_equal(data.q[5].values, q[5])
    np.testing.assert_array_equal(data.length[10:20:3].values, found.over["length"][10:20:3])
    np.testing.assert_array_equal(data.where(data.result == 0, drop=True).q, q)


# --- killed processes -----------------------------------------------------------------------------------------------

SCRIPT = """
import sys
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import ukjax as uk
from ukjax import _fingerprint as fingerprint_module
from ukjax._ensemble import plan
from ukjax._ensemble import store

plan.MIN_BLOCK = plan.MAX_BLOCK_CPU = 8
uk.enable_float64()
uk.enable_compilation_cache(sys.argv[2])
rod = uk.Holonomic(lambda t, q: q @ q - 1, name="rod")
model = uk.System(uk.MassForce(np.eye(2), lambda t, q, v: jnp.array([0.0, -9.81])), rod)
print("begins", flush=True)
uk.ensemble(model, {"q1": uk.Uniform(0.1, 0.9)}, 8 * int(sys.argv[3]), ts=[0, 1], dt=float(sys.argv[4]), q0=[0.5, -1.0],
            v0=[0, 0], fix_swept=True, chunk=8, store=sys.argv[1])
"""


def run(folder, cache, chunks, dt, until=None):
    """Run the script; kill it when this number of chunks is stored."""
    environment = os.environ | WORDS | {"EQX_ON_ERROR": "off"}
    arguments = [sys.executable, "-c", SCRIPT, str(folder), str(cache), str(chunks), str(dt)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stdout.readline() == b"begins\n"
    if until is not None:
        count, wait = until
        limit = time.monotonic() + 60
        done = lambda: len([*folder.glob("*.npz"), *folder.glob("result/c.*")])
        while done() < count and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return process.returncode


def killed_and_resumed(tmp_path, kind, chunks, dt, moments):
    cache, whole, killed = tmp_path / "cache", tmp_path / f"whole{kind}", tmp_path / f"killed{kind}"
    assert run(whole, cache, chunks, dt) == 0
    kills = 0
    for until in moments:
        kills += run(killed, cache, chunks, dt, until) == -signal.SIGKILL
    assert run(killed, cache, chunks, dt) == 0
    assert content(killed) == content(whole)
    return kills


@pytest.mark.slow
def test_killed_and_resumed_zarr_sweep_is_bitwise_equal(tmp_path):
    assert killed_and_resumed(tmp_path, ".zarr", 60, 1e-3, [(5, 0.002)]) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sweep_killed_at_four_random_times_is_bitwise_equal(tmp_path, rng):
    counts = np.sort(rng.integers(0, 95, 4))
    moments = [(int(count), float(wait)) for count, wait in zip(counts, rng.uniform(0, 0.1, 4), strict=True)]
    assert killed_and_resumed(tmp_path, "", 100, 1e-4, moments) == 4
