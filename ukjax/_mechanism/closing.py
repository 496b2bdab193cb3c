"""Prescribed coordinates of joints that close loops, for the start of a motion."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint, Holonomic, Nonholonomic
from .._rotation import cross, quaternion_of
from .._run.compile import jit_unoptimised
from ..joints import AbstractActing, AbstractCoupling
from ..joints.base import nearest_turn
from .elements import JointCoordinates
from .kinematics import moving
from .named import Named
from .tree import Tree


class ClosingCoordinate(NamedTuple):
    """Coordinate ``index`` of a ``joint`` that closes a loop.

    If ``turns`` is True, the coordinate is an angle that is known only modulo 2π.
    """

    joint: str
    index: int
    turns: bool


def closing_coordinates(joints: Named, tree: Tree) -> dict[str, ClosingCoordinate]:
    """The coordinates, by name, of joints that close loops, where they can be computed from the poses of the bodies."""
    coordinates = {}
    for name in tree.closures:
        joint = joints[name]
        if isinstance(joint, AbstractActing) and type(joint).coordinates_of is not AbstractActing.coordinates_of:
            for i, (own_name, unit) in enumerate(joint.coordinates):
                turns = joint.within_half_a_turn and unit == "rad"
                coordinates[f"{name}_{own_name}" if own_name else name] = ClosingCoordinate(name, i, turns)
    return coordinates


class _CoordinateResidual(eqx.Module):
    """The residual x − target of a closing coordinate x whose target moves at a constant ``rate``."""

    x: JointCoordinates
    at: ClosingCoordinate = eqx.field(static=True)
    target: Float[Array, ""]
    rate: Float[Array, ""]

    def __call__(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, ""]:
        x, target = self.x(t, q)[self.at.index], self.target + self.rate * t
        is_counted = any(counted.joint == self.at.joint for counted in self.x.tree.counted)
        return (nearest_turn(x, target) if self.at.turns and not is_counted else x) - target

    def rate_residual(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""]:
        """The residual ẋ − rate."""
        return self.x.motion(t, q, v).rate[self.at.index] - self.rate


def target_rows(
    joints: Named, tree: Tree, positions: Mapping[str, Array], velocities: Mapping[str, Array]
) -> tuple[AbstractConstraint, ...]:
    """Constraints that prescribe values and rates of closing coordinates, by name. Rates that are not given are 0."""
    coordinates, rows = closing_coordinates(joints, tree), []
    for name in dict.fromkeys((*positions, *velocities)):
        at = coordinates[name]
        x = JointCoordinates(joints, tree, (at.joint,))
        residual = _CoordinateResidual(
            x, at, jnp.asarray(positions.get(name, 0.0)), jnp.asarray(velocities.get(name, 0.0))
        )
        label = f"{name} as given"
        rows.append(
            Holonomic(residual, name=label) if name in positions else Nonholonomic(residual.rate_residual, name=label)
        )
    return tuple(rows)


def with_nearest_turns(
    joints: Named, tree: Tree, q: Float[Array, " nq"], positions: Mapping[str, Array]
) -> Float[Array, " nq"]:
    """Return q with its turn-counted angles moved by whole turns.

    Angles in ``positions`` are moved to the turn nearest to the given value, the others to the turn nearest to the
    value that follows from couplings.
    """
    coordinates = closing_coordinates(joints, tree)
    first_of_q = {counted.joint: counted.first_of_q for counted in tree.counted}
    done = set()
    for name, value in positions.items():
        joint, index, turns = coordinates.get(name, ClosingCoordinate("", 0, False))
        done.add(joint or name)
        if joint in first_of_q and turns:
            index_in_q = first_of_q[joint] + index
            q = q.at[index_in_q].set(nearest_turn(q[index_in_q], jnp.asarray(value)))
    for _, coupling in joints.items():
        if not isinstance(coupling, AbstractCoupling):
            continue
        free = [i for i, name in enumerate(coupling.joints) if name in first_of_q and name not in done]
        if free:
            x = JointCoordinates(joints, tree, coupling.joints)(jnp.zeros(()), q)
            residual, slope = _residual_and_slope(coupling, x)
            i, name = free[0], coupling.joints[free[0]]
            target = jnp.where(slope[i] == 0, x[i], x[i] - residual / jnp.where(slope[i] == 0, 1.0, slope[i]))
            q = q.at[first_of_q[name]].set(nearest_turn(x[i], target))
            done.add(name)
    return q


def _residual_and_slope(coupling, x):
    residual = lambda x: coupling.residual(jnp.zeros(()), x)[0]
    return residual(x), jax.jacfwd(residual)(x)


@jit_unoptimised
def absolute_state(
    joints: Named, tree: Tree, absolute: Tree, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> tuple[Float[Array, " more_q"], Float[Array, " more"]]:
    """Absolute coordinates and velocities of the state q, v in joint coordinates."""
    t = jnp.zeros((), q.dtype)
    bodies = moving(joints, tree, t, q, v).bodies
    velocity = bodies.drift + bodies.velocity + cross(bodies.omega, bodies.placed.d)
    bodies_of_links = [link.body for link in tree.links]
    order = [bodies_of_links.index(link.body) for link in absolute.links if not link.modal]
    poses = [x for i in order for x in (bodies.placed.p[i], quaternion_of(bodies.placed.R[i]))]
    counted = JointCoordinates(joints, tree, tuple(counted.joint for counted in absolute.counted))(t, q)
    velocities = jnp.stack([velocity, bodies.omega], axis=1)[np.array(order)]
    eta = [q[np.array(modal.coordinates)] for modal in tree.modal]
    eta_dot = [v[np.array(modal.velocities)] for modal in tree.modal]
    return jnp.concatenate([*poses, *eta, counted]), jnp.concatenate([velocities.ravel(), *eta_dot])
