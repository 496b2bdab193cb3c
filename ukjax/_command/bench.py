"""``ukjax bench``: how fast this machine is, with nothing but what ukjax needs itself."""

import argparse
import json
from typing import Any

from .usage import UsageError, check_memory, saying_what_is_refused

MECHANISMS = {"parallel_manipulator": "loops", "coordinated_robots": "closed"}
"""Systems of the gallery, and the constraint that holds them together with their motors off."""


def add_to(commands: Any) -> None:
    """Its options, among the sub-commands of the command line."""
    parser = commands.add_parser(
        "bench",
        help="measure how fast this machine is: accelerations and steps per second",
        description="Measure constrained accelerations and Runge-Kutta steps of two closed loops of the gallery, in a "
        "batch, in double and in single precision.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("--batch", type=int, default=4096, metavar="N", help="members of the batch (default 4096)")
    option("--seconds", type=float, default=0.2, metavar="T", help="length of a motion (default 0.2)")
    option("--json", action="store_true", help="print JSON")
    parser.set_defaults(call=bench)


def bench(options: argparse.Namespace) -> int:
    """Measure, and print a table or JSON."""
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
    with saying_what_is_refused():
        check_step(DT, np.array([0.0, options.seconds]), otherwise=" (--seconds)")
    _precision.enable_float64()
    rows: list[dict[str, Any]] = []
    for name, closing in MECHANISMS.items():
        gallery = systems.named(name)
        system = System(gallery.dynamics, getattr(gallery, closing))
        for dtype in ("float64", "float32"):
            single = lambda x, dtype=dtype: jax.tree.map(lambda x: x.astype(dtype), x)
            starts = [jnp.tile(x, (options.batch, 1)) for x in project(system, 0.0, *gallery.start())]
            model, q0, v0 = single((system, *starts))
            row = {"system": name, "numbers": dtype, "batch": options.batch}
            rows.append(row | accelerations(model, q0, v0) | rollout(model, q0, v0, options.seconds))
    if options.json:
        print(json.dumps({"device": jax.devices()[0].device_kind, "rows": rows}, indent=1))
    else:
        print(f"{jax.devices()[0].device_kind}: accelerations, and Runge-Kutta steps of 1 ms with projection")
        print(text_table(rows))
    return 0


def text_table(rows: list[dict[str, Any]]) -> str:
    """Rows under the names of their columns, numbers to three digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    widths = {key: max(len(key), *(len(_cell(row.get(key))) for row in rows)) for key in columns}
    lines = [{key: key for key in columns}, *rows]
    return "\n".join("  ".join(f"{_cell(row.get(key)):>{widths[key]}}" for key in columns) for row in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
