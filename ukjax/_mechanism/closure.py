"""What binds the coordinates of a mechanism: loops, couplings, contacts."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._constraint import AbstractConstraint, Holonomic, Level, Nonholonomic, Rows, nothing
from ..joints import AbstractConnection, AbstractContact, AbstractCoupling
from .between import Between
from .elements import JointCoordinates
from .named import Named
from .tree import Tree


class Loops(AbstractConstraint):
    """φ(t, q): the gaps of the joints that close loops, one after the other."""

    between: Between
    name: tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "position"

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "Loops":
        names = tuple(name for name in tree.closures if joints[name].rows)
        rows = tuple(row for name in names for row in _labels(name, joints[name].rows))
        return cls(between=Between(joints, tree, names), name=rows)

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.at(t, q, v)[2:]

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        return _rows(self.between.motion(_gap, t, q, v))

    def by_seeds(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds) -> Rows:
        return _rows(self.between.motion(_gap, t, q, v, seeds))

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return self.between.value(_gap, t, q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.between.motion(_gap, t, q, v).rate

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "m n"]:
        return self.between.motion(_gap, t, q, jnp.zeros_like(v)).A


class Contacts(AbstractConstraint):
    """ψ(t, q, v): the slip of the contacts, one after the other."""

    between: Between
    name: tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "velocity"
    linear: ClassVar[bool] = False

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "Contacts":
        names = tuple(name for name, joint in joints.items() if isinstance(joint, AbstractContact))
        rows = tuple(row for name in names for row in _labels(name, joints[name].slip_rows))
        return cls(between=Between(joints, tree, names), name=rows)

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.at(t, q, v)[2:]

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        found = self.between.slip(_slip, t, q, v)
        return Rows(self.position(t, q), found.value, found.A, -found.second)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " 0"]:
        return nothing(q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        return self.between.slip(_slip, t, q, v).value

    def velocity_slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        return self.between.slip(_slip, t, q, v).A


def _rows(gaps):
    return Rows(gaps.value, gaps.rate, gaps.A, -gaps.second)


def _gap(joint, t, R, p):
    return joint.gap(t, R, p)


def _slip(joint, t, R, p, omega, velocity):
    return joint.slip(t, R, p, omega, velocity)


class Couplings(eqx.Module):
    """The gaps of the couplings, one after the other: of their joints' coordinates."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return jnp.concatenate([self._one(self.joints[name], t, q) for name in self.names])

    def rate(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        """Its derivative along the motion."""
        return jnp.concatenate([self._rate(self.joints[name], t, q, v) for name in self.names])

    def _one(self, coupling, t, q):
        return coupling.gap(t, JointCoordinates(self.joints, self.tree, coupling.joints)(t, q))

    def _rate(self, coupling, t, q, v):
        along = JointCoordinates(self.joints, self.tree, coupling.joints).motion(t, q, v)
        return jax.jvp(coupling.gap, (t, along.value), (jnp.ones_like(t), along.rate))[1]


def constraints_of(joints: Named, tree: Tree) -> tuple[AbstractConstraint, ...]:
    """All of them."""
    found = []
    loops, contacts = Loops.of(joints, tree), Contacts.of(joints, tree)
    if loops.name:
        found.append(loops)
    couplings = [(name, joint) for name, joint in joints.items() if isinstance(joint, AbstractCoupling)]
    # What is read off a closed loop is an angle within half a turn: its rate is what can be relied on.
    sure = tuple(name for name, each in couplings if all(tree.carrying(joint) for joint in each.joints))
    others = tuple(name for name, _ in couplings if name not in sure)
    if sure:
        found.append(Holonomic(Couplings(joints, tree, sure), name=sure))
    if others:
        found.append(Nonholonomic(Couplings(joints, tree, others).rate, name=others))
    if contacts.name:
        found.append(contacts)
    return tuple(found)


def rows_of(name: str, joint: AbstractConnection) -> tuple[str, ...]:
    """What the rows of one connection are called."""
    return _labels(name, (*joint.rows, *(joint.slip_rows if isinstance(joint, AbstractContact) else ())))


def _labels(name, rows):
    return tuple(f"{name} {row}" for row in rows)
