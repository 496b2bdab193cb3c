"""Names: those that a user gives, and what may have been meant by one that is not known."""

import difflib
from collections.abc import Iterable, Sequence


def names_and_units(what: str, given: Iterable[Sequence[str]] | None) -> tuple[tuple[str, str], ...] | None:
    """What a user wrote for ``what`` as ``[("u1", "N m"), ...]``, as a constant that a static field can hold, or
    ``ValueError`` for what are no pairs of words, and for a name that is given twice."""
    if given is None:
        return None
    pairs = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(word, str) for word in pair)):
            raise ValueError(
                f"{what} must be pairs of a name and a unit, such as [('x', 'm'), ('theta', 'rad')], got {pair!r}"
            )
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what} must have a name each, got {name!r} twice")
    return tuple((name, unit) for name, unit in pairs)


def name_of_rows(given: str | Iterable[str]) -> str | tuple[str, ...]:
    """What a user calls a constraint: one name for all its rows, or one for each; ``ValueError`` for anything else."""
    if isinstance(given, str):
        return given
    names = tuple(given) if isinstance(given, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"name must be a word, or one for each row, ('left', 'right'), got {given!r}")
    return names


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a ``name`` that is not among the ``known``: the one it is most like, if any is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else "."
