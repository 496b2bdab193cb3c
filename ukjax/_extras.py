"""Packages that are needed for some things only."""

import importlib
from types import ModuleType


def extra_package(package: str, extra: str, needed_by: str) -> ModuleType:
    """The ``package``, or an ``ImportError`` that says how to install it: as the ``extra`` of ukjax."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"{needed_by} needs the package {package}: pip install 'ukjax[{extra}]'") from None
