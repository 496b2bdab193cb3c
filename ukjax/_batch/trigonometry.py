"""Sine and cosine of one angle together, in arithmetic alone, as operations of a graph.

The angle is brought into [−π/4, π/4] by Cody and Waite's reduction with π/2 in two parts, the first of 33 bits, so that
its multiples are exact; constants and polynomials are those of fdlibm (Sun Microsystems, 1993: k_sin.c, k_cos.c,
e_rem_pio2.c), good to less than one unit in the last place. Beyond ``LARGEST`` the functions of XLA take over.
"""

import numpy as np

from .graph import Graph, Operand

LARGEST = 2.0**19
QUARTER, QUARTER_REST = 1.57079632673412561417e00, 6.07710050650619224932e-11
SINE = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)
COSINE = (
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)


def sine_and_cosine(graph: Graph, x: Operand) -> tuple[Operand, Operand]:
    """sin x and cos x, x a float64."""

    def do(name, *operands):
        return graph.apply(name, [np.float64(o) if isinstance(o, float) else o for o in operands])

    add = lambda a, b: do("add", a, b)
    sub = lambda a, b: do("sub", a, b)
    mul = lambda a, b: do("mul", a, b)
    floor = lambda a: do("floor", a)
    select = lambda which, no, yes: do("select_n", which, no, yes)

    quarters = floor(add(mul(x, 2 / np.pi), 0.5))
    near, rest = sub(x, mul(quarters, QUARTER)), mul(quarters, QUARTER_REST)
    r = sub(near, rest)
    tail = sub(sub(near, r), rest)  # what rounding took from r
    z = mul(r, r)
    half = mul(z, 0.5)

    polynomial = SINE[-1]
    for coefficient in SINE[-2::-1]:
        polynomial = add(mul(polynomial, z), coefficient)
    sine = add(r, add(mul(mul(r, z), polynomial), sub(tail, mul(half, tail))))

    polynomial = COSINE[-1]
    for coefficient in COSINE[-2::-1]:
        polynomial = add(mul(polynomial, z), coefficient)
    most = sub(1.0, half)
    lost = sub(sub(1.0, most), half)  # what rounding took from 1 − z/2
    cosine = add(most, add(lost, sub(mul(mul(z, z), polynomial), mul(r, tail))))

    halves = floor(mul(quarters, 0.5))
    odd = do("ne", quarters, mul(halves, 2.0))
    behind = do("ne", halves, mul(floor(mul(halves, 0.5)), 2.0))  # in the third or fourth quadrant
    s, c = select(odd, sine, cosine), select(odd, cosine, sine)
    s = select(behind, s, do("neg", s))
    c = select(do("ne", odd, behind), c, do("neg", c))

    far = do("gt", do("abs", x), LARGEST)
    return graph.choose(far, (s, do("sin", x))), graph.choose(far, (c, do("cos", x)))
