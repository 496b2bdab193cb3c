"""XML whose elements know their lines. Nothing in a file is fetched, expanded or run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np


class Element(ElementTree.Element):
    """One of a file's, with the ``line`` that it begins in."""

    line: int


class Place(NamedTuple):
    """Where something is said: what an error begins with. The line is None inside of a file that is included."""

    path: Path
    line: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.path}, {'included file' if self.line is None else f'line {self.line}'}: {self.what}"

    def error(self, words: str) -> ValueError:
        """What is wrong there."""
        return ValueError(f"{self} {words}")

    @contextlib.contextmanager
    def prefix_errors(self) -> Iterator[None]:
        """For what is refused inside."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None


def place_of(path: Path, element: Element) -> Place:
    """With the element's tag and name."""
    name = element.get("name")
    return Place(path, element.line, f"<{element.tag}>" if name is None else f"<{element.tag} name={name!r}>")


def parse(path: Path) -> Element:
    """The root of the tree, or ``ValueError`` for what is no XML, and for files with a document type: it is what
    entities are declared in, which can grow without end or read other files."""
    parser = expat.ParserCreate()
    builder = ElementTree.TreeBuilder(element_factory=Element)

    def begin(tag: str, attributes: dict[str, str]) -> None:
        element = builder.start(tag, attributes)
        assert isinstance(element, Element)
        element.line = parser.CurrentLineNumber

    def refuse(*_) -> None:
        raise ValueError(
            f"{path}, line {parser.CurrentLineNumber}: <!DOCTYPE ...> is refused, since it can declare entities that "
            "grow without end or read other files: remove it"
        )

    parser.StartElementHandler = begin
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(_without_margin(path.read_bytes()), True)
    except expat.ExpatError as error:
        raise ValueError(f"{path}, line {error.lineno}: no whole XML file: {expat.ErrorString(error.code)}") from None
    root = builder.close()
    assert isinstance(root, Element)
    return root


def _without_margin(content: bytes) -> bytes:
    """Blank lines before ``<?xml`` are behind it, where XML allows them, with as many lines before each element."""
    begun = content.lstrip()
    if not begun.startswith(b"<?xml") or begun is content:
        return content
    declaration, end, rest = begun.partition(b"?>")
    return declaration + end + b"\n" * content[: len(content) - len(begun)].count(b"\n") + rest


def numbers_of(place: Place, element: Element, name: str, count: int, default: str | None = None) -> np.ndarray:
    """So many numbers of an attribute, or ``ValueError``."""
    text = element.get(name, default)
    if text is None:
        raise place.error(f"needs {name}={_wanted(count)}")
    try:
        found = np.array([float(word) for word in text.split()])
    except ValueError:
        found = np.zeros(0)
    if found.size != count or not np.all(np.isfinite(found)):
        raise place.error(f"must have {name}={_wanted(count)}, got {name}={text!r}")
    return found


def number_of(place: Place, element: Element, name: str, default: str | None = None) -> float:
    """One of them."""
    return float(numbers_of(place, element, name, 1, default)[0])


def _wanted(count):
    return '"..." (a number)' if count == 1 else f'"..." ({count} numbers)'
