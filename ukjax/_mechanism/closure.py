"""What binds the coordinates of a mechanism: loops, quaternions, couplings, contacts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint, Holonomic, Nonholonomic
from .._rotation import unskew
from ..joints import AbstractConnection, AbstractContact, AbstractCoupling
from .dynamics import quaternion_of
from .elements import JointCoordinates
from .floating import FloatingJoints
from .kinematics import poses, poses_of_two
from .named import Named
from .tree import Tree


class Loops(eqx.Module):
    """φ(t, q): the gaps of the joints that close loops, one after the other."""

    joints: Named
    tree: Tree = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " m"]:
        return jnp.concatenate([self._gap(self.joints[name], t, q) for name in self.names])

    def _gap(self, joint, t, q):
        there = poses_of_two(self.joints, self.tree, t, q, joint.parent, joint.child)
        return joint.gap(t, *_between(joint, there))

    @property
    def names(self) -> tuple[str, ...]:
        """Of those that have rows."""
        return tuple(name for name in self.tree.closures if self.joints[name].rows)

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(row for name in self.names for row in _labels(name, self.joints[name].rows))


class Contacts(eqx.Module):
    """ψ(t, q, v): the slip of the contacts, one after the other."""

    joints: Named
    tree: Tree = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        ends = {end for name in self.names for end in (self.joints[name].parent, self.joints[name].child)}

        def between(t, q):
            there = poses(self.joints, self.tree, t, q, ends)
            return [_between(self.joints[name], there) for name in self.names]

        found, rates = jax.jvp(between, (t, q), (jnp.ones_like(t), v))
        slips = [
            self.joints[name].slip(t, R, p, unskew(R_dot @ R.T), p_dot)
            for name, (R, p), (R_dot, p_dot) in zip(self.names, found, rates, strict=True)
        ]
        return jnp.concatenate(slips)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, joint in self.joints.items() if isinstance(joint, AbstractContact))

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(row for name in self.names for row in _labels(name, self.joints[name].slip_rows))


class Quaternions(eqx.Module):
    """φ(q) = (|u|² − 1)/2 of each quaternion among the coordinates, ``first`` being where each begins."""

    first: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " m"]:
        u = q[np.add.outer(self.first, range(4))]
        return (jnp.sum(u**2, axis=1) - 1) / 2


class Couplings(eqx.Module):
    """The gaps of the couplings, one after the other: of their joints' coordinates."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " m"]:
        return jnp.concatenate([self._one(self.joints[name], t, q) for name in self.names])

    def rate(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        """Its derivative along the motion."""
        return jax.jvp(self, (t, q), (jnp.ones_like(t), v))[1]

    def _one(self, coupling, t, q):
        return coupling.gap(t, JointCoordinates(self.joints, self.tree, coupling.joints)(t, q))


def constraints_of(joints: Named, tree: Tree) -> tuple[AbstractConstraint, ...]:
    """All of them."""
    found = []
    loops, contacts = Loops(joints, tree), Contacts(joints, tree)
    if loops.rows and tree.floats:
        found.append(FloatingJoints(joints=joints, tree=tree, among=loops.names, name=loops.rows))
    elif loops.rows:
        found.append(Holonomic(loops, name=loops.rows))
    couplings = [(name, joint) for name, joint in joints.items() if isinstance(joint, AbstractCoupling)]
    # What is read off a closed loop is an angle within half a turn: its rate is what can be relied on.
    sure = tuple(name for name, each in couplings if all(tree.carrying(joint) for joint in each.joints))
    others = tuple(name for name, _ in couplings if name not in sure)
    if sure:
        found.append(Holonomic(Couplings(joints, tree, sure), name=sure))
    if others:
        found.append(Nonholonomic(Couplings(joints, tree, others).rate, name=others))
    if contacts.rows:
        found.append(Nonholonomic(contacts, name=contacts.rows))
    units = [(link, at) for link in tree.links if (at := quaternion_of(joints, link)) is not None]
    if units:
        names = tuple(f"{link.joint or link.body} unit" for link, _ in units)
        found.append(Holonomic(Quaternions(tuple(at.start for _, at in units)), name=names))
    return tuple(found)


def rows_of(name: str, joint: AbstractConnection) -> tuple[str, ...]:
    """What the rows of one connection are called."""
    return _labels(name, (*joint.rows, *(joint.slip_rows if isinstance(joint, AbstractContact) else ())))


def _labels(name, rows):
    return tuple(f"{name} {row}" for row in rows)


def _between(joint, there):
    """The child's joint frame in the parent's."""
    return there[joint.child].frame(joint.in_child()).inside(there[joint.parent].frame(joint.in_parent()))
