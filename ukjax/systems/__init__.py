"""The gallery: one file per mechanism, with its drawing, its source and its parameters in SI units."""

import difflib
import importlib

import lazy_loader

from .catalogue import CATALOGUE as CATALOGUE
from .catalogue import Entry as Entry

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def named(name: str):
    """The mechanism of that name, with its source's parameters. Raises ``ValueError`` if there is none."""
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=1)
        raise ValueError(
            f"no system is named {name!r}"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + " (ukjax list shows all)"
        )
    entry = CATALOGUE[name]
    return getattr(importlib.import_module(f"{__name__}.{name}"), entry.cls)()
