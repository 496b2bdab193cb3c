"""Translate one graph operation to LLVM instructions, on scalars or vectors.

Integer operations never trap: as in XLA, a quotient by zero is −1 and its remainder is the dividend. Conversions to a
smaller type saturate. Operations without an LLVM instruction call the C library for each member.
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
"""Function of the C library for each JAX primitive; the single-precision name ends in f."""

FLOATS = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}
SUFFIXES = {"double": "f64", "float": "f32"}
LIBRARY_INTRINSICS = frozenset({"ceil", "floor", "rint", "trunc"})
"""LLVM intrinsics that call the C library if the processor has no such instruction."""

SHIFTS = {"shift_left": "shl", "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}


def scalar_type(dtype: np.dtype) -> str:
    """Return the LLVM type of a NumPy type."""
    if dtype.kind == "b":
        return "i1"
    if dtype.kind in "iu":
        return f"i{8 * dtype.itemsize}"
    return FLOATS[dtype]


def vector_type(scalar: str, width: int) -> str:
    """Return the type of ``width`` numbers side by side; the scalar type for width 1."""
    return scalar if width == 1 else f"<{width} x {scalar}>"


def constant(x: np.generic, width: int) -> str:
    """Return an LLVM constant of ``width`` equal numbers."""
    kind = scalar_type(x.dtype)
    if kind in SUFFIXES:
        text = f"0x{struct.unpack('<Q', struct.pack('<d', float(x)))[0]:016X}"
    else:
        text = {"True": "true", "False": "false"}[str(bool(x))] if kind == "i1" else str(int(x))
    return text if width == 1 else f"splat ({kind} {text})"


class Instructions:
    """The body of a function, and the declarations that it needs.

    Operations have ``width`` 1 or the number of lanes of a vector.

    Attributes
    ----------
    lines
        Instructions.
    declared
        Declarations of called functions.
    functions
        Names of the called functions of the C library.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.functions: set[str] = set()
        self._count = 0

    def fresh(self) -> str:
        """Return an unused name."""
        self._count += 1
        return f"%t{self._count}"

    def add(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def intrinsic(self, name: str, types: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Call the LLVM intrinsic ``llvm.name.types``."""
        function = f"@llvm.{name}.{types}"
        self.declared.add(f"declare {result} {function}({', '.join(kind for kind, _ in arguments)})")
        return self.add(f"call {result} {function}({', '.join(f'{kind} {x}' for kind, x in arguments)})")

    def elementwise(self, name: str, kind: str, width: int, *arguments: str) -> str:
        """Call an elementwise LLVM intrinsic."""
        vector = vector_type(kind, width)
        types = SUFFIXES.get(kind, kind) if width == 1 else f"v{width}{SUFFIXES.get(kind, kind)}"
        if name in LIBRARY_INTRINSICS:
            self.functions.add(name if kind == "double" else f"{name}f")
        return self.intrinsic(name, types, vector, [(vector, x) for x in arguments])

    def library(self, name: str, kind: str, width: int, *arguments: str) -> str:
        """Call a function of the C library for each lane."""
        name = name if kind == "double" else f"{name}f"
        self.functions.add(name)
        self.declared.add(f"declare {kind} @{name}({', '.join([kind] * len(arguments))})")
        call = lambda operands: self.add(f"call {kind} @{name}({', '.join(f'{kind} {x}' for x in operands)})")
        if width == 1:
            return call(arguments)
        vector, result = vector_type(kind, width), "poison"
        for lane in range(width):
            lane_arguments = [self.add(f"extractelement {vector} {x}, i64 {lane}") for x in arguments]
            result = self.add(f"insertelement {vector} {result}, {kind} {call(lane_arguments)}, i64 {lane}")
        return result

    def splat(self, x: str, kind: str, width: int) -> str:
        """Return a vector of ``width`` copies of a scalar."""
        if width == 1:
            return x
        vector = vector_type(kind, width)
        first = self.add(f"insertelement {vector} poison, {kind} {x}, i64 0")
        return self.add(f"shufflevector {vector} {first}, {vector} poison, <{width} x i32> zeroinitializer")

    def operation(
        self,
        name: str,
        parameters: dict[str, Any],
        kinds: Sequence[np.dtype],
        dtype: np.dtype,
        width: int,
        operands: list[str],
    ) -> str:
        """Return the result, of type ``dtype``, of an operation on operands of types ``kinds``."""
        kind = scalar_type(kinds[-1] if name in COMPARISONS else kinds[0])
        vector = vector_type(kind, width)
        if name == "select_n":
            return self._select(kinds, dtype, width, operands)
        if name == "convert_element_type":
            return self._convert(kinds[0], dtype, width, operands[0])
        if name == "bitcast_convert_type":
            target = vector_type(scalar_type(dtype), width)
            return operands[0] if target == vector else self.add(f"bitcast {vector} {operands[0]} to {target}")
        if name == "rescued":
            return self._with_fallback(parameters["of"], scalar_type(dtype), width, *operands)
        if name in COMPARISONS:
            return self.add(f"{_comparison(name, kinds[0])} {vector} {operands[0]}, {operands[1]}")
        if kind in SUFFIXES:
            return self._float_operation(name, parameters, kinds, kind, width, operands)
        if kind == "i1":
            return self._bool_operation(name, vector, width, operands)
        return self._integer_operation(name, parameters, kinds[0], kind, width, operands)

    def _with_fallback(self, function, kind, width, is_invalid, approximation, x):
        """Return ``approximation``; lanes where ``is_invalid`` holds are computed by the C library.

        The call is in a branch that is rarely taken.
        """
        vector, bool_vector = vector_type(kind, width), vector_type("i1", width)
        self._count += 1
        start, fallback, end = (f"{name}{self._count}" for name in ("near", "far", "found"))
        any_invalid = is_invalid
        if width > 1:
            bits = self.add(f"bitcast {bool_vector} {is_invalid} to i{width}")
            any_invalid = self.add(f"icmp ne i{width} {bits}, 0")
        self.lines += [
            f"  br label %{start}",
            f"{start}:",
            f"  br i1 {any_invalid}, label %{fallback}, label %{end}",
            f"{fallback}:",
        ]
        exact = self.library(function, kind, width, x)
        merged = self.add(f"select {bool_vector} {is_invalid}, {vector} {exact}, {vector} {approximation}")
        self.lines += [f"  br label %{end}", f"{end}:"]
        return self.add(f"phi {vector} [ {approximation}, %{start} ], [ {merged}, %{fallback} ]")

    def _select(self, kinds, dtype, width, operands):
        """Translate ``select_n``. A condition that is marked ``scalar`` holds for all lanes."""
        vector, selector = vector_type(scalar_type(dtype), width), operands[0]
        if kinds[0].kind == "b":
            condition = vector_type("i1", width) if not selector.startswith("scalar ") else "i1"
            return self.add(
                f"select {condition} {selector.removeprefix('scalar ')}, {vector} {operands[2]}, {vector} {operands[1]}"
            )
        index_type, result = vector_type(scalar_type(kinds[0]), width), operands[1]
        for k, case in enumerate(operands[2:], 1):
            is_case = self.add(f"icmp eq {index_type} {selector}, {constant(kinds[0].type(k), width)}")
            result = self.add(f"select {vector_type('i1', width)} {is_case}, {vector} {case}, {vector} {result}")
        return result

    def _convert(self, old, new, width, x):
        """Convert between types."""
        old_kind, new_kind = scalar_type(old), scalar_type(new)
        old_vector, new_vector = vector_type(old_kind, width), vector_type(new_kind, width)
        is_float = old_kind in SUFFIXES, new_kind in SUFFIXES
        if old_kind == new_kind:
            return x
        if new_kind == "i1":
            zero = constant(old.type(0), width)
            return self.add(
                f"fcmp une {old_vector} {x}, {zero}" if is_float[0] else f"icmp ne {old_vector} {x}, {zero}"
            )
        if all(is_float):
            return self.add(f"{'fpext' if new.itemsize > old.itemsize else 'fptrunc'} {old_vector} {x} to {new_vector}")
        if is_float[0]:
            types = ".".join(t if width == 1 else f"v{width}{t}" for t in (new_kind, SUFFIXES[old_kind]))
            name = "fptosi.sat" if new.kind == "i" else "fptoui.sat"
            return self.intrinsic(name, types, new_vector, [(old_vector, x)])
        signed = old.kind == "i"
        if is_float[1]:
            return self.add(f"{'sitofp' if signed else 'uitofp'} {old_vector} {x} to {new_vector}")
        if old.kind != "b" and new.itemsize < old.itemsize:
            return self.add(f"trunc {old_vector} {x} to {new_vector}")
        return self.add(f"{'sext' if signed else 'zext'} {old_vector} {x} to {new_vector}")

    def _float_operation(self, name, parameters, kinds, kind, width, a):
        """Translate an operation on floating-point numbers."""
        vector, one = vector_type(kind, width), constant(kinds[0].type(1), width)
        op = lambda f, *x: self.add(f"{f} {vector} {', '.join(x)}")
        bool_vector = vector_type("i1", width)
        choose = lambda c, x, y: self.add(f"select {bool_vector} {c}, {vector} {x}, {vector} {y}")
        intrinsic = lambda f, *x: self.elementwise(f, kind, width, *x)
        if name in ("add", "sub", "mul", "div"):
            return op(f"f{name}", *a)
        if name in ("fma", "fms", "fnma"):
            x, y, z = a
            if name == "fms":
                z = op("fneg", z)
            elif name == "fnma":
                x = op("fneg", x)
            return intrinsic("fmuladd", x, y, z)  # one instruction if the processor has it
        if name == "neg":
            return op("fneg", a[0])
        if name == "round":
            if parameters["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
                return intrinsic("rint", a[0])
            half = constant(np.nextafter(kinds[0].type(0.5), kinds[0].type(0)), width)
            return intrinsic("trunc", op("fadd", a[0], intrinsic("copysign", half, a[0])))
        if name in ("floor", "ceil", "sqrt"):
            return intrinsic(name, a[0])
        if name == "abs":
            return intrinsic("fabs", a[0])
        if name == "rsqrt":
            return op("fdiv", one, intrinsic("sqrt", a[0]))
        if name == "square":
            return op("fmul", a[0], a[0])
        if name == "one_minus_square":
            return op("fmul", op("fsub", one, a[0]), op("fadd", one, a[0]))
        if name in ("exp", "log", "tanh", "logistic"):
            return self._elementary_function(name, kinds[0], kind, width, a[0])
        if name == "is_finite":
            return op("fcmp olt", intrinsic("fabs", a[0]), constant(kinds[0].type(np.inf), width))
        if name == "sign":
            signed = intrinsic("copysign", one, a[0])
            return choose(op("fcmp one", a[0], constant(kinds[0].type(0), width)), signed, a[0])
        if name in ("max", "min"):  # NaN if either operand is NaN
            larger = choose(op(f"fcmp {'ogt' if name == 'max' else 'olt'}", *a), *a)
            return choose(op("fcmp uno", a[0], a[0]), a[0], larger)
        if name == "integer_pow":
            return self._power(parameters["y"], lambda x, y: op("fmul", x, y), lambda x: op("fdiv", one, x), one, a[0])
        if name == "pow" and kinds[1] != kinds[0]:
            a = [a[0], self._convert(kinds[1], kinds[0], width, a[1])]
        if name in LIBRARY:
            return self.library(LIBRARY[name], kind, width, *a)
        raise Unsupported(f"{name} of numbers is not compiled")

    def _elementary_function(self, name, dtype, kind, width, x):
        """Compute exp, log, tanh or logistic by vector arithmetic."""
        ops = Arithmetic(self, dtype, kind, width, constant)
        if name == "tanh":
            return hyperbolic_tangent(ops, x)
        if name == "log":
            limits = np.finfo(dtype)
            normal = ops.compare("oge", x, float(limits.tiny)), ops.compare("ole", x, float(limits.max))
            is_normal = self.add(f"and {ops.truths} {normal[0]}, {normal[1]}")
            is_invalid = self.add(f"xor {ops.truths} {is_normal}, {constant(np.bool_(True), width)}")
            return self._with_fallback("log", kind, width, is_invalid, logarithm(ops, x), x)
        x = ops.neg(x) if name == "logistic" else x
        is_invalid = ops.compare("ugt", ops.elementwise("fabs", x), LARGEST_EXP[dtype.itemsize])
        exp_x = self._with_fallback("exp", kind, width, is_invalid, exponential(ops, x), x)
        return ops.div(1.0, ops.add(1.0, exp_x)) if name == "logistic" else exp_x

    def _power(self, y, multiply, invert, one, x):
        """Return x to an integer power by repeated squaring."""
        result, square, remaining = None, x, abs(y)
        while remaining:
            if remaining & 1:
                result = square if result is None else multiply(result, square)
            remaining >>= 1
            square = multiply(square, square) if remaining else square
        result = one if result is None else result
        return invert(result) if y < 0 else result

    def _bool_operation(self, name, vector, width, a):
        """Translate an operation on truth values."""
        names = {"or": "or", "and": "and", "max": "or", "min": "and", "add": "or", "mul": "and", "xor": "xor"}
        if name in names:
            return self.add(f"{names[name]} {vector} {a[0]}, {a[1]}")
        if name == "not":
            return self.add(f"xor {vector} {a[0]}, {constant(np.bool_(True), width)}")
        raise Unsupported(f"{name} of truth values is not compiled")

    def _integer_operation(self, name, parameters, dtype, kind, width, a):
        """Translate an operation on integers."""
        vector, bool_vector = vector_type(kind, width), vector_type("i1", width)
        op = lambda f, *x: self.add(f"{f} {vector} {', '.join(x)}")
        choose = lambda c, x, y: self.add(f"select {bool_vector} {c}, {vector} {x}, {vector} {y}")
        number = lambda x: constant(dtype.type(x), width)
        signed = dtype.kind == "i"
        ones = number(-1 if signed else np.iinfo(dtype).max)
        if name in ("add", "sub", "mul", "and", "or", "xor"):
            return op(name, *a)
        if name == "neg":
            return op("sub", number(0), a[0])
        if name == "not":
            return op("xor", a[0], ones)
        if name in ("max", "min"):
            return choose(op(f"icmp {'s' if signed else 'u'}{'gt' if name == 'max' else 'lt'}", *a), *a)
        if name == "abs":
            return choose(op("icmp slt", a[0], number(0)), op("sub", number(0), a[0]), a[0]) if signed else a[0]
        if name == "sign":
            positive = choose(op("icmp ne", a[0], number(0)), number(1), number(0))
            return choose(op("icmp slt", a[0], number(0)), number(-1), positive) if signed else positive
        if name == "square":
            return op("mul", a[0], a[0])
        if name == "population_count":
            return self.elementwise("ctpop", kind, width, a[0])
        if name == "clz":
            types = kind if width == 1 else f"v{width}{kind}"
            return self.intrinsic("ctlz", types, vector, [(vector, a[0]), ("i1", "false")])
        if name in SHIFTS:
            bits = 8 * dtype.itemsize
            is_valid = op("icmp ult", a[1], number(bits))
            count = choose(is_valid, a[1], number(0))
            overflow = op("ashr", a[0], number(bits - 1)) if SHIFTS[name] == "ashr" else number(0)
            return choose(is_valid, op(SHIFTS[name], a[0], count), overflow)
        if name in ("div", "rem"):
            return self._quotient(name, signed, op, choose, number, ones, *a)
        if name == "integer_pow" and parameters["y"] >= 0:
            return self._power(parameters["y"], lambda x, y: op("mul", x, y), None, number(1), a[0])
        raise Unsupported(f"{name} of whole numbers is not compiled")

    def _quotient(self, name, signed, op, choose, number, ones, a, b):
        """Divide integers without traps."""
        by_zero = op("icmp eq", b, number(0))
        divisor = choose(by_zero, number(1), b)
        if signed:  # the smallest integer divided by −1 overflows
            by_minus_one = op("icmp eq", b, number(-1))
            divisor = choose(by_minus_one, number(1), divisor)
            negated = op("sub", number(0), a)
        if name == "div":
            result = op("sdiv" if signed else "udiv", a, divisor)
            result = choose(by_minus_one, negated, result) if signed else result
            return choose(by_zero, ones, result)
        result = op("srem" if signed else "urem", a, divisor)
        result = choose(by_minus_one, number(0), result) if signed else result
        return choose(by_zero, a, result)


def _comparison(name, dtype):
    """Return the LLVM comparison of a JAX primitive."""
    if dtype in FLOATS:
        return f"fcmp {'une' if name == 'ne' else 'o' + name}"
    if name in ("eq", "ne"):
        return f"icmp {name}"
    return f"icmp {'s' if dtype.kind == 'i' else 'u'}{name}"
