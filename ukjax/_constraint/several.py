"""Several constraints at once, their rows and residuals one below the other."""

from collections.abc import Callable, Iterable, Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._compressed import Seeds
from .._precision import as_float
from .base import AbstractConstraint, Rows


def rows(
    constraints: Iterable[AbstractConstraint], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> tuple[Float[Array, "m n"], Float[Array, " m"]]:
    """A (m, n) and b (m,) of all."""
    constraints = tuple(constraints)
    found = [constraint.rows(t, q, v) for constraint in constraints]
    if not found:
        return jnp.zeros((0, v.size), q.dtype), jnp.zeros((0,), q.dtype)
    A, b = zip(*found, strict=True)
    _check_names(constraints, b)
    return jnp.concatenate(A), jnp.concatenate(b)


def all_at(
    constraints: Iterable[AbstractConstraint],
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    seeds: Seeds | None = None,
) -> Rows:
    """All at one state; with ``seeds``, A times these in the place of A."""
    constraints = tuple(constraints)
    found = [
        constraint.at(t, q, v) if seeds is None else constraint.by_seeds(t, q, v, seeds) for constraint in constraints
    ]
    if not found:
        none = jnp.zeros((0,), q.dtype)
        return Rows(none, none, jnp.zeros((0, v.size if seeds is None else seeds.colours + 1), q.dtype), none)
    _check_names(constraints, [each.b for each in found])
    return Rows(*map(jnp.concatenate, zip(*found, strict=True)))


def velocities(
    constraints: Iterable[AbstractConstraint], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> Float[Array, " m"]:
    """φ̇ or ψ of all, in their order."""
    return join([constraint.velocity(t, q, v) for constraint in constraints], q)


def as_written(
    constraints: Iterable[AbstractConstraint],
    t: ScalarLike,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    acceleration: Float[Array, " n"],
) -> Float[Array, " m"]:
    """Each as it was written: φ, or ψ, or A q̈ − b. As many entries as A has rows."""
    t = as_float(t)
    return join([constraint.at(t, q, v).as_written(acceleration) for constraint in constraints], q)


def names_of(constraints: Iterable[AbstractConstraint], read: Callable[[AbstractConstraint], Array]) -> list[str]:
    """A name for each entry of what ``read`` gives of the constraints, with an index where one name is for several."""
    result = []
    for constraint in constraints:
        size = eqx.filter_eval_shape(read, constraint).shape[0]
        name = constraint.name
        if isinstance(name, tuple):
            result += name if size else ()
        else:
            result += [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]
    return result


def join(parts: Sequence[Array], q: Float[Array, " nq"]) -> Float[Array, " m"]:
    """One vector of several; empty, in q's precision, of none."""
    return jnp.concatenate(parts) if parts else jnp.zeros((0,), q.dtype)


def _check_names(constraints, b):
    for constraint, row in zip(constraints, b, strict=True):
        if isinstance(constraint.name, tuple) and len(constraint.name) != row.size:
            raise ValueError(f"name must be one word, or one for each of {row.size} rows, got {constraint.name!r}")
