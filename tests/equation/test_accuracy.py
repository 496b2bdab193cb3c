"""The reference test: ill-conditioned systems against fifty-digit arithmetic."""

import numpy as np
import pytest

import ukjax as uk

from ..helpers import EPS, exact_acceleration, hard_case

# A backward-stable solution errs by a small multiple of n² eps cond(M) cond(A)²: 50 covers the n and m met here.
MULTIPLE = 50 * EPS

# One compilation per shape and method: hence few shapes.
SHAPES = ((1, 1), (5, 0), (4, 2), (6, 8), (12, 6), (12, 12), (9, 14), (8, 3))
APPLIES = {
    "orthogonal": lambda case: True,
    "svd": lambda case: True,
    "udwadia_phohomsiri": lambda case: True,
    "cholesky": lambda case: case.definite and case.independent,
    "kkt": lambda case: case.independent,
}


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(1992)
    return [hard_case(rng, *SHAPES[i % len(SHAPES)]) for i in range(120)]


@pytest.fixture(scope="module")
def systems(cases):
    return [(case, exact_acceleration(case)) for case in cases]


def motion(case, method="orthogonal"):
    return uk.constrained_motion(uk.Terms(case.M, case.Q, case.A, case.b), method)


def relative_error(case, exact, method="orthogonal"):
    return np.linalg.norm(motion(case, method).acceleration - exact) / np.linalg.norm(exact)


@pytest.mark.slow
@pytest.mark.parametrize("method", APPLIES)
def test_acceleration_agrees_with_fifty_digits(systems, method):
    applicable = [(case, exact) for case, exact in systems if APPLIES[method](case)]
    assert len(applicable) > 30
    wrong = {
        i: (case.A.shape, case.rank, error, case.condition)
        for i, (case, exact) in enumerate(applicable)
        if not (error := relative_error(case, exact, method)) <= MULTIPLE * case.condition
    }
    assert not wrong


@pytest.mark.slow
def test_median_error_is_a_few_roundings(systems):
    assert np.median([relative_error(case, exact) for case, exact in systems]) < 20 * EPS


@pytest.mark.parametrize("method", ("orthogonal", "svd", "udwadia_phohomsiri"))
@pytest.mark.parametrize(
    "some", (slice(3, None, 4), pytest.param(slice(None), marks=pytest.mark.slow)), ids=("some", "all")
)
def test_reported_rank_is_the_exact_one(cases, method, some):
    ranks = [(case.rank, int(motion(case, method).rank)) for case in cases[some]]
    assert [pair for pair in ranks if pair[0] != pair[1]] == []


def test_systems_include_redundant_singular_and_contradictory_ones(cases):
    assert all(np.array_equal(exact_product(case), case.A) for case in cases)
    assert sum(not case.independent for case in cases) > 30
    assert sum(not case.definite for case in cases) > 20
    assert sum(np.linalg.norm(case.b - case.A @ np.linalg.pinv(case.A, 1e-12) @ case.b) > 0.1 for case in cases) > 12
    assert max(np.linalg.cond(case.M) for case in cases if case.definite) > 1e7
    assert np.median([MULTIPLE * case.condition for case in cases]) < 1e-7


def exact_product(case):
    C, R = ((X * 2**12).astype(np.int64) for X in (case.C, case.R))
    return (C @ R) / 2**24
