"""Ensembles of the parallel manipulator with ``keep="end"``, against the batched rollout alone.

Runge–Kutta steps of 1 ms with projection. ``python -m benchmarks.ensemble 1000000 1000`` simulates this many members
and steps (three quarters of an hour on two cores). With ``swept`` before the numbers it runs only one sweep of starts;
without numbers it uses few members and steps. Speeds exclude compilation. ``GiB`` is the peak memory of the process.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import ukjax as uk

from .apart import apart
from .mechanisms import three_chains

MEMBERS, STEPS = 65_536, 200
BARE = 32_768
"""Members of the bare rollout: enough that its 1000 steps are compiled as well as those of the ensemble."""

DT = 1e-3
SWEPT = {"starts swept": False, "starts and masses swept": True}


def run(members: int = MEMBERS, steps: int = STEPS) -> list[dict[str, Any]]:
    first = apart("ensemble", "in_turn", str(members), str(steps))
    rows = [{"what": "bare rollout", "members": BARE} | first["bare"]]
    rows += [{"what": name, "members": members} | first[name] for name in SWEPT]
    side = apart("ensemble", "side_by_side", str(members), str(steps))
    rows += [{"what": "two bare rollouts at once", "members": 2 * BARE, "steps/s": side["bare"]}]
    rows += [
        {
            "what": "two workers",
            "members": members,
            "steps/s": side["workers"],
            "of bare": side["workers"] / side["bare"],
        }
    ]
    rows += [{"what": "opened and summarised"} | apart("ensemble", "opened", str(10**6))]
    rows += [{"what": "exported, loaded, called"} | apart("ensemble", "exported")]
    return rows


def ensemble(members: int, steps: int, masses: bool = False, **how: Any) -> uk.Ensemble:
    gallery = uk.systems.ParallelManipulator()
    system = Passive(gallery)
    q0, v0 = uk.project(system, 0.0, *gallery.start())
    rng = np.random.default_rng(0)
    over = {f"v{i}": 0.2 * rng.normal(size=members) for i in (1, 3)}
    over |= {"robot.ma[0]": rng.uniform(0.9, 1.1, members)} if masses else {}
    ts = [0.0, steps * DT]
    return uk.ensemble(system, over, members, ts=ts, q0=q0, v0=v0, dt=DT, solver=uk.RungeKutta4(), keep="end", **how)


class Passive(uk.AbstractSystem):
    """The parallel manipulator with its motors off, and its numbers as fields."""

    robot: uk.systems.ParallelManipulator

    @property
    def dynamics(self):
        return self.robot.dynamics

    @property
    def constraints(self):
        return (self.robot.loops,)


def bare(steps: int) -> float:
    """Seconds of a second batched rollout."""
    case = three_chains()
    q, v = case.starts(BARE)
    ts = np.array([0.0, steps * DT])
    ends = lambda: np.asarray(uk.simulate(case.system, q, v, ts, dt=DT, solver=uk.RungeKutta4(), throw=False).q[:, -1])
    ends()
    began = time.perf_counter()
    ends()
    return time.perf_counter() - began


def in_turn(members: str, steps: str) -> dict[str, Any]:
    uk.enable_float64()
    found = {name: swept(members, steps, masses) for name, masses in SWEPT.items()}
    return found | {"bare": {"steps/s": float(np.mean([each.pop("bare steps/s") for each in found.values()]))}}


def swept(members: str, steps: str, masses: bool = False) -> dict[str, Any]:
    count, length = int(members), int(steps)
    alone = lambda: BARE * length / bare(length)
    before = alone()  # and after: the load of the machine may change
    ensemble(BARE, length, masses)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = ensemble(count, length, masses, store=Path(folder, "store"))
        rate = count * length / (time.perf_counter() - began)
        failed = len(done.failures)
    beside = (before + alone()) / 2
    return {"steps/s": rate, "of bare": rate / beside, "bare steps/s": beside, "failed": failed, "GiB": _held()}


def side_by_side(members: str, steps: str) -> dict[str, float]:
    """Two processes that each compute a share, against two bare rollouts."""
    bared = _at_once(["bare", steps], ["bare", steps])
    with tempfile.TemporaryDirectory() as folder:
        jobs = [["share", members, steps, str(Path(folder, "store")), str(rank)] for rank in range(2)]
        shared = _at_once(*jobs)
    return {"bare": sum(bared), "workers": sum(shared)}


def _at_once(*jobs):
    command = lambda job: [sys.executable, "-m", "benchmarks.ensemble", *job]
    under_way = [subprocess.Popen(command(job), stdout=subprocess.PIPE, text=True) for job in jobs]
    return [float(process.communicate()[0].split()[-1]) for process in under_way]


def share(members: str, steps: str, store: str, rank: str) -> float:
    """Steps per second of one of two jobs."""
    count, length = int(members), int(steps)
    ensemble(BARE, length)
    began = time.perf_counter()
    ensemble(count, length, store=store, rank=int(rank), world=2, chunk=max(1024, count // 16))
    return count * length / 2 / (time.perf_counter() - began)


def opened(members: str) -> dict[str, float]:
    uk.enable_float64()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        ensemble(int(members), 1, store=store)
        began = time.perf_counter()
        told = uk.open_ensemble(store).summary()
        seconds = time.perf_counter() - began
    assert told["done"] == int(members)
    return {"members": int(members), "seconds": seconds}


def exported() -> dict[str, float]:
    """Seconds to export, load and call a simulator, and to simulate the same batch once, which is one compilation."""
    uk.enable_float64()
    case = three_chains()
    q, v = case.starts(1024)
    ts, how = np.array([0.0, 0.1]), {"dt": DT, "solver": uk.RungeKutta4()}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        path = uk.export(case.system, ts, Path(folder, "robot.bin"), q0=case.q0, v0=case.v0, **how)
        np.asarray(uk.load_simulator(path)(q, v).q)
        seconds = time.perf_counter() - began
    began = time.perf_counter()
    np.asarray(uk.simulate(case.system, q, v, ts, **how).q)
    return {"members": 1024, "seconds": seconds, "first s": time.perf_counter() - began}


def _held() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    uk.enable_float64()
    if sys.argv[1] == "bare":
        print(BARE * int(sys.argv[2]) / bare(int(sys.argv[2])))
    elif sys.argv[1] == "swept":
        print(swept(sys.argv[2], sys.argv[3]))
    elif sys.argv[1] == "share":
        print(share(*sys.argv[2:]))
    else:
        from ukjax._command.bench import text_table

        print(text_table(run(*map(int, sys.argv[1:]))))
