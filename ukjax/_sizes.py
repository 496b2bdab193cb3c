"""How large the terms are of which a number was computed: what its rounding, and a tolerance, have to be measured by.

0.1 + 0.2 − 0.3 is 6e-17, which says nothing; that it was made of terms of size 0.6 says that it is 0. So a function is
followed operation by operation, as in a running error analysis (N. Higham, Accuracy and Stability of Numerical
Algorithms, 3.3), with the size of each number beside it: sizes add where numbers add, and pass through everything else
in proportion to its derivative.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array


def sizes(function: Callable[..., Any], arguments: Sequence[Array], of: Sequence[Array]) -> Any:
    """The sizes of all that ``function(*arguments)`` returns, for arguments of the sizes ``of``, like-shaped: those of
    the terms that were added up to it, and at least its own.

    What cannot be followed (a loop of unknown length, a solver) has its own size.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return jax.tree.unflatten(jax.tree.structure(shape), sizes_in(closed, arguments, of))


def sizes_in(program: ClosedJaxpr, arguments: Sequence[Array], of: Sequence[Array]) -> list[Array]:
    """The same, of what has been traced."""
    given = [(x, jnp.broadcast_to(size, x.shape)) for x, size in zip(arguments, of, strict=True)]
    return [_size(x) for x in _followed(program.jaxpr, program.consts, given)]


Sized = tuple[Any, Any]
"""Numbers and their sizes; None for those of the numbers themselves."""


def _size(x: Sized) -> Array:
    value, size = x
    return jnp.abs(value) if size is None else jnp.maximum(size, jnp.abs(value))


def _followed(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Sized]) -> list[Sized]:
    known: dict[Any, Sized] = dict(zip(jaxpr.constvars, ((x, None) for x in consts), strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))
    read = lambda x: (x.val, None) if isinstance(x, Literal) else known[x]
    for equation in jaxpr.eqns:
        operands = [read(x) for x in equation.invars]
        known.update(zip(equation.outvars, _applied(equation, operands), strict=True))
    return [read(x) for x in jaxpr.outvars]


def _applied(equation: Any, operands: list[Sized]) -> list[Sized]:
    """The results of one operation."""
    name, parameters = equation.primitive.name, equation.params
    if name == "scan":
        return _of_scan(parameters, operands)
    if name == "cond":
        return _of_choice(parameters, operands)
    inner = next((parameters[key] for key in ("jaxpr", "call_jaxpr") if key in parameters), None)
    if name in INLINE and inner is not None:
        return _followed(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)
    several = equation.primitive.multiple_results
    bind = lambda *values: equation.primitive.bind(*values, **parameters)
    results = bind(*(value for value, _ in operands))
    if all(size is None for _, size in operands) and name in EXACT:
        sized = None
    elif name in LINEAR:  # of some operands: the others are indices and conditions
        sized = bind(*(_size(x) if _real(x[0]) else x[0] for x in operands))
    elif several or not _real(results):
        sized = None
    else:
        sized = _of_operation(name, bind, results, operands)
    if not several:
        return [(results, sized)]
    return [(x, None if sized is None else size) for x, size in zip(results, sized or results, strict=True)]


def _of_operation(name, bind, result, operands):
    if name in SUMS:
        return _size(operands[0]) + _size(operands[1])
    if name in PRODUCTS:
        a, b = operands
        return jnp.maximum(bind(_size(a), jnp.abs(b[0])), bind(jnp.abs(a[0]), _size(b)))
    if name not in ELEMENTWISE:
        return None
    values, size = [value for value, _ in operands], jnp.abs(result)
    for i, (value, of) in enumerate(operands):
        if of is not None:
            along = lambda x, i=i: bind(*values[:i], x, *values[i + 1 :])
            _, change = jax.jvp(along, (value,), (of,))
            size = jnp.maximum(size, jnp.where(jnp.isfinite(change), jnp.abs(change), 0))
    return size


def _of_scan(parameters, operands):
    """What is carried has a size that is carried."""
    inner = parameters["jaxpr"]
    if "ft_in" in parameters:  # jax 0.12
        constants, carried, _ = map(len, parameters["ft_in"].unpack())
    else:
        constants, carried = parameters["num_consts"], parameters["num_carry"]
    given = _spelled_out(operands)

    def body(carry, each):
        found = _spelled_out(_followed(inner.jaxpr, inner.consts, [*given[:constants], *carry, *each]))
        return found[:carried], found[carried:]

    start, over = given[constants : constants + carried], given[constants + carried :]
    last, stacked = jax.lax.scan(body, start, over, length=parameters["length"], reverse=parameters["reverse"])
    return [*last, *stacked]


def _of_choice(parameters, operands):
    (index, _), *given = operands
    case = lambda branch: lambda given: _spelled_out(_followed(branch.jaxpr, branch.consts, given))
    return jax.lax.switch(index, [case(branch) for branch in parameters["branches"]], _spelled_out(given))


def _spelled_out(operands):
    """Every real number with its size."""
    return [(x[0], _size(x) if _real(x[0]) else None) for x in operands]


def _real(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


SUMS = {"add", "sub", "add_any"}
PRODUCTS = {"mul", "dot_general"}

INLINE = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "checkpoint",
    "per_member",
}

EXACT = {"convert_element_type", "neg", "copy", "abs", "stop_gradient"}
"""Operations whose result is as large as their operand."""

LINEAR = {
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "copy_p",
    "cumsum",
    "dynamic_slice",
    "dynamic_update_slice",
    "expand_dims",
    "gather",
    "pad",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "reshape",
    "rev",
    "scatter",
    "scatter-add",
    "select_n",
    "slice",
    "split",
    "squeeze",
    "stack",
    "tile",
    "transpose",
    "unstack",
}
"""Operations that move, choose and add up numbers: so they do sizes."""

ELEMENTWISE = {
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "clamp", "cos", "cosh", "div", "erf",
    "exp", "exp2", "expm1", "integer_pow", "log", "log1p", "logistic", "max", "min", "neg", "pow", "rem", "rsqrt",
    "sin", "sinh", "sqrt", "square", "tan", "tanh",
}  # fmt: skip
