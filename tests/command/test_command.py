"""The command line with right and wrong input."""

import errno
import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import ukjax as uk
from ukjax.__main__ import main
from ukjax._command.records import read_record
from ukjax._command.usage import UsageError, library_errors_as_usage_errors


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run each test in an empty folder with a separate cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EQX_ON_ERROR", "raise")


def command(*arguments):
    """Return the exit code of ``ukjax`` with these arguments, also where argparse exits."""
    try:
        return main(list(arguments))
    except SystemExit as exit:
        return exit.code


BOB = """
from typing import ClassVar

import jax.numpy as jnp

import ukjax as uk


class Bob(uk.systems.AbstractMechanism):
    \"\"\"A bob that falls from rest.

    Nothing holds it.
    \"\"\"

    gravity: uk.systems.Parameter = uk.systems.parameter(9.81)
    end: ClassVar[float] = 0.5
    constraints: ClassVar[tuple[()]] = ()

    @property
    def dynamics(self):
        return uk.MassForce(lambda t, q: jnp.eye(1), lambda t, q, v: -self.gravity[None])

    def start(self):
        return jnp.zeros(1), jnp.zeros(1)

    def outline(self, t, q):
        return (jnp.zeros((2, 2)).at[1, 1].set(q[0]),)
"""


@pytest.fixture
def bob(tmp_path, monkeypatch):
    """Return a function that writes a changed user module into the current folder and returns its name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    number = iter(range(100))

    def write(old="", new=""):
        name = f"bob_of_{tmp_path.name}_{next(number)}"
        (tmp_path / f"{name}.py").write_text(BOB.replace(old, new))
        return name

    return write


def test_user_class_can_be_run(bob, capsys):
    module = bob()
    words = f"run {module}:Bob --set gravity=2 --set dq1=1 --dt 0.1 --samples 3 --out fall.csv --json"
    assert command(*words.split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["title"] == "A bob that falls from rest." and report["source"] == f"{module}:Bob"
    assert report["q_end"]["q1"] == pytest.approx(0.5 - 0.5**2, abs=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("import ukjax as uk", "import ukjax as uk, no_such_thing", "No module named 'no_such_thing' (bob_of"),
        ("class Bob", "class Bob Bob", "SyntaxError: "),
        ("class Bob", "1 / 0\nclass Bob", "ZeroDivisionError: division by zero (bob_of"),
        ("def outline", "def outlines", "cannot be made without arguments: Can't instantiate abstract class"),
        (" = uk.systems.parameter(9.81)", "", "cannot be made without arguments: "),
        (" = 0.5", "", "must say how long its motion lasts: end"),
    ],
)
def test_unusable_user_class_gives_a_one_line_error(bob, old, new, words, capsys):
    assert command("run", f"{bob(old, new)}:Bob") == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1, said


def test_errors_of_user_code_have_a_traceback(bob):
    """Only input errors raised by ukjax are reported as usage errors."""
    broken = bob("return jnp.zeros(1), jnp.zeros(1)", "return jnp.broadcast_to(jnp.zeros(2), (3,)), jnp.zeros(1)")
    with pytest.raises(ValueError, match="broadcast"):
        command("run", f"{broken}:Bob")
    with pytest.raises(UsageError, match="law must be a function"), library_errors_as_usage_errors():
        uk.control.Feedback([[1.0]], None)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs a folder that nobody can write to")
def test_unwritable_output_gives_an_error_before_simulating(capsys):
    began = time.perf_counter()
    assert command("run", "scara", "--out", "/proc/x.npz") == 2
    assert "cannot be written" in capsys.readouterr().err
    assert time.perf_counter() - began < 1


def test_list_names_the_gallery_and_its_sources(capsys):
    assert command("list") == 0
    assert "Xu & Liu" in capsys.readouterr().out
    assert command("list", "--json") == 0
    assert {entry["name"] for entry in json.loads(capsys.readouterr().out)} >= {"scara"}


def test_run_prints_json_and_saves_arrays(capsys):
    arguments = "run rough_incline --t1 1 --samples 21 --set mu=0.1 --out traj.npz --json"
    assert command(*arguments.split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["max_residual"] <= 1e-10
    assert report["max_reference_error"] <= 1e-8
    assert (report["t1"], report["samples"], report["rank_min"], report["files"]) == (1.0, 21, 1, ["traj.npz"])
    with np.load("traj.npz") as arrays:
        shapes = {name: arrays[name].shape for name in ("t", "q", "v", "acceleration", "constraint_force", "residual")}
        np.testing.assert_allclose(arrays["t"], np.linspace(0, 1, 21))
    of_coordinates = dict.fromkeys(("q", "v", "acceleration", "constraint_force"), (21, 2))
    assert shapes == {"t": (21,), "residual": (21, 1)} | of_coordinates


def test_set_changes_parameters_and_initial_values(capsys):
    arguments = "run scara --drift none --t1 0.1 --samples 3 --set rise=0.5 --set q4=0.25 --set dq4=0.5 --json"
    assert command(*arguments.split(), "--set", "alpha=0", "--set", "beta=0") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["q_end"]["q4"] == pytest.approx(0.25 + 0.5 * 0.1, abs=1e-9)


@pytest.mark.slow
def test_as_published_runs_with_and_without_baumgarte(capsys):
    assert command("run", "scara", "--as-published", "--samples", "41", "--json", "--out", "paper.npz") == 0
    report = json.loads(capsys.readouterr().out)
    without, held = report["runs"]["without"], report["runs"]["baumgarte"]
    assert without["max_reference_error"] > 0.1 > 0.02 > held["max_reference_error"]
    assert report["files"] == ["paper-without.npz", "paper-baumgarte.npz"]


def test_plot_without_a_name_saves_figure_and_data(capsys, tmp_path):
    assert command("run", "rough_incline", "--t1", "1", "--samples", "21", "--plot") == 0
    assert "wrote rough_incline.png" in capsys.readouterr().out
    assert (tmp_path / "rough_incline.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "rough_incline.npz").stat().st_size > 1000


@pytest.mark.slow
def test_bench_reports_its_measurements(capsys, monkeypatch):
    """With a small system in place of the usual ones."""
    monkeypatch.setattr("ukjax._command.bench.MECHANISMS", {"four_bar": "constraints"})
    assert command("bench", "--batch", "3", "--seconds", "0.004", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [(row["system"], row["numbers"]) for row in report["rows"]] == [
        ("four_bar", "float64"),
        ("four_bar", "float32"),
    ]
    for row in report["rows"]:
        assert row["ns each"] > 0 and row["steps/s"] > 0
        assert row["residual"] < (1e-13 if row["numbers"] == "float64" else 1e-5)


def test_help_does_not_import_jax():
    code = "import sys, ukjax.__main__ as m\ntry: m.main(['--help'])\nfinally: assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_second_process_uses_the_cache_of_programs(tmp_path):
    run = [sys.executable, "-m", "ukjax", "run", "pendulum", "--t1", "0.1", "--samples", "3", "--json"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "shared")}
    environment.pop("EQX_ON_ERROR")
    kept = []
    for _ in range(2):
        subprocess.run(run, env=environment, check=True, stdout=subprocess.DEVNULL)
        kept.append({p.name for p in (tmp_path / "shared" / "ukjax").iterdir() if p.name.endswith("-cache")})
    assert kept[0] == kept[1]
    assert any("_piece" in name for name in kept[0])


def test_fit_with_regress_option(tmp_path, capsys):
    """The table has all coordinates in another order. The regression itself estimates the friction."""
    alpha, mu, t = np.pi / 6, 0.3, np.linspace(0.0, 1.0, 101)
    s = 0.1 * t + 9.81 * (np.sin(alpha) - mu * np.cos(alpha)) * t**2 / 2
    track = np.stack([t, -s * np.sin(alpha), s * np.cos(alpha)], axis=1)  # y before x
    np.savetxt("slide.csv", track, delimiter=",", header="t,y,x", comments="", fmt="%.17g")
    words = "fit rough_incline slide.csv --free mu --known-start --regress 20 --json"
    assert command(*words.split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert abs(report["parameters"]["mu"]["estimate"] - mu) < 1e-6 and report["evaluations"] <= 4
    np.savetxt("half.csv", track[:, :2], delimiter=",", header="t,y", comments="")
    assert command(*words.replace("slide", "half").split()) == 2
    assert "--regress needs all 2 coordinates of this system in the table, got 1" in capsys.readouterr().err


def test_fit_estimates_friction_from_a_table(tmp_path, capsys):
    """s(t) = v0 t + g (sin α − μ cos α) t²/2 down the plane. A cell is missing, and one column is unrelated."""
    alpha, mu, t = np.pi / 6, 0.3, np.linspace(0.0, 1.0, 21)
    s = 0.1 * t + 9.81 * (np.sin(alpha) - mu * np.cos(alpha)) * t**2 / 2
    x, y = s * np.cos(alpha), -s * np.sin(alpha)
    rows = [f"{a:.17g},{b:.17g},{c:.17g},7" for a, b, c in zip(t, x, y, strict=True)]
    rows[5] = f"{t[5]:.17g},,{y[5]:.17g},7"
    (tmp_path / "slide.csv").write_text("t [s],x [m],y [m],weather\n" + "\n".join(rows) + "\n")
    assert command("fit", "rough_incline", "slide.csv", "--free", "mu", "--known-start", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert abs(report["parameters"]["mu"]["estimate"] - mu) < 1e-6
    assert report["rank"] == 1 and report["converged"]
    assert (tmp_path / "rough_incline-fit.json").exists() and (tmp_path / "rough_incline-fit.png").exists()
    assert json.loads((tmp_path / "rough_incline-fit.json").read_text())["parameters"] == report["parameters"]


def test_fit_estimates_the_offset_of_a_column(tmp_path, capsys):
    """x has an offset of 5 mm and y has none; both follow from the plane."""
    rows = np.loadtxt(slide().splitlines()[1:], delimiter=",") + [0.0, 0.005, 0.0]
    np.savetxt("slide.csv", rows, delimiter=",", header="t,x,y", comments="", fmt="%.17g")
    assert command("fit", "rough_incline", "slide.csv", "--free", "mu,observe.shift[0]", "--json") == 0
    found = json.loads(capsys.readouterr().out)["parameters"]
    assert abs(found["mu"]["estimate"] - 0.3) < 1e-5 and abs(found["observe.shift[0]"]["estimate"] - 0.005) < 1e-6


def slide(names="t [s],x [m],y [m]", separator=",", comma=".", size=1.0):
    """Return a table of a block that slides down the plane with mu = 0.3."""
    alpha, t = np.pi / 6, np.linspace(0.0, 1.0, 21)
    s = 0.1 * t + 9.81 * (np.sin(alpha) - 0.3 * np.cos(alpha)) * t**2 / 2
    rows = np.stack([t, size * s * np.cos(alpha), -size * s * np.sin(alpha)], axis=1)
    lines = [separator.join(f"{x:.17g}" for x in row).replace(".", comma) for row in rows]
    return "\n".join([names.replace(",", separator), *lines]) + "\n"


@pytest.mark.parametrize(
    "content",
    [
        slide(separator=";", comma=",").encode("utf-8-sig"),
        slide(separator="\t", comma=",").encode("utf-16"),
        slide("t,x,y,remark").replace("\n", "," + "no " * 100_000 + "\n", 2).encode().replace(b"remark,", b"remark"),
        slide().replace("\n", "\r\n").replace("x [m]", '"x [m]"').encode(),
    ],
    ids=["semicolons and decimal commas after a byte order mark", "tabs in UTF-16", "a large cell", "Windows"],
)
def test_tables_in_common_formats_are_read(content, tmp_path):
    (tmp_path / "slide.csv").write_bytes(content)
    record = read_record("slide.csv", uk.systems.RoughIncline())
    expected = np.loadtxt(slide().splitlines()[1:], delimiter=",")
    np.testing.assert_array_equal(np.column_stack([record.t, record.values]), expected)
    assert record.state_indices == (0, 1)


def test_data_in_millimetres_give_a_warning_and_an_error(tmp_path, capsys):
    (tmp_path / "slide.csv").write_text(slide("t,x,y", size=1000.0))
    assert command("fit", "rough_incline", "slide.csv", "--free", "mu") == 1
    doubt, verdict = capsys.readouterr().err.splitlines()
    # Errors of x and y are equal, so that rounding decides which of them is named.
    assert re.search("the model does not fit the data: the residuals of output [01],", doubt) and "mm for m" in doubt
    assert verdict == "ukjax fit: the data determine none of mu: the estimates are meaningless"


def test_closed_pipe_or_full_device_gives_at_most_one_line(tmp_path):
    run = lambda words, **how: subprocess.run(
        [sys.executable, "-m", "ukjax", *words.split()], stderr=subprocess.PIPE, text=True, **how
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = run("list", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
    with open("/dev/full", "w") as full:
        done = run("list --json", stdout=full)
    assert (done.returncode, done.stderr) == (
        2,
        "ukjax list: the output cannot be written: No space left on device\n",
    )


def test_full_disk_gives_one_line_and_leaves_no_file(tmp_path, capsys, monkeypatch):
    def full(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    assert command("run", "scara", "--t1", "0.1", "--samples", "3", "--out", "x.npz") == 2
    assert capsys.readouterr().err == "ukjax run: 'x.npz' cannot be written: No space left on device\n"
    assert not list(tmp_path.glob("*.npz")) and not list(tmp_path.glob(".ukjax*"))


@pytest.mark.slow
def test_fit_of_the_acrobot_with_torques_from_a_table(tmp_path, capsys):
    """The motion has recorded torques, and only the angles were measured."""
    ts = np.linspace(0.0, 2.0, 401)
    arms = uk.systems.Acrobot()
    motion = uk.simulate(arms, *arms.start(), ts, dt=0.005)
    torques = [np.interp(ts, arms.times, column) for column in np.asarray(arms.torque).T]
    table = np.stack([ts, motion.q[:, 2], motion.q[:, 5], *torques], axis=1)
    np.savetxt("swing.csv", table, delimiter=",", header="t,theta1,theta2,tau1,tau2", comments="", fmt="%.17g")
    words = "fit acrobot swing.csv --free h --set h=0.15,0.13 --regress 20 --known-start --json"
    assert command(*words.split()) == 0
    report = json.loads(capsys.readouterr().out)
    found = [report["parameters"][f"h[{i}]"]["estimate"] for i in range(2)]
    np.testing.assert_allclose(found, arms.h, rtol=5e-4)  # steps of 5 ms across sharp friction, with different methods
    assert report["evaluations"] <= 6  # the regression gives a near start
    np.savetxt("half.csv", table[:, :4], delimiter=",", header="t,theta1,theta2,tau1", comments="")
    assert command("fit", "acrobot", "half.csv", "--free", "h") == 2
    assert "must have all of the columns tau1, tau2, or none" in capsys.readouterr().err


SERVO = """
    P: uk.systems.Parameter = uk.systems.parameter(1.0)

    @property
    def control(self):
        speed = uk.Nonholonomic(lambda t, q, v: v - 1.0, name="speed")
        return uk.control.Servo([[1.0]], speed, P=self.P[None, None], projected=False)

    @property
    def dynamics"""


@pytest.mark.slow
def test_tune_writes_results_and_a_figure(bob, tmp_path, capsys):
    """Tune the time constant of a servo; the cost falls with it."""
    name = bob("\n    @property\n    def dynamics", SERVO)
    words = f"tune {name}:Bob --free P --starts 2 --samples 21 --dt 0.01 --effort 1e-5 --json --out a.json --plot a.png"
    assert command(*words.split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["held_out"]["after"] < report["held_out"]["before"] / 2
    for ending in ("json", "png"):
        assert (tmp_path / f"a.{ending}").stat().st_size > 200
