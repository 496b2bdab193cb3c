"""Sine and cosine of each angle computed once, for functions that are not written out.

XLA on a CPU makes what needs one array alone anew for whatever uses it, sines as well as sums. What a windowed
reduction gives (see ``kernel``) it keeps.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal
from jaxtyping import Array, Float

from .traced import as_traced

CALLS = "jit", "pjit"
"""What JAX calls a function within another."""

TRIGONOMETRY = {"cos": 0, "sin": 1}


def angles_once(function: Callable) -> Callable:
    """``function`` of pytrees of arrays, with the same values and derivatives, in which nothing is done twice, and of
    each angle both sine and cosine are kept. It belongs inside ``jit``."""
    return as_traced(function, lambda traced, leaves: _evaluated(traced, leaves, _Done()))


class _Done:
    """The results of operations, by what these were done with: by identity, for which all that was met is kept."""

    def __init__(self):
        self.found: dict[Any, list[Any]] = {}
        self.met: list[Any] = []

    def of(self, key: Any, operands: list[Any], function: Callable) -> list[Any]:
        """``function(*operands)``, done if that has not been; of no ``key``, in any case."""
        if key is not None and key in self.found:
            return self.found[key]
        found = list(function(*operands))
        self.met += [operands, found]
        if key is not None:
            self.found[key] = found
        return found


def _evaluated(closed: ClosedJaxpr, arguments: list[Any], done: _Done) -> list[Any]:
    values: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values |= dict(zip(closed.jaxpr.invars, arguments, strict=True))
    read = lambda x: x.val if isinstance(x, Literal) else values[x]
    for equation in closed.jaxpr.eqns:
        operands, primitive = [read(x) for x in equation.invars], equation.primitive
        if primitive.name in CALLS:
            found = _evaluated(equation.params["jaxpr"], operands, done)
        elif primitive.name in TRIGONOMETRY and jnp.issubdtype(operands[0].dtype, jnp.floating):
            pair = done.of(("angle", id(operands[0])), operands, cosine_and_sine)
            found = [pair[TRIGONOMETRY[primitive.name]]]
        else:
            found = done.of(_key(equation, operands), operands, functools.partial(_done, equation))
        values |= dict(zip(equation.outvars, found, strict=True))
    return [read(x) for x in closed.jaxpr.outvars]


def _done(equation, *operands):
    found = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))
    return found if equation.primitive.multiple_results else [found]


def _key(equation, operands):
    """Equal for operations that give the same; None where that cannot be told."""
    if equation.effects:
        return None
    try:
        each = tuple(
            (str(x.aval), repr(x.val)) if isinstance(x, Literal) else id(value)
            for x, value in zip(equation.invars, operands, strict=True)
        )
        key = equation.primitive, each, tuple(sorted(equation.params.items(), key=lambda item: item[0]))
        hash(key)
    except TypeError:
        return None
    return key


@jax.custom_jvp
def cosine_and_sine(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """cos x and sin x, computed and kept."""

    def kept(x):
        x = x[None]  # of a number alone, XLA takes the window away, and all that is done in it
        one, zero = (1,) * x.ndim, jnp.zeros((), x.dtype)
        both = lambda _, new: (lax.cos(new[0]), lax.sin(new[1]))
        c, s = lax.reduce_window((x, x), (zero, zero), both, one, one, "VALID")
        return c[0], s[0]

    return lax.platform_dependent(x, cpu=kept, default=lambda x: (lax.cos(x), lax.sin(x)))


@cosine_and_sine.defjvp
def _(values, changes):
    (x,), (dx,) = values, changes
    c, s = cosine_and_sine(x)
    return (c, s), (-s * dx, c * dx)
