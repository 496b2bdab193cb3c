"""M and Q of a mechanism, from the masses of its bodies: recursively, from the leaves of its tree to the ground."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._dynamics import AbstractDynamics
from .._rotation import cross
from .body import Body
from .elements import Elements
from .floating import stacked
from .kinematics import Moving, joint_of, moving, poses
from .named import Named
from .tree import GROUND, Link, Tree


class Composite(NamedTuple):
    """A body and all that it carries: mass, first moment and inertia about the point that places are seen from, and the
    force and the moment about that point which its inertia asks for."""

    mass: Float[Array, ""]
    first: Float[Array, " 3"]
    inertia: Float[Array, "3 3"]
    force: Float[Array, " 3"]
    moment: Float[Array, " 3"]

    def with_(self, other: "Composite") -> "Composite":
        return Composite(*(a + b for a, b in zip(self, other, strict=True)))


class TreeDynamics(AbstractDynamics):
    """M q̈ = Q of bodies that joints carry.

    Composite rigid bodies for M and recursive Newton–Euler for Q (Featherstone, Rigid Body Dynamics Algorithms, 2008,
    chapters 5 and 6), along the axes of space. Where a coordinate is a quaternion u, M has I u uᵀ besides, and Q has
    −I |u̇|² u: T does not see the length of u, so that nothing else changes, u·ü = −|u̇|² is what keeps |u|² = 1, and M
    is positive definite (Udwadia & Schutte, J. Appl. Mech. 77 (2010) 044505). I is the trace of the inertia that the
    joint carries.
    """

    bodies: Named
    joints: Named
    gravity: Float[Array, " 3"]
    elements: Elements
    tree: Tree = eqx.field(static=True)

    def terms(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        if self.tree.floats and len(self.tree.links) > 1:
            return self.elements.added(*self._of_each(t, q, v), t, q, v)
        moves = moving(self.joints, self.tree, t, q, v, self.gravity)
        carried = self._carried(moves)
        M, Q = [], []
        for i, link in enumerate(self.tree.links):
            body, all_of_it = moves[link.body], carried[link.body]
            Q.append(-(body.angular.T @ all_of_it.moment + body.linear.T @ all_of_it.force))
            force = all_of_it.mass * body.linear + cross(body.angular, all_of_it.first)
            moment = all_of_it.inertia @ body.angular + cross(all_of_it.first, body.linear)
            for j in self.tree.ancestors()[link.body]:
                other = moves[self.tree.links[j].body]
                M.append((i, j, moment.T @ other.angular + force.T @ other.linear))
        M, Q = self._assembled(M), jnp.concatenate(Q)
        M, Q = self._with_quaternions(M, Q, q, v, moves, carried)
        return self.elements.added(M, Q, t, q, v)

    def energy(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, ""]:
        """T + V [J], V of gravity and springs."""
        moves = moving(self.joints, self.tree, t, q, v, self.gravity)
        places = poses(self.joints, self.tree, t, q)
        total = self.elements.energy(t, q, v)
        for name, body in self.bodies.items():
            move, pose = moves[name], places[name]
            centre = move.R @ body.centre
            velocity = move.velocity + cross(move.omega, centre)
            spin = move.R.T @ move.omega
            kinetic = body.mass * velocity @ velocity + spin @ body.inertia_matrix() @ spin
            total += kinetic / 2 - body.mass * self.gravity @ (pose.p + centre)
        return total

    def _of_each(self, t, q, v):
        """M and Q where each body floats by itself."""
        size = len(self.tree.links)
        bodies = [self.bodies[link.body] for link in self.tree.links]
        bodies = [Body(body.mass, body.centre, body.inertia_matrix()) for body in bodies]

        def alone(body, q, v):
            one, none = Named(("it",), (body,)), Named((), ())
            tree = Tree((Link("it", None, GROUND, False, 0, 7),), ())
            return TreeDynamics(one, none, self.gravity, Elements(none, tree), tree).terms(t, q, v)

        M, Q = jax.vmap(alone)(stacked(bodies), q.reshape(size, -1), v.reshape(size, -1))
        each, entry = np.arange(size), np.arange(7)
        places = 7 * each[:, None, None] + entry
        return jnp.zeros((q.size, q.size), M.dtype).at[np.swapaxes(places, 1, 2), places].set(M), Q.ravel()

    def _carried(self, moves: dict[str, Moving]) -> dict[str, Composite]:
        carried = {name: alone(body, moves[name]) for name, body in self.bodies.items()}
        for link in reversed(self.tree.links):
            if link.parent != GROUND:
                carried[link.parent] = carried[link.parent].with_(carried[link.body])
        return carried

    def _assembled(self, blocks):
        """The blocks (i, j, M_ij) with j the ancestor of i, and what is opposite them; all else is 0."""
        links = self.tree.links
        there = {}
        for i, j, block in blocks:
            there[i, j] = block
            there[j, i] = block.T
        rows = [
            jnp.concatenate(
                [there.get((i, j), np.zeros((one.size, other.size))) for j, other in enumerate(links) if other.size],
                axis=1,
            )
            for i, one in enumerate(links)
            if one.size
        ]
        return jnp.concatenate(rows)

    def _with_quaternions(self, M, Q, q, v, moves, carried):
        for link in self.tree.links:
            at = quaternion_of(self.joints, link)
            if at is None:
                continue
            u, rate, all_of_it, x = q[at], v[at], carried[link.body], moves[link.body].x
            size = jnp.trace(all_of_it.inertia) - 4 * all_of_it.first @ x + 2 * all_of_it.mass * (x @ x)
            M = M.at[at, at].add(size * jnp.outer(u, u))
            Q = Q.at[at].add(-size * (rate @ rate) * u)
        return M, Q


def quaternion_of(joints: Named, link) -> slice | None:
    """Where among all coordinates the quaternion of a body's joint is."""
    first = joint_of(joints, link).quaternion
    return None if first is None else slice(link.first + first, link.first + first + 4)


def alone(body: Body, move: Moving) -> Composite:
    """A body by itself."""
    centre = move.R @ body.centre
    d = move.d + centre
    inertia = _turned(body.inertia_matrix(), move.R)
    acceleration = move.acceleration + cross(move.alpha, centre) + cross(move.omega, cross(move.omega, centre))
    force = body.mass * acceleration
    moment = inertia @ move.alpha + cross(move.omega, inertia @ move.omega) + cross(d, force)
    about = inertia + _of_point(body.mass, d)
    return Composite(body.mass, body.mass * d, about, force, moment)


def _turned(inertia, R):
    """R I Rᵀ, each entry off the diagonal once."""
    half = R @ inertia
    return _symmetric(*(half[i] @ R[j] for i, j in ENTRIES))


def _of_point(mass, d):
    """m (|d|² I − d dᵀ)."""
    along = mass * d
    xx, yy, zz = along * d
    return _symmetric(yy + zz, xx + zz, xx + yy, -along[0] * d[1], -along[0] * d[2], -along[1] * d[2])


ENTRIES = (0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)


def _symmetric(xx, yy, zz, xy, xz, yz):
    return jnp.stack([jnp.stack([xx, xy, xz]), jnp.stack([xy, yy, yz]), jnp.stack([xz, yz, zz])])
