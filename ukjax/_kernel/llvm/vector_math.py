"""exp, log and tanh as vector arithmetic: a few times faster than calling the C library for each lane.

Constants and argument reductions for exp and log in float64 are those of fdlibm (Sun Microsystems, 1993: e_exp.c,
e_log.c), for tanh and for float32 those of Cephes (S. Moshier, 1984 to 1995: tanh.c, expf.c, logf.c, tanhf.c). The
error is at most 1.5 units in the last place. If an argument or a result is not a normal number, the C library is called
instead.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Lanes = Any
"""LLVM name of one number or of a vector of numbers."""


class Arithmetic:
    """Writes instructions on floating-point numbers of one type.

    Attributes
    ----------
    code
        The function that instructions are added to.
    dtype, kind, bits
        NumPy type, LLVM type, and the integer type of the same size.
    width
        Number of lanes; 1 for a scalar.
    vector, integers, truths
        LLVM types of ``width`` numbers, integers and truth values.
    mantissa
        Number of mantissa bits.
    """

    def __init__(self, code: Any, dtype: np.dtype, kind: str, width: int, constant: Callable):
        self.code, self.dtype, self.kind, self.width, self._constant = code, dtype, kind, width, constant
        self.bits = np.dtype(f"i{dtype.itemsize}")
        wide = lambda kind: kind if width == 1 else f"<{width} x {kind}>"
        self.vector, self.integers, self.truths = wide(kind), wide(f"i{8 * dtype.itemsize}"), wide("i1")
        self.mantissa = np.finfo(dtype).nmant

    def number(self, x: "float | Lanes") -> Lanes:
        """Return x, a Python float as a constant."""
        return self._constant(self.dtype.type(x), self.width) if isinstance(x, float) else x

    def integer(self, x: "int | Lanes") -> Lanes:
        """Return x, a Python int as a constant."""
        return self._constant(self.bits.type(x), self.width) if isinstance(x, int) else x

    def bits_of(self, x: float) -> int:
        """Return the bit pattern of a constant as an integer."""
        return int(self.dtype.type(x).view(self.bits))

    def _op(self, name, *a):
        return self.code.add(f"{name} {self.vector} {', '.join(map(self.number, a))}")

    def add(self, a: Any, b: Any) -> Lanes:
        return self._op("fadd", a, b)

    def sub(self, a: Any, b: Any) -> Lanes:
        return self._op("fsub", a, b)

    def mul(self, a: Any, b: Any) -> Lanes:
        return self._op("fmul", a, b)

    def div(self, a: Any, b: Any) -> Lanes:
        return self._op("fdiv", a, b)

    def neg(self, a: Any) -> Lanes:
        return self._op("fneg", a)

    def elementwise(self, name: str, *a: Any) -> Lanes:
        """Call an elementwise LLVM intrinsic."""
        return self.code.elementwise(name, self.kind, self.width, *map(self.number, a))

    def multiply_add(self, a: Any, b: Any, c: Any) -> Lanes:
        """Return a b + c, rounded once if the processor has a fused multiply-add."""
        return self.elementwise("fmuladd", a, b, c)

    def compare(self, predicate: str, a: Any, b: Any) -> Lanes:
        return self._op(f"fcmp {predicate}", a, b)

    def choose(self, condition: Lanes, yes: Any, no: Any) -> Lanes:
        yes, no = map(self.number, (yes, no))
        return self.code.add(f"select {self.truths} {condition}, {self.vector} {yes}, {self.vector} {no}")

    def integer_op(self, name: str, a: Any, b: Any) -> Lanes:
        """Apply an integer operation."""
        return self.code.add(f"{name} {self.integers} {self.integer(a)}, {self.integer(b)}")

    def as_bits(self, x: Lanes) -> Lanes:
        return self.code.add(f"bitcast {self.vector} {x} to {self.integers}")

    def of_bits(self, x: Lanes) -> Lanes:
        return self.code.add(f"bitcast {self.integers} {x} to {self.vector}")

    def polynomial(self, z: Lanes, coefficients: Sequence[float]) -> Lanes:
        """Evaluate a polynomial in z by Horner's rule; coefficients from the highest power down."""
        total: Any = coefficients[0]
        for coefficient in coefficients[1:]:
            total = self.multiply_add(total, z, coefficient)
        return total


LN2 = {8: (6.93147180369123816490e-01, 1.90821492927058770002e-10), 4: (0.693359375, -2.12194440e-4)}
"""ln 2 in two parts, by the size of a number [bytes]; multiples of the first part are exact."""

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
TANH_DENOMINATOR = (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)
"""Denominator of tanh for float64. All coefficients are by the size of a number [bytes], highest power first."""

LARGEST_EXP = {8: 708.0, 4: 86.0}
"""Largest |x| for which exp x and all intermediate results are normal numbers, by the size of a number [bytes]."""


def exponential(ops: Arithmetic, x: Lanes) -> Lanes:
    """Return exp x for |x| ≤ LARGEST_EXP, as 2ᵏ exp r with |r| ≤ ln 2 / 2."""
    size = ops.dtype.itemsize
    high, low = LN2[size]
    k = ops.elementwise("rint", ops.mul(x, 1 / np.log(2)))
    minus_k = ops.neg(k)
    reduced = ops.multiply_add(minus_k, high, x)
    if size == 8:
        correction = ops.mul(k, low)
        r = ops.sub(reduced, correction)
        z = ops.mul(r, r)
        c = ops.sub(r, ops.mul(z, ops.polynomial(z, EXP[size])))
        exp_r = ops.sub(1.0, ops.sub(ops.sub(correction, ops.div(ops.mul(r, c), ops.sub(2.0, c))), reduced))
    else:
        r = ops.multiply_add(minus_k, low, reduced)
        exp_r = ops.add(ops.multiply_add(ops.polynomial(r, EXP[size]), ops.mul(r, r), r), 1.0)
    # Adding 1.5 · 2^mantissa leaves the integer k in the low bits; they are added to the exponent of exp r.
    bits = ops.as_bits(ops.add(k, 1.5 * 2.0**ops.mantissa))
    return ops.of_bits(ops.integer_op("add", ops.as_bits(exp_r), ops.integer_op("shl", bits, ops.mantissa)))


def logarithm(ops: Arithmetic, x: Lanes) -> Lanes:
    """Return log x for positive normal x, as k ln 2 + log(1 + f) with √½ ≤ 1 + f < √2."""
    size, large = ops.dtype.itemsize, 2.0**ops.mantissa
    high, low = LN2[size]
    start, one, large_bits = (ops.bits_of(number) for number in (np.sqrt(0.5), 1.0, large))
    offset = ops.integer_op("sub", ops.as_bits(x), start)
    mantissa = ops.integer_op("and", offset, (1 << ops.mantissa) - 1)
    f = ops.sub(ops.of_bits(ops.integer_op("add", mantissa, start)), 1.0)
    # The biased exponent, in the low bits of a large number, is converted to floating point by a subtraction.
    exponent = ops.integer_op("lshr", ops.integer_op("add", offset, one), ops.mantissa)
    k = ops.sub(ops.of_bits(ops.integer_op("or", exponent, large_bits)), large + float(one >> ops.mantissa))
    z = ops.mul(f, f)
    half_z = ops.mul(0.5, z)
    if size == 8:
        s = ops.div(f, ops.add(2.0, f))
        t = ops.mul(s, s)
        small = ops.multiply_add(s, ops.add(half_z, ops.mul(t, ops.polynomial(t, LOG[size]))), ops.mul(k, low))
        return ops.multiply_add(k, high, ops.sub(f, ops.sub(half_z, small)))
    y = ops.multiply_add(k, low, ops.mul(ops.mul(f, z), ops.polynomial(f, LOG[size])))
    return ops.multiply_add(k, high, ops.add(f, ops.sub(y, half_z)))


def hyperbolic_tangent(ops: Arithmetic, x: Lanes) -> Lanes:
    """Return tanh x: a rational function or polynomial for |x| < 0.625, 1 − 2/(exp 2|x| + 1) beyond."""
    magnitude, z = ops.elementwise("fabs", x), ops.mul(x, x)
    near = ops.polynomial(z, TANH[ops.dtype.itemsize])
    if ops.dtype.itemsize == 8:
        near = ops.div(near, ops.polynomial(z, TANH_DENOMINATOR))
    near = ops.multiply_add(ops.mul(near, z), x, x)
    saturation = 22.0  # tanh x rounds to 1 beyond
    twice = ops.mul(2.0, ops.choose(ops.compare("olt", magnitude, saturation), magnitude, saturation))
    far = ops.sub(1.0, ops.div(2.0, ops.add(exponential(ops, twice), 1.0)))
    # The comparison is false for NaN, which then stays NaN.
    return ops.choose(ops.compare("oge", magnitude, 0.625), ops.elementwise("copysign", far, x), near)
