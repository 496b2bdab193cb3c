"""Names: those that a user gives, and what may have been meant by one that is not known."""

import difflib
from collections.abc import Iterable, Sequence


def names_and_units(given: Iterable[Sequence[str]] | None) -> tuple[tuple[str, str], ...] | None:
    """What a user wrote as ``[("u1", "N m"), ...]``, as a constant that a static field can hold."""
    return None if given is None else tuple((name, unit) for name, unit in given)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a ``name`` that is not among the ``known``: the one it is most like, if any is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."
