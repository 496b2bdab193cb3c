"""Systems: dynamics and constraints as a callable pytree (t, q, v) -> Terms."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from ._check import as_array, as_number, check_function, kind_of
from ._constraint import AbstractConstraint, AbstractNonsmooth, Level, as_written, join, rows
from ._control import AbstractControl, Command, ConstantInputs, constraints_of
from ._dynamics import AbstractDynamics
from ._errors import InputError
from ._flatten import FlattenedOnce, remembered_by
from ._friction import DryFriction
from ._functions import vector_of
from ._jaxpr.closures import hoist_tracers
from ._jaxpr.tracing import is_eager, is_tracing, without_derivatives
from ._kinematic_map import KinematicMap, StateMap, rate, settled
from ._names import check_different, names_and_units
from ._outside import external_values_in, is_reading_once
from ._precision import Numbers, as_float
from ._run.compile import jit_unoptimised
from ._terms import Terms


class Limited(NamedTuple):
    """Limits of a coordinate, and its ``values`` (samples,) in a simulated motion."""

    name: str
    unit: str
    low: float
    high: float
    values: np.ndarray


class AbstractSystem(FlattenedOnce):
    """Abstract system with dynamics and constraints.

    ``System`` takes dynamics and constraints as arguments. A mechanism with its own parameters is a subclass that
    computes both from its fields, so that each parameter is one leaf of the pytree.

    Attributes
    ----------
    dynamics, constraints
        M and Q, and the constraints that give A and b.
    nonsmooth
        Contacts and dry friction, ``Unilateral`` and ``Coulomb``. They are not part of ``Terms``: ``simulate``
        determines which of them act.
    nonideal
        Function (t, q, v) -> c (n,) of ``Terms``, or None.
    control
        Actuators and control law (see ``ukjax.control``), or None.
    coordinates
        Names and units of the coordinates, ``(("theta", "rad"), ("x", "m"))``, or None.
    kinematic_map
        Function (q, v) -> q̇ = N(q) v, linear in v, if the velocities are not the time derivatives of the coordinates,
        such as angular velocities in body axes with a unit quaternion. There may be fewer velocities than coordinates.
        An invariant of N(q) v, such as the norm of a quaternion, is preserved up to the error of the steps. All
        functions of v use this v, except the energies of a ``Lagrangian``, which are functions of q̇. None: v = q̇.
    velocities
        Names and units of the velocities if ``kinematic_map`` is given, or None.
    dry_friction
        Record of the dry friction, used for a warning if regularised friction creeps in a motion, or None.
    """

    if TYPE_CHECKING:  # type checkers treat an AbstractVar as an argument of __init__, which a property is not

        @property
        def dynamics(self) -> AbstractDynamics: ...
        @property
        def constraints(self) -> tuple[AbstractConstraint, ...]: ...
        @property
        def nonsmooth(self) -> tuple[AbstractNonsmooth, ...]: ...
        @property
        def nonideal(self) -> Callable | None: ...
        @property
        def control(self) -> AbstractControl | None: ...
        @property
        def coordinates(self) -> tuple[tuple[str, str], ...] | None: ...
        @property
        def kinematic_map(self) -> KinematicMap | None: ...
        @property
        def velocities(self) -> tuple[tuple[str, str], ...] | None: ...
        @property
        def dry_friction(self) -> DryFriction | None: ...
    else:
        dynamics: eqx.AbstractVar[AbstractDynamics]
        constraints: eqx.AbstractVar[tuple[AbstractConstraint, ...]]
        nonsmooth = ()
        nonideal = None
        control = None
        coordinates = None
        kinematic_map = None
        velocities = None
        dry_friction = None

    def __call__(self, t: Numbers, q: Numbers, v: Numbers) -> Terms:
        """Return M, Q, A, b (and c) at time t [s] and state q (n,), v (n,), with the actuator forces in Q."""
        self._check_states()
        t, q, v = state_of(t, q, v, self.kinematic_map)
        self = hoist_tracers(self)
        # Compiled if eager: otherwise JAX would compile and dispatch each operation separately.
        return _jitted(self, t, q, v) if is_eager(*without_derivatives((self, t, q, v))) else _actuated(self, t, q, v)

    def passive(self, t: Numbers, q: Numbers, v: Numbers) -> Terms:
        """Return M, Q, A, b (and c) without actuator forces."""
        t, q, v = state_of(t, q, v, self.kinematic_map)
        M, Q = dynamics_of(self).terms(t, q, v)
        if self.kinematic_map is not None:  # checks the shape of q̇; the dynamics may not evaluate it
            jax.eval_shape(partial(rate, self.kinematic_map), q, v)
        A, b = rows(structure_of(self), t, q, v)
        c = None if self.nonideal is None else vector_of(v.size, "velocity", "nonideal", self.nonideal, t, q, v)
        return Terms(M, Q, A, b, c)

    def _check_states(self):
        """Raise ``InputError`` for a control with first-order states, unless the velocities have them."""
        control = self.control
        if control is not None and control.states and not isinstance(self.kinematic_map, StateMap):
            names = ", ".join(name for name, _ in control.states)
            raise InputError(
                f"the control of this system has first-order states ({names}), which its velocities do not have: "
                "use ukjax.with_states(system), whose velocities (v, s) include them"
            )

    def command(self, t: Numbers, q: Numbers, v: Numbers, passive: Terms | None = None) -> Command:
        """Return the actuator command, and the part of the task that the actuators cannot realise.

        Parameters
        ----------
        t, q, v
            Time [s] and state, (nq,) and (n,).
        passive
            Terms of the system with its motors off, if they are known already; otherwise they are evaluated.

        Returns
        -------
        Command
            The inputs u (p,), and the part of the task that is out of reach.

        Raises
        ------
        InputError
            For a system without control.
        """
        if self.control is None:
            raise InputError(
                "this system has no control: System(dynamics, constraints, control=ukjax.control.Servo(...))"
            )
        self._check_states()
        t, q, v = state_of(t, q, v, self.kinematic_map)
        at = hoist_tracers(self), t, q, v, passive
        return _jitted_command(*at) if is_eager(*without_derivatives(at)) else _command(*at)

    @property
    def enforced(self) -> tuple[AbstractConstraint, ...]:
        """The constraints that are enforced during the whole motion: those of the structure, and a task enforced from
        the start."""
        return structure_of(self) + (task_of(self) if self.control is not None and self.control.projected else ())

    def of_level(self, level: Level) -> tuple[AbstractConstraint, ...]:
        """Return the enforced constraints of a level: "position", "velocity" or "acceleration"."""
        return tuple(constraint for constraint in self.enforced if constraint.level == level)

    @property
    def velocity_follows(self) -> bool:
        """Whether all velocity constraints are time derivatives φ̇ of position constraints φ."""
        return not self.of_level("velocity")

    def violation(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """Return φ and ψ of the enforced constraints, without acceleration constraints."""
        t = as_float(t)
        positions = [constraint.position(t, q) for constraint in self.of_level("position")]
        return join([*positions, *(constraint.velocity(t, q, v) for constraint in self.of_level("velocity"))], q)

    def position_residual(self, t: ScalarLike, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        """Return φ(t, q) of all enforced holonomic constraints, in their order."""
        t = as_float(t)
        return join([constraint.position(t, q) for constraint in self.enforced], q)

    def velocity_residual(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """Return φ̇ of the holonomic and ψ of the other enforced constraints, in their order."""
        t = as_float(t)
        return join([constraint.velocity(t, q, v) for constraint in self.enforced], q)

    def position_slope(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """Return φ_q N, the derivative of ``position_residual`` with respect to δ for a displacement N(q) δ of q."""
        return _stacked([constraint.slope(as_float(t), q, v) for constraint in self.enforced], v)

    def velocity_slope(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """Return the derivative of ``velocity_residual`` with respect to v."""
        return _stacked([constraint.velocity_slope(as_float(t), q, v) for constraint in self.enforced], v)

    def residual(
        self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"], acceleration: Float[Array, " n"]
    ) -> Float[Array, " m"]:
        """Return the residual (m,) of each enforced constraint at its own level: φ, ψ, or A a − b with the
        ``acceleration`` a, in the unit of the constraint.
        """
        return as_written(self.enforced, t, q, v, acceleration)

    def task_error(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"] | None:
        """Return the error that ``tune`` minimises, or None if it is the residual of the task of the control."""
        return None

    def constraint_of_row(self, row: str) -> str:
        """Return the name of the constraint that a row belongs to: "loop" for "loop x" and for "loop[0]"."""
        return re.sub(r"( [xyz]|\[\d+\])$", "", row)

    def limited(self, t: Array, q: Float[Array, "*samples nq"]) -> tuple[Limited, ...]:
        """Return the coordinates with limits, with their values at samples of a motion."""
        return ()

    def energy(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        """Return the energy T + V [J], or None if the dynamics do not define one. See ``Trajectory.energy``."""
        t, q, v = as_float(t), as_array("q", q), as_array("v", v)
        self = hoist_tracers(self)
        energy = _jitted_energy if is_eager(*without_derivatives((self, t, q, v))) else _energy
        return energy(self, t, q, v)


def state_of(
    t: Numbers, q: Numbers, v: Numbers, kinematic_map: KinematicMap | None = None
) -> tuple[Array, Array, Array]:
    """Convert a time and a state to arrays, q and v (n,). Raises ``InputError`` if the shapes are wrong."""
    t, q, v = as_number("t", t, "s"), as_array("q", q), as_array("v", v)
    if kinematic_map is not None and q.ndim == v.ndim == 1:
        return t, q, v
    if q.ndim != 1 or v.shape != q.shape:
        raise InputError(f"q and v must both have shape (n,), got shapes {q.shape} and {v.shape}")
    return t, q, v


def kinematic_map_of(model: Any) -> KinematicMap | None:
    """Return the ``kinematic_map`` of a system, None if v = q̇, as for a plain function that returns ``Terms``."""
    return model.kinematic_map if isinstance(model, AbstractSystem) else None


def nonsmooth_of(model: Any) -> tuple[AbstractNonsmooth, ...]:
    """Return the contacts and dry friction of a model, () for a plain function that returns ``Terms``."""
    return model.nonsmooth if isinstance(model, AbstractSystem) else ()


def split_state(model: Any, z: Array) -> tuple[Array, Array]:
    """Split one vector into q and v. Raises ``InputError`` if their sizes are not known."""
    kinematic_map, names = kinematic_map_of(model), getattr(model, "coordinates", None)
    control = model.control if isinstance(model, AbstractSystem) else None
    if control is not None and control.states:
        if names is None:
            raise InputError(
                "start is (q0, v0), and a system whose control has first-order states must name its coordinates to say "
                "where v0 begins"
            )
        q, v = jnp.split(z, [len(names)])
        return q, v
    if kinematic_map is None and z.size % 2:
        raise InputError(f"start must be (q0, v0), as many numbers for each, got {z.size} numbers in all")
    if kinematic_map is not None and names is None:
        raise InputError("start is (q0, v0), and the system must name its coordinates to say where v0 begins")
    q, v = jnp.split(z, 2 if names is None or kinematic_map is None else [len(names)])
    return q, v


def dynamics_of(system: AbstractSystem) -> AbstractDynamics:
    """Return the dynamics of a system for its kinematic equation q̇ = N(q) v."""
    return system.dynamics.under(system.kinematic_map)


def mass_of(system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Return the symmetrised mass matrix (n, n)."""
    M = dynamics_of(system).mass(t, q, v)
    return (M + M.T) / 2


def structure_of(system: AbstractSystem) -> tuple[AbstractConstraint, ...]:
    """Return the constraints of a system for its kinematic equation q̇ = N(q) v."""
    return tuple(constraint.under(system.kinematic_map) for constraint in system.constraints)


def levels_of(system: AbstractSystem) -> tuple[Level, ...]:
    """Return the level of each constraint of a system, which remembers them: some make their constraints anew on each
    access."""
    if is_tracing() or not is_reading_once():
        return tuple(constraint.level for constraint in system.constraints)
    remembered, outside = remembered_by(system), external_values_in(system)
    if levels_of not in remembered or remembered[levels_of][0] != outside:
        remembered[levels_of] = outside, tuple(constraint.level for constraint in system.constraints)
    return remembered[levels_of][1]


def task_of(system: AbstractSystem) -> tuple[AbstractConstraint, ...]:
    """Return the task of the control of a system as constraints, for q̇ = N(q) v; () without control."""
    return () if system.control is None else system.control.under(system.kinematic_map).task


def shifted(
    kinematic_map: KinematicMap | None, q: Float[Array, " nq"], change: Float[Array, " n"]
) -> Float[Array, " nq"]:
    """Return q after a small displacement N(q) ``change``."""
    return settled(kinematic_map, q + rate(kinematic_map, q, change))


def _stacked(parts, v):
    return jnp.concatenate(parts) if parts else jnp.zeros((0, v.size), v.dtype)


def _actuated(system, t, q, v):
    terms = system.passive(t, q, v)
    if system.control is None:
        return terms
    force = system.control.force(t, q, v, system.command(t, q, v, terms).u)
    return Terms(terms.M, terms.Q + force, terms.A, terms.b, terms.c)


def _command(system, t, q, v, passive):
    passive = system.passive(t, q, v) if passive is None else passive
    return system.control.under(system.kinematic_map).command(t, q, v, passive)


def _energy(system, t, q, v):
    return dynamics_of(system).energy(t, q, v)


_jitted, _jitted_command, _jitted_energy = map(jit_unoptimised, (_actuated, _command, _energy))


class AbstractVariant(AbstractSystem):
    """A system that differs from its ``plant`` only in the attributes that it overrides."""

    plant: AbstractSystem

    @property
    def dynamics(self) -> AbstractDynamics:
        return self.plant.dynamics

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return self.plant.constraints

    @property
    def nonsmooth(self) -> tuple[AbstractNonsmooth, ...]:
        return self.plant.nonsmooth

    @property
    def nonideal(self) -> Callable | None:
        return self.plant.nonideal

    @property
    def control(self) -> AbstractControl | None:
        return self.plant.control

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...] | None:
        return self.plant.coordinates

    @property
    def kinematic_map(self) -> KinematicMap | None:
        return self.plant.kinematic_map

    @property
    def velocities(self) -> tuple[tuple[str, str], ...] | None:
        return self.plant.velocities

    def constraint_of_row(self, row: str) -> str:
        return self.plant.constraint_of_row(row)

    def energy(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        return self.plant.energy(t, q, v)


class Driven(AbstractVariant):
    """The system ``plant`` with constant inputs ``u`` (p,) of its actuators."""

    u: Float[Array, " p"]

    @property
    def control(self) -> AbstractControl | None:
        return None if self.plant.control is None else ConstantInputs(self.plant.control, self.u)


def refuse_contacts(function: str, model: Any, advice: str = "") -> None:
    """Raise ``InputError`` if the model has contacts or dry friction, which ``function`` would ignore."""
    if isinstance(model, AbstractSystem) and model.nonsmooth:
        raise InputError(
            f"{function} is not available for systems with contacts or dry friction (ukjax.Unilateral, ukjax.Coulomb, "
            f"stops){advice}"
        )


def refuse_sampled(function: str, model: Any) -> None:
    """Raise ``InputError`` if the control of the model is sampled, which ``function`` would treat as continuous."""
    if isinstance(model, AbstractSystem) and model.control is not None and model.control.sampling is not None:
        raise InputError(
            f"{function} is not available for systems with sampled control (ukjax.control.Sampled), "
            "whose law would act continuously there"
        )


def refuse_states(function: str, model: Any) -> None:
    """Raise ``InputError`` if the model has first-order states, which ``function`` does not support."""
    control = model.control if isinstance(model, AbstractSystem) else None
    if control is not None and control.states:
        names = ", ".join(name for name, _ in control.states)
        raise InputError(f"{function} is not available for systems whose control has first-order states ({names})")


AnyConstraint = AbstractConstraint | AbstractNonsmooth


def split_constraints(
    constraints: Any,
) -> tuple[tuple[AbstractConstraint, ...], tuple[AbstractNonsmooth, ...]]:
    """The constraints that are equations, and the contacts and dry friction. Raises ``InputError`` for others."""
    if isinstance(constraints, AbstractNonsmooth):
        return (), (constraints,)
    if isinstance(constraints, AbstractConstraint | str) or not isinstance(constraints, Iterable):
        return constraints_of("constraints", constraints), ()
    constraints = tuple(constraints)
    nonsmooth = tuple(each for each in constraints if isinstance(each, AbstractNonsmooth))
    return constraints_of(
        "constraints", [each for each in constraints if not isinstance(each, AbstractNonsmooth)]
    ), nonsmooth


class System(AbstractSystem):
    """System made from given dynamics and constraints: ``System(dynamics, constraints)``.

    Parameters
    ----------
    dynamics
        M and Q: a ``Lagrangian`` or ``MassForce``.
    constraints
        One constraint or several, of any kinds, contacts and dry friction among them. Default: none.
    nonideal
        Function (t, q, v) -> c (n,) of ``Terms``, for constraint forces that do work.
    control
        Actuators and control law (see ``ukjax.control``).
    coordinates
        Names and units of the coordinates, ``(("theta", "rad"), ("x", "m"))``.
    kinematic_map
        Function (q, v) -> q̇ = N(q) v, if v is not q̇. See ``AbstractSystem``.
    velocities
        Names and units of the velocities, if there is a ``kinematic_map``.

    Raises
    ------
    InputError
        If an argument is not of the documented type.
    """

    dynamics: AbstractDynamics  # pyright: ignore
    constraints: tuple[AbstractConstraint, ...]  # pyright: ignore
    nonsmooth: tuple[AbstractNonsmooth, ...]  # pyright: ignore
    nonideal: Callable | None  # pyright: ignore
    control: AbstractControl | None  # pyright: ignore
    coordinates: tuple[tuple[str, str], ...] | None = eqx.field(static=True)  # pyright: ignore
    kinematic_map: KinematicMap | None  # pyright: ignore
    velocities: tuple[tuple[str, str], ...] | None = eqx.field(static=True)  # pyright: ignore

    def __init__(
        self,
        dynamics: AbstractDynamics,
        constraints: AnyConstraint | Iterable[AnyConstraint] = (),
        *,
        nonideal: Callable | None = None,
        control: AbstractControl | None = None,
        coordinates: Iterable[Sequence[str]] | None = None,
        kinematic_map: KinematicMap | None = None,
        velocities: Iterable[Sequence[str]] | None = None,
    ):
        if not isinstance(dynamics, AbstractDynamics):
            raise InputError(f"dynamics must be ukjax.Lagrangian or ukjax.MassForce, got {kind_of(dynamics)}")
        constraints, nonsmooth = split_constraints(constraints)
        if nonideal is not None:
            check_function("nonideal", nonideal, "t, q, v")
        if control is not None and not isinstance(control, AbstractControl):
            raise InputError(f"control must be one of ukjax.control (Servo, Robust, Feedback), got {kind_of(control)}")
        self.dynamics, self.constraints, self.nonsmooth = dynamics, constraints, nonsmooth
        self.nonideal, self.control = nonideal, control
        self.coordinates = names_and_units("coordinates", coordinates)
        if kinematic_map is not None:
            check_function("kinematic_map", kinematic_map, "q, v")
        elif velocities is not None:
            raise InputError(
                "velocities must be None without a kinematic_map(q, v): the velocities are then the rates of the "
                "coordinates"
            )
        self.kinematic_map, self.velocities = kinematic_map, names_and_units("velocities", velocities)
        names = [name for name, _ in self.coordinates or ()]
        rates = [f"d{name}" for name in names]
        check_different(names, rates if kinematic_map is None else [name for name, _ in self.velocities or ()])
