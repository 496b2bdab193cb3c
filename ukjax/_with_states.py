"""Systems whose control has first-order states: the states are further entries of the velocities."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from ._check import as_array, kind_of
from ._constraint import AbstractConstraint, AbstractNonsmooth, BesideStates, NonsmoothBesideStates
from ._dynamics import AbstractDynamics
from ._errors import InputError
from ._friction import DryFriction
from ._functions import vector_of
from ._kinematic_map import StateMap
from ._precision import Numbers
from ._system import AbstractSystem, AbstractVariant, Limited, dynamics_of, structure_of


def with_states(system: AbstractSystem) -> AbstractSystem:
    """Return a system with control states as a system whose velocities include the states.

    With the states s, ṡ = f(t, q, v, s, u), the velocities of the result are (v, s), and its equations are

        [M 0; 0 I] (v̇, ṡ) = (Q, f) + (Qᶜ, 0),    q̇ = N(q) v.

    So the states belong to no coordinate, and no constraint acts on them. ``simulate``, ``initial_state`` and ``step``
    take a system with states as it is; this function is for the others, such as ``linearize``.

    Parameters
    ----------
    system
        System whose control has states, such as ``ukjax.control.PID``.

    Returns
    -------
    AbstractSystem
        The system with velocities (n + k,). A system without states, or that has them in its velocities, is returned
        unchanged.

    Raises
    ------
    InputError
        If ``system`` is not a system.
    """
    if not isinstance(system, AbstractSystem):
        raise InputError(f"system must be a ukjax.System, got {kind_of(system)}")
    if system.control is None or not system.control.states or isinstance(system.kinematic_map, StateMap):
        return system
    return WithStates(system)


def with_initial_states(model: Any, q0: Numbers, v0: Numbers) -> tuple[Any, Numbers]:
    """Return the model with states in its velocities, and v0 with their initial values, unless v0 has them."""
    if not isinstance(model, AbstractSystem):
        return model, v0
    model = with_states(model)
    if not isinstance(model, WithStates):
        return model, v0
    v, nq = as_array("v0", v0), as_array("q0", q0).shape[-1:]
    plant, control = model.plant, model.plant.control
    assert control is not None and control.initial is not None
    initial = control.initial
    n = nq if plant.kinematic_map is None else None if plant.velocities is None else (len(plant.velocities),)
    with_them = None if n is None else (n[0] + initial.size,)
    if v.ndim == 0 or n is not None and v.shape[-1:] not in (n, with_them):
        names = ", ".join(name for name, _ in control.states)
        raise InputError(
            f"v0 must have {n and n[0]} velocities, or these and the initial values of the states ({names}), "
            f"got shape {v.shape}"
        )
    if v.shape[-1:] != n:
        return model, v0
    initial = jnp.broadcast_to(initial.astype(jnp.result_type(v, initial)), (*v.shape[:-1], initial.size))
    return model, jnp.concatenate([v.astype(initial.dtype), initial], axis=-1)


class WithStates(AbstractVariant):
    """The system ``plant`` with the states of its control as further entries of its velocities: see ``with_states``."""

    @property
    def _count(self) -> int:
        control = self.plant.control
        assert control is not None
        return len(control.states)

    @property
    def dynamics(self) -> AbstractDynamics:
        return _DynamicsBesideStates(dynamics_of(self.plant), self._count)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(BesideStates(constraint, self._count) for constraint in structure_of(self.plant))

    @property
    def nonsmooth(self) -> tuple[AbstractNonsmooth, ...]:
        return tuple(NonsmoothBesideStates(constraint, self._count) for constraint in self.plant.nonsmooth)

    @property
    def nonideal(self) -> Callable | None:
        return None if self.plant.nonideal is None else _ForceBesideStates(self.plant.nonideal, self._count)

    @property
    def kinematic_map(self) -> StateMap:
        return StateMap(self.plant.kinematic_map, self._count)

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
        return self.plant.energy(t, q, v[: v.size - self._count])


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
