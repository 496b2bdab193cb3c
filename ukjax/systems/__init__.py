"""The gallery: one file per mechanism, with its drawing, its source and its parameters in SI units."""

import importlib

import lazy_loader

from .._names import did_you_mean
from .catalogue import CATALOGUE as CATALOGUE
from .catalogue import Entry as Entry

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def named(name: str):
    """The mechanism of that name, with its source's parameters. Raises ``ValueError`` if there is none."""
    if not isinstance(name, str):
        raise ValueError(f"name must be that of a system, such as 'pendulum', got {name!r}")
    if name not in CATALOGUE:
        raise ValueError(f"no system is named {name!r}{did_you_mean(name, CATALOGUE)} `ukjax list` shows all")
    entry = CATALOGUE[name]
    return getattr(importlib.import_module(f"{__name__}.{name}"), entry.cls)()
