"""ukjax: exact constrained motion, its forces and its gradients, by the Udwadia–Kalaba equation on JAX.

The public names are listed in ``__init__.pyi`` and imported on first use, so that ``ukjax --help`` does not import JAX.
"""

import lazy_loader

from ._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
