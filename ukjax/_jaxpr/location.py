"""The line of source code from which an operation of a jaxpr was traced."""

from pathlib import Path
from typing import Any, NamedTuple

import equinox
import jax
import jaxtyping

LIBRARY = str(Path(__file__).parents[1])
MODELS = str(Path(LIBRARY, "systems"))  # part of the library, but reported like models of users
INFRASTRUCTURE = tuple(str(Path(str(module.__file__)).parent) for module in (jax, equinox, jaxtyping)) + ("<@beartype",)
"""Files whose stack frames are skipped when the author of an operation is searched."""


class SourceLocation(NamedTuple):
    """A line of source code."""

    file: str
    line: int
    function: str

    def is_of_library(self) -> bool:
        return self.file.startswith(LIBRARY) and not self.file.startswith(MODELS)


def location_of(equation: Any) -> SourceLocation | None:
    """The line from which an ``equation`` of a jaxpr was traced, if JAX has recorded it."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if not frame.file_name.startswith(INFRASTRUCTURE):
            return SourceLocation(frame.file_name, frame.line_num, short_name(frame.function_name))
    return None


def short_name(name: str) -> str:
    """``g`` for ``f.<locals>.g``."""
    return name.split("<locals>.")[-1]
