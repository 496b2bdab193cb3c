"""Relative pose and motion of the two bodies of each connection, and the derivatives with respect to coordinates.

The residual of a loop, the length of a spring and the slip of a wheel are functions of the pose of the child's joint
frame in the parent's joint frame only. They have few derivatives with respect to this pose. The derivatives with
respect to coordinates follow from the joints on the paths from the last common ancestor of both bodies to each body.
All vectors are expressed relative to this ancestor, so that its motion does not affect the result, not even by
rounding.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compressed import Seeds
from .._precision import in_precision
from .._rotation import cross, skew
from .._run.compile import traced_once
from ..joints import AbstractConnection
from .alike import Group, grouped, kinematic_part
from .kinematics import BodyMotion, Moving, Placed, moving, placed
from .named import Named
from .recursion import order
from .tree import GROUND, Link, Tree


class Evaluation(NamedTuple):
    """A function of the relative pose, evaluated for several connections, with its derivatives.

    Attributes
    ----------
    value : (m,)
        Values.
    rate, second : (m,)
        First and second time derivative of the values at constant velocities.
    A : (m, n)
        Derivative of ``rate`` with respect to v. For a function of rates, such as a slip: derivative of ``value``.
    """

    value: Float[Array, " m"]
    rate: Float[Array, " m"]
    second: Float[Array, " m"]
    A: Float[Array, "m n"]


class Connections(eqx.Module):
    """The connections with these ``names``, in this order."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def value(self, function: Callable, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """Evaluate ``function(joint, t, R, p)`` for each connection."""
        return _value(self, function, t, q)

    def _value(self, function, t, q):
        reduced = self._reduced_tree()
        positions = placed(self.joints, reduced.tree, t, q[reduced.coordinates])

        def evaluate(joint, *ends_of_joint):
            ends = Ends.of(joint, *ends_of_joint)
            return function(joint, t, ends.R, ends.p)

        groups = list(self._groups(reduced))
        return _in_order(groups, [group.map_members(evaluate, positions) for group in groups])

    def motion(
        self, function: Callable, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds | None = None
    ) -> Evaluation:
        """Evaluate ``function(joint, t, R, p)`` and its derivatives for each connection.

        With ``seeds``, the field A of the result is A times the seeds.
        """
        return _motion(self, function, t, q, v, seeds)

    def _motion(self, function, t, q, v, seeds):
        def evaluate(joint, parent, child, same_tree):
            ends = Ends.of(joint, parent.placed, child.placed, same_tree)
            rates = ends.rates(parent, child, same_tree)
            at_joint = lambda t, R, p: function(joint, t, R, p)
            first = jnp.ones_like(t), *rates.first(ends)
            second = jnp.zeros_like(t), *rates.second(ends)
            derivative = lambda at, rate: jax.jvp(at_joint, at, rate)
            (value, rate), (_, bias) = jax.jvp(derivative, ((t, ends.R, ends.p), first), (first, second))
            slopes = jax.jacfwd(lambda x: at_joint(t, *ends.displaced(x)))(jnp.zeros(6, q.dtype))
            return value, rate, bias, ends.wrenches(slopes)

        return self.evaluate(evaluate, t, q, v, seeds)

    def slip(self, function: Callable, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Evaluation:
        """Evaluate ``function(joint, t, R, p, omega, velocity)``, a function of rates, for each connection.

        The function is of first order: its time derivative is returned as ``second``.
        """

        def evaluate(joint, parent, child, same_tree):
            ends = Ends.of(joint, parent.placed, child.placed, same_tree)
            rates = ends.rates(parent, child, same_tree)
            at_joint = lambda *at: function(joint, *at)
            at = t, ends.R, ends.p
            change = jnp.ones_like(t), *rates.first(ends), rates.alpha, rates.acceleration
            value, bias = jax.jvp(at_joint, (*at, rates.omega, rates.velocity), change)
            with_rates = lambda x: at_joint(*at, rates.omega + x[:3], rates.velocity + x[3:])
            return value, value, bias, ends.wrenches(jax.jacfwd(with_rates)(jnp.zeros(6, q.dtype)))

        return self.evaluate(evaluate, t, q, v)

    def evaluate(
        self,
        function: Callable,
        t: Array,
        q: Float[Array, " nq"],
        v: Float[Array, " n"],
        seeds: Seeds | None = None,
    ) -> Evaluation:
        """Evaluate ``function(joint, parent, child, same_tree)`` of the motion of both bodies for each connection.

        It returns a value, its rate, the second derivative, and the wrenches of the rate, see ``Ends.wrenches``.
        """
        reduced = self._reduced_tree()
        groups = list(self._groups(reduced))
        moves = moving(self.joints, reduced.tree, t, q[reduced.coordinates], v[reduced.velocities])
        *vectors, wrenches = zip(*(group.map_members(function, moves.bodies) for group in groups), strict=True)
        value, rate, second = (_in_order(groups, parts) for parts in vectors)
        return Evaluation(value, rate, second, _columns(groups, reduced, moves, wrenches, v.size, seeds))

    def _reduced_tree(self) -> "ReducedTree":
        return _reduced_tree(
            self.tree, tuple((self.joints[name].parent, self.joints[name].child) for name in self.names)
        )

    def _groups(self, reduced) -> Iterator["ConnectionGroup"]:
        same_root = np.equal(*order(reduced.tree).roots[reduced.ends].T)
        for group in grouped(kinematic_part(self.joints[name]) for name in self.names):
            yield ConnectionGroup(group, reduced.ends[group.places], same_root[group.places])


_value, _motion = traced_once(Connections._value), traced_once(Connections._motion)


class ReducedTree(NamedTuple):
    """The part of a tree that lies on the paths to the ends of some connections.

    Attributes
    ----------
    tree : Tree
        Links on these paths. The last common ancestor of both ends of a connection takes the place of the ground.
    coordinates, velocities : (k,) int
        Indices of its coordinates and velocities in q and v of the whole mechanism.
    ends : (connections, 2) int
        Indices of parent and child of each connection among the bodies of ``tree``.
    """

    tree: Tree
    coordinates: np.ndarray
    velocities: np.ndarray
    ends: np.ndarray


@functools.lru_cache(maxsize=128)
def _reduced_tree(tree: Tree, ends: tuple[tuple[str, str], ...]) -> ReducedTree:
    paths, links = tree.ancestors(), tree.links
    reduced_links: dict[tuple[str, int], Link] = {}
    coordinates: list[int] = []
    velocities: list[int] = []
    names = []
    for pair in ends:
        shared = [i for i in paths[pair[0]] if i in paths[pair[1]]]
        common = links[shared[-1]].body if shared else GROUND
        name = lambda body, common=common: GROUND if body == common else f"{body} from {common}"
        for i in sorted({*paths[pair[0]], *paths[pair[1]]} - set(shared)):
            if (common, i) not in reduced_links:
                link = links[i]
                index = dict(first=len(velocities), first_of_q=len(coordinates))
                ends_of_link = dict(body=name(link.body), parent=name(link.parent), modal=False)
                reduced_links[common, i] = link._replace(**ends_of_link, **index)
                coordinates.extend(link.coordinates)
                velocities.extend(link.velocities)
        names.append([name(body) for body in pair])
    reduced = Tree(tuple(reduced_links.values()), ())
    index = {link.body: i for i, link in enumerate(reduced.links)} | {GROUND: len(reduced.links)}
    return ReducedTree(
        reduced,
        np.array(coordinates, int),
        np.array(velocities, int),
        np.array([[index[body] for body in pair] for pair in names]),
    )


class ConnectionGroup(NamedTuple):
    """Connections of the same structure.

    Attributes
    ----------
    joints : Group
        The connections.
    ends : (k, 2) int
        Indices of their parents and children among all bodies.
    same_tree : (k,) bool
        Whether parent and child belong to the same tree and hence have the same point of reference.
    """

    joints: Group
    ends: np.ndarray
    same_tree: np.ndarray

    def map_members(self, function: Callable, bodies: Placed | Moving) -> Any:
        """Evaluate ``function(joint, parent, child, same_tree)`` for each connection, with the data of these bodies."""
        parent, child = (jax.tree.map(lambda x, at=at: x[at], bodies) for at in self.ends.T)
        return eqx.filter_vmap(function)(self.joints.things, parent, child, self.same_tree)


class Ends(NamedTuple):
    """The joint frames at both ends of a connection.

    Attributes
    ----------
    R, p : (3, 3), (3,)
        Pose of the child's joint frame in the parent's joint frame.
    axes : (3, 3)
        Axes of the parent's joint frame in space, as columns.
    parent, child : (3,)
        Joint points of parent and child, relative to the reference point of their trees.
    apart : (3,)
        Reference point of the child's tree relative to that of the parent's tree.
    """

    R: Float[Array, "3 3"]
    p: Float[Array, " 3"]
    axes: Float[Array, "3 3"]
    parent: Float[Array, " 3"]
    child: Float[Array, " 3"]
    apart: Float[Array, " 3"]

    @classmethod
    def of(cls, joint: AbstractConnection, parent: Placed, child: Placed, same_tree: Bool[Array, ""]) -> "Ends":
        frames = in_precision((joint.in_parent(), joint.in_child()), parent.R.dtype)
        (B, in_parent_body), (C, in_child_body) = frames
        axes, parent_point, child_point = (
            parent.R @ B,
            parent.d + parent.R @ in_parent_body,
            child.d + child.R @ in_child_body,
        )
        apart = jnp.where(same_tree, 0.0, child.base - parent.base)
        return cls(
            axes.T @ child.R @ C, axes.T @ (apart + child_point - parent_point), axes, parent_point, child_point, apart
        )

    def rates(self, parent: Moving, child: Moving, same_tree: Bool[Array, ""]) -> "Rates":
        """The motion of the child's joint frame relative to the parent's."""
        distance = self.apart + self.child - self.parent
        drift = jnp.where(same_tree, 0.0, child.drift - parent.drift)
        (child_velocity, child_acceleration), (parent_velocity, parent_acceleration) = (
            _of_point(child, self.child),
            _of_point(parent, self.parent),
        )
        velocity = drift + child_velocity - parent_velocity - cross(parent.omega, distance)
        coriolis = cross(parent.omega, 2 * velocity + cross(parent.omega, distance))
        acceleration = child_acceleration - parent_acceleration - cross(parent.alpha, distance) - coriolis
        alpha = child.alpha - parent.alpha - cross(parent.omega, child.omega)
        return Rates(*(self.axes.T @ x for x in (child.omega - parent.omega, velocity, alpha, acceleration)))

    def displaced(self, x: Float[Array, " 6"]) -> tuple[Array, Array]:
        """R and p after a small rotation x[:3] and a translation x[3:] of the child."""
        return self.R + skew(x[:3]) @ self.R, self.p + x[3:]

    def wrenches(self, slopes: Float[Array, "k 6"]) -> Float[Array, "k 2 6"]:
        """Derivatives with respect to the motion of each body (parent first), from those with respect to ``displaced``.

        The result contains moments about the reference point of the body's tree, and forces.
        """
        moment, force = slopes[:, :3] @ self.axes.T, slopes[:, 3:] @ self.axes.T
        on_child = jnp.concatenate([moment + cross(self.child, force), force], axis=1)
        on_parent = jnp.concatenate([moment + cross(self.apart + self.child, force), force], axis=1)
        return jnp.stack([-on_parent, on_child], axis=1)


class Rates(NamedTuple):
    """Velocity and acceleration of the child's joint frame relative to the parent's, in the parent's axes.

    Accelerations are those at constant velocities of the joints.
    """

    omega: Float[Array, " 3"]
    velocity: Float[Array, " 3"]
    alpha: Float[Array, " 3"]
    acceleration: Float[Array, " 3"]

    def first(self, ends: Ends) -> tuple[Array, Array]:
        """The first time derivatives of R and p."""
        return skew(self.omega) @ ends.R, self.velocity

    def second(self, ends: Ends) -> tuple[Array, Array]:
        """The second time derivatives of R and p."""
        omega_cross = skew(self.omega)
        return (skew(self.alpha) + omega_cross @ omega_cross) @ ends.R, self.acceleration


def _of_point(body: Moving, at):
    """Velocity without the drift, and acceleration, of a point of a body."""
    velocity = body.velocity + cross(body.omega, at)
    return velocity, body.acceleration + cross(body.alpha, at) + cross(body.omega, velocity)


def _rows(groups, parts):
    """For each group the row indices (connections, k) of its members when all connections are concatenated in order."""
    counts = np.zeros(sum(len(group.ends) for group in groups), int)
    for group, part in zip(groups, parts, strict=True):
        counts[group.joints.places] = part.shape[1]
    first = np.cumsum(counts) - counts
    ranges = (np.arange(part.shape[1]) for part in parts)
    return [first[group.joints.places, None] + offsets for group, offsets in zip(groups, ranges, strict=True)]


def _in_order(groups, parts):
    """Concatenate the values of all groups in the order of the rows."""
    order = np.argsort(np.concatenate([rows.ravel() for rows in _rows(groups, parts)]))
    return jnp.concatenate([part.ravel() for part in parts])[order]


def _columns(groups, reduced, motion: BodyMotion, wrenches_of_groups, n, seeds):
    """Assemble A (m, n), or A times the seeds, from the wrenches (connections, k, 2, 6) of each group."""
    motions = jnp.concatenate([motion.angular, motion.linear], axis=1)
    all_rows = _rows(groups, wrenches_of_groups)
    products, positions = [], []
    for group, wrenches, rows in zip(groups, wrenches_of_groups, all_rows, strict=True):
        entries_of_group = [
            (i, *path) for i, ends in enumerate(group.ends) for path in _path_velocities(reduced.tree, *ends)
        ]
        member, side, j = np.array(entries_of_group, int).reshape(-1, 3).T
        products.append(jnp.sum(wrenches[member, :, side] * motions[j][:, None], axis=2).ravel())
        columns = reduced.velocities[j][:, None]
        positions.append(np.stack(np.broadcast_arrays(rows[member], columns), axis=2).reshape(-1, 2))
    values, (i, j), m = jnp.concatenate(products), np.concatenate(positions).T, sum(rows.size for rows in all_rows)
    if seeds is not None:
        return seeds.of_entries(values, i, j, m)
    if len(set(zip(i.tolist(), j.tolist(), strict=True))) < len(i):  # modal coordinates that several links share
        return jnp.zeros((m, n), values.dtype).at[i, j].add(values)
    entries = np.full((m, n), len(i))
    entries[i, j] = np.arange(len(i))
    return jnp.concatenate([values, jnp.zeros(1, values.dtype)])[entries]


def _path_velocities(tree, parent, child):
    """The columns on the paths to two bodies, as pairs (side, index of the column); side 0 is the parent."""
    return [(side, j) for side, end in enumerate((parent, child)) for j in order(tree).paths[end]]
