"""How long until the first result: ``ukjax run scara --json`` as a whole process, cold and compiled before."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

REPEATS = 5


def run() -> list[dict[str, Any]]:
    rows = []
    cold, warm = [], []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_seconds("run", "scara", "--json", cache=folder))
            if not warm:
                warm = [_seconds("run", "scara", "--json", cache=folder) for _ in range(REPEATS)]
            plain = [_seconds("--help", cache=folder) for _ in range(REPEATS)]
    rows.append({"what": "ukjax run scara, nothing compiled", "median s": statistics.median(cold), "most s": max(cold)})
    rows.append({"what": "ukjax run scara, again", "median s": statistics.median(warm), "most s": max(warm)})
    rows.append({"what": "ukjax --help", "median s": statistics.median(plain), "most s": max(plain)})
    return rows


def _seconds(*arguments: str, cache: str) -> float:
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.perf_counter()
    command = [sys.executable, "-m", "ukjax", *arguments]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
