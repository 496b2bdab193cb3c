"""Stack the rows and residuals of several constraints."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._compressed import Seeds
from .._errors import InputError
from .._precision import as_float
from .base import AbstractConstraint, Rows
from .unilateral import AbstractNonsmooth


def rows(
    constraints: Iterable[AbstractConstraint], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> tuple[Float[Array, "m n"], Float[Array, " m"]]:
    """Return A (m, n) and b (m,) of all constraints."""
    constraints = tuple(constraints)
    parts = [constraint.rows(t, q, v) for constraint in constraints]
    if not parts:
        return jnp.zeros((0, v.size), q.dtype), jnp.zeros((0,), q.dtype)
    A, b = zip(*parts, strict=True)
    _check_names(constraints, b)
    return jnp.concatenate(A), jnp.concatenate(b)


def all_at(
    constraints: Iterable[AbstractConstraint],
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    seeds: Seeds | None = None,
) -> Rows:
    """Evaluate all constraints at one state. With ``seeds``, A is replaced by the product of A and the seed matrix."""
    constraints = tuple(constraints)
    parts = [
        constraint.at(t, q, v) if seeds is None else constraint.by_seeds(t, q, v, seeds) for constraint in constraints
    ]
    if not parts:
        zeros = jnp.zeros((0,), q.dtype)
        return Rows(zeros, zeros, jnp.zeros((0, v.size if seeds is None else seeds.colours + 1), q.dtype), zeros)
    _check_names(constraints, [part.b for part in parts])
    return Rows(*map(jnp.concatenate, zip(*parts, strict=True)))


def velocities(
    constraints: Iterable[AbstractConstraint], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> Float[Array, " m"]:
    """Return the velocity residuals φ̇ or ψ of all constraints, in their order."""
    return join([constraint.velocity(t, q, v) for constraint in constraints], q)


def as_written(
    constraints: Iterable[AbstractConstraint],
    t: ScalarLike,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    acceleration: Float[Array, " n"],
) -> Float[Array, " m"]:
    """Return the residual (m,) of each equation as the user wrote it: φ, ψ or A q̈ − b."""
    t = as_float(t)
    return join([constraint.at(t, q, v).as_written(acceleration) for constraint in constraints], q)


def names_of(constraints: Iterable[AbstractConstraint], read: Callable[[AbstractConstraint], Array]) -> list[str]:
    """Return a name per entry of ``read(constraint)``; a name shared by several entries gets an index."""
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
    """Concatenate vectors. An empty sequence gives an empty vector in the precision of q."""
    return jnp.concatenate(parts) if parts else jnp.zeros((0,), q.dtype)


def _check_names(constraints, b):
    for constraint, row in zip(constraints, b, strict=True):
        if isinstance(constraint.name, tuple) and len(constraint.name) != row.size:
            raise InputError(f"name must be one word, or one for each of {row.size} rows, got {constraint.name!r}")


def nonsmooth_names(constraints: Sequence[AbstractNonsmooth], t: Any, q: Any, v: Any) -> list[str]:
    """A name per gap, then one per component of the friction forces: ``floor``, ``floor friction``."""
    gaps, friction = [], []
    slips = [eqx.filter_eval_shape(constraint.slips, t, q, v) for constraint in constraints]
    dim = max((slip.shape[1] for slip in slips if slip.shape[0]), default=1)
    for constraint, slip in zip(constraints, slips, strict=True):
        size = eqx.filter_eval_shape(constraint.gaps, t, q).shape[0]
        gaps += _numbered(constraint.name, size)
        word = " friction" if size else ""
        suffixes = [word] if dim == 1 else [f"{word} {i + 1}" for i in range(dim)]
        groups = _numbered(constraint.name, slip.shape[0]) if slip.shape[0] else []
        friction += [f"{group}{suffix}" for group in groups for suffix in suffixes]
    return gaps + friction


def _numbered(name, size):
    if isinstance(name, tuple):
        if len(name) != size:
            raise InputError(f"name must have one entry per row: {size} rows, got {len(name)} names, {name}")
        return list(name)
    return [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]
