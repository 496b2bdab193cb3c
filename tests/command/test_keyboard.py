"""Interactive use: first steps, the list of systems, completion by the tab key, and the status line."""

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading

import jax
import pytest

import ukjax as uk
from ukjax.__main__ import FIRST_STEPS, main, parser
from ukjax._command import status
from ukjax._command.mechanism import check_system, robot_file


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run each test in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQX_ON_ERROR", "raise")


def test_command_without_arguments_prints_first_steps(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out == FIRST_STEPS
    steps = [line.split("  ")[1] for line in FIRST_STEPS.splitlines() if line.startswith("  ukjax")]
    assert len(steps) == 5
    for step in steps[:-1]:
        options = parser().parse_args(shlex.split(step)[1:])
        if "system" in options:
            check_system(options.system, False)


def test_all_listed_names_are_valid(capsys):
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len({entry["name"] for entry in listed}) == len(listed)
    robots = [entry for entry in listed if entry["kind"] == "robot"]
    assert {str(uk.robots.path(name)) for name in uk.robots.names()} == {entry["source"] for entry in robots}
    for entry in listed:
        check_system(entry["name"], False)
        assert 5 < len(entry["title"]) < 120
    assert all(str(robot_file(entry["name"])) == entry["source"] for entry in robots)
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(entry["name"] in text for entry in listed)


def test_user_file_has_priority_over_a_robot_of_the_library(tmp_path):
    assert robot_file("leg.xml") == uk.robots.FOLDER / "leg.xml"
    (tmp_path / "leg.xml").write_text("<mujoco/>")
    assert robot_file("leg.xml").resolve() == tmp_path / "leg.xml"
    assert robot_file("leg") == uk.robots.FOLDER / "leg.xml"


def test_info_prints_versions_precision_and_cache_sizes(tmp_path, monkeypatch, capsys):
    programs, kernels = tmp_path / "cache" / "ukjax", tmp_path / "cache" / "ukjax" / "machine"
    kernels.mkdir(parents=True)
    for file, size in ((programs / "one-cache", 1000), (kernels / "a", 300), (kernels / "b", 50)):
        file.write_bytes(b"x" * size)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("UKJAX_CACHE", str(kernels))
    assert main(["info", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["caches"] == {
        "programs": {"folder": str(programs), "files": 1, "bytes": 1000},
        "kernels": {"folder": str(kernels), "files": 2, "bytes": 350},
    }
    assert (report["packages"]["jax"], report["ukjax"], report["float_bits"]) == (jax.__version__, uk.__version__, 64)
    assert len(report["devices"]) == len(jax.devices())
    monkeypatch.setenv("UKJAX_CACHE", "")
    assert main(["info"]) == 0
    assert "off, UKJAX_CACHE is empty" in capsys.readouterr().out


def completions(line: str, file) -> set[str]:
    """Return the completions of a line, by argcomplete's protocol."""
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(file),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run([sys.executable, "-m", "ukjax"], env=environment, check=True)
    return {word.strip() for word in file.read_text().split("\n")}


def test_the_tab_key_completes_commands_options_systems_and_files(tmp_path):
    pytest.importorskip("argcomplete")
    (tmp_path / "furniture.urdf").write_text("<robot/>")
    (tmp_path / "fun.txt").touch()
    complete = lambda line: completions(line, tmp_path / "answer")
    assert complete("ukjax eq") == {"equilibrium"}
    assert complete("ukjax view fu") == {"furuta_pendulum", "furniture.urdf"}
    assert complete("ukjax run scara --drift ") == {"projection", "none"}
    assert complete("ukjax sweep --work") == {"--workers"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_accepts_the_completion_code(capsys):
    pytest.importorskip("argcomplete")
    assert main(["completion", "bash"]) == 0
    code = capsys.readouterr().out + "\ncomplete -p ukjax"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(" ukjax")


class Terminal(io.StringIO):
    """A terminal that records its output, and signals each line."""

    def __init__(self, terminal=True):
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self):
        return self.terminal

    def write(self, text):
        super().write(text)
        self.written.set()
        return len(text)

    @property
    def text(self):
        return self.getvalue()


def test_status_line_distinguishes_compiling_and_simulating(monkeypatch):
    monkeypatch.setattr(status, "DELAY", 0.01)
    terminal = Terminal()

    def traced(x):
        terminal.written.clear()
        assert terminal.written.wait(10)
        return x + 1

    monkeypatch.setattr(sys, "stderr", terminal)
    with status.status_line("simulating"):
        assert terminal.written.wait(10)
        assert terminal.text.startswith("simulating … 0 s")
        while "compiling" not in terminal.text:
            jax.jit(lambda x: traced(x))(1.0)
    assert terminal.text.endswith(status.ERASE)


def test_status_line_is_shown_only_in_a_terminal_and_for_long_tasks(monkeypatch):
    pipe, terminal = Terminal(terminal=False), Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with status.status_line("simulating"):
        pass
    monkeypatch.setattr(status, "DELAY", 0.0)
    monkeypatch.setattr(sys, "stderr", pipe)
    with status.status_line("simulating"):
        pipe.written.wait(0.05)
    assert pipe.text == terminal.text == ""


def test_status_line_estimates_the_remaining_time():
    line = status.Status("writing")
    assert line.line(5.0, compiling=True) == "compiling … 5 s"
    line.fraction = 0.25
    assert line.line(5.0, compiling=False) == "writing … 5 s, 25 %, 15 s left"
