"""What the joints carry: the forces and moments between bodies."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import is_concrete
from .._equation import mobility
from .._rotation import cross, skew
from .._terms import Terms
from ..joints import AbstractActing, AbstractConnection, AbstractContact, AbstractCoupling
from .closure import rows_of
from .dynamics import BodyInertias, TreeDynamics
from .elements import JointCoordinates
from .kinematics import Pose, moving, poses
from .recursion import carried
from .tree import connections


class Reaction(NamedTuple):
    """What a joint, with what acts along it, puts on its child; the parent has the opposite.

    ``force`` (3,) [N] and ``moment`` (3,) [N m] about the child's joint point, along the axes of space. The equations
    of motion determine a component where ``force_is_unique`` (3,) or ``moment_is_unique`` (3,) is True. Where it is
    False, only its sum with those of other joints is determined, and the component is that of the least reactions.
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
            ", ".join(f"{x:.4g}" if sure else f"{x:.4g}*" for x, sure in zip(vector, flags, strict=True))
            for vector, flags in zip((force, moment), unique, strict=True)
        ]
        note = "" if np.all(unique) else "; *: not unique, only in sum with other joints"
        return f"Reaction(force=({shown[0]}) N, moment=({shown[1]}) N m{note})"


class Rows(NamedTuple):
    """A motion's constraint rows: A (m, n) as in ``Terms``; the generalised ``force`` (n,) = Aᵀλ that they put on the
    mechanism; the ``names`` of those that belong to joints, which come first; and whether each velocity, of n, is one
    of ``turning`` [rad/s]."""

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
    """Of all connections by name, those of least

        Σ |force|² + |moment|²/L²,    L² the mean square distance of joints and centres of mass from their centroid,

    among all that the multipliers λ with Aᵀλ = ``rows.force`` give. Neither the set nor the norm depends on the
    coordinates of the mechanism.

    The wrenches are w = w₀ + K λ, so that λ is the constrained motion of a system with mass matrix KᵀDK, force −KᵀDw₀
    and rows Aᵀλ = force, where D = diag(1, 1/L²). With W = F Fᵀ its constrained inverse mass, the row k of √D K F is
    the part of component k that self-stresses, Aᵀλ = 0, can change: it lies between 0 and 1, and is 0 if the component
    is unique.
    """
    names = [name for name, _ in connections(dict(dynamics.joints.items()))]

    def stacked(multipliers):
        given = dict(zip(rows.names, multipliers[: len(rows.names)], strict=True))
        found = _wrenches(dynamics, t, q, v, acceleration, given)
        return jnp.concatenate([x for name in names for x in found[name]])

    none = jnp.zeros(len(rows.A), q.dtype)
    wrench, change = jax.linearize(stacked, none)
    unique = jnp.ones(wrench.shape, bool)
    if none.size:
        square = _square_length(dynamics, t, q)
        D = jnp.tile(jnp.repeat(jnp.stack([jnp.ones_like(square), 1 / square]), 3), len(names))
        K = jax.vmap(change, out_axes=1)(jnp.eye(none.size))
        M = (K.T * D) @ K + jnp.diag(_weights(dynamics, t, q, rows, square))
        least = mobility(Terms(M, -(K.T * D) @ wrench, rows.A.T, rows.force))
        wrench = wrench + K @ least.acceleration
        unique = D * jnp.sum((K @ least.factor) ** 2, axis=1) <= jnp.finfo(q.dtype).eps ** 0.5
    each = (x.reshape(-1, 2, 3) for x in (wrench, unique))
    return {name: Reaction(*x, *known) for name, x, known in zip(names, *each, strict=True)}


def _square_length(dynamics, t, q):
    """L² [m²] of ``reactions``; 1 where all points coincide."""
    there = poses(dynamics.joints, dynamics.tree, t, q)
    points = [there[name].p + there[name].R @ body.centre for name, body in dynamics.bodies.items()]
    for _, joint in connections(dict(dynamics.joints.items())):
        points.append(there[joint.child].frame(joint.in_child()).p)
    points = jnp.stack(points)
    square = jnp.mean(jnp.sum((points - jnp.mean(points, axis=0)) ** 2, axis=1))
    return jnp.where(square > 0, square, 1)


def _weights(dynamics, t, q, rows, square):
    """What the multiplier of each row adds to the norm besides the wrenches of joints: of a coupling, and of a row that
    belongs to no joint, the square of the generalised force of a unit multiplier, torques divided by L."""
    joints = dynamics.joints
    weight = {True: 1 / square, False: jnp.ones_like(square)}
    found = [jnp.zeros_like(square)] * len(rows.names)
    for name, coupling in joints.items():
        if isinstance(coupling, AbstractCoupling):
            units = [joints[other].coordinates[0][1] for other in coupling.joints]
            slope = _slope(dynamics, coupling, t, q)
            total = sum(x**2 * weight[unit == "rad"] for x, unit in zip(slope, units, strict=True))
            found[rows.names.index(name)] = jnp.where(total > 0, total, 1)
    others = rows.A[len(rows.names) :] ** 2 @ jnp.where(rows.turning, 1 / square, 1)
    return jnp.concatenate([jnp.stack([*found, square])[:-1], jnp.where(others > 0, others, 1)])


def _wrenches(dynamics, t, q, v, acceleration, multipliers):
    """Force and moment of all connections by name: of those that close loops by the ``multipliers`` of their rows, by
    the rows' names; of those that carry bodies by the equilibrium of what they carry, inertia included (D'Alembert's
    principle)."""
    joints, tree = dynamics.joints, dynamics.tree
    there = poses(joints, tree, t, q)
    found = {name: _closing(dynamics, name, there, t, q, v, acceleration, multipliers) for name in tree.closures}

    # What the bodies need beside what closes loops: forces, and moments about the first body of each tree.
    moves = moving(joints, tree, t, q, v, acceleration).bodies
    needed = BodyInertias.of(dynamics.bodies, tree, moves).inverse_dynamics(moves, dynamics.gravity)
    force, moment = (jnp.concatenate([x, jnp.zeros((1, 3))]) for x in needed)
    place = {name: i for i, name in enumerate(there)}
    arms = {name: there[joint.child].frame(joint.in_child()).p for name, joint in connections(dict(joints.items()))}
    for name, (push, turn) in found.items():
        for body, sign in ((joints[name].child, 1), (joints[name].parent, -1)):
            i = place[body]
            force = force.at[i].add(-sign * push)
            moment = moment.at[i].add(-sign * (turn + cross(arms[name] - moves.placed.base[i], push)))
    force, moment = carried(tree, force[:-1]), carried(tree, moment[:-1])
    for i, link in enumerate(tree.links):
        if link.joint is not None:
            sign = -1 if link.reverse else 1
            arm = arms[link.joint] - moves.placed.base[i]
            found[link.joint] = sign * force[i], sign * (moment[i] - cross(arm, force[i]))
    return found


def _closing(dynamics, name, there, t, q, v, acceleration, multipliers):
    """Of what closes a loop, from its rows' derivatives by the child's displacement, and of what acts along it."""
    joint = dynamics.joints[name]
    assert isinstance(joint, AbstractConnection)
    parent, child = (Pose(*there[end]) for end in (joint.parent, joint.child))
    parent, child = parent.frame(joint.in_parent()), child.frame(joint.in_child())

    def displaced(x):
        """By a turn x[:3] and a shift x[3:] in space, small ones."""
        R = child.R + skew(x[:3]) @ child.R
        return parent.R.T @ R, parent.R.T @ (child.p + x[3:] - parent.p)

    zero = jnp.zeros(6)
    statements = [lambda x: joint.residual(t, *displaced(x))]
    if isinstance(joint, AbstractContact):
        slip = lambda x: joint.slip(t, *displaced(zero), parent.R.T @ x[:3], parent.R.T @ x[3:])
        statements.append(slip)
    rows = jnp.concatenate([jax.jacfwd(statement)(zero) for statement in statements])
    labels = rows_of(name, joint)
    total = jnp.stack([multipliers[label] for label in labels]) @ rows if labels else zero
    if isinstance(joint, AbstractActing) and joint.quaternion is None and joint.coordinates:
        along = dynamics.elements.force(name, t, q, v, acceleration)
        total = total + (along + _coupled(dynamics, name, t, q, multipliers)) @ jax.jacfwd(
            lambda x: joint.coordinates_of(*displaced(x))
        )(zero)
    return total[3:], total[:3]


def _coupled(dynamics, name, t, q, multipliers):
    """What couplings put along the coordinate of a joint."""
    total = jnp.zeros(())
    for coupling_name, coupling in dynamics.joints.items():
        if isinstance(coupling, AbstractCoupling) and name in coupling.joints:
            slope = _slope(dynamics, coupling, t, q)
            total = total + multipliers[coupling_name] * slope[coupling.joints.index(name)]
    return total


def _slope(dynamics, coupling, t, q):
    """The derivative of a coupling's residual by the coordinates of its joints."""
    x = JointCoordinates(dynamics.joints, dynamics.tree, coupling.joints)(t, q)
    return jax.jacfwd(lambda x: coupling.residual(t, x)[0])(x)
