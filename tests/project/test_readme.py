"""The README has the two commands that CI runs, and no number that the saved results do not contain."""

import re

from benchmarks import readme

from .pages import FENCE, README, name_of, pages


def test_both_commands_are_there():
    for name in ("main", "test"):
        assert re.search(rf"<!-- {name} -->\n```bash\npython3 -m venv .*\n```", README.read_text())


def test_it_is_short():
    assert len(README.read_text().splitlines()) <= 150


def test_the_tables_are_made_of_the_saved_results():
    """`python -m benchmarks readme` renews them."""
    for page in readme.PAGES:
        text = page.read_text()
        assert readme.BLOCK.search(text) and readme.renewed(text) == text, page.name


def test_every_result_names_its_commit_and_machine():
    for path in readme.RESULTS.glob("*.json"):
        record = readme.read(path.stem)
        assert re.fullmatch(r"[0-9a-f]{12}", record["commit"]) and record["machine"]["load before"] >= 0, path.name


MEASURED = re.compile(
    r"\d ?(?:ns|µs|ms|kB|CPU s)\b|\d times (?:as|the|faster|slower|longer)\b|\d seconds\b|\d % (?:faster|slower)"
)
"""What looks like a measured time, memory or ratio of them."""

GIVEN = {
    "README.md": ("height of the pendulum after one second",),
}
"""Sentences whose numbers are given, not measured."""


def test_no_measured_number_is_outside_the_tables_that_are_made():
    """Code blocks are run or excluded by name, code in a line and formulas are not measurements."""
    for page in pages():
        text = FENCE.sub("", readme.BLOCK.sub("", page.read_text()))
        text = re.sub(r"`[^`\n]*`|\$[^$]*\$", "", text)
        found = [line for line in text.splitlines() if MEASURED.search(line)]
        assert not [line for line in found if not any(words in line for words in GIVEN.get(name_of(page), ()))], page
