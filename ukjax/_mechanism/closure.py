"""The constraints of a mechanism: closed loops, couplings and contacts."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._constraint import AbstractConstraint, Holonomic, Level, Rows, no_rows
from ..joints import AbstractConnection, AbstractContact, AbstractCoupling
from .between import Connections
from .elements import JointCoordinates
from .named import Named
from .tree import Tree


class Loops(AbstractConstraint):
    """The residuals φ(t, q) of the joints that close loops, concatenated."""

    between: Connections
    name: tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "position"

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "Loops":
        names = tuple(name for name in tree.closures if joints[name].rows)
        rows = tuple(row for name in names for row in _labels(name, joints[name].rows))
        return cls(between=Connections(joints, tree, names), name=rows)

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
    """The slip velocities ψ(t, q, v) of the rolling contacts, concatenated."""

    between: Connections
    name: tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "velocity"
    linear: ClassVar[bool] = False

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "Contacts":
        names = tuple(name for name, joint in joints.items() if isinstance(joint, AbstractContact))
        rows = tuple(row for name in names for row in _labels(name, joints[name].slip_rows))
        return cls(between=Connections(joints, tree, names), name=rows)

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.at(t, q, v)[2:]

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        slip = self.between.slip(_slip, t, q, v)
        return Rows(self.position(t, q), slip.value, slip.A, -slip.second)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " 0"]:
        return no_rows(q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        return self.between.slip(_slip, t, q, v).value

    def velocity_slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        return self.between.slip(_slip, t, q, v).A


def _rows(residuals):
    return Rows(residuals.value, residuals.rate, residuals.A, -residuals.second)


def _residual(joint, t, R, p):
    return joint.residual(t, R, p).astype(R.dtype)  # joints may contain wider constants


def _slip(joint, t, R, p, omega, velocity):
    return joint.slip(t, R, p, omega, velocity).astype(R.dtype)


class Couplings(AbstractConstraint):
    """The residuals φ(t, x) of the couplings, concatenated; x are the coordinates of the coupled joints."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    name: tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "position"

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.at(t, q, v)[2:]

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        x = self._coordinates().motion(t, q, v)
        first, second = (jnp.ones_like(t), x.rate), (jnp.zeros_like(t), x.second)
        derivative = lambda at, rate: jax.jvp(self._residuals, at, rate)
        (phi, phi_dot), (_, bias) = jax.jvp(derivative, ((t, x.value), first), (first, second))
        return Rows(phi, phi_dot, self._slope(t, x), -bias)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return self._residuals(t, self._coordinates()(t, q))

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        x = self._coordinates().motion(t, q, v)
        return jax.jvp(self._residuals, (t, x.value), (jnp.ones_like(t), x.rate))[1]

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "m n"]:
        return self._slope(t, self._coordinates().motion(t, q, jnp.zeros_like(v)))

    def _coordinates(self):
        return JointCoordinates(
            self.joints, self.tree, tuple(joint for coupling in self._members() for joint in coupling.joints)
        )

    def _members(self):
        return [self.joints[name] for name in self.name]

    def _residuals(self, t, x):
        return jnp.concatenate(
            [coupling.residual(t, part) for coupling, part in zip(self._members(), self._parts(x), strict=True)]
        )

    def _slope(self, t, x):
        parts = zip(self._members(), self._parts(x.value), self._parts(x.A), strict=True)
        return jnp.concatenate(
            [jax.jacfwd(lambda x, coupling=coupling: coupling.residual(t, x))(part) @ A for coupling, part, A in parts]
        )

    def _parts(self, x):
        """Split the entries, or rows, of x by coupling."""
        return jnp.split(x, np.cumsum([len(coupling.joints) for coupling in self._members()])[:-1])


def constraints_of(joints: Named, tree: Tree) -> tuple[AbstractConstraint, ...]:
    """All constraints of a mechanism, without those that have no rows."""
    loops, contacts = Loops.of(joints, tree), Contacts.of(joints, tree)
    couplings = ((name, joint) for name, joint in joints.items() if isinstance(joint, AbstractCoupling))
    coupled = {name: coupling.joints for name, coupling in couplings if not coupling.has_play}
    # If all coordinates are entries of q, differentiation with respect to q compiles to less code.
    plain = tuple(
        name
        for name, joints_of_coupling in coupled.items()
        if all(tree.link_of_joint(joint) for joint in joints_of_coupling)
    )
    other_couplings = Couplings(joints=joints, tree=tree, name=tuple(name for name in coupled if name not in plain))
    plain_couplings = Holonomic(Couplings(joints=joints, tree=tree, name=plain).position, name=plain or "couplings")
    candidates = (
        (loops, loops.name),
        (plain_couplings, plain),
        (other_couplings, other_couplings.name),
        (contacts, contacts.name),
    )
    return tuple(constraint for constraint, rows in candidates if rows)


def rows_of(name: str, joint: AbstractConnection) -> tuple[str, ...]:
    """The labels of the rows of one connection."""
    return _labels(name, (*joint.rows, *(joint.slip_rows if isinstance(joint, AbstractContact) else ())))


def _labels(name, rows):
    return tuple(f"{name} {row}" for row in rows)
