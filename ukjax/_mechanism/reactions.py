"""Reactions of joints: the forces and moments between bodies."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._equation import mobility
from .._jaxpr.tracing import is_concrete
from .._rotation import cross, skew
from .._terms import Terms
from ..joints import AbstractActing, AbstractConnection, AbstractContact, AbstractCoupling
from .closure import rows_of
from .deflection import Deflection
from .dynamics import BodyInertias, TreeDynamics
from .elements import JointCoordinates
from .kinematics import Pose, moving, poses
from .modal import deforming, with_wrenches
from .recursion import carried
from .tree import connections


class Reaction(NamedTuple):
    """Force and moment of a joint on its child, including forces along its coordinates; the parent has the opposite.

    A component is unique if the equations of motion determine it. Otherwise only its sum with the reactions of other
    joints is determined, and the component is that of the reactions of least norm (see ``Mechanism.reactions``).

    Attributes
    ----------
    force : (3,)
        Force along the axes of space [N].
    moment : (3,)
        Moment about the child's joint point, along the axes of space [N m].
    force_is_unique, moment_is_unique : (3,) bool
        Whether each component is unique.
    """

    force: Float[Array, " 3"]
    moment: Float[Array, " 3"]
    force_is_unique: Bool[Array, " 3"]
    moment_is_unique: Bool[Array, " 3"]

    def __repr__(self) -> str:
        if not is_concrete(self):
            return f"Reaction(force={self.force}, moment={self.moment})"
        force, moment, *unique = map(np.asarray, self)
        shown = [
            ", ".join(f"{x:.4g}" if is_unique else f"{x:.4g}*" for x, is_unique in zip(vector, flags, strict=True))
            for vector, flags in zip((force, moment), unique, strict=True)
        ]
        note = "" if np.all(unique) else "; *: not unique, only in sum with other joints"
        return f"Reaction(force=({shown[0]}) N, moment=({shown[1]}) N m{note})"


class Rows(NamedTuple):
    """The constraint rows of a motion.

    Attributes
    ----------
    A : (m, n)
        Constraint matrix, as in ``Terms``.
    force : (n,)
        Generalised force Aᵀλ of the rows.
    names : tuple of str
        Names of the rows that belong to joints. They come first in A.
    turning : (n,) bool
        Whether each velocity is an angular velocity [rad/s].
    """

    A: Float[Array, "m n"]
    force: Float[Array, " n"]
    names: tuple[str, ...]
    turning: np.ndarray


def reactions(
    dynamics: TreeDynamics,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    acceleration: Float[Array, " n"],
    rows: Rows,
) -> dict[str, Reaction]:
    """The reactions of all connections, by name.

    Among all reactions that follow from multipliers λ with Aᵀλ = ``rows.force``, they minimise

        Σ |force|² + |moment|²/L²,    L² the mean square distance of joints and centres of mass from their centroid.

    Neither the set nor the norm depends on the coordinates of the mechanism.

    The wrenches are w = w₀ + K λ, so that λ is the constrained motion of a system with mass matrix KᵀDK, force −KᵀDw₀
    and rows Aᵀλ = force, where D = diag(1, 1/L²). With W = F Fᵀ its constrained inverse mass, the squared norm of row k
    of √D K F is the fraction of component k that self-stresses, Aᵀλ = 0, can change: it lies between 0 and 1, and is 0
    if the component is unique.
    """
    names = [name for name, _ in _user_connections(dynamics)]

    def all_wrenches(multipliers):
        multipliers_by_name = dict(zip(rows.names, multipliers[: len(rows.names)], strict=True))
        wrenches = _wrenches(dynamics, t, q, v, acceleration, multipliers_by_name)
        return jnp.concatenate([x for name in names for x in wrenches[name]])

    zeros = jnp.zeros(len(rows.A), q.dtype)
    wrench, change = jax.linearize(all_wrenches, zeros)
    unique = jnp.ones(wrench.shape, bool)
    if zeros.size:
        square = square_length(dynamics, t, q)
        D = jnp.tile(jnp.repeat(jnp.stack([jnp.ones_like(square), 1 / square]), 3), len(names))
        K = jax.vmap(change, out_axes=1)(jnp.eye(zeros.size))
        M = (K.T * D) @ K + jnp.diag(_weights(dynamics, t, q, rows, square))
        minimum = mobility(Terms(M, -(K.T * D) @ wrench, rows.A.T, rows.force))
        wrench = wrench + K @ minimum.acceleration
        unique = D * jnp.sum((K @ minimum.factor) ** 2, axis=1) <= jnp.finfo(q.dtype).eps ** 0.5
    components = (x.reshape(-1, 2, 3) for x in (wrench, unique))
    return {name: Reaction(*x, *is_unique) for name, x, is_unique in zip(names, *components, strict=True)}


def square_length(dynamics: TreeDynamics, t: Array, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """The mean square distance L² [m²] of joints and centres of mass from their centroid; 1 if all coincide."""
    poses_by_name = poses(dynamics.joints, dynamics.tree, t, q)
    points = [poses_by_name[name].p + poses_by_name[name].R @ body.centre for name, body in dynamics.bodies.items()]
    for _, joint in _user_connections(dynamics):
        points.append(poses_by_name[joint.child].frame(joint.in_child()).p)
    points = jnp.stack(points)
    square = jnp.mean(jnp.sum((points - jnp.mean(points, axis=0)) ** 2, axis=1))
    return jnp.where(square > 0, square, 1)


def _user_connections(dynamics):
    """The connections with their names, without those between a flexible body and its nodes."""
    joints = connections(dict(dynamics.joints.items()))
    return [(name, joint) for name, joint in joints if not isinstance(joint, Deflection)]


def _weights(dynamics, t, q, rows, square_length):
    """The weight of the multiplier of each row in the norm, in addition to the wrenches of joints.

    For a coupling, and for a row that belongs to no joint, it is the squared generalised force of a unit multiplier,
    with torques divided by L.
    """
    joints = dynamics.joints
    weight = {True: 1 / square_length, False: jnp.ones_like(square_length)}
    weights = [jnp.zeros_like(square_length)] * len(rows.names)
    for name, coupling in joints.items():
        if isinstance(coupling, AbstractCoupling):
            units = [joints[other].coordinates[0][1] for other in coupling.joints]
            slope = _slope(dynamics, coupling, t, q)
            total = sum(x**2 * weight[unit == "rad"] for x, unit in zip(slope, units, strict=True))
            weights[rows.names.index(name)] = jnp.where(total > 0, total, 1)
    other_rows = rows.A[len(rows.names) :] ** 2 @ jnp.where(rows.turning, 1 / square_length, 1)
    return jnp.concatenate([jnp.stack([*weights, square_length])[:-1], jnp.where(other_rows > 0, other_rows, 1)])


def _wrenches(dynamics, t, q, v, acceleration, multipliers):
    """Force and moment of all connections, by name.

    Those of connections that close loops follow from the ``multipliers`` of their rows, by name. Those of joints that
    carry bodies follow from the equilibrium of the carried bodies, with their inertial forces (d'Alembert's principle).
    """
    joints, tree = dynamics.joints, dynamics.tree
    poses_by_name = poses(joints, tree, t, q)
    wrenches = {
        name: _closing(dynamics, name, poses_by_name, t, q, v, acceleration, multipliers) for name in tree.closures
    }

    # Required forces, and moments about the reference point of each tree, minus those of the loop-closing connections.
    motion = moving(joints, tree, t, q, v, acceleration).bodies
    required = BodyInertias.of(dynamics.bodies, tree, motion, q).inverse_dynamics(motion, dynamics.gravity)
    required = with_wrenches(*required, deforming(dynamics.bodies, tree, motion, q, v, acceleration))
    force, moment = (jnp.concatenate([x, jnp.zeros((1, 3))]) for x in required)
    index = {name: i for i, name in enumerate(poses_by_name)}
    points = {
        name: poses_by_name[joint.child].frame(joint.in_child()).p for name, joint in connections(dict(joints.items()))
    }
    for name, (closing_force, closing_moment) in wrenches.items():
        for body, sign in ((joints[name].child, 1), (joints[name].parent, -1)):
            i = index[body]
            force = force.at[i].add(-sign * closing_force)
            moment = moment.at[i].add(
                -sign * (closing_moment + cross(points[name] - motion.placed.base[i], closing_force))
            )
    force, moment = carried(tree, force[:-1]), carried(tree, moment[:-1])
    for i, link in enumerate(tree.links):
        if link.joint is not None:
            sign = -1 if link.reverse else 1
            arm = points[link.joint] - motion.placed.base[i]
            wrenches[link.joint] = sign * force[i], sign * (moment[i] - cross(arm, force[i]))
    return wrenches


def _closing(dynamics, name, poses_by_name, t, q, v, acceleration, multipliers):
    """The wrench of a loop-closing connection, from the derivatives of its rows by the child's displacement.

    It includes the forces along the coordinates of the connection.
    """
    joint = dynamics.joints[name]
    assert isinstance(joint, AbstractConnection)
    parent, child = (Pose(*poses_by_name[end]) for end in (joint.parent, joint.child))
    parent, child = parent.frame(joint.in_parent()), child.frame(joint.in_child())

    def displaced(x):
        """The relative pose after a small rotation x[:3] and translation x[3:] of the child in space."""
        R = child.R + skew(x[:3]) @ child.R
        return parent.R.T @ R, parent.R.T @ (child.p + x[3:] - parent.p)

    zero = jnp.zeros(6)
    row_functions = [lambda x: joint.residual(t, *displaced(x))]
    if isinstance(joint, AbstractContact):
        slip = lambda x: joint.slip(t, *displaced(zero), parent.R.T @ x[:3], parent.R.T @ x[3:])
        row_functions.append(slip)
    rows = jnp.concatenate([jax.jacfwd(function)(zero) for function in row_functions])
    labels = rows_of(name, joint)
    total = jnp.stack([multipliers[label] for label in labels]) @ rows if labels else zero
    if isinstance(joint, AbstractActing) and joint.quaternion is None and joint.coordinates:
        force = dynamics.elements.force(name, t, q, v, acceleration)
        total = total + (force + _coupled(dynamics, name, t, q, multipliers)) @ jax.jacfwd(
            lambda x: joint.coordinates_of(*displaced(x))
        )(zero)
    return total[3:], total[:3]


def _coupled(dynamics, name, t, q, multipliers):
    """The total force of couplings along the coordinate of a joint."""
    total = jnp.zeros(())
    for coupling_name, coupling in dynamics.joints.items():
        if isinstance(coupling, AbstractCoupling) and name in coupling.joints:
            slope = _slope(dynamics, coupling, t, q)
            total = total + multipliers[coupling_name] * slope[coupling.joints.index(name)]
    return total


def _slope(dynamics, coupling, t, q):
    """The derivative of a coupling's residual with respect to the coordinates of its joints."""
    x = JointCoordinates(dynamics.joints, dynamics.tree, coupling.joints)(t, q)
    return jax.jacfwd(lambda x: coupling.residual(t, x)[0])(x)
