"""Rows much smaller than others: 1e-10 ẏ = 0 is a constraint, the rounding error of a zero row is not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion.fallback.row_noise import changed_by_rounding
from ukjax._motion.inputs import canonicalise
from ukjax._motion.stepper.scaling import scale_of

from ..mechanisms import redundant_only_on_the_constraint

HOWS: tuple[dict[str, Any], ...] = {"dt": 0.05}, {"rtol": 1e-5, "drift": "none"}
FALL = np.array([0.0, -9.81])
TS = np.array([0.0, 0.05, 0.1])
UNITS = pytest.mark.parametrize(
    ("dtype", "large", "small"),
    ((np.float32, 1e3, 1e-3), (np.float64, 1e3, 1e-10)),
    ids=("float32", "float64"),
)


@UNITS
@pytest.mark.parametrize("method", ("orthogonal", "svd", "udwadia_phohomsiri", "cholesky", "kkt"))
def test_small_row_is_satisfied(dtype, large, small, method):
    """large ẍ = 0 and small ÿ = 0: nothing moves."""
    terms = uk.Terms(*(np.asarray(x, dtype) for x in (np.eye(2), FALL, np.diag([large, small]), np.zeros(2))))
    pair = jax.tree.map(lambda x: jnp.stack([x, x]), terms)
    ways = [uk.constrained_motion(terms, method)]
    if method == "orthogonal" and dtype == np.float64:
        ways.append(jax.jit(uk.constrained_motion)(terms))
        ways.append(jax.tree.map(lambda x: x[1], jax.vmap(uk.constrained_motion)(pair)))
    for motion in ways:
        assert int(motion.rank) == 2 and motion.inconsistency == 0
        np.testing.assert_allclose(motion.acceleration, 0, atol=10 * np.finfo(dtype).eps)


def two_walls(dtype, large, small):
    walls = [uk.Holonomic(lambda t, q: large * q[0], name="x"), uk.Holonomic(lambda t, q: small * q[1], name="y")]
    return uk.System(uk.MassForce(np.eye(2, dtype=dtype), FALL.astype(dtype)), walls)


@pytest.mark.slow
@UNITS
def test_small_row_is_satisfied_in_a_motion(dtype, large, small):
    model, rest = two_walls(dtype, large, small), np.zeros(2, dtype)
    for how in HOWS if small == 1e-10 else HOWS[:1]:
        motion = uk.simulate(model, rest, rest, TS.astype(dtype), **how)
        np.testing.assert_array_equal(motion.rank, 2)
        np.testing.assert_allclose(motion.q, 0, atol=1e-12)
        np.testing.assert_allclose(motion.acceleration, 0, atol=10 * np.finfo(dtype).eps)
    together = uk.simulate(model, np.stack([rest, rest]), rest, TS.astype(dtype), dt=0.05)
    np.testing.assert_allclose(together.q, 0, atol=1e-12)
    inside = jax.jit(lambda q: uk.simulate(model, q, 0 * q, TS.astype(dtype), dt=0.05).q)
    np.testing.assert_allclose(inside(rest), 0, atol=1e-12)
    after = uk.step(model, uk.initial_state(model, rest, rest), 0.05)
    np.testing.assert_allclose(after.q, 0, atol=1e-12)


def at_rest_at_pi():
    """At q = π the last row is 1.2e-13, a rounding error of 0: y falls."""
    slide = uk.Nonholonomic(lambda t, q, v: 1000 * jnp.sin(q[2]) * v[1:2], name="slide")
    wall = uk.Holonomic(lambda t, q: q[0] - 1, name="wall")
    return uk.System(uk.MassForce(np.eye(3), [0, -9.81, 0]), [wall, slide]), np.array([1.0, 0, np.pi])


def a_difference():
    """0.3 − (0.1 + 0.2) is not 0."""
    there = 0.1 + 0.2
    slide = uk.Nonholonomic(lambda t, q, v: 100 * (q[0] - there) * q[2] * v[1:2], name="slide")
    wall = uk.Holonomic(lambda t, q: q[0] - 0.3, name="wall")
    return uk.System(uk.MassForce(np.eye(3), [0, -9.81, 0]), [wall, slide]), np.array([0.3, 0, 3.0])


@pytest.mark.slow
@pytest.mark.parametrize("made", (at_rest_at_pi, a_difference))
def test_rounding_error_of_zero_row_is_not_a_constraint(made):
    model, q0 = made()
    fallen = np.stack([0 * TS, -9.81 * TS**2 / 2, 0 * TS], axis=1)
    A = np.asarray(model(0.0, q0, np.zeros(3)).A)
    assert 1e-16 < np.abs(A[1]).max() < 1e-12
    for how in HOWS:
        motion = uk.simulate(model, q0, np.zeros(3), TS, **how)
        np.testing.assert_allclose(motion.q - q0, fallen, atol=1e-12)
        np.testing.assert_array_equal(motion.rank, 1)
        np.testing.assert_allclose(motion.acceleration[:, 1], -9.81, rtol=1e-12)
    if made is a_difference:
        return
    together = uk.simulate(model, np.stack([q0, q0]), np.zeros(3), TS, dt=0.05)
    np.testing.assert_allclose(together.q[1] - q0, fallen, atol=1e-12)
    after = uk.step(model, uk.initial_state(model, q0, np.zeros(3)), 0.05)
    np.testing.assert_allclose(after.q - q0, fallen[1], atol=1e-12)
    q, v = uk.project(model, 0.0, q0 + np.array([0.0, 0.2, 0.0]), np.array([0.3, 0.4, 0.0]))
    np.testing.assert_allclose(q, q0 + np.array([0.0, 0.2, 0.0]), atol=1e-12)
    np.testing.assert_allclose(v, [0.0, 0.4, 0.0], atol=1e-12)


def test_constant_row_as_small_as_rounding_is_an_error(rng):
    """It does not depend on anything, but it is as small as the rounding error of the other row."""
    rows = (
        uk.Pfaffian(np.array([[1.0, 0.2, 0.3]]), name="rod"),
        uk.Pfaffian(1e-17 * rng.normal(size=(1, 3)), name="tiny"),
    )
    model = uk.System(uk.MassForce(np.eye(3), [0, -9.81, 0]), rows)
    with pytest.raises(
        ValueError, match=r"constraint 'tiny' cannot be distinguished from rounding at t = 0 s: .* Scale it"
    ):
        uk.simulate(model, np.zeros(3), np.zeros(3), TS, dt=0.05)
    with pytest.warns(UserWarning, match=r"row 1 of A is .* left out"):
        uk.constrained_motion(model(0.0, np.zeros(3), np.zeros(3)))


def test_row_that_decays_below_rounding_is_omitted_with_a_warning():
    """exp(−40 t) ẏ = 0 constrains y until it is less than the rounding error of the other row, after t = 0.81."""
    rows = (
        uk.Holonomic(lambda t, q: q[0], name="wall"),
        uk.Nonholonomic(lambda t, q, v: jnp.exp(-40 * t) * v[1], name="fading"),
    )
    model, ts = uk.System(uk.MassForce(np.eye(2), FALL), rows), np.array([0.0, 0.75, 1.0])
    with pytest.warns(UserWarning, match=r"constraint 'fading' is left out at t = 0\.[89]\d* s: .* become so small"):
        motion = uk.simulate(model, np.zeros(2), np.zeros(2), ts, dt=0.01)
    assert abs(motion.q[1, 1]) < 1e-30 and -9.81 * 0.19**2 / 2 < motion.q[2, 1] < 0


def parallelogram():
    """Links of 1, 2 and 1 m with hinges along y, at levels 0.1 + 0.2, and at 0.3 on the ground. The y rows of the
    closing hinge are only the rounding error of this sum, 6e-17, at any angles."""
    hinge = lambda parent, child, **at: uk.joints.Revolute(parent, child, axis="y", **at)
    return uk.Mechanism(
        {name: uk.Body(1.0, inertia=(0.1, 0.1, 0.1)) for name in ("crank", "coupler", "rocker")},
        {
            "crank": hinge("ground", "crank"),
            "pin": hinge("crank", "coupler", at=(1, 0.1, 0)),
            "knee": hinge("coupler", "rocker", at=(2, 0.2, 0)),
            "close": hinge("ground", "rocker", at=(2, 0.3, 0), to=(-1, 0, 0)),
        },
    )


def test_start_of_loop_that_is_closed_up_to_rounding():
    """Grippers with symmetric links are such loops. The other angles are known."""
    model, angle = parallelogram(), 0.7
    q, v = model.start({"crank": angle}, velocities={"crank": 2.0})
    # The rocker is parallel to the crank.
    np.testing.assert_allclose(q, [angle, -angle, angle], atol=1e-12)
    np.testing.assert_allclose(v, [2.0, -2.0, 2.0], atol=1e-12)
    assert np.max(np.abs(model.position_residual(0.0, q))) < 1e-15


@pytest.mark.slow
def test_motion_of_loop_that_is_closed_up_to_rounding():
    """The rocker stays parallel to the crank, and the energy is constant."""
    model = parallelogram()
    q0, v0 = model.start({"crank": 0.7})
    motion = uk.simulate(model, q0, v0, TS)
    assert motion.finished
    np.testing.assert_allclose(motion.q[:, 1:], np.stack([-motion.q[:, 0], motion.q[:, 0]], axis=1), atol=1e-10)
    np.testing.assert_allclose(np.asarray(motion.energy), np.asarray(motion.energy)[0], atol=1e-8)


@pytest.mark.parametrize("residual", (0.1 + 0.2 - 0.3, 1e-6))
def test_constant_row_is_satisfied_if_its_residual_is_rounding(residual):
    """q·q = 1, and a sum of lengths that does not depend on any coordinate."""
    lengths = np.array([0.1, 0.2, -0.3 + (residual if residual > 1e-10 else 0)])
    level = uk.Holonomic(lambda t, q: jnp.sum(lengths * jnp.cos(0 * q[0])), name="level")
    model = uk.System(uk.MassForce(np.eye(2), FALL), [uk.Holonomic(lambda t, q: q @ q - 1, name="rod"), level])
    if residual > 1e-10:
        with pytest.raises(ValueError, match="constraint 'level' still has residual 1e-06"):
            uk.project(model, 0.0, [0.9, 1.2], [1.0, 0.0])
        return
    q, v = uk.project(model, 0.0, [0.9, 1.2], [1.0, 0.0])
    np.testing.assert_allclose(q, [0.6, 0.8], rtol=1e-13)
    np.testing.assert_allclose(v, [0.64, -0.48], rtol=1e-12)


def test_scale_ignores_coordinates_as_small_as_rounding():
    """Newton's method leaves rounding errors of an angle of 0. They are no measure of the size of angles."""
    tip = lambda t, q: 4 + jnp.stack([-4 * jnp.cos(q[0] + q[1]), 4 * jnp.sin(q[0] + q[1]) - 4])
    model = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), uk.Holonomic(tip, name="tip"))
    found = scale_of(model, jnp.zeros(()), jnp.array([2e-16, -2.5e-16]), jnp.zeros(2), jnp.asarray(1.0))
    np.testing.assert_allclose(found.q, [1.0, 1.0])
    np.testing.assert_allclose(scale_of(model, jnp.zeros(()), jnp.array([2e-6, 0.0]), jnp.zeros(2)).q[0], 2e-6)


def test_nearly_dependent_rows_give_a_warning_or_are_used():
    """x = 0 and x + ε z = 0 imply z = 0. If a motion omits the second row there is a warning; with a tolerance below ε
    it is used."""
    rows = [uk.Holonomic(lambda t, q: q[0]), uk.Holonomic(lambda t, q: q[0] + 1e-9 * q[2])]
    system = uk.System(uk.MassForce(np.eye(3), np.array([0.0, -9.81, 1.0])), rows)
    with pytest.warns(UserWarning, match=r"at t = 0 s: the rows of A are nearly dependent: .* to be 1, .*rtol=1e-10"):
        left_out = uk.simulate(system, np.zeros(3), np.zeros(3), [0.0, 0.5])
    kept = uk.simulate(system, np.zeros(3), np.zeros(3), [0.0, 0.5], method=uk.Orthogonal(rtol=1e-12))
    np.testing.assert_allclose((left_out.q[-1, 2], kept.q[-1, 2]), (0.125, 0), atol=1e-6)


def test_redundant_rows_at_a_start_off_constraints_give_no_warning():
    """They differ by as much as the start is off the constraints. Any warning is an error here."""
    uk.simulate(redundant_only_on_the_constraint(), [-1 - 1e-9, 0.0], [0.0, 0.3], [0.0, 0.1])


def test_models_with_python_numbers_and_with_arrays_have_one_program():
    """So do a start with Python numbers, and a model that is perturbed by rounding."""
    traced = []

    @jax.jit
    def rows(model, t, q, v):
        traced.append(model)
        return model(t, q, v).b

    bar = uk.systems.FourBar()
    arrays = jax.tree.map(lambda x: jax.device_put(np.asarray(x)), (bar, *bar.start()))
    for model, q0, v0 in ((bar, *bar.start()), arrays):
        model, q, v, t = canonicalise(model, q0, v0, jnp.asarray(0.0))
        changes = changed_by_rounding(lambda *state: (rows(*state),), model, t, q, v, np.eye(v.size))
        assert len(traced) == 1 and 0 < np.max(changes[0]) < 1e-9
