"""The equation against other methods for the same motion, and the laws of mechanics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..helpers import mass_matrix, multiplier_motion, null_space_motion, printed_formula, rows_of_rank

CLOSE = 1e-11  # float64 rounding times the condition (below 1e3) of the systems made here
SINGLE = 3e-4  # the same in float32

METHODS = {
    "orthogonal": uk.Orthogonal(),
    "svd": uk.SVD(),
    "udwadia_phohomsiri": uk.UdwadiaPhohomsiri(),
    "cholesky": uk.Cholesky(),
    "kkt": uk.KKT(),
}


def system(rng, m=4, n=6, rank=None, consistent=True):
    """M, Q, A, b: well conditioned, with rows of the given rank."""
    A = rows_of_rank(rng, m, n, min(m, n) if rank is None else rank)
    b = A @ rng.normal(size=n) if consistent else rng.normal(size=m)
    return mass_matrix(rng, n), rng.normal(size=n), A, b


def null_vectors(rng, A):
    """Random virtual displacements: A v = 0."""
    n = A.shape[1]
    return (np.eye(n) - np.linalg.pinv(A, 1e-11) @ A) @ rng.normal(size=(n, 3))


def move(*terms, method="orthogonal"):
    return uk.constrained_motion(uk.Terms(*map(np.asarray, terms)), method)


def accelerate(*terms, method="orthogonal"):
    return move(*terms, method=method).acceleration


# --- other methods for the same motion -----------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "rank"), ((4, 4), (4, 2), (9, 5), (9, 6), (0, 0)))
@pytest.mark.parametrize("consistent", (True, False))
def test_motion_and_forces_match_printed_formula(rng, m, rank, consistent):
    M, Q, A, b = system(rng, m, rank=rank, consistent=consistent)
    c = rng.normal(size=6)
    motion = move(M, Q, A, b, c)
    acceleration, ideal, nonideal = printed_formula(M, Q, A, b, c)
    np.testing.assert_allclose(motion.acceleration, acceleration, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.ideal_force, ideal, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.nonideal_force, nonideal, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.constraint_force, ideal + nonideal, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.unconstrained, np.linalg.solve(M, Q), rtol=0, atol=CLOSE)
    assert motion.rank == rank


def test_motion_matches_lagrange_multipliers(rng):
    M, Q, A, b = system(rng)
    np.testing.assert_allclose(accelerate(M, Q, A, b), multiplier_motion(M, Q, A, b), rtol=0, atol=CLOSE)


@pytest.mark.parametrize(("m", "rank"), ((4, 3), (9, 5)))
def test_motion_matches_null_space_method(rng, m, rank):
    M, Q, A, b = system(rng, m, rank=rank, consistent=False)
    np.testing.assert_allclose(accelerate(M, Q, A, b), null_space_motion(M, Q, A, b), rtol=0, atol=CLOSE)


def test_no_constraints_leave_the_motion_unconstrained(rng):
    M, Q, A, b = system(rng, 0)
    motion = move(M, Q, A, b)
    np.testing.assert_allclose(motion.acceleration, np.linalg.solve(M, Q), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.constraint_force, 0, rtol=0, atol=CLOSE)
    assert motion.rank == 0 and motion.inconsistency == 0


def test_rows_of_zeros_leave_the_motion_unconstrained(rng):
    M, Q, A, b = system(rng)
    np.testing.assert_allclose(accelerate(M, Q, 0 * A, 0 * b), np.linalg.solve(M, Q), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("method", METHODS)
def test_methods_agree_by_name_and_by_object(rng, method):
    terms = system(rng)
    by_name = accelerate(*terms, method=method)
    np.testing.assert_array_equal(by_name, accelerate(*terms, method=METHODS[method]))
    np.testing.assert_allclose(by_name, multiplier_motion(*terms), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("method", ("orthogonal", "svd", "udwadia_phohomsiri"))
def test_methods_agree_on_rows_that_contradict_each_other(rng, method):
    M, Q, A, b = system(rng, 9, rank=5, consistent=False)
    np.testing.assert_allclose(accelerate(M, Q, A, b, method=method), null_space_motion(M, Q, A, b), rtol=0, atol=CLOSE)


def test_unknown_method_is_an_error_with_a_suggestion(rng):
    with pytest.raises(
        ValueError, match=r"method must be one of orthogonal, .*got 'choleski'; did you mean 'cholesky'"
    ):
        accelerate(*system(rng), method="choleski")


def test_larger_tolerance_reduces_rank(rng):
    M, Q, A, b = system(rng)
    A[3] = A[2] + 1e-5 * A[3]
    assert uk.constrained_motion(uk.Terms(M, Q, A, b)).rank == 4
    assert uk.constrained_motion(uk.Terms(M, Q, A, b), uk.Orthogonal(rtol=1e-3)).rank == 3


# --- laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "rank"), ((4, 4), (9, 4)))
def test_gauss_least_constraint(rng, m, rank):
    """G(q̈ + v) − G(q̈) = vᵀ M v for A v = 0, G(x) = (x − a)ᵀ M (x − a): q̈ is nearest to a."""
    M, Q, A, b = system(rng, m, rank=rank)
    x, a = np.asarray(accelerate(M, Q, A, b)), np.linalg.solve(M, Q)
    np.testing.assert_allclose(A @ x, b, rtol=0, atol=CLOSE)
    constraint = lambda x: (x - a) @ M @ (x - a)
    for v in null_vectors(rng, A).T:
        np.testing.assert_allclose(constraint(x + v) - constraint(x), v @ M @ v, rtol=0, atol=CLOSE)
        assert constraint(x + 1e-3 * v) > constraint(x)


@pytest.mark.parametrize(("m", "rank"), ((4, 4), (9, 5)))
def test_virtual_work_of_constraints_equals_that_of_c(rng, m, rank):
    M, Q, A, b = system(rng, m, rank=rank)
    c = rng.normal(size=6)
    motion = move(M, Q, A, b, c)
    v = null_vectors(rng, A)
    np.testing.assert_allclose(motion.ideal_force @ v, 0, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.constraint_force @ v, c @ v, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(A @ motion.acceleration, b, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(M @ motion.acceleration, Q + motion.constraint_force, rtol=0, atol=CLOSE)


def test_nonideal_force_acts_as_an_added_applied_force(rng):
    M, Q, A, b = system(rng)
    c = rng.normal(size=6)
    np.testing.assert_allclose(accelerate(M, Q, A, b, c), accelerate(M, Q + c, A, b), rtol=0, atol=CLOSE)


def test_bead_on_a_rough_incline():
    """Sliding down an incline of angle α: q̈ = g (sin α − μ cos α) along it."""
    m, g, angle, mu = 0.3, 9.81, 0.6, 0.25
    down, normal = np.array([np.cos(angle), -np.sin(angle)]), np.array([np.sin(angle), np.cos(angle)])
    friction = -mu * m * g * np.cos(angle) * down
    motion = move(m * np.eye(2), [0.0, -m * g], normal[None], [0.0], friction)
    np.testing.assert_allclose(motion.acceleration, g * (np.sin(angle) - mu * np.cos(angle)) * down, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.ideal_force, m * g * np.cos(angle) * normal, rtol=0, atol=CLOSE)


# --- rows that repeat or contradict each other ---------------------------------------------------------------------


def test_redundant_rows_leave_the_motion_unchanged(rng):
    M, Q, A, b = system(rng)
    repeat = np.vstack([np.eye(4), rng.normal(size=(5, 4))])
    one, many = (move(M, Q, X @ A, X @ b) for X in (np.eye(4), repeat))
    np.testing.assert_allclose(many.acceleration, one.acceleration, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(many.constraint_force, one.constraint_force, rtol=0, atol=CLOSE)
    assert many.rank == one.rank == 4
    assert many.inconsistency < CLOSE


def test_more_rows_than_coordinates_may_fix_the_motion(rng):
    M, Q, A, _ = system(rng, 9)
    wanted = rng.normal(size=6)
    motion = move(M, Q, A, A @ wanted)
    np.testing.assert_allclose(motion.acceleration, wanted, rtol=0, atol=CLOSE)
    assert motion.rank == 6


def test_rows_that_contradict_each_other_get_the_least_squares_motion(rng):
    """b = A x + e with e orthogonal to the range of A: the residual is −e, for any M and Q."""
    M, Q, A, b = system(rng, 9, rank=5)
    e = (np.eye(9) - A @ np.linalg.pinv(A, 1e-11)) @ rng.normal(size=9)
    motion = move(M, Q, A, b + e)
    np.testing.assert_allclose(A @ motion.acceleration - (b + e), -e, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.inconsistency, np.linalg.norm(e), rtol=CLOSE)
    np.testing.assert_allclose(motion.acceleration, accelerate(M, Q, A, b), rtol=0, atol=CLOSE)


def test_two_values_for_one_row_give_their_mean():
    motion = move(np.eye(2), np.zeros(2), [[1.0, 0.0], [1.0, 0.0]], [1.0, 2.0])
    np.testing.assert_allclose(motion.acceleration, [1.5, 0.0], rtol=0, atol=CLOSE)
    np.testing.assert_allclose(motion.inconsistency, np.sqrt(0.5), rtol=CLOSE)


def test_contradictory_rows_are_weighted_by_their_scale():
    """Rows are not normalised: 3 q̈ = 3 against q̈ = 2 means min 9 (x − 1)² + (x − 2)², x = 1.1."""
    motion = move(np.eye(2), np.zeros(2), [[3.0, 0.0], [1.0, 0.0]], [3.0, 2.0])
    np.testing.assert_allclose(motion.acceleration, [1.1, 0.0], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("method", ("orthogonal", "svd"))
def test_row_of_rounding_noise_is_omitted_with_a_warning(rng, method):
    M, Q, A, b = system(rng)
    noisy = A.copy()
    noisy[3] = 1e-17 * rng.normal(size=6)
    b[3] = 0
    with pytest.warns(UserWarning, match=r"row 3 of A is \de-1[78] of the largest, .* left out"):
        motion = uk.constrained_motion(uk.Terms(M, Q, noisy, b), method)
    assert motion.rank == 3
    np.testing.assert_allclose(motion.acceleration, multiplier_motion(M, Q, A[:3], b[:3]), rtol=0, atol=CLOSE)


# With svd, a mass below eps times the mean counts as zero: unit⁻⁴ must stay above that.
@pytest.mark.parametrize(("method", "unit"), (("orthogonal", 1e5), ("svd", 1e3)))
def test_units_of_coordinates_and_rows_do_not_matter(rng, method, unit):
    M, Q, A, b = system(rng)
    coordinate, row = unit ** np.array([1, 0, -1, 1, -1, 0]), np.array([1e-5, 1e5, 1.0, 1e5])
    scaled = M / coordinate / coordinate[:, None], Q / coordinate, row[:, None] * A / coordinate, row * b
    motion = move(*scaled, method=method)
    assert motion.rank == 4
    np.testing.assert_allclose(motion.acceleration / coordinate, multiplier_motion(M, Q, A, b), rtol=1e-9)


@pytest.mark.parametrize("method", ("orthogonal", "svd"))
def test_units_do_not_matter_with_redundant_rows(rng, method):
    """Rounding of a row times 1e3 contradicts a row times 1e-3, by 1e-16 × 1e6 of its size."""
    M, Q, A, b = system(rng, rank=3)
    coordinate, row = np.array([1e3, 1.0, 1e-3, 1e3, 1e-3, 1.0]), np.array([1e-3, 1e3, 1.0, 1e3])
    scaled = M / coordinate / coordinate[:, None], Q / coordinate, row[:, None] * A / coordinate, row * b
    motion = move(*scaled, method=method)
    assert motion.rank == 3
    np.testing.assert_allclose(motion.acceleration / coordinate, null_space_motion(M, Q, A, b), rtol=1e-8)


# --- singular M ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ("orthogonal", "svd", "udwadia_phohomsiri", "kkt"))
def test_massless_coordinate_moves_as_constraint_requires(method):
    """A mass m and a massless point fixed to it, both pushed: m ẍ = f + g."""
    m, f, g = 2.0, 3.0, 5.0
    motion = move(np.diag([m, 0.0]), [f, g], [[1.0, -1.0]], [0.7], method=method)
    np.testing.assert_allclose(motion.acceleration, [(f + g) / m, (f + g) / m - 0.7], rtol=0, atol=CLOSE)
    assert np.isnan(motion.unconstrained).any()


def test_motion_without_mass_is_least_squares_solution_of_rows(rng):
    _, Q, A, b = system(rng, 9)
    wanted = np.linalg.lstsq(A, b)[0]
    np.testing.assert_allclose(accelerate(np.zeros((6, 6)), Q, A, b), wanted, rtol=0, atol=CLOSE)


def test_singular_mass_with_redundant_rows_matches_null_space_method(rng):
    M, Q, A, b = system(rng, 9, rank=4, consistent=False)
    M = M @ (np.eye(6) - np.outer(A[0], A[0]) / (A[0] @ A[0]))
    M = M.T @ M
    assert np.linalg.matrix_rank(M) == 5
    np.testing.assert_allclose(accelerate(M, Q, A, b), null_space_motion(M, Q, A, b), rtol=0, atol=CLOSE)


def quaternion_matrix(u):
    """E(u), with ω = 2 E(u) u̇ in the body and E(u) w = −E(w) u."""
    u0, u1, u2, u3 = u
    return np.array([[-u1, u0, u3, -u2], [-u2, -u3, u0, u1], [-u3, u2, -u1, u0]])


@pytest.mark.parametrize("auxiliary", (0.0, 1.0, 25.0))
def test_unit_quaternion_obeys_euler(rng, auxiliary):
    """M = 4 EᵀJE is singular along u: the motion needs |u| = 1, and no auxiliary inertia J0 changes it.

    Udwadia & Schutte, J. Appl. Mech. 77 (2010) 044505: ü = ½ Eᵀ J⁻¹ (Γ − ω × Jω) − ¼ |ω|² u.
    """
    u = rng.normal(size=4)
    u /= np.linalg.norm(u)
    w = rng.normal(size=4)
    w -= (w @ u) * u
    J, torque = np.diag([1.0, 2.0, 3.5]), rng.normal(size=3)
    E, E_dot = quaternion_matrix(u), quaternion_matrix(w)
    # T = 2 u̇ᵀEᵀJE u̇ + 2 J0 (uᵀu̇)². Q = 2EᵀΓ − Ṁu̇ + ∂T/∂u, with E(u̇) u̇ = 0.
    M = 4 * E.T @ J @ E + 4 * auxiliary * np.outer(u, u)
    Q = 2 * E.T @ torque + 8 * E_dot.T @ J @ E_dot @ u - 4 * auxiliary * (w @ w) * u
    omega = 2 * E @ w
    expected = 0.5 * E.T @ np.linalg.solve(J, torque - np.cross(omega, J @ omega)) - 0.25 * (omega @ omega) * u
    np.testing.assert_allclose(accelerate(M, Q, u[None], [-w @ w]), expected, rtol=0, atol=CLOSE)


# --- transformations of JAX ----------------------------------------------------------------------------------------


def test_two_batch_axes_match_single_members(rng):
    batch = [[system(rng, rank=rank) for rank in ranks] for ranks in ((4, 3, 2), (1, 4, 4))]
    terms = jax.tree.map(lambda *x: np.stack(x), *(uk.Terms(*t) for row in batch for t in row))
    terms = jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), terms)
    motion = jax.vmap(jax.vmap(uk.constrained_motion))(terms)
    np.testing.assert_array_equal(motion.rank, [[4, 3, 2], [1, 4, 4]])
    for i, row in enumerate(batch):
        for j, member in enumerate(row):
            one = move(*member)
            np.testing.assert_allclose(motion.acceleration[i, j], one.acceleration, rtol=0, atol=CLOSE)
            np.testing.assert_allclose(motion.constraint_force[i, j], one.constraint_force, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("rank", (4, 3))
def test_single_precision_stays_single(rng, rank):
    terms = system(rng, rank=rank)
    single = uk.Terms(*(x.astype(np.float32) for x in terms))
    motion = uk.constrained_motion(single)
    floats = [x for x in jax.tree.leaves(motion) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert len(floats) == 6 and all(x.dtype == jnp.float32 for x in floats)
    assert motion.rank == rank
    np.testing.assert_allclose(motion.acceleration, null_space_motion(*terms), rtol=0, atol=SINGLE)


def test_jit_changes_nothing(rng):
    terms = uk.Terms(*system(rng))
    eager, jitted = uk.constrained_motion(terms), jax.jit(uk.constrained_motion)(terms)
    np.testing.assert_allclose(jitted.acceleration, eager.acceleration, rtol=0, atol=CLOSE)
    assert jitted.rank == eager.rank


@pytest.mark.parametrize("apart", (1e-8, 1e-10))
@pytest.mark.parametrize("method", (uk.Orthogonal, uk.SVD))
def test_nearly_dependent_rows_give_a_warning_or_are_used(method, apart):
    """ẍ = 0 and ẍ + ε ÿ = ε imply ÿ = 1. If the second row is omitted there is a warning; with a tolerance below ε it
    is used."""
    terms = uk.Terms(np.eye(2), np.zeros(2), np.array([[1.0, 0.0], [1.0, apart]]), np.array([0.0, apart]))
    with pytest.warns(UserWarning, match=r"nearly dependent: their rank is taken to be 1, .*rtol="):
        assert int(uk.constrained_motion(terms, method()).rank) == 1
    kept = uk.constrained_motion(terms, method(rtol=apart / 100))
    assert int(kept.rank) == 2
    np.testing.assert_allclose(kept.acceleration, [0, 1], atol=1e-5)


def test_rows_dependent_up_to_rounding_give_no_warning(rng):
    A = rng.normal(size=(3, 5))
    A = np.concatenate([A, rng.normal(size=(2, 3)) @ A])
    motion = uk.constrained_motion(uk.Terms(np.eye(5), np.zeros(5), A, A @ rng.normal(size=5)))
    assert int(motion.rank) == 3
