"""exp, log and tanh as arithmetic, on a vector of numbers at once: a few times faster than the C library for each.

The constants, and how an argument is brought near to 0: for exp and log in float64 those of fdlibm (Sun Microsystems,
1993: e_exp.c, e_log.c), for tanh and all in float32 those of Cephes (S. Moshier, 1984 to 1995: tanh.c, expf.c, logf.c,
tanhf.c). They are good to 1.5 units in the last place. Where an argument or a result is no normal number, the C library
takes over.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Lanes = Any
"""The name of one number or of a vector of them."""


class Arithmetic:
    """Instructions on numbers of one type, ``width`` side by side."""

    def __init__(self, code: Any, dtype: np.dtype, kind: str, width: int, constant: Callable):
        self.code, self.dtype, self.kind, self.width, self._constant = code, dtype, kind, width, constant
        self.bits = np.dtype(f"i{dtype.itemsize}")
        wide = lambda kind: kind if width == 1 else f"<{width} x {kind}>"
        self.whole, self.integers, self.truths = wide(kind), wide(f"i{8 * dtype.itemsize}"), wide("i1")
        self.mantissa = np.finfo(dtype).nmant

    def number(self, x: "float | Lanes") -> Lanes:
        return self._constant(self.dtype.type(x), self.width) if isinstance(x, float) else x

    def integer(self, x: "int | Lanes") -> Lanes:
        return self._constant(self.bits.type(x), self.width) if isinstance(x, int) else x

    def bits_of(self, x: float) -> int:
        """The bits of a known number."""
        return int(self.dtype.type(x).view(self.bits))

    def _do(self, name, *a):
        return self.code.add(f"{name} {self.whole} {', '.join(map(self.number, a))}")

    def add(self, a: Any, b: Any) -> Lanes:
        return self._do("fadd", a, b)

    def sub(self, a: Any, b: Any) -> Lanes:
        return self._do("fsub", a, b)

    def mul(self, a: Any, b: Any) -> Lanes:
        return self._do("fmul", a, b)

    def div(self, a: Any, b: Any) -> Lanes:
        return self._do("fdiv", a, b)

    def neg(self, a: Any) -> Lanes:
        return self._do("fneg", a)

    def own(self, name: str, *a: Any) -> Lanes:
        """One of LLVM's own functions."""
        return self.code.own(name, self.kind, self.width, *map(self.number, a))

    def sum(self, a: Any, b: Any, c: Any) -> Lanes:
        """a b + c, rounded once where the processor can."""
        return self.own("fmuladd", a, b, c)

    def compare(self, how: str, a: Any, b: Any) -> Lanes:
        return self._do(f"fcmp {how}", a, b)

    def choose(self, which: Lanes, yes: Any, no: Any) -> Lanes:
        yes, no = map(self.number, (yes, no))
        return self.code.add(f"select {self.truths} {which}, {self.whole} {yes}, {self.whole} {no}")

    def whole_do(self, name: str, a: Any, b: Any) -> Lanes:
        """An operation on whole numbers."""
        return self.code.add(f"{name} {self.integers} {self.integer(a)}, {self.integer(b)}")

    def as_bits(self, x: Lanes) -> Lanes:
        return self.code.add(f"bitcast {self.whole} {x} to {self.integers}")

    def of_bits(self, x: Lanes) -> Lanes:
        return self.code.add(f"bitcast {self.integers} {x} to {self.whole}")

    def polynomial(self, z: Lanes, coefficients: Sequence[float]) -> Lanes:
        """Of the coefficients, that of the highest power first."""
        total: Any = coefficients[0]
        for coefficient in coefficients[1:]:
            total = self.sum(total, z, coefficient)
        return total


LN2 = {8: (6.93147180369123816490e-01, 1.90821492927058770002e-10), 4: (0.693359375, -2.12194440e-4)}
"""The logarithm of 2 in two parts, by the size of a number: multiples of the first are exact."""

EXP = {
    8: (
        4.13813679705723846039e-08,
        -1.65339022054652515390e-06,
        6.61375632143793436117e-05,
        -2.77777777770155933842e-03,
        1.66666666666666019037e-01,
    ),
    4: (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
}
LOG = {
    8: (
        1.479819860511658591e-01,
        1.531383769920937332e-01,
        1.818357216161805012e-01,
        2.222219843214978396e-01,
        2.857142874366239149e-01,
        3.999999999940941908e-01,
        6.666666666666735130e-01,
    ),
    4: (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    ),
}
TANH = {
    8: (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3),
    4: (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1),
}
UNDER_TANH = (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)
"""Coefficients by the size of a number, that of the highest power first."""

LARGEST_EXP = {8: 708.0, 4: 86.0}
"""Up to here, in either direction, exp x and all that it is made of are normal numbers."""


def exponential(on: Arithmetic, x: Lanes) -> Lanes:
    """exp x for −LARGEST_EXP ≤ x ≤ LARGEST_EXP: 2^k exp r, with r within ln 2 / 2."""
    size = on.dtype.itemsize
    high, low = LN2[size]
    k = on.own("rint", on.mul(x, 1 / np.log(2)))
    minus = on.neg(k)
    near = on.sum(minus, high, x)
    if size == 8:
        rest = on.mul(k, low)
        r = on.sub(near, rest)
        z = on.mul(r, r)
        c = on.sub(r, on.mul(z, on.polynomial(z, EXP[size])))
        y = on.sub(1.0, on.sub(on.sub(rest, on.div(on.mul(r, c), on.sub(2.0, c))), near))
    else:
        r = on.sum(minus, low, near)
        y = on.add(on.sum(on.polynomial(r, EXP[size]), on.mul(r, r), r), 1.0)
    # k stands in the last bits of a number this large, and is added to the exponent of y.
    bits = on.as_bits(on.add(k, 1.5 * 2.0**on.mantissa))
    return on.of_bits(on.whole_do("add", on.as_bits(y), on.whole_do("shl", bits, on.mantissa)))


def logarithm(on: Arithmetic, x: Lanes) -> Lanes:
    """log x for positive normal numbers: k ln 2 + log(1 + f), with 1 + f between √½ and √2."""
    size, large = on.dtype.itemsize, 2.0**on.mantissa
    high, low = LN2[size]
    start, one, of_large = (on.bits_of(number) for number in (np.sqrt(0.5), 1.0, large))
    above = on.whole_do("sub", on.as_bits(x), start)
    mantissa = on.whole_do("and", above, (1 << on.mantissa) - 1)
    f = on.sub(on.of_bits(on.whole_do("add", mantissa, start)), 1.0)
    # The exponent, made positive, stands in the last bits of a large number.
    exponent = on.whole_do("lshr", on.whole_do("add", above, one), on.mantissa)
    k = on.sub(on.of_bits(on.whole_do("or", exponent, of_large)), large + float(one >> on.mantissa))
    z = on.mul(f, f)
    half = on.mul(0.5, z)
    if size == 8:
        s = on.div(f, on.add(2.0, f))
        t = on.mul(s, s)
        small = on.sum(s, on.add(half, on.mul(t, on.polynomial(t, LOG[size]))), on.mul(k, low))
        return on.sum(k, high, on.sub(f, on.sub(half, small)))
    y = on.sum(k, low, on.mul(on.mul(f, z), on.polynomial(f, LOG[size])))
    return on.sum(k, high, on.add(f, on.sub(y, half)))


def hyperbolic_tangent(on: Arithmetic, x: Lanes) -> Lanes:
    """tanh x: rational or a polynomial near 0, by exp beyond."""
    size, z = on.own("fabs", x), on.mul(x, x)
    near = on.polynomial(z, TANH[on.dtype.itemsize])
    if on.dtype.itemsize == 8:
        near = on.div(near, on.polynomial(z, UNDER_TANH))
    near = on.sum(on.mul(near, z), x, x)
    most = 22.0  # tanh of all that is larger is 1
    twice = on.mul(2.0, on.choose(on.compare("olt", size, most), size, most))
    far = on.sub(1.0, on.div(2.0, on.add(exponential(on, twice), 1.0)))
    return on.choose(on.compare("oge", size, 0.625), on.own("copysign", far, x), near)  # NaN is near, and stays NaN
