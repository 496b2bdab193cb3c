"""Every system of the gallery over the time span of its source: residuals, and the distance from the exact motion.

Each by ``ukjax run NAME --json`` in a separate process.
"""

import json
import subprocess
import sys
from typing import Any

COLUMNS = {"max_residual": "residual", "max_reference_error": "error"}


def run() -> list[dict[str, Any]]:
    ukjax = [sys.executable, "-m", "ukjax"]
    systems = json.loads(subprocess.check_output([*ukjax, "list", "--json"]))
    rows = []
    for system in (entry for entry in systems if entry["kind"] == "system"):
        report = json.loads(subprocess.check_output([*ukjax, "run", system["name"], "--json"]))
        found = {column: report[key] for key, column in COLUMNS.items() if key in report}
        rows.append({"system": system["name"]} | found)
    return rows
