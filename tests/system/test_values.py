"""Numbers in any form: in closures, as Python numbers, of mixed precision, invalid ones, and a model for each start."""

import functools
import math
from fractions import Fraction
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._jaxpr.closures import hoist_tracers
from ukjax._motion.inputs import canonicalise
from ukjax._parameters import Parameters
from ukjax._precision import as_real

from ..helpers import central_difference
from ..kernel.test_latency import compiling
from ..mechanisms import Pendulum

# --- traced numbers in closures ------------------------------------------------------------------------------------


class Plain:
    """An object that is not a pytree."""

    def __init__(self, g):
        self.g, self.inner = g, {"list": [g]}

    def potential(self, t, q):
        return self.g * q[1]

    def __call__(self, t, q):
        return self.inner["list"][0] * q[1]


class Leaf(eqx.Module):
    g: jax.Array

    def __call__(self, t, q):
        return self.g * q[1]


class Pair(NamedTuple):
    name: str
    value: Any


def recursive(g):
    def falling(t, q, times=2):
        return g * q[1] if times == 0 else falling(t, q, times - 1)

    return falling


def defaults(g):
    def potential(t, q, g=g, *, again=g):
        return (g + again) / 2 * q[1]

    return potential


def nested(g):
    weight = lambda height: g * height

    def potential(t, q):
        return weight(q[1])

    return potential


def with_an_empty_cell(g):
    def potential(t, q):
        return g * q[1] if True else never  # noqa: F821

    if g is None:
        never = 0  # noqa: F841
    return potential


HOLDERS = {
    "closure": lambda g: lambda t, q: g * q[1],
    "function in a function": nested,
    "itself": recursive,
    "an empty cell": with_an_empty_cell,
    "defaults": defaults,
    "list": lambda g: (lambda numbers: lambda t, q: numbers[1] * q[1])([1.0, g]),
    "named tuple in a dictionary": lambda g: (lambda held: lambda t, q: held["g"].value * q[1])({"g": Pair("g", g)}),
    "object": lambda g: (lambda held: lambda t, q: held.inner["list"][0] * q[1])(Plain(g)),
    "module": lambda g: (lambda held: lambda t, q: held(t, q))(Leaf(g)),
    "bound method": lambda g: Plain(g).potential,
    "callable object": Plain,
    "partial": lambda g: functools.partial(lambda g, t, q: g * q[1], g),
    "partial, by name": lambda g: functools.partial(lambda t, q, g: g * q[1], g=g),
    "jit": lambda g: jax.jit(lambda t, q: g * q[1]),
    "jit within": lambda g: (lambda inner: lambda t, q: inner(t, q))(jax.jit(lambda t, q: g * q[1])),
    "jit of a gradient": lambda g: (lambda slope: lambda t, q: slope(q[1]))(jax.jit(jax.grad(lambda y: g * y**2 / 2))),
    "gradient": lambda g: (lambda slope: lambda t, q: slope(q[1]))(jax.grad(lambda y: g * y**2 / 2)),
    "vmap": lambda g: (lambda each: lambda t, q: each(q)[1])(jax.vmap(lambda y: g * y)),
}
AT = jnp.array([2.0, 3.0])


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_traced_number_in_any_kind_of_function_becomes_a_leaf(holder):
    """The new function depends on the number only through its leaves."""

    def apart(g):
        function = hoist_tracers(holder(g))
        leaves, rest = eqx.partition(function, eqx.is_array)
        fixed = eqx.combine(jax.tree.map(jax.lax.stop_gradient, leaves), rest)
        return function(0.0, AT), fixed(0.0, AT)

    whole, fixed = jax.jacrev(apart)(9.81)
    assert float(whole) == float(AT[1]) and float(fixed) == 0.0
    np.testing.assert_allclose(jax.vmap(apart)(jnp.array([1.0, 2.0]))[0], [3.0, 6.0], rtol=1e-15)


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_functions_of_concrete_numbers_are_not_changed(holder):
    function = holder(9.81)
    assert hoist_tracers(function) is function


def test_objects_without_traced_numbers_are_not_changed():
    counted = []

    def with_other(g, other):
        return lambda t, q: counted.append(0) or g * q[1] * other.value

    def loss(g):
        other = Pair("other", 1.0)
        function = hoist_tracers(with_other(g, other))
        return function(0.0, AT)

    assert float(jax.grad(loss)(1.0)) == 3.0 and len(counted) == 1


def held(numbers):
    """A driven pendulum with friction, with all its numbers in closures."""
    mass, length, gravity, friction, gain = numbers

    class Law:
        gain: Any = None

        def force(self, t, q, v):
            return -self.gain * v[:1]

    law = Law()
    law.gain = gain
    return uk.System(
        uk.Lagrangian(
            functools.partial(lambda mass, t, q, v: mass * v @ v / 2, mass), lambda t, q: mass * gravity * q[1]
        ),
        uk.Holonomic(lambda t, q: (q @ q - length**2) / 2, name="rod"),
        nonideal=lambda t, q, v: -friction * v,
        control=uk.control.Feedback(jnp.array([[1.0], [0.0]]), law.force),
    )


class Fields(uk.AbstractSystem):
    """The same pendulum with its numbers as a field."""

    numbers: jax.Array

    @property
    def whole(self):
        return held(self.numbers)

    dynamics = property(lambda self: self.whole.dynamics)
    constraints = property(lambda self: self.whole.constraints)
    nonideal = property(lambda self: self.whole.nonideal)
    control = property(lambda self: self.whole.control)


EYE, DOWN, ROW = np.eye(2), np.array([0.0, -9.81]), np.array([[1.0, 1.0]])
NUMBERS = jnp.array([1.2, 1.0, 9.81, 0.1, 0.3])
LEVEL, REST = [-1.0, 0.0], [0.0, 0.0]


def last(system, **how):
    """The height of the pendulum after 0.5 s."""
    return uk.simulate(system, LEVEL, REST, [0.0, 0.5], drift="none", throw=False, **how).q[-1, 1]


def by_field(numbers, **how):
    return last(Fields(numbers), **how)


WAYS = {
    "gradient": jax.grad,
    "forward": jax.jacfwd,
}


@pytest.mark.parametrize(
    ("way", "how"),
    (
        ("gradient", {}),
        ("gradient", {"dt": 0.02}),
        pytest.param("forward", {"dt": 0.02}, marks=pytest.mark.slow),
    ),
    ids=lambda x: x if isinstance(x, str) else "dt" if x else "adaptive",
)
def test_derivatives_by_numbers_in_closures_match_those_by_fields(way, how, slope_by_differences):
    slope = WAYS[way](lambda numbers: last(held(numbers), **how))(NUMBERS)
    np.testing.assert_allclose(slope, slope_by_differences, rtol=0, atol=2e-6)
    np.testing.assert_allclose(slope, slope_of_fields(how.get("dt")), rtol=0, atol=1e-7)


@functools.cache
def slope_of_fields(dt):
    return jax.grad(lambda numbers: by_field(numbers, dt=dt))(NUMBERS)


@pytest.fixture(scope="module")
def slope_by_differences():
    """With a step of 1e-4 the error is 1e-8 times third derivatives of at most a hundred."""
    return central_difference(lambda x: by_field(jnp.asarray(x), dt=0.01), np.asarray(NUMBERS), 1e-4)


def test_derivative_by_number_in_closure_of_a_function_as_model():
    """Free fall in one coordinate: q = −g t²/2, so ∂q/∂g = −1/2 at one second."""
    model = lambda g: lambda t, q, v: uk.Terms(jnp.eye(1), -g * jnp.ones(1), jnp.zeros((0, 1)), jnp.zeros(0))
    fallen = lambda g: uk.simulate(model(g), [0.0], [0.0], [0.0, 1.0]).q[-1, 0]
    np.testing.assert_allclose(jax.grad(fallen)(9.81), -0.5, rtol=1e-9)


def test_derivative_by_number_in_closure_of_an_event():
    """The height h is passed at t = √(2 (1 − h)/g), and ∂v/∂h = g/√(2 g (1 − h)) there."""
    model = uk.System(uk.MassForce([[1.0]], [-9.81]))

    def speed(h):
        motion = uk.simulate(model, [1.0], [0.0], [0.0, 1.0], event=lambda t, q, v: q[0] - h)
        return motion.last[2][0]

    np.testing.assert_allclose(jax.grad(speed)(0.5), 9.81 / np.sqrt(9.81), rtol=1e-7)


def rod(l):
    return uk.System(uk.MassForce(EYE, DOWN), uk.Holonomic(lambda t, q: q @ q - l**2))


def driven(g):
    return uk.System(uk.MassForce(EYE, lambda t, q, v: jnp.array([0, -g])), uk.Holonomic(lambda t, q: q @ q - 1))


def falling(g):
    return uk.System(uk.MassForce([[1.0]], lambda t, q, v: -g))


DOORS_OF_HELD = {  # a function of a number in a closure, and its derivative by hand
    "project": (lambda l: uk.project(rod(l), 0.0, [-2.0, 0.0], REST)[0][0], -1.0),  # (−l, 0) is nearest to (−2, 0)
    "acceleration": (lambda g: uk.constrained_motion(driven(g)(0.0, LEVEL, REST)).acceleration[1], -1.0),  # (0, −g)
    "step": (lambda g: uk.step(falling(g), uk.initial_state(falling(g), [0.0], [0.0]), 0.1).q[0], -0.005),  # −g h²/2
    "observation": (lambda g: uk.simulate(falling(g), [0.0], [0.0], [0.0, 0.1], dt=0.1).acceleration[-1, 0], -1.0),
}


@pytest.mark.parametrize("door", DOORS_OF_HELD)
def test_all_entry_points_have_derivatives_by_numbers_in_closures(door):
    function, slope = DOORS_OF_HELD[door]
    np.testing.assert_allclose(jax.grad(function)(1.5), slope, rtol=1e-10)


@pytest.mark.parametrize(
    "door", [pytest.param(door, marks=pytest.mark.slow) for door in ("acceleration", "step", "observation")]
)
def test_all_entry_points_accept_batches_of_models(door):
    function, slope = DOORS_OF_HELD[door]
    values = jax.vmap(function)(jnp.array([1.0, 1.5]))
    np.testing.assert_allclose(values, [slope, 1.5 * slope], rtol=1e-10)  # all are linear in the number


@pytest.mark.parametrize("ts", (jnp.array([0.0, 0.1]), np.array([0.0, 0.1]), [0.0, 0.1]), ids=("jnp", "numpy", "list"))
def test_times_from_outside_of_jit_are_concrete(ts):
    """A free body with velocity v: q = v t. The times are not traced."""
    body = uk.System(uk.MassForce([[1.0]], [0.0]))
    moved = lambda v: uk.simulate(body, [0.0], jnp.array([1.0]) * v, ts, dt=0.05).q[-1, 0]
    for value in (jax.jit(moved)(1.0), jax.jit(jax.grad(moved))(1.0), jax.vmap(moved)(jnp.ones(1))[0]):
        np.testing.assert_allclose(value, 0.1, rtol=1e-12)


def test_invalid_times_under_jit_are_an_error():
    body, ts = uk.System(uk.MassForce([[1.0]], [0.0])), jnp.array([1.0, 0.0])
    with pytest.raises(ValueError, match="^ts must increase strictly"):
        jax.jit(lambda v: uk.simulate(body, [0.0], v, ts).q)(jnp.ones(1))


def test_error_for_forward_mode_with_other_adjoint_names_forward_adjoint():
    fallen = lambda g, **how: uk.simulate(
        uk.System(uk.MassForce([[1.0]], lambda t, q, v: -g * jnp.ones(1))), [0.0], [0.0], [0.0, 1.0], **how
    ).q[-1, 0]
    with pytest.raises(
        ValueError, match=r"adjoint=RecursiveCheckpointAdjoint\(\) is for .*adjoint=diffrax.ForwardMode"
    ):
        jax.jacfwd(lambda g: fallen(g, adjoint=dfx.RecursiveCheckpointAdjoint()))(9.81)


# --- precision -----------------------------------------------------------------------------------------------------


def single(x):
    return jnp.asarray(x, jnp.float32)


def body(M, Q, A):
    return uk.System(uk.MassForce(M, Q), uk.Pfaffian(A))


MODELS = {  # with their precision: none, float32 or float64
    "numbers": (body([[1, 0], [0, 1]], lambda t, q, v: [0.0, -9.81], lambda t, q: [[1, 1]]), None),
    "double leaves": (body(EYE, DOWN, ROW), "float64"),
    "single leaves": (body(single(EYE), single(DOWN), single(ROW)), "float32"),
    "mixed leaves": (body(single(EYE), DOWN, single(ROW)), "float64"),
    "single functions": (body(lambda t, q: single(EYE), lambda t, q, v: single(DOWN), single(ROW)), "float32"),
    "double functions": (body(lambda t, q: EYE, lambda t, q, v: DOWN, lambda t, q: ROW), "float64"),
    "mixed functions": (body(lambda t, q: EYE, lambda t, q, v: single(DOWN), lambda t, q: ROW), "float64"),
    "single terms": (lambda t, q, v: uk.Terms(single(EYE), single(DOWN), single(ROW), single([0.0])), "float32"),
    "double terms": (lambda t, q, v: uk.Terms(EYE, DOWN, ROW, np.zeros(1)), "float64"),
    "mixed terms": (lambda t, q, v: uk.Terms(single(EYE), DOWN, single(ROW), [0]), "float64"),
}


@pytest.mark.parametrize("start", (jnp.float32, jnp.float64, int))
@pytest.mark.parametrize("name", MODELS)
def test_widest_precision_is_used(name, start):
    """Down an incline of 45°: q̈ = (g, −g)/2."""
    model, asked = MODELS[name]
    # Lists of whole numbers, as M and A of the first model, are of JAX's default precision, as q0 is.
    wide = "float32" if start == jnp.float32 and asked == "float32" else "float64"
    model, q, v, t = canonicalise(model, as_real("q0", jnp.zeros(2, start)), single([0, 0]), jnp.zeros(3))
    assert {q.dtype, v.dtype, t.dtype} == {np.dtype(wide)}
    assert all(x.dtype == wide for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


@pytest.mark.parametrize(("name", "start"), (("single functions", jnp.float64), ("mixed terms", jnp.float32)))
def test_a_motion_of_mixed_precision(name, start):
    model, asked = MODELS[name]
    start = jnp.zeros(2, start)
    wide = "float64" if start.dtype == np.float64 else asked
    motion = uk.simulate(model, start, start, [0.0, 0.1], rtol=1e-5)
    assert {motion.t.dtype, motion.q.dtype, motion.v.dtype} == {np.dtype(wide)}
    np.testing.assert_allclose(motion.q[-1], [9.81 / 400, -9.81 / 400], rtol=1e-5)
    after = uk.step(model, uk.initial_state(model, start, start), 0.1)
    assert after.q.dtype == wide
    np.testing.assert_allclose(after.q, motion.q[-1], rtol=1e-5)


# --- invalid numbers -----------------------------------------------------------------------------------------------

KINDS = "must be real numbers in float32 or float64, got "
NO_NUMBERS = "must be a number, an array or a list of numbers, got "
BAD = {
    "complex": ([1j, 0.0], KINDS + "complex128"),
    "half": (jnp.zeros(2, jnp.float16), KINDS + "float16"),
    "text": ("ab", NO_NUMBERS + "str 'ab'"),
    "texts": (["one", "two"], NO_NUMBERS + r"list \['one', 'two'\]"),
    "a hole": (np.array([None, 1.0], object), NO_NUMBERS + "ndarray"),
    "ragged": ([[1.0], [1.0, 2.0]], NO_NUMBERS + "list"),
    "dates": (np.array(["2020-01-01"] * 2, "M8[D]"), NO_NUMBERS + "ndarray"),
    "key": (jax.random.key(0), NO_NUMBERS),
    "masked": (np.ma.array([1.0, 2.0], mask=[False, True]), "has masked entries: fill them"),
}
OF_NO_SUCH_TYPE = {  # as type checkers see it
    "None": (None, NO_NUMBERS + "NoneType None"),
    "dictionary": ({"x": 1.0}, NO_NUMBERS + "dict"),
    "function": (abs, NO_NUMBERS + "builtin_function_or_method"),
    "set": ({1.0}, NO_NUMBERS + "set"),
}
FALL = uk.System(uk.MassForce(EYE, DOWN))
DOORS = {
    "q0": (lambda x: uk.simulate(FALL, x, REST, [0.0, 1.0]), "q0"),
    "v0": (lambda x: uk.simulate(FALL, REST, x, [0.0, 1.0]), "v0"),
    "ts": (lambda x: uk.simulate(FALL, REST, REST, x), "ts"),
    "dt": (lambda x: uk.simulate(FALL, REST, REST, [0.0, 1.0], dt=x), "dt"),
    "rtol": (lambda x: uk.simulate(FALL, REST, REST, [0.0, 1.0], rtol=x), "rtol"),
    "project": (lambda x: uk.project(FALL, 0.0, x, REST), "q0"),
    "time": (lambda x: uk.project(FALL, x, REST, REST), "t"),
    "start": (lambda x: uk.initial_state(FALL, REST, x), "v0"),
    "step": (lambda x: uk.step(FALL, uk.initial_state(FALL, REST, REST), x), "dt"),
    "system": (lambda x: FALL(0.0, x, REST), "q"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("door", DOORS)
def test_error_for_invalid_number_names_the_argument(door, kind):
    ask, name = DOORS[door]
    value, _ = BAD[kind]  # ``tests/mistakes`` has the messages
    with pytest.raises(ValueError, match=f"^{name} must "):
        ask(value)


@pytest.mark.parametrize("kind", (*OF_NO_SUCH_TYPE, *BAD))
def test_invalid_numbers_in_models_are_errors(kind):
    value, reason = (OF_NO_SUCH_TYPE | BAD)[kind]
    with pytest.raises(ValueError, match=f"^q0 {reason}"):
        as_real("q0", value)
    if kind not in ("half", "complex"):  # for which the error is that of Terms
        with pytest.raises(ValueError, match="^force must return numbers, got "):
            uk.System(uk.MassForce(EYE, lambda t, q, v: value))(0.0, REST, REST)


@pytest.mark.parametrize(
    ("ask", "message"),
    (
        (lambda: uk.simulate(FALL, np.zeros((0, 2)), REST, [0.0, 1.0]), r"^q0 must .* one start, got shape \(0, 2\)"),
        (lambda: uk.initial_state(FALL, np.zeros((0, 2)), REST), r"^q0 must have at least one start"),
        (lambda: uk.simulate(FALL, [np.nan, 0.0], REST, [0.0, 1.0]), r"^q0 must be finite, got q0\[0\] = nan"),
        (lambda: uk.simulate(FALL, REST, REST, [0.0, 1.0], dt=[0.1, 0.1]), r"^dt must be one number"),
        (lambda: uk.step(FALL, uk.initial_state(FALL, REST, REST), [0.1, 0.1]), r"^dt must be one number"),
        (lambda: uk.project(FALL, [0.0, 1.0], REST, REST), r"^t must be one number"),
    ),
)  # fmt: skip
def test_numbers_of_the_wrong_shape_are_errors(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


@pytest.mark.parametrize(
    "q0",
    (
        [-1, 0],
        (True, False),
        np.array([1, 0], np.uint8),
        [np.float64(1), np.float32(0)],
        [jnp.array(1.0), 0],
        np.array([1.0, 0.0], object),
        [Fraction(1), Fraction(0)],
        np.array([1, 0], np.longdouble),
        np.ma.array([1.0, 0.0]),
        range(2),
    ),
)
def test_all_forms_of_real_numbers_are_accepted(q0):
    placed, _ = uk.project(FALL, 0, q0, REST)
    assert placed.dtype == np.float64
    np.testing.assert_array_equal(placed, np.asarray([float(x) for x in q0]))


# --- Python numbers in a model -------------------------------------------------------------------------------------


class Swing(uk.AbstractSystem):
    """A pendulum with its angle as coordinate and Python numbers as fields."""

    g: float = 9.81
    count: int = 2
    exact: bool = True
    constraints = ()  # pyright: ignore

    @property
    def dynamics(self):
        sine = jnp.sin if self.exact else lambda q: q
        return uk.MassForce([[1.0]], lambda t, q, v: -self.g * sum(sine(q) for _ in range(self.count)) / self.count)


class Tilted(Swing):
    tilt: float = 0.1

    @property
    def dynamics(self):
        return uk.MassForce([[1.0]], lambda t, q, v: -self.g * math.cos(self.tilt) * jnp.sin(q))


class Fixed(Tilted):
    tilt: float = eqx.field(default=0.1, static=True)


def motions(model, **how):
    state = uk.step(model, uk.initial_state(model, [1.0], [0.0]), 0.1)
    return uk.simulate(model, [1.0], [0.0], [0.0, 0.1], **how).q[-1], uk.project(model, 0.0, [1.0], [0.0]), state.q


@pytest.mark.parametrize("how", ({}, {"dt": 0.02}), ids=("adaptive", "even steps"))
@pytest.mark.parametrize("of_class", (Swing, Fixed))
def test_another_float_of_a_model_compiles_nothing(of_class, how):
    motions(of_class(), **how)
    with compiling() as programs:
        found = motions(of_class(g=1.62), **how)
    assert not programs
    np.testing.assert_allclose(found[0], found[2], rtol=1e-5)
    np.testing.assert_allclose(found[0], 1 - 1.62 * np.sin(1) * 0.1**2 / 2, atol=1e-4)


def test_integers_and_booleans_of_a_model_are_not_converted():
    model = canonicalise(Swing(), jnp.ones(1), jnp.ones(1), jnp.zeros(2))[0]
    assert isinstance(model.g, jax.Array) and model.count == 2 and model.exact is True


def test_float_needed_as_a_python_number_is_not_converted_with_a_warning():
    with pytest.warns(
        UserWarning, match=r"^Tilted\.\w+ is a Python number that JAX cannot trace, .*equinox.field\(static"
    ):
        model = canonicalise(Tilted(), jnp.ones(1), jnp.ones(1), jnp.zeros(2))[0]
    assert type(model.g) is type(model.tilt) is float


def test_float_of_a_model_is_a_parameter():
    parameters = Parameters.of(Swing(), "g")
    assert float(parameters.put(Swing(), jnp.array([np.log(2.0)])).g) == pytest.approx(19.62)


# --- a model for each start ----------------------------------------------------------------------------------------

LENGTHS = jnp.array([0.5, 1.0, 1.5])
MANY = Pendulum(mass=jnp.ones(3), length=LENGTHS, alpha=jnp.zeros(3), beta=jnp.zeros(3))
STARTS = jnp.stack([-LENGTHS, jnp.zeros(3)], axis=-1)


@pytest.mark.parametrize(
    "ask",
    (
        lambda: uk.simulate(MANY, STARTS, jnp.zeros((3, 2)), [0.0, 0.1]),
        lambda: uk.simulate(MANY, STARTS, jnp.zeros((3, 2)), [0.0, 0.1], dt=0.01),
        lambda: uk.simulate(MANY, STARTS, jnp.zeros((3, 2)), [0.0, 0.1], drift="none"),
        lambda: uk.initial_state(MANY, STARTS, jnp.zeros((3, 2))),
    ),
    ids=("adaptive", "dt", "none", "start"),
)
def test_error_for_batch_of_models_shows_filter_vmap(ask):
    with pytest.raises(ValueError, match=r"The model's mass has shape \(3,\), and there are 3 starts: .*filter_vmap\("):
        ask()


def test_other_errors_in_a_batch_do_not_mention_filter_vmap():
    with pytest.raises(ValueError, match=r"^the model has 2 coordinates \(x, y\), but q0 has shape \(3, 3\)$"):
        uk.simulate(Pendulum(), jnp.zeros((3, 3)), jnp.zeros((3, 3)), [0.0, 0.1])


def test_filter_vmap_over_models_and_starts_matches_single_motions():
    """With the line of code that the error shows."""
    run = lambda model, q0, v0, **how: uk.simulate(model, q0, v0, [0.0, 0.1], dt=0.01, **how)
    motion = eqx.filter_vmap(lambda *given: run(*given).with_observation())(MANY, STARTS, jnp.zeros((3, 2)))
    assert motion.finished.all() and np.abs(motion.energy).max() < 1e-9 and np.abs(motion.residual).max() < 1e-12
    for i, length in enumerate(LENGTHS):
        alone = run(Pendulum(length=length), STARTS[i], jnp.zeros(2))
        np.testing.assert_allclose(motion.q[i], alone.q, rtol=0, atol=1e-13)
    unseen = eqx.filter_vmap(run)(MANY, STARTS, jnp.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"mass has shape \(3,\).*with_observation"):
        unseen.energy  # noqa: B018
