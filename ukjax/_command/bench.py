"""``ukjax bench``: measure the speed of this machine. Needs no optional package."""

import argparse
import json
from typing import Any

from .status import status_line
from .usage import UsageError, check_memory, library_errors_as_usage_errors

MECHANISMS = {"parallel_manipulator": "loops", "coordinated_robots": "closed"}
"""Gallery systems with closed loops, each with the attribute that holds its loop constraints (motors off)."""


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure the speed of this machine: accelerations and steps per second",
        description="Measure the speed of constrained accelerations and of Runge-Kutta steps, for batches of two "
        "gallery systems with closed loops, in double and in single precision.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("--batch", type=int, default=4096, metavar="N", help="number of batch members (default 4096)")
    option("--seconds", type=float, default=0.2, metavar="T", help="simulated time of each motion (default 0.2)")
    option("--json", action="store_true", help="print JSON")
    parser.set_defaults(call=bench)


def bench(options: argparse.Namespace) -> int:
    """Run the benchmark and print a table or JSON. Returns the exit code 0."""
    if options.batch < 1:
        raise UsageError(f"--batch must be at least 1, got {options.batch}")
    if not 0 < options.seconds < float("inf"):
        raise UsageError(f"--seconds must be a positive time, got {options.seconds:g}")

    import jax
    import jax.numpy as jnp
    import numpy as np

    from .. import _precision, systems
    from .._check import check_step
    from .._motion.consistent.project import project
    from .._system import System
    from .measure import DT, accelerations, rollout

    check_memory(f"--batch {options.batch} takes", 12**2 * options.batch, "take a smaller one")
    with library_errors_as_usage_errors():
        check_step(DT, np.array([0.0, options.seconds]), otherwise=" (--seconds)")
    _precision.enable_float64()
    rows: list[dict[str, Any]] = []
    cases = [(name, dtype) for name in MECHANISMS for dtype in ("float64", "float32")]
    with status_line("measuring") as status:
        for name, dtype in cases:
            gallery = systems.named(name)
            system = System(gallery.dynamics, getattr(gallery, MECHANISMS[name]))
            cast = lambda x, dtype=dtype: jax.tree.map(lambda x: x.astype(dtype), x)
            starts = [jnp.tile(x, (options.batch, 1)) for x in project(system, 0.0, *gallery.start())]
            model, q0, v0 = cast((system, *starts))
            row = {"system": name, "numbers": dtype, "batch": options.batch}
            rows.append(row | accelerations(model, q0, v0) | rollout(model, q0, v0, options.seconds))
            status.fraction = len(rows) / len(cases)
    if options.json:
        print(json.dumps({"device": jax.devices()[0].device_kind, "rows": rows}, indent=1))
    else:
        print(f"{jax.devices()[0].device_kind}: accelerations, and Runge-Kutta steps of 1 ms with projection")
        print(text_table(rows))
    return 0


def text_table(rows: list[dict[str, Any]]) -> str:
    """Format dictionaries as a table with a header line, numbers with three significant digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    widths = {key: max(len(key), *(len(_cell(row.get(key))) for row in rows)) for key in columns}
    lines = [{key: key for key in columns}, *rows]
    return "\n".join("  ".join(f"{_cell(row.get(key)):>{widths[key]}}" for key in columns) for row in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
