"""What acts along the coordinates of joints: springs, dampers, motors' inertia, dry friction."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joints import AbstractActing
from .kinematics import poses
from .named import Named
from .tree import Tree

CREEP = 1e-3
"""The rate, in the coordinate's unit per second, at which dry friction has three quarters of its size: it is smooth, so
that equations of motion have a solution through the standstill."""


class JointCoordinates(eqx.Module):
    """The coordinates (k,) of some joints, one after the other, as a function of t and q."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " k"]:
        parts = []
        for name in self.names:
            link, joint = self.tree.carrying(name), self.joints[name]
            if link is not None:
                parts.append(q[link.coordinates])
                continue
            there = poses(self.joints, self.tree, t, q, (joint.parent, joint.child))
            child = there[joint.child].frame(joint.in_child())
            parts.append(joint.read(*child.inside(there[joint.parent].frame(joint.in_parent()))))
        return jnp.concatenate(parts) if parts else jnp.zeros(0)

    def columns(self, t: Array, q: Float[Array, " n"]) -> Float[Array, "n k"]:
        """The generalised force of a unit of force or torque along each."""
        return jax.jacrev(lambda q: self(t, q))(q).T


class Elements(eqx.Module):
    """All of them, of one mechanism."""

    joints: Named
    tree: Tree = eqx.field(static=True)

    def added(self, M: Array, Q: Array, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
        """M and Q with them, but for friction."""
        for name, joint in self._with("stiffness", "damping", "armature"):
            x, rate, back, bias = self._along(name, t, q, v)
            force = _of_spring_and_damper(joint, x, rate)
            if joint.armature is not None:
                inertia = jnp.broadcast_to(joint.armature, x.shape)
                columns = JointCoordinates(self.joints, self.tree, (name,)).columns(t, q)
                M = M + (columns * inertia) @ columns.T
                force = force - inertia * bias
            Q = Q + back(force)
        return M, Q

    def energy(self, t: Array, q: Array, v: Array) -> Float[Array, ""]:
        """What springs and the inertia of motors hold."""
        total = jnp.zeros(())
        for name, joint in self._with("stiffness", "armature"):
            x, rate, _, _ = self._along(name, t, q, v)
            if joint.stiffness is not None:
                total += jnp.sum(joint.stiffness * (x - _rest(joint)) ** 2) / 2
            if joint.armature is not None:
                total += jnp.sum(joint.armature * rate**2) / 2
        return total

    def force(self, name: str, t: Array, q: Array, v: Array, acceleration: Array) -> Float[Array, " k"]:
        """All that acts along the coordinates of one joint in a motion, its motor's inertia included."""
        joint = self.joints[name]
        x, rate, _, bias = self._along(name, t, q, v)
        force = _of_spring_and_damper(joint, x, rate)
        if joint.friction is not None:
            force = force - joint.friction * jnp.tanh(rate / CREEP)
        if joint.armature is not None:
            columns = JointCoordinates(self.joints, self.tree, (name,)).columns(t, q)
            force = force - joint.armature * (columns.T @ acceleration + bias)
        return force

    def friction(self) -> Callable | None:
        """c(t, q, v) of dry friction, or None where there is none."""
        return self._friction if any(True for _ in self._with("friction")) else None

    def _friction(self, t: Array, q: Array, v: Array) -> Float[Array, " n"]:
        total = jnp.zeros_like(q)
        for name, joint in self._with("friction"):
            if joint.friction is not None:
                _, rate, back, _ = self._along(name, t, q, v)
                total = total - back(joint.friction * jnp.tanh(rate / CREEP))
        return total

    def _with(self, *names):
        for name, joint in self.joints.items():
            if isinstance(joint, AbstractActing) and any(getattr(joint, field) is not None for field in names):
                yield name, joint

    def _along(self, name, t, q, v):
        """A joint's coordinates and their rates, the generalised force of a force along them, and their accelerations
        where all rates are constant."""
        link = self.tree.carrying(name)
        if link is not None:
            at = link.coordinates
            return q[at], v[at], lambda force: jnp.zeros_like(q).at[at].set(force), jnp.zeros(link.size)
        read = JointCoordinates(self.joints, self.tree, (name,))
        along = lambda q: jax.jvp(lambda q: read(t, q), (q,), (v,))
        (x, rate), (_, bias) = jax.jvp(along, (q,), (v,))
        return x, rate, lambda force: jax.vjp(lambda q: read(t, q), q)[1](force)[0], bias


def _of_spring_and_damper(joint, x, rate):
    force = jnp.zeros_like(x)
    if joint.stiffness is not None:
        force = force - joint.stiffness * (x - _rest(joint))
    return force if joint.damping is None else force - joint.damping * rate


def _rest(joint):
    return 0.0 if joint.rest is None else joint.rest
