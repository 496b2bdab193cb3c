"""Independent computations in NumPy, SciPy and mpmath. This file does not import ukjax."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import scipy.linalg

EPS = 2.0**-52
DIGITS = 50

# --- the constrained motion, by other methods ----------------------------------------------------------------------


def printed_formula(M, Q, A, b, c=None):
    """Return q̈ as printed by Udwadia and Kalaba, with M^(1/2) and a pseudoinverse; also Qᶜ_ideal and Qᶜ_nonideal."""
    root = np.real(scipy.linalg.sqrtm(M))
    inverse_root = np.linalg.inv(root)
    B = A @ inverse_root
    B_plus = scipy.linalg.pinv(B, rtol=1e-11) if A.size else np.zeros(B.shape[::-1])
    a = np.linalg.solve(M, Q)
    ideal = root @ B_plus @ (b - A @ a)
    projector = root @ (np.eye(len(Q)) - B_plus @ B) @ inverse_root
    nonideal = np.zeros_like(Q) if c is None else projector @ c
    return np.linalg.solve(M, Q + ideal + nonideal), ideal, nonideal


def multiplier_motion(M, Q, A, b):
    """q̈ from [M −Aᵀ; A 0] [q̈; λ] = [Q; b], for independent rows."""
    n, m = len(Q), len(b)
    matrix = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    return np.linalg.solve(matrix, np.concatenate([Q, b]))[:n]


def null_space_motion(M, Q, A, b):
    """q̈ = q_p + N η with A N = 0 and Nᵀ M N η = Nᵀ (Q − M q_p): Maggi's equations. M may be singular.

    q_p = A⁺ b, so that inconsistent rows are met in the least-squares sense.
    """
    if A.shape[0] == 0:
        return np.linalg.solve(M, Q)
    N = scipy.linalg.null_space(A, rcond=1e-11)
    particular = np.linalg.lstsq(A, b, rcond=1e-11)[0]
    return particular + N @ np.linalg.solve(N.T @ M @ N, N.T @ (Q - M @ particular))


def motion_tangent(M, Q, A, b, dQ, dA, db):
    """dq̈ for a change (dQ, dA, db) at fixed M, through Golub and Pereyra's derivative of the pseudoinverse."""
    root = np.real(scipy.linalg.sqrtm(M))
    inverse_root = np.linalg.inv(root)
    B, dB = A @ inverse_root, dA @ inverse_root
    P = np.linalg.pinv(B, rcond=1e-11)
    m, n = A.shape
    dP = (
        -P @ dB @ P
        + P @ P.T @ dB.T @ (np.eye(m) - B @ P)  # zero where the rows are independent
        + (np.eye(n) - P @ B) @ dB.T @ P.T @ P
    )
    a, da = np.linalg.solve(M, Q), np.linalg.solve(M, dQ)
    return da + inverse_root @ (dP @ (b - A @ a) + P @ (db - dA @ a - A @ da))


# --- random systems ------------------------------------------------------------------------------------------------


def mass_matrix(rng: np.random.Generator, n: int, condition: float = 10.0) -> np.ndarray:
    """A positive definite matrix with eigenvalues spread evenly, on a logarithmic scale, from 1 to 1/condition."""
    axes = np.linalg.qr(rng.normal(size=(n, n)))[0]
    size = condition ** np.linspace(0, -1, n) if n > 1 else np.ones(n)
    M = (axes * size) @ axes.T
    return (M + M.T) / 2


def rows_of_rank(rng: np.random.Generator, m: int, n: int, rank: int) -> np.ndarray:
    """A (m, n) of the given rank."""
    return rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n))


@dataclass(frozen=True)
class HardCase:
    """M q̈ = Q, A q̈ = b with A = C R exactly, C (m, r) and R (r, n) of full rank r."""

    M: np.ndarray
    Q: np.ndarray
    A: np.ndarray
    b: np.ndarray
    C: np.ndarray
    R: np.ndarray
    massive: int  # the rank of M

    @property
    def rank(self) -> int:
        return self.R.shape[0]

    @property
    def definite(self) -> bool:
        return self.massive == self.Q.size

    @property
    def independent(self) -> bool:
        return self.rank == self.b.size

    @property
    def condition(self) -> float:
        """cond(M) cond(A)², with M + AᵀA, both scaled to unit size, in place of a singular M."""
        s = np.linalg.svd(self.A, compute_uv=False)[: self.rank] if self.rank else np.ones(1)
        M = self.M
        if not self.definite:
            M = M / (np.linalg.norm(M, 2) or 1) + self.A.T @ self.A / s[0] ** 2
        return np.linalg.cond(M) * (s[0] / s[-1]) ** 2


def hard_case(rng: np.random.Generator, n: int, m: int) -> HardCase:
    """A random system: any rank of A, cond(M) up to 1e8 or a singular M, bad scales, b consistent or not."""
    rank = min(m, n) if rng.random() < 0.5 else int(rng.integers(min(1, m), min(m, n) + 1))
    kind = rng.choice(["well scaled", "badly scaled", "singular"]) if rank else "well scaled"
    axes = np.linalg.qr(rng.normal(size=(n, n)))[0]
    spread = np.linspace(0, -1, n) if n > 1 else np.zeros(1)
    mass = 10 ** (rng.uniform(0, 4 if kind == "badly scaled" else 8) * spread)
    C, R = rng.normal(size=(m, rank)), rng.normal(size=(rank, n))
    massive, coordinate = n, np.ones(n)
    if kind == "badly scaled":
        coordinate = 10 ** rng.uniform(-1, 1, n)
        C *= 10 ** rng.uniform(-1, 1, m)[:, None]
    if kind == "singular":
        massive = n - int(rng.integers(1, rank + 1))
        mass[massive:] = 0
    M = coordinate[:, None] * (axes * mass) @ axes.T * coordinate
    M = (M + M.T) / 2
    C, R = np.round(C * 2**12) / 2**12, np.round(R * 2**12) / 2**12  # few bits: the product has no rounding
    b = C @ rng.normal(size=rank) if rng.random() < 0.5 else rng.normal(size=m)
    return HardCase(M, rng.normal(size=n), C @ R, b, C, R, massive)


def exact_acceleration(case: HardCase) -> np.ndarray:
    """Return q̈ computed to 50 digits and rounded once."""
    with mpmath.workdps(DIGITS):
        return np.array([float(x) for x in exact_motion(case.M, case.Q, case.C, case.R, case.b)])


def exact_motion(M: Any, Q: Any, C: Any, R: Any, b: Any) -> list[Any]:
    """Return q̈ for A = C R in mpmath's current precision: y = C⁺ b, then [M Rᵀ; R 0] [q̈; ν] = [Q; y]."""
    n, r = len(Q), len(R)
    if r == 0:
        return list(mpmath.lu_solve(_matrix(M), _matrix(Q)))
    Ct = _matrix(C).T
    y = mpmath.lu_solve(Ct * Ct.T, Ct * _matrix(b))
    K, known = mpmath.zeros(n + r), mpmath.zeros(n + r, 1)
    K[:n, :n], K[:n, n:], K[n:, :n] = _matrix(M), _matrix(R).T, _matrix(R)
    known[:n, 0], known[n:, 0] = _matrix(Q), y
    return list(mpmath.lu_solve(K, known))[:n]


def _matrix(values: Any) -> Any:
    return mpmath.matrix(values.tolist() if isinstance(values, np.ndarray) else values)


# --- derivatives by differences ------------------------------------------------------------------------------------


def central_difference(function: Callable, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """df/dx, of shape (*f, len(x)), with an error of about step² times the third derivative."""
    columns = []
    for i in range(len(x)):
        h = np.zeros_like(x)
        h[i] = step
        columns.append((np.asarray(function(x + h)) - np.asarray(function(x - h))) / (2 * step))
    return np.stack(columns, axis=-1)
