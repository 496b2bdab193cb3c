"""The fast method, by LAPACK for one system and by elementary operations for a batch, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._solve import FastPath, RuntimeRows, independent_rows, is_nearly_singular

from ..helpers import mass_matrix, multiplier_motion, null_space_motion, rows_of_rank

CLOSE = 1e-12  # systems made here have conditions below some 1e3
SIZES = (1, 0), (5, 5), (12, 7), (40, 30)
RTOL = 1e-7


def alone(method):
    """A function that solves systems one after another by LAPACK. It returns x, ν and whether the fast path failed."""
    one = jax.jit(lambda *given: answer(method, *given))
    return lambda *given: [np.stack(x) for x in zip(*(one(*each) for each in zip(*given, strict=True)), strict=True)]


def batched(method):
    many = jax.jit(jax.vmap(lambda *given: answer(method, *given)))
    return lambda *given: [np.asarray(x) for x in many(*given)]


def as_kernel(method):
    many = jax.jit(jax.vmap(uk.per_member(lambda *given: answer(method, *given))))
    return lambda *given: [np.asarray(x) for x in many(*given)]


def answer(method, M, A, Q, b):
    response = method.factorise(M, A)
    return *response.motion_and_multipliers(M, Q, b), response.needs_fallback


WAYS = pytest.mark.parametrize("way", (alone, batched, as_kernel), ids=lambda way: way.__name__)


def systems(rng, n, m, count=3, rank=None, massive=None):
    """M of rank ``massive``, A of rank ``rank``, Q, and consistent b."""
    M = np.stack([mass_matrix(rng, n) for _ in range(count)])
    if massive is not None:
        size, axes = np.linalg.eigh(M)
        M = (axes * np.where(np.arange(n) < n - massive, 0, size)[:, None]) @ np.swapaxes(axes, 1, 2)
        M = (M + np.swapaxes(M, 1, 2)) / 2
    A = np.stack([rows_of_rank(rng, m, n, m if rank is None else rank) for _ in range(count)])
    if rank is None and m:  # well conditioned, so that rounding is the only error
        A = np.stack([np.linalg.qr(rng.normal(size=(n, m)))[0].T * (1 + np.arange(m))[:, None] for _ in range(count)])
    b = np.einsum("kmn,kn->km", A, rng.normal(size=(count, n)))
    return M, A, rng.normal(size=(count, n)), b


def assert_solved(found, M, A, Q, b, reference):
    x, nu, needs_fallback = found
    assert not needs_fallback.any()
    for i in range(len(M)):
        expected = reference(M[i], Q[i], A[i], b[i])
        size = 1 + np.abs(expected).max()
        np.testing.assert_allclose(x[i], expected, rtol=0, atol=CLOSE * size)
        np.testing.assert_allclose(M[i] @ x[i] + A[i].T @ nu[i], Q[i], rtol=0, atol=10 * CLOSE * size)


@WAYS
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_independent_rows(rng, way, n, m):
    if way is as_kernel and n > 12:
        pytest.skip("more operations than a kernel has")
    given = systems(rng, n, m)
    assert_solved(way(FastPath())(*given), *given, multiplier_motion)


@pytest.mark.parametrize(("n", "m"), ((63, 62), (100, 90)), ids=("calls side by side", "calls in a loop"))
def test_rows_that_need_several_lapack_calls(rng, n, m):
    M, A, Q, b = systems(rng, n, m, count=1)
    assert_solved(alone(FastPath())(M, A, Q, b), M, A, Q, b, multiplier_motion)


@WAYS
@pytest.mark.parametrize("runtime_rows", (True, False), ids=("as numbers", "in the program"))
def test_a_singular_mass_matrix_with_a_weight_on_its_rows(rng, way, runtime_rows):
    given = systems(rng, 6, 4, massive=4)
    assert all(is_nearly_singular(M) for M in given[0])
    method = FastPath(runtime_rows=RuntimeRows.of(0.7, None, np.dtype(float))) if runtime_rows else FastPath(weight=0.7)
    assert_solved(way(method)(*given), *given, null_space_motion)


@WAYS
@pytest.mark.parametrize("unit", (1e-9, 1e4, 1e9))
def test_units_of_rows_do_not_matter_for_a_singular_mass_matrix(rng, way, unit):
    given = M, A, Q, b = systems(rng, 6, 4, massive=4)
    units = unit ** np.array([1, 1, 0.5, 0.5])
    x, nu, needs_fallback = way(FastPath(weight=1.0))(M, units[:, None] * A, Q, units * b)
    assert_solved((x, nu * units, needs_fallback), *given, null_space_motion)


@pytest.mark.parametrize("least_mass", [0.0, 2e-15, 1e-11, 1e-3])
def test_rows_that_share_a_massless_coordinate_stay_independent(least_mass):
    """As the hinges of a body with a quaternion do, while one of its components has almost no mass."""
    M = np.diag([1.0, 2.0, least_mass, 1.5])
    A = np.array([[0.0, 0.0, 2.0, 0.0], [1.0, 0.0, 0.5, 0.3], [0.0, 1.0, 0.7, -0.4]])
    Q, b = np.array([1.0, 2.0, 0.0, 4.0]), np.array([0.1, 0.2, 0.3])
    x, nu, needs_fallback = alone(FastPath(weight=1.0))(M[None], A[None], Q[None], b[None])
    expected = np.linalg.solve(np.block([[M, A.T], [A, np.zeros((3, 3))]]), np.concatenate([Q, b]))
    assert not needs_fallback[0]
    np.testing.assert_allclose(np.concatenate([x[0], nu[0]]), expected, rtol=1e-9, atol=1e-9)


@WAYS
@pytest.mark.parametrize("massive", (None, 5), ids=("definite M", "singular M"))
@pytest.mark.parametrize("runtime_rows", (True, False), ids=("as numbers", "in the program"))
def test_motion_with_redundant_rows_omitted(rng, way, runtime_rows, massive):
    M, A, Q, b = systems(rng, 7, 6, count=1, rank=4, massive=massive)
    kept = independent_rows(M[0], A[0], RTOL)
    weight = 0.0 if massive is None else 0.5
    if runtime_rows:
        method = FastPath(runtime_rows=RuntimeRows.of(weight, kept, np.dtype(float)))
    else:
        method = FastPath(weight=weight or None, kept=kept)
    M, A, Q, b = (np.concatenate([x, x]) for x in (M, A, Q, b))
    assert_solved(way(method)(M, A, Q, b), M, A, Q, b, null_space_motion)
    response = method.factorise(jnp.asarray(M[0]), jnp.asarray(A[0]))
    assert int(response.rank) == 4 and tuple(np.flatnonzero(response.kept)) == kept


@WAYS
def test_more_rows_than_coordinates_with_known_independent_rows(rng, way):
    M, A, Q, b = systems(rng, 4, 7, count=1, rank=3)
    method = FastPath(runtime_rows=RuntimeRows.of(0.0, independent_rows(M[0], A[0], RTOL), np.dtype(float)))
    assert_solved(way(method)(M, A, Q, b), M, A, Q, b, null_space_motion)


def test_one_factorisation_solves_a_batch_of_right_hand_sides(rng):
    """As in a Jacobian."""
    M, A, Q, b = (jnp.asarray(x) for x in systems(rng, 6, 4))
    response = jax.jit(FastPath().factorise)(M[0], A[0])
    together = jax.vmap(lambda Q, b: response.motion_and_multipliers(M[0], Q, b)[0])(Q, b)
    for i in range(len(Q)):
        np.testing.assert_allclose(together[i], multiplier_motion(M[0], Q[i], A[0], b[i]), rtol=0, atol=10 * CLOSE)


def test_factor_times_its_transpose_is_constrained_inverse_mass(rng):
    M, A, Q, b = systems(rng, 6, 4, count=1)
    F = np.asarray(FastPath().factorise(jnp.asarray(M[0]), jnp.asarray(A[0])).factor())
    np.testing.assert_allclose(F @ F.T @ Q[0], multiplier_motion(M[0], Q[0], A[0], 0 * b[0]), rtol=0, atol=10 * CLOSE)


def redundant(rng):
    M, A, Q, b = systems(rng, 6, 4)
    A[:, 3] = A[:, 0] + 2 * A[:, 1]
    return M, A, Q, b


def nearly_redundant(rng):
    M, A, Q, b = systems(rng, 6, 4)
    A[:, 3] = A[:, 0] + 1e-9 * A[:, 1]
    return M, A, Q, b


def singular(rng):
    return systems(rng, 6, 4, massive=5)


def nearly_singular(rng):
    M, A, Q, b = systems(rng, 6, 4)
    M[:] = np.diag([1, 1, 1, 1, 1, 1.0])
    M[:, 0, 1] = M[:, 1, 0] = 1 - 1e-10
    return M, A, Q, b


def noise(rng):
    """A row of the size of rounding errors."""
    M, A, Q, b = systems(rng, 6, 4)
    A[:, 2] *= 1e-15
    return M, A, Q, b


def nothing(rng):
    M, A, Q, b = systems(rng, 6, 4)
    A[:, 1] = 0
    return M, A, Q, b


def too_many(rng):
    return systems(rng, 3, 5, rank=3)


def not_finite(rng):
    M, A, Q, b = systems(rng, 6, 4)
    M[:, 2, 2] = np.nan
    return M, A, Q, b


@WAYS
@pytest.mark.parametrize("runtime_rows", (True, False), ids=("as numbers", "in the program"))
def test_fast_method_reports_where_fallback_is_needed(rng, way, runtime_rows):
    method = FastPath(runtime_rows=RuntimeRows.of(0.0, None, np.dtype(float))) if runtime_rows else FastPath()
    solve = way(method)
    for made in (redundant, nearly_redundant, singular, nearly_singular, noise, nothing, too_many, not_finite):
        assert solve(*made(rng))[2].all(), made.__name__
    M, A, Q, b = systems(rng, 6, 4)
    A[1, 3] = A[1, 0]
    np.testing.assert_array_equal(solve(M, A, Q, b)[2], [False, True, False])


@pytest.mark.parametrize("massive", (None, 5), ids=("definite M", "singular M"))
@pytest.mark.parametrize(("m", "rank"), ((6, 4), (6, 6), (9, 7), (3, 2)))
def test_selected_rows_span_all_rows(rng, m, rank, massive):
    n = 7
    M, A, _, _ = systems(rng, n, m, count=1, rank=rank, massive=massive)
    M, A = M[0], A[0]
    kept = independent_rows(M, A, RTOL)
    assert kept is not None
    assert kept == tuple(sorted(set(kept))) and len(kept) == rank
    assert np.linalg.matrix_rank(A[list(kept)]) == np.linalg.matrix_rank(A) == rank


def test_zero_rows_are_not_selected(rng):
    A = np.zeros((3, 4))
    A[1, 0] = 1e-3
    assert independent_rows(np.eye(4), A, RTOL) == (1,)
    assert independent_rows(np.eye(4), np.zeros((2, 4)), RTOL) == ()
    assert independent_rows(np.eye(4), np.zeros((0, 4)), RTOL) == ()


def test_selection_of_rows_does_not_depend_on_units():
    """A row in micrometres and a coordinate in millimetres."""
    A = np.array([[1.0, 1.0], [1e-6, -1e-6]])
    assert independent_rows(np.diag([1.0, 1e6]), A, RTOL) == (0, 1)


def test_nearly_singular_mass_matrices_are_recognised(rng):
    assert not is_nearly_singular(mass_matrix(rng, 5)) and not is_nearly_singular(
        np.diag([1e-9, 1.0, 1e9])
    )  # different units are not
    assert (
        is_nearly_singular(np.diag([0.0, 1.0]))
        and is_nearly_singular(np.ones((2, 2)))
        and is_nearly_singular(np.array([[1, 1 - 1e-12], [1 - 1e-12, 1]]))
    )


def test_rounding_does_not_change_selection_of_rows(rng):
    """Any three of the four rows are independent. Neighbouring motions must omit the same row, so that they remain
    close."""
    A = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0]])
    kept = {independent_rows(np.eye(4), A + 1e-15 * rng.normal(size=A.shape), RTOL) for _ in range(50)}
    assert len(kept) == 1


def constant_matrices(q0):
    """q at the end of a motion with forces −q³, in which all members of a batch have the same M and A."""
    M = jnp.diag(jnp.array([1.0, 2.0, 3.0]))
    plane = uk.Holonomic(lambda t, q: jnp.stack([q[0] + q[2], q[1] - 2 * q[2]]))
    model = uk.System(uk.MassForce(lambda t, q: M, lambda t, q, v: jnp.array([0.0, 0.0, -9.81]) - q**3), plane)
    return uk.simulate(model, q0, jnp.zeros_like(q0), [0.0, 0.25], dt=0.0125).q[..., -1, :]


def test_shared_factors_solve_all_right_hand_sides_of_a_batch(rng):
    """LAPACK factorises one system with many right-hand sides: members with the same M and A, and derivatives."""
    M, A, _, _ = systems(rng, 6, 4, count=1)
    Q, b = rng.normal(size=(5, 6)), rng.normal(size=(5, 4))
    one = lambda Q, b: answer(FastPath(), jnp.asarray(M[0]), jnp.asarray(A[0]), Q, b)
    found = [np.asarray(x) for x in jax.jit(jax.vmap(one))(Q, b)]
    many = lambda x: np.broadcast_to(x, (5, *x.shape[1:]))
    assert_solved(found, many(M), many(A), Q, b, multiplier_motion)
    # and in a batch of such systems
    M, A, _, _ = systems(rng, 6, 4)
    each = jax.vmap(lambda M, A: jax.vmap(lambda Q, b: answer(FastPath(), M, A, Q, b))(Q, b))
    for i, found in enumerate(zip(*map(np.asarray, jax.jit(each)(M, A)), strict=True)):
        assert_solved(found, many(M[i : i + 1]), many(A[i : i + 1]), Q, b, multiplier_motion)


def test_motions_with_shared_mass_and_rows_match_single_motions():
    starts = jnp.array([[1.0, -2.0, -1.0], [0.5, -1.0, -0.5], [0.2, -0.4, -0.2]])
    np.testing.assert_allclose(constant_matrices(starts), [constant_matrices(q0) for q0 in starts], atol=CLOSE)


def test_copies_of_lapack_factors_solve_in_a_batch(rng):
    """As where each member selects one of several responses: the factors of one system are then copied for all
    members."""
    B, A, force, rows = rng.normal(size=(5, 5)), rng.normal(size=(3, 5)), rng.normal(size=5), rng.normal(size=3)
    M = B @ B.T + np.eye(5)
    alone = FastPath().factorise(jnp.asarray(M), jnp.asarray(A))
    copies = jax.tree.map(lambda x: jnp.stack([x, x]), alone)
    known = map(jnp.asarray, (M, force, rows))
    x, nu = jax.vmap(lambda made, *known: made.motion_and_multipliers(*known), in_axes=(0, None, None, None))(
        copies, *known
    )
    exact = np.linalg.solve(np.block([[M, A.T], [A, np.zeros((3, 3))]]), np.concatenate([force, rows]))
    np.testing.assert_allclose(np.concatenate([x[0], nu[0]]), exact, rtol=0, atol=1e-11)
