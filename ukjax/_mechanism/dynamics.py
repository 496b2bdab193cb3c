"""M and Q of a mechanism, from the masses of its bodies: recursively, from the leaves of its tree to the ground."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._dynamics import AbstractDynamics
from .._rotation import cross
from .._run.compile import traced_once
from .alike import alike, in_order
from .body import inertia_matrix
from .elements import Elements
from .kinematics import Moving, moving
from .named import Named
from .recursion import carried, order
from .tree import Tree


class Inertias(NamedTuple):
    """Of each body, in the order of links: its mass; its centre in space, as seen from where its tree is seen from; its
    inertia about the centre; the share of its weight that nothing else carries, or None where all carry their own."""

    mass: Float[Array, " links"]
    centre: Float[Array, "links 3"]
    inertia: Float[Array, "links 3 3"]
    share: Float[Array, " links"] | None

    @classmethod
    def of(cls, bodies: Named, tree: Tree, moves: Moving) -> "Inertias":
        groups = alike((body.mass, body.centre, body.inertia) for body in (bodies[link.body] for link in tree.links))
        matrix = lambda body: (body[0], body[1], inertia_matrix(body[2]))
        parts = zip(*(eqx.filter_vmap(matrix)(group.things) for group in groups), strict=True)
        mass, centre, inertia = (in_order(groups, part) for part in parts)
        R = moves.placed.R[:-1]
        centre = moves.placed.d[:-1] + jnp.einsum("lij,lj->li", R, centre)
        return cls(mass, centre, _matrix(_entries(jnp.einsum("lij,ljk,lmk->lim", R, inertia, R))), _share(bodies, tree))

    def needed(self, moves: Moving, gravity: Float[Array, " 3"]) -> tuple[Array, Array]:
        """The force on each body, and the moment about where its tree is seen from, that its motion asks for."""
        omega, velocity, alpha, acceleration = (x[:-1] for x in moves[2:])
        swing = velocity + cross(omega, self.centre)
        falling = gravity if self.share is None else self.share[:, None] * gravity
        force = self.mass[:, None] * (acceleration + cross(alpha, self.centre) + cross(omega, swing) - falling)
        turned = lambda x: jnp.einsum("lij,lj->li", self.inertia, x)
        moment = turned(alpha) + cross(omega, turned(omega))
        return force, moment + cross(self.centre, force)

    def composite(self, tree: Tree) -> "Composite":
        """Of each body with all that it carries."""
        first = self.mass[:, None] * self.centre
        about = _entries(self.inertia) + _of_point(first, self.centre)
        found = carried(tree, jnp.concatenate([self.mass[:, None], first, about], axis=1))
        return Composite(found[:, 0], found[:, 1:4], _matrix(found[:, 4:]))


class Composite(NamedTuple):
    """Of each body with all that it carries: mass, first moment, and inertia about where its tree is seen from."""

    mass: Float[Array, " links"]
    first: Float[Array, "links 3"]
    inertia: Float[Array, "links 3 3"]

    def momentum(self, link: np.ndarray, angular: Float[Array, "n 3"], linear: Float[Array, "n 3"]) -> tuple:
        """What the motions of some links have: angular, about there, and linear."""
        mass, first = self.mass[link][:, None], self.first[link]
        turning = jnp.einsum("nij,nj->ni", self.inertia[link], angular)
        return turning + cross(first, linear), mass * linear + cross(angular, first)


class TreeDynamics(AbstractDynamics):
    """M v̇ = Q of bodies that joints carry.

    Composite rigid bodies for M and recursive Newton–Euler for Q (Featherstone, Rigid Body Dynamics Algorithms, 2008,
    chapters 5 and 6), along the axes of space.
    """

    bodies: Named
    joints: Named
    gravity: Float[Array, " 3"]
    elements: Elements
    tree: Tree = eqx.field(static=True)

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return _terms(self, t, q, v)

    def by_seeds(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds
    ) -> tuple[Float[Array, "n seeds"], Float[Array, " n"]]:
        if self.elements.any:
            return super().by_seeds(t, q, v, seeds)
        products, Q = self._of_bodies(t, q, v)
        pairs = _pairs(self.tree)
        off = np.flatnonzero(pairs.rows != pairs.columns)
        rows, columns = np.append(pairs.rows, pairs.columns[off]), np.append(pairs.columns, pairs.rows[off])
        return seeds.of_entries(jnp.concatenate([products, products[off]]), rows, columns, v.size), Q

    def _of_bodies(self, t, q, v):
        """The entries of M, of pairs of velocities, and Q, without what acts along coordinates."""
        moves, owners = moving(self.joints, self.tree, t, q, v), order(self.tree).owners
        inertias = Inertias.of(self.bodies, self.tree, moves.bodies)
        all_of_it = inertias.composite(self.tree)
        turning, going = all_of_it.momentum(owners, moves.angular, moves.linear)
        pairs = _pairs(self.tree)
        i, j = pairs.rows, pairs.columns
        products = jnp.sum(turning[i] * moves.angular[j], axis=1) + jnp.sum(going[i] * moves.linear[j], axis=1)
        force, moment = inertias.needed(moves.bodies, self.gravity)
        wrench = carried(self.tree, jnp.concatenate([moment, force], axis=1))[owners]
        Q = -jnp.sum(wrench * jnp.concatenate([moves.angular, moves.linear], axis=1), axis=1)
        return products, Q

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""]:
        """T + V [J], V of gravity and springs."""
        moves = moving(self.joints, self.tree, t, q, v).bodies
        mass, centre, inertia, share = Inertias.of(self.bodies, self.tree, moves)
        omega, base = moves.omega[:-1], moves.placed.base[:-1]
        velocity = moves.drift[:-1] + moves.velocity[:-1] + cross(omega, centre)
        kinetic = jnp.sum(mass * jnp.sum(velocity**2, axis=1)) + jnp.einsum("li,lij,lj->", omega, inertia, omega)
        weight = mass if share is None else mass * share
        return self.elements.energy(t, q, v) + kinetic / 2 - weight @ ((base + centre) @ self.gravity)


@traced_once
def _terms(dynamics, t, q, v):
    products, Q = dynamics._of_bodies(t, q, v)
    M = jnp.concatenate([products, jnp.zeros(1)])[_pairs(dynamics.tree).entries]
    return dynamics.elements.added(M, Q, t, q, v)


def _share(bodies, tree):
    buoyancies = [bodies[link.body].buoyancy for link in tree.links]
    if all(value is None for value in buoyancies):
        return None
    return 1.0 - jnp.stack([jnp.zeros(()) if value is None else value for value in buoyancies])


class Pairs(NamedTuple):
    """The velocities that one body has a part in, two at a time, ``columns`` nearer to the ground than ``rows``; and
    for each entry of M which of these pairs it is, or, where it is 0, one more."""

    rows: np.ndarray
    columns: np.ndarray
    entries: np.ndarray


@functools.lru_cache(maxsize=128)
def _pairs(tree: Tree) -> Pairs:
    numbers = order(tree)
    found = [(i, j) for i, link in enumerate(numbers.owners) for j in numbers.ways[link] if j <= i]
    rows, columns = np.array(found, int).reshape(-1, 2).T
    entries = np.full((tree.n, tree.n), len(found))
    entries[rows, columns] = entries[columns, rows] = np.arange(len(found))
    return Pairs(rows, columns, entries)


I, J = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])
"""The entries of a symmetric matrix that are kept: xx, yy, zz, xy, xz, yz."""


def _entries(matrices):
    return matrices[:, I, J]


def _matrix(entries):
    return entries[:, np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])]


def _of_point(first, d):
    """m (|d|² I − d dᵀ)."""
    return jnp.concatenate([(first * d) @ (1 - np.eye(3)), -first[:, I[3:]] * d[:, J[3:]]], axis=1)
