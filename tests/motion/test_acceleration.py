"""Accelerations at one state or at a batch of states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from benchmarks.mechanisms import four_bars_by_energies, three_chains
from ukjax._motion.fallback import sparsity
from ukjax._motion.stepper import limits
from ukjax._solve import Sparse


def states(case, members, rng, moved=0.01):
    n = case.q0.size
    return np.asarray(case.q0) + moved * rng.normal(size=(members, n)), rng.normal(size=(members, n))


def by_numpy(system, t, q, v):
    """q̈ = a + M^(-1/2) (A M^(-1/2))⁺ (b − A a)."""
    terms = system(t, q, v)
    M, Q, A, b = (np.asarray(x) for x in (terms.M, terms.Q, terms.A, terms.b))
    values, vectors = np.linalg.eigh(M)
    root = vectors / np.sqrt(values) @ vectors.T
    a = root @ root @ Q
    return a + root @ (np.linalg.pinv(A @ root, rcond=1e-10) @ (b - A @ a))


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


def test_accelerations_of_single_states_and_batches_match_formula(rng):
    case, members = three_chains(), 3
    q, v = states(case, members, rng)
    found = uk.acceleration(case.system, 0.0, q, v)
    assert found.shape == v.shape
    for i in (0, members // 2, members - 1):
        close(found[i], by_numpy(case.system, 0.0, q[i], v[i]))
        close(uk.acceleration(case.system, 0.0, q[i], v[i]), found[i])


def test_batch_accepts_one_time_per_state():
    swept = uk.System(uk.MassForce(np.eye(2), np.zeros(2)), uk.Holonomic(lambda t, q: q[0] - t**3))
    found = uk.acceleration(swept, [0.0, 1.0, 2.0], np.zeros((3, 2)), np.zeros(2))
    np.testing.assert_allclose(found, [[0, 0], [6, 0], [12, 0]], atol=1e-14)


def test_state_with_dependent_rows_does_not_change_other_states(rng):
    """At one state of the batch the rows are linearly dependent."""
    case = four_bars_by_energies(1)
    q, v = states(case, 200, rng)
    alone = uk.acceleration(case.system, 0.0, q, v)
    q[7] = 0.0  # all rods flat
    v[7] = 0.0
    found = uk.acceleration(case.system, 0.0, q, v)
    np.testing.assert_array_equal(np.delete(found, 7, 0), np.delete(alone, 7, 0))
    close(found[7], by_numpy(case.system, 0.0, q[7], v[7]))


@pytest.mark.parametrize("members", (None, 40))
def test_large_system_uses_banded_solver_and_computes_band_once(members, rng, monkeypatch):
    case = four_bars_by_energies(2)
    q, v = states(case, members or 1, rng)
    q, v = (q, v) if members else (q[0], v[0])
    expected = uk.acceleration(case.system, 0.0, q, v)
    for name in ("MIN_BAND", "BAND_SHARE"):
        monkeypatch.setattr(limits, name, 1)
    monkeypatch.setattr(limits, "MIN_BAND_OF_SHORT_BATCH", 1)
    looked = []
    original = sparsity._matrices
    monkeypatch.setattr(sparsity, "_matrices", lambda *state: looked.append(1) or original(*state))
    sparsity._bands.clear()
    close(uk.acceleration(case.system, 0.0, q, v), expected)
    assert looked
    count = len(looked)
    close(uk.acceleration(case.system, 0.0, q, 2 * v), uk.acceleration(case.system, 0.0, q, 2 * v, method="kkt"), 1e-11)
    assert len(looked) == count  # the band is computed once


def test_banded_solver_includes_nonideal_forces(rng, monkeypatch):
    row = four_bars_by_energies(2)
    system = uk.System(row.system.dynamics, row.system.constraints, nonideal=lambda t, q, v: -0.5 * v)
    q, v = states(row, 3, rng)
    expected = uk.acceleration(system, 0.0, q, v)
    for name in ("MIN_BAND", "BAND_SHARE", "MIN_BAND_OF_SHORT_BATCH"):
        monkeypatch.setattr(limits, name, 1)
    close(uk.acceleration(system, 0.0, q, v), expected)
    assert float(jnp.max(jnp.abs(expected - uk.acceleration(row.system, 0.0, q, v)))) > 0.1


class Swing(uk.AbstractSystem):
    """Eight unit masses. Each of the first four is coupled to the next, and the first to the last where ``tie`` is not
    0."""

    tie: jax.Array

    @property
    def dynamics(self):
        return uk.MassForce(np.eye(8), lambda t, q, v: -q)

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: jnp.append(q[1:4] - q[:3] ** 2, self.tie * q[7] + q[0])),)


def test_band_is_recomputed_if_model_values_add_entries(rng, monkeypatch):
    """Some entries of A vanish only for certain values of the model."""
    for name in ("MIN_BAND", "BAND_SHARE", "MIN_BAND_OF_SHORT_BATCH"):
        monkeypatch.setattr(limits, name, 1)
    sparsity._bands.clear()
    q, v = rng.normal(size=(3, 8)), rng.normal(size=(3, 8))
    untied, tied = Swing(jnp.array(0.0)), Swing(jnp.array(1.0))
    for system in (untied, tied, tied):
        found = uk.acceleration(system, 0.0, q, v)
        for i in range(3):
            close(found[i], by_numpy(system, 0.0, q[i], v[i]))
    (band,) = sparsity._bands.values()
    assert band.bands[0].A.entries[0].size == 8  # with the tie


class Skewed(uk.AbstractSystem):
    """Coupled masses. The mass matrix is not symmetric where ``skew`` is not 0."""

    skew: jax.Array
    constraints = ()  # pyright: ignore

    @property
    def dynamics(self):
        M = lambda t, q: 2 * jnp.eye(8) + 0.5 * jnp.eye(8, k=1) + (0.5 + self.skew) * jnp.eye(8, k=-1)
        return uk.MassForce(M, lambda t, q, v: -q)


@pytest.mark.parametrize("ask", ("acceleration", "simulate"))
def test_asymmetric_mass_matrix_is_error_with_cached_band(ask, rng, monkeypatch):
    for name in ("MIN_BAND", "MIN_BAND_OF_BATCH", "BAND_SHARE", "MIN_BAND_OF_SHORT_BATCH"):
        monkeypatch.setattr(limits, name, 1)
    sparsity._bands.clear()
    q, v = rng.normal(size=(3, 8)), rng.normal(size=(3, 8))
    does = {
        "acceleration": lambda system: uk.acceleration(system, 0.0, q, v),
        "simulate": lambda system: uk.simulate(system, q, v, [0.0, 0.01], dt=0.01, solver=uk.RungeKutta4()),
    }[ask]
    does(Skewed(jnp.array(0.0)))
    with pytest.raises(ValueError, match="M must be symmetric"):
        does(Skewed(jnp.array(0.1)))


@pytest.mark.slow
def test_derivatives_and_transformations(rng):
    case = three_chains()
    q, v = states(case, 5, rng)
    one = lambda q, v: uk.acceleration(case.system, 0.0, q, v)
    together = one(q, v)
    np.testing.assert_allclose(jax.jit(jax.vmap(one))(q, v), together, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jax.jit(one)(q, v), together, rtol=1e-12, atol=1e-12)
    direction = rng.normal(size=6)
    slope = jax.jvp(lambda q: one(q, v[0]), (jnp.asarray(q[0]),), (jnp.asarray(direction),))[1]
    h = 1e-6
    between = (one(q[0] + h * direction, v[0]) - one(q[0] - h * direction, v[0])) / (2 * h)
    np.testing.assert_allclose(slope, between, rtol=1e-6, atol=1e-6 * np.max(np.abs(between)))


def test_sparse_acceleration_under_jit_needs_explicit_band(rng):
    case = four_bars_by_energies(6)
    q, v = states(case, 3, rng)
    terms = case.system(0.0, q[0], v[0])
    band = Sparse.of((np.asarray(terms.M), np.asarray(terms.A)))
    found = jax.jit(lambda q, v: uk.acceleration(case.system, 0.0, q, v, band))(q, v)
    close(found, uk.acceleration(case.system, 0.0, q, v, method="orthogonal"))
    with pytest.raises(ValueError, match="needs to know which entries of 12 rows of 13 coordinates are zero"):
        jax.jit(lambda q, v: uk.acceleration(case.system, 0.0, q, v, "sparse"))(q, v)


def test_contradictory_rows_give_warning(rng):
    free = uk.MassForce(np.eye(2), np.zeros(2))
    against = uk.AccelerationConstraint([[1.0, 0.0], [1.0, 0.0]], lambda t, q, v: jnp.stack([q[0], 0.0 * t]))
    q = np.array([[0.0, 0.0], [3.0, 0.0], [1.0, 0.0]])
    with pytest.warns(UserWarning, match="contradict each other for 2 of 3 states, first for state 1"):
        found = uk.acceleration(uk.System(free, against), 0.0, q, np.zeros((3, 2)))
    np.testing.assert_allclose(found, [[0, 0], [1.5, 0], [0.5, 0]], atol=1e-14)
    with pytest.warns(UserWarning, match="contradict each other for this state"):
        found = uk.acceleration(uk.System(free, against), 0.0, q[1], np.zeros(2))
    np.testing.assert_allclose(found, [1.5, 0], atol=1e-14)


def massless(count):
    return uk.System(uk.MassForce(lambda t, q: jnp.diag(jnp.append(q[:1], jnp.ones(count - 1))), np.zeros(count)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    (
        ((0.0, np.ones(()), np.ones(2)), r"^q must have shape \(n,\), or \(batch, n\) for many states, got shape \(\)"),
        ((0.0, np.ones((0, 2)), np.ones(2)), r"^q must have at least one state"),
        ((0.0, np.ones((3, 2)), np.ones(3)), r"^v must have the shape of q, \(3, 2\), got shape \(3,\)"),
        ((np.ones(2), np.ones((3, 2)), np.ones(2)), r"^t must be one time \[s\], or one per state, shape \(3,\)"),
        ((0.0, np.array([[1, 1], [np.nan, 1]]), np.ones(2)), r"^q is not finite|^q must be finite"),
        ((0.0, np.array([[1.0, 1], [0.0, 1]]), np.ones(2)), r"^the motion is not unique for state 1"),
        ((0.0, np.array([[1.0, 1], [-1.0, 1]]), np.ones(2)), r"^M must be positive semidefinite for state 1"),
        ((0.0, np.array([[-1.0, 1], [1.0, 1]]), np.ones(2)), r"^M must be positive semidefinite for state 0"),
    ),
)
def test_invalid_arguments_are_errors(arguments, words):
    with pytest.raises(ValueError, match=words):
        uk.acceleration(massless(2), *arguments)
