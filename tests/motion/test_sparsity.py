"""Large systems with the banded solver: single motions and batches, with explicit and automatic choice."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from benchmarks.mechanisms import four_bars, four_bars_by_energies
from ukjax._motion.fallback.policy import initial_method
from ukjax._motion.integrate import fixed_step
from ukjax._motion.stepper import limits
from ukjax._solve import Sparse, solve

RK4 = {"dt": 0.01, "solver": uk.RungeKutta4()}
TIMES = np.linspace(0, 0.05, 3)


@pytest.fixture
def always(monkeypatch):
    """The banded solver is chosen for a system of any size and any bandwidth."""
    monkeypatch.setattr(limits, "MIN_BAND_OF_SHORT_BATCH", 1)
    monkeypatch.setattr(limits, "MIN_BAND", 1)
    monkeypatch.setattr(limits, "MIN_BAND_OF_BATCH", 1)
    monkeypatch.setattr(limits, "BAND_SHARE", 1)


def row(count, members):
    """A row of four-bars, and consistent starts with different speeds."""
    case = four_bars_by_energies(count)
    faster = 1 + 0.1 * np.arange(members)[:, None]
    return case.system, np.tile(case.q0, (members, 1)), np.asarray(case.v0) * faster


def close(found, expected, tolerance):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


@pytest.mark.slow
def test_batch_with_banded_solver_matches_single_motions():
    system, q, v = row(2, 3)
    method = uk.Sparse.of(pattern_of(system, q[0], v[0]))
    together = uk.simulate(system, q, v, TIMES, **RK4, method=method)
    for i in range(3):
        close(together.q[i], uk.simulate(system, q[i], v[i], TIMES, **RK4, method="sparse").q, 1e-13)
    close(together.q[0], uk.simulate(system, q[0], v[0], TIMES, **RK4).q, 1e-12)
    assert float(jnp.max(jnp.abs(jax.vmap(lambda q: system.position_residual(0.0, q))(together.q[:, -1])))) < 1e-14


@pytest.mark.slow
def test_adaptive_batch_with_banded_solver_matches_kkt():
    system, q, v = row(2, 3)
    together = uk.simulate(system, q, v, TIMES, method="sparse")
    close(together.q, uk.simulate(system, q, v, TIMES, method="kkt").q, 1e-9)


def pattern_of(system, q, v):
    terms = system(0.0, q + 1e-3 * np.arange(q.size), v)
    return np.asarray(terms.M), np.asarray(terms.A)


@pytest.mark.parametrize("batch", (False, True))
def test_banded_solver_is_chosen_automatically(always, batch):
    system, q, v = row(1, 3)
    q, v = (q, v) if batch else (q[0], v[0])
    chosen = uk.simulate(system, q, v, TIMES, **RK4)
    assert isinstance(chosen.method, uk.Orthogonal)  # the method that computes ranks after the motion
    close(chosen.q, uk.simulate(system, q, v, TIMES, **RK4, method="kkt").q, 1e-12)


def test_banded_solver_is_chosen_only_for_large_systems():
    class Seen(Exception):
        pass

    def what_is_tried_for(case):
        found = []

        def tried(request, runtime_rows):
            found.append(initial_method(request, runtime_rows))
            raise Seen

        with pytest.MonkeyPatch.context() as patched, pytest.raises(Seen):
            patched.setattr("ukjax._motion.fallback.policy.initial_method", tried)
            uk.simulate(case.system, case.q0, case.v0, TIMES)
        return found[0]

    assert isinstance(what_is_tried_for(four_bars(50)), Sparse)
    assert not isinstance(what_is_tried_for(four_bars(20)), Sparse)


def test_fallback_where_entries_outside_band_appear(always):
    """Entries of the mass matrix that are zero at the start become nonzero during the motion."""
    mass = lambda t, q: jnp.eye(4) + jnp.where(t > 0.02, 1.0, 0.0) * jnp.ones((4, 4))
    system = uk.System(uk.MassForce(mass, lambda t, q, v: -q), uk.Holonomic(lambda t, q: q[:1] - q[1:2]))
    q, v = np.tile([1.0, 1.0, -0.5, 0.3], (2, 1)), np.zeros((2, 4))
    found = uk.simulate(system, q, v, TIMES, **RK4)
    assert np.all(found.finished)
    close(found.q, uk.simulate(system, q, v, TIMES, **RK4, method="kkt").q, 1e-13)


def test_derivative_by_zero_parameter_includes_entries_outside_band(always):
    """The parameter is a factor of entries outside the band of the matrices, and outside the cached band of the same
    model."""
    far = jnp.zeros((6, 6)).at[0, -1].set(1).at[-1, 0].set(1)
    spring = 2 * jnp.eye(6) - jnp.eye(6, k=1) - jnp.eye(6, k=-1)

    class Coupled(eqx.Module):
        by: jax.Array

        def __call__(self, t, q):
            return 2 * jnp.eye(6) + self.by * far

    def end(by):
        system = uk.System(uk.MassForce(Coupled(by), lambda t, q, v: -spring @ q), ())
        return uk.simulate(system, jnp.arange(6.0), jnp.zeros(6), [0.0, 1.0]).q[-1, 0]

    h = 1e-3
    difference = float(end(jnp.asarray(h)) - end(jnp.asarray(-h))) / (2 * h)
    end(jnp.asarray(0.0))
    assert float(jax.grad(end)(jnp.asarray(0.0))) == pytest.approx(difference, rel=1e-4)


def test_mass_that_becomes_negative_is_error(always):
    """In a direction without a constraint, from t = 0.02 s."""
    mass = lambda t, q: jnp.diag(jnp.array([1.0, 1.0, jnp.where(t > 0.02, -0.5, 1.0)]))
    system = uk.System(uk.MassForce(mass, lambda t, q, v: -q), uk.Holonomic(lambda t, q: q[:1] - q[1:2]))
    with pytest.raises(uk.SimulationError, match="positive semidefinite"):
        uk.simulate(system, np.array([1.0, 1.0, -0.5]), np.zeros(3), TIMES, **RK4)


def test_only_method_with_fallback_requests_fallback(rng):
    """The mass matrix has a negative eigenvalue in a direction without a constraint."""
    M, A = jnp.diag(jnp.array([1.0, -0.5, 1.0])), jnp.array([[0.0, 0.0, 1.0]])
    method = uk.Sparse.of((np.asarray(M), np.asarray(A)))
    assert not method.factorise(M, A).needs_fallback
    assert replace(method, has_fallback=True).factorise(M, A).needs_fallback
    assert not replace(method, has_fallback=True).factorise(jnp.abs(M), A).needs_fallback


@pytest.mark.slow
def test_derivative_with_banded_solver_matches_kkt(always, monkeypatch):
    tried, run = [], fixed_step._solve
    monkeypatch.setattr(fixed_step, "_solve", lambda *given: tried.append(given[1].attempt) or run(*given))
    system, q, v = row(1, 2)

    def end(v, method):
        return jnp.sum(uk.simulate(system, q[0], v, TIMES, **RK4, method=method).q[-1])

    found = jax.grad(end)(jnp.asarray(v[0]), "orthogonal")
    assert [type(method) for method in tried] == [Sparse]
    close(found, jax.grad(end)(jnp.asarray(v[0]), "kkt"), 1e-10)


def test_forward_and_reverse_derivatives_of_mapped_solve(rng):
    """The linear equations under ``vmap``, against the inverse of their matrix."""
    M = jnp.asarray(np.diag(1 + rng.uniform(size=6)))
    A = jnp.asarray(np.where(rng.uniform(size=(2, 6)) < 0.6, rng.normal(size=(2, 6)), 0.0))
    Q, b = jnp.asarray(rng.normal(size=(4, 6))), jnp.asarray(rng.normal(size=(4, 2)))
    band = uk.Sparse.of((np.asarray(M), np.asarray(A)))
    found = jax.vmap(lambda Q, b: solve(M, A, Q, b, band.factorise(M, A)))
    inverse = np.linalg.inv(np.block([[M, A.T], [A, np.zeros((2, 2))]]))[:6]
    for derivative in (jax.jacfwd, jax.jacrev):
        by_Q, by_b = eqx.filter_jit(derivative(found, (0, 1)))(Q, b)
        for of, exact in ((by_Q, inverse[:, :6]), (by_b, inverse[:, 6:])):
            close(of, np.einsum("ij,kl->ikjl", np.eye(4), exact), 1e-12)


def test_single_precision(rng):
    A = np.where(rng.uniform(size=(3, 8)) < 0.5, rng.normal(size=(3, 8)), 0.0)
    terms = np.diag(1 + rng.uniform(size=8)), rng.normal(size=8), A, rng.normal(size=3)
    narrow = uk.constrained_motion(uk.Terms(*(x.astype(np.float32) for x in terms)), "sparse").acceleration
    close(narrow, uk.constrained_motion(uk.Terms(*terms)).acceleration, 1e-5)
    assert narrow.dtype == np.float32
