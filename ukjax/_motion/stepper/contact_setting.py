"""The scales of contacts and dry friction in a motion."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._constraint import rows
from ..._contact.complementarity import MAX_UNROLLED
from ..._contact.rows import Response, contacts_at, gaps, layout_of
from ..._contact.transition import Setting
from ..._kernel import per_member, without_kernels
from ..._solve import AbstractMethod
from ..._system import AbstractSystem, kinematic_map_of, nonsmooth_of, task_of
from .drift_correction import MethodPerLevel
from .scaling import ROUNDINGS, Scale


def max_penetration(dtype: Any) -> float:
    """Largest penetration of a start, relative to the size of the terms of the gap, that counts as rounding."""
    return max(1e-6, 100 * float(jnp.finfo(dtype).eps))


def grazing_distance(dtype: Any) -> float:
    """A minimum of a gap that is zero within this share of the size of its terms is grazing: 1e-8 in float64."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def compiled(function: Callable, model: Any, q: Any, v: Any, compile_kernel: Callable = per_member) -> Callable:
    """``function`` of one member as a kernel, or by XLA if the system has many contact rows, whose equations need
    LAPACK. The coordinates are the last axis of q and v."""
    shapes = [jax.ShapeDtypeStruct(x.shape[-1:], x.dtype) for x in (q, v)]
    rows = layout_of(nonsmooth_of(model), jax.ShapeDtypeStruct((), q.dtype), *shapes).rows
    return compile_kernel(function) if rows <= MAX_UNROLLED else without_kernels(function)


def setting_of(
    system: Any,
    method: AbstractMethod | MethodPerLevel,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    scale: Scale,
) -> Setting:
    """The contact rows of a system, with the rounding errors of its gaps and the sizes of their rates."""
    constraints, method = nonsmooth_of(system), method.acceleration if isinstance(method, MethodPerLevel) else method
    layout = layout_of(constraints, t, q, v)
    gap_size = scale.of(lambda t, q: gaps(constraints, t, q), t, q) if layout.gaps else jnp.zeros(0, q.dtype)
    rates = lambda t, q, v: contacts_at(constraints, kinematic_map_of(system), layout, t, q, v).rate
    rate_size = scale.of(rates, t, q, v) if layout.rows else jnp.zeros(0, q.dtype)
    eps = jnp.finfo(q.dtype).eps
    sizes = (
        ROUNDINGS * eps * gap_size,
        rate_size,
        4 * eps * (jnp.abs(t) + scale.t),
        max_penetration(q.dtype) * gap_size,
        grazing_distance(q.dtype) * gap_size,
    )
    return Setting(system, layout, method, *jax.lax.stop_gradient(sizes))


def pushed_off_task(
    system: AbstractSystem,
    response: Response,
    force: Float[Array, " rows"],
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
) -> Bool[Array, ""]:
    """Whether contact forces, or impulses, push the motion off a task onto which it is projected.

    The control does not take them into account. The projection would move the state back, as if other forces acted.
    """
    if system.control is None or not system.control.projected:
        return jnp.asarray(False)
    A, push = rows(task_of(system), t, q, v)[0], force @ response.directions
    return jnp.any(jnp.abs(A @ push) > jnp.finfo(q.dtype).eps ** 0.5 * (jnp.abs(A) @ jnp.abs(push)))
