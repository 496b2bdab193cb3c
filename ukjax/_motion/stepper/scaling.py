"""How large things are in a problem: tolerances are measured by that, never by the user's units."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Bool, Float

from ..._check import is_eager, without_derivatives
from ..._compressed import Compressed
from ..._kinematic_map import speeds, turning
from ..._run.compile import jit_unoptimised, usual_promotion
from ..._sizes import sizes, sizes_in
from ..._solve import AbstractMethod, coordinate_scale
from ..._system import AbstractSystem, kinematic_map_of
from ..._terms import Terms
from .evaluate import Evaluator
from .index_check import check_indices

FAINT = 1e-5
"""No coordinate is taken to be smaller than this beside the others, by its mass."""

UNSAID = 1e-2
"""One of which a start says nothing is taken to be so large beside them: less would ask for digits that rounding does
not leave where rows are nearly dependent."""

AT_ONCE = 1_000_000
"""Coordinates of all members that are looked at together: what is made of them takes a hundred times as much room."""

SILENT = 16
"""A coordinate of so many eps or less, in any unit, is none of which a start says anything: what rounding leaves of 0.
"""

STILL = 1e-10
"""A start no larger than this, beside what is within reach, is at the origin, but for rounding."""

ROUNDINGS = 64
"""Units of the last place of the terms of a constraint, below which what changes it is nothing but rounding."""

KEPT = {"float64": 1e-8, "float32": 1e-3}
"""Residuals, beside the size of their terms, beyond which a constraint is not kept."""

LEAP = {"float64": 1e-6, "float32": 1e-2}
"""A correction of coordinates by less, beside their size, is none that needs to be looked at."""


class Scale(eqx.Module):
    """The sizes of times, ``t`` [s]; of coordinates, ``q`` and ``v`` (n,), of which none is small beside the others;
    of each coordinate and velocity by itself, ``own_q`` and ``own_v``, 1 where the start says nothing of it, and how
    far a coordinate comes by itself in the whole time, ``far_q``; of the
    terms of each row of ``AbstractSystem.violation``, ``rows`` (k,), by what it contains alone, so that
    no other coordinate changes them; and what has the same effect in each velocity, by its mass, ``unit`` (n,), and in
    each coordinate, ``unit_of_q``, None where that is the same."""

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
        """The shortest time in which a coordinate may change by its size."""
        if self.unit_of_q is None:
            return jnp.min(self.q / self.v, axis=-1)
        return jnp.min(self.q, axis=-1) / jnp.max(self.v, axis=-1)

    def of(self, function: Callable[..., Any], *at: Array) -> Any:
        """The sizes of the terms of ``function(t, q)`` or ``function(t, q, v)``."""
        return sizes(function, at, (self.t, self.own_q, self.own_v)[: len(at)])

    def of_rows(self, model: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> "Scale":
        """The same, of the rows that this model has at (t, q, v)."""
        v = jnp.where(v == 0, self.own_v, v)  # what is at rest does not stay so
        (rows,) = sizes_in(jax.make_jaxpr(model.violation)(t, q, v), (t, q, v), (self.t, self.own_q, self.own_v))
        rows = jnp.maximum(rows, jnp.finfo(q.dtype).tiny)
        return eqx.tree_at(lambda scale: scale.rows, self, jax.lax.stop_gradient(rows))

    def missed(self, violation: Float[Array, " k"]) -> Float[Array, ""]:
        """The worst of a ``violation``, beside the terms it is made of."""
        return jnp.max(jnp.abs(violation) / self.rows, initial=0)

    def rounding_only(self, residual: Float[Array, " p"]) -> Bool[Array, ""]:
        """Whether a ``residual`` of positions, the first rows, is no more than rounding of its terms. False for NaN."""
        limit = ROUNDINGS * jnp.finfo(residual.dtype).eps * self.rows[: residual.size]
        return jnp.all(jnp.abs(residual) <= limit)

    def kept(self, q: Float[Array, " nq"]) -> Float[Array, ""]:
        """How much may be missed at q. Far beyond what the start lets expect, rounding is allowed for, up to a limit:
        what runs away is not to excuse itself."""
        kept = KEPT[str(q.dtype)]
        beyond = jnp.max(jnp.abs(q) / self.far_q)
        return jnp.clip(8 * jnp.finfo(q.dtype).eps * beyond, kept, 100 * kept)

    def is_jump(self, moved: Float[Array, " nq"], h: Array, fastest: Float[Array, " nq"]) -> Bool[Array, ""]:
        """Whether q, after a step of h at rates q̇ up to the ``fastest``, was ``moved`` onto its constraints by half as
        much again: that is no error of the step, but constraints which cannot be followed. A step of no length may do
        so."""
        travelled = jnp.abs(h) * fastest
        return (h != 0) & jnp.any(jnp.abs(moved) > travelled / 2 + LEAP[str(moved.dtype)] * self.own_q)

    def rounding(self, x: Float[Array, " n"], y: Float[Array, " n"], of_q: bool = False) -> Float[Array, " n"]:
        """What rounding leaves in each entry of two velocities, or coordinates, by the largest of all."""
        unit = self.unit_of_q if of_q and self.unit_of_q is not None else self.unit
        largest = jnp.max(jnp.maximum(jnp.abs(x), jnp.abs(y)) / unit)
        return 16 * jnp.finfo(x.dtype).eps * largest * unit


def scale_of(
    model: Any,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    span: Array | np.ndarray | None = None,
    driven: bool = True,
    method: AbstractMethod | None = None,
) -> Scale:
    """The sizes that the start of a motion shows, which goes on for the time ``span`` [s], if that is known, and is
    found by this ``method``.

    By their masses all coordinates are alike (√M q). Where the state is x = |q|, y = |v|, and forces give it a = |Q|,
    a motion has the time τ = √(x/a) + y/a, if it lasts so long, and within it a coordinate comes to
    |q| + |v| τ + |Q/M| τ² and its velocity to |q| / τ + |v| + |Q/M| τ. A start at rest in the origin shows nothing:
    then sizes are 1, or less where less is within reach, of what constraints ask for by themselves, too, if that is
    to be looked at (``driven``).

    Raises ``ValueError`` where the model does not give Terms of as many coordinates as q has.
    """
    M, Q, rows = _seen(model, t, q, v, driven, method)
    q = jnp.where(_at_origin(model, t, q, v), 0, q) if driven else q
    if Q.shape != v.shape:
        what = ("coordinates", "q0") if kinematic_map_of(model) is None else ("velocities", "v0")
        raise ValueError(f"the model has {Q.size} {what[0]}, but {what[1]} has shape {v.shape}")
    unit = coordinate_scale(M)
    to_q = lambda v: speeds(kinematic_map_of(model), q, v)
    other = kinematic_map_of(model) is not None
    unit_of_q = _units_of_q(kinematic_map_of(model), q, unit) if other else unit
    acceleration = jnp.abs(Q) * unit**2
    x, y, a = (jnp.max(jnp.abs(each) / by) for each, by in ((q, unit_of_q), (v, unit), (acceleration, unit)))
    if rows is not None and rows[1].size:
        a = jnp.where((a > 0) | (x > 0) | (y > 0), a, _driven(*rows, unit))
    time = jnp.sqrt(_over(x, a)) + _over(y, a)
    if span is None:
        time, span = jnp.where(jnp.isfinite(time), time, _over(x, y)), jnp.asarray(jnp.inf, q.dtype)
    span = jnp.asarray(span, q.dtype)
    time = jnp.minimum(time, span)
    time = jnp.where(jnp.isfinite(time) & (time > 0), time, 1)
    far, fast = x + y * time + a * time**2, x / time + y + a * time
    own_q, own_v = jnp.abs(q) + to_q(v) * time + to_q(acceleration) * time**2, jnp.abs(v) + acceleration * time
    own_v = own_v if other else jnp.abs(q) / time + own_v
    of_q, of_v = _at_least(own_q, far * unit_of_q), _at_least(own_v, fast * unit)

    whole = jnp.where(jnp.isfinite(span), span, 0)
    far, fast = y * whole + a * whole**2, y + a * whole
    still = (x <= STILL * far) & (y <= STILL * fast)
    at_most_one = lambda within: jnp.where(within > 0, jnp.minimum(within, 1), 1)
    of_q, of_v = jnp.where(still, at_most_one(far * unit_of_q), of_q), jnp.where(still, at_most_one(fast * unit), of_v)
    in_whole = jnp.abs(q) + to_q(v) * whole + to_q(acceleration) * whole**2
    own_q = jnp.where(still, jnp.minimum(to_q(acceleration) * whole**2, 1), own_q)
    own_v = jnp.where(still, jnp.minimum(acceleration * whole, 1), own_v)
    own_q, own_v = (jnp.where(own > SILENT * jnp.finfo(q.dtype).eps, own, 1) for own in (own_q, own_v))
    far_q, duration = jnp.maximum(own_q, in_whole), jnp.where(jnp.isfinite(span), span, time)
    none_yet = jnp.zeros((0,), q.dtype)
    scale = Scale(duration, of_q, of_v, own_q, own_v, far_q, none_yet, unit, unit_of_q if other else None)
    scale = jax.lax.stop_gradient(scale)
    if not isinstance(model, AbstractSystem) or not model.held:
        return scale
    return scale.of_rows(model, t, q, v)


def scales(
    model: Any,
    t: Array | np.ndarray,
    q: Float[Array, "*batch nq"],
    v: Float[Array, "*batch n"],
    span: Array | np.ndarray | None = None,
    method: AbstractMethod | None = None,
) -> Scale:
    """``scale_of`` a motion, or of each of a batch, from one time or from one for each, over one ``span`` or each its.

    Raises ``ValueError`` as that does, and where the model takes an entry from beyond the end of an array.
    """
    model, t, q, v, span = without_derivatives((model, t, q, v, span))  # whatever is differentiated
    if not is_eager(model, t, q, v, span):
        return _each(model, t, q, v, span, True, method)
    # Where a start shows anything, nobody waits for the derivatives of constraints.
    at_rest = np.all(np.abs(np.asarray(q)) < _tiny(q.dtype), axis=-1) & ~np.any(np.asarray(v), axis=-1)
    of_accelerations = isinstance(model, AbstractSystem) and any(c.level == "acceleration" for c in model.constraints)
    return _scales(model, t, q, v, span, of_accelerations or bool(np.any(at_rest)), method)


@usual_promotion()
def _each(model, t, q, v, span, driven, method):
    if np.ndim(span) == 0:
        at, one = (t, q, v), lambda t, q, v: scale_of(model, t, q, v, span, driven, method)
    else:
        at, one = (t, q, v, span), lambda t, q, v, span: scale_of(model, t, q, v, span, driven, method)
    if q.ndim == 2:
        at, one = (jnp.broadcast_to(t, len(q)), *at[1:]), _of_each(one, max(1, AT_ONCE // q.shape[1]))
    program, found = jax.make_jaxpr(one, return_shape=True)(*at)
    check_indices(program)
    return jax.tree.unflatten(jax.tree.structure(found), jaxpr_as_fun(program)(*at))


_scales = jit_unoptimised(_each)


def _of_each(one, most):
    """``one`` of each of a batch, no more than so many of them at once."""

    def of_each(*at):
        if len(at[1]) <= most:
            return jax.vmap(one)(*at)
        return jax.lax.map(lambda at: one(*at), at, batch_size=most)

    return of_each


def _seen(model, t, q, v, driven, method):
    """M, Q and, where that is to be looked at, A and b."""
    if isinstance(model, AbstractSystem):
        look = Evaluator.at(model, method)
        rows = look.rows(t, q, v) if driven else None
        return *look.masses(t, q, v), None if rows is None else (rows.A, rows.b)
    terms = model(t, q, v)
    if not isinstance(terms, Terms):
        raise ValueError(f"model must return ukjax.Terms(M, Q, A, b), got {type(terms).__name__}")
    return terms.M, terms.Q, (terms.A, terms.b)


def _at_origin(model, t, q, v):
    """Which coordinates are 0 but for rounding, as in a start that Newton's method has found: those that are tiny, and
    change some constraint by no more than the rounding of its terms."""
    if not isinstance(model, AbstractSystem) or all(constraint.level != "position" for constraint in model.held):
        return jnp.zeros(q.shape, bool)
    of_rows = sizes(model.position_residual, (t, q), (jnp.abs(t), jnp.abs(q)))
    slope = jax.jacfwd(model.position_residual, argnums=1)(t, q)
    changes = jnp.abs(slope * q) / jnp.maximum(of_rows, jnp.finfo(q.dtype).tiny)[:, None]
    rounding = (changes > 0) & (changes <= ROUNDINGS * jnp.finfo(q.dtype).eps)
    return (jnp.abs(q) < _tiny(q.dtype)) & jnp.any(rounding, axis=0)


def _tiny(dtype):
    """What a coordinate might be that is meant to be 0."""
    return float(np.finfo(dtype).eps) ** 0.75


def _driven(A, b, unit):
    """The acceleration that the rows ask for by themselves."""
    entries = A.scaled(jnp.ones_like(b), unit).entries if isinstance(A, Compressed) else A * unit
    return jnp.max(_over(jnp.abs(b), jnp.sqrt(jnp.sum(entries**2, axis=1)), 0), initial=0)


def _at_least(size, largest):
    return jnp.where(size > STILL * largest, jnp.maximum(size, FAINT * largest), UNSAID * largest)


def _units_of_q(kinematic_map, q, unit):
    """What has the same effect in each coordinate. One that is not moved for the moment, or hardly, as that of a
    quaternion which stands near 1, is so after a while, when N(q) has changed by its own size."""
    now, (rate, change) = speeds(kinematic_map, q, unit), turning(kinematic_map, q, unit)
    a_while = _over(jnp.max(jnp.abs(rate)), jnp.max(jnp.abs(change)), 0)
    return _positive(jnp.maximum(now, a_while * jnp.abs(change)))


def _positive(unit):
    """What no velocity changes for the moment, as the least of what one does."""
    least = jnp.min(jnp.where(unit > 0, unit, jnp.inf))
    return jnp.where(unit > 0, unit, jnp.where(jnp.isfinite(least), least, 1))


def _over(p, q, otherwise=jnp.inf):
    """p / q, but where q is 0."""
    return jnp.where(q > 0, p / jnp.where(q > 0, q, 1), otherwise)
