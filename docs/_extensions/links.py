"""Links from names in the text to the reference: ``uk.simulate`` in a page, ``Trajectory.reached`` in a docstring.

A name that has no page in the reference stays as it is.
"""

import importlib
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

MODULES = ("", "joints", "contacts", "control", "systems", "verify")
IN_A_PAGE = re.compile(r"(?:uk|ukjax)\.([a-zA-Z_.]+)(?:\(.*\))?")
IN_A_DOCSTRING = re.compile(r"([A-Z][a-zA-Z0-9]+|[a-z_]+)(\.[a-z_]+)?(?:\(\))?")
ALSO_OTHER_THINGS = {"acceleration", "load", "monodromy", "step", "view"}
"""Functions whose names are also those of fields or arguments."""


def public_names() -> dict[str, str]:
    """The full name of each public class and function. A name of ``ukjax`` itself goes before one of its modules."""
    found: dict[str, str] = {}
    for module in MODULES:
        full = f"ukjax.{module}".rstrip(".")
        for name in dir(importlib.import_module(full)):
            if not name.startswith("_") and (not module or name[0].isupper()):
                found.setdefault(name, f"{full}.{name}")
    return {name: full for name, full in found.items() if name not in ALSO_OTHER_THINGS}


NAMES = public_names()


def target(text: str, in_docstring: bool) -> str | None:
    """The full name of what ``text`` names, or None."""
    if found := IN_A_PAGE.fullmatch(text):
        return f"ukjax.{found[1]}"
    if in_docstring and (found := IN_A_DOCSTRING.fullmatch(text)) and found[1] in NAMES:
        return NAMES[found[1]] + (found[2] or "")
    return None


def add_links(app: Sphinx, document: nodes.document) -> None:
    for literal in list(document.findall(nodes.literal)):
        above, parent = [], literal.parent
        while parent is not None:
            above.append(type(parent))
            parent = parent.parent
        if any(issubclass(kind, nodes.reference | nodes.title | addnodes.pending_xref) for kind in above):
            continue
        full = target(literal.astext(), addnodes.desc in above)
        if full is not None:
            link = addnodes.pending_xref("", refdomain="py", reftype="obj", reftarget=full, refwarn=False)
            literal.replace_self(link)
            link += literal


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
