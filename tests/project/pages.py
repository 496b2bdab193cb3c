"""The README and the pages of the documentation, as lists of code blocks."""

import contextlib
import io
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
MADE_BY_THE_BUILD = (
    "_build",
    "_extra",
    "_templates",
    "jupyter_execute",
    "notebooks",
    "reference/generated",
    "gallery/systems",
)

FENCE = re.compile(
    r"(?:^<!-- (?P<name>[^\n]*?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the comment above it."""

    language: str
    text: str
    name: str | None


def pages() -> list[Path]:
    """Return the README and all hand-written pages."""
    made = tuple(str(DOCS / folder) for folder in MADE_BY_THE_BUILD)
    return [README, *(page for page in sorted(DOCS.rglob("*.md")) if not str(page).startswith(made))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(found["language"], found["text"], found["name"]) for found in FENCE.finditer(page.read_text())]


def code(page: Path) -> list[tuple[Block, str | None]]:
    """Return the Python blocks to run, each with the output that the page shows below it, or None."""
    found = blocks(page)
    outputs = [*found, Block("", "", None)][1:]
    return [
        (block, after.text if after.name == "output" else None)
        for block, after in zip(found, outputs, strict=True)
        if block.language == "python" and block.name != "not run"
    ]


def run(block: Block, names: dict, page: Path) -> str:
    """Run a block with the variables ``names``, and return its output."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block.text, f"{page.name}: {block.text.splitlines()[0]}", "exec"), names)
    return printed.getvalue()


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def words(text: str) -> list[str]:
    """Return the text without numbers and spaces."""
    return re.sub(r"[\s\[\](),.]+", " ", NUMBER.sub("#", text)).split()
