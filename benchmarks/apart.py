"""Measurements in separate processes: a program that changes its process, or hangs, does not affect the others."""

import json
import os
import subprocess
import sys
from typing import Any


def apart(module: str, function: str, *arguments: Any, patience: float = 300.0, cores: int | None = None) -> Any:
    """The result of ``function(*arguments)`` of ``module``, passed as JSON; None if it takes longer than ``patience``
    seconds. ``cores``: number of cores that the process may use (default: all)."""
    few = None if cores is None else sorted(os.sched_getaffinity(0))[:cores]
    program = (
        ("" if few is None else f"import os; os.sched_setaffinity(0, {few}); ")
        + f"import json, sys; from benchmarks.{module} import {function}; "
        f"print('\\n' + json.dumps({function}(*json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])
