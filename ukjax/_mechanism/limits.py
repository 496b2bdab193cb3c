"""The limits of joints as functions of the coordinates."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..joints import AbstractJoint
from .elements import JointCoordinates
from .named import Named
from .tree import Tree


class JointLimits(eqx.Module):
    """The coordinates (k,) of the joints with limits, one per joint, as a function of t and q.

    An angle that is known modulo 2π is moved to the turn nearest to the middle of its limits.
    """

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, joints: Named, tree: Tree) -> "JointLimits":
        """The limits of all joints, stops among them."""
        limited = lambda joint: isinstance(joint, AbstractJoint) and joint.limits is not None
        return cls(joints, tree, tuple(name for name, joint in joints.items() if limited(joint)))

    @property
    def low_and_high(self) -> Float[np.ndarray, "2 k"]:
        """The lower and the upper limits."""
        return np.array([self.joints[name].limits for name in self.names]).reshape(-1, 2).T

    @property
    def is_angle(self) -> np.ndarray:
        """Whether each coordinate is an angle (k,)."""
        return np.array([self.joints[name].coordinates[0][1] == "rad" for name in self.names], bool)

    def __call__(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        if not self.names:
            return jnp.zeros(0, q.dtype)
        in_q = {link.joint for link in self.tree.links} | {counted.joint for counted in self.tree.counted}
        modulo = np.array([name not in in_q and self.joints[name].within_half_a_turn for name in self.names])
        values, middle = JointCoordinates(self.joints, self.tree, self.names)(t, q), np.mean(self.low_and_high, axis=0)
        return jnp.where(modulo, middle + jnp.remainder(values - middle + np.pi, 2 * np.pi) - np.pi, values)
