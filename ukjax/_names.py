"""Checks of names, and suggestions for unknown ones."""

import difflib
from collections.abc import Iterable, Sequence

from ._errors import InputError


def names_and_units(what: str, given: Iterable[Sequence[str]] | None) -> tuple[tuple[str, str], ...] | None:
    """Convert pairs of a name and a unit, ``[("u1", "N m"), ...]``, to a hashable tuple. ``what`` is the argument name.

    Raises ``InputError`` if an item is not a pair of strings, or if a name occurs twice.
    """
    if given is None:
        return None
    pairs = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(word, str) for word in pair)):
            raise InputError(
                f"{what} must be pairs of a name and a unit, such as [('x', 'm'), ('theta', 'rad')], got {pair!r}"
            )
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{what} must have different names, got {name!r} twice")
    return tuple((name, unit) for name, unit in pairs)


def check_different(coordinates: Iterable[str], velocities: Iterable[str]) -> None:
    """Raise ``InputError`` if a coordinate has the name of a velocity."""
    both = set(coordinates) & set(velocities)
    if both:
        raise InputError(f"a coordinate and a velocity are both named {min(both)!r}: give the coordinate another name")


def name_of_rows(name_or_names: str | Iterable[str]) -> str | tuple[str, ...]:
    """Check the name of a constraint: one string, or one string for each row. Raises ``InputError`` otherwise."""
    if isinstance(name_or_names, str):
        return name_or_names
    names = tuple(name_or_names) if isinstance(name_or_names, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"name must be a word, or one for each row, ('left', 'right'), got {name_or_names!r}")
    return names


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to ``name``, or None if none is similar. The case of letters is ignored."""
    known = {each.lower(): each for each in reversed(list(known))}  # the first of several equal names
    matches = difflib.get_close_matches(name.lower(), list(known), n=1)
    return known[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error sentence: "; did you mean ...?" with the known name closest to ``name``, or "."."""
    match = closest(name, known)
    return "." if match is None else f"; did you mean {match!r}?"


def did_you_mean_one_of(name: str, known: Iterable[str]) -> str:
    """Return the end of an error sentence as ``did_you_mean``, followed by the list of all known names."""
    known = list(known)
    return f"{did_you_mean(name, known)} There are: {', '.join(known) or 'none'}"
