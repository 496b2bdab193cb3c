"""The README has the two commands that CI runs, and only numbers of the saved results."""

import ast
import json
import re

import pytest

from benchmarks import readme, record

from .pages import FENCE, README, ROOT, name_of, pages


def test_readme_has_the_install_and_test_commands():
    for name in ("main", "test"):
        assert re.search(rf"<!-- {name} -->\n```bash\npython3 -m venv .*\n```", README.read_text())


def test_readme_is_short():
    assert len(README.read_text().splitlines()) <= 150


def test_tables_match_the_saved_results():
    """`python -m benchmarks readme` updates them."""
    for page in readme.PAGES:
        text = page.read_text()
        assert readme.BLOCK.search(text) and readme.renewed(text) == text, page.name


def test_results_have_commit_and_machine():
    for path in readme.RESULTS.glob("*.json"):
        record = readme.read(path.stem)
        assert re.fullmatch(r"[0-9a-f]{12}", record["commit"]) and record["machine"]["load before"] >= 0, path.name


MEASURED = re.compile(
    r"\d ?(?:ns|µs|ms|kB|CPU s)\b|\d times (?:as|the|faster|slower|longer)\b|\d seconds\b|\d % (?:faster|slower)"
)
"""Pattern of measured times, memory, or ratios of them."""

GIVEN = {
    "README.md": ("height of the pendulum after one second",),
    "ukjax/systems/clearance_slider_crank.py": ("with steps of 0.1 ms",),
}
"""Sentences with numbers that are not measured."""


def test_pages_have_no_measured_numbers_outside_generated_tables():
    """Code blocks are run or excluded by name; inline code and formulas are not measurements."""
    for page in pages():
        text = FENCE.sub("", readme.BLOCK.sub("", page.read_text()))
        text = re.sub(r"`[^`\n]*`|\$[^$]*\$", "", text)
        assert not measured(text, name_of(page)), page


def test_docstrings_notebooks_and_changelog_have_no_measured_numbers():
    """No command would update them."""
    for path in sorted((ROOT / "ukjax").rglob("*.py")):
        if not MEASURED.search(path.read_text()):
            continue  # nothing to parse
        nodes = ast.walk(ast.parse(path.read_text()))
        with_docstrings = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
        texts = [ast.get_docstring(node) or "" for node in with_docstrings]
        assert not measured("\n".join(texts), name_of(path)), path
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        assert not measured("\n".join(texts), name_of(path)), path
    changelog = ROOT / "CHANGELOG.md"
    assert not measured(changelog.read_text(), name_of(changelog))


def measured(text, name):
    found = [line for line in text.splitlines() if MEASURED.search(line)]
    return [line for line in found if not any(words in line for words in GIVEN.get(name, ()))]


@pytest.mark.parametrize("column", ["µs per step", "CPU s", "again [s]"])
def test_negative_times_are_not_saved(column, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    with pytest.raises(ValueError, match="negative time: run it again"):
        record.save("nonsmooth", [{column: 1.0}, {column: -43.0}], {})
    assert not list(tmp_path.iterdir())
