"""M and Q of a mechanism from the masses of its bodies, by recursion over its tree from the leaves to the ground."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._dynamics import AbstractDynamics
from .._precision import in_precision
from .._rotation import cross
from .._run.compile import traced_once
from .alike import grouped, in_order
from .body import inertia_matrix
from .elements import Elements
from .kinematics import Moving, moving
from .modal import deforming, rigid_parts, terms_of, with_wrenches
from .named import Named
from .recursion import carried, order
from .tree import Tree


class BodyInertias(NamedTuple):
    """Masses and inertias of all bodies in space, in the order of the links.

    Attributes
    ----------
    mass : (links,)
        Masses [kg].
    centre : (links, 3)
        Centres of mass, relative to the reference point of the body's tree [m].
    inertia : (links, 3, 3)
        Inertias about the centres of mass [kg m²].
    share : (links,) or None
        Fraction of each weight that is not carried by buoyancy; None if no body has buoyancy.
    """

    mass: Float[Array, " links"]
    centre: Float[Array, "links 3"]
    inertia: Float[Array, "links 3 3"]
    share: Float[Array, " links"] | None

    @classmethod
    def of(cls, bodies: Named, tree: Tree, motion: Moving, q: Float[Array, " nq"]) -> "BodyInertias":
        groups = in_precision(grouped(rigid_parts(bodies, tree, q)), q.dtype)
        matrix = lambda body: (body[0], body[1], inertia_matrix(body[2]))
        parts = zip(*(eqx.filter_vmap(matrix)(group.things) for group in groups), strict=True)
        mass, centre, inertia = (in_order(groups, part) for part in parts)
        R = motion.placed.R[:-1]
        centre = motion.placed.d[:-1] + jnp.einsum("lij,lj->li", R, centre)
        return cls(mass, centre, _matrix(_entries(jnp.einsum("lij,ljk,lmk->lim", R, inertia, R))), _share(bodies, tree))

    def inverse_dynamics(self, motion: Moving, gravity: Float[Array, " 3"]) -> tuple[Array, Array]:
        """The force on each body, and the moment about the reference point of its tree, that its motion requires."""
        omega, velocity, alpha, acceleration = (x[:-1] for x in motion[2:])
        centre_velocity = velocity + cross(omega, self.centre)
        gravity_of_body = gravity if self.share is None else self.share[:, None] * gravity
        force = self.mass[:, None] * (
            acceleration + cross(alpha, self.centre) + cross(omega, centre_velocity) - gravity_of_body
        )
        times_inertia = lambda x: jnp.einsum("lij,lj->li", self.inertia, x)
        moment = times_inertia(alpha) + cross(omega, times_inertia(omega))
        return force, moment + cross(self.centre, force)

    def composite(self, tree: Tree) -> "Composite":
        """The inertia of each body together with all bodies that it carries."""
        first_moment = self.mass[:, None] * self.centre
        about_reference = _entries(self.inertia) + _of_point(first_moment, self.centre)
        composite = carried(tree, jnp.concatenate([self.mass[:, None], first_moment, about_reference], axis=1))
        return Composite(composite[:, 0], composite[:, 1:4], _matrix(composite[:, 4:]))


class Composite(NamedTuple):
    """Inertia of composite bodies, each a body together with all bodies that it carries.

    Attributes
    ----------
    mass : (links,)
        Masses [kg].
    first : (links, 3)
        First moments of mass about the reference point of the tree [kg m].
    inertia : (links, 3, 3)
        Inertias about the same point [kg m²].
    """

    mass: Float[Array, " links"]
    first: Float[Array, "links 3"]
    inertia: Float[Array, "links 3 3"]

    def momentum(self, link: np.ndarray, angular: Float[Array, "n 3"], linear: Float[Array, "n 3"]) -> tuple:
        """Angular momentum about the reference point, and linear momentum, of composites with these velocities."""
        mass, first_moment = self.mass[link][:, None], self.first[link]
        angular_momentum = jnp.einsum("nij,nj->ni", self.inertia[link], angular)
        return angular_momentum + cross(first_moment, linear), mass * linear + cross(angular, first_moment)


class TreeDynamics(AbstractDynamics):
    """The equations of motion M v̇ = Q of a tree of bodies.

    M follows from the composite rigid body algorithm and Q from the recursive Newton–Euler algorithm (Featherstone,
    Rigid Body Dynamics Algorithms, 2008, chapters 5 and 6), in the axes of space. The deformation of flexible bodies is
    added to both.
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
        if self.elements.any or self.tree.modal:
            return super().by_seeds(t, q, v, seeds)
        products, Q, _ = self._rigid_body_terms(t, q, v)
        pairs = _pairs(self.tree)
        off_diagonal = np.flatnonzero(pairs.rows != pairs.columns)
        rows, columns = (
            np.append(pairs.rows, pairs.columns[off_diagonal]),
            np.append(pairs.columns, pairs.rows[off_diagonal]),
        )
        return seeds.of_entries(jnp.concatenate([products, products[off_diagonal]]), rows, columns, v.size), Q

    def _rigid_body_terms(self, t, q, v):
        """The entries of M at ``_pairs``, and Q, for the columns of the links, and the motion.

        Springs, dampers, armatures and friction are not included. A flexible body counts as a rigid body with its
        present deformation.
        """
        motion, owners = moving(self.joints, self.tree, t, q, v), order(self.tree).owners
        inertias = BodyInertias.of(self.bodies, self.tree, motion.bodies, q)
        composite = inertias.composite(self.tree)
        angular_momentum, linear_momentum = composite.momentum(owners, motion.angular, motion.linear)
        pairs = _pairs(self.tree)
        i, j = pairs.rows, pairs.columns
        products = jnp.sum(angular_momentum[i] * motion.angular[j], axis=1) + jnp.sum(
            linear_momentum[i] * motion.linear[j], axis=1
        )
        force, moment = inertias.inverse_dynamics(motion.bodies, self.gravity)
        flexible = deforming(self.bodies, self.tree, motion.bodies, q, v)
        force, moment = with_wrenches(force, moment, flexible)
        wrench = carried(self.tree, jnp.concatenate([moment, force], axis=1))[owners]
        columns = jnp.concatenate([motion.angular, motion.linear], axis=1)
        return products, -jnp.sum(wrench * columns, axis=1), (columns, flexible)

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""]:
        """T + V [J]; V is the potential energy of gravity and springs, and the strain energy of flexible bodies."""
        motion = moving(self.joints, self.tree, t, q, v).bodies
        mass, centre, inertia, share = BodyInertias.of(self.bodies, self.tree, motion, q)
        omega, base = motion.omega[:-1], motion.placed.base[:-1]
        velocity = motion.drift[:-1] + motion.velocity[:-1] + cross(omega, centre)
        kinetic = jnp.sum(mass * jnp.sum(velocity**2, axis=1)) + jnp.einsum("li,lij,lj->", omega, inertia, omega)
        weight = mass if share is None else mass * share
        total = self.elements.energy(t, q, v) + kinetic / 2 - weight @ ((base + centre) @ self.gravity)
        return sum((each.energy() for each in deforming(self.bodies, self.tree, motion, q, v)), total)


@traced_once
def _terms(dynamics, t, q, v):
    products, Q, (columns, flexible) = dynamics._rigid_body_terms(t, q, v)
    M = jnp.concatenate([products, jnp.zeros(1, products.dtype)])[_pairs(dynamics.tree).entries]
    if flexible:
        M, Q = terms_of(dynamics.tree, M, Q, columns, flexible, dynamics.gravity)
    return dynamics.elements.add_to_terms(M, Q, t, q, v)


def _share(bodies, tree):
    buoyancies = [bodies[link.body].buoyancy if link.body in bodies else None for link in tree.links]
    if all(value is None for value in buoyancies):
        return None
    return 1.0 - jnp.stack([0.0 if value is None else value for value in buoyancies])


class Pairs(NamedTuple):
    """The pairs of columns of the links that move a common body: the nonzero entries of M.

    Attributes
    ----------
    rows, columns : (pairs,) int
        Indices of both columns; ``columns`` is not farther from the ground than ``rows``.
    entries : (k, k) int
        Index of the pair of each entry of M; the number of pairs for entries that are 0.
    """

    rows: np.ndarray
    columns: np.ndarray
    entries: np.ndarray


@functools.lru_cache(maxsize=128)
def _pairs(tree: Tree) -> Pairs:
    numbers = order(tree)
    pairs = [(i, j) for i, owner in enumerate(numbers.owners) for j in numbers.paths[owner] if j <= i]
    rows, columns = np.array(pairs, int).reshape(-1, 2).T
    entries = np.full((len(numbers.owners), len(numbers.owners)), len(pairs))
    entries[rows, columns] = entries[columns, rows] = np.arange(len(pairs))
    return Pairs(rows, columns, entries)


I, J = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])
"""Row and column indices of the stored entries of a symmetric matrix: xx, yy, zz, xy, xz, yz."""


def _entries(matrices):
    return matrices[:, I, J]


def _matrix(entries):
    return entries[:, np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])]


def _of_point(first_moment, d):
    """m (|d|² I − d dᵀ), the inertia of a point mass at d, as six entries."""
    return jnp.concatenate(
        [(first_moment * d) @ (1 - np.eye(3, dtype=d.dtype)), -first_moment[:, I[3:]] * d[:, J[3:]]], axis=1
    )
