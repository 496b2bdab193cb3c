"""Table of the solver methods by name."""

import functools

from .._check import repr_of
from .._errors import InputError
from .._names import did_you_mean
from .base import AbstractMethod
from .cholesky import Cholesky
from .kkt import KKT
from .orthogonal import Orthogonal
from .sparse import Sparse
from .svd import SVD
from .udwadia_phohomsiri import UdwadiaPhohomsiri

METHODS: dict[str, type[AbstractMethod]] = {
    "orthogonal": Orthogonal,
    "cholesky": Cholesky,
    "svd": SVD,
    "kkt": KKT,
    "udwadia_phohomsiri": UdwadiaPhohomsiri,
    "sparse": Sparse,
}


def choose(method: str | AbstractMethod) -> AbstractMethod:
    """Return ``method`` if it is a method object, or the method of that name with its default tolerance.

    Raises ``InputError`` for anything else.
    """
    if isinstance(method, AbstractMethod):
        return method
    if not isinstance(method, str) or method not in METHODS:
        suggestion = did_you_mean(method, METHODS).rstrip(".") if isinstance(method, str) else ""
        raise InputError(
            f"method must be one of {', '.join(METHODS)} or a method object such as ukjax.Orthogonal(rtol=1e-6), "
            f"got {repr_of(method)}{suggestion}"
        )
    return _default_method(method)


@functools.cache
def _default_method(name):
    return METHODS[name]()
