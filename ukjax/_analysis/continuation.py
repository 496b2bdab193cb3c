"""``continuation``: branches of equilibria and of periodic motions over a parameter, and their special points.

The branch is followed by its length s, not by the parameter p, so that it may turn back (pseudo-arclength method, H. B.
Keller 1977). The unknowns y are those of ``curves``; one of them is p. τ is the unit tangent of the branch. A step of
length h predicts y = h τ, and corrects this by Newton's method in the plane normal to τ:

    J Δ = −r,      τᵀ Δ = 0.

A step is repeated with half its length if Newton's method does not converge or if the tangent turns too much.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Bool, Complex, Float

from .._check import as_integer, as_number, check_flag, check_function
from .._errors import InputError
from .._precision import Numbers
from .._system import AbstractSystem, kinematic_map_of, shifted
from .curves import RANK, AbstractCurve, Equilibria, Linearised, Orbits, Point, rank, system_of
from .linearize import state_of
from .orbit import ACCURATE, Orbit, depends_on_time, held_rows

NEWTON = 10
"""Largest number of Newton steps of a correction."""

SEARCH, LARGEST = 40, 0.5
"""Largest number of Newton steps from a start to an equilibrium, and the length of each, in the units of the states."""

CONVERGED = 1e-9
"""Length of the last Newton step, which converges quadratically, relative to the sizes of the unknowns."""

STALLED = 1e-5
"""Length of a Newton step below which rounding may make steps grow: near a branch point the equations are singular."""

STRAIGHT = 0.9
"""Smallest cosine of the angle between the tangents at the ends of a step."""

SHORTEST = 1e-6
"""Shortest step, relative to the interval of the parameter."""

STEEP = 5.0
"""Size of the displacement per unit of a state, above which other states are chosen."""

GROWTH = 1e-6
"""Growth that counts as 0: of an eigenvalue relative to the largest one, or of the logarithm of a multiplier."""

BISECTIONS = 50

LOCATED = 1e-5
"""Size of the test function at a located special point, relative to that at the ends of the step."""


class SpecialPoint(eqx.Module):
    """A point of a branch where its stability or its direction changes.

    Attributes
    ----------
    kind
        "fold": the branch turns back. "branch point": another branch crosses. "Hopf": a pair of eigenvalues crosses the
        imaginary axis. "period doubling": a multiplier crosses −1. "torus": a pair of multipliers crosses the unit
        circle.
    parameter
        Value of the parameter.
    q, v
        Coordinates (nq,) and velocities (n,).
    period
        Period of the motion [s]; 2π/ω for a Hopf point; None for other equilibria.
    eigenvalues
        Eigenvalues [1/s] or multipliers (k,).
    displacement, velocity
        Direction (n,) and (n,) of the motion, or of the other branch, that appears here; its largest state is 1.
    system
        The system at this value of the parameter.
    """

    kind: str = eqx.field(static=True)
    parameter: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    period: Float[Array, ""] | None
    eigenvalues: Complex[Array, " k"]
    displacement: Float[Array, " n"]
    velocity: Float[Array, " n"]
    system: AbstractSystem = eqx.field(repr=False)

    def start(self, amplitude: float) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """A state near the point, from which a search for the solutions that appear here may start.

        Parameters
        ----------
        amplitude
            Size of the deviation, in the unit of the state that deviates most.

        Returns
        -------
        q : (nq,)
            Coordinates, for ``equilibrium``, ``periodic`` or another ``continuation``.
        v : (n,)
            Velocities.
        """
        q = shifted(kinematic_map_of(self.system), self.q, amplitude * self.displacement)
        return q, self.v + amplitude * self.velocity


class Branch(eqx.Module):
    """A branch of equilibria or of periodic motions, as ``continuation`` returns it; N points.

    Attributes
    ----------
    parameter
        Values of the parameter (N,), in the order of the branch.
    q, v
        Coordinates (N, nq) and velocities (N, n): of the equilibria, or at the start of each motion.
    period
        Periods (N,) [s], or None for equilibria.
    eigenvalues
        Eigenvalues (N, k) [1/s] of the equilibria, or multipliers of the motions.
    stable
        Whether no small deviation grows exponentially (N,). Growth counts from 1e-6 of the largest eigenvalue on; for
        motions, from 1e-6 per period on.
    special
        The special points, in the order of the branch.
    reason
        Why the branch ends: "reached the end of the interval", "came back to its start", "has all its points" or
        "no further point was found".
    """

    parameter: Float[Array, " N"]
    q: Float[Array, "N nq"]
    v: Float[Array, "N n"]
    period: Float[Array, " N"] | None
    eigenvalues: Complex[Array, "N k"]
    stable: Bool[Array, " N"]
    special: tuple[SpecialPoint, ...]
    reason: str = eqx.field(static=True)


def continuation(
    family: Callable[[Any], AbstractSystem],
    start: Numbers | Orbit,
    parameter: Numbers,
    until: Numbers,
    *,
    t: Numbers = 0.0,
    hold: Iterable[str] = (),
    fixed_period: bool | None = None,
    step: float = 0.02,
    longest: float = 0.1,
    points: int = 200,
) -> Branch:
    """Follow equilibria or periodic motions over a parameter, and find folds, branch points and losses of stability.

    Parameters
    ----------
    family
        Function of the parameter that returns the system. It is traced: use ``jax.numpy``.
    start
        Coordinates (nq,) near an equilibrium of ``family(parameter)``, or its ``Orbit``, as ``periodic`` returns it.
        All motions have as many steps in a period as the orbit; a warning says if these are too few.
    parameter
        Value of the parameter at the start.
    until
        Value of the parameter towards which the branch is followed. The branch ends there, or where it comes back to
        ``parameter``.
    t
        Time of the equilibria [s]. For an orbit, its own time is used.
    hold
        Names of coordinates that keep their value, as for ``equilibrium`` and ``periodic``. For orbits: also
        velocities. Orbits of a conservative system need one such name, for example that of the amplitude.
    fixed_period
        For orbits, whether the period keeps its value. Default: whether the system depends on time.
    step, longest
        Lengths of the first and of the longest step. The length is measured in the states, in their units, and in the
        parameter relative to the interval: 0.02 is at most a fiftieth of it.
    points
        Largest number of points.

    Returns
    -------
    Branch
        Points, eigenvalues or multipliers, and special points, which are located to rounding.

    Raises
    ------
    InputError
        If there is no solution near the start, if solutions form families at each value of the parameter, or for an
        invalid argument.

    Notes
    -----
    The equations have exact derivatives. The constraints may be redundant and may move with the parameter. Special
    points are found by a change of sign: of the parameter along the tangent (fold), of the determinant of the equations
    with the tangent (branch point), or of det(Φ + 1) (period doubling); or by a change of the number of growing
    eigenvalues (Hopf, torus). Two special points of one kind within a step are missed, and so are two at which
    exponents cross in opposite directions. Then use a smaller ``longest``.

    The branch has no derivatives with respect to other parameters. ``equilibrium`` and ``periodic`` have such
    derivatives, at each point of the branch.

    Not available: automatic switching to another branch (see ``SpecialPoint.start``), curves of special points over two
    parameters, contacts and dry friction that sticks, and equilibria of nonholonomic systems.

    References: H. B. Keller, in Applications of Bifurcation Theory, Academic Press 1977, 359; Y. A. Kuznetsov, Elements
    of Applied Bifurcation Theory, Springer, chapter 10.

    Examples
    --------
    A bead on a hoop that turns at the rate p: the lowest point loses its stability at p² = g/R.

    >>> import jax.numpy as jnp
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> force = lambda p: lambda t, q, v: (p**2 * jnp.cos(q) - 9.81) * jnp.sin(q)
    >>> branch = uk.continuation(lambda p: uk.System(uk.MassForce(jnp.eye(1), force(p))), [0.0], 2.0, until=4.0)
    >>> [(point.kind, round(float(point.parameter) ** 2, 9)) for point in branch.special]
    [('branch point', 9.81)]
    """
    check_function("family", family, "parameter")
    parameter, until = as_number("parameter", parameter), as_number("until", until)
    if not float(parameter) != float(until):
        raise InputError(f"until must differ from parameter, got {float(until):g} for both")
    step, longest = (float(as_number(*x, above=0)) for x in (("step", step), ("longest", longest)))
    points = as_integer("points", points, 2)
    size = abs(float(until) - float(parameter))
    if isinstance(start, Orbit):
        curve, point = _orbits(family, start, parameter, hold, fixed_period, size)
    else:
        curve, point = _equilibria(family, start, parameter, t, hold, fixed_period, size)
    follower = Follower(curve, float(parameter), float(until), min(step, longest), longest)
    nodes, special, reason = follower.run(point, points)
    _check_steps(curve, nodes)
    stacked = lambda name: jnp.asarray(np.stack([getattr(node.point, name) for node in nodes]))
    matrices = np.stack([node.at.matrix for node in nodes])
    return Branch(
        parameter=stacked("parameter"),
        q=stacked("q"),
        v=stacked("v"),
        period=stacked("period") if curve.multipliers else None,
        eigenvalues=jnp.asarray(np.linalg.eigvals(matrices).astype(complex)),
        stable=jnp.asarray([node.growing == 0 for node in nodes]),
        special=tuple(special),
        reason=reason,
    )


def _equilibria(family, start, parameter, t, hold, fixed_period, size):
    if fixed_period is not None:
        raise InputError("fixed_period must be None unless start is an Orbit: an equilibrium has no period")
    system = system_of(family, parameter)
    system, t, q, v = state_of(system, t, start, None, "start")
    curve, point = Equilibria(family, t, q, v, hold, size), Point(np.asarray(q), np.asarray(v), 0.0, float(parameter))
    curve.begin(point)
    for _ in range(SEARCH):
        at = curve.linearised(point)
        if not at.is_finite:
            break
        change = np.append(np.linalg.lstsq(at.slope[:, :-1], -at.residual, rcond=RANK)[0], 0.0)
        change *= min(1.0, LARGEST / max(np.linalg.norm(change), 1e-300))
        point = curve.moved(point, change, at)
        if np.linalg.norm(change) + np.linalg.norm(at.back) <= CONVERGED * (1 + np.max(np.abs(point.q))):
            curve.check(point)
            return curve, point
    raise InputError(
        "start must be closer to an equilibrium: the search found none from there. "
        "ukjax.equilibrium(system, near=...) searches from farther away"
    )


def _orbits(family, orbit, parameter, hold, fixed_period, size):
    system = system_of(family, parameter)
    if fixed_period is None:
        fixed_period = depends_on_time(system, orbit.t, orbit.q, orbit.v)
    else:
        check_flag("fixed_period", fixed_period)
    held = held_rows(system, orbit.q, orbit.v, hold)
    point = Point(np.asarray(orbit.q), np.asarray(orbit.v), float(orbit.period), float(parameter))
    curve = Orbits(family, orbit, held, bool(fixed_period), size)
    curve.begin(point)
    return curve, point


def _check_steps(curve, nodes):
    """Warn if the time steps of the motions are too few, with the point of the largest error."""
    errors = [curve.error(node.point, node.at) for node in nodes]
    i = int(np.argmax(errors))
    if errors[i] > ACCURATE:
        warnings.warn(
            f"the steps of the orbit are too few for this branch: at the parameter {nodes[i].point.parameter:.6g} the "
            f"end of a period or the monodromy matrix of twice as many steps differs by {errors[i]:.2g} of its size. "
            "Give more steps to ukjax.periodic, which returns the orbit",
            stacklevel=3,
        )


class Node(NamedTuple):
    """A point of a branch, its equations, the unit tangent τ (u,) in units of ``scale``, the number of growing
    exponents, and the change (u,) of the unknowns since the previous node, in the same units.
    """

    point: Point
    at: Linearised
    tangent: np.ndarray
    growing: int
    change: np.ndarray

    def determinant(self, curve: AbstractCurve, tangent: np.ndarray) -> float:
        """The determinant of the equations with a tangent; 0 if their number differs from that of the unknowns."""
        rows = np.concatenate([self.at.slope * curve.scale, tangent[None]])
        return float(np.linalg.det(rows)) if rows.shape[0] == rows.shape[1] else 0.0

    def exponents(self, curve: AbstractCurve) -> np.ndarray:
        """Eigenvalues, or the logarithms of multipliers, by decreasing real part."""
        eigenvalues = np.linalg.eigvals(self.at.matrix).astype(complex)
        if curve.multipliers:
            eigenvalues = np.log(np.where(eigenvalues == 0, np.finfo(float).tiny, eigenvalues))
        return eigenvalues[np.argsort(-np.real(eigenvalues), kind="stable")]


class Follower(NamedTuple):
    """Follows a curve from ``first`` towards ``last``."""

    curve: AbstractCurve
    first: float
    last: float
    step: float
    longest: float

    def run(self, point: Point, points: int) -> tuple[list[Node], list[SpecialPoint], str]:
        """The nodes, the special points, and why the branch ends."""
        node, h = self.begin(point), self.step
        nodes, special = [node], []
        while len(nodes) < points:
            found = self.advanced(node, h)
            if found is None:
                h /= 2
                if h < SHORTEST:
                    return nodes, special, "no further point was found"
                continue
            new, quick = found
            low, high = sorted((self.first, self.last))
            if not low <= new.point.parameter <= high:
                bound = low if new.point.parameter < low else high
                end = self.at_bound(node, new, h, bound)
                reason = "reached the end of the interval" if bound == self.last else "came back to its start"
                if end is not None:
                    special += self.between(node, end[0], end[1])
                    nodes.append(end[0])
                return nodes, special, reason
            special += self.between(node, new, h)
            nodes.append(new)
            node, h = self.with_good_states(new), min(self.longest, 1.5 * h) if quick else h
        return nodes, special, "has all its points"

    def begin(self, point: Point) -> Node:
        """The first node, with the tangent towards ``last``."""
        at = self.curve.linearised(point)
        if not at.is_finite:
            raise InputError(
                "start must be a state at which the equations of motion are finite, got NaN or infinity there"
            )
        slope = at.slope * self.curve.scale
        if slope.shape[1] - rank(slope) > 1:
            raise InputError(
                "start must be an isolated solution at its value of the parameter, but it belongs to a continuous "
                "family of solutions: fix a coordinate by hold=..., such as the amplitude of a conservative motion, or "
                "start beside a branch point"
            )
        node = self.node(point, at, None)
        sign = np.sign(self.last - self.first) * np.sign(node.tangent[-1])
        return node._replace(tangent=node.tangent * (sign or 1.0))

    def node(self, point: Point, at: Linearised, before: np.ndarray | None) -> Node:
        """The node at a point, with the tangent along ``before``."""
        tangent = np.linalg.svd(at.slope * self.curve.scale)[2][-1]
        tangent = tangent if before is None or before @ tangent >= 0 else -tangent
        node = Node(point, at, tangent, 0, 0 * tangent)
        exponents = node.exponents(self.curve)
        return node._replace(growing=int(np.sum(np.real(exponents) > self.limit(exponents))))

    def limit(self, exponents: np.ndarray) -> float:
        """Growth that counts as 0."""
        return GROWTH * (1.0 if self.curve.multipliers else np.max(np.abs(exponents), initial=0))

    def advanced(self, node: Node, h: float) -> tuple[Node, bool] | None:
        """The node a length h ahead, and whether it was found quickly; None if it was not found."""
        found = self.corrected(node, h, h * node.tangent)
        return found if found is not None and found[0].tangent @ node.tangent >= STRAIGHT else None

    def corrected(self, node: Node, h: float, change: np.ndarray) -> tuple[Node, bool] | None:
        """The node in the plane a length h ahead, by Newton's method from a change of the unknowns."""
        scale, total = self.curve.scale, change
        point = self.curve.moved(node.point, total * scale, node.at)
        before = np.inf
        for i in range(NEWTON):
            if not all(np.all(np.isfinite(x)) for x in point):
                return None
            at = self.curve.linearised(point)
            if not at.is_finite:
                return None
            rows = np.concatenate([at.slope * scale, node.tangent[None]])
            change = np.linalg.lstsq(rows, -np.append(at.residual, 0.0), rcond=1e-10)[0]
            length = np.linalg.norm(change) + np.linalg.norm(at.back)
            stalled = i > 2 and length > before
            if length > max(h, STALLED) or stalled and before > STALLED:
                return None
            point, before, total = self.curve.moved(point, change * scale, at), length, total + change
            if stalled or length <= CONVERGED:
                at = self.curve.linearised(point)
                if not at.is_finite:
                    return None
                return self.node(point, at, node.tangent)._replace(change=total), i < 4
        return None

    def with_good_states(self, node: Node) -> Node:
        """The node in other states, if those it has are nearly dependent."""
        curve = self.curve
        if not isinstance(curve, Equilibria) or np.max(np.abs(node.at.displacement[:, :-1]), initial=0) <= STEEP:
            return node
        along, of_v = (x @ (node.tangent * curve.scale) for x in (node.at.displacement, node.at.velocity))
        curve.begin(node.point)
        at = curve.linearised(node.point)
        before = np.append(curve.of_unknowns(along, of_v) / curve.scale[:-1], node.tangent[-1])
        return self.node(node.point, at, before)

    def at_bound(self, node: Node, new: Node, h: float, bound: float) -> tuple[Node, float] | None:
        """The node at which the parameter is ``bound``, and its distance."""
        return self.root(node, new, h, lambda node: node.point.parameter - bound)

    def root(self, node: Node, new: Node, h: float, test: Callable[[Node], float]) -> tuple[Node, float] | None:
        """The node between two others where a test is 0, and its distance; None if it is not found."""
        found: dict[float, Node] = {0.0: node, h: new}

        def value(s):
            if s not in found:
                ahead = self.corrected(node, s, interpolated(node, new, s / h))
                if ahead is None:
                    raise NotFound
                found[s] = ahead[0]
            return test(found[s])

        size = max(abs(test(node)), abs(test(new)))
        with contextlib.suppress(NotFound):  # next to a branch point Newton's method finds no further point
            value(scipy.optimize.brentq(value, 0.0, h, xtol=1e-14 * h))
        nearest = min(found, key=lambda s: abs(test(found[s])))
        return (found[nearest], nearest) if abs(test(found[nearest])) <= LOCATED * size else None

    def between(self, node: Node, new: Node, h: float) -> list[SpecialPoint]:
        """The special points between two nodes."""
        curve, crossing = self.curve, lambda test: test(node) * test(new) < 0
        of_fold, of_branch = (lambda x: x.tangent[-1]), (lambda x: x.determinant(curve, node.tangent))
        of_doubling = lambda x: float(np.linalg.det(x.at.matrix + np.eye(len(x.at.matrix))))
        found, changes = [], abs(new.growing - node.growing)
        if crossing(of_branch):
            found.append(("branch point", self.root(node, new, h, of_branch)))
        elif crossing(of_fold):
            found.append(("fold", self.root(node, new, h, of_fold)))
        if curve.multipliers and crossing(of_doubling):
            found.append(("period doubling", self.root(node, new, h, of_doubling)))
        if changes - len(found) >= 2:
            found.append(("torus" if curve.multipliers else "Hopf", self.pair(node, new, h)))
        located = sorted((x for x in found if x[1] is not None), key=lambda x: x[1][1])
        return [self.special(kind, node) for kind, (node, _) in located]

    def pair(self, node: Node, new: Node, h: float) -> tuple[Node, float] | None:
        """The node where a pair of exponents begins or ceases to grow."""
        index = min(node.growing, new.growing)
        growth = lambda node: float(np.real(node.exponents(self.curve)[index]))
        limits = [self.limit(x.exponents(self.curve)) for x in (node, new)]
        if all(abs(growth(x)) > limit for x, limit in zip((node, new), limits, strict=True)):
            return self.root(node, new, h, growth)
        low, high, at = 0.0, h, new
        for _ in range(BISECTIONS):  # without damping, exponents stay on the axis until they meet
            middle = (low + high) / 2
            ahead = self.corrected(node, middle, interpolated(node, new, middle / h)) if low < middle < high else None
            if ahead is None:
                break
            same = ahead[0].growing == node.growing
            low, high, at = (middle, high, at) if same else (low, middle, ahead[0])
        return at, high

    def special(self, kind: str, node: Node) -> SpecialPoint:
        """The special point at a node."""
        curve, (point, at) = self.curve, node[:2]
        eigenvalues, vectors = np.linalg.eig(at.matrix)
        period = point.period if curve.multipliers else None
        if kind in ("fold", "branch point"):
            across = np.linalg.svd(np.concatenate([at.slope * curve.scale, node.tangent[None]]))[2][-1]
            change = (node.tangent if kind == "fold" else across) * curve.scale
            displacement, velocity = at.displacement @ change, at.velocity @ change
        else:
            away = {
                "Hopf": np.abs(np.real(eigenvalues)) / np.max(np.abs(eigenvalues)),
                "period doubling": np.abs(eigenvalues + 1),
                "torus": np.abs(np.abs(eigenvalues) - 1),
            }[kind]
            is_pair = np.abs(np.imag(eigenvalues)) > 1e-9 * np.max(np.abs(eigenvalues))
            i = int(np.argmin(np.where(is_pair | (kind == "period doubling"), away, np.inf)))
            vector = vectors[:, i] / vectors[np.argmax(np.abs(vectors[:, i])), i]
            displacement, velocity = np.split(at.basis @ vector.real, 2)
            period = 2 * np.pi / abs(eigenvalues[i].imag) if kind == "Hopf" else period
        system = curve.system(jnp.asarray(point.parameter))
        size = np.max(np.abs(np.concatenate([displacement, velocity])), initial=0) or 1.0
        as_array = lambda x: jnp.asarray(np.asarray(x, point.q.dtype))
        return SpecialPoint(
            kind=kind,
            parameter=as_array(point.parameter),
            q=as_array(point.q),
            v=as_array(point.v),
            period=None if period is None else as_array(period),
            eigenvalues=jnp.asarray(eigenvalues.astype(complex)),
            displacement=as_array(displacement / size),
            velocity=as_array(velocity / size),
            system=system,
        )


def interpolated(node: Node, new: Node, s: float) -> np.ndarray:
    """The change of the unknowns at the fraction s of a step: the cubic with the tangents at both ends.

    It is nearer to the branch than the tangent. Near a branch point Newton's method needs this, since the other branch
    is near.
    """
    h = node.tangent @ new.change
    slope = h * new.tangent / (node.tangent @ new.tangent)
    return s * (1 - s) ** 2 * h * node.tangent + s**2 * (3 - 2 * s) * new.change - s**2 * (1 - s) * slope


class NotFound(Exception):
    """A point between two points of a branch was not found."""
