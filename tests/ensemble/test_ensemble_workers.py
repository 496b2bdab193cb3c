"""Ensembles computed by threads, devices, processes, ranks of MPI, or a Dask cluster of which a worker is killed.

All results are bitwise equal.
"""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.optimised

SCRIPT = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import ukjax as uk

uk.enable_float64()
rod = uk.Holonomic(lambda t, q: q @ q - 1, name="rod")


class Falling(uk.AbstractSystem):
    g: jax.Array
    coordinates = (("x", "m"), ("y", "m"))

    @property
    def dynamics(self):
        return uk.MassForce(np.eye(2), lambda t, q, v: self.g * jnp.array([jnp.sin(q[0]), -1.0]))

    @property
    def constraints(self):
        return (rod,)


def sweep(store, members=700, seconds=0.2, chunk=128, **how):
    over = {"g": uk.Uniform(9.0, 10.0), "x": uk.Uniform(-0.9, 0.9)}
    return uk.ensemble(Falling(jnp.asarray(9.81)), over, members, ts=[0.0, seconds], q0=[0.0, -1.0], v0=[0.0, 0.0],
                       dt=1e-3, fix_swept=True, chunk=chunk, store=store, **how)
"""

DEVICES = """
assert len(jax.devices()) == int(sys.argv[2])
found = sweep(sys.argv[1], **eval(sys.argv[3]))
if "world" not in sys.argv[3]:  # which does a share of it
    again = sweep(None, **{"chunk": 384} | eval(sys.argv[3]))
    assert all(np.array_equal(found[name], again[name]) for name in found.names)
"""

PROCESSES = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        sweep(sys.argv[1], executor=executor)
"""

RANKS = """
if __name__ == "__main__":
    from mpi4py import MPI
    from mpi4py.futures import MPIPoolExecutor
    with MPIPoolExecutor() as executor:
        assert executor.num_workers == MPI.COMM_WORLD.Get_size() - 1 == 2
        sweep(sys.argv[1], executor=executor)
"""

DASK = """
import os, signal, threading, time
from pathlib import Path
from dask.distributed import Client, LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None)
    client = Client(cluster)

    def kill():
        while len(list(Path(sys.argv[1]).glob("*.npz"))) < 2:
            time.sleep(0.01)
        pids = client.run(os.getpid)
        assert len(set(pids.values()) - {os.getpid()}) == 2
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        print("killed", flush=True)

    threading.Thread(target=kill, daemon=True).start()
    sweep(sys.argv[1], 4096, 5.0, executor=client)
    client.close()
    cluster.close()
"""


FIRST = """
import sys
import jax

jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[3]))  # before there is a backend
"""

DISTRIBUTED = """
found = sweep(sys.argv[1])
assert jax.process_count() == 2 and found.done >= 256  # three of the chunks, or the other three
try:
    sweep(None)
except ValueError as error:
    assert "world = 2" in str(error)
else:
    raise AssertionError
alone = sweep(None, world=1)
assert alone.complete and found.members == alone.members
jax.distributed.shutdown()
"""


def run(more, *arguments, flags="", by=(sys.executable,)):
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = Path(arguments[0]).with_suffix(".py")  # a file, because spawned processes import it
    script.write_text(SCRIPT + more)
    command = [*by, str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".lock")}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "store"
    run(DEVICES, folder, 1, {})
    return content(folder)


@pytest.mark.slow
def test_two_devices_give_the_same_files(alone, tmp_path):
    run(DEVICES, tmp_path / "s", 2, {}, flags="--xla_force_host_platform_device_count=2")
    assert content(tmp_path / "s") == alone and len(alone) == 7


@pytest.mark.slow
def test_two_processes_give_the_same_files(alone, tmp_path):
    run(PROCESSES, tmp_path / "s")
    assert content(tmp_path / "s") == alone


@pytest.mark.slow
def test_two_simultaneous_jobs_give_the_same_files(alone, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT + DEVICES)
    environment = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(tmp_path / "s"), "1"]
    jobs = [subprocess.Popen([*command, str({"rank": i, "world": 2})], env=environment) for i in range(2)]
    assert [job.wait(timeout=250) for job in jobs] == [0, 0]
    assert content(tmp_path / "s") == alone


@pytest.mark.slow
def test_processes_of_jax_distributed_give_the_same_files(alone, tmp_path):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    script = tmp_path / "job.py"
    script.write_text(FIRST + SCRIPT + DISTRIBUTED)
    environment = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(tmp_path / "s"), address]
    jobs = [subprocess.Popen([*command, str(i)], env=environment) for i in range(2)]
    assert [job.wait(timeout=250) for job in jobs] == [0, 0]
    assert content(tmp_path / "s") == alone
    assert {path.name for path in (tmp_path / "s").glob(".lock-*")} == {".lock-0-of-2", ".lock-1-of-2"}


@pytest.mark.slow
def test_mpi_ranks_give_the_same_files(alone, tmp_path):
    pytest.importorskip("mpi4py.futures")
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert mpiexec, "the wheel mpich brings one"
    run(RANKS, tmp_path / "s", by=(mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures"))
    assert content(tmp_path / "s") == alone


@pytest.mark.slow
def test_sweep_completes_after_a_dask_worker_is_killed(tmp_path):
    pytest.importorskip("distributed")
    run(DEVICES, tmp_path / "alone", 1, {"members": 4096, "seconds": 5.0})
    assert "killed" in run(DASK, tmp_path / "s")
    assert content(tmp_path / "s") == content(tmp_path / "alone")
