"""Check for constant indices beyond the end of an array, which JAX clamps silently to the nearest entry.

In a jaxpr, a constant index within the array is a static slice; one beyond it remains a ``dynamic_slice`` with a
constant start. The check looks for these: they come from counting coordinates from 1.
"""

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .._errors import InputError
from .location import location_of
from .nested import jaxprs_in

PLAIN = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *cases: cases[int(which)],
    "convert_element_type": lambda x: x,
    "squeeze": np.squeeze,
}
"""Operations that JAX applies to an index before using it."""


def check_indices(program: ClosedJaxpr | Jaxpr) -> None:
    """Raise ``InputError``, with the source line, if a constant index is beyond the end of its array."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    values: dict[Any, Any] = {}
    for equation in jaxpr.eqns:
        operands = [x.val if isinstance(x, Literal) else values.get(x) for x in equation.invars]
        name = equation.primitive.name
        if name == "dynamic_slice":
            _check_slice(equation, operands[1:])
        elif name in PLAIN and all(x is not None for x in operands):
            values[equation.outvars[0]] = PLAIN[name](*operands)
        for inner in jaxprs_in(equation):
            check_indices(inner)


def _check_slice(equation, starts):
    shape = equation.invars[0].aval.shape
    for axis, (start, size) in enumerate(zip(starts, equation.params["slice_sizes"], strict=True)):
        if start is not None and not 0 <= int(start) <= shape[axis] - size:
            place = location_of(equation)
            where = f" in {place.function}, {place.file}:{place.line}" if place is not None else ""
            raise InputError(
                f"an index is outside of an array of shape {shape}{where}: indices begin at 0, and the last is "
                f"{shape[axis] - 1}"
            )
