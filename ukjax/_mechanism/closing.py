"""Coordinates of joints that close loops, where a mechanism starts."""

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


class Closing(NamedTuple):
    """Coordinate ``index`` of a ``joint`` that closes a loop: an angle, known up to whole turns, if it ``turns``."""

    joint: str
    index: int
    turns: bool


def closing_coordinates(joints: Named, tree: Tree) -> dict[str, Closing]:
    """By name, those that can be read off the bodies."""
    found = {}
    for name in tree.closures:
        joint = joints[name]
        if isinstance(joint, AbstractActing) and type(joint).coordinates_of is not AbstractActing.coordinates_of:
            for i, (own, unit) in enumerate(joint.coordinates):
                turns = joint.within_half_a_turn and unit == "rad"
                found[f"{name}_{own}" if own else name] = Closing(name, i, turns)
    return found


class _Off(eqx.Module):
    """x − wanted, of one of these coordinates, which is to move at a constant ``rate``."""

    x: JointCoordinates
    at: Closing = eqx.field(static=True)
    wanted: Float[Array, ""]
    rate: Float[Array, ""]

    def __call__(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, ""]:
        x, wanted = self.x(t, q)[self.at.index], self.wanted + self.rate * t
        is_counted = any(counted.joint == self.at.joint for counted in self.x.tree.counted)
        return (nearest_turn(x, wanted) if self.at.turns and not is_counted else x) - wanted

    def too_fast(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""]:
        return self.x.motion(t, q, v).rate[self.at.index] - self.rate


def as_wanted(
    joints: Named, tree: Tree, positions: Mapping[str, Array], velocities: Mapping[str, Array]
) -> tuple[AbstractConstraint, ...]:
    """Rows that hold closing coordinates, by name, at these values and rates; at rest, where a rate is not given."""
    coordinates, rows = closing_coordinates(joints, tree), []
    for name in dict.fromkeys((*positions, *velocities)):
        at = coordinates[name]
        x = JointCoordinates(joints, tree, (at.joint,))
        off = _Off(x, at, jnp.asarray(positions.get(name, 0.0)), jnp.asarray(velocities.get(name, 0.0)))
        label = f"{name} as given"
        rows.append(Holonomic(off, name=label) if name in positions else Nonholonomic(off.too_fast, name=label))
    return tuple(rows)


def in_turns(joints: Named, tree: Tree, q: Float[Array, " nq"], positions: Mapping[str, Array]) -> Float[Array, " nq"]:
    """q whose counted angles are in the turns nearest to these ``positions``, by name, and those of the others in the
    turns nearest to what couplings make of them."""
    coordinates = closing_coordinates(joints, tree)
    place = {counted.joint: counted.first_of_q for counted in tree.counted}
    settled = set()
    for name, value in positions.items():
        joint, index, turns = coordinates.get(name, Closing("", 0, False))
        settled.add(joint or name)
        if joint in place and turns:
            at = place[joint] + index
            q = q.at[at].set(nearest_turn(q[at], jnp.asarray(value)))
    for _, coupling in joints.items():
        if not isinstance(coupling, AbstractCoupling):
            continue
        free = [i for i, name in enumerate(coupling.joints) if name in place and name not in settled]
        if free:
            x = JointCoordinates(joints, tree, coupling.joints)(jnp.zeros(()), q)
            residual, slope = _residual_and_slope(coupling, x)
            i, name = free[0], coupling.joints[free[0]]
            wanted = jnp.where(slope[i] == 0, x[i], x[i] - residual / jnp.where(slope[i] == 0, 1.0, slope[i]))
            q = q.at[place[name]].set(nearest_turn(x[i], wanted))
            settled.add(name)
    return q


def _residual_and_slope(coupling, x):
    residual = lambda x: coupling.residual(jnp.zeros(()), x)[0]
    return residual(x), jax.jacfwd(residual)(x)


@jit_unoptimised
def in_space(
    joints: Named, tree: Tree, absolute: Tree, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> tuple[Float[Array, " more_q"], Float[Array, " more"]]:
    """Absolute coordinates and velocities of the state q, v of the joints' coordinates."""
    t = jnp.zeros((), q.dtype)
    bodies = moving(joints, tree, t, q, v).bodies
    velocity = bodies.drift + bodies.velocity + cross(bodies.omega, bodies.placed.d)
    order = [[link.body for link in tree.links].index(link.body) for link in absolute.links]
    places = [x for i in order for x in (bodies.placed.p[i], quaternion_of(bodies.placed.R[i]))]
    counted = JointCoordinates(joints, tree, tuple(counted.joint for counted in absolute.counted))(t, q)
    moves = jnp.stack([velocity, bodies.omega], axis=1)[np.array(order)]
    return jnp.concatenate([*places, counted]), moves.ravel()
