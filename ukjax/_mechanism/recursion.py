"""Recursions over the links of a tree, as scans whose compiled size does not depend on the number of links."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .tree import GROUND, Tree


class Order(NamedTuple):
    """The structure of a tree as index arrays.

    Attributes
    ----------
    parents : (links,) int
        The link that carries each link; the number of links stands for the ground.
    roots : (links + 1,) int
        The first link on the path from the ground to each link, and for the ground its own index.
    columns : (k,) int
        The velocity of each column: the columns of a link are its velocities. k is the number n of velocities, and
        larger where links share modal coordinates.
    first : (links,) int
        The first column of each link.
    owners : (k,) int
        The link of each column.
    paths : tuple of tuple of int
        For each link, and the ground, the columns between the ground and it.
    """

    parents: np.ndarray
    roots: np.ndarray
    columns: np.ndarray
    first: np.ndarray
    owners: np.ndarray
    paths: tuple[tuple[int, ...], ...]

    @property
    def on_ground(self) -> np.ndarray:
        """Whether the ground carries each link (links,)."""
        return self.parents == len(self.parents)

    @property
    def flat(self) -> bool:
        """Whether the ground carries all links."""
        return bool(np.all(self.on_ground))


@functools.lru_cache(maxsize=128)
def order(tree: Tree) -> Order:
    """The structure of the tree; cached."""
    links = tree.links
    number = {link.body: i for i, link in enumerate(links)} | {GROUND: len(links)}
    parents = np.array([number[link.parent] for link in links], int)
    roots = np.arange(len(links) + 1)
    paths: dict[str, tuple[int, ...]] = {GROUND: ()}
    sizes = np.array([link.size for link in links], int)
    first = np.cumsum(sizes) - sizes
    for i, link in enumerate(links):
        roots[i] = i if link.parent == GROUND else roots[parents[i]]
        paths[link.body] = (*paths[link.parent], *range(first[i], first[i] + link.size))
    columns = np.array([j for link in links for j in link.velocities], int)
    owners = np.repeat(np.arange(len(links)), sizes)
    return Order(parents, roots, columns, first, owners, (*(paths[link.body] for link in links), ()))


def rotation(
    tree: Tree, frame: Float[Array, "links 3 3"], R: Float[Array, "links 3 3"]
) -> tuple[Float[Array, "links 3 3"], Float[Array, "places 3 3"]]:
    """The axes of the joints (links, 3, 3) and of the links and the ground (places, 3, 3) in space.

    ``frame`` are the axes of each joint in the link that carries it, R those of the link in the joint's frame.
    """
    axes_of_links = jnp.concatenate([R, jnp.eye(3, dtype=R.dtype)[None]])
    if order(tree).flat:
        return frame, jnp.concatenate([frame @ R, axes_of_links[-1:]])

    def add_link(axes_of_links, link):
        i, parent, frame = link
        joint_axes = jnp.sum(axes_of_links[parent][:, :, None] * frame, axis=1)
        return axes_of_links.at[i].set(jnp.sum(joint_axes[:, :, None] * axes_of_links[i], axis=1)), joint_axes

    axes_of_links, joint_axes = jax.lax.scan(
        add_link, axes_of_links, (np.arange(len(tree.links)), order(tree).parents, frame)
    )
    return joint_axes, axes_of_links


def along(tree: Tree, x: Float[Array, "links k"]) -> Float[Array, "places k"]:
    """For each link the sum of x over the link and all links that carry it; 0 for the ground, which is last."""
    sums = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    if order(tree).flat:
        return sums

    def add_parent(sums, link):
        i, parent = link
        return sums.at[i].add(sums[parent]), None

    return jax.lax.scan(add_parent, sums, (np.arange(len(tree.links)), order(tree).parents))[0]


def carried(tree: Tree, x: Float[Array, "links k"]) -> Float[Array, "links k"]:
    """For each link the sum of x over the link and all links that it carries."""
    if order(tree).flat:
        return x

    def add_to_parent(sums, link):
        i, parent = link
        return sums.at[parent].add(sums[i]), None

    sums = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    links = (np.arange(len(tree.links)), order(tree).parents)
    return jax.lax.scan(add_to_parent, sums, links, reverse=True)[0][:-1]
