"""Files are written completely or not at all, also if the disk is full or the process is killed."""

import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from ukjax import _files as files
from ukjax._files import PART, check_writable, locked, write_json, write_whole


def test_unfinished_file_of_killed_process_is_removed_by_next_write(tmp_path):
    """A file that another process is still writing is not removed."""
    script = (
        "import sys, time; from pathlib import Path; from ukjax._files import write_whole\n"
        "write = lambda part: (part.write_text('half'), print('now', flush=True), time.sleep(60))\n"
        "write_whole(Path(sys.argv[1]), write)"
    )
    for which in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "x.npz")], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == "now\n"
            write_json(tmp_path / "y.json", {})
            left = [p.name for p in tmp_path.iterdir() if p.name.startswith(PART)]
            assert len(left) == 1, "the other one is still at work"
            process.send_signal(which)
        assert len(list(tmp_path.iterdir())) == 2
        write_json(tmp_path / "y.json", {})
        assert [p.name for p in tmp_path.iterdir()] == ["y.json"]


def part_of(host, process):
    return f"{PART}{host}-{process}-{time.time_ns()}-0123abcd.npz"


def test_only_abandoned_unfinished_files_are_removed(tmp_path):
    """They are identified by the process that made them, since locks may not work between hosts."""
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    here = socket.gethostname()
    stays = part_of(here, os.getppid()), part_of("elsewhere", 1), part_of("elsewhere", int(ended.stdout))
    goes = (
        part_of(here, int(ended.stdout)),
        part_of("elsewhere", 2),
        part_of(here, os.getpid()),  # another process may have this number now
        f"{PART}of an earlier version",
    )
    for name in (*stays, *goes):
        (tmp_path / name).write_text("half")
    for name in goes[1:]:
        os.utime(tmp_path / name, (time.time() - 90_000, time.time() - 90_000))
    write_json(tmp_path / "y.json", {})
    assert {path.name for path in tmp_path.iterdir()} == {*stays, "y.json"}


def test_file_of_running_process_is_not_removed_without_locks(tmp_path):
    script = (
        "import fcntl, sys; from pathlib import Path; from ukjax._files import write_whole\n"
        "fcntl.flock = lambda *_: None\n"
        "write = lambda part: (part.write_text('all'), print('now', flush=True), sys.stdin.readline())\n"
        "write_whole(Path(sys.argv[1]), write)"
    )
    words = [sys.executable, "-c", script]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*words, str(tmp_path / "a.npz")], **pipes) as one:
        assert one.stdout is not None and one.stdout.readline() == "now\n"
        subprocess.run([*words, str(tmp_path / "b.npz")], input="\n", capture_output=True, text=True, check=True)
        one.communicate("\n")
    assert one.returncode == 0 and {path.name for path in tmp_path.iterdir()} == {"a.npz", "b.npz"}


@pytest.mark.parametrize("system", ("without", "failing"))
def test_disk_without_locks_gives_a_warning(system, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files, "fcntl", None) if system == "without" else monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.warns(UserWarning, match="is on a disk without file locks .*, so that a second process could write"):
        with locked(tmp_path / ".lock", True) as mine:
            assert mine
    write_json(tmp_path / "x.json", {"a": 1})  # needs no lock
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "x.json"}


@pytest.mark.parametrize("links", (True, False))
def test_new_file_does_not_replace_an_existing_file(links, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:  # as on a disk without hard links
        monkeypatch.setattr(os, "link", fail)
    path = write_json(tmp_path / "x.json", {"a": 1}, new=True)
    with pytest.raises(FileExistsError):
        write_json(path, {"a": 2}, new=True)
    assert json.loads(path.read_text()) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_umask_of_process_is_not_changed(tmp_path, monkeypatch):
    """It would change the files of other threads. And an unfinished file has the permissions of the file that it will
    replace."""
    old = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", None)
        assert stat.S_IMODE(write_json(tmp_path / "x.json", {}).stat().st_mode) == 0o640
    finally:
        monkeypatch.undo()
        os.umask(old)
    (tmp_path / "x.json").chmod(0o600)
    modes = []
    write_whole(tmp_path / "x.json", lambda part: modes.append(stat.S_IMODE(part.stat().st_mode)))
    assert modes == [0o600]


def test_error_for_full_disk_names_the_file(tmp_path):
    """With a limit of the file size instead of a full disk."""
    path, before = tmp_path / "x.npz", resource.getrlimit(resource.RLIMIT_FSIZE)
    path.write_text("the earlier file")
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            write_whole(path, lambda part: part.write_bytes(bytes(2000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"] and path.read_text() == "the earlier file"


def test_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append("synced"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("renamed"), replace(a, b)))
    write_json(tmp_path / "x.json", {})
    assert done == ["synced", "renamed", "synced"], "the file, and then the folder that has its name"


def test_replaced_file_keeps_permissions_and_symbolic_links(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("{}")
    real.chmod(0o640)
    link.symlink_to("real.json")
    write_json(link, {"a": 1})
    assert link.is_symlink() and real.read_text() == link.read_text() != "{}"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    new = write_json(tmp_path / "new.json", {})
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~mask


def test_file_names_may_have_the_maximum_length(tmp_path):
    path = tmp_path / ("x" * (os.pathconf(tmp_path, "PC_NAME_MAX") - 5) + ".json")
    assert write_json(path, {}).exists()
    with pytest.raises(OSError, match="File name too long"):
        write_json(path.with_stem(path.stem + "x"), {})


def test_paths_that_are_not_regular_files_are_errors(tmp_path):
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    for path, words in (
        (pipe, "a device or a pipe"),
        (tmp_path, "it is a folder"),
        (tmp_path / "no" / "x.npz", "there is no folder"),
    ):
        for write in (check_writable, lambda path: write_whole(path, lambda part: None)):
            with pytest.raises(OSError, match=words):
                write(path)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe.npz"]


SPAWNED = """
import multiprocessing, os, warnings
import numpy as np
import ukjax as uk

def fall(speed):
    uk.enable_float64()
    ball = uk.System(uk.MassForce(np.eye(1), -9.81 * np.ones(1)), ())
    return float(uk.simulate(ball, [0.0], [speed], [0.0, 1.0], dt=0.5, solver=uk.RungeKutta4()).q[-1, 0])

if __name__ == "__main__":
    here = fall(1.0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(here, *pool.map(fall, [1.0, 2.0]))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
    print(any("deadlock" in str(each.message) for each in warned))
"""


@pytest.mark.slow
def test_spawned_processes_work_and_fork_gives_a_warning(tmp_path):
    """Also after the library was used. The warning says that a fork may deadlock."""
    (tmp_path / "many.py").write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, "many.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    *found, warned = done.stdout.split()
    np.testing.assert_allclose([float(x) for x in found], [-3.905, -3.905, -2.905], rtol=1e-12)
    assert warned == "True"
