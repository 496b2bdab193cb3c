"""The gallery of mechanisms: one file each, with drawing, source and parameters in SI units."""

import importlib

import lazy_loader

from .._errors import InputError
from .._names import did_you_mean
from .catalogue import CATALOGUE as CATALOGUE
from .catalogue import Entry as Entry

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def named(name: str):
    """Return a mechanism of the gallery, with the parameters of its source.

    Parameters
    ----------
    name
        Name in ``CATALOGUE``, such as "pendulum".

    Returns
    -------
    AbstractMechanism
        The mechanism.

    Raises
    ------
    InputError
        If there is no mechanism of that name.
    """
    if not isinstance(name, str):
        raise InputError(f"name must be that of a system, such as 'pendulum', got {name!r}")
    if name not in CATALOGUE:
        raise InputError(f"no system is named {name!r}{did_you_mean(name, CATALOGUE)} `ukjax list` shows all")
    entry = CATALOGUE[name]
    return getattr(importlib.import_module(f"{__name__}.{name}"), entry.cls)()
