"""What the joints carry: the forces and moments between bodies."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._rotation import cross, skew
from ..joints import AbstractActing, AbstractConnection, AbstractContact, AbstractCoupling
from .closure import rows_of
from .dynamics import Inertias, TreeDynamics
from .elements import JointCoordinates
from .kinematics import Pose, moving, poses
from .recursion import carried
from .tree import connections


class Reaction(NamedTuple):
    """The ``force`` (3,) [N] and the ``moment`` (3,) [N m] about the child's joint point that a joint, with what acts
    along it, puts on its child, along the axes of space. The parent has the opposite."""

    force: Float[Array, " 3"]
    moment: Float[Array, " 3"]


def reactions(
    dynamics: TreeDynamics,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    acceleration: Float[Array, " n"],
    multipliers: Mapping[str, Float[Array, ""]],
) -> dict[str, Reaction]:
    """Of all connections by name: of those that close loops by the ``multipliers`` of their rows, by the rows' names;
    of those that carry bodies by the equilibrium of what they carry, inertia included (D'Alembert's principle)."""
    joints, tree = dynamics.joints, dynamics.tree
    there = poses(joints, tree, t, q)
    found = {name: _closing(dynamics, name, there, t, q, v, acceleration, multipliers) for name in tree.closures}

    # What the bodies need beside what closes loops: forces, and moments about the first body of each tree.
    moves = moving(joints, tree, t, q, v, acceleration).bodies
    needed = Inertias.of(dynamics.bodies, tree, moves).needed(moves, dynamics.gravity)
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
            found[link.joint] = Reaction(sign * force[i], sign * (moment[i] - cross(arm, force[i])))
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
    statements = [lambda x: joint.gap(t, *displaced(x))]
    if isinstance(joint, AbstractContact):
        slip = lambda x: joint.slip(t, *displaced(zero), parent.R.T @ x[:3], parent.R.T @ x[3:])
        statements.append(slip)
    rows = jnp.concatenate([jax.jacfwd(statement)(zero) for statement in statements])
    labels = rows_of(name, joint)
    total = jnp.stack([multipliers[label] for label in labels]) @ rows if labels else zero
    if isinstance(joint, AbstractActing) and joint.quaternion is None and joint.coordinates:
        along = dynamics.elements.force(name, t, q, v, acceleration)
        total = total + (along + _coupled(dynamics, name, t, q, multipliers)) @ jax.jacfwd(
            lambda x: joint.read(*displaced(x))
        )(zero)
    return Reaction(total[3:], total[:3])


def _coupled(dynamics, name, t, q, multipliers):
    """What couplings put along the coordinate of a joint."""
    total = jnp.zeros(())
    for coupling_name, coupling in dynamics.joints.items():
        if isinstance(coupling, AbstractCoupling) and name in coupling.joints:
            x = JointCoordinates(dynamics.joints, dynamics.tree, coupling.joints)(t, q)
            slope = jax.jacfwd(lambda x, coupling=coupling: coupling.gap(t, x)[0])(x)
            total = total + multipliers[coupling_name] * slope[coupling.joints.index(name)]
    return total
