"""Results with what they depend on: machine, versions, date."""

import datetime
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def keep(name: str, rows: list[dict[str, Any]]) -> Path:
    """Write the rows of benchmark ``name``, replacing the earlier ones."""
    packages = ("ukjax", "jax", "jaxlib", "diffrax", "equinox", "numpy")
    record = {
        "benchmark": name,
        "date": datetime.date.today().isoformat(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in packages},
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path.relative_to(Path(__file__).parent.parent)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
