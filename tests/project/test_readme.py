"""The README has the two commands that CI runs, and no number that the saved results do not contain."""

import re

from benchmarks import readme

from .pages import README


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
