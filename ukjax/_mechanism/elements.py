"""Forces along joint coordinates: springs, dampers, motor inertia and dry friction."""

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
from .between import Connections, Evaluation
from .named import Named
from .tree import Tree

DEFAULT_CREEP = 1e-3
"""Default ``creep`` of a joint, in the unit of the coordinate per second.

At this rate, dry friction reaches tanh(1) = 0.76 of its limit. Friction is a smooth function of the rate, so that the
equations of motion have a solution at standstill.
"""


SMOOTH = ("stiffness", "preload", "damping", "armature")
"""Fields of a joint that add to M or Q."""


class JointCoordinates(eqx.Module):
    """The coordinates (k,) of some joints, concatenated, as a function of t and q.

    The coordinates of a joint that carries a body are entries of q. The coordinates of a joint that closes a loop
    follow from the poses of the bodies. If the turns of such a joint are counted, its own entries of q only determine
    the turn of its angles.
    """

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        closing, indices, _ = self._closing()
        return (jnp.concatenate([q, self._with_turns(closing, closing.value(_read, t, q), q)]) if closing.names else q)[
            indices
        ]

    def columns(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, "n k"]:
        """The matrix (n, k) of generalised forces for a unit of force or torque along each coordinate."""
        return self.motion(t, q, jnp.zeros(self.tree.n, q.dtype)).A.T

    def motion(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Evaluation:
        """The coordinates with their rates, their accelerations at constant v, and the derivative of the rates by v."""
        closing, indices, rate_indices = self._closing()
        evaluation = Evaluation(q, v, jnp.zeros_like(v), jnp.eye(v.size, dtype=q.dtype))
        if closing.names:
            closed = closing.motion(_read, t, q, v)
            closed = closed._replace(value=self._with_turns(closing, closed.value, q))
            evaluation = Evaluation(*(jnp.concatenate(parts) for parts in zip(evaluation, closed, strict=True)))
        return Evaluation(evaluation.value[indices], *(x[rate_indices] for x in evaluation[1:]))

    def _closing(self):
        """The joints that close loops, and the indices of all coordinates and rates of these joints.

        Indices refer to q, or v, followed by the coordinates of the joints that close loops.
        """
        closing, indices, rate_indices, offset = [], [], [], 0
        for name in self.names:
            link = self.tree.link_of_joint(name)
            if link is None:
                closing.append(name)
                new = range(offset, offset := offset + len(self.joints[name].coordinates))
                indices.extend(self.tree.nq + i for i in new)
                rate_indices.extend(self.tree.n + i for i in new)
            else:
                indices.extend(link.coordinates)
                rate_indices.extend(link.velocities)
        return Connections(self.joints, self.tree, tuple(closing)), np.array(indices, int), np.array(rate_indices, int)

    def _with_turns(self, closing, read, q):
        """Move the angles in ``read``, which are known modulo 2π, to the turns that q determines."""
        counted = {joint.joint: joint.coordinates for joint in self.tree.counted}
        indices, indices_in_q, first = [], [], 0
        for name in closing.names:
            units = [unit for _, unit in self.joints[name].coordinates]
            if name in counted:
                angles = [i for i, unit in enumerate(units) if unit == "rad"]
                indices.extend(first + i for i in angles)
                indices_in_q.extend(counted[name][i] for i in angles)
            first += len(units)
        if not indices:
            return read
        indices, indices_in_q = np.array(indices), np.array(indices_in_q)
        return read.at[indices].set(nearest_turn(read[indices], q[indices_in_q]))


class Elements(eqx.Module):
    """All springs, dampers, armatures and dry friction of a mechanism."""

    joints: Named
    tree: Tree = eqx.field(static=True)

    @property
    def any(self) -> bool:
        """Whether there is a spring, a damper or an armature."""
        return bool(self._joints_with(*SMOOTH))

    def add_to_terms(self, M: Array, Q: Array, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
        """M and Q including springs, dampers and armatures, without dry friction."""
        names = self._joints_with(*SMOOTH)
        if not names:
            return M, Q
        motion = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
        force = self._spring_and_damper_force(names, motion)
        armature = self._values("armature", names)
        if armature is not None:
            M = M + (motion.A.T * armature) @ motion.A
            force = force - armature * motion.second
        return M, Q + force @ motion.A

    def energy(self, t: Array, q: Array, v: Array) -> Float[Array, ""]:
        """Potential energy of springs and kinetic energy of armatures [J]."""
        names = self._joints_with("stiffness", "preload", "armature")
        if not names:
            return jnp.zeros((), q.dtype)
        motion = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
        stiffness, preload, armature = (self._values(field, names) for field in ("stiffness", "preload", "armature"))
        twice = jnp.zeros_like(motion.rate) if armature is None else armature * motion.rate**2
        stretch = self._stretch(names, motion)
        if stiffness is not None:
            twice = twice + stiffness * stretch**2
        if preload is not None:
            twice = twice - 2 * preload * stretch
        return jnp.sum(twice) / 2

    def force(self, name: str, t: Array, q: Array, v: Array, acceleration: Array) -> Float[Array, " k"]:
        """The total force along the coordinates of one joint, including the inertial force of its armature."""
        motion = JointCoordinates(self.joints, self.tree, (name,)).motion(t, q, v)
        force = self._spring_and_damper_force((name,), motion)
        armature = self._values("armature", (name,))
        force = force + self._friction_force((name,), motion)
        if armature is not None:
            force = force - armature * (motion.A @ acceleration + motion.second)
        return force

    def friction(self) -> Callable | None:
        """The function c(t, q, v) of the generalised dry friction force, or None without dry friction."""
        return self._friction if self.joints_with_friction(sticks=False) else None

    def dry_friction(self) -> DryFriction | None:
        """Limits, rates and smoothing widths of dry friction, or None without dry friction."""
        names = self.joints_with_friction(sticks=False)
        if not names:
            return None
        limit, width = self._values("friction", names, 0.0), self._values("creep", names, DEFAULT_CREEP)
        rates_of_joints = [(name, rate.removeprefix("d")) for name in names for rate, _ in self.joints[name].velocities]

        def rates(t, q, v):
            motion = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
            axes = self.friction_axes(names, motion)
            return motion.rate @ axes, axes.T @ motion.A

        labels = tuple(f"{name}_{rate}" if rate else name for name, rate in rates_of_joints)
        is_default = tuple(self.joints[name].creep is None for name, _ in rates_of_joints)
        return DryFriction(labels, rates, limit, width, is_default)

    def joints_with_friction(self, sticks: bool) -> tuple[str, ...]:
        """The names of the joints whose dry friction ``sticks``, or is smooth."""
        return tuple(name for name in self._joints_with("friction") if self.joints[name].sticks == sticks)

    def friction_limits(self, names: Sequence[str]) -> Float[Array, " k"]:
        """The largest friction forces, one per velocity of these joints."""
        return self._values("friction", names, 0.0)

    def static_friction_limits(self, names: Sequence[str]) -> Float[Array, " k"]:
        """The largest friction forces where friction sticks, one per velocity of these joints."""
        static = (jnp.broadcast_to(_static(self.joints[name]), (len(self.joints[name].velocities),)) for name in names)
        return jnp.concatenate(list(static))

    def _friction(self, t: Array, q: Array, v: Array) -> Float[Array, " n"]:
        names = self.joints_with_friction(sticks=False)
        motion = JointCoordinates(self.joints, self.tree, names).motion(t, q, v)
        return self._friction_force(names, motion) @ motion.A

    def _friction_force(self, names, motion):
        friction, creep = self._values("friction", names), self._values("creep", names, DEFAULT_CREEP)
        if friction is None:
            return jnp.zeros_like(motion.rate)
        if not self._any_quaternion(names):
            return -friction * jnp.tanh(motion.rate / creep)
        axes = self.friction_axes(names, motion)
        return -axes @ (friction * jnp.tanh(motion.rate @ axes / creep))

    def friction_axes(self, names: Sequence[str], motion: Evaluation) -> Float[Array, "k k"]:
        """The directions of friction, as columns (k, k), among the rates: for a quaternion, the child's axes."""
        axes, indices = jnp.eye(motion.rate.size, dtype=motion.rate.dtype), np.arange(motion.rate.size)
        for joint, q, _, (own,) in self._members(names, motion, indices):
            i = joint.quaternion
            if i is not None:
                axes = axes.at[np.ix_(own[i : i + 3], own[i : i + 3])].set(of_quaternion(q[i : i + 4]))
        return axes

    def _spring_and_damper_force(self, names, motion):
        force = jnp.zeros_like(motion.rate)
        stiffness, preload, damping = (self._values(field, names) for field in ("stiffness", "preload", "damping"))
        if stiffness is not None:
            force = force - stiffness * self._stretch(names, motion)
        if preload is not None:
            force = force + preload
        return force if damping is None else force - damping * motion.rate

    def _stretch(self, names, motion):
        """The deflection of each spring from its rest position, with one entry per velocity.

        For a quaternion it is the rotation vector from the attitude at rest, or 0 if the joint has no spring.
        """
        if not self._any_quaternion(names):
            rest = self._values("rest", names)
            return motion.value - (0.0 if rest is None else rest)
        parts = []
        for joint, q, rate, _ in self._members(names, motion):
            i, rest = joint.quaternion, joint.rest
            if i is None:
                parts.append(q - (0.0 if rest is None else rest))
            elif joint.stiffness is None:
                parts.append(jnp.zeros_like(rate))
            else:
                rest = jnp.asarray(joint.neutral, q.dtype) if rest is None else rest
                inverse = rest[i : i + 4] * jnp.array([1.0, -1.0, -1.0, -1.0], q.dtype)
                rotation = rotation_vector(quaternion_product(q[i : i + 4], inverse))
                parts.append(jnp.concatenate([q[:i] - rest[:i], rotation, q[i + 4 :] - rest[i + 4 :]]))
        return jnp.concatenate(parts)

    def _any_quaternion(self, names) -> bool:
        return any(self.joints[name].quaternion is not None for name in names)

    def _members(self, names, motion, *numbers):
        """Yield each joint with its coordinates, its velocities and its entries of ``numbers`` (one per velocity)."""
        i = j = 0
        for name in names:
            joint = self.joints[name]
            k, m = len(joint.coordinates), len(joint.velocities)
            yield joint, motion.value[i : i + k], motion.rate[j : j + m], [x[j : j + m] for x in numbers]
            i, j = i + k, j + m

    def _joints_with(self, *fields: str) -> tuple[str, ...]:
        """The names of the joints for which at least one of these fields is set."""
        joints = ((name, joint) for name, joint in self.joints.items() if isinstance(joint, AbstractActing))
        return tuple(name for name, joint in joints if any(getattr(joint, field) is not None for field in fields))

    @overload
    def _values(self, field: str, names: Sequence[str], default: float) -> Float[Array, " k"]: ...
    @overload
    def _values(self, field: str, names: Sequence[str]) -> Float[Array, " k"] | None: ...
    def _values(self, field, names, default=None):
        """The values of a field, one per velocity of these joints.

        Joints whose field is None have the default, or 0. The result is None if no joint has a value and there is no
        default.
        """
        values = [(getattr(self.joints[name], field), len(self.joints[name].velocities)) for name in names]
        if default is None and all(value is None for value, _ in values):
            return None
        fallback = default or 0.0
        return jnp.concatenate(
            [jnp.broadcast_to(fallback if value is None else value, (size,)) for value, size in values]
        )


def _static(joint):
    return joint.friction if joint.static_friction is None else joint.static_friction


def _read(joint, t, R, p):
    return joint.coordinates_of(R, p).astype(R.dtype)  # joints may contain wider constants
