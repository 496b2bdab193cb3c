"""The sparse method against the default method and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from benchmarks.mechanisms import four_bars
from ukjax.joints import Prismatic, Revolute, Spherical


def chain(n, length=0.5):
    """Links with spherical joints between them, suspended at one end, in absolute coordinates."""
    link = uk.Body(1.0, (length / 2, 0, 0), (0.01, 0.02, 0.02))
    bodies = {f"link{i}": link for i in range(n)}
    joints = {
        f"ball{i}": Spherical(
            f"link{i - 1}" if i else "ground",
            f"link{i}",
            at=(length if i else 0.0, 0, 0),
            reference=(0.9, 0.1, 0.2, 0.3),
        )
        for i in range(n)
    }
    return uk.Mechanism(bodies, joints, formulation="absolute")


def close(found, expected, tolerance):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


def terms_of(m, n, rng):
    root = rng.normal(size=(n, n))
    return root @ root.T + n * np.eye(n), rng.normal(size=n), rng.normal(size=(m, n)), rng.normal(size=m)


def test_sparse_method_matches_numpy(rng):
    M, Q, A, b = terms_of(3, 7, rng)
    found = uk.constrained_motion(uk.Terms(M, Q, A, b), "sparse")
    whole = np.block([[M, A.T], [A, np.zeros((3, 3))]])
    close(found.acceleration, np.linalg.solve(whole, np.concatenate([Q, b]))[:7], 1e-13)
    close(found.constraint_force, M @ found.acceleration - Q, 1e-13)


@pytest.mark.slow
def test_sparse_method_for_row_of_four_bars_matches_default():
    case = four_bars(6)
    q, v = (x[1] for x in case.starts(4))
    terms = case.system(0.0, q, v)
    close(uk.constrained_motion(terms, "sparse").acceleration, uk.constrained_motion(terms).acceleration, 1e-12)
    method = uk.Sparse.of((np.asarray(terms.M), np.asarray(terms.A)))
    # Each link is coupled only to its neighbours: the band does not grow with the number of links.
    assert method.bands[0].diagonal.shape[1] <= 6


@pytest.mark.slow
def test_sparse_method_accepts_redundant_rows_of_mechanism():
    """A planar slider-crank, whose loop has five rows, three of them redundant."""
    rod = uk.Body(1.0, (0.1, 0, 0), (0, 0.01, 0.01))
    joints = {
        "motor": Revolute("ground", "crank"),
        "pin": Revolute("crank", "rod", at=(0.1, 0, 0)),
        "wrist": Revolute("rod", "slider", at=(0.3, 0, 0)),
        "guide": Prismatic("ground", "slider", axis="x"),
    }
    mechanism = uk.Mechanism({"crank": rod, "rod": rod, "slider": rod}, joints, gravity=(0, -9.81, 0))
    q, v = mechanism.start({"motor": 0.4}, {"motor": 10.0})
    expected = uk.constrained_motion(mechanism(0.0, q, v))
    assert int(expected.rank) == 2
    close(uk.constrained_motion(mechanism(0.0, q, v), "sparse").acceleration, expected.acceleration, 1e-11)


def test_dependent_rows_and_unknown_pattern_are_errors(rng):
    M, Q, A, b = terms_of(2, 5, rng)
    twice = uk.Terms(M, Q, np.concatenate([A, A[:1]]), np.concatenate([b, b[:1] + 1]))
    with pytest.raises(ValueError, match="Sparse"):
        uk.constrained_motion(twice, "sparse")
    with pytest.raises(ValueError, match="needs to know which entries of 2 rows of 5 coordinates are zero"):
        jax.jit(lambda Q: uk.constrained_motion(uk.Terms(M, Q, A, b), "sparse").acceleration)(Q)
    method = uk.Sparse.of((M, A))
    found = jax.jit(lambda Q: uk.constrained_motion(uk.Terms(M, Q, A, b), method).acceleration)(Q)
    close(found, uk.constrained_motion(uk.Terms(M, Q, A, b)).acceleration, 1e-12)


def test_entries_outside_pattern_are_an_error(rng):
    """The pattern of the mass matrix has only its diagonal."""
    M, Q, A, b = terms_of(2, 5, rng)
    blind = uk.Sparse.of((np.diag(np.diag(M)), A))
    with pytest.raises(ValueError, match="Sparse"):
        uk.constrained_motion(uk.Terms(M, Q, A, b), blind)


@pytest.mark.slow
def test_derivatives_match_default_method(rng):
    M, Q, A, b = map(jnp.asarray, terms_of(2, 5, rng))
    method = uk.Sparse.of((np.asarray(M), np.asarray(A)))

    def first(method):
        return lambda M, A: uk.constrained_motion(uk.Terms(M + M.T, Q, A, b), method).acceleration[0]

    for found, expected in zip(
        jax.grad(first(method), (0, 1))(M, A), jax.grad(first("orthogonal"), (0, 1))(M, A), strict=True
    ):
        close(found, expected, 1e-11)


@pytest.mark.slow
def test_motion_of_chain_matches_default_method():
    mechanism = chain(2)
    q, v = mechanism.start()
    trajectory = uk.simulate(mechanism, q, v, np.linspace(0, 0.5, 6), dt=0.01, method="sparse")
    other = uk.simulate(mechanism, q, v, np.linspace(0, 0.5, 6), dt=0.01)
    close(trajectory.q, other.q, 1e-10)
    ends = [np.asarray(mechanism.energy(0.0, trajectory.q[i], trajectory.v[i])).item() for i in (0, -1)]
    assert abs(ends[1] - ends[0]) < 1e-6 * abs(ends[0])
    assert float(jnp.max(jnp.abs(mechanism.position_residual(0.0, trajectory.q[-1])))) < 1e-13


@pytest.mark.parametrize("separation", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def test_nearly_dependent_rows_are_solved_accurately(separation):
    """x + y = s and x + (1 + ε) y = s + ε y0 have the solution y = y0, x = s − y0."""
    A = np.array([[1.0, 1.0, 0.0], [1.0, 1.0 + separation, 0.0]])
    for s, y in ((0.5, 0.3), (0.0, 0.0)):
        terms = uk.Terms(np.eye(3), np.ones(3), A, np.array([s, s + separation * y]))
        found = uk.constrained_motion(terms, "sparse").acceleration
        np.testing.assert_allclose(found, [s - y, y, 1.0], rtol=0, atol=1e-13 / separation)
