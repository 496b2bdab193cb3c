"""Errors for invalid input give the argument, the value that was seen, the requirement, and what to do."""

import json
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._check import check_function
from ukjax._check_terms import check_terms, check_unique
from ukjax._jaxpr.tracing import is_concrete

GOOD = {"M": np.eye(2), "Q": np.zeros(2), "A": np.array([[1.0, 0.0]]), "b": np.zeros(1)}
STATE = tuple(map(jnp.asarray, (0.0, np.ones(2), np.ones(2))))


def terms(**changes):
    return uk.Terms(**{name: np.asarray(value) for name, value in (GOOD | changes).items()})


def refused(message):
    return pytest.raises(ValueError, match=message)


# --- Terms: shapes and kinds, always -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    (
        ("Q", np.zeros((2, 1)), r"^Q must be a vector of shape \(n,\), got shape \(2, 1\)"),
        ("M", np.eye(3), r"^M must have shape \(2, 2\) to go with Q of shape \(2,\), got shape \(3, 3\)"),
        ("M", np.ones(2), r"^M must have shape \(2, 2\) .* got shape \(2,\)"),
        ("A", np.ones((1, 3)), r"^A must have shape \(m, 2\), one row per constraint .* got shape \(1, 3\)"),
        ("A", np.ones(2), r"^A must have shape \(m, 2\), .* got shape \(2,\)"),
        ("b", np.zeros(2), r"^b must have shape \(1,\), one entry per row of A, got shape \(2,\)"),
        ("c", np.zeros(3), r"^c must have shape \(2,\), a force per coordinate like Q, got shape \(3,\)"),
        ("M", 1j * np.eye(2), r"^M must be numbers, real and in float32 or float64, got complex128"),
        ("b", np.zeros(1, np.complex64), r"^b must be numbers, real and in float32 or float64, got complex64"),
    ),
)
def test_terms_of_wrong_shape_or_kind_are_errors(field, value, message):
    with refused(message):
        terms(**{field: value})
    with refused(message):  # shapes are known under jit as well
        jax.jit(lambda x: terms_traced(field, x))(value)


def terms_traced(field, value):
    return uk.Terms(**(GOOD | {field: value}))


def test_half_precision_is_an_error():
    with refused(r"^M must be numbers, real and in float32 or float64, got float16"):
        uk.Terms(**{name: jnp.asarray(value, jnp.float16) for name, value in GOOD.items()})


def test_integers_are_converted_to_floats():
    assert terms(M=np.eye(2, dtype=int), Q=np.array([1, 2])).M.dtype == jnp.float64


# --- values, where they are known ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    (
        ("M", np.array([[1.0, np.nan], [0.0, 1.0]]), r"^M is not finite: M\[0, 1\] = nan\. Look for a division"),
        ("Q", np.array([0.0, np.inf]), r"^Q is not finite: Q\[1\] = inf"),
        ("A", np.array([[-np.inf, 0.0]]), r"^A is not finite: A\[0, 0\] = -inf"),
        ("b", np.array([np.nan]), r"^b is not finite: b\[0\] = nan"),
        ("c", np.array([np.nan, 0.0]), r"^c is not finite: c\[0\] = nan"),
        ("M", np.array([[1.0, 0.5], [0.0, 1.0]]), r"^M must be symmetric: M\[0, 1\] = 0\.5 but M\[1, 0\] = 0\. A mass"),
        (
            "M",
            np.diag([1.0, -2.0]),
            r"^M must be positive semidefinite: M\[1, 1\] = -2, the mass of q\[1\], is negative\. Check the signs",
        ),
        (
            "M",
            np.array([[1.0, 2.0], [2.0, 1.0]]),
            r"^M must be positive semidefinite: its smallest eigenvalue is -1, most of it along q\[\d\]\. Check",
        ),
        ("M", np.diag([1e6, -1e-6]), r"^M must be positive semidefinite: M\[1, 1\] = -1e-06, the mass of q\[1\]"),
    ),
)
def test_invalid_values_are_errors(field, value, message):
    bad = terms(**{field: value})
    with refused(message):
        uk.constrained_motion(bad)
    with refused(message.replace(":", " at t = 3 s:", 1).lstrip("^")):
        check_terms(bad, " at t = 3 s")


@pytest.mark.parametrize("heavy", (1.0, 1e3, 1e9))
@pytest.mark.parametrize("method", ("orthogonal", "sparse"))
def test_symmetry_does_not_depend_on_the_unit_of_another_coordinate(heavy, method):
    """Entries 1e-6 and 0 with moments of inertia of 2e-6, for any mass along another coordinate."""
    M = np.diag([heavy, 2e-6, 2e-6])
    M[1, 2] = 1e-6
    lopsided = uk.Terms(M, [heavy, 2e-6, 2e-6], np.zeros((1, 3)), [0.0])
    with refused(r"^M must be symmetric: M\[1, 2\] = 1e-06 but M\[2, 1\] = 0"):
        uk.constrained_motion(lopsided)
    sure = uk.Sparse.of((M + M.T, np.zeros((1, 3)))) if method == "sparse" else method
    traced = jax.jit(lambda x: uk.constrained_motion(x, sure).acceleration)
    assert not np.isfinite(traced(lopsided)).any()
    both = eqx.tree_at(lambda x: x.M, lopsided, jnp.asarray(M + M.T - np.diag(np.diag(M))))
    np.testing.assert_allclose(traced(both), [1.0, 2 / 3, 2 / 3], rtol=1e-12)
    np.testing.assert_allclose(uk.constrained_motion(both).acceleration, [1.0, 2 / 3, 2 / 3], rtol=1e-12)


def test_a_weight_may_have_entries_in_different_units():
    """Of a motor [N m] and a cylinder [N]: positive and symmetric relative to the sizes of both entries."""
    weight = np.array([[1e9, 1e-1], [1e-1, 1e-8]])
    with refused(r"^weight must be positive.* got one whose smallest eigenvalue is"):
        uk.control.Servo(np.eye(2), uk.Holonomic(lambda t, q: q[0]), weight=weight * [[1.0, 40.0], [40.0, 1.0]])
    with refused(r"^weight must be positive.* got one that is not symmetric"):
        uk.control.Servo(np.eye(2), uk.Holonomic(lambda t, q: q[0]), weight=weight * [[1.0, 1.0], [2.0, 1.0]])
    uk.control.Servo(np.eye(2), uk.Holonomic(lambda t, q: q[0]), weight=weight)


@pytest.mark.parametrize("method", ("cholesky", "kkt"))
def test_errors_for_terms_in_float32(method):
    row_of_zeros = terms(M=np.eye(2, dtype=np.float32), A=np.zeros((1, 2)), b=np.zeros(1))
    row_of_zeros = jax.tree.map(lambda x: x.astype(np.float32), row_of_zeros)
    with refused(f"^method '{dict(cholesky='Cholesky', kkt='KKT')[method]}' needs independent rows"):
        uk.constrained_motion(row_of_zeros, method)
    with refused("^the motion is not unique"):
        uk.constrained_motion(jax.tree.map(jnp.zeros_like, row_of_zeros), method)


def test_rounding_errors_of_mass_matrix_are_accepted():
    check_terms(terms(M=np.array([[1.0, 1.0], [1.0 + 1e-12, 1.0 - 1e-12]])))
    check_terms(terms(M=np.zeros((2, 2))))


@pytest.mark.parametrize(
    ("M", "A", "method", "message"),
    (
        (
            np.diag([1.0, 0.0]),
            [[1.0, 0.0]],
            "orthogonal",
            r"^the motion is not unique: rank \[M; A\] = 1, but .* n = 2 .* here that of q\[1\], must be fixed",
        ),
        (np.zeros((2, 2)), [[1.0, 1.0]], "svd", r"^the motion is not unique: rank \[M; A\] = 1, .*add the missing row"),
        (np.eye(2), [[1.0, 0.0]] * 2, "cholesky", r"^method 'Cholesky' needs independent rows: A has 2 rows of rank 1"),
        (np.eye(2), [[1.0, 0.0]] * 2, "kkt", r"^method 'KKT' needs independent rows: .*default method 'orthogonal'"),
        (np.diag([1.0, 0.0]), [[0.0, 1.0]], "cholesky", r"^method 'Cholesky' found no finite .*positive definite M"),
    ),
)
def test_error_explains_why_motion_does_not_exist(M, A, method, message):
    without = terms(M=M, A=A, b=np.zeros(len(A)))
    with refused(message):
        uk.constrained_motion(without, method)
    traced = jax.jit(lambda x: uk.constrained_motion(x, method).acceleration)(without)
    assert not np.isfinite(traced).all()


def test_error_for_motion_that_does_not_exist_gives_time():
    with refused(r"^the motion is not unique at t = 3 s: rank"):
        check_unique(terms(M=np.zeros((2, 2))), np.full(2, np.nan), "Any", " at t = 3 s")


def test_finite_motion_passes_check_of_uniqueness():
    check_unique(terms(M=np.zeros((2, 2))), np.zeros(2), "Any")


def test_invalid_mass_matrix_under_jit_and_vmap_gives_nan():
    """Traced values are not checked. Only the member with the invalid matrix is NaN."""
    sound, lopsided = terms(M=np.array([[1.0, 0.25], [0.25, 1.0]])), terms(M=np.array([[1.0, 0.5], [0.0, 1.0]]))
    negative = terms(M=np.diag([1.0, -1.0]))
    for bad in lopsided, negative:
        assert np.isnan(jax.jit(uk.constrained_motion)(bad).acceleration).all()
        many = jax.vmap(uk.constrained_motion)(jax.tree.map(lambda x, y: jnp.stack([x, y]), bad, sound))
        np.testing.assert_array_equal(np.isfinite(many.acceleration), [[False, False], [True, True]])
    slope = jax.grad(lambda x: uk.constrained_motion(x).acceleration.sum())(sound)
    assert np.isfinite(slope.Q).all()


def test_traced_values_are_not_concrete():
    seen, concrete = [], terms()
    jax.jit(lambda x: seen.append((is_concrete(x), is_concrete(concrete), is_concrete({"a": [x, 1.0]}))))(1.0)
    assert seen == [(False, True, False)]
    assert is_concrete(1.0, np.zeros(2), terms())


# --- functions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", (lambda t, q: 0, lambda *x: 0, lambda t, q, v=0: 0, max, jnp.add))
def test_functions_with_suitable_arguments_are_accepted(function):
    check_function("phi", function, "t, q")


@pytest.mark.parametrize(
    ("make", "message"),
    (
        (lambda: check_function("phi", 3.0, "t, q"), r"^phi must be a function phi\(t, q\), got 3\.0"),
        (lambda: uk.Holonomic(lambda q: q), r"^phi must take \(t, q\), got a function of \(q\)"),
        (lambda: uk.Nonholonomic(lambda t, q: q), r"^psi must take \(t, q, v\), got a function of \(t, q\)"),
        (lambda: uk.Pfaffian(lambda q: q), r"^A must take \(t, q\), got a function of \(q\)"),
        (lambda: uk.Pfaffian(np.ones(2), lambda t, q, v: 0), r"^c must take \(t, q\), got a function of \(t, q, v\)"),
        (
            lambda: uk.AccelerationConstraint(lambda t, q: q, 0.0),
            r"^A must take \(t, q, v\), got a function of \(t, q\)",
        ),
        (lambda: uk.AccelerationConstraint([1.0, 0.0], lambda q: q), r"^b must take \(t, q, v\), got a function of"),
        (lambda: uk.Lagrangian(lambda q, v: 0.0), r"^kinetic must take \(t, q, v\), got a function of \(q, v\)"),
        (lambda: uk.Lagrangian(lambda t, q, v: 0.0, lambda q: 0.0), r"^potential must take \(t, q\), got"),
        (lambda: uk.Lagrangian(lambda t, q, v: 0.0, None, lambda q: 0.0), r"^force must take \(t, q, v\), got"),
        (lambda: uk.MassForce(lambda q: q, [0.0]), r"^mass_matrix must take \(t, q\), got a function of \(q\)"),
        (lambda: uk.MassForce(np.eye(2), lambda t, q: q), r"^force must take \(t, q, v\), got a function of \(t, q\)"),
        (lambda: uk.MassForce(np.eye(2), None), r"^force must be a function force\(t, q, v\) or a constant array, got"),
        (lambda: uk.Pfaffian("A"), r"^A must be a function A\(t, q\) or a constant array, got 'A'"),
        (
            lambda: uk.System(uk.MassForce(np.eye(2), [0.0, 0.0]), nonideal=lambda t, q: q),
            r"^nonideal must take \(t, q, v\), got a function of \(t, q\)",
        ),
    ),
)
def test_functions_with_other_arguments_are_errors(make, message):
    with refused(message):
        make()


# --- what functions return -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    (
        (
            lambda: uk.Holonomic(lambda t, q: jnp.ones((2, 2)), name="loop"),
            r"^phi of 'loop' must return a vector of shape \(m,\), one entry per row, got shape \(2, 2\)",
        ),
        (
            lambda: uk.Nonholonomic(lambda t, q, v: jnp.ones((1, 2)), name="wheel"),
            r"^psi of 'wheel' must return a vector of shape \(m,\), .* got shape \(1, 2\)",
        ),
        (
            lambda: uk.Holonomic(lambda t, q: q, np.ones(3)),
            r"^alpha must be a number or have shape \(2,\), one per row, got shape \(3,\)",
        ),
        (lambda: uk.Holonomic(lambda t, q: q, 1.0, np.ones((2, 1))), r"^beta must be a number .* got shape \(2, 1\)"),
        (lambda: uk.Nonholonomic(lambda t, q, v: q, np.ones(3)), r"^alpha must be a number .* got shape \(3,\)"),
        (lambda: uk.Pfaffian(np.eye(2), 0.0, np.ones(3)), r"^alpha must be a number .* got shape \(3,\)"),
        (
            lambda: uk.Pfaffian(np.ones((1, 3)), name="edge"),
            r"^A of 'edge' must have shape \(m, 2\), one column per coordinate, got shape \(1, 3\)",
        ),
        (lambda: uk.Pfaffian(np.ones((1, 1, 2)), name="edge"), r"^A of 'edge' must have .* got shape \(1, 1, 2\)"),
        (
            lambda: uk.Pfaffian(np.eye(2), np.ones(3), name="edge"),
            r"^c of 'edge' must have shape \(2,\), one entry per row of A, got shape \(3,\)",
        ),
        (
            lambda: uk.AccelerationConstraint(np.ones((2, 3)), np.ones(2), name="servo"),
            r"^A of 'servo' must have shape \(m, 2\), one column per coordinate, got shape \(2, 3\)",
        ),
        (
            lambda: uk.AccelerationConstraint(np.eye(2), np.ones(1), name="servo"),
            r"^b of 'servo' must have shape \(2,\), one entry per row of A, got one number",
        ),
    ),
)
def test_rows_of_the_wrong_shape_are_errors(make, message):
    with refused(message):
        make().rows(*STATE)


@pytest.mark.parametrize(
    ("make", "message"),
    (
        (
            lambda: uk.MassForce(np.eye(3), np.zeros(2)),
            r"^mass_matrix must return shape \(2, 2\) for v of shape \(2,\), got shape \(3, 3\)",
        ),
        (
            lambda: uk.MassForce(np.eye(2), np.zeros(3)),
            r"^force must have shape \(2,\), one entry per velocity, got shape \(3,\)",
        ),
        (
            lambda: uk.Lagrangian(lambda t, q, v: v**2),
            r"^kinetic must return one number, an energy, got shape \(2,\)",
        ),
        (
            lambda: uk.Lagrangian(lambda t, q, v: v @ v, lambda t, q: q),
            r"^potential must return one number, an energy, got shape \(2,\)",
        ),
        (
            lambda: uk.Lagrangian(lambda t, q, v: v @ v, None, lambda t, q, v: jnp.ones(3)),
            r"^force must have shape \(2,\), one entry per velocity, got shape \(3,\)",
        ),
    ),
)
def test_energies_masses_and_forces_of_the_wrong_shape_are_errors(make, message):
    with refused(message):
        make().terms(*STATE)


def test_error_names_redundant_rows_in_any_units():
    terms = uk.Terms(np.diag([1e9, 1e-9]), np.ones(2), np.array([[1.0, 0.0], [1.0, 0.0]]), np.zeros(2))
    with refused("method 'Cholesky' needs independent rows: A has 2 rows of rank 1"):
        uk.constrained_motion(terms, "cholesky")


# --- arguments of the wrong type: in a process where annotations are not enforced, as users have it ----------------

WRONG_TYPES = {
    "uk.constrained_motion((1, 2))": "terms must be ukjax.Terms(M, Q, A, b), got tuple",
    "uk.constrained_motion(terms, 7)": "method must be one of orthogonal, cholesky, svd, kkt, udwadia_phohomsiri, "
    "sparse or a method object such as ukjax.Orthogonal(rtol=1e-6), got 7",
    "uk.Holonomic(3.0)": "phi must be a function phi(t, q), got 3.0",
    "uk.Nonholonomic(None)": "psi must be a function psi(t, q, v), got None",
    "uk.Lagrangian(1.0)": "kinetic must be a function kinetic(t, q, v), got 1.0",
    "uk.System(terms)": "dynamics must be ukjax.Lagrangian or ukjax.MassForce, got Terms",
    "uk.System(still, [uk.Pfaffian([1.0, 0.0]), print])": "constraints[1] must be ukjax.Holonomic, Nonholonomic, "
    "Pfaffian or AccelerationConstraint, got builtin_function_or_method",
    "uk.System(still, nonideal=2.0)": "nonideal must be a function nonideal(t, q, v), got 2.0",
    "uk.System(still, control=print)": "control must be one of ukjax.control (Servo, Robust, Feedback), got "
    "builtin_function_or_method",
    "uk.simulate(3, [0.0], [0.0], [0.0, 1.0])": "model must be a function model(t, q, v), got 3",
    "uk.simulate(uk.System(still), [0.0, 0.0], [0.0, 0.0], [0.0, 1.0], event=3)": "event must be a function "
    "event(t, q, v), got 3",
    "uk.Event(lambda t, q, v: q[0], -1)": "direction must be 'falling', 'rising' or None for both, got -1",
    "uk.Event(lambda t, q, v: q[0], ['falling'])": "direction must be 'falling', 'rising' or None for both, got "
    "['falling']",
    "uk.project(print, 0.0, [0.0], [0.0])": "model must be a ukjax.System to be projected onto its constraints, got "
    "builtin_function_or_method: rows A and b alone do not say where the constraints are",
    "uk.holonomicity(uk.Holonomic(lambda t, q: q), 0.0, [1.0])": "constraint must be a ukjax.Pfaffian, got Holonomic",
}

SCRIPT = """
import json, sys
import ukjax as uk
terms = uk.Terms([[1.0]], [0.0], [[1.0]], [0.0])
still = uk.MassForce([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
said = {}
for call in json.load(sys.stdin):
    try:
        eval(call)
    except ValueError as error:
        said[call] = str(error)
    except Exception as error:
        said[call] = repr(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    calls = json.dumps(list(WRONG_TYPES))
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=calls, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("call", WRONG_TYPES)
def test_arguments_of_the_wrong_type_are_errors(said, call):
    assert said.get(call) == WRONG_TYPES[call]
