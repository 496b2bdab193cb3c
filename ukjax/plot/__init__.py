"""Figures and animations, with matplotlib (``pip install 'ukjax[plot]'``), imported when first drawn."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
