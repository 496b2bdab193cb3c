"""Measurements in processes of their own: what a peer does to its process, or that it hangs, harms no other."""

import json
import subprocess
import sys
from typing import Any


def apart(module: str, function: str, *arguments: Any, patience: float = 300.0) -> Any:
    """What ``function(*arguments)`` of ``module`` returns, as JSON carries it; None if it takes longer than
    ``patience`` seconds."""
    program = (
        f"import json, sys; from benchmarks.{module} import {function}; "
        f"print('\\n' + json.dumps({function}(*json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    try:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1])
