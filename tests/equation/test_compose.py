"""Composition of constraints: sets applied one after the other, in any order, give the same motion as all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..helpers import central_difference, mass_matrix, null_space_motion, rows_of_rank

CLOSE = 1e-10  # float64 rounding times the condition (below 1e3) of the systems made here, squared in A W Aᵀ
DIFFERENCES = 1e-6  # against central differences: step² = 1e-10 times third derivatives, 1e-16 / step of rounding

# First rank, second rank, whether M is singular; A1 (3, 8), A2 (4, 8) always, so that all share a compilation.
KINDS = {
    "independent": (3, 4, False),
    "first rows redundant": (2, 4, False),
    "second rows redundant": (3, 2, False),
    "singular mass": (3, 2, True),
}


def pair(rng, kind):
    """M, Q, two sets of consistent rows."""
    first, second, singular = KINDS[kind]
    M, x = mass_matrix(rng, 8), rng.normal(size=8)
    A1, A2 = rows_of_rank(rng, 3, 8, first), rows_of_rank(rng, 4, 8, second)
    if singular:
        free = np.eye(8) - np.outer(A1[0], A1[0]) / (A1[0] @ A1[0])
        M = free @ M @ free
    return M, rng.normal(size=8), (A1, A1 @ x), (A2, A2 @ x)


@jax.jit
def sequential(M, Q, first, *more):
    motion = uk.mobility(uk.Terms(M, Q, *first))
    for A, b in more:
        motion = uk.compose(motion, A, b)
    return motion


@jax.jit
def stacked(M, Q, *sets):
    A, b = zip(*sets, strict=True)
    return uk.mobility(uk.Terms(M, Q, jnp.concatenate(A), jnp.concatenate(b)))


def same(one, other):
    np.testing.assert_allclose(one.acceleration, other.acceleration, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(one.matrix, other.matrix, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_two_sets_in_sequence_match_stacked_rows(rng, kind):
    M, Q, first, second = pair(rng, kind)
    together, by_hand = sequential(M, Q, first, second), np.vstack([first[0], second[0]])
    same(together, stacked(M, Q, first, second))
    b = np.concatenate([first[1], second[1]])
    np.testing.assert_allclose(together.acceleration, null_space_motion(M, Q, by_hand, b), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(together.factor @ together.factor.T, together.matrix, rtol=0, atol=CLOSE)


def test_order_does_not_matter(rng):
    M, Q, first, second = pair(rng, "independent")
    same(sequential(M, Q, first, second), sequential(M, Q, second, first))


@pytest.mark.slow
def test_three_sets_in_sequence_match_stacked_rows(rng):
    M, Q, first, second = pair(rng, "second rows redundant")
    third = first[0][:1] + second[0][:1] + rng.normal(size=(1, 8)), rng.normal(size=1)
    same(sequential(M, Q, first, second, third), stacked(M, Q, first, second, third))


def test_a_second_set_that_repeats_the_first_changes_nothing(rng):
    M, Q, (A, b), _ = pair(rng, "independent")
    mix = rng.normal(size=(4, 3))
    same(sequential(M, Q, (A, b), (mix @ A, mix @ b)), sequential(M, Q, (A, b)))


def test_fully_constrained_motion_is_not_changed_by_further_rows(rng):
    M, Q, _, (A, b) = pair(rng, "independent")
    wanted = rng.normal(size=8)
    fixed = sequential(M, Q, (np.eye(8), wanted), (A, b))  # A contradicts the first set, which has priority
    np.testing.assert_allclose(fixed.acceleration, wanted, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(fixed.matrix, 0, rtol=0, atol=CLOSE)


def test_contradictory_second_set_is_satisfied_in_least_squares_sense(rng):
    """min |A2 x − b2| over the x that the first rows allow, then nearest in the metric of M."""
    M, Q, (A1, b1), _ = pair(rng, "independent")
    A2, b2 = np.vstack([A1[0], A1[0], rng.normal(size=(2, 8))]), rng.normal(size=4)
    motion = sequential(M, Q, (A1, b1), (A2, b2))
    np.testing.assert_allclose(A1 @ motion.acceleration, b1, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(A2[2:] @ motion.acceleration, b2[2:], rtol=0, atol=CLOSE)
    possible = np.vstack([A1, A2[2:]]), np.concatenate([b1, b2[2:]])
    np.testing.assert_allclose(motion.acceleration, null_space_motion(M, Q, *possible), rtol=0, atol=CLOSE)


def test_mobility_maps_a_force_to_an_acceleration(rng):
    M, Q, (A, b), _ = pair(rng, "first rows redundant")
    force = rng.normal(size=8)
    motion = sequential(M, Q, (A, b))
    np.testing.assert_allclose(
        motion.acceleration, uk.constrained_motion(uk.Terms(M, Q, A, b)).acceleration, rtol=0, atol=CLOSE
    )
    pushed = uk.constrained_motion(uk.Terms(M, Q + force, A, b)).acceleration
    np.testing.assert_allclose(motion.acceleration + motion.matrix @ force, pushed, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(A @ motion.matrix, 0, rtol=0, atol=CLOSE)


def test_mobility_accepts_nonideal_force(rng):
    M, Q, (A, b), _ = pair(rng, "independent")
    terms = uk.Terms(M, Q, A, b, rng.normal(size=8))
    np.testing.assert_allclose(
        uk.mobility(terms).acceleration, uk.constrained_motion(terms).acceleration, rtol=0, atol=CLOSE
    )


def test_cascading_with_the_unconstrained_mass_breaks_the_first_set(rng):
    """Some papers do this (Han et al. 2020, eq. 25). ``compose`` satisfies both sets."""
    M, Q, (A1, b1), (A2, b2) = pair(rng, "independent")
    once = sequential(M, Q, (A1, b1)).acceleration
    naive = sequential(M, M @ once, (A2, b2)).acceleration
    np.testing.assert_allclose(A2 @ naive, b2, rtol=0, atol=CLOSE)
    assert np.linalg.norm(A1 @ naive - b1) > 0.01
    np.testing.assert_allclose(A1 @ sequential(M, Q, (A1, b1), (A2, b2)).acceleration, b1, rtol=0, atol=CLOSE)


AT = np.array([0.3, 0.7, 0.2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_match_those_of_stacked_rows(rng, kind):
    data = changing(rng, kind)
    for one, other in zip(DERIVATIVES["sequential"](AT, *data), DERIVATIVES["stacked"](AT, *data), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=CLOSE)
        assert np.any(np.abs(one) > 1e-3)


@pytest.mark.slow
def test_gradients_with_contradictory_rows_match_finite_differences(rng):
    """The second set contradicts the first, and itself. No stacked rows give this motion."""
    M, Q, A1, b1, A2, b2, *changes = changing(rng, "independent")
    A2[0], A2[2] = A1[0] + A1[1], A2[3]
    data = M, Q, A1, b1, A2, rng.normal(size=4), *changes
    forward, _, reverse, _ = DERIVATIVES["sequential"](AT, *data)
    differences = central_difference(lambda p: VALUES["sequential"](p, *data)[0], AT)
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(forward, differences, rtol=DIFFERENCES, atol=DIFFERENCES)


def changing(rng, kind):
    """A pair of constraints, and changes that do not change any rank."""
    M, Q, first, second = pair(rng, kind)
    axes = np.linalg.eigh(M)[1][:, KINDS[kind][2] :]  # without the null space of a singular M
    dM = axes @ mass_matrix(rng, axes.shape[1]) @ axes.T
    return M, Q, *first, *second, rng.normal(size=(3, 3)), rng.normal(size=(4, 4)), dM


def outputs(solve):
    def of(p, M, Q, A1, b1, A2, b2, mix1, mix2, dM):
        first, second = jnp.eye(3) + p[0] * mix1, jnp.eye(4) + p[1] * mix2
        turn = jnp.eye(8) + p[2] * jnp.diag(jnp.arange(8.0))
        motion = solve(
            M + p[0] ** 2 * dM, Q * jnp.cos(p[1]), (first @ A1 @ turn, first @ b1), (second @ A2 @ turn, second @ b2)
        )
        return motion.acceleration, motion.matrix

    return of


def both_ways(of):
    return lambda *arguments: jax.tree.leaves((jax.jacfwd(of)(*arguments), jax.jacrev(of)(*arguments)))


VALUES = {"sequential": jax.jit(outputs(sequential)), "stacked": jax.jit(outputs(stacked))}
DERIVATIVES = {name: jax.jit(both_ways(of)) for name, of in VALUES.items()}


@pytest.mark.parametrize(
    ("A", "b", "message"),
    (
        (
            np.ones(8),
            np.ones(1),
            r"A must have shape \(m, 8\) to constrain a motion of 8 coordinates, got shape \(8,\)",
        ),
        (np.ones((2, 5)), np.ones(2), r"A must have shape \(m, 8\).*got shape \(2, 5\)"),
        (np.ones((2, 8)), np.ones(3), r"b must have shape \(2,\), one entry per row of A, got shape \(3,\)"),
    ),
)
def test_rows_of_wrong_shape_are_an_error(rng, A, b, message):
    M, Q, first, _ = pair(rng, "independent")
    with pytest.raises(ValueError, match=message):
        uk.compose(sequential(M, Q, first), A, b)
