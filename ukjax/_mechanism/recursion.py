"""From the ground to the leaves of a tree, and back: loops over its links, whose program does not grow with them."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .tree import GROUND, Tree


class Order(NamedTuple):
    """A tree in numbers. ``parents`` (links,): the link that carries each, or the number of links, which is the
    ground's; ``roots`` (links + 1,): the first link on the way to each from the ground; ``owners`` (n,): the link of
    each velocity; ``ways``: for each link, and the ground, the velocities between the ground and it."""

    parents: np.ndarray
    roots: np.ndarray
    owners: np.ndarray
    paths: tuple[tuple[int, ...], ...]

    @property
    def on_ground(self) -> np.ndarray:
        """Whether the ground carries a link (links,)."""
        return self.parents == len(self.parents)

    @property
    def flat(self) -> bool:
        """Whether the ground carries all of them."""
        return bool(np.all(self.on_ground))


@functools.lru_cache(maxsize=128)
def order(tree: Tree) -> Order:
    links = tree.links
    number = {link.body: i for i, link in enumerate(links)} | {GROUND: len(links)}
    parents = np.array([number[link.parent] for link in links], int)
    roots = np.arange(len(links) + 1)
    ways: dict[str, tuple[int, ...]] = {GROUND: ()}
    for i, link in enumerate(links):
        roots[i] = i if link.parent == GROUND else roots[parents[i]]
        ways[link.body] = (*ways[link.parent], *link.velocities)
    owners = np.repeat(np.arange(len(links)), [link.size for link in links])
    return Order(parents, roots, owners, (*(ways[link.body] for link in links), ()))


def turned(
    tree: Tree, frame: Float[Array, "links 3 3"], R: Float[Array, "links 3 3"]
) -> tuple[Float[Array, "links 3 3"], Float[Array, "places 3 3"]]:
    """The axes in space of the joint of each link, from its ``frame`` in the link that carries it, and those of the
    link, from R in the joint's; the ground's the last."""
    found = jnp.concatenate([R, jnp.eye(3, dtype=R.dtype)[None]])
    if order(tree).flat:
        return frame, jnp.concatenate([frame @ R, found[-1:]])

    def place(found, link):
        i, parent, frame = link
        axes = jnp.sum(found[parent][:, :, None] * frame, axis=1)
        return found.at[i].set(jnp.sum(axes[:, :, None] * found[i], axis=1)), axes

    found, axes = jax.lax.scan(place, found, (np.arange(len(tree.links)), order(tree).parents, frame))
    return axes, found


def along(tree: Tree, x: Float[Array, "links k"]) -> Float[Array, "places k"]:
    """For each link the sum of x over it and all that carry it; 0 for the ground, the last."""
    found = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    if order(tree).flat:
        return found

    def add(found, link):
        i, parent = link
        return found.at[i].add(found[parent]), None

    return jax.lax.scan(add, found, (np.arange(len(tree.links)), order(tree).parents))[0]


def carried(tree: Tree, x: Float[Array, "links k"]) -> Float[Array, "links k"]:
    """For each link the sum of x over it and all that it carries."""
    if order(tree).flat:
        return x

    def add(found, link):
        i, parent = link
        return found.at[parent].add(found[i]), None

    found = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    links = (np.arange(len(tree.links)), order(tree).parents)
    return jax.lax.scan(add, found, links, reverse=True)[0][:-1]
