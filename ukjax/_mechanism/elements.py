"""What acts along the coordinates of joints: springs, dampers, motors' inertia, dry friction."""

from collections.abc import Callable, Sequence
from typing import overload

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._friction import DryFriction
from .._rotation import of_quaternion, quaternion_product, rotation_vector
from ..joints import AbstractActing
from ..joints.base import nearest_turn
from .between import Between, Found
from .named import Named
from .tree import Tree

CREEP = 1e-3
"""The rate, in the coordinate's unit per second, at which dry friction has three quarters of its size, where a joint
does not say its own: it is smooth, so that equations of motion have a solution through the standstill."""


class JointCoordinates(eqx.Module):
    """The coordinates (k,) of some joints, one after the other, as a function of t and q.

    Those of a joint that carries a body are entries of q. Those of one that closes a loop are read off the bodies;
    where its turns are counted, its own entries of q say in which turn its angles are, and no more.
    """

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        closing, places, _ = self._closing()
        return (jnp.concatenate([q, self._in_turn(closing, closing.value(_read, t, q), q)]) if closing.names else q)[
            places
        ]

    def columns(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, "n k"]:
        """The generalised force of a unit of force or torque along each."""
        return self.motion(t, q, jnp.zeros(self.tree.n, q.dtype)).A.T

    def motion(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Found:
        """With their rates, their accelerations where all velocities are constant, and the derivative of their rates by
        the velocities of the mechanism."""
        closing, places, moving = self._closing()
        found = Found(q, v, jnp.zeros_like(v), jnp.eye(v.size, dtype=q.dtype))
        if closing.names:
            others = closing.motion(_read, t, q, v)
            others = others._replace(value=self._in_turn(closing, others.value, q))
            found = Found(*(jnp.concatenate(both) for both in zip(found, others, strict=True)))
        return Found(found.value[places], *(x[moving] for x in found[1:]))

    def _closing(self):
        """Those of the joints that carry nothing, and where the coordinates, and their rates, are among those of the
        mechanism and of these."""
        closing, places, moving, more = [], [], [], 0
        for name in self.names:
            link = self.tree.carrying(name)
            if link is None:
                closing.append(name)
                own = range(more, more := more + len(self.joints[name].coordinates))
                places.extend(self.tree.nq + i for i in own)
                moving.extend(self.tree.n + i for i in own)
            else:
                places.extend(link.coordinates)
                moving.extend(link.velocities)
        return Between(self.joints, self.tree, tuple(closing)), np.array(places, int), np.array(moving, int)

    def _in_turn(self, closing, read, q):
        """What was read off the bodies, angles in the turn that q says."""
        counted = {joint.joint: joint.coordinates for joint in self.tree.counted}
        at, places, first = [], [], 0
        for name in closing.names:
            units = [unit for _, unit in self.joints[name].coordinates]
            if name in counted:
                angles = [i for i, unit in enumerate(units) if unit == "rad"]
                at.extend(first + i for i in angles)
                places.extend(counted[name][i] for i in angles)
            first += len(units)
        if not at:
            return read
        at, places = np.array(at), np.array(places)
        return read.at[at].set(nearest_turn(read[at], q[places]))


class Elements(eqx.Module):
    """All of them, of one mechanism."""

    joints: Named
    tree: Tree = eqx.field(static=True)

    @property
    def any(self) -> bool:
        """Whether something is to be ``added``."""
        return bool(self._with("stiffness", "damping", "armature"))

    def added(self, M: Array, Q: Array, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
        """M and Q with them, but for friction."""
        names = self._with("stiffness", "damping", "armature")
        if not names:
            return M, Q
        along = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
        force = self._of_springs_and_dampers(names, along)
        armature = self._numbers("armature", names)
        if armature is not None:
            M = M + (along.A.T * armature) @ along.A
            force = force - armature * along.second
        return M, Q + force @ along.A

    def energy(self, t: Array, q: Array, v: Array) -> Float[Array, ""]:
        """What springs and the inertia of motors hold."""
        names = self._with("stiffness", "armature")
        if not names:
            return jnp.zeros(())
        along = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
        stiffness, armature = (self._numbers(field, names) for field in ("stiffness", "armature"))
        spring = 0.0 if stiffness is None else stiffness * self._stretch(names, along) ** 2
        return jnp.sum(spring + (0.0 if armature is None else armature * along.rate**2)) / 2

    def force(self, name: str, t: Array, q: Array, v: Array, acceleration: Array) -> Float[Array, " k"]:
        """All that acts along the coordinates of one joint in a motion, its motor's inertia included."""
        along = JointCoordinates(self.joints, self.tree, (name,)).motion(t, q, v)
        force = self._of_springs_and_dampers((name,), along)
        armature = self._numbers("armature", (name,))
        force = force + self._of_friction((name,), along)
        if armature is not None:
            force = force - armature * (along.A @ acceleration + along.second)
        return force

    def friction(self) -> Callable | None:
        """c(t, q, v) of dry friction, or None where there is none."""
        return self._friction if self._with("friction") else None

    def dry_friction(self) -> DryFriction | None:
        """What is known of it, or None where there is none."""
        names = self._with("friction")
        if not names:
            return None
        limit, width = self._numbers("friction", names, 0.0), self._numbers("creep", names, CREEP)
        own = [(name, rate.removeprefix("d")) for name in names for rate, _ in self.joints[name].velocities]

        def rates(t, q, v):
            along = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
            axes = self._axes_of_friction(names, along)
            return along.rate @ axes, axes.T @ along.A

        labels = tuple(f"{name}_{rate}" if rate else name for name, rate in own)
        usual = tuple(self.joints[name].creep is None for name, _ in own)
        return DryFriction(labels, rates, limit, width, usual)

    def _friction(self, t: Array, q: Array, v: Array) -> Float[Array, " n"]:
        names = self._with("friction")
        along = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
        return self._of_friction(names, along) @ along.A

    def _of_friction(self, names, along):
        friction, creep = self._numbers("friction", names), self._numbers("creep", names, CREEP)
        if friction is None:
            return jnp.zeros_like(along.rate)
        if not self._any_turns(names):
            return -friction * jnp.tanh(along.rate / creep)
        axes = self._axes_of_friction(names, along)
        return -axes @ (friction * jnp.tanh(along.rate @ axes / creep))

    def _axes_of_friction(self, names, along):
        """What it acts along, as columns (k, k), among the rates of these joints: of an attitude the child's axes."""
        axes, places = jnp.eye(along.rate.size, dtype=along.rate.dtype), np.arange(along.rate.size)
        for joint, q, _, (at,) in self._each(names, along, places):
            i = joint.quaternion
            if i is not None:
                axes = axes.at[np.ix_(at[i : i + 3], at[i : i + 3])].set(of_quaternion(q[i : i + 4]))
        return axes

    def _of_springs_and_dampers(self, names, along):
        force = jnp.zeros_like(along.rate)
        stiffness, damping = (self._numbers(field, names) for field in ("stiffness", "damping"))
        if stiffness is not None:
            force = force - stiffness * self._stretch(names, along)
        return force if damping is None else force - damping * along.rate

    def _stretch(self, names, along):
        """Along each velocity of these joints, how far the joint is from the rest of its spring: of an attitude, the
        rotation vector from that at rest, 0 where the joint has no spring."""
        if not self._any_turns(names):
            rest = self._numbers("rest", names)
            return along.value - (0.0 if rest is None else rest)
        parts = []
        for joint, q, rate, _ in self._each(names, along):
            i, rest = joint.quaternion, joint.rest
            if i is None:
                parts.append(q - (0.0 if rest is None else rest))
            elif joint.stiffness is None:
                parts.append(jnp.zeros_like(rate))
            else:
                rest = jnp.asarray(joint.neutral) if rest is None else rest
                back = rest[i : i + 4] * jnp.array([1.0, -1.0, -1.0, -1.0])
                turn = rotation_vector(quaternion_product(q[i : i + 4], back))
                parts.append(jnp.concatenate([q[:i] - rest[:i], turn, q[i + 4 :] - rest[i + 4 :]]))
        return jnp.concatenate(parts)

    def _any_turns(self, names) -> bool:
        return any(self.joints[name].quaternion is not None for name in names)

    def _each(self, names, along, *numbers):
        """Each joint, with its coordinates, its velocities and its own of the ``numbers``, of one for each velocity."""
        i = j = 0
        for name in names:
            joint = self.joints[name]
            k, m = len(joint.coordinates), len(joint.velocities)
            yield joint, along.value[i : i + k], along.rate[j : j + m], [x[j : j + m] for x in numbers]
            i, j = i + k, j + m

    def _with(self, *fields: str) -> tuple[str, ...]:
        """The joints that have one of these."""
        found = ((name, joint) for name, joint in self.joints.items() if isinstance(joint, AbstractActing))
        return tuple(name for name, joint in found if any(getattr(joint, field) is not None for field in fields))

    @overload
    def _numbers(self, field: str, names: Sequence[str], default: float) -> Float[Array, " k"]: ...
    @overload
    def _numbers(self, field: str, names: Sequence[str]) -> Float[Array, " k"] | None: ...
    def _numbers(self, field, names, default=None):
        """For each velocity of these joints, the default, or 0, where a joint has none; None where no joint has any
        and there is no default."""
        found = [(getattr(self.joints[name], field), len(self.joints[name].velocities)) for name in names]
        if default is None and all(value is None for value, _ in found):
            return None
        usual = default or 0.0
        return jnp.concatenate([jnp.broadcast_to(usual if value is None else value, (size,)) for value, size in found])


def _read(joint, t, R, p):
    return joint.coordinates_of(R, p)
