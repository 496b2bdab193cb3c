"""Report functions that cannot be compiled as one kernel, and the line of the model that is the cause.

Such a function is executed by ``jax.vmap``, which is many times slower. A warning is given once per line and
primitive. With ``strict`` it is an error.
"""

import inspect
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from .._errors import InputError
from .._jaxpr.location import SourceLocation, location_of, short_name


class KernelOptions(NamedTuple):
    """Options of a ``per_member`` call.

    strict: raise an error if the function cannot be compiled as one kernel.
    origin: where the function is defined.
    without_kernel: execute the function by ``jax.vmap``, without a kernel.
    joint_jvp: in forward mode, compute results and tangents by one operation.
    primal: in such an operation, the numbers of arguments and of results that are not tangents. They come first.
    """

    strict: bool
    origin: SourceLocation
    without_kernel: bool = False
    joint_jvp: bool = False
    primal: tuple[int, int] = (0, 0)


class Unsupported(Exception):
    """An operation that cannot be part of a kernel, such as a solver of LAPACK.

    primitive: its name in JAX; None for an argument of the function.
    location: the line of the operation, if JAX has recorded it.
    """

    primitive: str | None = None
    location: SourceLocation | None = None

    def add_location(self, equation: Any) -> None:
        """Record the ``equation`` of a jaxpr that is the cause. Called first for the innermost equation; later calls
        only set missing values."""
        self.primitive = self.primitive or equation.primitive.name
        self.location = self.location or location_of(equation)


def origin(function: Callable) -> SourceLocation:
    """Where ``function`` is defined."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)  # of a functools.partial
    code = getattr(inner if hasattr(inner, "__code__") else type(inner).__call__, "__code__", None)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    if not isinstance(code, CodeType):
        return SourceLocation("<unknown>", 0, name)
    return SourceLocation(code.co_filename, code.co_firstlineno, short_name(name))


def report(error: Unsupported, options: KernelOptions) -> None:
    """Warn that a function is executed by ``jax.vmap``; with ``strict``, raise ``InputError`` instead."""
    location = error.location or options.origin
    cause = f"`{error.primitive}`" if error.primitive else "an argument"
    message = f"{cause} in {location.function} cannot be compiled as one kernel: {error}."
    if options.strict:
        raise InputError(f"{message} See {location.file}:{location.line}.") from error
    # No warning where the library itself calls such an operation: method="svd" is meant for checks.
    if options.origin.is_of_library() and location.is_of_library():
        return
    if location.is_of_library():
        location = options.origin
    if (cause, location) not in _WARNED:
        warnings.warn_explicit(
            f"{message} It is executed as by jax.vmap, often twenty times slower; "
            "uk.per_member(..., strict=True) makes this an error.",
            UserWarning,
            location.file,
            location.line,
        )
        _WARNED.add((cause, location))  # not reached if warnings are errors


_WARNED: set[tuple[str, SourceLocation]] = set()
"""Warnings given so far. Python's own registry is cleared by each change of warning filters, and JAX changes them."""


def raise_too_large(max_operations: int, options: KernelOptions) -> NoReturn:
    """Raise the error for a ``strict`` function that needs more than ``max_operations``."""
    raise InputError(
        f"{options.origin.function} needs more than {max_operations} operations, too many for one kernel: split it "
        f"into functions with their own uk.per_member. See {options.origin.file}:{options.origin.line}."
    )
