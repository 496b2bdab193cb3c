"""Sizes of the terms of computed numbers: the scale for rounding errors and tolerances.

0.1 + 0.2 − 0.3 gives 6e-17. It is zero up to rounding, because its terms have the size 0.6. The jaxpr of a function is
evaluated with a size for each number, as in a running error analysis (N. Higham, Accuracy and Stability of Numerical
Algorithms, 3.3): sums add the sizes of their operands, other operations multiply them by the absolute derivative.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array


def sizes(function: Callable[..., Any], arguments: Sequence[Array], of: Sequence[Array]) -> Any:
    """Return the sizes of the terms of ``function(*arguments)``, for arguments with the sizes ``of`` (same shapes).

    A size is at least the absolute value. The result of an operation without a rule (a ``while_loop``, a solver) has
    its absolute value as its size.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return jax.tree.unflatten(jax.tree.structure(shape), sizes_in(closed, arguments, of))


def sizes_in(program: ClosedJaxpr, arguments: Sequence[Array], of: Sequence[Array]) -> list[Array]:
    """``sizes`` for a traced function."""
    operands = [
        (x, lax.max(jnp.broadcast_to(size, x.shape), lax.abs(x))) for x, size in zip(arguments, of, strict=True)
    ]
    return [jnp.asarray(_size(x)) for x in _evaluate(program.jaxpr, program.consts, operands)]


Sized = tuple[Any, Any]
"""A value and its size, which is at least the absolute value; None for the absolute value."""


def _size(x: Sized) -> Any:
    value, size = x
    return _absolute(value) if size is None else size


def _absolute(value):
    return lax.abs(value) if isinstance(value, jax.Array) else np.abs(value)


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Sized]) -> list[Sized]:
    environment: dict[Any, Sized] = dict(zip(jaxpr.constvars, ((x, None) for x in consts), strict=True))
    environment.update(zip(jaxpr.invars, arguments, strict=True))
    read = lambda x: (x.val, None) if isinstance(x, Literal) else environment[x]
    for equation in jaxpr.eqns:
        operands = [read(x) for x in equation.invars]
        environment.update(zip(equation.outvars, _apply(equation, operands), strict=True))
    return [read(x) for x in jaxpr.outvars]


def _apply(equation: Any, operands: list[Sized]) -> list[Sized]:
    """Return the results of one operation with their sizes."""
    name, parameters = equation.primitive.name, equation.params
    if name == "scan":
        return _apply_scan(parameters, operands)
    if name == "cond":
        return _apply_cond(parameters, operands)
    inner = next((parameters[key] for key in ("jaxpr", "call_jaxpr") if key in parameters), None)
    if name in INLINE and inner is not None:
        return _evaluate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)
    bind = lambda *values: equation.primitive.bind(*values, **parameters)
    results = bind(*(value for value, _ in operands))
    if not equation.primitive.multiple_results:
        return [(results, _size_of_result(name, bind, results, operands))]
    if name not in LINEAR or all(size is None for _, size in operands):
        return [(x, None) for x in results]
    return list(zip(results, _linear(bind, operands), strict=True))


def _linear(bind, operands):
    """Apply a linear operation to the sizes; operands that are not real are indices and conditions."""
    return bind(*(_size(x) if _is_real(x[0]) else x[0] for x in operands))


def _size_of_result(name, bind, result, operands):
    """The size of the only result of an operation; None for its absolute value."""
    of_values = all(size is None for _, size in operands)
    if not _is_real(result) or (of_values and name not in SUMS):
        return None
    if name in EXACT:
        return operands[0][1]
    if name in ("add", "sub", "add_any"):
        return lax.add_p.bind(*map(_size, operands))
    if name in PRODUCTS:
        a, b = operands
        if a[1] is None or b[1] is None:
            return bind(_size(a), _size(b))
        return lax.max(bind(a[1], _absolute(b[0])), bind(_absolute(a[0]), b[1]))
    if name in LINEAR:
        size = _linear(bind, operands)
        return lax.max(size, lax.abs(result)) if name == "reduce_min" else size
    if name not in ELEMENTWISE:
        return None
    values, size = [value for value, _ in operands], lax.abs(result)
    for i, (value, of) in enumerate(operands):
        if of is not None:
            function = lambda x, i=i: bind(*values[:i], x, *values[i + 1 :])
            _, change = jax.jvp(function, (value,), (of,))
            size = lax.max(size, jnp.where(lax.is_finite(change), lax.abs(change), 0))
    return size


def _apply_scan(parameters, operands):
    """Evaluate a scan whose carry includes the sizes of the carry."""
    inner = parameters["jaxpr"]
    if "ft_in" in parameters:  # jax 0.12
        constants, carried, _ = map(len, parameters["ft_in"].unpack())
    else:
        constants, carried = parameters["num_consts"], parameters["num_carry"]
    sized = _with_sizes(operands)

    def body(carry, element):
        outputs = _with_sizes(_evaluate(inner.jaxpr, inner.consts, [*sized[:constants], *carry, *element]))
        return outputs[:carried], outputs[carried:]

    init, xs = sized[constants : constants + carried], sized[constants + carried :]
    last, stacked = lax.scan(body, init, xs, length=parameters["length"], reverse=parameters["reverse"])
    return [*last, *stacked]


def _apply_cond(parameters, operands):
    (index, _), *arguments = operands
    case = lambda branch: lambda arguments: _with_sizes(_evaluate(branch.jaxpr, branch.consts, arguments))
    return lax.switch(index, [case(branch) for branch in parameters["branches"]], _with_sizes(arguments))


def _with_sizes(operands):
    """Replace the size None of each real value by its absolute value."""
    return [(x[0], _size(x) if _is_real(x[0]) else None) for x in operands]


def _is_real(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


SUMS = {"add", "add_any", "cumsum", "dot_general", "reduce_sum", "scatter-add", "sub"}
"""Operations whose result may be smaller than its terms."""

PRODUCTS = {"dot_general", "mul"}

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

EXACT = {"abs", "copy", "copy_p", "neg"}
"""Operations whose result has the absolute value of the operand."""

LINEAR = {
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
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
"""Linear operations that move, select and add numbers; sizes are transformed in the same way."""

ELEMENTWISE = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "clamp", "cos", "cosh", "div", "erf",
    "exp", "exp2", "expm1", "integer_pow", "log", "log1p", "logistic", "max", "min", "pow", "rem", "rsqrt",
    "sin", "sinh", "sqrt", "square", "tan", "tanh",
}  # fmt: skip
