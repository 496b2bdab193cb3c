"""Inverse dynamics, closed loops included: the actuator forces behind a given acceleration."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._check import as_array, as_number, check_finite, check_function, is_concrete
from .._control import Command, actuator_matrix, allocate, shortfall, square_matrix, undriven
from .._functions import as_function, as_vector_function, vector_of
from .._precision import Numbers
from .._system import kinematic_map_of
from .._terms import Terms
from .task import as_weight


def inverse_dynamics(
    model: Callable[..., Terms],
    actuators: Any,
    t: Numbers,
    q: Numbers,
    v: Numbers,
    acceleration: Numbers,
    *,
    weight: Any = 1.0,
    secondary: Any = 0.0,
) -> Command:
    """The ``Command`` whose ``u`` (p,) moves ``model`` with the given acceleration q̈ (n,) at t, q, v.

        u = (W B)⁺ (q̈ − a) + (I − (W B)⁺ W B) s

    in the norm of ``weight`` (see ``Servo``). W and a belong to the motion with all constraints and the actuators off:
    closed loops need no cutting and redundant actuators no choosing. ``actuators`` is B (n, p), an array or a function
    of (t, q); ``secondary`` is s (p,), an array or a function of (t, q, v), by default 0.

    Returns
    -------
    Command
        ``u`` (p,) is the force or torque of each actuator, in the unit of B; ``unreachable`` (n,) is the part of the
        acceleration that no u gives; ``wanted`` and ``rank`` as in ``Command``.

    Raises
    ------
    ValueError
        Where no u gives that acceleration, since it breaks a constraint or moves what no actuator reaches. Under
        ``jit``, where values are not known, ``unreachable`` is not zero instead.
    """
    check_function("model", model, "t, q, v")
    t, q, v = as_number("t", t, "s"), as_array("q", q), as_array("v", v)
    acceleration = as_array("acceleration", acceleration)
    alike = v.shape == q.shape if kinematic_map_of(model) is None else v.ndim == 1
    if q.ndim != 1 or not alike or acceleration.shape != v.shape:
        raise ValueError(
            f"q, v and acceleration must all have shape (n,), got shapes {q.shape}, {v.shape} and {acceleration.shape}"
        )
    B = actuator_matrix(as_function("actuators", actuators, "t, q")(t, q), v)
    p = B.shape[1]
    N = square_matrix("weight", as_weight(weight)(t, q), p)
    s = vector_of(p, "actuator", "secondary", as_vector_function("secondary", secondary, "t, q, v"), t, q, v)
    for name, value in (("q", q), ("v", v), ("acceleration", acceleration), ("secondary", s)):
        check_finite(name, value)
    motion = undriven(model, t, q, v)
    command = allocate(motion, jnp.eye(v.size, dtype=q.dtype), acceleration, B, N, s)
    if is_concrete(command):
        labels, unit = [f"acceleration of q{i + 1}" for i in range(v.size)], motion.scale
        free = unit**2 * jnp.abs(getattr(model, "passive", model)(t, q, v).Q)
        # All coordinates are alike by their masses: what is asked of one may be rounding of another.
        largest = jnp.max((jnp.abs(acceleration) + jnp.abs(command.wanted) + free) / unit)
        complaint = shortfall(command, labels, np.asarray(largest * unit))
        if complaint:
            raise ValueError(f"acceleration cannot be reached: {complaint}")
    return command
