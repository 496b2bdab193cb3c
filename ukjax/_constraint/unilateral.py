"""Nonsmooth constraints: contacts, whose forces can only push, and dry friction that sticks."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_numbers, check_function, repr_of
from .._errors import InputError
from .._functions import Constant, array, vector
from .._jaxpr.tracing import is_concrete
from .._kinematic_map import KinematicMap, rate
from .._names import name_of_rows
from .._precision import Numbers


class NonsmoothRows(NamedTuple):
    """The gaps and slip velocities of a constraint at one state.

    Attributes
    ----------
    gap, rate
        g and ġ (m,).
    J, bias
        g̈ = J v̇ + bias, (m, n) and (m,).
    slip
        Slip velocities (groups, d), with no rows without friction.
    slip_J, slip_bias
        Their derivative is slip_J v̇ + slip_bias, (groups, d, n) and (groups, d).
    """

    gap: Float[Array, " m"]
    rate: Float[Array, " m"]
    J: Float[Array, "m n"]
    bias: Float[Array, " m"]
    slip: Float[Array, "groups d"]
    slip_J: Float[Array, "groups d n"]
    slip_bias: Float[Array, "groups d"]


class AbstractNonsmooth(eqx.Module):
    """A constraint whose mode determines whether it acts: open or closed, sticking or slipping.

    Subclasses define ``gaps``, ``slips`` or both, and may override ``rows`` where derivatives have a shorter form.
    """

    name: eqx.AbstractVar[str | tuple[str, ...]]

    def gaps(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """Distances g(t, q) (m,), which stay nonnegative; empty for friction alone."""
        return q[:0]

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups d"]:
        """Relative velocity along the surface, one row per friction force; no rows without friction."""
        return jnp.zeros((0, 1), q.dtype)

    def restitutions(self, m: int) -> Float[Array, " m"]:
        """Coefficient of restitution of each of the ``m`` gaps."""
        return jnp.zeros(m)

    def coefficients(self, groups: int) -> Float[Array, " groups"]:
        """Largest friction force, divided by the contact force, for each of the ``groups`` of slip velocities."""
        return jnp.zeros(groups)

    def limits(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int) -> Float[Array, " groups"]:
        """Largest friction force that does not depend on a contact force, for each of the ``groups`` of slip
        velocities [N, or N m for an angle].
        """
        return jnp.zeros(groups, q.dtype)

    @property
    def has_static(self) -> bool:
        """Whether friction that sticks has its own bounds, ``static_coefficients`` and ``static_limits``."""
        return False

    def static_coefficients(self, groups: int) -> Float[Array, " groups"]:
        """Like ``coefficients``, where friction sticks."""
        return self.coefficients(groups)

    def static_limits(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int
    ) -> Float[Array, " groups"]:
        """Like ``limits``, where friction sticks."""
        return self.limits(t, q, v, groups)

    def rows(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], kinematic_map: KinematicMap | None
    ) -> NonsmoothRows:
        """Gaps and slip velocities with their derivatives along the motion."""
        along = jnp.ones_like(t), rate(kinematic_map, q, v)

        def gap_rate(t, q, v):
            return jax.jvp(self.gaps, (t, q), (jnp.ones_like(t), rate(kinematic_map, q, v)))[1]

        parts = []
        for function in (gap_rate, self.slips):
            value, bias = jax.jvp(lambda t, q, function=function: function(t, q, v), (t, q), along)
            parts += value, jax.jacfwd(function, argnums=2)(t, q, v), bias
        return NonsmoothRows(self.gaps(t, q), *parts)


class Unilateral(AbstractNonsmooth):
    """A contact: a gap g(t, q) ≥ 0 with a force λ ≥ 0 that acts only where the gap is closed.

        0 ≤ g ⊥ λ ≥ 0,    M q̈ = Q + Qᶜ + Jᵀ λ,    J = g_q N

    An impact obeys Newton's law, ġ⁺ ≥ −e ġ⁻, for all closed gaps at once. Friction obeys Coulomb's law with the cone
    \\|λ_t\\| ≤ μ λ. Acary & Brogliato, Numerical Methods for Nonsmooth Dynamical Systems (2008), ch. 3.

    Control laws do not take contact forces into account: a ``Servo`` computes the actuator forces of the system without
    contacts. If contact forces push it off its task, the motion ends, with an error; with ``projected=False`` the task
    is approached again, by its gains.

    A floor, a stop, a rope that goes slack, a cam follower that lifts off, backlash and clearance are such constraints.

    Parameters
    ----------
    gap
        Function ``gap(t, q)`` that returns the distance to the contact [m or rad]: (m,), a number, or a list of
        numbers.
    restitution
        Coefficient of restitution e, 0 ≤ e ≤ 1: a number, or (m,) with one entry per gap.
    friction
        Coefficient of friction μ ≥ 0: a number, or (m,). It needs ``slip``.
    static_friction
        Coefficient of friction where it sticks, at least ``friction``: a number, or (m,). Default: ``friction``. A
        contact that sticks is released at \\|λ_t\\| = ``static_friction`` λ. As soon as it slips, ``friction`` applies.
        Impulses obey the cone of ``friction``.
    slip
        Function ``slip(t, q, v)`` that returns the relative velocity along the surface, linear in v: (m,), or (m, 2)
        for contacts in space, where the cone is round.
    name
        Name of the contact in messages and tables: one for all gaps, or one per gap.

    Raises
    ------
    InputError
        If ``gap`` or ``slip`` is not such a function, restitution is not in [0, 1], friction is negative or has no
        ``slip``, or static friction is smaller.
    """

    gap: Callable
    restitution: Array
    friction: Array
    static_friction: Array | None
    slip: Callable | None
    name: str | tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        gap: Callable,
        restitution: Numbers = 0.0,
        friction: Numbers | None = None,
        slip: Callable | None = None,
        *,
        static_friction: Numbers | None = None,
        name: str | Iterable[str] = "contact",
    ):
        check_function("gap", gap, "t, q")
        if slip is not None:
            check_function("slip", slip, "t, q, v")
        if (friction is None) != (slip is None):
            raise InputError(
                "friction and slip belong together: friction is the coefficient, and slip(t, q, v) the relative "
                f"velocity along the surface; got only {'slip' if friction is None else 'friction'}"
            )
        self.gap, self.slip, self.name = gap, slip, name_of_rows(name)
        self.restitution = as_numbers("restitution", restitution, least=0, most=1)
        self.friction = as_numbers("friction", 0.0 if friction is None else friction, least=0, below=float("inf"))
        if static_friction is not None and friction is None:
            raise InputError("static_friction needs friction and slip, got only static_friction")
        self.static_friction = as_static("static_friction", static_friction, "friction", self.friction)

    def gaps(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return vector(f"gap of {self.name!r}", self.gap, t, q)

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups d"]:
        return super().slips(t, q, v) if self.slip is None else _groups(self.name, self.slip, t, q, v)

    def restitutions(self, m: int) -> Float[Array, " m"]:
        return _for_each("restitution", self.restitution, m, "gap")

    def coefficients(self, groups: int) -> Float[Array, " groups"]:
        return _for_each("friction", self.friction, groups, "gap")

    @property
    def has_static(self) -> bool:
        return self.static_friction is not None

    def static_coefficients(self, groups: int) -> Float[Array, " groups"]:
        if self.static_friction is None:
            return self.coefficients(groups)
        return _for_each("static_friction", self.static_friction, groups, "gap")


class Coulomb(AbstractNonsmooth):
    """Dry friction that sticks, with a given largest force: \\|f\\| ≤ ``limit``, opposite to the slip where it slips.

    A sticking row is the constraint slip = 0, and its ideal force is the friction force. The row is released when that
    force exceeds the limit.

    Parameters
    ----------
    slip
        Function ``slip(t, q, v)`` that returns the relative velocity, linear in v: (m,) with one friction force per
        entry, or (m, 2).
    limit
        Largest friction force [N, or N m for an angle] ≥ 0: a number, (m,), or a function ``limit(t, q, v)``.
    static
        Largest friction force where it sticks, at least ``limit``: a number, (m,), or a function ``static(t, q, v)``.
        Default: ``limit``. The friction force is at most ``static`` until the row slips, and ``limit`` as soon as it
        slips.
    name
        Name of the friction in messages and tables: one for all rows, or one per row.

    Raises
    ------
    InputError
        If ``slip`` is not such a function, ``limit`` is negative, or ``static`` is smaller than ``limit``.
    """

    slip: Callable
    limit: Callable
    static: Callable | None
    name: str | tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        slip: Callable,
        limit: Numbers | Callable,
        static: Numbers | Callable | None = None,
        *,
        name: str | Iterable[str] = "friction",
    ):
        check_function("slip", slip, "t, q, v")
        if callable(limit):
            check_function("limit", limit, "t, q, v")
        else:
            limit = Constant(as_numbers("limit", limit, least=0, below=float("inf")))
        if callable(static):
            check_function("static", static, "t, q, v")
        elif static is not None:
            value = limit.value if isinstance(limit, Constant) else 0.0
            static = Constant(static_limit("static", static, "limit", value))
        self.slip, self.limit, self.static, self.name = slip, limit, static, name_of_rows(name)

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups d"]:
        return _groups(self.name, self.slip, t, q, v)

    def limits(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int) -> Float[Array, " groups"]:
        return _for_each("limit", array(f"limit of {self.name!r}", self.limit, t, q, v), groups, "row of slip")

    @property
    def has_static(self) -> bool:
        return self.static is not None

    def static_limits(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int
    ) -> Float[Array, " groups"]:
        if self.static is None:
            return self.limits(t, q, v, groups)
        static = _for_each("static", array(f"static of {self.name!r}", self.static, t, q, v), groups, "row of slip")
        return jnp.maximum(static, self.limits(t, q, v, groups))


def as_static(argument: str, static: Numbers | None, name: str, sliding: Numbers | None) -> Array | None:
    """``static_limit``, or None without a bound of static friction."""
    return None if static is None else static_limit(argument, static, name, 0.0 if sliding is None else sliding)


def static_limit(argument: str, static: Numbers, name: str, sliding: Numbers) -> Array:
    """Convert bounds of friction that sticks. Raises ``InputError`` where they are smaller than the ``sliding`` bounds
    of the argument ``name``."""
    value = as_numbers(argument, static, least=0, below=float("inf"))
    if is_concrete(value, sliding):
        below = np.asarray(sliding)
        if (not value.ndim or below.shape in ((), value.shape)) and np.any(np.asarray(value) < below):
            raise InputError(
                f"{argument} must be at least {name}, got {repr_of(static)} with {name} = {repr_of(sliding)}"
            )
    return value


def _groups(name, slip, t, q, v):
    """The value of ``slip`` with shape (groups, d), d = 1 or 2."""
    value = jnp.atleast_1d(array(f"slip of {name!r}", slip, t, q, v))
    value = value[:, None] if value.ndim == 1 else value
    if value.ndim != 2 or value.shape[1] not in (1, 2):
        raise InputError(f"slip of {name!r} must return shape (m,) or (m, 2), got shape {value.shape}")
    return value


def _for_each(argument, value, count, each):
    if value.shape not in ((), (count,)):
        raise InputError(
            f"{argument} must be a number or have shape ({count},), one entry per {each}, got shape {value.shape}"
        )
    return jnp.broadcast_to(value, (count,))
