"""Stops at the limits of joints, backlash of gears, and dry friction in joints that sticks."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import AbstractNonsmooth, NonsmoothRows
from .._kinematic_map import KinematicMap
from ..joints import AbstractActing, AbstractCoupling, AbstractJoint
from .closure import Couplings
from .elements import Elements, JointCoordinates
from .named import Named
from .tree import Tree


class Stops(AbstractNonsmooth):
    """The limits of joints that have a ``restitution``: one gap per joint, the distance to the nearer limit."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    name: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "Stops":
        """The stops of all joints."""
        return cls(joints=joints, tree=tree, name=tuple(name for name, joint in joints.items() if has_stop(joint)))

    def gaps(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        x = JointCoordinates(self.joints, self.tree, self.name)(t, q)
        low, high = self._limits(q)
        return jnp.minimum(x - low, high - x)

    def restitutions(self, m: int) -> Float[Array, " m"]:
        return jnp.stack([self.joints[name].restitution for name in self.name])

    def rows(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], kinematic_map: KinematicMap | None
    ) -> NonsmoothRows:
        x = JointCoordinates(self.joints, self.tree, self.name).motion(t, q, v)
        low, high = self._limits(q)
        sign = jnp.where(x.value - low < high - x.value, 1.0, -1.0).astype(q.dtype)
        gap = jnp.minimum(x.value - low, high - x.value)
        no_slip = jnp.zeros((0, 1), q.dtype)
        of_gaps = gap, sign * x.rate, sign[:, None] * x.A, sign * x.second
        return NonsmoothRows(*of_gaps, no_slip, jnp.zeros((0, 1, v.size), q.dtype), no_slip)

    def _limits(self, q):
        return jnp.asarray([self.joints[name].limits for name in self.name], q.dtype).T


class Backlash(AbstractNonsmooth):
    """The teeth of gears with play: two gaps per gear, that at its lower and that at its upper end."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    name: tuple[str, ...] = eqx.field(static=True)
    gears: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "Backlash":
        """The backlash of all gears."""
        gears = tuple(name for name, joint in joints.items() if isinstance(joint, AbstractCoupling) and joint.has_play)
        names = tuple(f"{gear} {end}" for gear in gears for end in ("low", "high"))
        return cls(joints=joints, tree=tree, name=names, gears=gears)

    def gaps(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return self._distances(self._couplings().position(t, q))

    def restitutions(self, m: int) -> Float[Array, " m"]:
        return jnp.repeat(jnp.stack([self.joints[name].restitution for name in self.gears]), 2)

    def rows(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], kinematic_map: KinematicMap | None
    ) -> NonsmoothRows:
        found = self._couplings().at(t, q, v)
        assert found.position is not None and found.velocity is not None
        no_slip = jnp.zeros((0, 1), q.dtype)
        rate, A, bias = map(_both_ways, (found.velocity, found.A, -found.b))
        no_friction = no_slip, jnp.zeros((0, 1, v.size), q.dtype), no_slip
        return NonsmoothRows(self._distances(found.position), rate, A, bias, *no_friction)

    def _couplings(self):
        return Couplings(joints=self.joints, tree=self.tree, name=self.gears)

    def _distances(self, residual):
        play = jnp.stack([self.joints[name].backlash for name in self.gears]).astype(residual.dtype)
        return _both_ways(residual) + jnp.repeat(play / 2, 2)


def _both_ways(x: Array) -> Array:
    """Each entry or row of x, followed by its negative."""
    return jnp.stack([x, -x], axis=1).reshape(-1, *x.shape[1:])


class StickingFriction(AbstractNonsmooth):
    """The dry friction of joints that sticks, along each of their velocities."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    name: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "StickingFriction":
        """The sticking friction of all joints."""
        names = Elements(joints, tree).joints_with_friction(sticks=True)
        rates = [(name, rate.removeprefix("d")) for name in names for rate, _ in joints[name].velocities]
        return cls(joints=joints, tree=tree, name=tuple(f"{name}_{rate}" if rate else name for name, rate in rates))

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups d"]:
        elements = Elements(self.joints, self.tree)
        names = elements.joints_with_friction(sticks=True)
        motion = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
        return (motion.rate @ elements.friction_axes(names, motion))[:, None]

    def limits(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int) -> Float[Array, " groups"]:
        elements = Elements(self.joints, self.tree)
        return elements.friction_limits(elements.joints_with_friction(sticks=True))

    @property
    def has_static(self) -> bool:
        names = Elements(self.joints, self.tree).joints_with_friction(sticks=True)
        return any(self.joints[name].static_friction is not None for name in names)

    def static_limits(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int
    ) -> Float[Array, " groups"]:
        elements = Elements(self.joints, self.tree)
        return elements.static_friction_limits(elements.joints_with_friction(sticks=True))


def has_stop(joint: Any) -> bool:
    """Whether the limits of a joint are stops."""
    return isinstance(joint, AbstractJoint) and joint.limits is not None and joint.restitution is not None


def stops_and_friction(joints: Named, tree: Tree) -> tuple[AbstractNonsmooth, ...]:
    """Stops, backlash and sticking friction of a mechanism, without those that have no rows."""
    stops = Stops.of(joints, tree), Backlash.of(joints, tree)
    sticks = any(isinstance(joint, AbstractActing) and joint.sticks for _, joint in joints.items())
    friction = (StickingFriction.of(joints, tree),) if sticks else ()
    return tuple(each for each in (*stops, *friction) if each.name)
