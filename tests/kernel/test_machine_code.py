"""Each operation as machine code, alone and in batches of any size. An error here may crash the process."""

import math
import operator

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax

import ukjax as uk
from ukjax._kernel.graph.fold import ELEMENTWISE
from ukjax._kernel.llvm import machine

SIZES = 0, 1, 3, 8, 13, 100
INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
FLOATS = "float32", "float64"

EXACT = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "abs": abs,
    "sqrt": np.sqrt,
    "square": np.square,
    "floor": np.floor,
    "ceil": np.ceil,
    "rem": np.fmod,
    "nextafter": np.nextafter,
    "max": np.maximum,
    "min": np.minimum,
    "is_finite": np.isfinite,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
NEAR = {
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda x: np.where(x > 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x))),
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
OF_ONE = {"erf": math.erf, "erfc": math.erfc, "lgamma": lambda x: mpmath.loggamma(x).real}
OF_TWO = "add sub mul div rem max min eq ne lt le gt ge nextafter pow atan2".split()
ELSEWHERE = set(  # integers, booleans, more than two operands; other tests; names in newer versions of JAX
    "add_any and or xor not shift_left shift_right_logical shift_right_arithmetic population_count clz integer_pow "
    "select_n sign round sin cos one_minus_square".split()
)


@pytest.fixture(autouse=True)
def verified(monkeypatch):
    """LLVM verifies each text before it is compiled."""
    texts, compiled = [], machine._compiled

    def checked(text, target):
        texts.append(text)
        machine.llvm.parse_assembly(text).verify()
        return compiled(text, target)

    monkeypatch.setenv("UKJAX_CACHE", "")
    monkeypatch.setattr(machine, "_compiled", checked)
    return texts


def by_kernels(function, *arguments):
    """The results of a function of one member, which must be equal bitwise alone and in batches of any size."""
    one = uk.per_member(function, strict=True)
    batch = jax.jit(jax.vmap(one))
    members = len(arguments[0])
    found = jax.tree.map(np.asarray, batch(*arguments))
    for size in (n for n in SIZES if n < members):
        assert_same_bits(batch(*(x[:size] for x in arguments)), jax.tree.map(lambda x, n=size: x[:n], found))
    alone = jax.jit(one)
    for k in {*range(min(5, members)), *range(5, members, 1 + members // 30)}:
        assert_same_bits(alone(*(x[k] for x in arguments)), jax.tree.map(lambda x, k=k: x[k], found))
    return found


def assert_same_bits(found, expected):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
        if x.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0]))


def assert_near(found, expected, ulps=0, signs=True, label=""):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, label
    if found.dtype.kind != "f":
        return np.testing.assert_array_equal(found, expected, label)
    close = ulps * np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=close, atol=0, err_msg=label)
    if signs:
        np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]), label)


def specials(kind):
    """Extreme values of a type, and some values between them."""
    kind = np.dtype(kind)
    if kind.kind == "b":
        return np.array([False, True])
    if kind.kind != "f":
        i = np.iinfo(kind)
        return np.array(
            sorted({i.min, max(i.min, -7), max(i.min, -1), 0, 1, 2, 3, 7, 31, i.max // 2, i.max - 1, i.max}), kind
        )
    f = np.finfo(kind)
    ends = [
        np.nan,
        np.inf,
        f.max,
        f.tiny,
        0,
        0.25,
        0.5,
        0.49999999999999994,
        1,
        1.5,
        2,
        np.pi,
        7,
        30.25,
        1e10,
        2 / f.eps,
    ]
    return np.array([*ends, *(-x for x in ends)], kind)


def pairs(kind):
    return tuple(x.ravel() for x in np.meshgrid(specials(kind), specials(kind)))


def quietly(function, *arguments):
    with np.errstate(all="ignore"):
        return function(*arguments)


def without_poles(function, x):
    if math.isinf(x) and function is OF_ONE["lgamma"]:
        return math.inf
    try:
        return float(function(x))
    except (ValueError, OverflowError):
        return math.inf


def is_normal(x):
    """Whether a number is not denormal. XLA's threads take denormal numbers for 0, functions of the C library some of
    them."""
    return ~(np.abs(x) < np.finfo(x.dtype).tiny) | (x == 0)


def test_all_operations_are_tested_here():
    assert {*EXACT, *NEAR, *OF_ONE, *ELSEWHERE} == set(ELEMENTWISE)


@pytest.mark.parametrize("kind", FLOATS)
def test_operations_on_floats(kind):
    x, y = pairs(kind)

    def function(x, y):
        names = (*EXACT, *NEAR, *OF_ONE)
        return {name: getattr(lax, name)(*((x, y) if name in OF_TWO else (x,))) for name in names}

    found = by_kernels(function, x, y)
    for name in found:
        if name in OF_ONE:
            one = lambda value, of=OF_ONE[name]: without_poles(of, value)
            expected = quietly(lambda one=one: np.array(list(map(one, specials(kind).tolist())), kind))
            expected = np.tile(expected, len(expected))
        else:
            expected = quietly({**EXACT, **NEAR}[name], *((x, y) if name in OF_TWO else (x,)))
        ulps = 0 if name in EXACT else 4
        normal = is_normal(expected) if expected.dtype == x.dtype else np.full(x.shape, True)
        # max and min may return either of two zeros, as in IEEE 754.
        assert_near(found[name][normal], expected[normal], ulps, name not in ("max", "min"), name)


@pytest.mark.parametrize("kind", FLOATS)
def test_powers_rounding_and_selection_of_floats(kind):
    x, y = pairs(kind)

    def function(x, y):
        powers = {f"to the {k}": lax.integer_pow(x, k) for k in (-3, -2, -1, 0, 1, 2, 3, 4, 7, 11)}
        return {
            **powers,
            "sign": lax.sign(x),
            "round": lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
            "round to even": lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
            "clamp": lax.clamp(x.dtype.type(-1), x, x.dtype.type(2)),
            "chosen": lax.select_n(x > y, x, y),
            "number": lax.select_n(jnp.clip(x, 0, 2).astype("int32"), x, y, x * 2),
            "sin": lax.sin(x),
            "cos": lax.cos(x),
        }

    found, plain = by_kernels(function, x, y), jax.jit(jax.vmap(function))(x, y)
    for name in found:
        ulps = {"sin": 4, "cos": 4}.get(name, 8 if "to the" in name else 0)
        expected = np.asarray(plain[name])
        rest = is_normal(expected) & ((name not in ("sin", "cos")) | (np.abs(expected) > 1e-10) | (expected == 0))
        assert_near(found[name][rest], expected[rest], ulps, "to the" not in name, name)


@pytest.mark.parametrize("kind", FLOATS)
def test_sines_near_their_zeros_have_the_error_of_the_angle(kind):
    """The error is relative to the angle, not to the sine: the reduction uses about a hundred bits of π."""
    x = (np.pi / 2 * np.arange(1, 60)).astype(kind)
    found = by_kernels(lambda x: (lax.sin(x), lax.cos(x)), x)
    for values, expected in zip(found, (np.sin, np.cos), strict=True):
        np.testing.assert_allclose(values, expected(x.astype(float)), rtol=0, atol=np.finfo(kind).eps / 2)


@pytest.mark.parametrize(("name", "largest"), (("exp", 700), ("log", 600), ("tanh", 25)))
def test_exp_log_and_tanh_have_errors_below_one_and_a_half_ulp(rng, name, largest):
    """In float64 against more digits; in float32 against float64, at many more numbers."""
    x = np.concatenate([rng.uniform(-1, 1, 200) * largest, rng.normal(size=200), 0.01 * rng.normal(size=100)])
    x = np.concatenate([x, 0.625 + 0.01 * rng.uniform(-1, 1, 50), 1 + 1e-6 * rng.normal(size=50)])
    x = np.exp(x) if name == "log" else x
    function = lambda x: getattr(lax, name)(x)
    found = by_kernels(function, x)
    with mpmath.workdps(30):
        exact = [getattr(mpmath, name)(value) for value in x.tolist()]
        errors = [
            float(abs(mpmath.mpf(a) - b) / np.spacing(abs(float(b))))
            for a, b in zip(found.tolist(), exact, strict=True)
        ]
    assert max(errors) < 1.5
    y = np.concatenate([rng.uniform(-1, 1, 100_000) * min(largest, 80), rng.normal(size=100_000)])
    y = (np.exp(y) if name == "log" else y).astype("float32")
    found = np.asarray(jax.jit(jax.vmap(uk.per_member(function, strict=True)))(y))
    exact = getattr(np, name)(y.astype(float))
    assert np.max(np.abs(found - exact) / np.spacing(np.abs(exact).astype("float32"))) < 1.5


@pytest.mark.parametrize("kind", FLOATS)
def test_denormal_numbers_are_zero_as_in_xla(kind):
    tiny = np.finfo(kind).tiny
    x = np.array([tiny / 4, -tiny / 4, np.finfo(kind).smallest_subnormal, tiny, -tiny, 1.5 * tiny, 0, 1, np.inf], kind)
    x, y = (a.ravel() for a in np.meshgrid(x, x))

    def function(x, y):
        names = "add sub mul div eq ne lt le gt ge".split()
        return {name: getattr(lax, name)(x, y) for name in names} | {"sqrt": lax.sqrt(x), "floor": lax.floor(x)}

    assert_same_bits(by_kernels(function, x, y), jax.jit(jax.vmap(function))(x, y))


@pytest.mark.parametrize("kind", INTEGERS)
def test_operations_on_integers(kind):
    """Also division by 0, and of the smallest number by −1, as in XLA."""
    x, y = pairs(kind)

    def function(x, y):
        two = "add sub mul div rem max min eq ne lt le gt ge shift_left shift_right_logical shift_right_arithmetic"
        found = {name: getattr(lax, name)(x, y) for name in two.split()}
        found |= {name: getattr(lax, f"bitwise_{name}")(x, y) for name in ("and", "or", "xor")}
        found |= {name: getattr(lax, name)(x) for name in ("neg", "sign", "square", "population_count", "clz")}
        found |= {f"to the {k}": lax.integer_pow(x, k) for k in (0, 1, 2, 3, 5)}
        found |= {"abs": abs(x), "//": x // y, "%": x % y, "not": ~x}
        found |= {"clamp": lax.clamp(y, x, y), "chosen": lax.select_n(x > y, x, y)}
        case = jnp.minimum(x & 3, 2).astype("int32")
        return found | {"number": lax.select_n(case, x, y, x + y), "float": lax.pow(y.astype(float), x)}

    found, plain = by_kernels(function, x, y), jax.jit(jax.vmap(function))(x, y)
    for name in found:
        assert_near(found[name], np.asarray(plain[name]), 2048 if name == "float" else 0, label=name)
    with_numbers = uk.per_member(
        lambda: function(*map(jnp.asarray, (x, y))), strict=True
    )()  # known before the program runs
    for name in found:
        if name != "number":
            assert_near(np.asarray(with_numbers[name]), np.asarray(plain[name]), 2048, label=name)


@pytest.mark.parametrize("kind", ("bool", *INTEGERS, *FLOATS))
def test_conversions_between_types(kind):
    """A value out of range becomes the nearest number of the type, and NaN becomes 0."""
    x = specials(kind)
    if x.dtype.kind == "f":
        more = [127, 128, 255, 256, 65535, 65536, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 3e20]
        x = np.array([*x, *more, *(-k for k in more)], kind)
    function = lambda x: {to: lax.convert_element_type(x, to) for to in ("bool", *INTEGERS, *FLOATS)}
    found = by_kernels(function, x)
    assert_same_bits(found, jax.jit(jax.vmap(function))(x))
    assert_same_bits(uk.per_member(lambda: function(jnp.asarray(x)), strict=True)(), found)


def test_operations_on_booleans():
    x, y = pairs(bool)

    def function(x, y):
        found = {name: getattr(lax, f"bitwise_{name}")(x, y) for name in ("and", "or", "xor")}
        found |= {name: getattr(lax, name)(x, y) for name in "max min eq ne lt le gt ge".split()}
        return found | {"not": ~x, "chosen": lax.select_n(x, y, ~y), "sum": jnp.sum(jnp.stack([x, y, x]))}

    assert_same_bits(by_kernels(function, x, y), jax.jit(jax.vmap(function))(x, y))


def test_bits_of_numbers():
    x = specials("float64")
    function = lambda x: (jnp.signbit(x), jnp.copysign(2.0, x), jnp.frexp(x), lax.bitcast_convert_type(x, "uint64"))
    found, plain = by_kernels(function, x), jax.jit(jax.vmap(function))(x)
    assert_same_bits(found, plain)


@pytest.mark.parametrize("kind", FLOATS)
def test_sorts_and_cumulative_operations(rng, kind):
    x = rng.choice(np.array([np.nan, 1, 0, -0.0, -1, np.inf, -np.inf, 2], kind), (100, 5))
    k = rng.integers(-3, 3, (100, 5))

    def function(x, k):
        return {
            "sort": (jnp.sort(x), jnp.argsort(x), jnp.sort(x, descending=True), jnp.sort(x > 0), jnp.argsort(k)),
            "by two": lax.sort((k, x, jnp.arange(5)), num_keys=2),
            "columns": jnp.sort(x[:4].reshape(2, 2), axis=0),
            "median": jnp.median(x),
            "place": jnp.searchsorted(jnp.arange(5.0), x),
            "extremes": (lax.cummax(x), lax.cummin(x, reverse=True), lax.cummax(k), jnp.argmax(x)),
        }

    found, plain = by_kernels(function, x, k), jax.jit(jax.vmap(function))(x, k)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)
    z = rng.choice(np.array([np.nan, 0, np.inf, -np.inf, 700, -700, 1, 5], kind), (100, 5))
    sums = lambda x: (lax.cumsum(x), lax.cumprod(x), lax.cumlogsumexp(x))
    found, plain = by_kernels(sums, z), jax.jit(jax.vmap(sums))(z)
    for a, b in zip(found, plain, strict=True):
        assert_near(a, np.asarray(b), 16, signs=False)


@pytest.mark.parametrize("kind", ("float16", "bfloat16", "complex64"))
def test_unsupported_types_are_errors(kind):
    x = jnp.ones((3, 2), kind)
    with pytest.raises(ValueError, match=f"type {kind} are not compiled"):
        jax.jit(jax.vmap(uk.per_member(lambda x: x * x, strict=True)))(x)
    with pytest.raises(ValueError, match=rf"`convert_element_type` in .* type {kind} are not compiled"):
        jax.jit(jax.vmap(uk.per_member(lambda x: x.astype(kind) * x, strict=True)))(np.ones((3, 2)))
