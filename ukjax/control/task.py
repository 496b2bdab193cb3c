"""Check the arguments of control laws, and evaluate the velocity error of a task."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from .._check import as_array, check_definite
from .._constraint import AbstractConstraint, velocities
from .._control import constraints_of
from .._errors import InputError
from .._functions import Constant, as_function
from .._solve import inverse_cholesky


def task_of(task: Any) -> tuple[AbstractConstraint, ...]:
    """Return the constraints of a task as a tuple. Raises ``InputError`` if there are none."""
    task = constraints_of("task", task)
    if not task:
        raise InputError("task must be at least one constraint, got none")
    return task


def as_weight(weight: Any) -> Callable:
    """Convert the weight N to a function of (t, q). Raises ``InputError`` for a constant not positive definite."""
    weight = as_function("weight", weight, "t, q")
    if isinstance(weight, Constant):
        check_definite("weight", weight.value)
    return weight


def as_definite(name: str, value: Any) -> Array:
    """Convert a number, a diagonal or a matrix to an array. Raises ``InputError`` if it is not positive definite."""
    array = as_array(name, value)
    check_definite(name, array)
    return array


def following_error(
    task: tuple[AbstractConstraint, ...], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], m: int
) -> Float[Array, " m"]:
    """Return the velocity error of a task, β = A v − c (m,): φ̇ of holonomic rows, ψ of the others."""
    beta = velocities(task, t, q, v)
    if beta.size != m:
        raise InputError(
            "an AccelerationConstraint has no error in velocities to feed back: give the task as Holonomic, "
            "Nonholonomic or Pfaffian"
        )
    return beta


def apply_inverse(P: Float[Array, "m m"], x: Float[Array, " m"]) -> Float[Array, " m"]:
    """Return P⁻¹ x for a positive definite P, without LAPACK."""
    L_inverse = inverse_cholesky(P)
    return (L_inverse @ x) @ L_inverse
