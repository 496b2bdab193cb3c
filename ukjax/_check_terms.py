"""Checks of the terms M, Q, A, b of a model and of the acceleration that follows from them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._errors import InputError


def check_terms(terms: Any, where: str = "", coordinates: Sequence[str] = ()) -> None:
    """Raise ``InputError`` unless all terms are finite and M is symmetric and positive semidefinite.

    ``where`` is inserted into the message after the condition. ``coordinates`` are the names of the coordinates.
    """
    M = np.asarray(terms.M)
    for name in ("M", "Q", "A", "b", "c"):
        value = getattr(terms, name)
        if value is not None and not np.all(np.isfinite(value)):
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
            raise InputError(
                f"{name} is not finite{where}: {name}{list(at)} = {np.asarray(value)[at]}. Look for a division by "
                "zero or a root of a negative number in the function that returns it"
            )
    complaint = complaint_of_mass(M, where, coordinates)
    if complaint:
        raise InputError(complaint)


def symmetric(M: Array) -> Array:
    """Return (M + Mᵀ) / 2, with NaN on the diagonal if M is not symmetric or has a negative diagonal entry.

    This is the traced counterpart of ``check_terms``. Other negative eigenvalues are detected by the factorisation.
    """
    n, eps = len(M), jnp.finfo(M.dtype).eps
    diagonal = jnp.diagonal(M)
    largest = jnp.max(diagonal, initial=0)
    mass = jnp.where(diagonal > eps * largest, diagonal, largest)
    # |M_ij| ≤ √(M_ii M_jj) in a mass matrix. Squares are compared, because a square root takes longer than the rest.
    # M > Mᵀ is False for identical expressions, so that a kernel drops the check where M is symmetric by construction.
    asymmetric = jnp.any((M > M.T) & ((M - M.T) ** 2 > (4 * eps * mass)[:, None] * mass))
    wrong = asymmetric | jnp.any(diagonal < -n * eps * largest)
    nan_or_zero = jax.lax.select(wrong, *np.array([np.nan, 0], M.dtype))
    return (M + M.T) / 2 + nan_or_zero * np.eye(n, dtype=M.dtype)


def complaint_of_mass(M: np.ndarray, where: str = "", coordinates: Sequence[str] = ()) -> str:
    """Return an error text if M is not symmetric or not positive semidefinite, else "" (also if M is not finite)."""
    if not M.size or not np.all(np.isfinite(M)):
        return ""
    eps, largest = float(np.finfo(M.dtype).eps), float(np.abs(M).max()) or 1.0
    mass = np.diagonal(M)
    unit = 1 / np.sqrt(np.where(mass > eps * largest, mass, largest))  # for independence of units
    asymmetry = unit[:, None] * np.abs(M - M.T) * unit
    if asymmetry.max() > eps**0.5:
        i, j = np.unravel_index(int(asymmetry.argmax()), M.shape)
        return (
            f"M must be symmetric{where}: M[{i}, {j}] = {M[i, j]:.6g} but M[{j}, {i}] = {M[j, i]:.6g}. "
            "A mass matrix is the Hessian of the kinetic energy in v, so both must be the same"
        )
    i = int(mass.argmin())
    if mass[i] < -len(M) * eps * largest:
        return (
            f"M must be positive semidefinite{where}: M[{i}, {i}] = {mass[i]:.6g}, the mass of "
            f"{_coordinate(i, coordinates)}, is negative. Check the signs of the masses and inertias"
        )
    scaled = unit[:, None] * (M + M.T) * unit / 2
    try:
        np.linalg.cholesky(scaled + eps**0.5 * np.eye(len(M)))  # ten times faster than eigenvalues
        return ""
    except np.linalg.LinAlgError:
        axes = np.linalg.eigh(scaled)[1]
    return (
        f"M must be positive semidefinite{where}: its smallest eigenvalue is {np.linalg.eigvalsh(M)[0]:.6g}, most "
        f"of it along {_coordinate(int(np.abs(axes[:, 0]).argmax()), coordinates)}. Check the signs of the masses "
        "and inertias"
    )


def _coordinate(i, names):
    return f"coordinate {names[i]!r}" if names else f"q[{i}]"


def check_unique(
    terms: Any, acceleration: np.ndarray, method: str, where: str = "", coordinates: Sequence[str] = ()
) -> None:
    """Raise ``InputError`` with the cause if the acceleration is not finite."""
    if np.all(np.isfinite(acceleration)):
        return
    M, A = np.asarray(terms.M), np.asarray(terms.A)
    n, m = M.shape[0], A.shape[0]
    complaint = complaint_of_freedom(M, A, where, coordinates)
    if complaint:
        raise InputError(complaint)
    if method == "Orthogonal":  # accepts redundant rows and a semidefinite M: only the range of sizes can be the cause
        sizes = np.abs(np.concatenate([np.asarray(x).ravel() for x in (terms.M, terms.Q, terms.A, terms.b)]))
        sizes = sizes[sizes > 0]
        raise InputError(
            f"the acceleration is not finite{where}, although the terms are: their entries are from {sizes.min():.3g} "
            f"to {sizes.max():.3g} in size, too far apart for {terms.M.dtype}. Choose other units"
        )
    _, A = _in_units(M, A)
    independent = int(np.linalg.matrix_rank(A))
    if independent < m:
        raise InputError(
            f"method {method!r} needs independent rows{where}: A has {m} rows of rank {independent}. "
            "Use the default method 'orthogonal', which takes redundant rows"
        )
    least = float(np.linalg.svd(A, compute_uv=False).min(initial=1))
    if least < (100 * (n + m) * np.finfo(A.dtype).eps) ** 0.5:
        raise InputError(
            f"method {method!r} needs rows that are clearly independent{where}: those of A, scaled to unit length, "
            f"have the smallest singular value {least:.2g}. Use the default method 'orthogonal', which accepts them"
        )
    raise InputError(
        f"method {method!r} found no finite acceleration{where}: it needs a positive definite M. "
        "Use the default method 'orthogonal', which takes a semidefinite one"
    )


def complaint_of_freedom(M: np.ndarray, A: np.ndarray, where: str = "", coordinates: Sequence[str] = ()) -> str:
    """Return an error text if rank [M; A] < n, so that the motion is not unique, else "" (also if not finite)."""
    if not np.all(np.isfinite(M)) or not np.all(np.isfinite(A)):
        return ""
    n, stacked = len(M), np.concatenate(_in_units(M, A))
    rank = int(np.linalg.matrix_rank(stacked))
    if rank == n:
        return ""
    free = int(np.abs(np.linalg.svd(stacked)[2][-1]).argmax())
    return (
        f"the motion is not unique{where}: rank [M; A] = {rank}, but there are n = {n} coordinates. A direction "
        f"without mass, here that of {_coordinate(free, coordinates)}, must be fixed by a constraint: add the missing "
        "row of A, or give it a mass"
    )


def _in_units(M, A):
    """Scale M and A to coordinates of unit mass and rows of unit length, so that ranks do not depend on units."""
    mass = np.diagonal(M)
    coordinate = 1 / np.sqrt(np.where(mass > 0, mass, float(np.abs(mass).max(initial=0)) or 1.0))
    A = A * coordinate
    length = np.linalg.norm(A, axis=1, keepdims=True)
    return coordinate[:, None] * M * coordinate, A / np.where(length > 0, length, 1)
