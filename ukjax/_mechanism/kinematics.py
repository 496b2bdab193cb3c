"""Where the bodies are and how they move, from the coordinates of the joints that carry them."""

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._rotation import cross
from ..joints import AbstractJoint, Free
from ..joints.base import Relative
from .named import Named
from .tree import GROUND, Link, Tree


class Pose(NamedTuple):
    """The axes of a body's frame, as columns, and its origin [m], in space."""

    R: Float[Array, "3 3"]
    p: Float[Array, " 3"]

    def frame(self, frame: tuple[Array, Array]) -> "Pose":
        """A frame that is given in this one."""
        R, p = frame
        return Pose(self.R @ R, self.p + self.R @ p)

    def inside(self, other: "Pose") -> "Pose":
        """This one, as seen from the other."""
        return Pose(other.R.T @ self.R, other.R.T @ (self.p - other.p))


class Reversed(NamedTuple):
    """A joint as seen from the child's side."""

    joint: AbstractJoint

    def place(self, t: Array, q: Float[Array, " k"]) -> tuple[Array, Array]:
        R, p = self.joint.place(t, q)
        return R.T, -(R.T @ p)

    def relative(self, t: Array, q: Float[Array, " k"], v: Float[Array, " k"]) -> Relative:
        R, p, angular, linear, omega, velocity, alpha, acceleration = self.joint.relative(t, q, v)
        turning = cross(omega, p)
        return Relative(
            R.T,
            -(R.T @ p),
            -(R.T @ angular),
            R.T @ (cross(angular, p) - linear),
            -(R.T @ omega),
            R.T @ (turning - velocity),
            -(R.T @ alpha),
            # d²/dt² of −Rᵀ p, with Ṙ = ω × R
            R.T @ (cross(alpha, p) - cross(omega, turning) + 2 * cross(omega, velocity) - acceleration),
        )

    def in_parent(self) -> tuple[Array, Array]:
        return self.joint.in_child()

    def in_child(self) -> tuple[Array, Array]:
        return self.joint.in_parent()


FLOATING = Free(GROUND, "it")


def joint_of(joints: Named, link: Link) -> AbstractJoint:
    """The joint that carries a body."""
    return FLOATING if link.joint is None else joints[link.joint]


def carrier(joints: Named, link: Link) -> AbstractJoint | Reversed:
    """The same from the side of the body that it hangs on."""
    joint = joint_of(joints, link)
    return Reversed(joint) if link.reverse else joint


def poses(
    joints: Named, tree: Tree, t: Array, q: Float[Array, " n"], wanted: Iterable[str] | None = None
) -> dict[str, Pose]:
    """Of all bodies, or of those ``wanted`` and what carries them; the ground's among them."""
    ancestors = tree.ancestors()
    needed = range(len(tree.links)) if wanted is None else sorted({i for name in wanted for i in ancestors[name]})
    return _along(joints, tree, t, q, needed, GROUND)


def poses_of_two(joints: Named, tree: Tree, t: Array, q: Float[Array, " n"], one: str, other: str) -> dict[str, Pose]:
    """Of two bodies, as seen from the last one that carries both: what carries that has no part in how they are to each
    other, not even by its rounding."""
    ancestors = tree.ancestors()
    both = [i for i in ancestors[one] if i in ancestors[other]]
    needed = sorted({*ancestors[one], *ancestors[other]} - set(both))
    return _along(joints, tree, t, q, needed, tree.links[both[-1]].body if both else GROUND)


def _along(joints, tree, t, q, needed, base) -> dict[str, Pose]:
    found = {base: Pose(jnp.eye(3), jnp.zeros(3))}
    for link in (tree.links[i] for i in needed):
        joint = carrier(joints, link)
        there = found[link.parent].frame(joint.in_parent()).frame(joint.place(t, q[link.coordinates]))
        C, c = joint.in_child()
        R = there.R @ C.T
        found[link.body] = Pose(R, there.p - R @ c)
    return found


class Moving(NamedTuple):
    """A body in motion, all along the axes of space, places as seen from the first body of its tree.

    ``d`` is the origin of its frame; ``omega`` its angular velocity, ``velocity`` that of its origin; ``alpha`` and
    ``acceleration`` are the same of accelerations where all rates are constant and the ground accelerates upwards by
    gravity; ``angular`` and ``linear`` are the columns of its joint: the angular velocity for each rate, and the
    velocity, for each rate, of what of it is at the point seen from. ``x`` is where its joint is.
    """

    R: Float[Array, "3 3"]
    d: Float[Array, " 3"]
    omega: Float[Array, " 3"]
    velocity: Float[Array, " 3"]
    alpha: Float[Array, " 3"]
    acceleration: Float[Array, " 3"]
    angular: Float[Array, "3 k"]
    linear: Float[Array, "3 k"]
    x: Float[Array, " 3"]


def moving(
    joints: Named,
    tree: Tree,
    t: Array,
    q: Float[Array, " n"],
    v: Float[Array, " n"],
    gravity: Float[Array, " 3"],
    rates: Float[Array, " n"] | None = None,
) -> dict[str, Moving]:
    """All bodies in motion; with ``rates``, q̈, the accelerations are those of the motion.

    Places are differences along the tree, so that a mechanism far from the origin loses no digits.
    """
    zero = jnp.zeros(3)
    none = jnp.zeros((3, 0))
    found = {GROUND: Moving(jnp.eye(3), zero, zero, zero, zero, -gravity, none, none, zero)}
    for link in tree.links:
        joint, before = carrier(joints, link), found[link.parent]
        at = link.coordinates
        here = joint.relative(t, q[at], v[at])
        if rates is not None:
            alpha, acceleration = here.angular @ rates[at], here.linear @ rates[at]
            here = here._replace(alpha=here.alpha + alpha, acceleration=here.acceleration + acceleration)
        B, a = joint.in_parent()
        C, c = joint.in_child()
        frame = before.R @ B
        R = frame @ here.R @ C.T
        arm, hand = before.R @ a + frame @ here.p, -(R @ c)
        turning, sliding = frame @ here.omega, frame @ here.velocity
        omega = before.omega + turning
        alpha = before.alpha + cross(before.omega, turning) + frame @ here.alpha
        swing = cross(before.omega, arm)
        velocity = before.velocity + swing + sliding + cross(omega, hand)
        acceleration = (
            before.acceleration
            + cross(before.alpha, arm)
            + cross(before.omega, swing + 2 * sliding)
            + frame @ here.acceleration
            + cross(alpha, hand)
            + cross(omega, cross(omega, hand))
        )
        d = zero if link.parent == GROUND else before.d + arm + hand
        x = d - hand
        angular = frame @ here.angular
        linear = frame @ here.linear + cross(x, angular)
        found[link.body] = Moving(R, d, omega, velocity, alpha, acceleration, angular, linear, x)
    return found
