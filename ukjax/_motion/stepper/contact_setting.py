"""The scales of contacts and dry friction in a motion."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._contact.rows import contacts_at, gaps, layout_of
from ..._contact.transition import Setting
from ..._solve import AbstractMethod
from .scaling import ROUNDINGS, Scale


def setting_of(
    system: Any, method: AbstractMethod, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], scale: Scale
) -> Setting:
    """The contact rows of a system, with the rounding errors of its gaps and the sizes of their rates."""
    constraints = system.nonsmooth
    layout = layout_of(constraints, t, q, v)
    gap_rounding = ROUNDINGS * jnp.finfo(q.dtype).eps * scale.of(lambda t, q: gaps(constraints, t, q), t, q)
    J = contacts_at(constraints, system.kinematic_map, layout, t, q, v).J
    return Setting(system, layout, method, *jax.lax.stop_gradient((gap_rounding, jnp.abs(J) @ scale.v)))
