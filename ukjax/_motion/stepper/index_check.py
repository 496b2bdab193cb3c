"""Indices beyond the end of an array: JAX takes the nearest entry that there is, and says nothing.

An index that is known and within an array is a slice in a program; one beyond is left to be looked up as it runs, with
a constant for its place. Those are what is looked for: whoever counts coordinates from 1 has one.
"""

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..._kernel.unsupported import location_of

PLAIN = {
    "lt": np.less,
    "add": np.add,
    "select_n": lambda which, *cases: cases[int(which)],
    "convert_element_type": lambda x: x,
    "squeeze": np.squeeze,
}
"""What JAX does to an index before it uses it."""


def check_indices(program: ClosedJaxpr | Jaxpr) -> None:
    """No number is taken from beyond the end of an array at a known place, or ``ValueError`` with the line."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    values: dict[Any, Any] = {}
    for equation in jaxpr.eqns:
        operands = [x.val if isinstance(x, Literal) else values.get(x) for x in equation.invars]
        name = equation.primitive.name
        if name == "dynamic_slice":
            _check_slice(equation, operands[1:])
        elif name in PLAIN and all(x is not None for x in operands):
            values[equation.outvars[0]] = PLAIN[name](*operands)
        for part in equation.params.values():
            for inner in part if isinstance(part, tuple | list) else (part,):
                if isinstance(inner, ClosedJaxpr | Jaxpr):
                    check_indices(inner)


def _check_slice(equation, starts):
    shape = equation.invars[0].aval.shape
    for axis, (start, size) in enumerate(zip(starts, equation.params["slice_sizes"], strict=True)):
        if start is not None and not 0 <= int(start) <= shape[axis] - size:
            place = location_of(equation)
            where = f" in {place.function}, {place.file}:{place.line}" if place is not None else ""
            raise ValueError(
                f"an entry outside of an array of shape {shape} is taken{where}: entries are counted from 0, so that "
                f"the last is {shape[axis] - 1}"
            )
