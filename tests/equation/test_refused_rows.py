"""Methods that need independent rows give NaN or an error for dependent rows, by the condition of the system and not by
its units."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..helpers import mass_matrix, multiplier_motion

N, M_ROWS, MANY = 7, 5, 60
METHODS = pytest.mark.parametrize("method", ("cholesky", "kkt"))
DTYPES = pytest.mark.parametrize("dtype", (np.float64, np.float32), ids=lambda dtype: dtype.__name__)
BOUND = 50  # times eps cond(M) cond(A)², as in the accuracy tests
NOTHING = 0.1  # where the bound of the relative error is above this, a result is useless and may be NaN
UNITS = {np.float64: 9, np.float32: 3}
"""Units of rows are from 10⁻ᵏ to 10ᵏ, with this k."""


@cache
def program(method):
    one = lambda M, Q, A, b: uk.constrained_motion(uk.Terms(M, Q, A, b), method).acceleration
    return jax.jit(jax.vmap(one))


def accelerations(method, dtype, systems):
    """q̈ of many systems by one program."""
    return np.asarray(program(method)(*(jnp.asarray(np.stack(x), dtype) for x in zip(*systems, strict=True))))


def copied(rng, A):
    A[-1] = A[0]


def summed(rng, A):
    A[-1] = A[:-1].sum(axis=0)


def combined(rng, A):
    A[-1] = rng.normal(size=len(A) - 1) @ A[:-1]


def combined_of_nearly_dependent(rng, A):
    A[1] = A[0] + 1e-3 * A[1]
    A[-1] = rng.normal(size=len(A) - 1) @ A[:-1]


def absent(rng, A):
    A[2] = 0


def in_units(rng, dtype, M, Q, A, b):
    """The same system with rows and coordinates in other units."""
    most = UNITS[dtype]
    row, coordinate = 10 ** rng.uniform(-most, most, len(b)), 10 ** rng.uniform(-most / 3, most / 3, len(Q))
    M = M / coordinate / coordinate[:, None]
    return (M + M.T) / 2, Q / coordinate, row[:, None] * A / coordinate, row * b


@METHODS
@DTYPES
@pytest.mark.parametrize("spoil", (copied, summed, combined, combined_of_nearly_dependent, absent))
def test_dependent_rows_give_nan(rng, method, dtype, spoil):
    """Consistent or contradictory, as b has no effect. LU and Cholesky seldom meet a pivot of exactly 0."""
    systems = []
    for i in range(MANY):
        A = rng.normal(size=(M_ROWS, N))
        spoil(rng, A)
        M, Q = mass_matrix(rng, N, 10 ** rng.uniform(0, 4)), rng.normal(size=N)
        given = M, Q, A[rng.permutation(M_ROWS)], rng.normal(size=M_ROWS)
        systems.append(in_units(rng, dtype, *given) if i % 2 else given)
    assert np.isnan(accelerations(method, dtype, systems)).all()


@METHODS
def test_more_rows_than_coordinates_are_an_error(rng, method):
    systems = [
        (mass_matrix(rng, 4), rng.normal(size=4), rng.normal(size=(6, 4)), rng.normal(size=6)) for _ in range(MANY)
    ]
    assert np.isnan(accelerations(method, np.float64, systems)).all()
    with pytest.raises(ValueError, match=r"needs independent rows: A has 6 rows of rank 4"):
        uk.constrained_motion(uk.Terms(*systems[0]), method)


def test_motion_that_is_not_unique_is_nan(rng):
    """M is singular, up to rounding, along a direction that the rows leave free."""
    systems = []
    for _ in range(MANY):
        axes = np.linalg.qr(rng.normal(size=(N, N)))[0]
        M, A = (axes * np.append(0.0, np.ones(N - 1))) @ axes.T, rng.normal(size=(M_ROWS, N))
        A = A - np.outer(A @ axes[:, 0], axes[:, 0])
        systems.append(((M + M.T) / 2, rng.normal(size=N), A, rng.normal(size=M_ROWS)))
    assert np.isnan(accelerations("kkt", np.float64, systems)).all()


@METHODS
@DTYPES
def test_finite_results_are_within_error_bound(rng, method, dtype):
    """Rows with a condition of 1 to 1e6. Where the bound is useful the result is finite, and all finite results are
    within the bound."""
    systems, bounds, exact = [], [], []
    for _ in range(MANY):
        shape = np.logspace(0, -rng.uniform(0, 6), M_ROWS)
        rows, columns = (np.linalg.qr(rng.normal(size=(k, M_ROWS)))[0] for k in (M_ROWS, N))
        given = mass_matrix(rng, N, 10 ** rng.uniform(0, 4)), rng.normal(size=N), (rows * shape) @ columns.T
        M, Q, A, b = (np.asarray(x, dtype).astype(float) for x in (*given, rng.normal(size=M_ROWS)))
        systems.append(((M + M.T) / 2, Q, A, b))
        bounds.append(BOUND * np.finfo(dtype).eps * np.linalg.cond(M) * np.linalg.cond(A) ** 2)
        exact.append(multiplier_motion(*systems[-1]))
    found, bounds = accelerations(method, dtype, systems), np.array(bounds)
    errors = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
    answered = np.isfinite(errors)
    assert answered[bounds < NOTHING].all() and (bounds < NOTHING).sum() > MANY / 10
    assert (errors[answered] <= bounds[answered]).all()
    assert errors[answered].max() < NOTHING


@METHODS
def test_error_gives_rank_or_smallest_singular_value(rng, method):
    A = rng.normal(size=(4, 6))
    A[3] = A[0] + A[1]
    terms = lambda A: uk.Terms(mass_matrix(rng, 6), rng.normal(size=6), A, rng.normal(size=4))
    with pytest.raises(ValueError, match=r"needs independent rows: A has 4 rows of rank 3. Use the default"):
        uk.constrained_motion(terms(A), method)
    A[3] = A[0] + 1e-9 * rng.normal(size=6)
    with pytest.raises(
        ValueError, match=r"needs rows that are clearly independent: .* smallest singular value [\d.]+e-10"
    ):
        uk.constrained_motion(terms(A), method)


def test_simulation_error_names_member_with_redundant_rows(method="cholesky"):
    rod = lambda t, q: q[:2] @ q[:2] - 1
    tie = lambda t, q: q[3] * q[2] + 0.3 * q[:2] @ q[:2] - 0.3  # the rod's own row where q[3] is 0
    model = uk.System(uk.MassForce(np.eye(4), [0, -9.81, 0, 0]), [uk.Holonomic(rod), uk.Holonomic(tie)])
    starts = np.array([[1.0, 0, 0, 1], [1.0, 0, 0, 0], [1.0, 0, 0, 2]])
    message = r"trajectory 1 \(1 of 3 failed\) .* needs independent rows at t = 0 s: A has 2 rows of rank 1\. Use the"
    with pytest.raises(uk.SimulationError, match=message):
        uk.simulate(model, starts, np.zeros(4), [0.0, 0.1], method=method, dt=0.05)
    motion = uk.simulate(model, starts, np.zeros(4), [0.0, 0.1], method=method, dt=0.05, throw=False)
    np.testing.assert_array_equal(motion.finished, [True, False, True])
