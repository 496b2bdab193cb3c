"""Import of optional packages."""

import importlib
from types import ModuleType

from ._errors import MissingPackageError


def extra_package(package: str, extra: str, needed_by: str) -> ModuleType:
    """Import ``package``. If it is missing, ``MissingPackageError`` says how to install it as ``extra`` of ukjax."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingPackageError(f"{needed_by} needs the package {package}: pip install 'ukjax[{extra}]'") from None
