"""Figures and animations with matplotlib (``pip install 'ukjax[plot]'``), which is imported on first use."""

from typing import Any

import lazy_loader

from .._extras import extra_package

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        extra_package("matplotlib", "plot", f"ukjax.plot.{name}")
    return _attribute(name)
