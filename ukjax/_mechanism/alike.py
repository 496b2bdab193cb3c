"""Groups of objects that differ only in their numbers: each group is traced and compiled once, with ``vmap``."""

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

ACTING = ("stiffness", "rest", "preload", "damping", "armature", "friction", "creep", "static_friction")
"""Fields of a joint for the forces along its coordinates."""

OTHERS = "reference", "limits", "restitution"
"""Other fields that do not affect the kinematics."""


class Group(NamedTuple):
    """Several objects of the same structure, stacked.

    Attributes
    ----------
    things : pytree
        One object whose arrays have an additional leading axis of length k.
    places : (k,) int
        Index of each object in the original sequence.
    """

    things: Any
    places: np.ndarray


def grouped(things: Iterable[Any]) -> tuple[Group, ...]:
    """Group objects that have the same pytree structure and array shapes."""
    kinds: dict[Any, list[Any]] = {}
    for i, thing in enumerate(things):
        leaves, structure = jax.tree.flatten(thing)
        # Leaves that are not arrays, such as the function of a surface, are compared by identity.
        kind = (structure, *(x.shape if eqx.is_array(x) else id(x) for x in leaves))
        kinds.setdefault(kind, []).append((leaves, i))
    groups = []
    for (structure, *_), members in kinds.items():
        leaves, places = zip(*members, strict=True)
        stacked = [
            jnp.stack(leaves_of_members) if eqx.is_array(leaves_of_members[0]) else leaves_of_members[0]
            for leaves_of_members in zip(*leaves, strict=True)
        ]
        groups.append(Group(jax.tree.unflatten(structure, stacked), np.array(places)))
    return tuple(groups)


def in_order(groups: Sequence[Group], parts: Sequence[Array]) -> Array:
    """Concatenate the results of all groups, with one entry per object, in the original order of the objects."""
    order = np.argsort(np.concatenate([group.places for group in groups]))
    return jnp.concatenate(parts)[order]


def kinematic_part(joint: Connection) -> Connection:
    """The joint without the fields that do not affect its kinematics: body names, forces, reference and limits."""
    removed = {field.name: None for field in fields(joint) if field.name in (*ACTING, *OTHERS)}
    return replace(joint, parent="", child="", **removed)
