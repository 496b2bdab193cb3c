"""Files appear whole or not at all, whatever befalls the disk and the process."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

from ukjax._files import PART, check_writable, write_json, write_whole


def test_a_killed_process_leaves_nothing_for_good(tmp_path):
    """What it was writing is removed by whoever writes there next, and what another still writes is not."""
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


def test_a_full_disk_is_said_with_the_name_of_the_file(tmp_path):
    """As large as the system lets a file become."""
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


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append("synced"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("renamed"), replace(a, b)))
    write_json(tmp_path / "x.json", {})
    assert done == ["synced", "renamed"]


def test_a_file_that_is_replaced_leaves_its_permissions_and_its_links(tmp_path):
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


def test_names_may_be_as_long_as_the_folder_takes(tmp_path):
    path = tmp_path / ("x" * (os.pathconf(tmp_path, "PC_NAME_MAX") - 5) + ".json")
    assert write_json(path, {}).exists()
    with pytest.raises(OSError, match="File name too long"):
        write_json(path.with_stem(path.stem + "x"), {})


def test_what_is_no_ordinary_file_is_refused_before(tmp_path):
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
def test_other_processes_are_spawned(tmp_path):
    """After use, too; a fork is warned of, in words, before it hangs."""
    (tmp_path / "many.py").write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, "many.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    *found, warned = done.stdout.split()
    np.testing.assert_allclose([float(x) for x in found], [-3.905, -3.905, -2.905], rtol=1e-12)
    assert warned == "True"
