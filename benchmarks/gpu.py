"""Kernels on a GPU of NVIDIA: without a device, compiled code; with a device, results against the CPU, and speed.

Without a device: a rollout of 1000 Runge–Kutta steps of every system of the gallery and of robots, lowered for CUDA:
launches, loops of the host, and, where ``ptxas`` is installed, registers and spills for sm_90. Saved as "gpu_compiled".

With a device, in less than 8 minutes: each part runs in a separate process. If a part fails, its error is saved. The
results are saved after each part. ``first s`` is the time to the first result, compilation included.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .record import RESULTS, save, surroundings

ROBOTS = ("seven_axis_arm", "leg", "humanoid")
DT, MEMBERS, PATIENCE = 1e-3, 65_536, 480.0
SIZES = {1_000: 1000, 10_000: 1000, 65_536: 1000, 1_000_000: 100, 10_000_000: 10}
"""Numbers of members, and of steps of each member."""

PARTS: tuple[tuple[str, tuple[Any, ...], dict[str, str], float], ...] = (
    ("first_call", (), {}, 90.0),
    ("speed", ("P1", "float64", (65_536, 1_000, 10_000, 1_000_000, 10_000_000)), {}, 120.0),
    ("against_cpu", (0, 9), {}, 120.0),
    ("speed", ("P1", "float32", (65_536, 1_000, 10_000, 1_000_000, 10_000_000)), {}, 100.0),
    ("speed", ("P1", "float64", (65_536, 1_000)), {"UKJAX_CUDA_KERNELS": "0"}, 90.0),
    ("gradient", ("P1", "float64"), {}, 90.0),
    ("adaptive", ("P1",), {}, 60.0),
    ("speed", ("seven_axis_arm", "float64", (65_536, 1_000)), {}, 90.0),
    ("against_cpu", (9, 17), {}, 90.0),
    ("against_cpu", (17, 99), {}, 90.0),
    ("mujoco_warp", ("P1",), {}, 60.0),
)
"""Function, arguments, environment and time limit [s] of each part, the most important first."""


def has_device() -> bool:
    """Whether NVIDIA's driver sees a GPU. JAX is not asked: it would take most of the memory of the device."""
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.startswith("GPU")


def results_name() -> str:
    return "gpu" if has_device() else "gpu_compiled"


def run() -> list[dict[str, Any]]:
    return run_on_device() if has_device() else compile_all()


# --- without a device ------------------------------------------------------------------------------------------------


def compile_all() -> list[dict[str, Any]]:
    import ukjax as uk

    uk.enable_float64()
    os.environ["UKJAX_CACHE"] = ""  # otherwise kernels would be read from files, and not compiled
    rows, where = [], surroundings()
    cases = [("P1", "float64"), ("P1", "float32"), *((name, "float64") for name in uk.systems.CATALOGUE)]
    for name, dtype in (*cases, *((name, "float64") for name in ROBOTS)):
        row: dict[str, Any] = {"system": name, "dtype": dtype}
        try:
            row |= compiled(name, dtype)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:300]
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        save("gpu_compiled", rows, where)
    return rows


def compiled(name: str, dtype: str) -> dict[str, Any]:
    """Launches, loops of the host and PTX of a rollout, and the report of ptxas."""
    from ukjax._kernel.cuda import launch

    simulate, q, v = _ready(name, dtype, 4, 1000, samples=11)
    began = time.process_time()
    text = simulate.trace(q, v).lower(lowering_platforms=("cuda",)).as_text()
    usual = [x for x in re.findall(r"custom_call @(ukjax_cuda_\w+)", text) if "_rare_" not in x]
    row: dict[str, Any] = {"launches": len(usual), "host loops": text.count("stablehlo.while")}
    row["trace s"] = round(time.process_time() - began, 2)
    if len(usual) != 1:
        return row
    began = time.process_time()
    ptx = launch.ptx(usual[0])
    row |= {"PTX kB": len(ptx) // 1000, "LLVM s": round(time.process_time() - began, 2)}
    return row | assembled(ptx)


def assembled(ptx: str, architecture: str = "sm_90") -> dict[str, Any]:
    """Registers, stack and spills of a kernel, by ptxas; empty if ptxas is not installed."""
    if shutil.which("ptxas") is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(ptx)
        before = os.times()
        command = ["ptxas", "-v", f"-arch={architecture}", str(path), "-o", f"{path}.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        after = os.times()
    if done.returncode:
        return {"error": done.stderr[-300:]}
    found = re.search(r"for kernel\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", done.stderr)
    registers, shared = re.search(r"Used (\d+) registers", done.stderr), re.search(r"(\d+) bytes smem", done.stderr)
    assert found is not None and registers is not None
    return {
        "registers": int(registers[1]),
        "stack B": int(found[1]),
        "spill stores B": int(found[2]),
        "spill loads B": int(found[3]),
        "shared B": int(shared[1]) if shared else 0,
        "ptxas s": round(after.children_user - before.children_user, 2),
    }


# --- on a device -----------------------------------------------------------------------------------------------------


def run_on_device() -> list[dict[str, Any]]:
    began, rows, where = time.monotonic(), [], surroundings()
    for function, arguments, environment, patience in PARTS:
        left = PATIENCE - (time.monotonic() - began)
        if left < 20:
            rows.append({"part": function, "error": "no time left"})
            continue
        found = _in_process(function, arguments, environment, min(patience, left))
        kernels = {"kernels": "off"} if environment else {}
        rows += [
            {"part": function, **dict(zip(("system", "dtype"), arguments, strict=False)), **kernels, **x} for x in found
        ]
        for row in rows[-len(found) :]:
            print(json.dumps(row), file=sys.stderr, flush=True)
        save("gpu", rows, where)
    try:
        draw(rows)
    except Exception as error:  # the results are saved even if the figure fails
        print(f"no figure: {error}", file=sys.stderr)
    return rows


def _in_process(function, arguments, environment, patience):
    """The rows that a part printed before it ended, and its error."""
    program = f"import json, sys; from benchmarks import gpu; gpu.{function}(*json.loads(sys.argv[1]))"
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            surround = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.6"} | environment
            code = subprocess.run(command, stdout=out, stderr=err, env=surround, timeout=patience).returncode
            error = "" if code == 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            error = f"not done after {patience:.0f} s"
        out.seek(0)
        err.seek(0)
        rows = [json.loads(line) for line in out.read().splitlines() if line.startswith("{")]
        return [*rows, {"error": error, "said": err.read()[-1500:]}] if error else rows or [{"error": "no result"}]


def _row(**values):
    print(json.dumps(values), flush=True)


def _attempt(function: Callable[[], dict[str, Any]], **what: Any) -> None:
    """Print the row of a function, or its error."""
    try:
        _row(**what, **function())
    except Exception as error:
        _row(**what, error=f"{type(error).__name__}: {error}"[:500])


def _timed(function: Callable[[], Any], repeats: int = 3) -> tuple[float, float]:
    """Seconds to the first result, and of the fastest call after it."""
    import jax

    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - began)
    return seconds[0], min(seconds[1:])


def _system(name, dtype):
    """A system and a consistent start, computed on the CPU."""
    import equinox as eqx
    import jax

    import ukjax as uk

    from . import kernels

    uk.enable_float64()
    with jax.default_device(jax.devices("cpu")[0]):
        if name in ("P1", *ROBOTS):
            model, q, v = kernels.system(name)
        else:
            model = uk.systems.named(name)
            q, v = uk.project(model, 0.0, *model.start())
        cast = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
        return jax.tree.map(cast, model), np.asarray(q, dtype), np.asarray(v, dtype)


def _ready(name, dtype, members, steps, samples=2):
    """A compiled function of q and v that returns q at samples, and starts for all members."""
    import jax

    import ukjax as uk

    model, q, v = _system(name, dtype)
    ts = np.linspace(0, steps * DT, samples).astype(dtype)
    simulate = lambda q, v: uk.simulate(model, q, v, ts, dt=DT, solver=uk.RungeKutta4(), throw=False).q
    speeds = np.linspace(0.9, 1.0, members, dtype=dtype)[:, None]
    return jax.jit(simulate), np.tile(q, (members, 1)), speeds * v


def first_call() -> None:
    """The device, and one small kernel, to test the handler."""
    import jax
    import jax.numpy as jnp

    import ukjax as uk
    from ukjax._kernel import kernels_available

    uk.enable_float64()
    device = jax.devices()[0]
    _row(device=device.device_kind, platform=device.client.platform_version.strip()[:80], kernels=kernels_available())
    x = np.linspace(-3, 3, 1000)
    function = jax.jit(jax.vmap(uk.per_member(lambda x: (jnp.sin(x) * x, jnp.exp(x), jnp.sqrt(abs(x))))))
    expected = np.sin(x) * x, np.exp(x), np.sqrt(abs(x))
    worst = max(float(np.max(np.abs(a - b))) for a, b in zip(function(x), expected, strict=True))
    _row(custom_calls=function.lower(x).as_text().count("custom_call @ukjax_cuda"), difference=worst)


def speed(name: str, dtype: str, sizes: list[int]) -> None:
    """Steps per second of batches, and the residual at the end."""
    import jax

    def of(members):
        steps = SIZES[members] if os.environ.get("UKJAX_CUDA_KERNELS") != "0" else 100
        simulate, q, v = _ready(name, dtype, members, steps)
        q, v = jax.device_put((q, v))
        first, seconds = _timed(lambda: simulate(q, v))
        model, _, _ = _system(name, dtype)
        end = np.asarray(simulate(q, v)[:64, -1])
        residual = max(float(np.max(np.abs(model.position_residual(0.0, x)), initial=0)) for x in end)
        return {"steps/s": members * steps / seconds, "seconds": seconds, "first s": first, "residual": residual}

    for members in sizes:
        _attempt(partial(of, members), members=members)


def gradient(name: str, dtype: str) -> None:
    """The gradient of the end by the start: time in seconds, and relative to a motion."""
    import jax

    def of(steps):
        simulate, q, v = _ready(name, dtype, MEMBERS, steps)
        q, v = jax.device_put((q, v))
        _, motion = _timed(lambda: simulate(q, v))
        slope = jax.jit(jax.grad(lambda v: simulate(q, v)[:, -1].sum()))
        first, seconds = _timed(lambda: slope(v))
        return {"first s": first, "seconds": seconds, "motions": seconds / motion}

    for steps in (100, 1000):
        _attempt(partial(of, steps), members=MEMBERS, steps=steps)


def adaptive(name: str) -> None:
    """Adaptive steps, with separate step sizes for each member."""
    import ukjax as uk

    def of(members):
        model, q, v = _system(name, "float64")
        q, v = np.tile(q, (members, 1)), np.linspace(0.5, 1.0, members)[:, None] * v
        first, seconds = _timed(lambda: uk.simulate(model, q, v, np.array([0.0, 1.0])).q)
        plan = str(uk.simulate(model, q, v, np.array([0.0, 1.0])).plan).splitlines()[0]
        return {"first s": first, "seconds": seconds, "plan": plan}

    _attempt(partial(of, MEMBERS), members=MEMBERS)


def against_cpu(first: int, last: int) -> None:
    """The gallery and the robots: positions after 100 steps on the GPU and on the CPU."""
    import jax

    import ukjax as uk

    def of(name):
        simulate, q, v = _ready(name, "float64", 64, 100, samples=3)
        began = time.perf_counter()
        there = np.asarray(simulate(q, v))
        seconds = time.perf_counter() - began
        with jax.default_device(jax.devices("cpu")[0]):
            here = np.asarray(simulate(q, v))
        difference = float(np.max(np.abs(there - here))) / max(1.0, float(np.max(np.abs(here))))
        return {"difference": difference, "agrees": bool(difference <= 1e-12), "first s": seconds}

    names = ("P1", *uk.systems.CATALOGUE, *ROBOTS)
    for name in names[first:last]:
        _attempt(partial(of, name), system=name)


def mujoco_warp(name: str) -> None:
    """The step of MuJoCo Warp for the same mechanism, if it is installed."""
    try:
        import mujoco_warp as mjw
        import warp as wp
    except ImportError as error:
        _row(system=name, error=f"not installed: {error}")
        return

    from . import mujoco_peer, rollouts

    def of(members):
        model = mujoco_peer.peer(rollouts.CASES[name]()).model("RK4")
        data = mujoco_peer.mujoco.MjData(model)
        there, state = mjw.put_model(model), mjw.put_data(model, data, nworld=members)
        mjw.step(there, state)
        wp.synchronize()
        with wp.ScopedCapture() as capture:
            mjw.step(there, state)
        steps, began = 200, time.perf_counter()
        for _ in range(steps):
            wp.capture_launch(capture.graph)
        wp.synchronize()
        return {"steps/s": members * steps / (time.perf_counter() - began)}

    _attempt(partial(of, MEMBERS), system=name, members=MEMBERS)


def draw(rows: list[dict[str, Any]]) -> None:
    """Figure of steps per second over the number of members."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(6, 3.6), layout="constrained")
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["part"] == "speed" and "steps/s" in row:
            label = f"{row['system']}, {row['dtype']}{', plain vmap' if 'kernels' in row else ''}"
            lines.setdefault(label, []).append((row["members"], row["steps/s"]))
    for label, points in lines.items():
        panel.loglog(*zip(*sorted(points), strict=True), "o-", label=label)
    panel.set(xlabel="members", ylabel="steps per second")
    panel.grid(alpha=0.3)
    panel.legend(frameon=False, fontsize=8)
    figure.savefig(RESULTS / "gpu.png", dpi=150)
    plt.close(figure)
