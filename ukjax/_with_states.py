"""Systems whose control has first-order states: the states are further entries of the velocities."""

import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from ._check import as_array, kind_of
from ._constraint import AbstractConstraint, AbstractNonsmooth, BesideStates, NonsmoothBesideStates
from ._dynamics import AbstractDynamics
from ._errors import InputError
from ._friction import DryFriction
from ._functions import vector_of
from ._kinematic_map import StateMap, rate
from ._precision import Numbers
from ._system import AbstractSystem, AbstractVariant, Limited, dynamics_of, structure_of
from ._terms import Terms

UNNAMED = re.compile(r"(q|v|dq|dv)\d+")
"""Names of coordinates and velocities that have no given names."""


def with_states(system: AbstractSystem) -> AbstractSystem:
    """Return a system with control states as a system whose velocities include the states.

    With the states s, ṡ = f(t, q, v, s, u), the velocities of the result are (v, s), and its equations are

        [M 0; 0 I] (v̇, ṡ) = (Q, f) + (Qᶜ, 0),    q̇ = N(q) v.

    So the states belong to no coordinate, and no constraint acts on them. Functions of ukjax that integrate or analyse
    a motion accept a system with states directly. Use this function to evaluate the equations:
    ``with_states(system)(t, q, v)``.

    Parameters
    ----------
    system
        System whose control has states, such as ``ukjax.control.PID``.

    Returns
    -------
    AbstractSystem
        The system with velocities (n + k,). A system without states, or with states among its velocities, is returned
        unchanged.

    Raises
    ------
    InputError
        If ``system`` is not a system, or a state has the name of a coordinate or velocity.
    """
    if not isinstance(system, AbstractSystem):
        raise InputError(f"system must be a ukjax.System, got {kind_of(system)}")
    control = system.control  # some systems create it on each access
    if control is None or not control.states or isinstance(system.kinematic_map, StateMap):
        return system
    taken = {name for name, _ in (*(system.coordinates or ()), *(system.velocities or ()))}
    taken |= {f"d{name}" for name, _ in system.coordinates or ()}
    for name, _ in control.states:
        if name in taken or system.coordinates is None and UNNAMED.fullmatch(name):
            raise InputError(
                f"control has a state {name!r}, which is the name of a coordinate or velocity of the system: give the "
                "state another name, by states=[(name, unit), ...] of DynamicFeedback, or by inputs of other controls"
            )
    return WithStates(system)


def equations_of(model: Any) -> Any:
    """Return a system ``with_states``, and any other model unchanged."""
    return with_states(model) if isinstance(model, AbstractSystem) else model


def plant_of(model: Any) -> Any:
    """Return the model of the user: the system without states among its velocities."""
    return model.plant if isinstance(model, WithStates) else model


def without_states(terms: Terms, n: int) -> Terms:
    """Return the terms of the first n velocities; the others are states."""
    c = None if terms.c is None else terms.c[:n]
    return Terms(terms.M[:n, :n], terms.Q[:n], terms.A[:, :n], terms.b, c)


def with_initial_states(model: Any, q0: Numbers, v0: Numbers, name: str = "v0") -> tuple[Any, Any]:
    """Return the model with states in its velocities, and v0 with their initial values, unless v0 has them. Error
    messages use ``name`` for v0.
    """
    model = equations_of(model)
    if not isinstance(model, WithStates):
        return model, v0
    v = as_array(name, v0)
    if _has_states(model, as_array("q0", q0), v, name):
        return model, v0
    control = model.plant.control
    assert control is not None and control.initial is not None
    initial = control.initial
    initial = jnp.broadcast_to(initial.astype(jnp.result_type(v, initial)), (*v.shape[:-1], initial.size))
    return model, jnp.concatenate([v.astype(initial.dtype), initial], axis=-1)


def with_given_states(model: Any, q0: Numbers, v0: Numbers) -> Any:
    """Return the model with states in its velocities if v0 has them, else the model itself."""
    extended = equations_of(model)
    if not isinstance(extended, WithStates) or extended is model:
        return model
    return extended if _has_states(extended, as_array("q0", q0), as_array("v0", v0)) else model


def _has_states(model, q, v, name="v0"):
    """Whether v (..., n) or (..., n + k) has the states. Raises ``InputError`` for another number of entries."""
    plant, k = model.plant, model.count
    n = q.shape[-1] if plant.kinematic_map is None else None if plant.velocities is None else len(plant.velocities)
    if n is None and v.ndim:
        sizes = [m for m in (v.shape[-1], v.shape[-1] - k) if _moves(plant, q, v, m)]
        n = sizes[0] if len(sizes) == 1 else None
        if n is None:
            raise InputError(
                "velocities of a system with a kinematic_map must have names, which give their number: "
                "System(..., velocities=[(name, unit), ...])"
            )
    if v.ndim == 0 or v.shape[-1] not in (n, n + k):
        names = ", ".join(name for name, _ in model.plant.control.states)
        raise InputError(
            f"{name} must have {n} velocities, or these and the initial values of the states ({names}), "
            f"got shape {v.shape}"
        )
    return v.shape[-1] != n


def _moves(plant, q, v, n):
    """Whether the system has n velocities: its mass matrix is (n, n), and N(q) v has the shape of q."""
    q, v = (jax.ShapeDtypeStruct((size,), jnp.result_type(q, v, float)) for size in (q.shape[-1], n))
    t = jax.ShapeDtypeStruct((), q.dtype)
    try:
        M = eqx.filter_eval_shape(dynamics_of(plant).mass, t, q, v)
        eqx.filter_eval_shape(rate, plant.kinematic_map, q, v)
    except Exception:  # a function of the user may fail in any way for a wrong number of velocities
        return False
    return n > 0 and M.shape == (n, n)


class WithStates(AbstractVariant):
    """The system ``plant`` with the states of its control as further entries of its velocities: see ``with_states``."""

    @property
    def count(self) -> int:
        """Number of states."""
        control = self.plant.control
        assert control is not None
        return len(control.states)

    @property
    def dynamics(self) -> AbstractDynamics:
        return _DynamicsBesideStates(dynamics_of(self.plant), self.count)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(BesideStates(constraint, self.count) for constraint in structure_of(self.plant))

    @property
    def nonsmooth(self) -> tuple[AbstractNonsmooth, ...]:
        return tuple(NonsmoothBesideStates(constraint, self.count) for constraint in self.plant.nonsmooth)

    @property
    def nonideal(self) -> Callable | None:
        return None if self.plant.nonideal is None else _ForceBesideStates(self.plant.nonideal, self.count)

    @property
    def kinematic_map(self) -> StateMap:
        return StateMap(self.plant.kinematic_map, self.count)

    @property
    def velocities(self) -> tuple[tuple[str, str], ...] | None:
        named, control = self.plant.velocities, self.plant.control
        if self.plant.kinematic_map is None and self.plant.coordinates is not None:
            named = tuple((f"d{name}", f"{unit}/s" if unit else "") for name, unit in self.plant.coordinates)
        assert control is not None
        return None if named is None else (*named, *control.states)

    @property
    def dry_friction(self) -> DryFriction | None:
        return self.plant.dry_friction

    @property
    def title(self) -> str:
        """The title of the plant, or the name of its class."""
        return getattr(self.plant, "title", None) or type(self.plant).__name__

    def limited(self, t: Array, q: Float[Array, "*samples nq"]) -> tuple[Limited, ...]:
        return self.plant.limited(t, q)

    def energy(self, t: ScalarLike, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        return self.plant.energy(t, q, v[: v.size - self.count])


class _DynamicsBesideStates(AbstractDynamics):
    """``dynamics`` with unit masses for ``states`` further velocities."""

    dynamics: AbstractDynamics
    states: int = eqx.field(static=True)

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        M, Q = self.dynamics.terms(t, q, self._apart(v))
        return self._padded(M), jnp.pad(Q, (0, self.states))

    def mass(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        return self._padded(self.dynamics.mass(t, q, self._apart(v)))

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        return self.dynamics.energy(t, q, self._apart(v))

    def _apart(self, v):
        return v[: v.size - self.states]

    def _padded(self, M):
        n, k = M.shape[0], self.states
        identity = jnp.diag(jnp.concatenate([jnp.zeros(n, M.dtype), jnp.ones(k, M.dtype)]))
        return jnp.pad(M, ((0, k), (0, k))) + identity


class _ForceBesideStates(eqx.Module):
    """A generalised force ``function(t, q, v)`` of the velocities without the states, zero along these."""

    function: Callable
    states: int = eqx.field(static=True)

    def __call__(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        n = v.size - self.states
        return jnp.pad(vector_of(n, "velocity", "nonideal", self.function, t, q, v[:n]), (0, self.states))
