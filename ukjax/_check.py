"""Bad input, said once, in the user's words. Values are looked at only where they are known: never under ``jit``."""

import inspect
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._terms import Terms


def known(*trees: Any) -> bool:
    """Whether every array in ``trees`` has values now, rather than being traced by ``jit``, ``grad`` or ``vmap``."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def check_function(name: str, function: Any, arguments: str) -> None:
    """``function`` must be callable with the given arguments, written as in the documentation: ``"t, q, v"``."""
    if not callable(function):
        raise ValueError(f"{name} must be a function {name}({arguments}), got {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # built-in functions may have none to look at
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        raise ValueError(f"{name} must take ({arguments}), got a function of {signature}") from None


def check_coordinates(terms: Any, q: Array) -> None:
    """What a model gave are Terms of as many coordinates as q has, or ``ValueError``."""
    if not isinstance(terms, Terms):
        raise ValueError(f"model must return ukjax.Terms(M, Q, A, b), got {type(terms).__name__}")
    if terms.Q.shape != q.shape:
        raise ValueError(f"the model has {terms.Q.size} coordinates, but q0 has shape {q.shape}")


def check_terms(terms: Terms, where: str = "") -> None:
    """M symmetric and positive semidefinite, and everything finite, or ``ValueError``."""
    M = np.asarray(terms.M)
    for name in ("M", "Q", "A", "b", "c"):
        value = getattr(terms, name)
        if value is not None and not np.all(np.isfinite(value)):
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
            raise ValueError(
                f"{name} is not finite{where}: {name}{list(at)} = {np.asarray(value)[at]}. Look for a division by "
                "zero or a root of a negative number in the function that makes it"
            )
    check_mass(M, where)


def asymmetric(M: Array) -> Array:
    """Whether ``check_mass`` would find M asymmetric, for where values are not known."""
    return jnp.any(jnp.abs(M - M.T) > 2 * jnp.finfo(M.dtype).eps ** 0.5 * jnp.max(jnp.abs(M), initial=0))


def check_mass(M: np.ndarray, where: str = "") -> None:
    """M symmetric and positive semidefinite, or ``ValueError``."""
    if not np.all(np.isfinite(M)):
        return
    tolerance = float(np.finfo(M.dtype).eps) ** 0.5 * max(float(np.abs(M).max(initial=0)), 1e-300)
    asymmetry = np.abs(M - M.T)
    if asymmetry.max(initial=0) > tolerance:
        i, j = np.unravel_index(int(asymmetry.argmax()), M.shape)
        raise ValueError(
            f"M must be symmetric{where}: M[{i}, {j}] = {M[i, j]:.6g} but M[{j}, {i}] = {M[j, i]:.6g}. "
            "A mass matrix is the Hessian of the kinetic energy in v, so both must be the same"
        )
    lowest = float(np.linalg.eigvalsh(M).min(initial=0)) if M.size else 0.0
    if lowest < -tolerance:
        raise ValueError(
            f"M must be positive semidefinite{where}: its smallest eigenvalue is {lowest:.6g}. "
            "Check the signs of the masses and inertias"
        )


def check_unique(terms: Terms, acceleration: np.ndarray, method: str, where: str = "") -> None:
    """A finite acceleration, or the reason why there is none."""
    if np.all(np.isfinite(acceleration)):
        return
    M, A = np.asarray(terms.M), np.asarray(terms.A)
    n, m = M.shape[0], A.shape[0]
    # Units do not decide: unit masses and unit rows first.
    mass = np.diagonal(M)
    coordinate = 1 / np.sqrt(np.where(mass > 0, mass, max(float(np.abs(mass).max(initial=0)), 1e-300)))
    M, A = coordinate[:, None] * M * coordinate, A * coordinate
    A = A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300)
    together = int(np.linalg.matrix_rank(np.concatenate([M, A])))
    if together < n:
        raise ValueError(
            f"the motion is not unique{where}: rank [M; A] = {together}, but there are n = {n} coordinates. A "
            "direction without mass must be fixed by a constraint: add the missing row of A, or give it a mass"
        )
    independent = int(np.linalg.matrix_rank(A))
    if independent < m:
        raise ValueError(
            f"method {method!r} needs independent rows{where}: A has {m} rows of rank {independent}. "
            "Use the default method 'orthogonal', which takes redundant rows"
        )
    raise ValueError(
        f"method {method!r} found no finite acceleration{where}: it needs a positive definite M. "
        "Use the default method 'orthogonal', which takes a semidefinite one"
    )
