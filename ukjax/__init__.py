"""ukjax: exact constrained motion, its forces and its gradients, by the Udwadia–Kalaba equation on JAX.

The public names are listed in ``__init__.pyi`` and imported when first used, so that the command line answers a
``--help`` without waiting for JAX.
"""

import lazy_loader

from ._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
