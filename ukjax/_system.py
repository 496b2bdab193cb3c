"""A system is dynamics and constraints: a callable pytree (t, q, v) -> Terms."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from ._check import as_array, as_number, check_function, is_eager, kind_of, without_derivatives
from ._closures import hoist_tracers
from ._constraint import AbstractConstraint, Level, as_written, join, rows
from ._control import AbstractControl, Command, constraints_of
from ._dynamics import AbstractDynamics
from ._friction import DryFriction
from ._functions import vector_of
from ._names import names_and_units
from ._precision import Numbers, as_float
from ._rates import Rates, rate, settled
from ._run.compile import jit_unoptimised
from ._terms import Terms


class Limited(NamedTuple):
    """A coordinate's ``name`` and ``unit``, its limits ``low`` and ``high``, and its ``values`` at samples."""

    name: str
    unit: str
    low: float
    high: float
    values: np.ndarray


class AbstractSystem(eqx.Module):
    """Anything with dynamics and constraints. ``System`` is put together from them; a mechanism with parameters of
    its own subclasses this and makes them from its fields, so that each parameter is one leaf.

    What a system need not have is None: ``nonideal(t, q, v)``, the force c (n,) of ``Terms``; ``control``, the
    actuators and the law that drives them (see ``ukjax.control``); ``coordinates``, their names and units,
    ``(("theta", "rad"), ("x", "m"))``.

    ``rates(q, v)`` is q̇ = N(q) v where velocities are no rates of coordinates, such as those about a body's axes
    beside a unit quaternion, and there may be fewer of them: linear in v, and what of q it keeps is kept, to the error
    of the steps. M, Q, A, b and all that takes v are for that v, but for a ``Lagrangian``'s energies, which take q̇;
    ``velocities`` are its names and units. Where it is None, v is q̇. ``dry_friction`` is what is known of friction
    along velocities, so that a motion in which it creeps can say so.
    """

    if TYPE_CHECKING:  # a type checker takes an AbstractVar for an argument of __init__, which a property need not be

        @property
        def dynamics(self) -> AbstractDynamics: ...
        @property
        def constraints(self) -> tuple[AbstractConstraint, ...]: ...
        @property
        def nonideal(self) -> Callable | None: ...
        @property
        def control(self) -> AbstractControl | None: ...
        @property
        def coordinates(self) -> tuple[tuple[str, str], ...] | None: ...
        @property
        def rates(self) -> Rates | None: ...
        @property
        def velocities(self) -> tuple[tuple[str, str], ...] | None: ...
        @property
        def dry_friction(self) -> DryFriction | None: ...
    else:
        dynamics: eqx.AbstractVar[AbstractDynamics]
        constraints: eqx.AbstractVar[tuple[AbstractConstraint, ...]]
        nonideal = None
        control = None
        coordinates = None
        rates = None
        velocities = None
        dry_friction = None

    def __call__(self, t: Numbers, q: Numbers, v: Numbers) -> Terms:
        """M, Q, A, b (and c) at time t [s], q (n,) and v (n,), with what the actuators do in Q."""
        t, q, v = state_of(t, q, v, self.rates)
        self = hoist_tracers(self)
        # Operation by operation, each would be compiled by itself.
        return _terms(self, t, q, v) if is_eager(*without_derivatives((self, t, q, v))) else _driven(self, t, q, v)

    def passive(self, t: Numbers, q: Numbers, v: Numbers) -> Terms:
        """M, Q, A, b (and c) with the actuators off."""
        t, q, v = state_of(t, q, v, self.rates)
        M, Q = dynamics_of(self).terms(t, q, v)
        if self.rates is not None:  # by which alone the dynamics need not see how many coordinates there are
            jax.eval_shape(partial(rate, self.rates), q, v)
        A, b = rows(structure_of(self), t, q, v)
        c = None if self.nonideal is None else vector_of(v.size, "velocity", "nonideal", self.nonideal, t, q, v)
        return Terms(M, Q, A, b, c)

    def command(self, t: Numbers, q: Numbers, v: Numbers, passive: Terms | None = None) -> Command:
        """What the control asks of the actuators, and what of its task they cannot give.

        Raises ``ValueError`` for a system without control.
        """
        if self.control is None:
            raise ValueError(
                "this system has no control: System(dynamics, constraints, control=ukjax.control.Servo(...))"
            )
        t, q, v = state_of(t, q, v, self.rates)
        passive = self.passive(t, q, v) if passive is None else passive
        return self.control.under(self.rates).command(t, q, v, passive)

    @property
    def held(self) -> tuple[AbstractConstraint, ...]:
        """The constraints that hold all along the motion: the structure's, and a task followed from the start."""
        return structure_of(self) + (task_of(self) if self.control is not None and self.control.held else ())

    def of_level(self, level: Level) -> tuple[AbstractConstraint, ...]:
        """The held constraints that are statements about positions, velocities or accelerations."""
        return tuple(constraint for constraint in self.held if constraint.level == level)

    @property
    def velocity_follows(self) -> bool:
        """Whether what is held of velocities is the rate of what is held of positions, φ̇ of φ, and no more."""
        return not self.of_level("velocity")

    def violation(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """φ and ψ of the held constraints as they are written: ``residual`` but for what only accelerations obey."""
        t = as_float(t)
        positions = [constraint.position(t, q) for constraint in self.of_level("position")]
        return join([*positions, *(constraint.velocity(t, q, v) for constraint in self.of_level("velocity"))], q)

    def position_residual(self, t: ScalarLike, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        """φ(t, q) of all held holonomic constraints, in their order."""
        t = as_float(t)
        return join([constraint.position(t, q) for constraint in self.held], q)

    def velocity_residual(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """φ̇ of the held holonomic and ψ of the other held constraints, in their order."""
        t = as_float(t)
        return join([constraint.velocity(t, q, v) for constraint in self.held], q)

    def position_slope(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """The derivative of ``position_residual`` by what moves q, φ_q N."""
        return _stacked([constraint.slope(as_float(t), q, v) for constraint in self.held], v)

    def velocity_slope(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """The derivative of ``velocity_residual`` by v."""
        return _stacked([constraint.velocity_slope(as_float(t), q, v) for constraint in self.held], v)

    def residual(
        self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"], acceleration: Float[Array, " n"]
    ) -> Float[Array, " m"]:
        """Each held constraint as it was written: φ, or ψ, or A q̈ − b."""
        return as_written(self.held, t, q, v, acceleration)

    def task_error(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"] | None:
        """What ``tune`` is to bring to zero, where that is something else than the control's task as it is written;
        None where it is not."""
        return None

    def limited(self, t: Array, q: Float[Array, "*samples nq"]) -> tuple[Limited, ...]:
        """The coordinates that are to stay within limits, at samples of a motion."""
        return ()

    def energy(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        """T + V [J], or None where the dynamics have none."""
        return dynamics_of(self).energy(as_float(t), q, v)


def state_of(t: Numbers, q: Numbers, v: Numbers, rates: Rates | None = None) -> tuple[Array, Array, Array]:
    """A time and a state as arrays, q and v (n,), or ``ValueError``."""
    t, q, v = as_number("t", t, "s"), as_array("q", q), as_array("v", v)
    if rates is not None and q.ndim == v.ndim == 1:
        return t, q, v
    if q.ndim != 1 or v.shape != q.shape:
        raise ValueError(f"q and v must both have shape (n,), got shapes {q.shape} and {v.shape}")
    return t, q, v


def rates_of(model: Any) -> Rates | None:
    """q̇ = N(q) v of a system that says so; None where v is q̇, as of any function that returns ``Terms``."""
    return model.rates if isinstance(model, AbstractSystem) else None


def split_state(model: Any, z: Array) -> tuple[Array, Array]:
    """q and v from one row of both. Raises ``ValueError`` where nothing says how many there are of each."""
    rates, named = rates_of(model), getattr(model, "coordinates", None)
    if rates is None and z.size % 2:
        raise ValueError(f"start must be (q0, v0), as many numbers for each, got {z.size} numbers in all")
    if rates is not None and named is None:
        raise ValueError("start is (q0, v0), and the system must name its coordinates to say where v0 begins")
    q, v = jnp.split(z, 2 if named is None or rates is None else [len(named)])
    return q, v


def dynamics_of(system: AbstractSystem) -> AbstractDynamics:
    """Its own, in a motion with q̇ = N(q) v."""
    return system.dynamics.under(system.rates)


def mass_of(system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
    """M (n, n), symmetric."""
    M = dynamics_of(system).mass(t, q, v)
    return (M + M.T) / 2


def structure_of(system: AbstractSystem) -> tuple[AbstractConstraint, ...]:
    """Its constraints, in such a motion."""
    return tuple(constraint.under(system.rates) for constraint in system.constraints)


def task_of(system: AbstractSystem) -> tuple[AbstractConstraint, ...]:
    """What its control serves, in such a motion; nothing without control."""
    return () if system.control is None else system.control.under(system.rates).task


def shifted(rates: Rates | None, q: Float[Array, " nq"], change: Float[Array, " n"]) -> Float[Array, " nq"]:
    """q after a small displacement, in terms of velocities: q + N(q) change."""
    return settled(rates, q + rate(rates, q, change))


def _stacked(parts, v):
    return jnp.concatenate(parts) if parts else jnp.zeros((0, v.size), v.dtype)


def _driven(system, t, q, v):
    terms = system.passive(t, q, v)
    if system.control is None:
        return terms
    force = system.control.force(t, q, v, system.command(t, q, v, terms).u)
    return Terms(terms.M, terms.Q + force, terms.A, terms.b, terms.c)


_terms = jit_unoptimised(_driven)


class System(AbstractSystem):
    """A system put together: ``System(dynamics, constraints)``.

    ``dynamics`` is a ``Lagrangian`` or ``MassForce``, ``constraints`` one constraint or a sequence of them, in which
    kinds mix freely. ``nonideal``, ``control``, ``coordinates``, ``rates`` and ``velocities`` as in ``AbstractSystem``.
    Raises ``ValueError`` for anything else.
    """

    dynamics: AbstractDynamics  # pyright: ignore
    constraints: tuple[AbstractConstraint, ...]  # pyright: ignore
    nonideal: Callable | None  # pyright: ignore
    control: AbstractControl | None  # pyright: ignore
    coordinates: tuple[tuple[str, str], ...] | None = eqx.field(static=True)  # pyright: ignore
    rates: Rates | None  # pyright: ignore
    velocities: tuple[tuple[str, str], ...] | None = eqx.field(static=True)  # pyright: ignore

    def __init__(
        self,
        dynamics: AbstractDynamics,
        constraints: AbstractConstraint | Iterable[AbstractConstraint] = (),
        *,
        nonideal: Callable | None = None,
        control: AbstractControl | None = None,
        coordinates: Iterable[Sequence[str]] | None = None,
        rates: Rates | None = None,
        velocities: Iterable[Sequence[str]] | None = None,
    ):
        if not isinstance(dynamics, AbstractDynamics):
            raise ValueError(f"dynamics must be ukjax.Lagrangian or ukjax.MassForce, got {kind_of(dynamics)}")
        constraints = constraints_of("constraints", constraints)
        if nonideal is not None:
            check_function("nonideal", nonideal, "t, q, v")
        if control is not None and not isinstance(control, AbstractControl):
            raise ValueError(f"control must be one of ukjax.control (Servo, Robust, Feedback), got {kind_of(control)}")
        self.dynamics, self.constraints, self.nonideal, self.control = dynamics, constraints, nonideal, control
        self.coordinates = names_and_units("coordinates", coordinates)
        if rates is not None:
            check_function("rates", rates, "q, v")
        elif velocities is not None:
            raise ValueError("velocities are named by their coordinates, unless rates(q, v) says that they are others")
        self.rates, self.velocities = rates, names_and_units("velocities", velocities)
