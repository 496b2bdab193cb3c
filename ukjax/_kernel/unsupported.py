"""What cannot be compiled as one kernel, where it stands, and how the user learns of it.

Such a function runs all the same, only many times slower. A warning says so once for each place and primitive, and
points at the line of the model. With ``strict`` it is an error.
"""

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, NoReturn

import equinox
import jax
import jaxtyping

LIBRARY = str(Path(__file__).parents[1])
MODELS = str(Path(LIBRARY, "systems"))  # the gallery: in the library, but models as any other
PLUMBING = tuple(str(Path(str(module.__file__)).parent) for module in (jax, equinox, jaxtyping)) + ("<@beartype",)
"""Whose lines are never the answer to: who wrote this operation?"""


class SourceLocation(NamedTuple):
    """A line of somebody's program."""

    file: str
    line: int
    function: str

    def is_of_library(self) -> bool:
        return self.file.startswith(LIBRARY) and not self.file.startswith(MODELS)


class KernelOptions(NamedTuple):
    """How a function wants to be done: whether it is an error that it cannot be compiled as a kernel; where it stands
    (``origin``); and whether it is to be done ``as_by_jax``, without a kernel."""

    strict: bool
    origin: SourceLocation
    as_by_jax: bool = False


class Unsupported(Exception):
    """An operation that cannot be part of a kernel, such as a sort or a solver of LAPACK.

    ``primitive`` is its name in JAX, None for an argument, and ``place`` where it was written, if JAX knows that.
    """

    primitive: str | None = None
    place: SourceLocation | None = None

    def note(self, equation: Any) -> None:
        """That it is in ``equation``, a line of a jaxpr; told of the innermost first."""
        self.primitive = self.primitive or equation.primitive.name
        self.place = self.place or location_of(equation)


def origin(function: Callable) -> SourceLocation:
    """Where ``function`` is defined."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "func", inner)  # of a functools.partial
    code = getattr(inner if hasattr(inner, "__code__") else type(inner).__call__, "__code__", None)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    if not isinstance(code, CodeType):
        return SourceLocation("<unknown>", 0, name)
    return SourceLocation(code.co_filename, code.co_firstlineno, _short(name))


def report(refusal: Unsupported, how: KernelOptions) -> None:
    """Say that a function is done as JAX would, or raise the ``ValueError`` that was asked for instead."""
    place = refusal.place or how.origin
    what = f"`{refusal.primitive}`" if refusal.primitive else "an argument"
    said = f"{what} in {place.function} cannot be compiled as one kernel: {refusal}."
    if how.strict:
        raise ValueError(f"{said} See {place.file}:{place.line}.") from refusal
    # The library's own functions on its own operations are what was asked for: method="svd" is for checks.
    if how.origin.is_of_library() and place.is_of_library():
        return
    if place.is_of_library():
        place = how.origin
    if (what, place) not in _SAID:
        warnings.warn_explicit(
            f"{said} It is done as by jax.vmap, often twenty times slower; "
            "uk.per_member(..., strict=True) makes this an error.",
            UserWarning,
            place.file,
            place.line,
        )
        _SAID.add((what, place))  # not if the warning was an error


_SAID: set[tuple[str, SourceLocation]] = set()
"""What was said already. Python's own memory of warnings is emptied whenever somebody changes its filters: JAX does."""


def refuse_length(most: int, how: KernelOptions) -> NoReturn:
    """The error for a ``strict`` function that needs more than ``most`` operations."""
    raise ValueError(
        f"{how.origin.function} needs more than {most} operations, too many for one kernel: do it in pieces, each "
        f"with its own uk.per_member. See {how.origin.file}:{how.origin.line}."
    )


def location_of(equation: Any) -> SourceLocation | None:
    """The line that wrote an ``equation`` of a jaxpr, if JAX knows it."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if not frame.file_name.startswith(PLUMBING):
            return SourceLocation(frame.file_name, frame.line_num, _short(frame.function_name))
    return None


def _short(name: str) -> str:
    """``g`` for ``f.<locals>.g``."""
    return name.split("<locals>.")[-1]
