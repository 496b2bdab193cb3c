"""sin, cos, exp and log where the arithmetic of the kernels is not valid: large arguments, and results near overflow.

On a CPU the C library computes these; a GPU has none. Each is a function of one float64 number, called in a branch that
is rarely taken. Numbers of float32 are converted.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np

from ..graph.sincos import TABLES
from ..llvm.instructions import Instructions, constant
from ..llvm.vector_math import Arithmetic, exponential, logarithm

FLOAT64 = np.dtype(np.float64)

LARGEST_ANGLE = 2.0**50
"""Sine and cosine of larger angles are NaN: neighbouring numbers of float64 are more than 0.1 rad apart there."""


def _half_pi_in_parts():
    """π/2 as a sum of three numbers of float64."""
    with localcontext() as context:
        context.prec = 70
        rest = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781641") / 2
        parts = []
        for _ in range(3):
            parts.append(float(rest))
            rest -= Decimal(parts[-1])
    return tuple(parts)


HALF_PI = _half_pi_in_parts()


def _sine(ops, x, quarters):
    """Return sin(x + quarters π/2). With π/2 in three parts, and each step rounded once, the reduction is accurate."""
    k = ops.elementwise("rint", ops.mul(x, 2 / np.pi))
    minus_k, r = ops.neg(k), x
    for part in HALF_PI:
        r = ops.elementwise("fma", minus_k, part, r)
    table = TABLES[FLOAT64]
    z = ops.mul(r, r)
    sine = ops.multiply_add(ops.mul(r, z), ops.polynomial(z, table.sine[::-1]), r)
    half = ops.mul(z, 0.5)
    cosine = ops.add(ops.sub(1.0, half), ops.mul(ops.mul(z, z), ops.polynomial(z, table.cosine[::-1])))
    k = ops.add(k, float(quarters))
    halves = ops.elementwise("floor", ops.mul(k, 0.5))
    is_odd = ops.compare("une", k, ops.mul(halves, 2.0))
    is_flipped = ops.compare("une", halves, ops.mul(ops.elementwise("floor", ops.mul(halves, 0.5)), 2.0))
    value = ops.choose(is_odd, cosine, sine)
    value = ops.choose(is_flipped, ops.neg(value), value)
    return ops.choose(ops.compare("ole", ops.elementwise("fabs", x), LARGEST_ANGLE), value, float("nan"))


def _exponential(ops, x):
    """Return exp x as the square of exp x/2, so that it overflows and underflows where it should."""
    half = ops.mul(x, 0.5)
    half = ops.choose(ops.compare("olt", half, 700.0), half, 700.0)
    half = ops.choose(ops.compare("ogt", half, -700.0), half, -700.0)
    root = exponential(ops, half)
    return ops.choose(ops.compare("uno", x, x), x, ops.mul(root, root))


def _logarithm(ops, x):
    """Return log x for x that is subnormal, zero, negative, infinite or NaN."""
    value = ops.sub(logarithm(ops, ops.mul(x, 2.0**54)), 54 * float(np.log(2)))
    value = ops.choose(ops.compare("oeq", x, 0.0), float("-inf"), value)
    value = ops.choose(ops.compare("olt", x, 0.0), float("nan"), value)
    return ops.choose(ops.compare("ult", x, float("inf")), ops.choose(ops.compare("uno", x, x), x, value), x)


RARE: dict[str, Callable] = {
    "sin": lambda ops, x: _sine(ops, x, 0),
    "cos": lambda ops, x: _sine(ops, x, 1),
    "exp": _exponential,
    "log": _logarithm,
}


def rare_function(name: str) -> tuple[str, set[str]]:
    """Return the function ``rare_<name>`` of one float64 number as LLVM IR, and its declarations."""
    code = Instructions()
    ops = Arithmetic(code, FLOAT64, "double", 1, constant)
    result = RARE[name](ops, "%x")
    lines = "\n".join(code.lines)
    return (
        f"define internal double @rare_{name}(double %x) #2 {{\nentry:\n{lines}\n  ret double {result}\n}}",
        code.declared,
    )
