"""Collections whose members are accessible by name: ``bodies.crank``, ``joints["elbow"]``."""

import keyword
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array

from .._check import as_array, check_finite, kind_of, repr_of
from .._errors import InputError
from .._names import did_you_mean

Kind = TypeVar("Kind")


class Named(eqx.Module, Generic[Kind]):
    """An ordered, immutable dictionary that is a pytree and whose members are also attributes."""

    names: tuple[str, ...] = eqx.field(static=True)
    things: tuple[Kind, ...]

    @classmethod
    def of(cls, what: str, members: Any, kind: type | tuple[type, ...], example: str) -> "Named":
        """Create a collection from a dictionary, name -> object of type ``kind``.

        Raises ``InputError`` for anything else; ``what`` and ``example`` describe the argument in the message.
        """
        if isinstance(members, Named):
            members = dict(members.items())
        if not isinstance(members, Mapping):
            raise InputError(f"{what} must be a dictionary, name -> {example}, got {repr_of(members)}")
        for name, thing in members.items():
            _check_name(what, name)
            if not isinstance(thing, kind):
                raise InputError(f"{what}[{name!r}] must be {example}, got {kind_of(thing)}")
        return cls(tuple(members), tuple(members.values()))

    def items(self) -> Iterator[tuple[str, Kind]]:
        """Pairs of name and member, in order."""
        return zip(self.names, self.things, strict=True)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Kind:
        if name not in self.names:
            raise KeyError(f"nothing is named {name!r}{did_you_mean(str(name), self.names)}")
        return self.things[self.names.index(name)]

    def __getattr__(self, name: str) -> Kind:
        if name.startswith("_") or name in ("names", "things"):  # also of a copy that has no fields yet
            raise AttributeError(name)
        if name not in self.names:
            raise AttributeError(f"nothing is named {name!r}{did_you_mean(name, self.names)}")
        return self.things[self.names.index(name)]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]

    def _asdict(self) -> dict[str, Kind]:
        """The members as a dictionary, as for a named tuple."""
        return dict(self.items())


def numbers_by_name(what: str, values: Any, example: str) -> dict[str, Array]:
    """Convert a user's dictionary, name -> number, to arrays; None is an empty dictionary.

    Raises ``InputError`` for anything else, and for numbers that are not finite.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise InputError(
            f"{what} must be a dictionary, name -> number, such as {{{example!r}: 0.3}}, got {repr_of(values)}"
        )
    arrays = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise InputError(f"{what} must be a dictionary, name -> number, got the name {repr_of(name)}")
        array = as_array(f"{what}[{name!r}]", value, "one number")
        if array.size != 1:
            raise InputError(f"{what}[{name!r}] must be one number, got shape {array.shape}")
        check_finite(f"{what}[{name!r}]", array)
        arrays[name] = array if array.ndim == 0 else array.reshape(())
    return arrays


def _check_name(what, name):
    """Raise ``InputError`` for a name that cannot be accessed as an attribute."""
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"{what} must have names of letters, digits and _ that begin with a letter, got {name!r}")
    if name.startswith("_"):
        raise InputError(f"{what} must have names that begin with a letter, got {name!r}: leave out the _")
    if is_reserved(name):
        raise InputError(f"{what} must not have the name {name!r}, which already has a meaning: give it another")


def is_reserved(name: str) -> bool:
    """Whether a name is not available: a Python keyword, "ground", or an attribute of ``Named``."""
    return keyword.iskeyword(name) or name == "ground" or hasattr(Named, name) or name in Named.__annotations__
