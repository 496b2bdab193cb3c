"""Pages of the gallery, one per system of ``ukjax.systems.CATALOGUE``, and the cards of its front page.

A page has the moving picture, the source, the commands, the measured numbers, the docstring, and those of the classes
from which the system inherits its equations. If
``python docs/pictures.py`` has been run, the picture is a page of ``uk.view``.
"""

import json
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from ukjax import systems
from ukjax.systems import CATALOGUE, Entry

PAGE = """# {entry.title}

{picture}

Source: {entry.source}.

```bash
ukjax view {entry.name}                # open the moving picture
ukjax run {entry.name} --plot          # simulate it and draw figures
ukjax explore {entry.name}             # change its parameters and its start by sliders
```

{numbers}

In Python: `uk.systems.{entry.cls}()`. Its parameters, with their default values, are its arguments.

```{{eval-rst}}
.. currentmodule:: ukjax.systems

.. autoclass:: {entry.cls}
   :no-members:
```
{bases}"""

BASE = """
```{{eval-rst}}
.. currentmodule:: {base.__module__}

.. autoclass:: {base.__name__}
   :no-members:
   :no-index:
```
"""

PICTURE = """```{{image}} ../pictures/{entry.name}.svg
:alt: {entry.title}
:align: center
:class: drawing
```"""

MOVING = """<iframe class="moving-picture" title="{entry.title}" loading="lazy"
        src="../views/{entry.name}.html"></iframe>"""

CARD = """:::{{grid-item-card}} {entry.title}
:link: systems/{entry.name}
:link-type: doc
:img-top: pictures/{entry.name}.png

`{entry.name}`
:::
"""


NUMBERS = (
    ("residual", "largest residual of a constraint"),
    ("error", "largest error of q against the exact motion"),
)
"""Columns of the results of the benchmark ``gallery``, and what they are."""


def page(entry: Entry, moving: bool, results: dict[str, Any]) -> str:
    picture = (MOVING if moving else PICTURE).format(entry=entry)
    return PAGE.format(entry=entry, picture=picture, numbers=numbers(entry.name, results), bases=bases(entry))


def bases(entry: Entry) -> str:
    """The docstrings of the classes between that of a system and ``AbstractMechanism``."""
    above = [base for base in getattr(systems, entry.cls).__mro__[1:] if issubclass(base, systems.AbstractMechanism)]
    return "".join(BASE.format(base=base) for base in above if base is not systems.AbstractMechanism)


def numbers(name: str, results: dict[str, Any]) -> str:
    """The measured numbers of a system, from ``benchmarks/results/gallery.json``."""
    found = next((row for row in results["rows"] if row["system"] == name), None)
    if found is None:
        return ""
    lines = ["| over the time span of its source | |", "|---|---|"]
    lines += [f"| {words} | {found[key]:.1g} |" for key, words in NUMBERS if found.get(key) is not None]
    return "\n".join(
        [*lines, "", f"Measured by the benchmark `gallery` at commit {results['commit']}, {results['date']}."]
    )


def write_pages(app: Sphinx) -> None:
    gallery = Path(app.srcdir) / "gallery"
    results = json.loads((Path(app.srcdir).parent / "benchmarks" / "results" / "gallery.json").read_text())
    pages = {"cards.txt": "::::{grid} 2 3 3 4\n:gutter: 3\n\n" + "\n".join(map(_card, CATALOGUE.values())) + "::::\n"}
    (gallery / "systems").mkdir(exist_ok=True)
    for entry in CATALOGUE.values():
        moving = (Path(app.srcdir) / "_extra" / "gallery" / "views" / f"{entry.name}.html").is_file()
        pages[f"systems/{entry.name}.md"] = page(entry, moving, results)
    for name, text in pages.items():
        path = gallery / name
        if not path.is_file() or path.read_text() != text:  # a page that has not changed is not built again
            path.write_text(text)


def _card(entry: Entry) -> str:
    return CARD.format(entry=entry)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages, priority=100)  # before autosummary looks for pages
    return {"parallel_read_safe": True, "parallel_write_safe": True}
