"""An XML parser that stores the line of each element. It reads no other files and expands no entities."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from .._errors import InputError


class Element(ElementTree.Element):
    """An XML element with the ``line`` at which it begins."""

    line: int


class Place(NamedTuple):
    """The place of an element in a file, for error messages. The line is None in an included file."""

    path: Path
    line: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.path}, {'included file' if self.line is None else f'line {self.line}'}: {self.what}"

    def error(self, message: str) -> InputError:
        """An error with the place as prefix."""
        return InputError(f"{self} {message}")

    @contextlib.contextmanager
    def prefix_errors(self) -> Iterator[None]:
        """Context manager that prefixes an ``InputError`` with the place."""
        try:
            yield
        except ValueError as error:
            raise InputError(f"{self}: {error}") from None


def place_of(path: Path, element: Element) -> Place:
    """The place of an element, described by its tag and name."""
    name = element.get("name")
    return Place(path, element.line, f"<{element.tag}>" if name is None else f"<{element.tag} name={name!r}>")


def parse(path: Path) -> Element:
    """Parse an XML file; returns the root element.

    Raises ``InputError`` for a file that is not XML, and for a document type declaration, which can define entities
    that grow without bound or read other files.
    """
    parser = expat.ParserCreate()
    builder = ElementTree.TreeBuilder(element_factory=Element)

    def on_start(tag: str, attributes: dict[str, str]) -> None:
        element = builder.start(tag, attributes)
        assert isinstance(element, Element)
        element.line = parser.CurrentLineNumber

    def on_doctype(*_) -> None:
        raise InputError(
            f"{path}, line {parser.CurrentLineNumber}: <!DOCTYPE ...> is refused, since it can declare entities that "
            "grow without end or read other files: remove it"
        )

    parser.StartElementHandler = on_start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = on_doctype
    try:
        parser.Parse(_without_margin(path.read_bytes()), True)
    except expat.ExpatError as error:
        raise InputError(
            f"{path}, line {error.lineno}: not a complete XML file: {expat.ErrorString(error.code)}"
        ) from None
    root = builder.close()
    assert isinstance(root, Element)
    return root


def _without_margin(content: bytes) -> bytes:
    """Move blank lines before the declaration ``<?xml ...?>`` to after it, since XML allows none before it.

    The line numbers of elements do not change.
    """
    stripped = content.lstrip()
    if not stripped.startswith(b"<?xml") or stripped is content:
        return content
    declaration, end, rest = stripped.partition(b"?>")
    return declaration + end + b"\n" * content[: len(content) - len(stripped)].count(b"\n") + rest


def numbers_of(place: Place, element: Element, name: str, count: int, default: str | None = None) -> np.ndarray:
    """The ``count`` numbers of an attribute. Raises ``InputError`` if it has others."""
    text = element.get(name, default)
    if text is None:
        raise place.error(f"needs {name}={_wanted(count)}")
    try:
        numbers = np.array([float(word) for word in text.split()])
    except ValueError:
        numbers = np.zeros(0)
    if numbers.size != count or not np.all(np.isfinite(numbers)):
        raise place.error(f"must have {name}={_wanted(count)}, got {name}={text!r}")
    return numbers


def number_of(place: Place, element: Element, name: str, default: str | None = None) -> float:
    """The number of an attribute. Raises ``InputError`` if it has others."""
    return float(numbers_of(place, element, name, 1, default)[0])


def _wanted(count):
    return '"..." (a number)' if count == 1 else f'"..." ({count} numbers)'
