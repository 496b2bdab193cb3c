"""Methods by name, for those who write a word rather than an object."""

import functools

from .._check import repr_of
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
    """The method itself, or the one of that name with its default tolerance."""
    if isinstance(method, AbstractMethod):
        return method
    if not isinstance(method, str) or method not in METHODS:
        meant = did_you_mean(method, METHODS).rstrip(".") if isinstance(method, str) else ""
        raise ValueError(
            f"method must be one of {', '.join(METHODS)} or a method object such as ukjax.Orthogonal(rtol=1e-6), "
            f"got {repr_of(method)}{meant}"
        )
    return _by_default(method)


@functools.cache
def _by_default(name):
    return METHODS[name]()
