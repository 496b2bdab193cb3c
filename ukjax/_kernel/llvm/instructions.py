"""One operation of a graph as instructions of LLVM, on one number or on a vector of them.

Integers never trap: a quotient by zero is −1 and its remainder the dividend, as XLA has it. A type that is too small
for a number takes its nearest one. What LLVM has no instruction for is a function of the C library, member by member.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from ..unsupported import Unsupported
from .vector_math import LARGEST_EXP, Arithmetic, exponential, hyperbolic_tangent, logarithm

LIBRARY = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atan2": "atan2",
    "atanh": "atanh",
    "cbrt": "cbrt",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "erfc": "erfc",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "lgamma": "lgamma",
    "log1p": "log1p",
    "nextafter": "nextafter",
    "pow": "pow",
    "rem": "fmod",
    "sin": "sin",
    "sinh": "sinh",
    "tan": "tan",
    "tanh": "tanh",
}
"""By the name of JAX's primitive the function of the C library; that of single precision has an f at its end."""

FLOATS = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}
SUFFIXES = {"double": "f64", "float": "f32"}
CALLED = frozenset({"ceil", "floor", "rint", "trunc"})
"""LLVM's own functions that it calls the C library for where the processor has no instruction."""

SHIFTS = {"shift_left": "shl", "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr"}
COMPARED = {"eq", "ne", "lt", "le", "gt", "ge"}


def scalar_type(dtype: np.dtype) -> str:
    """LLVM's word for it."""
    if dtype.kind == "b":
        return "i1"
    if dtype.kind in "iu":
        return f"i{8 * dtype.itemsize}"
    return FLOATS[dtype]


def vector_type(scalar: str, width: int) -> str:
    """So many side by side; of width 1, the number itself."""
    return scalar if width == 1 else f"<{width} x {scalar}>"


def constant(x: np.generic, width: int) -> str:
    """A known number."""
    kind = scalar_type(x.dtype)
    if kind in SUFFIXES:
        text = f"0x{struct.unpack('<Q', struct.pack('<d', float(x)))[0]:016X}"
    else:
        text = {"True": "true", "False": "false"}[str(bool(x))] if kind == "i1" else str(int(x))
    return text if width == 1 else f"splat ({kind} {text})"


class Instructions:
    """Lines of a function, and what they declare. Numbers are of ``width`` 1 or as many as a vector has."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.functions: set[str] = set()
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def add(self, text: str) -> str:
        """One more instruction; the name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """One more instruction without a result."""
        self.lines.append(f"  {text}")

    def intrinsic(self, name: str, types: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        """A call of LLVM's own function ``llvm.name.types``."""
        whole = f"@llvm.{name}.{types}"
        self.declared.add(f"declare {result} {whole}({', '.join(kind for kind, _ in arguments)})")
        return self.add(f"call {result} {whole}({', '.join(f'{kind} {x}' for kind, x in arguments)})")

    def own(self, name: str, kind: str, width: int, *arguments: str) -> str:
        """An elementwise one of LLVM's own functions."""
        whole = vector_type(kind, width)
        types = SUFFIXES.get(kind, kind) if width == 1 else f"v{width}{SUFFIXES.get(kind, kind)}"
        if name in CALLED:
            self.functions.add(name if kind == "double" else f"{name}f")
        return self.intrinsic(name, types, whole, [(whole, x) for x in arguments])

    def library(self, name: str, kind: str, width: int, *arguments: str) -> str:
        """A function of the C library, for each of a vector."""
        name = name if kind == "double" else f"{name}f"
        self.functions.add(name)
        self.declared.add(f"declare {kind} @{name}({', '.join([kind] * len(arguments))})")
        call = lambda given: self.add(f"call {kind} @{name}({', '.join(f'{kind} {x}' for x in given)})")
        if width == 1:
            return call(arguments)
        whole, found = vector_type(kind, width), "poison"
        for lane in range(width):
            each = [self.add(f"extractelement {whole} {x}, i64 {lane}") for x in arguments]
            found = self.add(f"insertelement {whole} {found}, {kind} {call(each)}, i64 {lane}")
        return found

    def splat(self, x: str, kind: str, width: int) -> str:
        """A vector of one number."""
        if width == 1:
            return x
        whole = vector_type(kind, width)
        first = self.add(f"insertelement {whole} poison, {kind} {x}, i64 0")
        return self.add(f"shufflevector {whole} {first}, {whole} poison, <{width} x i32> zeroinitializer")

    def operation(
        self,
        name: str,
        parameters: dict[str, Any],
        kinds: Sequence[np.dtype],
        dtype: np.dtype,
        width: int,
        a: list[str],
    ) -> str:
        """The result, of type ``dtype``, of an operation on numbers of these ``kinds``."""
        single = scalar_type(kinds[-1] if name in COMPARED else kinds[0])
        whole = vector_type(single, width)
        if name == "select_n":
            return self._select(kinds, dtype, width, a)
        if name == "convert_element_type":
            return self._convert(kinds[0], dtype, width, a[0])
        if name == "bitcast_convert_type":
            to = vector_type(scalar_type(dtype), width)
            return a[0] if to == whole else self.add(f"bitcast {whole} {a[0]} to {to}")
        if name == "rescued":
            return self._rescued(parameters["of"], scalar_type(dtype), width, *a)
        if name in COMPARED:
            return self.add(f"{_comparison(name, kinds[0])} {whole} {a[0]}, {a[1]}")
        if single in SUFFIXES:
            return self._of_floats(name, parameters, kinds, single, width, a)
        if single == "i1":
            return self._of_truths(name, whole, width, a)
        return self._of_integers(name, parameters, kinds[0], single, width, a)

    def _rescued(self, function, kind, width, where, near, x):
        """``near``, or a function of the C library ``where`` that is not good enough; which is rare."""
        whole, truth = vector_type(kind, width), vector_type("i1", width)
        self._count += 1
        begin, far, end = (f"{name}{self._count}" for name in ("near", "far", "found"))
        anywhere = where
        if width > 1:
            bits = self.add(f"bitcast {truth} {where} to i{width}")
            anywhere = self.add(f"icmp ne i{width} {bits}, 0")
        self.lines += [
            f"  br label %{begin}",
            f"{begin}:",
            f"  br i1 {anywhere}, label %{far}, label %{end}",
            f"{far}:",
        ]
        exact = self.library(function, kind, width, x)
        chosen = self.add(f"select {truth} {where}, {whole} {exact}, {whole} {near}")
        self.lines += [f"  br label %{end}", f"{end}:"]
        return self.add(f"phi {whole} [ {near}, %{begin} ], [ {chosen}, %{far} ]")

    def _select(self, kinds, dtype, width, a):
        whole, which = vector_type(scalar_type(dtype), width), a[0]
        if kinds[0].kind == "b":
            condition = vector_type("i1", width) if not which.startswith("scalar ") else "i1"
            return self.add(f"select {condition} {which.removeprefix('scalar ')}, {whole} {a[2]}, {whole} {a[1]}")
        index, found = vector_type(scalar_type(kinds[0]), width), a[1]
        for k, case in enumerate(a[2:], 1):
            here = self.add(f"icmp eq {index} {which}, {constant(kinds[0].type(k), width)}")
            found = self.add(f"select {vector_type('i1', width)} {here}, {whole} {case}, {whole} {found}")
        return found

    def _convert(self, old, new, width, x):
        a, b = scalar_type(old), scalar_type(new)
        whole, other = vector_type(a, width), vector_type(b, width)
        is_float = a in SUFFIXES, b in SUFFIXES
        if a == b:
            return x
        if b == "i1":
            zero = constant(old.type(0), width)
            return self.add(f"fcmp une {whole} {x}, {zero}" if is_float[0] else f"icmp ne {whole} {x}, {zero}")
        if all(is_float):
            return self.add(f"{'fpext' if new.itemsize > old.itemsize else 'fptrunc'} {whole} {x} to {other}")
        if is_float[0]:
            types = ".".join(t if width == 1 else f"v{width}{t}" for t in (b, SUFFIXES[a]))
            name = "fptosi.sat" if new.kind == "i" else "fptoui.sat"
            return self.intrinsic(name, types, other, [(whole, x)])
        signed = old.kind == "i"
        if is_float[1]:
            return self.add(f"{'sitofp' if signed else 'uitofp'} {whole} {x} to {other}")
        if old.kind != "b" and new.itemsize < old.itemsize:
            return self.add(f"trunc {whole} {x} to {other}")
        return self.add(f"{'sext' if signed else 'zext'} {whole} {x} to {other}")

    def _of_floats(self, name, parameters, kinds, kind, width, a):
        whole, one = vector_type(kind, width), constant(kinds[0].type(1), width)
        do = lambda f, *x: self.add(f"{f} {whole} {', '.join(x)}")
        truth = vector_type("i1", width)
        choose = lambda c, x, y: self.add(f"select {truth} {c}, {whole} {x}, {whole} {y}")
        own = lambda f, *x: self.own(f, kind, width, *x)
        if name in ("add", "sub", "mul", "div"):
            return do(f"f{name}", *a)
        if name in ("fma", "fms", "fnma"):
            x, y, z = a
            if name == "fms":
                z = do("fneg", z)
            elif name == "fnma":
                x = do("fneg", x)
            return own("fmuladd", x, y, z)  # in one instruction if there is one
        if name == "neg":
            return do("fneg", a[0])
        if name == "round":
            if parameters["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
                return own("rint", a[0])
            half = constant(np.nextafter(kinds[0].type(0.5), kinds[0].type(0)), width)
            return own("trunc", do("fadd", a[0], own("copysign", half, a[0])))
        if name in ("floor", "ceil", "sqrt"):
            return own(name, a[0])
        if name == "abs":
            return own("fabs", a[0])
        if name == "rsqrt":
            return do("fdiv", one, own("sqrt", a[0]))
        if name == "square":
            return do("fmul", a[0], a[0])
        if name == "one_minus_square":
            return do("fmul", do("fsub", one, a[0]), do("fadd", one, a[0]))
        if name in ("exp", "log", "tanh", "logistic"):
            return self._as_arithmetic(name, kinds[0], kind, width, a[0])
        if name == "is_finite":
            return do("fcmp olt", own("fabs", a[0]), constant(kinds[0].type(np.inf), width))
        if name == "sign":
            signed = own("copysign", one, a[0])
            return choose(do("fcmp one", a[0], constant(kinds[0].type(0), width)), signed, a[0])
        if name in ("max", "min"):  # NaN if one of them is
            larger = choose(do(f"fcmp {'ogt' if name == 'max' else 'olt'}", *a), *a)
            return choose(do("fcmp uno", a[0], a[0]), a[0], larger)
        if name == "integer_pow":
            return self._power(parameters["y"], lambda x, y: do("fmul", x, y), lambda x: do("fdiv", one, x), one, a[0])
        if name == "pow" and kinds[1] != kinds[0]:
            a = [a[0], self._convert(kinds[1], kinds[0], width, a[1])]
        if name in LIBRARY:
            return self.library(LIBRARY[name], kind, width, *a)
        raise Unsupported(f"{name} of numbers is not compiled")

    def _as_arithmetic(self, name, dtype, kind, width, x):
        on = Arithmetic(self, dtype, kind, width, constant)
        if name == "tanh":
            return hyperbolic_tangent(on, x)
        if name == "log":
            limits = np.finfo(dtype)
            normal = on.compare("oge", x, float(limits.tiny)), on.compare("ole", x, float(limits.max))
            both = self.add(f"and {on.truths} {normal[0]}, {normal[1]}")
            far = self.add(f"xor {on.truths} {both}, {constant(np.bool_(True), width)}")
            return self._rescued("log", kind, width, far, logarithm(on, x), x)
        x = on.neg(x) if name == "logistic" else x
        far = on.compare("ugt", on.own("fabs", x), LARGEST_EXP[dtype.itemsize])
        found = self._rescued("exp", kind, width, far, exponential(on, x), x)
        return on.div(1.0, on.add(1.0, found)) if name == "logistic" else found

    def _power(self, y, multiply, invert, one, x):
        """x to the power of a whole number, by squares."""
        found, square, left = None, x, abs(y)
        while left:
            if left & 1:
                found = square if found is None else multiply(found, square)
            left >>= 1
            square = multiply(square, square) if left else square
        found = one if found is None else found
        return invert(found) if y < 0 else found

    def _of_truths(self, name, whole, width, a):
        names = {"or": "or", "and": "and", "max": "or", "min": "and", "add": "or", "mul": "and", "xor": "xor"}
        if name in names:
            return self.add(f"{names[name]} {whole} {a[0]}, {a[1]}")
        if name == "not":
            return self.add(f"xor {whole} {a[0]}, {constant(np.bool_(True), width)}")
        raise Unsupported(f"{name} of truth values is not compiled")

    def _of_integers(self, name, parameters, dtype, kind, width, a):
        whole, truth = vector_type(kind, width), vector_type("i1", width)
        do = lambda f, *x: self.add(f"{f} {whole} {', '.join(x)}")
        choose = lambda c, x, y: self.add(f"select {truth} {c}, {whole} {x}, {whole} {y}")
        number = lambda x: constant(dtype.type(x), width)
        signed = dtype.kind == "i"
        ones = number(-1 if signed else np.iinfo(dtype).max)
        if name in ("add", "sub", "mul", "and", "or", "xor"):
            return do(name, *a)
        if name == "neg":
            return do("sub", number(0), a[0])
        if name == "not":
            return do("xor", a[0], ones)
        if name in ("max", "min"):
            return choose(do(f"icmp {'s' if signed else 'u'}{'gt' if name == 'max' else 'lt'}", *a), *a)
        if name == "abs":
            return choose(do("icmp slt", a[0], number(0)), do("sub", number(0), a[0]), a[0]) if signed else a[0]
        if name == "sign":
            positive = choose(do("icmp ne", a[0], number(0)), number(1), number(0))
            return choose(do("icmp slt", a[0], number(0)), number(-1), positive) if signed else positive
        if name == "square":
            return do("mul", a[0], a[0])
        if name == "population_count":
            return self.own("ctpop", kind, width, a[0])
        if name == "clz":
            types = kind if width == 1 else f"v{width}{kind}"
            return self.intrinsic("ctlz", types, whole, [(whole, a[0]), ("i1", "false")])
        if name in SHIFTS:
            bits = 8 * dtype.itemsize
            inside = do("icmp ult", a[1], number(bits))
            by = choose(inside, a[1], number(0))
            beyond = do("ashr", a[0], number(bits - 1)) if SHIFTS[name] == "ashr" else number(0)
            return choose(inside, do(SHIFTS[name], a[0], by), beyond)
        if name in ("div", "rem"):
            return self._quotient(name, signed, do, choose, number, ones, *a)
        if name == "integer_pow" and parameters["y"] >= 0:
            return self._power(parameters["y"], lambda x, y: do("mul", x, y), None, number(1), a[0])
        raise Unsupported(f"{name} of whole numbers is not compiled")

    def _quotient(self, name, signed, do, choose, number, ones, a, b):
        by_zero = do("icmp eq", b, number(0))
        safe = choose(by_zero, number(1), b)
        if signed:  # the smallest by −1 is none
            by_minus_one = do("icmp eq", b, number(-1))
            safe = choose(by_minus_one, number(1), safe)
            negated = do("sub", number(0), a)
        if name == "div":
            found = do("sdiv" if signed else "udiv", a, safe)
            found = choose(by_minus_one, negated, found) if signed else found
            return choose(by_zero, ones, found)
        found = do("srem" if signed else "urem", a, safe)
        found = choose(by_minus_one, number(0), found) if signed else found
        return choose(by_zero, a, found)


def _comparison(name, dtype):
    if dtype in FLOATS:
        return f"fcmp {'une' if name == 'ne' else 'o' + name}"
    if name in ("eq", "ne"):
        return f"icmp {name}"
    return f"icmp {'s' if dtype.kind == 'i' else 'u'}{name}"
