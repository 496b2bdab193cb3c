"""Results and their conditions: commit, machine, load, versions, date."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
TIME = re.compile(r"(?<!\w)[mµn]?s(?!\w)")  # a unit of time in the name of a column
PACKAGES = (
    "ukjax",
    "jax",
    "jaxlib",
    "diffrax",
    "equinox",
    "numpy",
    "mujoco",
    "exudyn",
    "drake",
    "pin",
    "example-robot-data",
)
BUSY = 0.5
"""Load average above which a machine of few cores is not quiet enough for timing."""


def surroundings() -> dict[str, Any]:
    """Commit, processor, cores, load and versions; called before a benchmark starts, so that its own load is not
    included."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "load before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            "system": platform.system(),
        },
        "versions": {"python": platform.python_version()} | _versions(),
    }


def save(name: str, rows: list[dict[str, Any]], where: dict[str, Any]) -> Path:
    """Write the rows of benchmark ``name``, replacing the earlier ones.

    Raises ``ValueError`` for a negative time. Some times are differences of two measurements, and are negative if
    another program has disturbed one of them.
    """
    for row in rows:
        for column, value in row.items():
            if TIME.search(column) and isinstance(value, int | float) and value < 0:
                raise ValueError(f"{name}: {column!r} is {value:g}, a negative time: run it again on a quiet machine")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"benchmark": name} | where | {"rows": rows}, indent=1) + "\n")
    return path.relative_to(ROOT)


def read(name: str) -> dict[str, Any]:
    """A saved record."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def commit() -> str:
    """The commit of the checkout, with ``+`` if files other than results, README and documentation have changed
    since."""
    git = lambda *words: subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--", ".", ":!benchmarks/results", ":!README.md", ":!docs")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "") or "unknown"


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """Name, family and model, and the widest vector instructions: a virtual machine may hide the full name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = facts.get("flags", "").split()
    width = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    name = facts.get("model name", platform.machine())
    return f"{name} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}, {width})"
