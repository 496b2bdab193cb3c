"""Time to the first result, against a plain diffrax script.

Every figure is measured in a separate process, with nothing compiled before. Modules are imported before the clock
starts; the import time is reported separately. ``lines`` is the number of lines of the compiled StableHLO.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .apart import apart

REPEATS = 5  # of calls, and of whole processes, when everything is compiled
LONG = 20.0  # a figure that takes longer is measured once, others three times
PLAIN, PLAIN_GRADIENT, PLAIN_PROCESS = "plain diffrax: motion", "plain diffrax: gradient", "plain diffrax: process"


class Figure(NamedTuple):
    """``prepare`` does the work that is not measured, and returns the function to measure. Its time is compared with
    that of the figure ``beside``. The shortest of five more calls has ``steps`` steps; None: those of the result."""

    prepare: Callable[[], Callable[[], Any]]
    beside: str = PLAIN
    steps: int | None = None


def run() -> list[dict[str, Any]]:
    rows = [_row(what) for what in FIGURES]
    rows += _processes()
    seconds = {row["what"]: row["first s"] for row in rows}
    for row in rows:
        beside = FIGURES[row["what"]].beside if row["what"] in FIGURES else PLAIN_PROCESS
        row["times plain"] = row["first s"] / seconds[beside]
    return rows


def _row(what: str) -> dict[str, Any]:
    runs = [apart("first_result", "measured", what, patience=900.0)]
    while runs[0]["first s"] < LONG and len(runs) < 3:
        runs.append(apart("first_result", "measured", what))
    return {"what": what} | {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def measured(what: str) -> dict[str, Any]:
    """One figure, in this process."""
    began = time.perf_counter()
    _import_all(what)
    importing = time.perf_counter() - began
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    figure = FIGURES[what]
    run = figure.prepare()
    jax.block_until_ready(jax.numpy.zeros(1))  # otherwise the first call would also start JAX
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_dump_ir_to", folder)
        found, first = _timed(run)
        lines = sum(_lines(path) for path in Path(folder).iterdir())
        jax.config.update("jax_dump_ir_to", None)
    row = {"first s": first, "lines": lines, "import s": importing}
    steps = figure.steps or _steps(found)
    if steps:
        again = min(_timed(run)[1] for _ in range(REPEATS))
        row |= {"again s": again, "ms per step": 1e3 * again / steps}
    return row


def _import_all(what: str) -> None:
    """Import all modules that the figure needs, since modules are imported when they are first used."""
    if what.startswith("plain"):
        from . import plain_diffrax as plain  # noqa: F401
    else:
        import ukjax as uk

        for name in ("simulate", "project", "constrained_motion", "System", "systems", "control", "step"):
            getattr(uk, name)


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    import jax

    began = time.perf_counter()
    found = jax.block_until_ready(run())
    return found, time.perf_counter() - began


def _lines(path: Path) -> int:
    """Number of lines of a program, without those with source locations."""
    return sum(not line.startswith("#loc") for line in path.read_text().splitlines())


def _steps(found: Any) -> int:
    import numpy as np

    return int(np.max(found.steps)) if hasattr(found, "steps") else 0


def _processes() -> list[dict[str, Any]]:
    """Times of whole processes, from their start to the printed result."""
    plain = "-m", "benchmarks.plain_diffrax"
    scara = "-m", "ukjax", "run", "scara", "--json"
    cold, warm = [], []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_process(*scara, cache=folder))
            warm = warm or [_process(*scara, cache=folder) for _ in range(REPEATS)]
    with tempfile.TemporaryDirectory() as folder:
        of_plain = [_process(*plain, cache=folder) for _ in range(3)]
        of_help = [_process("-m", "ukjax", "--help", cache=folder) for _ in range(REPEATS)]
    return [
        {"what": what, "first s": statistics.median(seconds)}
        for what, seconds in (
            (PLAIN_PROCESS, of_plain),
            ("ukjax run scara --json: process", cold),
            ("ukjax run scara --json: process, compiled before", warm),
            ("ukjax --help: process", of_help),
        )
    ]


def _process(*arguments: str, cache: str) -> float:
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


# The measured functions. Nothing is imported before ``measured`` does so.


def _plain(which: str) -> Callable[[], Any]:
    from . import plain_diffrax

    return getattr(plain_diffrax, which)()


def _pendulum() -> Any:
    import ukjax as uk

    return uk.System(
        uk.Lagrangian(kinetic=lambda t, q, v: v @ v / 2, potential=lambda t, q: 9.81 * q[1]),
        uk.Holonomic(lambda t, q: q @ q - 1, name="rod"),
    )


LEVEL, REST = [-1.0, 0.0], [0.0, 0.0]


def _motion() -> Callable[[], Any]:
    import jax.numpy as jnp

    import ukjax as uk

    system, ts = _pendulum(), jnp.linspace(0, 10, 11)
    return lambda: uk.simulate(system, LEVEL, REST, ts)


def _anew() -> Callable[[], Any]:
    _motion()()
    return _motion()


def _gradient() -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    import ukjax as uk

    system = _pendulum()
    height = lambda speed: uk.simulate(system, LEVEL, jnp.array([0.0, 1.0]) * speed, [0.0, 1.0]).q[-1, 1]
    return lambda: jax.grad(height)(0.5)


def _projected() -> Callable[[], Any]:
    import ukjax as uk

    system = _pendulum()
    return lambda: uk.project(system, 0.0, LEVEL, REST)


def _instant() -> Callable[[], Any]:
    import ukjax as uk

    system = _pendulum()
    return lambda: uk.constrained_motion(system(0.0, LEVEL, REST)).acceleration


def _three_chains(dt: float | None) -> Callable[[], Any]:
    import ukjax as uk

    from .mechanisms import three_chains

    case = three_chains()
    starts = case.starts(4096)
    how = {} if dt is None else {"dt": dt, "solver": uk.RungeKutta4()}
    return lambda: uk.simulate(case.system, *starts, [0.0, 1.0], **how)


def _parallel_robot() -> Callable[[], Any]:
    import jax.numpy as jnp

    import ukjax as uk

    robot = uk.systems.ParallelRobot()
    start, ts = uk.project(robot, 0.0, *robot.start()), jnp.linspace(0, 10, 11)
    return lambda: uk.simulate(robot, *start, ts)


def _alone(name: str, *arguments: Any, ts: list[float], dt: float | None = None) -> Callable[[], Any]:
    import ukjax as uk

    from . import mechanisms

    case = getattr(mechanisms, name)(*arguments)
    how = {} if dt is None else {"dt": dt, "solver": uk.RungeKutta4()}
    return lambda: uk.simulate(case.system, case.q0, case.v0, ts, **how)


def _many_rockers(count: int) -> Callable[[], Any]:
    import numpy as np

    import ukjax as uk

    from .mechanisms import rockers

    case = rockers()
    q0, v0 = np.tile(case.q0, (count, 1)), np.linspace(0.1, 1, count)[:, None] * np.asarray(case.v0)
    return lambda: uk.simulate(case.system, q0, v0, [0.0, 0.01], dt=1e-3, solver=uk.RungeKutta4())


def _control_period() -> Callable[[], Any]:
    """Ten steps of the parallel robot, with constant torques of its three motors."""
    import jax.numpy as jnp

    import ukjax as uk

    robot = uk.systems.ParallelRobot()
    motors = jnp.zeros((12, 3)).at[jnp.array([0, 4, 8]), jnp.arange(3)].set(1.0)
    driven = uk.System(robot.dynamics, robot.constraints, control=uk.control.Feedback(motors, jnp.zeros(3)))
    state = uk.initial_state(driven, *uk.project(driven, 0.0, *robot.start()))
    torques = jnp.array([0.1, 0.0, -0.1])
    return lambda: uk.step(driven, state, 0.01, torques, steps=10)


def _two_masses() -> Callable[[], Any]:
    """Fit of the masses of rod and slider, from one second of the slider's path."""
    import jax
    import numpy as np

    import ukjax as uk

    from .mechanisms import SliderCrank, slider_crank

    case, ts = slider_crank(), np.linspace(0, 1, 51)
    path = uk.simulate(SliderCrank(), case.q0, case.v0, ts).q[:, 6:7]
    seen, guess = uk.Experiment(ts, path, (case.q0, case.v0)), SliderCrank(rod=1.0, slider=0.5)
    jax.clear_caches()
    slider = lambda t, q, v: q[6:7]
    return lambda: uk.fit(guess, seen, ["rod", "slider"], observe=slider, fit_starts=False, dt=0.01, drift="projection")


FIGURES = {
    PLAIN: Figure(lambda: _plain("first")),
    PLAIN_GRADIENT: Figure(lambda: _plain("gradient"), beside=PLAIN_GRADIENT),
    "pendulum: simulate": Figure(_motion),
    "pendulum: the same model defined anew": Figure(_anew),
    "pendulum: jax.grad through simulate": Figure(_gradient, beside=PLAIN_GRADIENT),
    "pendulum: project": Figure(_projected),
    "pendulum: constrained_motion": Figure(_instant),
    "three chains, 4096 at once, 1000 steps": Figure(lambda: _three_chains(1e-3), steps=4096 * 1000),
    "three chains, 4096 at once, adaptive": Figure(lambda: _three_chains(None)),
    "parallel robot, n = 12": Figure(_parallel_robot),
    "three rockers, n = 12, rank 11 of 12": Figure(lambda: _alone("rockers", ts=[0.0, 1.0])),
    "three rockers, 1000 steps of 1 ms": Figure(lambda: _alone("rockers", ts=[0.0, 1.0], dt=1e-3)),
    "slider-crank in bodies, n = 9, 1000 steps of 1 ms": Figure(lambda: _alone("slider_crank", ts=[0.0, 1.0], dt=1e-3)),
    "three rockers, 2000 at once, 10 steps": Figure(lambda: _many_rockers(2000), steps=2000 * 10),
    "governor, n = 28, stiff": Figure(lambda: _alone("governor", ts=[0.0, 0.1, 0.5, 1.0])),
    "Bricard's loop, n = 35, rank 34 of 35": Figure(lambda: _alone("bricard", ts=[0.0, 1.0, 5.0, 10.0])),
    "ten windows, n = 63": Figure(lambda: _alone("windows", 10, ts=[0.0, 0.3])),
    "control period of 10 steps, n = 12": Figure(_control_period, steps=10),
    "slider-crank in bodies: fit of two masses": Figure(_two_masses),
}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, json.dumps(apart("first_result", "measured", name, patience=900.0)), flush=True)
