"""Docstrings are written to be read in a terminal. This makes reStructuredText of them.

- An indented block is an equation: it becomes a literal block.
- A table between bars becomes a ``list-table``.
- A bar is a bar, as in |x|, not a substitution.
- The first line of a property is not ``type: description``, as napoleon reads it.
- "Attributes" is not called "Variables".
- A default value of a parameter is its number, not ``<factory>``, or ``...`` for many numbers, and ``{}``, not a proxy
  of it.
"""

import dataclasses
import re
from typing import Any

import numpy as np
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

OUTSIDE_LITERALS = re.compile(r"(``.*?``)")
BAR = re.compile(r"(?<!\\)\|")
MOST_NUMBERS = 12
"""Most entries of a default value that are shown."""
COLON = "\ue000"
"""Stands for a colon while napoleon reads the first line of a property."""


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def list_table(rows: list[str]) -> list[str]:
    """The lines of a table, of which the second separates the head from the body."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        cells = [cell.strip() for cell in BAR.split(row.strip())[1:-1]]
        lines += [f"   {'*' if k == 0 else ' '} - {cell}" for k, cell in enumerate(cells)]
    return [*lines, ""]


def rewritten(lines: list[str]) -> list[str]:
    result: list[str] = []
    above = ""  # the last line that is not blank
    literal = None  # the indentation of the line above a literal block, while inside of the block
    k = 0
    while k < len(lines):
        line = lines[k]
        if literal is not None and line.strip() and indentation(line) <= literal:
            literal = None
        if literal is not None or line.lstrip().startswith((">>>", "...")):
            result.append(line)
        elif line.startswith("|"):
            end = next((i for i in range(k, len(lines)) if not lines[i].startswith("|")), len(lines))
            result += list_table(lines[k:end])
            k = end - 1
        elif line.strip():
            is_block = indentation(line) > indentation(above) and bool(result) and not result[-1].strip()
            if above.endswith("::") and indentation(line) > indentation(above):
                literal = indentation(above)
            elif is_block and not line.lstrip().startswith(("-", "*", "1.")):
                literal = indentation(above)
                result += [" " * literal + "::", ""]
            if literal is None:
                parts = OUTSIDE_LITERALS.split(line)
                line = "".join(part if part.startswith("``") else BAR.sub(r"\\|", part) for part in parts)
            result.append(line)
        else:
            result.append(line)
        if lines[k].strip():
            above = lines[k]
        k += 1
    return result


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = rewritten(lines)
    if what in ("attribute", "property", "data") and lines:
        lines[0] = lines[0].replace(":", COLON)


def with_colons(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]


def with_numbers(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    if not signature:
        return None
    signature = signature.replace("mappingproxy({})", "{}")
    if "=<factory>" not in signature:
        return signature, returns
    for field in dataclasses.fields(obj):
        if field.default_factory is not dataclasses.MISSING:
            value = np.asarray(field.default_factory())
            text = f"{float(value):g}" if value.ndim == 0 else "[" + ", ".join(f"{x:g}" for x in value.ravel()) + "]"
            text = text if value.size <= MOST_NUMBERS else "..."
            signature = re.sub(rf"\b{field.name}=<factory>", f"{field.name}={text}", signature)
    return signature, returns


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", with_colons, priority=900)  # after napoleon
    app.connect("autodoc-process-signature", with_numbers)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
