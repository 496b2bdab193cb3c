"""A system is dynamics and constraints: a callable pytree (t, q, v) -> Terms."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from ._check import check_function
from ._constraint import AbstractConstraint
from ._dynamics import AbstractDynamics
from ._functions import vector
from ._precision import Numbers, as_float
from ._terms import Terms


class AbstractSystem(eqx.Module):
    """Anything with dynamics and constraints. ``System`` is put together from them; a mechanism with parameters of
    its own subclasses this and makes them from its fields, so that each parameter is one leaf.

    ``nonideal(t, q, v)`` is the force c (n,) of ``Terms``, or None. ``coordinates`` names the coordinates and their
    units, ``(("theta", "rad"), ("x", "m"))``, or is None.
    """

    if TYPE_CHECKING:  # a type checker takes an AbstractVar for an argument of __init__, which a property need not be

        @property
        def dynamics(self) -> AbstractDynamics: ...
        @property
        def constraints(self) -> tuple[AbstractConstraint, ...]: ...
        @property
        def nonideal(self) -> Callable | None: ...
        @property
        def coordinates(self) -> tuple[tuple[str, str], ...] | None: ...
    else:
        dynamics: eqx.AbstractVar[AbstractDynamics]
        constraints: eqx.AbstractVar[tuple[AbstractConstraint, ...]]
        nonideal: eqx.AbstractVar[Callable | None]
        coordinates: eqx.AbstractVar[tuple[tuple[str, str], ...] | None]

    def __call__(self, t: Numbers, q: Numbers, v: Numbers) -> Terms:
        """M, Q, A, b (and c) at time t [s], q (n,) and v (n,)."""
        t, q, v = as_float(t), as_float(q), as_float(v)
        M, Q = self.dynamics.terms(t, q, v)
        A, b = _stack([constraint.rows(t, q, v) for constraint in self.constraints], q)
        c = None if self.nonideal is None else vector("nonideal", self.nonideal(t, q, v))
        return Terms(M, Q, A, b, c)

    def position_residual(self, t: ScalarLike, q: Float[Array, " n"]) -> Float[Array, " k"]:
        """φ(t, q) of all holonomic constraints, in their order."""
        t = as_float(t)
        return _join([constraint.position(t, q) for constraint in self.constraints], q)

    def velocity_residual(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """φ̇ of the holonomic and ψ of the other constraints, in their order."""
        t = as_float(t)
        return _join([constraint.velocity(t, q, v) for constraint in self.constraints], q)

    def residual(
        self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"], acceleration: Float[Array, " n"]
    ) -> Float[Array, " m"]:
        """Each constraint as it was written: φ, or ψ, or A q̈ − b. As many entries as A has rows."""
        t = as_float(t)
        return _join([_as_written(c, t, q, v, acceleration) for c in self.constraints], q)

    def energy(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        """T + V [J], or None where the dynamics have none."""
        return self.dynamics.energy(as_float(t), q, v)


class System(AbstractSystem):
    """A system put together: ``System(dynamics, constraints)``.

    ``dynamics`` is a ``Lagrangian`` or ``MassForce``, ``constraints`` one constraint or a sequence of them, in which
    kinds mix freely. Raises ``ValueError`` for anything else.
    """

    dynamics: AbstractDynamics  # pyright: ignore
    constraints: tuple[AbstractConstraint, ...]  # pyright: ignore
    nonideal: Callable | None  # pyright: ignore
    coordinates: tuple[tuple[str, str], ...] | None = eqx.field(static=True)  # pyright: ignore

    def __init__(
        self,
        dynamics: AbstractDynamics,
        constraints: AbstractConstraint | Iterable[AbstractConstraint] = (),
        *,
        nonideal: Callable | None = None,
        coordinates: Iterable[Sequence[str]] | None = None,
    ):
        if not isinstance(dynamics, AbstractDynamics):
            raise ValueError(f"dynamics must be ukjax.Lagrangian or ukjax.MassForce, got {type(dynamics).__name__}")
        constraints = (constraints,) if isinstance(constraints, AbstractConstraint) else tuple(constraints)
        for i, constraint in enumerate(constraints):
            if not isinstance(constraint, AbstractConstraint):
                raise ValueError(
                    f"constraints[{i}] must be ukjax.Holonomic, Nonholonomic, Pfaffian or AccelerationConstraint, "
                    f"got {type(constraint).__name__}"
                )
        if nonideal is not None:
            check_function("nonideal", nonideal, "t, q, v")
        self.dynamics, self.constraints, self.nonideal = dynamics, constraints, nonideal
        self.coordinates = None if coordinates is None else tuple((name, unit) for name, unit in coordinates)


def _as_written(constraint, t, q, v, acceleration):
    position, velocity = constraint.position(t, q), constraint.velocity(t, q, v)
    if position.size:
        return position
    if velocity.size:
        return velocity
    A, b = constraint.rows(t, q, v)
    return A @ acceleration - b


def _stack(rows, q):
    if not rows:
        return jnp.zeros((0, q.size), q.dtype), jnp.zeros((0,), q.dtype)
    A, b = zip(*rows, strict=True)
    return jnp.concatenate(A), jnp.concatenate(b)


def _join(parts, q):
    return jnp.concatenate(parts) if parts else jnp.zeros((0,), q.dtype)
