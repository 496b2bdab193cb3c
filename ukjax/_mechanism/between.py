"""How two bodies that a connection joins are beside each other, how they move there, and what that is for coordinates.

What a connection says of two bodies, be it the residual of a loop, the length of a spring or the slip of a wheel, is a
function of the child's joint frame in the parent's alone. Its derivatives by that frame are few. Those by coordinates
follow from what each coordinate moves, of what is on the ways to both bodies from the last one that carries both: all
is seen from that, so that what carries both changes nothing, not even by its rounding.
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
from .._rotation import cross, skew
from .._run.compile import traced_once
from ..joints import AbstractConnection
from .alike import Alike, alike, bare
from .kinematics import BodyMotion, Moving, Placed, moving, placed
from .named import Named
from .recursion import order
from .tree import GROUND, Link, Tree


class Found(NamedTuple):
    """What some connections say: the values (m,), their first and second derivatives along the motion at constant
    velocities, and A (m, n), the derivative of the first, or, of what is said of rates, of the values, by v."""

    value: Float[Array, " m"]
    rate: Float[Array, " m"]
    second: Float[Array, " m"]
    A: Float[Array, "m n"]


class Between(eqx.Module):
    """The connections of these ``names``, one after the other."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def value(self, said: Callable, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """``said(joint, t, R, p)`` of each."""
        return _value(self, said, t, q)

    def _value(self, said, t, q):
        cut = self._cut()
        there = placed(self.joints, cut.tree, t, q[cut.coordinates])

        def each(joint, *ends):
            both = Ends.of(joint, *ends)
            return said(joint, t, both.R, both.p)

        groups = list(self._groups(cut))
        return _in_order(groups, [group.of_each(each, there) for group in groups])

    def motion(
        self, said: Callable, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds | None = None
    ) -> Found:
        """``said(joint, t, R, p)`` of each, with its derivatives; with ``seeds``, A times these."""
        return _motion(self, said, t, q, v, seeds)

    def _motion(self, said, t, q, v, seeds):
        def each(joint, parent, child, together):
            ends = Ends.of(joint, parent.placed, child.placed, together)
            rates = ends.rates(parent, child, together)
            function = lambda t, R, p: said(joint, t, R, p)
            first = jnp.ones_like(t), *rates.first(ends)
            second = jnp.zeros_like(t), *rates.second(ends)
            along = lambda at, rate: jax.jvp(function, at, rate)
            (value, rate), (_, bias) = jax.jvp(along, ((t, ends.R, ends.p), first), (first, second))
            slopes = jax.jacfwd(lambda x: function(t, *ends.displaced(x)))(jnp.zeros(6))
            return value, rate, bias, ends.wrenches(slopes)

        return self._found(each, t, q, v, seeds)

    def slip(self, said: Callable, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Found:
        """``said(joint, t, R, p, omega, velocity)`` of each, what is said of rates, which is of first order: its own
        derivative is among the second ones."""

        def each(joint, parent, child, together):
            ends = Ends.of(joint, parent.placed, child.placed, together)
            rates = ends.rates(parent, child, together)
            function = lambda *at: said(joint, *at)
            at = t, ends.R, ends.p
            change = jnp.ones_like(t), *rates.first(ends), rates.alpha, rates.acceleration
            value, bias = jax.jvp(function, (*at, rates.omega, rates.velocity), change)
            further = lambda x: function(*at, rates.omega + x[:3], rates.velocity + x[3:])
            return value, value, bias, ends.wrenches(jax.jacfwd(further)(jnp.zeros(6)))

        return self._found(each, t, q, v)

    def _found(self, each, t, q, v, seeds=None):
        cut = self._cut()
        groups = list(self._groups(cut))
        moves = moving(self.joints, cut.tree, t, q[cut.coordinates], v[cut.velocities])
        *vectors, wrenches = zip(*(group.of_each(each, moves.bodies) for group in groups), strict=True)
        value, rate, second = (_in_order(groups, parts) for parts in vectors)
        return Found(value, rate, second, _columns(groups, cut, moves, wrenches, v.size, seeds))

    def _cut(self) -> "Cut":
        return _cut(self.tree, tuple((self.joints[name].parent, self.joints[name].child) for name in self.names))

    def _groups(self, cut) -> Iterator["Joined"]:
        together = np.equal(*order(cut.tree).roots[cut.ends].T)
        for group in alike(bare(self.joints[name]) for name in self.names):
            yield Joined(group, cut.ends[group.places], together[group.places])


_value, _motion = traced_once(Between._value), traced_once(Between._motion)


class Cut(NamedTuple):
    """What is on the ways to the ends of some connections: a tree on whose ground stand those who carry both ends of
    one, its ``coordinates`` and ``velocities`` among those of the whole, and the places (k, 2) of the ends in it."""

    tree: Tree
    coordinates: np.ndarray
    velocities: np.ndarray
    ends: np.ndarray


@functools.lru_cache(maxsize=128)
def _cut(tree: Tree, ends: tuple[tuple[str, str], ...]) -> Cut:
    ways, links = tree.ancestors(), tree.links
    found: dict[tuple[str, int], Link] = {}
    coordinates: list[int] = []
    velocities: list[int] = []
    names = []
    for pair in ends:
        both = [i for i in ways[pair[0]] if i in ways[pair[1]]]
        common = links[both[-1]].body if both else GROUND
        name = lambda body, common=common: GROUND if body == common else f"{body} from {common}"
        for i in sorted({*ways[pair[0]], *ways[pair[1]]} - set(both)):
            if (common, i) not in found:
                link = links[i]
                place = dict(first=len(velocities), first_of_q=len(coordinates))
                found[common, i] = link._replace(body=name(link.body), parent=name(link.parent), **place)
                coordinates.extend(link.coordinates)
                velocities.extend(link.velocities)
        names.append([name(body) for body in pair])
    cut = Tree(tuple(found.values()), ())
    place = {link.body: i for i, link in enumerate(cut.links)} | {GROUND: len(cut.links)}
    return Cut(
        cut,
        np.array(coordinates, int),
        np.array(velocities, int),
        np.array([[place[body] for body in pair] for pair in names]),
    )


class Joined(NamedTuple):
    """Connections of a kind; the places (k, 2) of the parents and children that they join among all bodies; and whether
    both are seen from one point."""

    joints: Alike
    ends: np.ndarray
    together: np.ndarray

    def of_each(self, function: Callable, bodies: Placed | Moving) -> Any:
        """``function(joint, parent, child, together)`` of each, with what is known of these bodies."""
        parent, child = (jax.tree.map(lambda x, at=at: x[at], bodies) for at in self.ends.T)
        return eqx.filter_vmap(function)(self.joints.things, parent, child, self.together)


class Ends(NamedTuple):
    """Of one connection the child's joint frame in the parent's, R and p; the parent's axes in space; the parent's and
    the child's point, each as seen from where its tree is, and the latter from there to here."""

    R: Float[Array, "3 3"]
    p: Float[Array, " 3"]
    axes: Float[Array, "3 3"]
    parent: Float[Array, " 3"]
    child: Float[Array, " 3"]
    apart: Float[Array, " 3"]

    @classmethod
    def of(cls, joint: AbstractConnection, parent: Placed, child: Placed, together: Bool[Array, ""]) -> "Ends":
        (B, at), (C, to) = joint.in_parent(), joint.in_child()
        axes, here, there = parent.R @ B, parent.d + parent.R @ at, child.d + child.R @ to
        apart = jnp.where(together, 0.0, child.base - parent.base)
        return cls(axes.T @ child.R @ C, axes.T @ (apart + there - here), axes, here, there, apart)

    def rates(self, parent: Moving, child: Moving, together: Bool[Array, ""]) -> "Rates":
        """How the child's joint frame moves in the parent's."""
        between = self.apart + self.child - self.parent
        drift = jnp.where(together, 0.0, child.drift - parent.drift)
        (swing, change), (own_swing, own_change) = _of_point(child, self.child), _of_point(parent, self.parent)
        velocity = drift + swing - own_swing - cross(parent.omega, between)
        turning = cross(parent.omega, 2 * velocity + cross(parent.omega, between))
        acceleration = change - own_change - cross(parent.alpha, between) - turning
        alpha = child.alpha - parent.alpha - cross(parent.omega, child.omega)
        return Rates(*(self.axes.T @ x for x in (child.omega - parent.omega, velocity, alpha, acceleration)))

    def displaced(self, x: Float[Array, " 6"]) -> tuple[Array, Array]:
        """R and p after a small turn x[:3] and a shift x[3:] of the child."""
        return self.R + skew(x[:3]) @ self.R, self.p + x[3:]

    def wrenches(self, slopes: Float[Array, "k 6"]) -> Float[Array, "k 2 6"]:
        """What a motion of each body, first the parent, changes what has these slopes by ``displaced``: moments, about
        where its tree is seen from, and forces."""
        moment, force = slopes[:, :3] @ self.axes.T, slopes[:, 3:] @ self.axes.T
        own = jnp.concatenate([moment + cross(self.child, force), force], axis=1)
        other = jnp.concatenate([moment + cross(self.apart + self.child, force), force], axis=1)
        return jnp.stack([-other, own], axis=1)


class Rates(NamedTuple):
    """How the child's joint frame moves in the parent's, in the axes of that; accelerations at constant
    velocities."""

    omega: Float[Array, " 3"]
    velocity: Float[Array, " 3"]
    alpha: Float[Array, " 3"]
    acceleration: Float[Array, " 3"]

    def first(self, ends: Ends) -> tuple[Array, Array]:
        """The derivatives of R and p."""
        return skew(self.omega) @ ends.R, self.velocity

    def second(self, ends: Ends) -> tuple[Array, Array]:
        """Their second derivatives."""
        turning = skew(self.omega)
        return (skew(self.alpha) + turning @ turning) @ ends.R, self.acceleration


def _of_point(body: Moving, at):
    """Velocity, but for the drift, and acceleration of a body's point."""
    swing = body.velocity + cross(body.omega, at)
    return swing, body.acceleration + cross(body.alpha, at) + cross(body.omega, swing)


def _rows(groups, parts):
    """For each group which rows (connections, k) of all are its own: connections one after the other."""
    counts = np.zeros(sum(len(group.ends) for group in groups), int)
    for group, part in zip(groups, parts, strict=True):
        counts[group.joints.places] = part.shape[1]
    first = np.cumsum(counts) - counts
    ranges = (np.arange(part.shape[1]) for part in parts)
    return [first[group.joints.places, None] + each for group, each in zip(groups, ranges, strict=True)]


def _in_order(groups, parts):
    """What the groups have for each row, in the order of all rows."""
    order = np.argsort(np.concatenate([rows.ravel() for rows in _rows(groups, parts)]))
    return jnp.concatenate([part.ravel() for part in parts])[order]


def _columns(groups, cut, moves: BodyMotion, slopes, n, seeds):
    """A (m, n), or A times the seeds, from the wrenches (connections, k, 2, 6) of each group."""
    motions = jnp.concatenate([moves.angular, moves.linear], axis=1)
    all_rows = _rows(groups, slopes)
    products, places = [], []
    for group, wrenches, rows in zip(groups, slopes, all_rows, strict=True):
        found = [(i, *way) for i, ends in enumerate(group.ends) for way in _ways(cut.tree, *ends)]
        member, side, j = np.array(found, int).reshape(-1, 3).T
        products.append(jnp.sum(wrenches[member, :, side] * motions[j][:, None], axis=2).ravel())
        at = cut.velocities[j][:, None]
        places.append(np.stack(np.broadcast_arrays(rows[member], at), axis=2).reshape(-1, 2))
    values, (i, j), m = jnp.concatenate(products), np.concatenate(places).T, sum(rows.size for rows in all_rows)
    if seeds is not None:
        return seeds.of_entries(values, i, j, m)
    entries = np.full((m, n), len(i))
    entries[i, j] = np.arange(len(i))
    return jnp.concatenate([values, jnp.zeros(1)])[entries]


def _ways(tree, parent, child):
    """The velocities on the ways to two bodies, each with the side that it is on."""
    return [(side, j) for side, end in enumerate((parent, child)) for j in order(tree).ways[end]]
