"""Each mistake gives a one-line error: which argument, what was seen, what was wanted, and what to do.

The mistakes are data, ``mistakes/python.toml``. They run in a separate process, without type checks of annotations, as
for users.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TABLE = tomllib.loads((Path(__file__).parents[1] / "mistakes" / "python.toml").read_text(encoding="utf-8"))
SETUP = TABLE.pop("setup")
ROWS = {(group, name): row for group, rows in TABLE.items() for name, row in rows.items()}
OURS = {"InputError", "MissingPackageError", "SimulationError"}
PYTHONS = "unexpected keyword argument|missing .* required positional argument|object has no attribute"
"""Errors of Python itself that are clear enough."""
MOST_LINES = 2

SCRIPT = """
import json, sys, warnings
given = json.load(sys.stdin)
here = {}
exec(given["setup"], here)
warnings.simplefilter("error")
said = []
for code in given["codes"]:
    try:
        eval(code, here)
    except Exception as error:
        said.append((type(error).__name__, str(error)))
    else:
        said.append(("nothing", "was said"))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    given = json.dumps({"setup": SETUP, "codes": [code for code, _ in ROWS.values()]})
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=given, capture_output=True, text=True, check=True)
    return dict(zip(ROWS, json.loads(done.stdout.splitlines()[-1]), strict=True))


def fits(line: str, message: str) -> bool:
    """Return whether ``message`` is that line, where "..." stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, line.split("..."))), message, re.DOTALL) is not None


@pytest.mark.parametrize("row", ROWS, ids=": ".join)
def test_mistake_gives_the_stated_error(said, row):
    kind, message = said[row]
    assert fits(ROWS[row][1], message), f"{ROWS[row][0]}: {kind}: {message}"
    assert kind in OURS or re.search(PYTHONS, message), kind
    assert len(message.splitlines()) <= MOST_LINES


def test_table_of_mistakes_is_long_and_has_no_duplicates():
    assert len(ROWS) >= 180
    assert len({code for code, _ in ROWS.values()}) == len(ROWS)


def test_comparison_of_messages_can_fail():
    """Without this, the tests above could not fail."""
    assert fits("a must be ..., got 3", "a must be small, got 3")
    assert not fits("a must be ..., got 3", "a must be small, got 4")
    assert not fits("a (b)", "a b")
