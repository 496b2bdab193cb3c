"""Everything of a model that determines its motions, evaluated at one state: what a fingerprint compares."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._contact.rows import contacts_at, layout_of, restitutions
from .._kinematic_map import rate
from .._system import AbstractSystem, kinematic_map_of, nonsmooth_of
from .inputs import sampling_of


def determining_values(model: Any, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Any:
    """The terms and q̇, the violation of the constraints, all contacts, and the period and delay of sampled control."""
    values: list[Any] = [model(t, q, v), rate(kinematic_map_of(model), q, v)]
    if isinstance(model, AbstractSystem):
        values.append(model.violation(t, q, v))
    if constraints := nonsmooth_of(model):
        layout = layout_of(constraints, t, q, v)
        values.append(contacts_at(constraints, kinematic_map_of(model), layout, t, q, v))
        values.append(restitutions(constraints, t, q))
    if (sampling := sampling_of(model)) is not None:
        values.append(jnp.asarray(sampling))
    return eqx.filter(values, eqx.is_array)
