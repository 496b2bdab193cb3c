"""Trajectories as arrays, tables and files."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..mechanisms import Pendulum

TS = np.linspace(0, 1, 5)


@pytest.fixture(scope="module")
def motion():
    return uk.simulate(Pendulum(), [-1.0, 0.0], [0.0, 0.0], TS)


@pytest.fixture(scope="module")
def batch():
    return uk.simulate(Pendulum(), np.array([[-1.0, 0.0], [1.0, 0.0]]), [0.0, 0.0], TS)


def test_npz_holds_plain_arrays_by_name(motion, tmp_path):
    path = motion.save(tmp_path / "motion.npz")
    with np.load(path) as arrays:
        assert {"t", "q", "v", "acceleration", "constraint_force", "residual", "rank", "energy"} <= set(arrays)
        for name in set(arrays) & {*uk.Trajectory.__annotations__, *vars(motion.observed())}:
            np.testing.assert_array_equal(arrays[name], getattr(motion, name))


def test_repr_is_one_line(motion, batch):
    reason = "reached its last time"
    assert repr(motion) == f"Trajectory('Pendulum', 5 samples of 2 coordinates, t = 0 to 1 s, {reason})"
    assert repr(batch) == f"Trajectory('Pendulum', 2 x 5 samples of 2 coordinates, t = 0 to 1 s, 2 {reason})"
    assert repr(uk.view(motion, lambda t, q: jnp.stack([0 * q, q]))).startswith("View('Pendulum', ")
    assert len(repr(uk.view(motion, lambda t, q: jnp.stack([0 * q, q])))) < 100


def test_missing_package_is_named_in_error(motion, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    for ask in (motion.to_xarray, lambda: motion.save(tmp_path / "motion.nc")):
        with pytest.raises(ImportError, match=r"needs the package xarray: pip install 'ukjax\[data\]'"):
            ask()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "ukjax.plot.histories", raising=False)  # where another test has imported it
    monkeypatch.delitem(vars(uk.plot), "histories", raising=False)
    with pytest.raises(ImportError, match=r"^ukjax.plot.histories needs .* matplotlib: pip install 'ukjax\[plot\]'"):
        getattr(uk.plot, "histories")  # noqa: B009  as an attribute that is looked up when it is asked for
    with pytest.raises(AttributeError, match="history"):
        getattr(uk.plot, "history")  # noqa: B009


def test_csv_names_columns_with_units(motion, tmp_path):
    path = motion.save(tmp_path / "motion.csv")
    header = path.read_text().splitlines()[0].split(",")
    assert header[:4] == ["t [s]", "x [m]", "y [m]", "dx [m/s]"]
    assert "force on y [N]" in header
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    np.testing.assert_array_equal(table[:, 1:3], motion.q)
    assert table.shape == (5, len(header))


def test_netcdf_file_matches_trajectory(motion, tmp_path):
    import xarray

    path = motion.save(tmp_path / "motion.nc")
    with xarray.open_dataset(path, engine="scipy") as read:
        np.testing.assert_array_equal(read["q"], motion.q)
        assert read["q"].dims == ("time", "coordinate")
        assert read["time"].attrs["units"] == "s"
        assert [str(name) for name in read["coordinate"].values] == ["x", "y"]
        assert read["energy"].attrs["units"] == "J"


def test_a_batch_has_a_member_for_each_start(batch, tmp_path):
    dataset = batch.to_xarray()
    assert dataset["q"].dims == ("member", "time", "coordinate")
    np.testing.assert_allclose(dataset["q"][0, :, 0], -dataset["q"][1, :, 0])
    with pytest.raises(ValueError, match="holds one trajectory, this is a batch"):
        batch.save(tmp_path / "batch.csv")
    assert np.load(batch.save(tmp_path / "batch.npz"))["q"].shape == (2, 5, 2)


def test_unknown_file_extension_is_error(motion, tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .npz, .nc, .csv, got .*motion.mat"):
        motion.save(tmp_path / "motion.mat")


def test_failed_write_leaves_no_file_and_keeps_earlier_file(motion, tmp_path, monkeypatch):
    path = tmp_path / "motion.npz"
    path.write_text("the earlier file")

    def full(file, **arrays):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        motion.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["motion.npz"]
    assert path.read_text() == "the earlier file"


def test_coordinates_without_names_are_numbered():
    model = uk.System(uk.MassForce(np.eye(3), np.zeros(3)), ())
    motion = uk.simulate(model, np.zeros(3), np.ones(3), [0.0, 1.0])
    assert motion.coordinates == (("q1", ""), ("q2", ""), ("q3", ""))
    np.testing.assert_allclose(motion.q[-1], 1, rtol=0, atol=1e-12)
    assert motion.residual.shape == (2, 0)


def test_figures_are_drawn_for_any_trajectory(motion, tmp_path):
    figure = uk.plot.histories(motion)
    assert [ax.get_ylabel() for ax in figure.axes][:2] == ["coordinate [m]", "constraint force [N]"]
    assert uk.plot.save(figure, tmp_path / "figure.svg").read_text().startswith("<?xml")
