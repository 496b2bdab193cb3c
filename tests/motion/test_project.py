"""Consistent initial conditions: the nearest point, against other methods, and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import ukjax as uk

CLOSE = 1e-11  # the projection iterates to rounding; SciPy's minimiser is refined by the conditions of the minimum
MASS = np.array([2.3, 2.0])


def ellipse(p=1.3, twice=True):
    """A point with unequal masses on an ellipse, with one row or with two that are dependent only on the ellipse."""
    once = lambda t, q: q[0] ** 2 + p * q[1] ** 2 - 1
    rows = [uk.Holonomic(once, name="ellipse")]
    if twice:
        rows.append(uk.Holonomic(lambda t, q: 2 * jnp.exp(q[0]) * once(t, q), name="ellipse again"))
    return uk.System(uk.MassForce(np.diag(MASS), np.zeros(2)), rows)


@pytest.mark.parametrize("start", [(-1.3, 0.5), (5.0, 3.0), (0.3, -0.2)])
@pytest.mark.parametrize("twice", [False, True])
def test_position_is_the_nearest_in_the_metric_of_M(start, twice):
    q, _ = uk.project(ellipse(twice=twice), 0.0, start, (0.0, 0.0))
    phi = lambda x: x[0] ** 2 + 1.3 * x[1] ** 2 - 1
    assert abs(phi(q)) < CLOSE
    gradient = np.array([2 * q[0], 2.6 * q[1]])
    pull = MASS * (np.asarray(q) - start)
    assert abs(pull[0] * gradient[1] - pull[1] * gradient[0]) < CLOSE * 10  # M (q − q0) is along the gradient
    distance = lambda x: np.sum(MASS * (x - np.array(start)) ** 2)
    guess = np.array(start) / np.sqrt(phi(np.array(start)) + 1)
    found = minimize(distance, guess, constraints={"type": "eq", "fun": phi}, tol=1e-12)
    np.testing.assert_allclose(q, found.x, rtol=0, atol=1e-5)


def test_velocity_is_the_nearest_in_the_metric_of_M(rng):
    model = ellipse()
    v0 = rng.normal(size=2)
    q, v = uk.project(model, 0.0, (-1.3, 0.5), v0)
    gradient = np.array([2 * q[0], 2.6 * q[1]])
    W = 1 / MASS
    expected = v0 - W * gradient * (gradient @ v0) / (gradient @ (W * gradient))
    np.testing.assert_allclose(v, expected, rtol=0, atol=CLOSE)


def test_second_projection_changes_nothing(rng):
    once = uk.project(ellipse(), 0.0, (-1.3, 0.5), rng.normal(size=2))
    twice = uk.project(ellipse(), 0.0, *once)
    for a, b in zip(once, twice, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)


def test_a_velocity_constraint_may_be_nonlinear():
    speed = uk.Nonholonomic(lambda t, q, v: v @ v - 4.0, name="speed")
    model = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), speed)
    _, v = uk.project(model, 0.0, (0.0, 0.0), (0.3, 0.4))
    np.testing.assert_allclose(v, [1.2, 1.6], rtol=0, atol=1e-12)


def test_projection_evaluates_constraints_at_start_time():
    model = uk.System(uk.MassForce(np.eye(1), np.zeros(1)), uk.Holonomic(lambda t, q: q[0] - t**2))
    q, v = uk.project(model, 3.0, [0.0], [0.0])
    np.testing.assert_allclose((q[0], v[0]), (9.0, 6.0), rtol=0, atol=1e-13)


def test_unsatisfiable_constraint_is_named_in_error_and_nan_under_jit():
    model = uk.System(
        uk.MassForce(np.eye(2), np.zeros(2)),
        [uk.Holonomic(lambda t, q: q[0] - 1, name="wall"), uk.Holonomic(lambda t, q: q @ q + 1, name="circle")],
    )
    with pytest.raises(ValueError, match=r"no consistent initial conditions.*at t = 2 s constraint 'circle' still has"):
        uk.project(model, 2.0, (0.5, 0.5), (0.0, 0.0))
    q, _ = jax.jit(lambda q0: uk.project(model, 2.0, q0, q0))(jnp.array([0.5, 0.5]))
    assert np.isnan(q).all()


FAR = [(30.0, -20.0), (0.01, 0.3), (-0.1, 0.02)]


@pytest.fixture
def short(monkeypatch):
    """Fails if the search program for traced values is used, which takes a minute to compile for a mechanism."""

    def refuse(*_):
        raise AssertionError("the long way is compiled")

    monkeypatch.setattr("ukjax._motion.consistent.project._project_by_search", refuse)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("start", FAR)
@pytest.mark.parametrize("twice", [False, True])
def test_nearest_point_is_found_from_distant_start(start, twice):
    """Against a million points of the ellipse."""
    q, _ = uk.project(ellipse(twice=twice), 0.0, start, (1.0, 2.0))
    angle = np.linspace(0, 2 * np.pi, 1_000_001)
    there = np.stack([np.cos(angle), np.sin(angle) / np.sqrt(1.3)])
    distance = MASS @ (there - np.array(start)[:, None]) ** 2
    assert abs(q[0] ** 2 + 1.3 * q[1] ** 2 - 1) < CLOSE
    assert MASS @ (np.asarray(q) - start) ** 2 <= distance.min() * (1 + 1e-10)


@pytest.mark.slow
def test_nearest_point_under_jit_and_vmap_matches_eager():
    model, starts = ellipse(), jnp.array([*FAR, (5.0, 3.0), (0.3, -0.2)])
    found = jax.jit(jax.vmap(lambda start: uk.project(model, 0.0, start, jnp.zeros(2))[0]))(starts)
    expected = [uk.project(model, 0.0, start, jnp.zeros(2))[0] for start in starts]
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)


def test_vmap_compiles_one_program_and_not_each_operation(caplog):
    def nearest(a):
        circle = uk.Holonomic(lambda t, q: q @ q - a**2)
        system = uk.System(uk.MassForce(jnp.eye(2), jnp.zeros(2)), circle)
        return uk.project(system, 0.0, jnp.array([3.0, 4.0]), jnp.zeros(2))[0]

    radii = jnp.array([1.0, 2.5])
    jax.clear_caches()
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        found = jax.vmap(nearest)(radii)
    np.testing.assert_allclose(found, radii[:, None] * np.array([0.6, 0.8]), rtol=1e-14)
    # Some are for the arrays. One for each operation would be more than a hundred.
    assert sum("Finished XLA compilation" in record.message for record in caplog.records) < 20


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_derivative_from_distant_start_matches_finite_differences():
    model, step = ellipse(), 1e-4
    moved = lambda x: uk.project(model, 0.0, x, (0.0, 0.0))[0]
    start = jnp.array([30.0, -20.0])
    differences = [(moved(start + step * e) - moved(start - step * e)) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(jax.jacrev(moved)(start), np.stack(differences, 1), rtol=0, atol=1e-9)


@pytest.mark.usefixtures("short")
def test_unsatisfiable_constraints_are_named_without_search_program():
    model = uk.System(
        uk.MassForce(np.eye(2), np.zeros(2)),
        [uk.Holonomic(lambda t, q: q @ q - 1, name="circle"), uk.Holonomic(lambda t, q: q[0] - 3, name="wall")],
    )
    with pytest.raises(ValueError, match=r"no consistent initial conditions.*'(circle|wall)' still has"):
        uk.project(model, 0.0, (0.5, 0.5), (0.0, 0.0))
    moving = uk.System(
        model.dynamics,
        [uk.Pfaffian(np.eye(2), np.ones(2), name="slow"), uk.Pfaffian(np.eye(2), 2 * np.ones(2), name="fast")],
    )
    with pytest.raises(ValueError, match=r"'(slow|fast)\[\d\]' \(velocity\) still has residual"):
        uk.project(moving, 0.0, (0.5, 0.5), (0.0, 0.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ellipse(), 0.0, [0.0, 1.0], [0.0]), r"q0 and v0 must both have shape \(n,\), got shapes \(2,\) and \(1,\)"),
        ((ellipse(), 0.0, np.ones((3, 2)), np.ones((3, 2))), "for many starts, map over them with jax.vmap"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        uk.project(*arguments)


@pytest.mark.slow
def test_derivatives_of_nearest_point_match_finite_differences():
    """First and second derivatives by the parameter, the start and the velocity, in forward and reverse mode."""

    def point(z):
        return jnp.concatenate(uk.project(ellipse(z[0]), 0.0, z[1:3], z[3:]))

    z, step = jnp.array([1.3, -1.3, 0.5, 0.2, 0.3]), 1e-5
    value_and_reverse = jax.jit(lambda z: (point(z), jax.jacrev(point)(z)))
    beside = [(value_and_reverse(z + h), value_and_reverse(z - h)) for h in step * np.eye(5)]
    first, second = (
        np.stack([(after[i] - before[i]) / (2 * step) for after, before in beside], axis=-1) for i in (0, 1)
    )
    forward, mixed = jax.jit(lambda z: (jax.jacfwd(point)(z), jax.jacfwd(jax.jacrev(point))(z)))(z)
    np.testing.assert_allclose(forward, first, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(value_and_reverse(z)[1], first, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(mixed, second, rtol=1e-6, atol=1e-7)
