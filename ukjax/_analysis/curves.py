"""Curves of equilibria and of periodic motions over a parameter p, linearised at one of their points.

The unknowns are changes x of the states of ``tangent`` along the constraints, for periodic motions also the change of
the period, and the change of p. If p moves the constraints, a deviation at constant x moves with them by the smallest
displacement: G ξ = −φ_p dp, and A δv = −(r_p + r_q ξ) dp.

Equations of equilibria: the components Z_vᵀ (Q + c) of the forces along the velocities that the constraints admit, and
the rates of first-order states, which are then unknowns too.
Equations of periodic motions: the states of end − start − advance; a phase condition, that the start does not move
along its own orbit, if the system does not depend on time; and held coordinates.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import call, kind_of
from .._errors import InputError
from .._kinematic_map import count_states
from .._motion.consistent.locked import locked
from .._motion.simulate.simulate import simulate
from .._run.compile import jit_fast_compile, jit_unoptimised
from .._solve import choose
from .._system import AbstractSystem, kinematic_map_of, refuse_contacts, refuse_sampled, shifted
from .._with_states import with_states
from .linearize import check_state
from .orbit import Shooting, error_of_steps, returned
from .states import Rows, States
from .tangent import basis, tangent


class Point(NamedTuple):
    """A point of a curve; the period is 0 for an equilibrium."""

    q: np.ndarray
    v: np.ndarray
    period: float
    parameter: float


class Linearised(NamedTuple):
    """The equations of a curve at a point, with u unknowns, the last one p.

    Attributes
    ----------
    residual
        Values of the equations (r,).
    slope
        Their derivatives by the unknowns (r, u).
    displacement, velocity
        Displacement (n, u) and change of velocities (n, u) for a unit of each unknown.
    back, back_of_v
        Displacement (n,) and change of velocities (n,) that lead back onto the constraints. The residual and the slope
        are those after this change.
    basis
        Displacements, followed by changes of velocities (2 n, k), for a unit of each state.
    matrix
        A of ẋ = A x, or the monodromy matrix (k, k).
    """

    residual: np.ndarray
    slope: np.ndarray
    displacement: np.ndarray
    velocity: np.ndarray
    back: np.ndarray
    back_of_v: np.ndarray
    basis: np.ndarray
    matrix: np.ndarray

    @property
    def is_finite(self) -> bool:
        return all(np.all(np.isfinite(x)) for x in self)


class AbstractCurve(abc.ABC):
    """A curve of points in states and a parameter.

    Attributes
    ----------
    chosen
        The states.
    scale
        Sizes of the unknowns (u,), in which the length of the curve is measured.
    multipliers
        Whether the eigenvalues of the matrix are multipliers.
    """

    chosen: States
    scale: np.ndarray
    multipliers: bool
    _shift: Callable

    @abc.abstractmethod
    def linearised(self, point: Point) -> Linearised:
        """The equations at a point."""

    def moved(self, point: Point, change: np.ndarray, at: Linearised) -> Point:
        """The point after a change (u,) of the unknowns and the displacement back onto the constraints."""
        displacement, p = at.displacement @ change + at.back, point.parameter + change[-1]
        q = self._shift(*map(jnp.asarray, (point.q, displacement, p)))
        v = point.v + at.velocity @ change + at.back_of_v
        return Point(np.asarray(q), v, point.period + self.change_of_period(change), float(p))

    def change_of_period(self, change: np.ndarray) -> float:
        """The entry of the period in a change of the unknowns."""
        return 0.0

    def error(self, point: Point, at: Linearised) -> float:
        """The error of the time steps at a point, relative to the size of the state, or of the matrix."""
        return 0.0

    @abc.abstractmethod
    def system(self, parameter: Any) -> AbstractSystem:
        """The system at a value of the parameter."""

    def _shifted(self, q, displacement, p):
        return shifted(kinematic_map_of(self.system(p)), q, displacement)


class Equilibria(AbstractCurve):
    """Equilibria of ``family(p)`` at the time t, with some coordinates held."""

    multipliers = False

    def __init__(self, family: Callable, t: Array, q: Float[Array, " nq"], v: Any, hold: Any, size: float):
        self.family, self.t, self.hold, self.held, self.size = family, t, hold, (q, v), size
        self._shift = jit_unoptimised(self._shifted)

    def begin(self, point: Point) -> None:
        """Choose the states at a point."""
        system, q, v = self.system(point.parameter), jnp.asarray(point.q), jnp.asarray(point.v)
        rows, method = Rows.at(system, self.t, q, v), choose("orthogonal")
        self.chosen = rows.states(method, system)
        unknowns = len(self.chosen.of_q) + count_states(kinematic_map_of(system))
        if unknowns != len(self.chosen.of_v):
            raise InputError(
                "family must return a system with as many free velocities as free coordinates: equilibria of a "
                "nonholonomic system are not isolated, so that no single branch can be followed"
            )
        self.scale = np.append(np.ones(unknowns), self.size)
        quick = rows.fast_path(method) or method
        self._at = jit_unoptimised(lambda q, v, p: self._linearised(q, v, p, quick))
        self._again = jit_unoptimised(lambda q, v, p: self._linearised(q, v, p, method))

    def check(self, point: Point) -> None:
        """Raise ``InputError`` unless the point is on the constraints, and at rest there."""
        system, q, v = self.system(point.parameter), jnp.asarray(point.q), jnp.asarray(point.v)
        check_state(Rows.at(system, self.t, q, v), system, self.t, q, v)

    def system(self, parameter: Any) -> AbstractSystem:
        return locked(system_of(self.family, parameter), self.hold, self.t, *self.held, "hold")

    def linearised(self, point: Point) -> Linearised:
        arguments = jnp.asarray(point.q), jnp.asarray(point.v), jnp.asarray(point.parameter)
        needs_fallback, *at = map(np.asarray, self._at(*arguments))
        if needs_fallback:
            _, *at = map(np.asarray, self._again(*arguments))
        return Linearised(*at)

    def of_unknowns(self, displacement: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """The unknowns, without the parameter, of a displacement (n,) and a change of velocities (n,)."""
        k = len(self.scale) - 1 - len(self.chosen.of_q)
        return np.append(displacement[np.array(self.chosen.of_q, int)], velocity[velocity.size - k :])

    def _linearised(self, q, v, p, method):
        k, states = len(self.chosen.of_q), count_states(kinematic_map_of(self.system(p)))
        system = self.system(p)
        nothing = lambda *shape: lambda *_: jnp.zeros(shape, q.dtype)
        linear = tangent(system, self.t, q, v, self.chosen, nothing(v.size, 0), nothing(0), method)
        xi, _ = with_parameter(self.system, self.t, q, v, p)
        back, _ = onto_constraints(system, self.t, q, v)
        none = jnp.zeros((v.size, states), q.dtype)
        displacement = jnp.concatenate([linear.displacement[:, :k], none, xi[:, None]], axis=1)
        of_states = jnp.eye(states, displacement.shape[1], k, dtype=q.dtype)
        velocity = jnp.concatenate([jnp.zeros((v.size - states, displacement.shape[1]), q.dtype), of_states])

        def balance(y):
            system = self.system(p + y[-1])
            beside, still = shifted(kinematic_map_of(system), q, displacement @ y + back), v + velocity @ y
            terms = system(self.t, beside, still)
            free = basis(system, self.t, beside, still, self.chosen)[1][:, k:]
            return free.T @ (terms.Q if terms.c is None else terms.Q + terms.c)

        def twice(y):
            value = balance(y)
            return value, value

        slope, residual = jax.jacfwd(twice, has_aux=True)(jnp.zeros(displacement.shape[1], q.dtype))
        Z = jnp.concatenate([linear.displacement, linear.velocity])
        return linear.needs_fallback, residual, slope, displacement, velocity, back, jnp.zeros_like(v), Z, linear.A


class Orbits(AbstractCurve):
    """Periodic motions of ``family(p)``."""

    multipliers = True

    def __init__(self, family: Callable, orbit: Any, held: Any, fixed_period: bool, size: float):
        self.family, self.t, self.orbit, self.fixed_period = family, orbit.t, orbit, fixed_period
        self.rows, self.entries = held
        self.target = np.concatenate([orbit.q, orbit.v])[self.entries]
        self.chosen, self.phase = orbit.chosen, False
        of_q, of_v = (len(x) for x in self.chosen)
        period = float(orbit.period)
        sizes = [np.ones(of_q), np.full(of_v, 2 * np.pi / period), [] if fixed_period else [period], [size]]
        self.scale = np.concatenate(sizes)
        self._at = jit_fast_compile(self._linearised)
        self._shift = jit_unoptimised(self._shifted)

    def begin(self, point: Point) -> None:
        """Decide whether a phase condition is needed."""
        if not self.fixed_period:
            slope = self.linearised(point).slope * self.scale
            self.phase = slope.shape[1] - rank(slope) > 1

    def system(self, parameter: Any) -> AbstractSystem:
        return system_of(self.family, parameter)

    def linearised(self, point: Point) -> Linearised:
        return self._linearised_in(point, self.orbit.steps)

    def error(self, point: Point, at: Linearised) -> float:
        finer = self._linearised_in(point, 2 * self.orbit.steps)
        size = np.max(np.abs(point.q)) + np.max(np.abs(point.v)) * point.period / (2 * np.pi)
        difference = np.max(np.abs(at.residual - finer.residual))
        return max(difference / size if size else 0.0, error_of_steps(at.matrix, finer.matrix))

    def _linearised_in(self, point: Point, steps: int) -> Linearised:
        numbers = map(jnp.asarray, (point.q, point.v, point.period, point.parameter, float(steps)))
        residual, slope, Z, Z_v, back, back_of_v, monodromy = map(np.asarray, self._at(*numbers))
        every = np.concatenate([Z, Z_v])[:, : len(monodromy)]
        k = len(monodromy)
        residual, slope = residual / self.scale[:k], slope / self.scale[:k, None]
        sizes = np.repeat([1.0, self.scale[k - 1]], len(Z))[self.rows]
        held = np.concatenate([Z, Z_v])[self.rows] / sizes[:, None]
        off = (
            np.concatenate([point.q, point.v])[self.entries]
            + np.concatenate([back, back_of_v])[self.rows]
            - self.target
        )
        phase = np.zeros((1 if self.phase else 0, slope.shape[1]))
        if self.phase:
            rate = slope[:, k]
            phase[0, :k] = rate / np.linalg.norm(rate) / self.scale[:k]
        more = np.concatenate([held, phase])
        residual = np.concatenate([residual, off / sizes, np.zeros(len(phase))])
        return Linearised(residual, np.concatenate([slope, more]), Z, Z_v, back, back_of_v, every, monodromy)

    def change_of_period(self, change: np.ndarray) -> float:
        return 0.0 if self.fixed_period else float(change[-2])

    def _linearised(self, q, v, period, p, steps):
        system, k = self.system(p), len(self.chosen.of_q) + len(self.chosen.of_v)
        Z, Z_v = basis(system, self.t, q, v, self.chosen)
        xi, delta = with_parameter(self.system, self.t, q, v, p)
        of_period = jnp.zeros((v.size, 0 if self.fixed_period else 1), q.dtype)
        columns = lambda Z, x: jnp.concatenate([Z, of_period, x[:, None]], axis=1)
        Z, Z_v = columns(Z, xi), columns(Z_v, delta)
        shooting = Shooting(system, system, self.chosen, self.orbit.steps)
        back, back_of_v = onto_constraints(system, self.t, q, v)

        def end(y):
            T = period if self.fixed_period else period + y[k]
            system = self.system(p + y[-1])
            start = shifted(kinematic_map_of(system), q, Z @ y + back), v + Z_v @ y + back_of_v
            ts, dt = jnp.stack([self.t, self.t + T]), period / steps
            motion = simulate(system, *start, ts, dt=dt, throw=False)
            end = motion.q[-1], motion.v[-1]
            return end, end

        (of_q, of_v), (q_end, v_end) = jax.jacfwd(end, has_aux=True)(jnp.zeros(Z.shape[1], q.dtype))
        slope = shooting.states(q_end, v_end, of_q, of_v)
        of_states = [x[np.array(i, int)] for x, i in zip((Z, Z_v), self.chosen, strict=True)]
        begin, kinematic_map = shifted(kinematic_map_of(system), q, back), kinematic_map_of(system)
        difference = returned(kinematic_map, q_end, begin) - begin - self.orbit.advance, v_end - v - back_of_v
        residual = shooting.states(q_end, v_end, *difference)
        return residual, slope - jnp.concatenate(of_states), Z, Z_v, back, back_of_v, slope[:, :k]


RANK = 1e-7
"""Singular values below this part of the largest are those of a family."""


def rank(rows: np.ndarray) -> int:
    """The number of independent rows, each relative to its length: rows may have different units."""
    lengths = np.linalg.norm(rows, axis=1)
    values = np.linalg.svd(rows / np.where(lengths > 0, lengths, 1)[:, None], compute_uv=False)
    return int(np.sum(values > RANK * np.max(values, initial=0)))


def system_of(family: Callable, parameter: Any) -> AbstractSystem:
    """The system at a value of the parameter, with its states in the velocities. Raises ``InputError`` unless it is a
    system without contacts."""
    system = call("family", family, parameter)
    if not isinstance(system, AbstractSystem):
        raise InputError(f"family must return a ukjax.System, got {kind_of(system)}")
    refuse_contacts("continuation", system)
    refuse_sampled("continuation", system)
    return with_states(system)


def with_parameter(
    system_at: Callable, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], p: Array
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The smallest displacement (n,) and change of velocities (n,) that satisfy the constraints for a unit of dp."""
    along = lambda function: jax.jvp(function, (p,), (jnp.ones_like(p),))[1]
    residuals = (
        along(lambda p: system_at(p).position_residual(t, q)),
        along(lambda p: system_at(p).velocity_residual(t, q, v)),
    )
    return _balancing(system_at(p), t, q, v, *residuals)


def onto_constraints(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """A Newton step back onto the constraints: the smallest displacement (n,) and change of velocities (n,)."""
    return _balancing(system, t, q, v, system.position_residual(t, q), system.velocity_residual(t, q, v))


def _balancing(system, t, q, v, of_position, of_velocity):
    """The smallest displacement and change of velocities that subtract these residuals from those of the
    constraints."""
    beside = lambda xi: (t, shifted(kinematic_map_of(system), q, xi), v)
    pinv = lambda A: jnp.linalg.pinv(A, rtol=RANK)
    xi = -pinv(system.position_slope(t, q, v)) @ of_position
    by_displacement = jax.jvp(lambda xi: system.velocity_residual(*beside(xi)), (jnp.zeros_like(v),), (xi,))[1]
    return xi, -pinv(system.velocity_slope(t, q, v)) @ (of_velocity + by_displacement)
