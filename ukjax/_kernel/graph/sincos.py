"""Sine and cosine of one angle together, as arithmetic operations of a graph.

The angle is reduced to [−π/4, π/4] by the method of Cody and Waite: π/2 is split into parts, and all but the last have
so few bits that their multiples are exact. Constants and polynomials for float64 are those of fdlibm (Sun Microsystems,
1993: k_sin.c, k_cos.c, e_rem_pio2.c), for float32 those of Cephes (S. Moshier, 1989: sinf.c). The error is less than
one unit in the last place of 1 and, away from the zeros of the function, of the result. Angles beyond ``largest`` are
evaluated by the C library.
"""

from typing import NamedTuple

import numpy as np

from .graph import Graph
from .number import Operand


class Table(NamedTuple):
    """Constants of one type.

    Attributes
    ----------
    quarter
        Parts of π/2.
    sine, cosine
        Coefficients of (sin r − r)/r³ and of (cos r − 1 + r²/2)/r⁴ in r², lowest power first.
    largest
        Largest |x| for which the reduction is accurate.
    """

    quarter: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]
    largest: float


TABLES = {
    np.dtype(np.float64): Table(
        quarter=(1.57079632673412561417e00, 6.07710050650619224932e-11),
        sine=(
            -1.66666666666666324348e-01,
            8.33333333332248946124e-03,
            -1.98412698298579493134e-04,
            2.75573137070700676789e-06,
            -2.50507602534068634195e-08,
            1.58969099521155010221e-10,
        ),
        cosine=(
            4.16666666666666019037e-02,
            -1.38888888888741095749e-03,
            2.48015872894767294178e-05,
            -2.75573143513906633035e-07,
            2.08757232129817482790e-09,
            -1.13596475577881948265e-11,
        ),
        largest=2.0**19,
    ),
    np.dtype(np.float32): Table(
        quarter=(1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
        sine=(-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4),
        cosine=(4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5),
        largest=2.0**12,
    ),
}


def sine_and_cosine(graph: Graph, x: Operand) -> tuple[Operand, Operand]:
    """Return sin x and cos x, for x of a type in ``TABLES``."""
    table, dtype = TABLES[x.dtype], x.dtype.type

    def apply(name, *operands):
        return graph.apply(name, [dtype(o) if isinstance(o, float) else o for o in operands])

    add = lambda a, b: apply("add", a, b)
    sub = lambda a, b: apply("sub", a, b)
    mul = lambda a, b: apply("mul", a, b)
    floor = lambda a: apply("floor", a)
    select = lambda which, no, yes: apply("select_n", which, no, yes)

    def polynomial(coefficients, z):
        total = dtype(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            total = add(mul(total, z), coefficient)
        return total

    quarters = floor(add(mul(x, 2 / np.pi), 0.5))
    reduced = x
    for part in table.quarter[:-1]:
        reduced = sub(reduced, mul(quarters, part))
    correction = mul(quarters, table.quarter[-1])
    r = sub(reduced, correction)
    tail = sub(sub(reduced, r), correction)  # rounding error of r
    z = mul(r, r)
    half = mul(z, 0.5)
    sine = add(r, add(mul(mul(r, z), polynomial(table.sine, z)), sub(tail, mul(half, tail))))
    leading = sub(1.0, half)
    leading_error = sub(sub(1.0, leading), half)  # rounding error of 1 − z/2
    cosine = add(leading, add(leading_error, sub(mul(mul(z, z), polynomial(table.cosine, z)), mul(r, tail))))

    halves = floor(mul(quarters, 0.5))
    is_odd = apply("ne", quarters, mul(halves, 2.0))
    is_flipped = apply("ne", halves, mul(floor(mul(halves, 0.5)), 2.0))  # in the third or fourth quadrant
    sin_x, cos_x = select(is_odd, sine, cosine), select(is_odd, cosine, sine)
    sin_x = select(is_flipped, sin_x, apply("neg", sin_x))
    cos_x = select(apply("ne", is_odd, is_flipped), cos_x, apply("neg", cos_x))

    is_large = apply("gt", apply("abs", x), table.largest)
    with_fallback = lambda name, value: graph.apply("rescued", (is_large, value, x), {"of": name})
    return with_fallback("sin", sin_x), with_fallback("cos", cos_x)
