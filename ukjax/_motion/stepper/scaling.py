"""Characteristic scales of a problem.

Tolerances are relative to these scales, so that results do not depend on the user's units.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._compressed import Compressed
from ..._errors import InputError
from ..._jaxpr.dependence import evaluated
from ..._jaxpr.index_check import check_indices
from ..._jaxpr.sizes import sizes, sizes_in
from ..._jaxpr.tracing import is_concrete, is_tracing, without_derivatives
from ..._kernel.if_repeated import jit_if_repeated
from ..._kinematic_map import speeds, turning
from ..._run.compile import standard_promotion
from ..._solve import AbstractMethod, Sparse, coordinate_scale
from ..._system import AbstractSystem, kinematic_map_of, levels_of
from ..._terms import Terms
from .evaluate import Evaluator

MIN_RELATIVE_SCALE = 1e-5
"""Smallest scale of a coordinate relative to the others, in coordinates scaled by mass."""

DEFAULT_RELATIVE_SCALE = 1e-2
"""Relative scale of a coordinate whose value, velocity and acceleration are all 0 at the start. A smaller value would
require digits that are lost to rounding where rows are nearly dependent.
"""

MAX_COORDINATES_PER_BATCH = 1_000_000
"""Coordinates of all members that are processed together: intermediate results take a hundred times as much memory."""

ZERO_WITHIN_EPS = 16
"""A coordinate of at most this many eps, in any unit, counts as 0: it is rounding."""

AT_ORIGIN_SHARE = 1e-10
"""A start no larger than this, relative to the coordinates within reach, is at the origin except for rounding."""

ROUNDINGS = 64
"""Units in the last place of the terms of a constraint, below which a change of it counts as rounding."""

MAX_RESIDUAL = {"float64": 1e-8, "float32": 1e-3}
"""Relative residual, beyond which a constraint is violated."""

MIN_JUMP = {"float64": 1e-6, "float32": 1e-2}
"""Relative corrections of coordinates below this are never jumps."""


UNKNOWN_SPAN = np.asarray(np.inf)
"""Duration of a motion whose end is not known [s]."""


class Scale(eqx.Module):
    """Characteristic scales of a motion.

    Attributes
    ----------
    t
        Time [s].
    q, v
        Coordinates (nq,) and velocities (n,); none is small relative to the others.
    own_q, own_v
        Size of each coordinate and velocity without regard to the others, 1 where the start does not determine it.
    far_q
        Largest value that each coordinate may reach in the whole time, without regard to the others (nq,).
    rows
        Sizes of the terms of each row of ``AbstractSystem.violation`` (k,), from the coordinates in that row alone.
    unit
        Changes of the velocities that have equal effects, by their masses (n,).
    unit_of_q
        The same for coordinates (nq,), None where it equals ``unit``.
    """

    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    own_q: Float[Array, " nq"]
    own_v: Float[Array, " n"]
    far_q: Float[Array, " nq"]
    rows: Float[Array, " k"]
    unit: Float[Array, " n"]
    unit_of_q: Float[Array, " nq"] | None = None

    @property
    def shortest_time(self) -> Float[Array, "*batch"]:
        """The shortest time in which a coordinate may change by its size [s]."""
        if self.unit_of_q is None:
            return jnp.min(self.q / self.v, axis=-1)
        return jnp.min(self.q, axis=-1) / jnp.max(self.v, axis=-1)

    def of(self, function: Callable[..., Any], *at: Array) -> Any:
        """Sizes of the terms of ``function(t, q)`` or ``function(t, q, v)``."""
        return sizes(function, at, (self.t, self.own_q, self.own_v)[: len(at)])

    def of_rows(self, model: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> "Scale":
        """This scale with ``rows`` of the model at (t, q, v)."""
        v = jnp.where(v == 0, self.own_v, v)  # a coordinate at rest may start to move
        (rows,) = sizes_in(jax.make_jaxpr(model.violation)(t, q, v), (t, q, v), (self.t, self.own_q, self.own_v))
        rows = jnp.maximum(rows, jnp.finfo(q.dtype).tiny)
        return eqx.tree_at(lambda scale: scale.rows, self, jax.lax.stop_gradient(rows))

    def relative_violation(self, violation: Float[Array, " k"]) -> Float[Array, ""]:
        """The largest entry of a ``violation``, relative to the size of its terms."""
        return jnp.max(jnp.abs(violation) / self.rows, initial=0)

    def rounding_only(self, residual: Float[Array, " p"]) -> Bool[Array, ""]:
        """Whether a ``residual`` of positions, the first rows, is at most rounding of its terms. False for NaN."""
        limit = ROUNDINGS * jnp.finfo(residual.dtype).eps * self.rows[: residual.size]
        return jnp.all(jnp.abs(residual) <= limit)

    def max_violation(self, q: Float[Array, " nq"]) -> Float[Array, ""]:
        """Largest relative residual allowed at q.

        If q is far larger than the start suggests, more rounding is allowed, up to a limit, so that a diverging motion
        is still detected.
        """
        limit = MAX_RESIDUAL[str(q.dtype)]
        ratio = jnp.max(jnp.abs(q) / self.far_q)
        return jnp.clip(8 * jnp.finfo(q.dtype).eps * ratio, limit, 100 * limit)

    def is_jump(self, moved: Float[Array, " nq"], h: Array, fastest: Float[Array, " nq"]) -> Bool[Array, ""]:
        """Whether the drift correction after a step of h changed q by more than half of the distance travelled.

        ``fastest`` are the largest rates |q̇| of the step, ``moved`` is the correction. Such a correction is not an
        error of the step: the motion cannot follow the constraints. A step of zero length is exempt.
        """
        travelled = jnp.abs(h) * fastest
        return (h != 0) & jnp.any(jnp.abs(moved) > travelled / 2 + MIN_JUMP[str(moved.dtype)] * self.own_q)

    def rounding(self, x: Float[Array, " n"], y: Float[Array, " n"], of_q: bool = False) -> Float[Array, " n"]:
        """Rounding error of each entry of two velocities, or coordinates, from the largest entry of all."""
        unit = self.unit_of_q if of_q and self.unit_of_q is not None else self.unit
        largest = jnp.max(jnp.maximum(jnp.abs(x), jnp.abs(y)) / unit)
        return 16 * jnp.finfo(x.dtype).eps * largest * unit


def scale_of(
    model: Any,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    span: Array | np.ndarray = UNKNOWN_SPAN,
    driven: bool = True,
    method: AbstractMethod | None = None,
) -> Scale:
    """Characteristic scales of a motion, from its start.

    ``span`` is the duration [s], infinite if it is not known; ``method`` is the solver; ``driven`` includes
    accelerations that constraints prescribe.

    Scaled by their masses (√M q), all coordinates are alike. Where the state is x = |q|, y = |v|, and forces give it a
    = |Q|, the motion has the time scale τ = √(x/a) + y/a, at most its duration. Within it a coordinate reaches |q| +
    |v| τ + |Q/M| τ² and its velocity |q| / τ + |v| + |Q/M| τ. A start at rest in the origin gives no scale: then scales
    are 1, or less if only smaller coordinates are within reach, also by accelerations that constraints prescribe
    (``driven``).

    Raises ``InputError`` if the model does not return Terms with as many coordinates as q has.
    """
    M, Q, rows = _terms(model, t, q, v, driven, method)
    q = jnp.where(_at_origin(model, t, q, v), 0, q) if driven else q
    if Q.shape != v.shape:
        named = ("coordinates", "q0") if kinematic_map_of(model) is None else ("velocities", "v0")
        raise InputError(f"the model has {Q.size} {named[0]}, but {named[1]} has shape {v.shape}")
    unit = coordinate_scale(M)
    to_q = lambda v: speeds(kinematic_map_of(model), q, v)
    mapped = kinematic_map_of(model) is not None
    unit_of_q = _units_of_q(kinematic_map_of(model), q, unit) if mapped else unit
    acceleration = jnp.abs(Q) * unit**2
    x, y, a = (
        jnp.max(jnp.abs(value) / unit_of_value)
        for value, unit_of_value in ((q, unit_of_q), (v, unit), (acceleration, unit))
    )
    if rows is not None and rows[1].size:
        a = jnp.where((a > 0) | (x > 0) | (y > 0), a, _prescribed_acceleration(*rows, unit))
    time = jnp.sqrt(_over(x, a)) + _over(y, a)
    span = jnp.asarray(span, q.dtype)
    time = jnp.where(jnp.isfinite(time) | jnp.isfinite(span), time, _over(x, y))
    time = jnp.minimum(time, span)
    time = jnp.where(jnp.isfinite(time) & (time > 0), time, 1)
    reach, speed = x + y * time + a * time**2, x / time + y + a * time
    own_q, own_v = jnp.abs(q) + to_q(v) * time + to_q(acceleration) * time**2, jnp.abs(v) + acceleration * time
    own_v = own_v if mapped else jnp.abs(q) / time + own_v
    scale_q, scale_v = _at_least(own_q, reach * unit_of_q), _at_least(own_v, speed * unit)

    duration_or_0 = jnp.where(jnp.isfinite(span), span, 0)
    reach, speed = y * duration_or_0 + a * duration_or_0**2, y + a * duration_or_0
    at_origin = (x <= AT_ORIGIN_SHARE * reach) & (y <= AT_ORIGIN_SHARE * speed)
    at_most_one = lambda within: jnp.where(within > 0, jnp.minimum(within, 1), 1)
    scale_q, scale_v = (
        jnp.where(at_origin, at_most_one(reach * unit_of_q), scale_q),
        jnp.where(at_origin, at_most_one(speed * unit), scale_v),
    )
    reach_in_span = jnp.abs(q) + to_q(v) * duration_or_0 + to_q(acceleration) * duration_or_0**2
    own_q = jnp.where(at_origin, jnp.minimum(to_q(acceleration) * duration_or_0**2, 1), own_q)
    own_v = jnp.where(at_origin, jnp.minimum(acceleration * duration_or_0, 1), own_v)
    own_q, own_v = (jnp.where(size > ZERO_WITHIN_EPS * jnp.finfo(q.dtype).eps, size, 1) for size in (own_q, own_v))
    far_q, duration = jnp.maximum(own_q, reach_in_span), jnp.where(jnp.isfinite(span), span, time)
    no_rows = jnp.zeros((0,), q.dtype)
    scale = Scale(duration, scale_q, scale_v, own_q, own_v, far_q, no_rows, unit, unit_of_q if mapped else None)
    scale = jax.lax.stop_gradient(scale)
    if not isinstance(model, AbstractSystem) or not model.enforced:
        return scale
    return scale.of_rows(model, t, q, v)


def scales(
    model: Any,
    t: Array | np.ndarray,
    q: Float[Array, "*batch nq"],
    v: Float[Array, "*batch n"],
    span: Array | np.ndarray = UNKNOWN_SPAN,
    method: AbstractMethod | None = None,
) -> Scale:
    """``scale_of`` for one motion, or for each member of a batch, with shared or separate times and spans.

    Raises ``InputError`` as ``scale_of`` does, and if the model reads beyond the end of an array.
    """
    model, t, q, v, span = without_derivatives((model, t, q, v, span))
    if not is_concrete(model, t, q, v, span) or is_tracing():
        compute = _scales_of if is_tracing() else _scales  # mapped: else each operation would be compiled alone
        return compute(model, t, q, v, span, True, method)
    # The derivatives of constraints are compiled only for starts at rest at the origin.
    at_rest = np.all(np.abs(np.asarray(q)) < _tiny(q.dtype), axis=-1) & ~np.any(np.asarray(v), axis=-1)
    of_accelerations = isinstance(model, AbstractSystem) and "acceleration" in levels_of(model)
    # One trace serves ``project`` and ``simulate``, though only ``simulate`` has a span and a method.
    span, method = span.astype(q.dtype), method if isinstance(method, Sparse) else None
    return _scales(model, t, q, v, span, of_accelerations or bool(np.any(at_rest)), method)


@standard_promotion()
def _scales_of(model, t, q, v, span, driven, method):
    if np.ndim(span) == 0:
        args, scale_of_one = (t, q, v), lambda t, q, v: scale_of(model, t, q, v, span, driven, method)
    else:
        args, scale_of_one = (t, q, v, span), lambda t, q, v, span: scale_of(model, t, q, v, span, driven, method)
    if q.ndim == 2:
        args, scale_of_one = (
            (jnp.broadcast_to(t, len(q)), *args[1:]),
            _in_chunks(scale_of_one, max(1, MAX_COORDINATES_PER_BATCH // q.shape[1])),
        )
    program, shapes = jax.make_jaxpr(scale_of_one, return_shape=True)(*args)
    check_indices(program)
    return jax.tree.map(_half_precision, evaluated(program, jax.tree.structure(shapes), *args))


def _half_precision(x):
    """Round to half of the bits of the mantissa (T. J. Dekker, Numer. Math. 18 (1971) 224, eq. 5.6).

    Steps depend on the scales. Rounding errors, which depend on how the model is evaluated, must not change the steps.
    """
    product = x * (2.0 ** (jnp.finfo(x.dtype).nmant // 2 + 1) + 1)
    rounded = product - (product - x)
    return jnp.where(jnp.isfinite(rounded), rounded, x)


_scales = jit_if_repeated(_scales_of, evaluations=4)  # ``project`` and ``simulate`` share it


def _in_chunks(function, max_members):
    """``function`` mapped over a batch, at most ``max_members`` at a time."""

    def mapped(*args):
        if len(args[1]) <= max_members:
            return jax.vmap(function)(*args)
        return jax.lax.map(lambda args: function(*args), args, batch_size=max_members)

    return mapped


def _terms(model, t, q, v, driven, method):
    """M, Q and, if ``driven``, (A, b), else None."""
    if isinstance(model, AbstractSystem):
        evaluator = Evaluator.at(model, method)
        rows = evaluator.rows(t, q, v) if driven else None
        return *evaluator.masses(t, q, v), None if rows is None else (rows.A, rows.b)
    terms = model(t, q, v)
    if not isinstance(terms, Terms):
        raise InputError(f"model must return ukjax.Terms(M, Q, A, b), got {type(terms).__name__}")
    return terms.M, terms.Q, (terms.A, terms.b)


def _at_origin(model, t, q, v):
    """Which coordinates are 0 except for rounding, as in a start found by Newton's method.

    They are tiny, and change some constraint by no more than the rounding of its terms.
    """
    if not isinstance(model, AbstractSystem) or all(constraint.level != "position" for constraint in model.enforced):
        return jnp.zeros(q.shape, bool)
    of_rows = sizes(model.position_residual, (t, q), (jnp.abs(t), jnp.abs(q)))
    slope = jax.jacfwd(model.position_residual, argnums=1)(t, q)
    changes = jnp.abs(slope * q) / jnp.maximum(of_rows, jnp.finfo(q.dtype).tiny)[:, None]
    rounding = (changes > 0) & (changes <= ROUNDINGS * jnp.finfo(q.dtype).eps)
    return (jnp.abs(q) < _tiny(q.dtype)) & jnp.any(rounding, axis=0)


def _tiny(dtype):
    """Largest value of a coordinate that may be meant as 0."""
    return float(np.finfo(dtype).eps) ** 0.75


def _prescribed_acceleration(A, b, unit):
    """The acceleration that the rows A q̈ = b alone prescribe."""
    entries = A.scaled(jnp.ones_like(b), unit).entries if isinstance(A, Compressed) else A * unit
    return jnp.max(_over(jnp.abs(b), jnp.sqrt(jnp.sum(entries**2, axis=1)), 0), initial=0)


def _at_least(size, largest):
    return jnp.where(
        size > AT_ORIGIN_SHARE * largest,
        jnp.maximum(size, MIN_RELATIVE_SCALE * largest),
        DEFAULT_RELATIVE_SCALE * largest,
    )


def _units_of_q(kinematic_map, q, unit):
    """Changes of the coordinates that have equal effects.

    At the start, some coordinates hardly depend on any velocity, such as an entry of a quaternion near 1. They change
    later, when N(q) has changed by its own size.
    """
    now, (rate, change) = speeds(kinematic_map, q, unit), turning(kinematic_map, q, unit)
    delay = _over(jnp.max(jnp.abs(rate)), jnp.max(jnp.abs(change)), 0)
    return _positive(jnp.maximum(now, delay * jnp.abs(change)))


def _positive(unit):
    """``unit`` with zeros replaced by its smallest positive entry."""
    smallest = jnp.min(jnp.where(unit > 0, unit, jnp.inf))
    return jnp.where(unit > 0, unit, jnp.where(jnp.isfinite(smallest), smallest, 1))


def _over(p, q, otherwise=jnp.inf):
    """p / q, or ``otherwise`` where q is 0."""
    return jnp.where(q > 0, p / jnp.where(q > 0, q, 1), otherwise)
