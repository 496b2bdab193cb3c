"""Things that differ in nothing but numbers, together: what they have alike is traced and compiled once for all."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..joints import AbstractConnection

Connection = TypeVar("Connection", bound=AbstractConnection)

ACTING = ("stiffness", "rest", "damping", "armature", "friction", "creep")
"""What acts along the coordinates of a joint."""


class Alike(NamedTuple):
    """Several ``things`` as one, of arrays with one axis more, and their ``places`` (k,) among all."""

    things: Any
    places: np.ndarray


def alike(things: Iterable[Any]) -> tuple[Alike, ...]:
    """The things, those of a kind together."""
    kinds: dict[Any, list[Any]] = {}
    for i, thing in enumerate(things):
        leaves, structure = jax.tree.flatten(thing)
        # Functions, such as that of a surface, are alike if they are the same.
        kind = (structure, *(x.shape if eqx.is_array(x) else id(x) for x in leaves))
        kinds.setdefault(kind, []).append((leaves, i))
    found = []
    for (structure, *_), members in kinds.items():
        leaves, places = zip(*members, strict=True)
        together = [jnp.stack(each) if eqx.is_array(each[0]) else each[0] for each in zip(*leaves, strict=True)]
        found.append(Alike(jax.tree.unflatten(structure, together), np.array(places)))
    return tuple(found)


def in_order(groups: Sequence[Alike], parts: Sequence[Array]) -> Array:
    """What the groups have, one entry per thing, in the order of the things."""
    order = np.argsort(np.concatenate([group.places for group in groups]))
    return jnp.concatenate(parts)[order]


def bare(joint: Connection) -> Connection:
    """A joint without what is no part of where it lets bodies be: their names, and what acts along it."""
    without = {field.name: None for field in fields(joint) if field.name in (*ACTING, "reference", "limits")}
    return replace(joint, parent="", child="", **without)
