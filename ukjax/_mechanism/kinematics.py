"""Poses, velocities and accelerations of all bodies, from the coordinates of the joints that carry them."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._precision import in_precision
from .._rotation import cross
from ..joints import AbstractJoint, Free
from ..joints.base import Relative
from .alike import Group, grouped, in_order, kinematic_part
from .named import Named
from .recursion import along, order, rotation
from .tree import GROUND, Link, Tree


class Pose(NamedTuple):
    """The pose of a frame in space.

    Attributes
    ----------
    R : (3, 3)
        Axes of the frame, as columns.
    p : (3,)
        Origin of the frame [m].
    """

    R: Float[Array, "3 3"]
    p: Float[Array, " 3"]

    def frame(self, frame: tuple[Array, Array]) -> "Pose":
        """The pose in space of a frame (R, p) that is defined in this frame."""
        R, p = frame
        return Pose(self.R @ R, self.p + self.R @ p)


class Reversed(NamedTuple):
    """A joint with the roles of parent and child exchanged."""

    joint: AbstractJoint

    def transform(self, t: Array, q: Float[Array, " k"]) -> tuple[Array, Array]:
        R, p = self.joint.transform(t, q)
        return R.T, -(R.T @ p)

    def relative(self, t: Array, q: Float[Array, " k"], v: Float[Array, " k"]) -> Relative:
        R, p, angular, linear, omega, velocity, alpha, acceleration = self.joint.relative(t, q, v)
        omega_cross_p = cross(omega, p)
        return Relative(
            R.T,
            -(R.T @ p),
            -(R.T @ angular),
            R.T @ (cross(angular.T, p).T - linear),
            -(R.T @ omega),
            R.T @ (omega_cross_p - velocity),
            -(R.T @ alpha),
            # d²/dt² of −Rᵀ p, with Ṙ = ω × R
            R.T @ (cross(alpha, p) - cross(omega, omega_cross_p) + 2 * cross(omega, velocity) - acceleration),
        )

    def in_parent(self) -> tuple[Array, Array]:
        return self.joint.in_child()

    def in_child(self) -> tuple[Array, Array]:
        return self.joint.in_parent()


FLOATING = Free(GROUND, "it")


def joint_of(joints: Named, link: Link) -> AbstractJoint:
    """The joint that carries the body of this link; a ``Free`` joint for a floating body."""
    return FLOATING if link.joint is None else joints[link.joint]


class Placed(NamedTuple):
    """Poses of all bodies, in the order of the links, followed by the ground.

    Positions are sums of differences along the tree, so that a mechanism far from the origin loses no digits.

    Attributes
    ----------
    R : (places, 3, 3)
        Axes of the bodies' frames in space, as columns.
    d : (places, 3)
        Origins of the bodies, relative to the reference point of their tree: the origin of its first body [m].
    base : (places, 3)
        Reference points in space [m].
    """

    R: Float[Array, "places 3 3"]
    d: Float[Array, "places 3"]
    base: Float[Array, "places 3"]

    @property
    def p(self) -> Float[Array, "places 3"]:
        """The origins of the bodies in space [m]."""
        return self.base + self.d


def placed(joints: Named, tree: Tree, t: Array, q: Float[Array, " nq"]) -> Placed:
    """The poses of all bodies."""
    groups = _joint_groups(joints, tree)
    frames = _map_joints(groups, tree, lambda joint, q: _frames(joint, *joint.transform(t, q)), q)
    frames = in_precision(frames, q.dtype)  # joints may contain wider constants
    return _placed(tree, *(in_order(groups, parts) for parts in zip(*frames, strict=True)))[0]


def poses(joints: Named, tree: Tree, t: Array, q: Float[Array, " nq"]) -> dict[str, Pose]:
    """The poses of all bodies and of the ground, by name."""
    positions = placed(joints, tree, t, q)
    names = (*(link.body for link in tree.links), GROUND)
    return {name: Pose(positions.R[i], positions.p[i]) for i, name in enumerate(names)}


class Moving(NamedTuple):
    """Motion of all bodies, one row per body and a last row for the ground, along the axes of space.

    The velocities of a tree are taken relative to a reference point that coincides with the origin of the first body
    and moves at the constant velocity ``drift`` of the joint of this body. Accelerations are those at constant v,
    unless v̇ is given (Featherstone, Rigid Body Dynamics Algorithms, 2008, section 2.11).

    Attributes
    ----------
    placed : Placed
        Poses.
    drift : (places, 3)
        Velocity of the reference point [m/s].
    omega, velocity : (places, 3)
        Angular velocity of each body, and velocity of its point at the reference point.
    alpha, acceleration : (places, 3)
        Time derivatives of ``omega`` and ``velocity``.
    """

    placed: Placed
    drift: Float[Array, "places 3"]
    omega: Float[Array, "places 3"]
    velocity: Float[Array, "places 3"]
    alpha: Float[Array, "places 3"]
    acceleration: Float[Array, "places 3"]


class BodyMotion(NamedTuple):
    """Motion of all bodies, and its derivative with respect to v.

    Attributes
    ----------
    bodies : Moving
        Motion of the bodies.
    angular, linear : (k, 3)
        For a unit of each velocity: angular velocity, and velocity at the reference point, of the body that it moves.
        There is one row for each column of ``Order.columns``.
    """

    bodies: Moving
    angular: Float[Array, "k 3"]
    linear: Float[Array, "k 3"]


def moving(
    joints: Named,
    tree: Tree,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    accelerations: Float[Array, " n"] | None = None,
) -> BodyMotion:
    """The motion of all bodies.

    ``accelerations`` are v̇; None stands for 0, so that the accelerations of bodies are those at constant v.
    """
    tree_order, groups = order(tree), _joint_groups(joints, tree)

    def of_joint(joint, q, v, accelerations):
        relative = joint.relative(t, q, v)
        vectors = jnp.stack([relative.omega, relative.velocity, relative.alpha, relative.acceleration], axis=1)
        if accelerations is not None:
            vectors = vectors.at[:, 2:].add(
                jnp.stack([relative.angular @ accelerations, relative.linear @ accelerations], axis=1)
            )
        columns = jnp.stack([relative.angular, relative.linear], axis=1).transpose(2, 0, 1)
        return *_frames(joint, relative.R, relative.p), vectors, columns

    of_groups = in_precision(_map_joints(groups, tree, of_joint, q, v, accelerations), q.dtype)
    *parts, columns = zip(*of_groups, strict=True)
    *frames, vectors = (in_order(groups, part) for part in parts)
    positions, axes, x = _placed(tree, *frames)
    omega, joint_velocity, alpha, acceleration = jnp.moveaxis(_in_space(axes, vectors), 2, 0)

    # The reference point moves with the first body of a tree: the velocity of its joint is the drift.
    drift = jnp.concatenate([joint_velocity, jnp.zeros_like(joint_velocity[:1])])[tree_order.roots]
    joint_velocity = jnp.where(tree_order.on_ground[:, None], 0.0, joint_velocity)
    velocity = joint_velocity + cross(x, omega)
    motions = along(tree, jnp.concatenate([omega, velocity], axis=1))
    parent_omega, parent_velocity = _halves(motions[tree_order.parents])
    acceleration = (
        acceleration
        + cross(joint_velocity, omega)
        + cross(x, alpha)
        + cross(parent_omega, velocity)
        + cross(parent_velocity, omega)
    )
    accelerations_of_bodies = along(tree, jnp.concatenate([alpha + cross(parent_omega, omega), acceleration], axis=1))

    in_order_of_columns = np.argsort(np.concatenate([_columns(tree, group).ravel() for group in groups]))
    columns = jnp.concatenate([part.reshape(-1, 3, 2) for part in columns])[in_order_of_columns]
    angular, linear = jnp.moveaxis(_in_space(axes[tree_order.owners], columns), 2, 0)
    linear = linear + cross(x[tree_order.owners], angular)
    return BodyMotion(Moving(positions, drift, *_halves(motions), *_halves(accelerations_of_bodies)), angular, linear)


def _halves(x):
    return x[:, :3], x[:, 3:]


def _frames(joint, R, p):
    """Frames of a joint with the relative pose R, p.

    Returns the joint axes in the body that carries it, the axes of the carried body in the joint frame, the joint point
    in the first body, the displacement in the joint frame, and the joint point in the carried body.
    """
    (B, in_parent), (C, in_child) = joint.in_parent(), joint.in_child()
    return B, R @ C.T, in_parent, p, in_child


def _placed(tree, frame, R, in_parent, p, in_child) -> tuple[Placed, Array, Array]:
    """The poses of all bodies, the axes of their joints, and the joint points relative to the reference points."""
    tree_order = order(tree)
    joint_axes, body_axes = rotation(tree, frame, R)
    from_joint = _in_space(body_axes[:-1], in_child)
    offset = _in_space(body_axes[tree_order.parents], in_parent) + _in_space(joint_axes, p) - from_joint
    d = along(tree, jnp.where(tree_order.on_ground[:, None], 0.0, offset))
    base = jnp.concatenate([offset, jnp.zeros_like(offset[:1])])[tree_order.roots]
    return Placed(body_axes, d, base), joint_axes, d[:-1] + from_joint


def _in_space(axes, x):
    """Transform vectors (..., 3) or columns (..., 3, k) from each frame to the axes of space."""
    return jnp.einsum("lij,lj...->li...", axes, x)


def _joint_groups(joints: Named, tree: Tree) -> tuple[Group, ...]:
    """The joints that carry the bodies, reversed where the child carries the parent, grouped by structure."""
    joints_of_links = (kinematic_part(joint_of(joints, link)) for link in tree.links)
    return grouped(
        Reversed(joint) if link.reverse else joint for link, joint in zip(tree.links, joints_of_links, strict=True)
    )


def _coordinates(tree, group):
    """Indices (k, size) of the coordinates of the joints in a group."""
    return np.array([tree.links[i].coordinates for i in group.places], int)


def _velocities(tree, group):
    """Indices (k, size) of the velocities of the joints in a group."""
    return np.array([tree.links[i].velocities for i in group.places], int)


def _columns(tree, group):
    """Indices (k, size) of the columns of the joints in a group."""
    first = order(tree).first
    return np.array([int(first[i]) + np.arange(tree.links[i].size) for i in group.places], int)


def _map_joints(groups, tree, function, q, *velocities):
    """Evaluate ``function(joint, q, *velocities)`` for each group with the entries of q and v of its joints."""
    pick = lambda group, x: None if x is None else x[_velocities(tree, group)]
    return [
        eqx.filter_vmap(function)(group.things, q[_coordinates(tree, group)], *(pick(group, x) for x in velocities))
        for group in groups
    ]
