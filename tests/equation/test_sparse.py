"""The method along a band, against the default one and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from benchmarks.mechanisms import four_bars
from ukjax.joints import Prismatic, Revolute, Spherical


def chain(n, length=0.5):
    """Links with balls between them, hung up at one end, in absolute coordinates."""
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


def test_it_solves_what_any_method_solves(rng):
    M, Q, A, b = terms_of(3, 7, rng)
    found = uk.constrained_motion(uk.Terms(M, Q, A, b), "sparse")
    whole = np.block([[M, A.T], [A, np.zeros((3, 3))]])
    close(found.acceleration, np.linalg.solve(whole, np.concatenate([Q, b]))[:7], 1e-13)
    close(found.constraint_force, M @ found.acceleration - Q, 1e-13)


@pytest.mark.slow
def test_a_row_of_loops():
    case = four_bars(6)
    q, v = (x[1] for x in case.starts(4))
    terms = case.system(0.0, q, v)
    close(uk.constrained_motion(terms, "sparse").acceleration, uk.constrained_motion(terms).acceleration, 1e-12)
    method = uk.Sparse.of((np.asarray(terms.M), np.asarray(terms.A)))
    # Links with their neighbours: the band does not grow with their number.
    assert method.bands[0].diagonal.shape[1] <= 6


@pytest.mark.slow
def test_redundant_rows_are_no_trouble():
    """A slider and crank in a plane, whose loop has five rows of which three say nothing."""
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


def test_what_it_cannot_do_is_refused(rng):
    M, Q, A, b = terms_of(2, 5, rng)
    twice = uk.Terms(M, Q, np.concatenate([A, A[:1]]), np.concatenate([b, b[:1] + 1]))
    with pytest.raises(ValueError, match="Sparse"):
        uk.constrained_motion(twice, "sparse")
    with pytest.raises(ValueError, match="must know where 2 rows of 5 coordinates are zero"):
        jax.jit(lambda Q: uk.constrained_motion(uk.Terms(M, Q, A, b), "sparse").acceleration)(Q)
    method = uk.Sparse.of((M, A))
    found = jax.jit(lambda Q: uk.constrained_motion(uk.Terms(M, Q, A, b), method).acceleration)(Q)
    close(found, uk.constrained_motion(uk.Terms(M, Q, A, b)).acceleration, 1e-12)


def test_entries_that_it_was_not_told_of_are_seen(rng):
    """A band for masses without the couplings that they have elsewhere."""
    M, Q, A, b = terms_of(2, 5, rng)
    blind = uk.Sparse.of((np.diag(np.diag(M)), A))
    with pytest.raises(ValueError, match="Sparse"):
        uk.constrained_motion(uk.Terms(M, Q, A, b), blind)


@pytest.mark.slow
def test_its_derivatives_are_exact(rng):
    M, Q, A, b = map(jnp.asarray, terms_of(2, 5, rng))
    method = uk.Sparse.of((np.asarray(M), np.asarray(A)))

    def first(method):
        return lambda M, A: uk.constrained_motion(uk.Terms(M + M.T, Q, A, b), method).acceleration[0]

    for found, expected in zip(
        jax.grad(first(method), (0, 1))(M, A), jax.grad(first("orthogonal"), (0, 1))(M, A), strict=True
    ):
        close(found, expected, 1e-11)


@pytest.mark.slow
def test_a_chain_swings():
    mechanism = chain(2)
    q, v = mechanism.start()
    trajectory = uk.simulate(mechanism, q, v, np.linspace(0, 0.5, 6), dt=0.01, method="sparse")
    other = uk.simulate(mechanism, q, v, np.linspace(0, 0.5, 6), dt=0.01)
    close(trajectory.q, other.q, 1e-10)
    ends = [np.asarray(mechanism.energy(0.0, trajectory.q[i], trajectory.v[i])).item() for i in (0, -1)]
    assert abs(ends[1] - ends[0]) < 1e-6 * abs(ends[0])
    assert float(jnp.max(jnp.abs(mechanism.position_residual(0.0, trajectory.q[-1])))) < 1e-13
