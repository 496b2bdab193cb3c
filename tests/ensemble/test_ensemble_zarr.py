"""Ensembles stored as Zarr groups: they behave as other folders, and other programs can read them."""

import importlib.metadata
import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import ukjax as uk
from ukjax._ensemble import plan as plan_module
from ukjax._ensemble import run as run_module
from ukjax._ensemble import work as work_module
from ukjax._ensemble.store import Store

from .test_ensemble_store import content, stopping_after, sweep


@pytest.fixture(scope="module", autouse=True)
def zarr():
    """Return the package, or skip all tests of this module without it."""
    return pytest.importorskip("zarr")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(plan_module, "MIN_BLOCK", 8)


@pytest.fixture(scope="module")
def whole(zarr, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "MIN_BLOCK", 8)
        folder = tmp_path_factory.mktemp("whole") / "store.zarr"
        sweep(folder, chunk=16)
        yield folder


def test_zarr_store_is_bitwise_equal_to_a_folder(whole, tmp_path):
    found, other = uk.open_ensemble(whole), sweep(tmp_path / "s")
    assert found.complete and found.names == other.names
    for name in (*other.names, *other.over):
        assert found[name].dtype == other[name].dtype
        np.testing.assert_array_equal(found[name], other[name])
    assert found.summary() == other.summary()
    assert found.dataset.equals(other.dataset) and found.dataset.q.attrs == other.dataset.q.attrs
    np.testing.assert_array_equal(found.dataset.q[[39, 3], -1, 1], other.q[[39, 3], -1, 1])


def test_zarr_store_can_be_read_with_xarray_and_zarr(zarr, whole):
    xarray = pytest.importorskip("xarray")
    found = uk.open_ensemble(whole)
    with xarray.open_zarr(whole, chunks=None) as data:
        assert dict(data.sizes) == {"member": 40, "time": 3, "coordinate": 2, "swept": 2}
        assert data.q.dims == ("member", "time", "coordinate") and data.q.attrs["units"] == "m"
        np.testing.assert_array_equal(data.q.sel(coordinate="y", time=0.6), found.q[:, -1, 1])
        np.testing.assert_array_equal(data.over.sel(swept="length"), found.over["length"])
        np.testing.assert_array_equal(data.time, found.t)
        assert data.unit.values.tolist() == ["m", "m"] and data.attrs["title"] == "Pendulum"
        assert data.result.attrs["flag_meanings"].split()[0] == "reached_its_last_time"
    array = zarr.open_array(whole / "q", mode="r")
    assert array.shards == (16, 3, 2) and array.chunks == (8, 3, 2)


def interrupted(folder, monkeypatch, after=1):
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "compute_locally", stopping_after(after))
        with pytest.raises(KeyboardInterrupt):
            sweep(folder, chunk=16)


def test_resumed_sweep_computes_only_missing_members(zarr, whole, tmp_path, monkeypatch):
    folder = tmp_path / "s.zarr"
    interrupted(folder, monkeypatch)
    part = uk.open_ensemble(folder)
    assert part.done == 16 and set(part.reason[16:]) == {"is not done yet"} and np.isnan(part.q[16:]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (zarr.open_group(folder, mode="r")["result"][16:] == -1).all()  # pyright: ignore
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("c.0*")}
    sweep(folder, chunk=None)
    assert content(folder) == content(whole)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    monkeypatch.setattr(run_module, "check_starts", None)  # nothing is computed
    assert sweep(folder, chunk=16).complete


@pytest.mark.parametrize("lost", ("q/c.1.0.0", "steps/c.1", "result/c.1"))
def test_chunk_with_a_missing_file_is_computed_again(lost, whole, tmp_path):
    folder = copied(whole, tmp_path)
    (folder / lost).unlink()
    assert uk.open_ensemble(folder).done == 24
    (folder / lost).touch()  # after a crash of the machine, a file may be empty
    assert uk.open_ensemble(folder).done == 24 and not uk.open_ensemble(folder).finished[16:32].any()
    sweep(folder, chunk=16)
    assert content(folder) == content(whole)


def copied(whole, tmp_path, name="copy.zarr"):
    folder = tmp_path / name
    for path, data in content(whole).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def test_damaged_file_raises_and_is_named(whole, tmp_path):
    folder = copied(whole, tmp_path)
    path = folder / "q" / "c.1.0.0"
    data = path.read_bytes()
    for at in (20, len(data) // 2, len(data) - 5):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r"'.*c\.1\.0\.0' is damaged .*: remove it, and run the ensemble again"):
            uk.open_ensemble(folder).q  # noqa: B018
    shutil.rmtree(path.parent)
    sweep(folder, chunk=16)
    assert content(folder) == content(whole)
    for text in ("nothing", "[]", "{}"):
        (folder / "zarr.json").write_text(text)
        with pytest.raises(ValueError, match=r"zarr\.json' is damaged"):
            uk.open_ensemble(folder)


def test_files_of_another_ensemble_raise(whole, tmp_path):
    folder = copied(whole, tmp_path)
    (folder / "steps" / "c.3").write_bytes((folder / "steps" / "c.2").read_bytes())
    with pytest.raises(ValueError, match=r"c\.3' is of another ensemble \(there are 40 members here, 16 to a file"):
        uk.open_ensemble(folder)
    (folder / "steps" / "c.3").unlink()
    about = json.loads((folder / "zarr.json").read_text())
    about["attributes"]["fingerprint"] = "0" * 64
    (folder / "zarr.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"zarr\.json' is of another ensemble \(its fingerprint"):
        uk.open_ensemble(folder)


def test_two_jobs_share_the_work_and_another_writer_raises(whole, tmp_path):
    folder = tmp_path / "s.zarr"
    assert sweep(folder, chunk=16, rank=1, world=2).done == 16
    assert sweep(folder, chunk=16, rank=0, world=2).complete and content(folder) == content(whole)
    told = json.loads((whole / "ensemble.json").read_text())
    with Store(folder).writing(told, 16, 0, 1):
        with pytest.raises(ValueError, match="is being written by another process"):
            sweep(folder, chunk=16)


def test_sweep_can_be_resumed_after_a_full_disk(whole, tmp_path, monkeypatch):
    real, folder = Path.write_bytes, tmp_path / "s.zarr"

    def full(path, data):
        if path.parent.name == "v" and (folder / "v" / "c.0.0.0").exists():
            real(path, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left on device") as error:
            sweep(folder, chunk=16)
    assert os.path.join("v", "c.1.0.0") in str(error.value)
    assert uk.open_ensemble(folder).done == 16 and (folder / "q" / "c.1.0.0").exists()
    sweep(folder, chunk=16)
    assert content(folder) == content(whole)


def test_insufficient_memory_does_not_change_files(whole, tmp_path, monkeypatch):
    def joined(parts):
        if len(parts) > 1:
            raise MemoryError
        return parts[0]

    monkeypatch.setattr(work_module, "joined", joined)
    sweep(tmp_path / "s.zarr", chunk=16)
    assert content(tmp_path / "s.zarr") == content(whole)


def test_resumed_sweep_requires_the_same_chunk(whole, tmp_path, monkeypatch):
    folder = tmp_path / "s.zarr"
    interrupted(folder, monkeypatch)
    with pytest.raises(ValueError, match="chunk must be 16, as in the existing store .*, or left out, got 24"):
        sweep(folder, chunk=24)
    with pytest.raises(ValueError, match="holds another ensemble: 'dt' is 0.02 there"):
        sweep(folder, chunk=24, dt=0.01)
    renamed = folder.rename(tmp_path / "renamed")
    assert sweep(renamed, chunk=None).complete and content(renamed) == content(whole)


@pytest.mark.parametrize("version", (None, "2.18.3", "3.1.0"))
def test_missing_or_old_zarr_raises_before_computing(version, whole, tmp_path, monkeypatch):
    real = importlib.metadata.version

    def installed(name):
        if name == "zarr" and version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version if name == "zarr" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", installed)
    monkeypatch.setattr(run_module, "plan_of", None)
    for use in (lambda: sweep(tmp_path / "s.zarr"), lambda: uk.open_ensemble(whole)):
        with pytest.raises(ImportError, match=r"needs the package zarr, .*: pip install 'ukjax\[zarr\]'"):
            use()
    assert not (tmp_path / "s.zarr").exists()


def test_chunk_of_failed_members_counts_as_done(whole, tmp_path):
    """Zarr could omit these chunks, because they equal the fill value of missing chunks."""
    told = json.loads((whole / "ensemble.json").read_text())
    nothing = {"q": np.full((16, 3, 2), np.nan), "over": np.ones((16, 2))}
    with Store(tmp_path / "s.zarr").writing(told, 16, 0, 1) as write:
        write(16, 32, nothing | {"result": np.full(16, 9, np.int8), "last_t": np.zeros(16), "steps": np.zeros(16, int)})
    found = uk.open_ensemble(tmp_path / "s.zarr")
    assert found.done == 16 and [failure.member for failure in found.failures] == list(range(16, 32))


def test_keep_accepts_any_name(tmp_path):
    names = "a/b", "..", "", "zarr.json", ".lock", "file", "50 %", "θ", "none"
    keep = lambda motion: {name: i + motion.q[-1, 0] * 0 for i, name in enumerate(names)} | {"none": motion.q[:0, 0]}
    found = sweep(tmp_path / "s.zarr", 8, keep=keep)
    assert found.complete and set(names) < set(found.names) and found["none"].shape == (8, 0)
    assert {name: found[name].tolist() for name in names[:-1]} == {name: [i] * 8 for i, name in enumerate(names[:-1])}
    assert {path.name for path in tmp_path.iterdir()} == {"s.zarr"}
