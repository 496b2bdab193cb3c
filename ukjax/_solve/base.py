"""Interfaces of a solver of M q̈ + Aᵀν = Q, A q̈ = b, and of the factorisation that it returns."""

import abc
import functools
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._check import as_number, repr_of
from .._errors import InputError
from .scales import coordinate_scale


class AbstractFactorisation(eqx.Module):
    """Factorisation of a constrained system: it evaluates q̈ = W Q + K b for any Q and b.

    W (n, n) is the constrained inverse mass matrix, with A W = 0. P = A A⁺ (m, m) projects b onto the range of A. K b
    is the solution of A q̈ = P b that is smallest in the metric of M, K (n, m).

    Attributes
    ----------
    kept
        (m,) True for the independent rows of A.
    rank
        () the number of independent rows.
    needs_fallback
        () True if the system is outside the scope of the method, so that the result may be wrong.
    assumes_consistent
        True if b is assumed to lie in the range of A, so that it is not projected.
    """

    kept: eqx.AbstractVar[Bool[Array, " m"]]
    rank: eqx.AbstractVar[Int[Array, ""]]
    if TYPE_CHECKING:  # type checkers treat an AbstractVar as an argument of __init__, which a property is not

        @property
        def needs_fallback(self) -> Bool[Array, ""]: ...
        @property
        def assumes_consistent(self) -> bool: ...
    else:
        needs_fallback: eqx.AbstractVar[Bool[Array, ""]]
        assumes_consistent: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        """Return W force + K rows, for ``rows`` in the range of A."""

    @abc.abstractmethod
    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return Kᵀ force: a solution λ of Aᵀλ = force, if one exists."""

    def motion_and_multipliers(
        self, M: Float[Array, "n n"], force: Float[Array, " n"], rows: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """Solve M x + Aᵀν = force, A x = rows for x and ν, for ``rows`` in the range of A."""
        x = self.motion(force, rows)
        return x, self.multipliers(force - M @ x)

    def independence(self, M: Any, A: Any) -> Float[Array, ""]:
        """Length of the part of an active row that is independent of other rows, of the row where it is shortest,
        relative to the longest row, in the metric of M. Infinite for one row, and for a method that returns NaN near
        dependent rows."""
        return jnp.asarray(jnp.inf)

    @abc.abstractmethod
    def rhs_defect(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return P rows − rows, zero for ``rows`` in the range of A."""

    @abc.abstractmethod
    def factor(self) -> Float[Array, "n n"]:
        """Return F (n, n) with F Fᵀ = W."""


class DenseFactorisation(AbstractFactorisation):
    """Factorisation as dense matrices: W = ``root`` rootᵀ, K = ``gain``, P = ``reachable``."""

    root: Float[Array, "n n"]
    gain: Float[Array, "n m"]
    reachable: Float[Array, "m m"]
    kept: Bool[Array, " m"]
    rank: Int[Array, ""]
    assumes_consistent: ClassVar[bool] = False

    @property
    def needs_fallback(self) -> Bool[Array, ""]:
        return jnp.asarray(False)

    def motion(self, force: Float[Array, " n"], rows: Float[Array, " m"]) -> Float[Array, " n"]:
        return self.root @ (force @ self.root) + self.gain @ rows

    def multipliers(self, force: Float[Array, " n"]) -> Float[Array, " m"]:
        return force @ self.gain

    def independence(self, M: Any, A: Any) -> Float[Array, ""]:
        if len(A) < 2:
            return jnp.asarray(jnp.inf, A.dtype)
        # A column of the gain is as long as 1 over the independent part of its row.
        unit = coordinate_scale(M)
        longest_row = jnp.max(jnp.sum((A * unit) ** 2, axis=1))
        longest_column = jnp.max(jnp.sum((self.gain / unit[:, None]) ** 2, axis=0))
        return 1 / jnp.sqrt(longest_row * longest_column)

    def rhs_defect(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        return self.reachable @ rows - rows

    def factor(self) -> Float[Array, "n n"]:
        return self.root


def check_rank_rule(rtol: Any, kept: Any) -> None:
    """Raise ``InputError`` unless ``rtol`` is None or in (0, 1), and ``kept`` is None or a boolean array.

    Any other ``rtol`` would make all rows independent, or none."""
    if rtol is not None:
        as_number("rtol", rtol, above=0, below=1)
    if kept is not None and not jnp.issubdtype(getattr(kept, "dtype", float), jnp.bool_):
        raise InputError(f"kept must be a boolean array of shape (m,), one entry per row, got {repr_of(kept)}")


class AbstractMethod(eqx.Module):
    """Abstract solver: factorises (M, A).

    A factorisation is never differentiated; ``implicit.py`` has the derivative rule. Methods that determine the rank
    raise ``InputError`` for a tolerance outside (0, 1).

    Attributes
    ----------
    finds_rank
        True if the method detects redundant rows, so that ``active`` selects some of them.
    is_sparse
        True if the method runs in JAX loops over the parts of a system; other methods are compiled as kernels.
    same_rows_at_every_level
        True if the same rows are active for positions, velocities and accelerations.
    """

    is_sparse: ClassVar[bool] = False
    same_rows_at_every_level: ClassVar[bool] = True

    @property
    def has_fallback(self) -> bool:
        """Whether the integrator repeats a step by another method if ``needs_fallback`` of a factorisation is True."""
        return False

    def fast_path(self) -> "AbstractMethod | None":
        """Return a faster method to try first, or None. It compiles and runs faster than this one and sets
        ``needs_fallback`` when its result may be wrong."""
        return None

    @abc.abstractmethod
    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> AbstractFactorisation:
        """Factorise the system with mass matrix M (n, n) and constraint rows A (m, n).

        The result maps a force Q (n,) and a right-hand side b (m,) to the acceleration W Q + K P b.
        """

    if TYPE_CHECKING:

        @property
        def finds_rank(self) -> bool: ...
    else:
        finds_rank: eqx.AbstractVar[bool]

    def active(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> "AbstractMethod":
        """Return this method restricted to the rows that are independent for (M, A)."""
        return self.with_active_rows(self.factorise(M, A).kept)

    @abc.abstractmethod
    def with_active_rows(self, kept: Bool[Array, " m"]) -> "AbstractMethod":
        """Return this method restricted to the rows ``kept``; methods that do not select rows return themselves.

        Rows that are redundant on the constraint manifold can be independent off the manifold, where the stages of an
        integrator and the iterates of Newton's method lie. Treating them as independent there gives huge
        accelerations.
        """


def has_fast_path(method: AbstractMethod) -> bool:
    """Return whether a method has a ``fast_path``."""
    try:
        return _has_fast_path(method)
    except TypeError:  # a method with arrays is not hashable
        return method.fast_path() is not None


@functools.lru_cache(maxsize=64)
def _has_fast_path(method):
    return method.fast_path() is not None
