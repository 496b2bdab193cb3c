"""What binds the coordinates of a mechanism: loops, couplings, contacts."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._constraint import AbstractConstraint, Holonomic, Level, Rows, no_rows
from ..joints import AbstractConnection, AbstractContact, AbstractCoupling
from .between import Between
from .elements import JointCoordinates
from .named import Named
from .tree import Tree


class Loops(AbstractConstraint):
    """φ(t, q): the residuals of the joints that close loops, one after the other."""

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
        return _rows(self.between.motion(_residual, t, q, v))

    def by_seeds(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds) -> Rows:
        return _rows(self.between.motion(_residual, t, q, v, seeds))

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return self.between.value(_residual, t, q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.between.motion(_residual, t, q, v).rate

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "m n"]:
        return self.between.motion(_residual, t, q, jnp.zeros_like(v)).A


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
        return no_rows(q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        return self.between.slip(_slip, t, q, v).value

    def velocity_slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        return self.between.slip(_slip, t, q, v).A


def _rows(residuals):
    return Rows(residuals.value, residuals.rate, residuals.A, -residuals.second)


def _residual(joint, t, R, p):
    return joint.residual(t, R, p)


def _slip(joint, t, R, p, omega, velocity):
    return joint.slip(t, R, p, omega, velocity)


class Couplings(AbstractConstraint):
    """φ(t, x): the residuals of the couplings, one after the other, x being the coordinates of their joints."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    name: tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "position"

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.at(t, q, v)[2:]

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        x = self._coordinates().motion(t, q, v)
        first, second = (jnp.ones_like(t), x.rate), (jnp.zeros_like(t), x.second)
        along = lambda at, rate: jax.jvp(self._residuals, at, rate)
        (phi, phi_dot), (_, bias) = jax.jvp(along, ((t, x.value), first), (first, second))
        return Rows(phi, phi_dot, self._slope(t, x), -bias)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return self._residuals(t, self._coordinates()(t, q))

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        x = self._coordinates().motion(t, q, v)
        return jax.jvp(self._residuals, (t, x.value), (jnp.ones_like(t), x.rate))[1]

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "m n"]:
        return self._slope(t, self._coordinates().motion(t, q, jnp.zeros_like(v)))

    def _coordinates(self):
        return JointCoordinates(self.joints, self.tree, tuple(joint for each in self._each() for joint in each.joints))

    def _each(self):
        return [self.joints[name] for name in self.name]

    def _residuals(self, t, x):
        return jnp.concatenate(
            [each.residual(t, part) for each, part in zip(self._each(), self._parts(x), strict=True)]
        )

    def _slope(self, t, x):
        parts = zip(self._each(), self._parts(x.value), self._parts(x.A), strict=True)
        return jnp.concatenate(
            [jax.jacfwd(lambda x, each=each: each.residual(t, x))(part) @ A for each, part, A in parts]
        )

    def _parts(self, x):
        """Of each coupling those entries, or rows, that are its joints'."""
        return jnp.split(x, np.cumsum([len(each.joints) for each in self._each()])[:-1])


def constraints_of(joints: Named, tree: Tree) -> tuple[AbstractConstraint, ...]:
    """All of them."""
    loops, contacts = Loops.of(joints, tree), Contacts.of(joints, tree)
    coupled = {name: joint.joints for name, joint in joints.items() if isinstance(joint, AbstractCoupling)}
    # Where all coordinates are entries of q, derivatives by q are the shorter program.
    plain = tuple(name for name, of in coupled.items() if all(tree.carrying(joint) for joint in of))
    others = Couplings(joints=joints, tree=tree, name=tuple(name for name in coupled if name not in plain))
    of_plain = Holonomic(Couplings(joints=joints, tree=tree, name=plain).position, name=plain or "couplings")
    found = (loops, loops.name), (of_plain, plain), (others, others.name), (contacts, contacts.name)
    return tuple(constraint for constraint, rows in found if rows)


def rows_of(name: str, joint: AbstractConnection) -> tuple[str, ...]:
    """What the rows of one connection are called."""
    return _labels(name, (*joint.rows, *(joint.slip_rows if isinstance(joint, AbstractContact) else ())))


def _labels(name, rows):
    return tuple(f"{name} {row}" for row in rows)
