"""What a reader of MJCF has at hand."""

from pathlib import Path
from typing import Any, NamedTuple

from .._mechanism import Body
from .contents import Words
from .markup import Place


class Reading(NamedTuple):
    """A file as MuJoCo reads it, and what has been made of it so far.

    ``flags`` are what its disableflags mean; ``starts`` joints in the order of its coordinates, and how many each has.
    """

    path: Path
    spec: Any
    flags: Any
    words: Words
    names: Words
    bodies: dict[str, Body]
    joints: dict[str, Any]
    places: dict[str, Place]
    starts: list[tuple[str, int]]

    def place(self, element: Any, tag: str) -> Place:
        """Where an element is, as far as MuJoCo says: not inside of files that are included."""
        line = int(element.info.removeprefix("line ") or 0) if element.info.startswith("line ") else 0
        name = getattr(element, "name", "")
        return Place(self.path, line or None, f"<{tag} name={name!r}>" if name else f"<{tag}>")

    def is_off(self, flag: str) -> bool:
        """Whether <flag> disables it."""
        return bool(self.spec.option.disableflags & int(getattr(self.flags, f"mjDSBL_{flag.upper()}")))

    def word(self, body: Any) -> str:
        """What we call a body."""
        return "ground" if body.name == "world" else self.words[body.name]
