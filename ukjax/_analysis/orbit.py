"""``periodic`` and ``monodromy``: periodic motions and their multipliers.

A motion with the period T returns to its start, except for the ``advance`` a of some coordinates:

    q(t + T) = q(t) + a,      v(t + T) = v(t).

A small deviation x of the start, in the states of ``tangent``, becomes Φ x after a period. The monodromy matrix Φ is
the derivative of the motion along the basis Z of the tangent space. It has as many rows as there are states, so that
its eigenvalues, the multipliers, are those of motions that satisfy the constraints.

The start is found by Newton's method for the equations W (end − start − a) = 0, where W selects the states. Periodic
motions may form families: every point of an orbit is a start, and a conservative system has an orbit for each energy.
Therefore the steps are damped by the size of the residual (Levenberg and Marquardt), which converges quadratically to a
point of the family near the start, without a decision about ranks.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._check import as_integer, as_number, check_flag, kind_of, repr_of
from .._constraint import AbstractConstraint, AbstractNonsmooth, Holonomic, Nonholonomic
from .._contact.mode import all_open
from .._contact.transition import transition
from .._equation import constrained_motion
from .._errors import InputError
from .._jaxpr.dependence import depends_on
from .._jaxpr.tracing import is_concrete, is_eager, without_derivatives
from .._kernel.if_repeated import jit_if_repeated
from .._kinematic_map import StateMap, columns, velocities_of
from .._labels import Named, named_coordinates
from .._mechanism.turning import QuaternionMap
from .._motion.consistent.project import project
from .._motion.inputs import canonicalise
from .._motion.simulate import simulate
from .._motion.stepper.contact_setting import setting_of
from .._motion.stepper.scaling import scales
from .._motion.trajectory.trajectory import Trajectory
from .._names import did_you_mean
from .._precision import Numbers
from .._solve import choose, coordinate_scale_by_numpy
from .._system import AbstractSystem, AbstractVariant, kinematic_map_of, refuse_sampled, shifted
from .linearize import check_state, state_of
from .states import Rows, States, named_states, names_of_states, position_names, velocity_names
from .tangent import compiled_basis

MAX_ITERATIONS = 60
WEIGHT = 1e3
"""Weight of held coordinates relative to the equations of the period."""

CLOSED = 1e-9
"""Largest difference between start and end of a periodic motion, relative to the size of the state."""

REPEATS = 1e-6
"""Largest relative change of the equations after a period of a system that depends on time."""

ACCURATE = 1e-6
"""Largest error of the steps in a period, relative to the size of the state."""

GROWTH = 1e-6
"""Excess of the size of a multiplier over 1 that counts as 0: the rounding error of a double multiplier."""


class Orbit(eqx.Module):
    """A periodic motion, as ``periodic`` returns it.

    Attributes
    ----------
    t, q, v
        Time [s], coordinates (nq,) and velocities (n,) at the start.
    period
        T [s].
    advance
        Change of the coordinates in a period (nq,).
    states
        Names and units of the states, in which deviations are measured.
    steps
        Number of steps in a period.
    """

    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    period: Float[Array, ""]
    advance: Float[Array, " nq"]
    system: AbstractSystem = eqx.field(repr=False)
    tangent: AbstractSystem = eqx.field(repr=False)
    states: Named = eqx.field(static=True)
    chosen: States = eqx.field(static=True, repr=False)
    steps: int = eqx.field(static=True)

    @property
    def monodromy(self) -> Float[Array, "k k"]:
        """The matrix Φ (k, k): a small deviation x of the states at the start becomes Φ x after a period."""
        shooting = Shooting(self.system, self.tangent, self.chosen, self.steps)
        return shooting.linearised(self.t, self.q, self.v, self.period)[0]

    @property
    def multipliers(self) -> Complex[Array, " k"]:
        """The Floquet multipliers (k,), the eigenvalues of Φ, in no particular order.

        A system that does not depend on time has a multiplier 1, for a later start on the same orbit. Each conserved
        quantity and each symmetry adds another multiplier 1.
        """
        return jnp.linalg.eigvals(self.monodromy)

    @property
    def stable(self) -> bool:
        """Whether no small deviation grows exponentially: no multiplier has a modulus larger than 1 + 1e-6."""
        return bool(np.max(np.abs(np.asarray(self.multipliers)), initial=0) <= 1 + GROWTH)

    def trajectory(self, samples: int = 101) -> Trajectory:
        """Return the motion over one period, at equally spaced times.

        Parameters
        ----------
        samples
            Number of samples, at least 2.

        Returns
        -------
        Trajectory
            The motion from t to t + T.
        """
        ts = self.t + self.period * jnp.linspace(0, 1, as_integer("samples", samples, 2))
        return simulate(self.system, self.q, self.v, ts, dt=float(self.period) / self.steps)


def monodromy(
    system: AbstractSystem,
    q: Numbers,
    v: Numbers,
    period: Numbers,
    t: Numbers = 0.0,
    *,
    states: Iterable[str] | None = None,
    steps: int = 256,
) -> Float[Array, "k k"]:
    """The monodromy matrix of a known periodic motion, which maps small deviations to those after a period.

    Its eigenvalues are the Floquet multipliers. It is a function of JAX, for charts and derivatives. ``periodic`` finds
    periodic motions, and its result has the same matrix.

    Parameters
    ----------
    system
        The system. The forces of its control are included.
    q, v
        Coordinates (nq,) and velocities (n,) at the start, on the constraints. An equilibrium of a system whose
        parameters change periodically is a periodic motion, too. First-order states of a control are the last entries
        of v, (n + k,); without them they have the initial values of the control.
    period
        Period T [s].
    t
        Time of the start [s].
    states
        Names of the states, in which deviations are measured, coordinates first. Default: those that are most nearly
        independent. Inside ``jax.jit`` and ``jax.vmap`` they must be named.
    steps
        Number of Runge–Kutta steps of order 8 in a period.

    Returns
    -------
    Array
        Φ (k, k), with as many states k as ``linearize`` has.

    Raises
    ------
    InputError
        If the state is off the constraints, or for an invalid argument.
    """
    system, t, q, v, period, steps = _checked("monodromy", system, t, q, v, period, steps)
    constants: Any = without_derivatives((system, t, q, v, period))
    tangent = InContact.at(constants) if system.nonsmooth else system
    chosen = _states(tangent, t, q, v, states)
    return Shooting(system, tangent, chosen, steps).linearised(t, q, v, period)[0]


def periodic(
    system: AbstractSystem,
    q: Numbers,
    v: Numbers,
    period: Numbers,
    t: Numbers = 0.0,
    *,
    fixed_period: bool | None = None,
    advance: Mapping[str, float] | None = None,
    hold: Iterable[str] = (),
    steps: int = 256,
) -> Orbit:
    """Find a periodic motion near a start, by Newton's method, and its multipliers.

        q(t + T) = q(t) + advance,      v(t + T) = v(t)

    The constraints may be redundant, nonholonomic or moving. The motion may have impacts and dry friction. Near its
    start it must stay in one contact mode: let it begin between two impacts.

    Parameters
    ----------
    system
        The system. The forces of its control are included.
    q, v
        Coordinates (nq,) and velocities (n,) from which the search starts. They may violate the constraints slightly.
        First-order states of a control are the last entries of v, (n + k,); without them the search starts from the
        initial values of the control.
    period
        Period T [s], or the value from which its search starts.
    t
        Time of the start [s].
    fixed_period
        Whether the period is given, such as that of a force. Default: whether the system depends on time.
    advance
        Changes of coordinates in a period, by name: 2π for a wheel that has turned, a length for a step. Default: 0.
    hold
        Names of coordinates and velocities that keep their value at the start. An amplitude selects one of the orbits
        of a conservative system.
    steps
        Number of Runge–Kutta steps of order 8 in a period. A warning says if the motion in twice as many steps differs.

    Returns
    -------
    Orbit
        Start, period, monodromy matrix and multipliers. Start and period have first derivatives with respect to the
        parameters of the system, by the implicit function theorem.

    Raises
    ------
    InputError
        If no periodic motion is found near the start, if the search ends in an equilibrium, or for an invalid argument.

    Notes
    -----
    Periodic motions of a system that does not depend on time form families. The result is the member near the start,
    in the metric of kinetic energy at the frequency 1/T. Where neither ``hold`` nor the equations determine the change
    of the orbit, derivatives are those of the smallest change.

    A multiple of the period is a period, too, and is the result if the search starts near it. The attitude of a body
    of a ``Mechanism`` returns after a turn by 2π, although its quaternion then has the other sign. In a ``System`` with
    a ``kinematic_map`` all entries of q return.

    ``periodic`` is not available inside ``jax.jit`` and ``jax.vmap``; ``monodromy`` is.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> force = lambda t, q, v: (1 - q**2) * v - q  # van der Pol
    >>> orbit = uk.periodic(uk.System(uk.MassForce(jnp.eye(1), force)), q=[2.0], v=[0.0], period=6.5)
    >>> print(f"{orbit.period:.9f}")
    6.663286859
    """
    if fixed_period is not None:
        check_flag("fixed_period", fixed_period)
    system, t, q, v, period, steps = _checked("periodic", system, t, q, v, period, steps)
    arguments: Any = system, t, q, v, period
    fixed: Any = without_derivatives(arguments)
    if not is_eager(fixed):
        raise InputError("periodic must have concrete values: inside jax.jit and jax.vmap use ukjax.monodromy")
    moved = _advance(system, q, advance)
    timed = depends_on_time(*fixed[:4])
    if fixed_period is None:
        fixed_period = timed
    tangent = InContact.at(fixed) if system.nonsmooth else fixed[0]
    q0, v0 = project(tangent, *fixed[1:4])
    chosen = _states(tangent, fixed[1], q0, v0, None)
    search = Search(Shooting(fixed[0], tangent, chosen, steps), fixed[1], moved, bool(fixed_period))
    held = held_rows(system, q0, v0, hold)
    q0, v0, T, inverse = search.run(q0, v0, fixed[4], held, np.concatenate([q0, v0])[held[1]])
    if timed:
        _check_repeats(fixed[0], fixed[1], q0, v0, T, steps)
    if not is_concrete(arguments):
        q0, v0, T = _differentiable(arguments, search, tangent, q0, v0, T, inverse, held)
        tangent = tangent if system.nonsmooth else system
    names = names_of_states(tangent, q.size, v.size, chosen)
    return Orbit(t, q0, v0, T, moved, system, tangent, names, chosen, steps)


def _checked(function, system, t, q, v, period, steps):
    if not isinstance(system, AbstractSystem):
        raise InputError(f"system must be a ukjax.System, got {kind_of(system)}")
    refuse_sampled(function, system)
    system, t, q, v = state_of(system, t, q, v)
    system, q, v, t = canonicalise(system, q, v, t)
    return system, t, q, v, as_number("period", period, "s", above=0).astype(q.dtype), as_integer("steps", steps, 8)


def _advance(system, q, advance):
    """The change of all coordinates (nq,)."""
    if not isinstance(advance, Mapping | None):
        raise InputError(f"advance must be changes of coordinates by name, {{'angle': 6.28}}, got {repr_of(advance)}")
    names, moved = [name for name, _ in named_coordinates(system, q.size)], jnp.zeros_like(q)
    for name, change in (advance or {}).items():
        if name not in names:
            raise InputError(f"advance names no coordinate {name!r}{did_you_mean(str(name), names)}")
        moved = moved.at[names.index(name)].set(as_number(f"advance[{name!r}]", change))
    return moved


def held_rows(
    system: AbstractSystem, q: Float[Array, " nq"], v: Float[Array, " n"], hold: Iterable[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ξ and δv, and indices in (q, v), of the coordinates and velocities that are held."""
    if not isinstance(hold, Iterable):
        raise InputError(f"hold must be names of coordinates and velocities, ('x', 'dx'), got {repr_of(hold)}")
    hold = (hold,) if isinstance(hold, str) else tuple(hold)
    coordinates, directions, velocities = (
        [name for name, _ in names]
        for names in (
            named_coordinates(system, q.size),
            position_names(system, q.size, v.size),
            velocity_names(system, q.size, v.size),
        )
    )
    rows, entries = [], []
    for name in hold:
        if name in velocities:
            rows.append(v.size + velocities.index(name))
            entries.append(q.size + velocities.index(name))
        elif name in coordinates and name in directions:
            rows.append(directions.index(name))
            entries.append(coordinates.index(name))
        else:
            known = [*(name for name in coordinates if name in directions), *velocities]
            raise InputError(f"hold names no coordinate or velocity {name!r}{did_you_mean(str(name), known)}")
    return np.array(rows, int), np.array(entries, int)


def _states(system, t, q, v, states):
    if states is not None:
        return named_states(system, q.size, v.size, states)
    constants: Any = without_derivatives((system, t, q, v))
    if not is_eager(constants):
        raise InputError("states must be named inside jax.jit and jax.vmap: states=('x', 'dx')")
    rows = Rows.at(*constants)
    check_state(rows, *constants)
    return rows.states(choose("orthogonal"), system)


def depends_on_time(system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> bool:
    """Whether the equations of the system depend on time."""

    def outputs(t):
        gaps = [(each.gaps(t, q), each.slips(t, q, v)) for each in system.nonsmooth]
        return eqx.filter((system(t, q, v), system.violation(t, q, v), gaps), eqx.is_array)

    return depends_on(outputs, t)


def _check_repeats(system, t, q, v, period, steps):
    """Raise ``InputError`` unless the system is the same one period later; otherwise the motion does not repeat."""
    ts = t + period * jnp.linspace(0, 1, 17)
    motion = simulate(system, q, v, ts, dt=float(period) / steps)

    def at(t, q, v):
        acceleration = constrained_motion(system(t, q, v)).acceleration
        gaps = [jnp.ravel(x) for each in system.nonsmooth for x in (each.gaps(t, q), each.slips(t, q, v))]
        return acceleration, jnp.concatenate([*gaps, jnp.zeros(0)])

    now, later = (jax.vmap(at)(times, motion.q, motion.v) for times in (ts, ts + period))
    rate, largest = 2 * np.pi / period, lambda x: float(jnp.max(jnp.abs(x), initial=0))
    sizes = (largest(motion.q) * rate**2 + largest(motion.v) * rate, largest(motion.q) + largest(motion.v))
    for a, b, size in zip(now, later, sizes, strict=True):
        if not largest(a - b) <= REPEATS * (largest(a) + size):
            raise InputError(
                f"period must be that of the system: its equations at t and at t + {float(period):.6g} s differ"
            )


class InContact(AbstractVariant):
    """The system ``plant`` with its closed gaps and its sticking friction as constraints."""

    closed: tuple[int, ...] = eqx.field(static=True)
    sticking: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def at(cls, start: Any) -> "InContact":
        """The contacts at the start (system, t, q, v, period) of a motion."""
        if not is_eager(start):
            raise InputError(
                "the start and the numbers of a system with contacts must be concrete, not traced by jax.jit or "
                "jax.vmap, since they determine the contact mode at the start"
            )
        system, t, q, v, period = start
        mode = _mode_at(system, t, q, v, scales(system, t, q, v, np.asarray(period)))
        return cls(system, *(tuple(np.flatnonzero(x).tolist()) for x in (mode.closed, mode.sticking)))

    @property
    def nonsmooth(self) -> tuple[AbstractNonsmooth, ...]:
        return ()

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        closed, sticking = (np.array(x, int) for x in (self.closed, self.sticking))
        each = self.plant.nonsmooth
        gaps = lambda t, q: jnp.concatenate([x.gaps(t, q) for x in each])[closed]
        slips = lambda t, q, v: jnp.concatenate([x.slips(t, q, v) for x in each])[sticking].ravel()
        contacts = (Holonomic(gaps, name="closed contacts"),) if closed.size else ()
        sticks = (Nonholonomic(slips, name="sticking friction"),) if sticking.size else ()
        return (*self.plant.constraints, *contacts, *sticks)


@jit_if_repeated
def _mode_at(system, t, q, v, scale):
    """The contact mode in which a motion starts."""
    setting = setting_of(system, choose("orthogonal"), t, q, v, scale)
    layout = setting.layout
    released = jnp.zeros(layout.gaps + layout.groups, bool)
    return transition(setting, t, q, v, all_open(layout, q.dtype), released, derivatives=False).mode


class Shooting(eqx.Module):
    """The motion over a period, linearised in the states of the start."""

    system: AbstractSystem
    tangent: AbstractSystem
    chosen: States = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def linearised(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], period: Array
    ) -> tuple[Float[Array, "k k"], Float[Array, " k"], Float[Array, " nq"], Float[Array, " n"]]:
        """The monodromy matrix, the rates of the states at the end, and the end (q, v)."""
        displacement, velocity = compiled_basis(self.tangent, t, q, v, self.chosen)
        constant = without_derivatives(period)
        dt = float(constant) / self.steps if is_eager(constant) else constant / self.steps

        def end(x_and_T):
            x, T = x_and_T[:-1], x_and_T[-1]
            start = shifted(kinematic_map_of(self.system), q, displacement @ x), v + velocity @ x
            motion = simulate(self.system, *start, jnp.stack([t, t + T]), dt=dt, throw=False)
            end = motion.q[-1], motion.v[-1]
            return end, end

        zero = jnp.zeros(displacement.shape[1], q.dtype)
        (of_q, of_v), (q_end, v_end) = jax.jacfwd(end, has_aux=True)(jnp.append(zero, period))
        derivatives = self.states(q_end, v_end, of_q, of_v)
        return derivatives[:, :-1], derivatives[:, -1], q_end, v_end

    def end(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], period: Array) -> tuple[Array, Array]:
        """The end (q, v) of the motion. With contacts, it is taken from ``linearised``, whose program serves any number
        of steps: another program without derivatives would take seconds to compile."""
        if self.system.nonsmooth:
            return self.linearised(t, q, v, period)[2:]
        ts, dt = jnp.stack([t, t + period]), float(period) / self.steps
        motion = simulate(self.system, q, v, ts, dt=dt, throw=False)
        return motion.q[-1], motion.v[-1]

    def states(self, q: Array, v: Array, of_q: Array, of_v: Array) -> Array:
        """The states of a change of coordinates (nq, ...) and of velocities (n, ...) at (q, v)."""
        kinematic_map = kinematic_map_of(self.system)
        if kinematic_map is not None:
            of_q = velocities_of(kinematic_map, columns(kinematic_map, q, v), of_q)
        return jnp.concatenate([of_q[np.array(self.chosen.of_q, int)], of_v[np.array(self.chosen.of_v, int)]])


class Search(eqx.Module):
    """Newton's method for the start and the period."""

    shooting: Shooting
    t: Array
    advance: Float[Array, " nq"]
    fixed_period: bool = eqx.field(static=True)

    def run(self, q: Any, v: Any, period: Any, held: Any, target: np.ndarray) -> tuple[Array, Array, Array, np.ndarray]:
        """Start and period, and the matrix that maps the residual to a change of these."""
        shooting, t = self.shooting, self.t
        unit = coordinate_scale_by_numpy(np.asarray(Rows.at(shooting.tangent, t, q, v).M))
        of_q, of_v = (np.array(x, int) for x in (shooting.chosen.of_q, shooting.chosen.of_v))
        best, factor, first = None, 0.1, float(period)
        for _ in range(MAX_ITERATIONS):
            monodromy, rate, *end = shooting.linearised(t, q, v, period)
            monodromy, rate = np.asarray(monodromy), np.asarray(rate)
            residual = np.asarray(self.residual(q, v, *end))
            scale = np.concatenate([unit[of_q], unit[of_v] * 2 * np.pi / first])
            Z = np.concatenate([np.asarray(x) for x in compiled_basis(shooting.tangent, t, q, v, shooting.chosen)])
            of_period = 0 * rate if self.fixed_period else rate * first
            J = np.c_[(monodromy - np.eye(len(rate))) * scale, of_period] / scale[:, None]
            rows = np.c_[Z[held[0]] * scale, np.zeros(len(held[0]))]
            sizes = np.concatenate([unit, unit * 2 * np.pi / first])[held[0]]
            off = (np.concatenate([np.asarray(q), np.asarray(v)])[held[1]] - target) / sizes
            r, J = np.r_[residual / scale, WEIGHT * off], np.r_[J, WEIGHT * rows / sizes[:, None]]
            missing = np.linalg.norm(r)
            if not np.isfinite(missing):
                missing = np.inf
            if best is None or missing < best[0]:
                small = best is not None and missing <= 1e-14 * self.size(q, v, unit, first)
                best, factor = (missing, q, v, period, r, J, scale, end, Z), factor / 10
                done = small or missing == 0
            else:
                factor, done = factor * 10, best[0] <= 1e-10 * self.size(*best[1:3], unit, first) or factor > 1e8
            missing, q, v, period, r, J, scale, end, Z = best
            if done:
                break
            damping = max(factor * missing, 1e-9)
            if not np.isfinite(missing):
                break
            y = -np.linalg.lstsq(np.r_[J, damping * np.eye(J.shape[1])], np.r_[r, np.zeros(J.shape[1])], rcond=None)[0]
            y *= min(1.0, 0.5 * float(period) / first / max(np.abs(y[-1]), 1e-300))
            q, v, period = self.moved(q, v, period, Z @ (scale * y[:-1]), y[-1] * first)
        self.check(best, unit, first)
        missing, q, v, period, r, J, scale, *_ = best
        inverse = np.r_[scale, first][:, None] * np.linalg.pinv(J, rcond=1e-7)
        return q, v, period, inverse / np.r_[scale, sizes / WEIGHT]

    def residual(self, q: Array, v: Array, q_end: Array, v_end: Array) -> Float[Array, " k"]:
        """The states of the difference between the end and the start, moved by the advance."""
        q_end = returned(kinematic_map_of(self.shooting.system), q_end, q)
        return self.shooting.states(q_end, v_end, q_end - q - self.advance, v_end - v)

    def size(self, q: Any, v: Any, unit: np.ndarray, period: float) -> float:
        """The size of a state, in the unit of scaled residuals."""
        return float(np.max(np.abs(q)) / np.min(unit) + np.max(np.abs(v) / unit) * period / (2 * np.pi))

    def moved(self, q: Any, v: Any, period: Any, change: np.ndarray, change_of_period: float) -> Any:
        """The start on the constraints after a step."""
        n = len(change) // 2
        q = shifted(kinematic_map_of(self.shooting.system), q, jnp.asarray(change[:n]))
        q, v = project(self.shooting.tangent, self.t, q, v + jnp.asarray(change[n:]))
        return q, v, period + change_of_period

    def check(self, best: Any, unit: np.ndarray, first: float) -> None:
        """Raise ``InputError`` unless the motion is periodic; also if it is an equilibrium and its period is free."""
        missing, q, v, period, _, J, scale, end, _ = best
        if not np.isfinite(missing):
            raise InputError("q, v and steps must give a finite motion over a period: a stiff system needs more steps")
        if float(period) < 1e-2 * first:
            raise InputError(
                f"period must be closer to that of a periodic motion: the search from {first:.6g} s ends at 0"
            )
        size = self.size(q, v, unit, first)
        difference = self.difference(q, v, end, unit, first)
        if not (missing <= CLOSED * size and difference <= 1e-6 * size) and missing > 0:
            raise InputError(
                "q, v and period must be closer to those of a periodic motion: none is found from there. The best "
                f"start has the period {float(period):.6g} s, and differs from its end by "
                f"{missing / max(size, 1e-300):.2g} of the size of the state"
            )
        if not self.fixed_period and np.linalg.norm(J[: len(scale), -1]) <= 1e-6 * size:
            raise InputError("q and v must not be near an equilibrium: the search for a periodic motion ends in one")
        steps = self.shooting.steps
        error = self.difference(q, v, replace(self.shooting, steps=2 * steps).end(self.t, q, v, period), unit, first)
        if not error <= ACCURATE * size:
            warnings.warn(
                f"{steps} steps are too few for this periodic motion: its end in twice as many steps differs by "
                f"{error / max(size, 1e-300):.2g} of the size of the state. Give more steps, steps={2 * steps}",
                stacklevel=4,
            )

    def difference(self, q: Any, v: Any, end: Any, unit: np.ndarray, period: float) -> float:
        """How far the ``end`` (q, v) is from the start, moved by the advance, in the unit of ``size``."""
        q_end = returned(kinematic_map_of(self.shooting.system), end[0], q)
        of_q, of_v = (np.max(np.abs(np.asarray(x))) for x in (q_end - q - self.advance, (end[1] - v) / unit))
        return float(of_q / np.min(unit) + of_v * period / (2 * np.pi))


def returned(kinematic_map: Any, q_end: Array, q: Array) -> Array:
    """The end, with the signs of quaternions that are nearest to the start: q and −q are one attitude."""
    kinematic_map = kinematic_map.others if isinstance(kinematic_map, StateMap) else kinematic_map
    return kinematic_map.nearest(q_end, q) if isinstance(kinematic_map, QuaternionMap) else q_end


def _differentiable(arguments, search, tangent, q, v, period, inverse, held):
    """Start and period as functions of the arguments, by a step of Newton's method from their values."""
    system, t, *_ = arguments
    model = InContact(system, tangent.closed, tangent.sticking) if isinstance(tangent, InContact) else system
    target = jnp.concatenate([q, v])[held[1]]
    q, v = project(model, t, q, v)
    motion = simulate(system, q, v, jnp.stack([t, t + period]), dt=float(period) / search.shooting.steps)
    residual = search.residual(q, v, motion.q[-1], motion.v[-1])
    y = -jnp.asarray(inverse) @ jnp.concatenate([residual, jnp.concatenate([q, v])[held[1]] - target])
    displacement, velocity = compiled_basis(tangent, search.t, *without_derivatives((q, v)), search.shooting.chosen)
    q = shifted(kinematic_map_of(system), q, displacement @ y[:-1])
    q, v = project(model, t, q, v + velocity @ y[:-1])
    return q, v, period + y[-1]
