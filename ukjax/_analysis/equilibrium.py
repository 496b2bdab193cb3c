"""Equilibria of constrained systems, with the forces of their constraints."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._check import kind_of
from .._constraint import Holonomic, names_of
from .._errors import InputError
from .._jaxpr.tracing import is_eager, without_derivatives
from .._kinematic_map import count_states
from .._motion.consistent.locked import locked
from .._motion.consistent.project import project, project_state
from .._motion.inputs import canonicalise
from .._precision import Numbers
from .._run.compile import jit_unoptimised
from .._solve import AbstractMethod, choose, solve
from .._system import AbstractSystem, System, refuse_contacts, refuse_sampled, structure_of
from .at_rest import StatesAsCoordinates
from .linear_model import LinearModel
from .linearize import check_state, linearize, state_of
from .states import Rows

GROWTH = 1e-6
"""Growth rate of an equilibrium that counts as 0, relative to its largest eigenvalue: the rounding error of a double
eigenvalue."""


class Equilibrium(eqx.Module):
    """An equilibrium, as ``equilibrium`` returns it; m constraint rows.

    Attributes
    ----------
    t, q, v
        Time [s], coordinates (nq,), and velocities (n,), which are 0. For a control with first-order states v is (0, s)
        of shape (n + k,).
    multipliers
        λ (m,), one for each row: the force of the constraint φ_k = 0 is λ_k ∂φ_k/∂q. It acts towards larger φ_k if λ_k
        is positive. If φ_k is a length [m], λ_k is a force [N]. Where rows are redundant, the equations of statics do
        not determine each multiplier. Then the multipliers of least norm are returned.
    unique
        Whether each multiplier is determined (m,).
    constraint_force
        Generalised force of all constraints Aᵀ λ (n,). It is unique.
    rows
        Names of the rows (m,), those of ``hold`` last.
    system
        The system, with the coordinates in ``hold`` fixed.
    """

    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    unique: Bool[Array, " m"]
    constraint_force: Float[Array, " n"]
    rows: tuple[str, ...] = eqx.field(static=True)
    system: AbstractSystem = eqx.field(repr=False)

    @property
    def linear(self) -> LinearModel:
        """The system linearised at the equilibrium, as by ``linearize``."""
        return linearize(self.system, self.q, self.v, self.t)

    @property
    def stable(self) -> Bool[Array, ""]:
        """Whether no small deviation grows exponentially: all eigenvalues have a real part of at most 1e-6 of the
        largest eigenvalue.

        An undamped equilibrium is stable in this sense, and so is an indifferent one.
        """
        eigenvalues = self.linear.eigenvalues
        return jnp.max(eigenvalues.real, initial=-jnp.inf) <= GROWTH * jnp.max(jnp.abs(eigenvalues), initial=0)


def equilibrium(
    system: AbstractSystem,
    near: Numbers,
    t: Numbers = 0.0,
    *,
    hold: Iterable[str] = (),
    method: str | AbstractMethod = "orthogonal",
) -> Equilibrium:
    """Find an equilibrium near given coordinates, and the forces of its constraints.

        φ(t, q) = 0,      Q(t, q, 0) + c(t, q, 0) + Aᵀ λ = 0

    The search starts at the point on the constraints nearest to ``near``. If there are many equilibria, such as those
    of a body on a plane, the result is the one nearest to this point, as for ``project``. It may be stable or not.

    First-order states s of a control are constant in an equilibrium, ṡ = f(t, q, 0, s) = 0. The search for them starts
    at the initial values of the control.

    Parameters
    ----------
    system
        The system. The forces of its control are included.
    near
        Coordinates from which the search starts, shape (nq,). They may violate the constraints.
    t
        Time [s]. The equilibrium is that of the forces and constraints at this time.
    hold
        Names of coordinates that keep their value: those of ``system.coordinates``, or q1, q2, ... Each is held by a
        force that is not part of the model; its multiplier has the row "... as given".
    method
        Solver for the constraints, by name or as an object.

    Returns
    -------
    Equilibrium
        q, multipliers and constraint force, and whether it is stable. q has exact first and second derivatives by all
        inputs, from the equations of equilibrium, not from the search.

    Raises
    ------
    InputError
        If no equilibrium is found near the start, if a constraint moves, or for an invalid argument. Under ``jit`` the
        result is NaN instead of the first.

    Notes
    -----
    Redundant constraints are allowed. The equations of equilibrium are components of the constrained acceleration at
    rest, by the rows that are independent at the start. They are added to the constraints, and ``project`` finds the
    nearest point where all are 0.
    """
    if not isinstance(system, AbstractSystem):
        raise InputError(f"system must be a ukjax.System, got {kind_of(system)}")
    refuse_contacts("equilibrium", system)
    refuse_sampled("equilibrium", system)
    system, t, q, v = state_of(system, t, near, None, "near")
    system = locked(system, hold, t, q, v, "hold")
    system, q, v, t = canonicalise(system, q, v, t)
    if not count_states(system.kinematic_map):
        return Equilibrium(t, *_equilibrium(system, t, q, v, choose(method)), system)
    rest, moving = StatesAsCoordinates(system, q.size), v.size - count_states(system.kinematic_map)
    start = jnp.concatenate([q, v[moving:]])
    z, _, multipliers, unique, force, rows = _equilibrium(rest, t, start, 0 * v, choose(method))
    q, v = z[: q.size], jnp.concatenate([0 * v[:moving], z[q.size :]])
    return Equilibrium(t, q, v, multipliers, unique, force, rows, system)


def _equilibrium(system, t, q, v, method):
    """Fields of ``Equilibrium`` from q to rows, for a system without states."""
    if any(constraint.level == "position" for constraint in system.enforced):
        q = project(system, t, q, v, method)[0]
    constants: Any = without_derivatives((system, t, q, v))
    if is_eager(constants):
        start = Rows.at(*constants)
        quick = start.fast_path(method) or _active(*constants, method)
        along_start = Balance(system, v, quick, jnp.asarray(start.free(method).T))
        # Where the directions have turned by a right angle, forces along the directions of the start prove nothing.
        combined = _balanced_or_none(system, t, q, v, along_start, method)
        q = _balanced(system, t, q, v, Balance(system, v, quick), method) if combined is None else combined
    else:
        q = _balanced(system, t, q, v, Balance(system, v, _active(system, t, q, v, method)), method)
    constants = without_derivatives((system, t, q, v))
    if is_eager(constants):
        found = Rows.at(*constants)
        check_state(found, *constants)
        method = found.fast_path_of_multipliers(method)
    multipliers, unique, force = _forces(system, t, q, v, method)
    rows = tuple(names_of(structure_of(system), lambda constraint: constraint.rows(t, q, v)[1]))
    return q, v, multipliers, unique, force, rows


def _balanced_or_none(system, t, q, v, balance, method):
    """``_balanced``, or None if no point is found, or the point is not an equilibrium."""
    try:
        q = _balanced(system, t, q, v, balance, method)
    except InputError:
        return None
    rows = Rows.at(*without_derivatives((system, t, q, v)))
    # Without constraints all directions are free, at the start and at q: the balance contains the whole force.
    return q if not len(rows.A) or rows.balanced(method) else None


def _balanced(system, t, q, v, balance, method):
    """The point nearest to q where the constraints are satisfied and ``balance`` is 0."""
    if balance.combine is not None and not len(balance.combine):
        return q  # no direction is free
    named: dict[str, Any] = {"coordinates": system.coordinates, "kinematic_map": system.kinematic_map}
    named |= {} if system.kinematic_map is None else {"velocities": system.velocities}
    constraints = (*system.enforced, Holonomic(balance, name="balance of forces"))
    try:
        return project_state(System(system.dynamics, constraints, **named), t, q, 0 * v, method, is_near=False)[0]
    except InputError as error:
        raise InputError(f"near must be closer to an equilibrium: none is found from there. {error}") from None


class Balance(eqx.Module):
    """The constrained acceleration at rest (n,), by a method with given active rows: 0 in an equilibrium.

    If ``combine`` (d, n) is given, the balance is that of its rows: the components M v̇ of d directions.
    """

    system: AbstractSystem
    rest: Float[Array, " n"]
    method: AbstractMethod
    combine: Float[Array, "d n"] | None = None

    def __call__(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        terms = self.system(t, q, self.rest)
        response = self.method.factorise(*jax.lax.stop_gradient((terms.M, terms.A)))
        acceleration = solve(terms.M, terms.A, _applied(terms), 0 * terms.b, response)
        return acceleration if self.combine is None else self.combine @ (terms.M @ acceleration)


@jit_unoptimised
def _active(system, t, q, v, method):
    """``method`` with the rows that are independent at a state."""
    terms = jax.lax.stop_gradient(system(t, q, v))
    return method.active(terms.M, terms.A)


@jit_unoptimised
def _forces(system, t, q, v, method):
    """The multipliers λ of least norm with Aᵀ λ = −(Q + c), whether each is unique, and Aᵀ λ.

    λ is the "motion" of a system of unit masses with the "constraints" Aᵀ λ = −(Q + c). The factor of its constrained
    inverse mass has a row that is 0 for each multiplier that these determine.
    """
    terms = system(t, q, v)
    m = len(terms.A)
    if not m:
        return jnp.zeros(0, q.dtype), jnp.ones(0, bool), jnp.zeros_like(v)
    masses, rows = jnp.eye(m, dtype=q.dtype), terms.A.T
    response = method.factorise(*jax.lax.stop_gradient((masses, rows)))
    multipliers = solve(masses, rows, jnp.zeros(m, q.dtype), -_applied(terms), response)
    unique = jnp.sum(response.factor() ** 2, axis=1) <= jnp.finfo(q.dtype).eps ** 0.5
    return multipliers, unique, multipliers @ terms.A


def _applied(terms):
    return terms.Q if terms.c is None else terms.Q + terms.c
