"""Trajectories saved to files and loaded again, and files read by other programs."""

import warnings
from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.io

import ukjax as uk
from ukjax._motion.trajectory.observation import Observation

TS = np.linspace(0.0, 0.4, 5)


def robot():
    """Two angles and a length, a loop that is one row, and a motor that follows a task: every kind of quantity."""
    return uk.System(
        uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: 9.81 * q[1]),
        uk.Holonomic(lambda t, q: jnp.stack([q[0] - q[1]]), name="belt"),
        control=uk.control.Servo(
            jnp.eye(3)[:, 2:],
            uk.Nonholonomic(lambda t, q, v: v[2:] - jnp.cos(t), name=("speed",)),
            inputs=[("motor", "N")],
        ),
        coordinates=[("first angle", "rad"), ("second angle", "rad"), ("reach", "m")],
    )


@pytest.fixture(scope="module")
def single():
    return uk.simulate(robot(), [0.1, 0.1, 0.2], [0.0, 0.0, 1.0], TS, dt=0.1)


@pytest.fixture(scope="module")
def batch():
    return uk.simulate(robot(), np.array([[0.1, 0.1, 0.2], [0.3, 0.3, 0.0]]), [0.0, 0.0, 1.0], TS, dt=0.1)


@pytest.fixture(scope="module")
def stopped():
    """A batch whose members end at an event, each at its own time, without names or constraints."""
    system = uk.System(uk.MassForce(np.eye(1), np.zeros(1)), ())
    speeds = np.array([[1.0], [4.0], [9.0]])
    return uk.simulate(system, np.zeros((3, 1)), speeds, TS, event=lambda t, q, v: q[0] - 0.35)


@pytest.fixture(scope="module")
def bare():
    """The motion of a function, whose rows have no names."""
    return uk.simulate(
        lambda t, q, v: uk.Terms(np.eye(2), jnp.zeros(2), np.ones((1, 2)), jnp.zeros(1)), np.zeros(2), [1.0, -1.0], TS
    )


def everything(trajectory):
    """All values of a trajectory, by name."""
    names = ("t", "q", "v", "result", "steps", "finished", "reason", "coordinates", "inputs", "rows", "title")
    found = {name: getattr(trajectory, name) for name in names}
    found |= {f"last {i}": x for i, x in enumerate(trajectory.last)}
    return found | {field.name: getattr(trajectory, field.name) for field in fields(Observation)}


@pytest.mark.parametrize("ending", ("npz", "nc"))
@pytest.mark.parametrize(
    "which", ("single", "bare", *(pytest.param(x, marks=pytest.mark.slow) for x in ("batch", "stopped")))
)
def test_loaded_trajectory_equals_saved_one(which, ending, tmp_path, request):
    written = request.getfixturevalue(which)
    read = uk.load_trajectory(written.save(tmp_path / f"motion.{ending}"))
    assert read.model is None and read.method is None
    for name, expected in everything(written).items():
        found = everything(read)[name]
        if isinstance(expected, jax.Array):
            assert found.shape == expected.shape, name
            if jnp.issubdtype(expected.dtype, jnp.floating):  # the classic format has no integers of 64 bits
                assert found.dtype == expected.dtype, name
        if expected is None or isinstance(expected, dict | tuple | str):
            assert found == expected, name
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)
    again = uk.load_trajectory(read.save(tmp_path / f"again.{ending}"))
    np.testing.assert_array_equal(again.q, written.q)
    assert again.rows == written.rows


@pytest.fixture(scope="module")
def touching():
    """A block that falls on a rough floor, bounces, slides and stops."""
    rough = uk.Unilateral(lambda t, q: q[1], 0.3, 0.4, slip=lambda t, q, v: v[:1], name="floor")
    block = uk.System(uk.MassForce(np.eye(2), np.array([0.0, -9.81])), rough)
    return uk.simulate(block, [0.0, 0.1], [1.0, 0.0], TS)


def test_contacts_are_saved(touching, tmp_path):
    path = touching.save(tmp_path / "motion.npz")
    read = uk.load_trajectory(path)
    assert int(touching.contacts.impacts) > 3
    for field in fields(uk.ContactHistory):
        written, found = (getattr(motion.contacts, field.name) for motion in (touching, read))
        assert found.dtype == written.dtype, field.name
        np.testing.assert_array_equal(found, written, err_msg=field.name)
    np.testing.assert_array_equal(read.contact_force, touching.contact_force)
    assert read.rows == touching.rows
    with pytest.warns(UserWarning, match="motion.contacts are not written to .nc: use .npz"):
        assert uk.load_trajectory(touching.save(tmp_path / "motion.nc")).contacts is None
    arrays = dict(np.load(path))
    del arrays["contacts_closed"]
    np.savez(path, **arrays)
    with pytest.raises(uk.InputError, match="got one without contacts_closed"):
        uk.load_trajectory(path)


def test_names_of_rows_match_the_model(single):
    assert single.rows["residual"] == ("belt", "speed") == single.rows["acceleration_residual"]
    assert single.rows["position_residual"] == ("belt",)
    assert single.rows["unreachable"] == ("speed",)
    assert single.title == "System"


def test_netcdf_file_has_attributes_units_and_names(single, tmp_path):
    """Read by SciPy, without the conventions of xarray: attributes by the CF conventions, names as texts."""
    with scipy.io.netcdf_file(single.save(tmp_path / "motion.nc"), mmap=False) as file:
        text = lambda name: [b"".join(row).rstrip(b"\0").decode() for row in file.variables[name][:]]
        assert vars(file)["Conventions"] == b"CF-1.11" and vars(file)["title"] == b"System"
        assert file.variables["time"].units == b"s"
        assert file.variables["energy"].units == b"J" and file.variables["rank"].units == b"1"
        assert file.variables["control"].units == b"N"
        assert not hasattr(file.variables["q"], "units")  # radians and metres
        assert text("coordinate") == ["first angle", "second angle", "reach"] and text("unit") == ["rad", "rad", "m"]
        assert text("input") == ["motor"] and text("residual_row") == ["belt", "speed"]
        result = file.variables["result"]
        assert result.flag_meanings.split()[list(result.flag_values).index(result.getValue())] == (
            b"reached_its_last_time"
        )
        assert all(hasattr(variable, "long_name") for variable in file.variables.values())
        np.testing.assert_array_equal(file.variables["control"][:], single.control)


def test_common_unit_of_coordinates_gives_units_of_derived_quantities(tmp_path):
    import xarray

    system = uk.System(uk.MassForce(np.eye(1), np.ones(1)), (), coordinates=[("x", "m")])
    path = uk.simulate(system, [0.0], [0.0], TS).save(tmp_path / "motion.nc")
    with xarray.open_dataset(path, engine="scipy") as read:
        units = {name: read[name].attrs.get("units") for name in ("q", "v", "acceleration", "constraint_force")}
        assert units == {"q": "m", "v": "m s-1", "acceleration": "m s-2", "constraint_force": "N"}


@pytest.mark.slow
def test_members_with_different_times_have_no_common_time_axis(stopped, batch):
    """The time of an event is a sample of one member only."""
    assert "time" not in stopped.to_xarray().coords
    np.testing.assert_array_equal(stopped.to_xarray()["t"], stopped.t)
    np.testing.assert_array_equal(batch.to_xarray()["time"], TS)


def test_archives_are_plain_arrays(batch, tmp_path):
    with np.load(batch.save(tmp_path / "motion.npz"), allow_pickle=False) as arrays:
        assert list(arrays["reason"]) == ["reached its last time"] * 2
        assert arrays["coordinates"].tolist() == [["first angle", "rad"], ["second angle", "rad"], ["reach", "m"]]
        np.testing.assert_array_equal(arrays["last_q"], batch.q[:, -1])


def test_figures_of_loaded_trajectory_match_those_of_saved_one(single, tmp_path):
    read = uk.load_trajectory(single.save(tmp_path / "motion.npz"))
    labels = [ax.get_ylabel() for ax in uk.plot.histories(read).axes]
    assert labels == [ax.get_ylabel() for ax in uk.plot.histories(single).axes]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"t\n", r"path must end in .npz or .nc, got .*a table \(.csv\) does not contain the whole motion"),
        ("x.npz", b"", "is not a complete archive"),
        ("x.npz", b"PK\x03\x04 and no more", "is not a complete archive"),
        ("x.npz", b"\x93NUMPY", "is not a complete archive"),
        ("x.nc", b"\x89HDF\r\n\x1a\n", "is not a complete netCDF file of classic format"),
        ("x.nc", b"CDF\x02", "is not a complete netCDF file"),
    ],
)
def test_invalid_trajectory_file_is_error(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        uk.load_trajectory(tmp_path / name)


@pytest.mark.parametrize("ending", ("npz", "nc"))
def test_truncated_or_foreign_file_is_error(ending, single, tmp_path):
    import xarray

    path = single.save(tmp_path / f"motion.{ending}")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a complete"):
        uk.load_trajectory(path)
    if ending == "npz":
        np.savez(path, t=TS, q=np.zeros((5, 1)), v=np.zeros((5, 1)))
    else:
        xarray.Dataset({"q": (("time", "coordinate"), np.zeros((5, 1)))}, {"time": TS}).to_netcdf(path, engine="scipy")
    with pytest.raises(ValueError, match="must be a file that Trajectory.save wrote, got one without"):
        uk.load_trajectory(path)
    with pytest.raises(FileNotFoundError, match="nothing"):
        uk.load_trajectory(tmp_path / f"nothing.{ending}")


def test_rounding_to_single_precision_gives_warning(single, tmp_path):
    path = single.save(tmp_path / "motion.npz")
    with jax.enable_x64(False), pytest.warns(UserWarning, match="in float64 and was rounded to float32"):
        assert uk.load_trajectory(path).q.dtype == jnp.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert uk.load_trajectory(path).q.dtype == jnp.float64


def test_saving_without_model_and_observation_is_error(single, tmp_path):
    with pytest.raises(ValueError, match="call with_observation.. before without_model"):
        single.without_model().save(tmp_path / "motion.npz")
    single.with_observation().without_model().save(tmp_path / "motion.npz")
