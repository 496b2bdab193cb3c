"""Accuracy of ``constrained_motion``: each method against 50 digits, on the 200 random systems of the tests.

The systems include rank-deficient rows, bad scaling, cond(M) up to 1e8, singular M and contradictory rows. Errors are
relative, and also given as a fraction of the bound 50 cond(M) cond(A)² 2.2e-16.
"""

from typing import Any

import numpy as np

import ukjax as uk
from tests.helpers import EPS, exact_acceleration, hard_case

SHAPES = ((1, 1), (2, 1), (3, 5), (4, 2), (5, 0), (6, 4), (6, 8), (8, 3), (9, 14), (12, 6), (12, 14), (12, 12))
SYSTEMS = 200
NEEDS = {
    "orthogonal": lambda case: True,
    "svd": lambda case: True,
    "udwadia_phohomsiri": lambda case: True,
    "cholesky": lambda case: case.definite and case.independent,
    "kkt": lambda case: case.independent,
}


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    rng = np.random.default_rng(20240229)
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in NEEDS}
    wrong_ranks = dict.fromkeys(NEEDS, 0)
    for i in range(SYSTEMS):
        case = hard_case(rng, *SHAPES[i % len(SHAPES)])
        exact = exact_acceleration(case)
        bound = 50 * case.condition * EPS
        for name, applies in NEEDS.items():
            if applies(case):
                motion = uk.constrained_motion(uk.Terms(case.M, case.Q, case.A, case.b), name)
                error = np.linalg.norm(motion.acceleration - exact) / np.linalg.norm(exact)
                errors[name].append((float(error), float(error / bound)))
                wrong_ranks[name] += int(motion.rank) != case.rank
    return [
        {
            "method": name,
            "systems": len(found),
            "median error": float(np.median([error for error, _ in found])),
            "largest share of the bound": max(share for _, share in found),
            "wrong ranks": wrong_ranks[name],
        }
        for name, found in errors.items()
    ]
