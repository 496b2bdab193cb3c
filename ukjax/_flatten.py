"""Models that remember their leaves.

A simulation flattens its model many times: to convert its numbers, to check that they are concrete, to split it into
arrays and structure. A mechanism of a hundred bodies has 400 leaves, and JAX needs more than a millisecond for them.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

_classes: set[type] = set()  # JAX also stores the classes of pytrees


class FlattenedOnce(eqx.Module):
    """Base class of Modules that remember their leaves and other values that follow from their fields.

    These values are stored in a slot, because the tree structure of an ``equinox.Module`` depends on its whole
    ``__dict__``.
    """

    __slots__ = ("_remembered",)

    def __init_subclass__(cls, **arguments: Any):
        super().__init_subclass__(**arguments)
        _classes.add(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field, which is possible in ``__init__`` only. Remembered values are dropped."""
        super().__setattr__(name, value)
        remembered_by(self).clear()

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without the remembered values."""
        return dict(self.__dict__)


class Flat:
    """The leaves of an object and its tree structure.

    Attributes
    ----------
    leaves
        The leaves.
    tree
        The structure.
    """

    def __init__(self, leaves: list[Any], tree: Any):
        self.leaves, self.tree = leaves, tree
        self._answers: dict[Callable, Any] = {}

    def ask(self, question: Callable[["Flat"], Any]) -> Any:
        """Return ``question(self)``, computed once. The answer must depend only on the leaves and the structure."""
        if question not in self._answers:
            self._answers[question] = question(self)
        return self._answers[question]


def is_flattened_once(x: Any) -> bool:
    """Whether ``x`` is a ``FlattenedOnce``."""
    return type(x) in _classes


def flat_of(x: Any) -> Flat:
    """Return the leaves and the structure of any pytree; a ``FlattenedOnce`` remembers them."""
    if not is_flattened_once(x):
        return Flat(*jax.tree.flatten(x))
    remembered = remembered_by(x)
    flat = remembered.get(Flat)
    if flat is None:
        flat = Flat(*jax.tree.flatten(x))
        if _is_immutable(flat.tree):
            remembered[Flat] = flat
    return flat


def remembered_by(x: FlattenedOnce) -> dict[Any, Any]:
    """Return the dictionary of the values that ``x`` remembers."""
    try:
        return object.__getattribute__(x, "_remembered")
    except AttributeError:
        remembered: dict[Any, Any] = {}
        object.__setattr__(x, "_remembered", remembered)
        return remembered


def parts_of(*trees: Any) -> list[Any]:
    """Return the leaves of ``trees``, with every ``FlattenedOnce`` as one leaf."""
    return jax.tree.leaves(trees, is_leaf=is_flattened_once)


def ask_all(question: Callable[[Flat], Any], *trees: Any) -> list[Any]:
    """Return the answers of ``Flat.ask`` for each ``FlattenedOnce`` in ``trees``, and for all other leaves together."""
    parts = parts_of(*trees)
    others = [x for x in parts if not is_flattened_once(x)]
    return [question(Flat(others, None)), *(flat_of(x).ask(question) for x in parts if is_flattened_once(x))]


def _is_immutable(tree):
    """Whether no container in the tree can be changed: there are no lists and dictionaries."""
    try:
        return _consists_of_immutable(tree)
    except TypeError:  # a static field that cannot be hashed
        return False


@functools.lru_cache(maxsize=512)
def _consists_of_immutable(tree):
    node = tree.node_data()
    if node is not None and not issubclass(node[0], (tuple, eqx.Module, type(None))):
        return False
    return all(map(_consists_of_immutable.__wrapped__, tree.children()))
