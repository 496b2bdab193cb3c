"""Inverse dynamics, also with closed loops: actuator forces for a given acceleration."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._check import as_array, as_number, check_finite, check_function
from .._control import Command, actuator_matrix, allocate, passive_mobility, shortfall, square_matrix
from .._errors import InputError
from .._functions import as_function, as_vector_function, vector_of
from .._jaxpr.tracing import is_concrete
from .._precision import Numbers
from .._system import kinematic_map_of, refuse_contacts
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
    """Compute the actuator forces that move a model with a given acceleration q̈.

        u = (W B)⁺ (q̈ − a) + (I − (W B)⁺ W B) s

    in the norm of ``weight`` (see ``Servo``). W and a are those of the motion with all constraints and with the
    actuators off. So closed loops need not be cut, and no subset of redundant actuators need be selected.

    Parameters
    ----------
    model
        A system, or a function (t, q, v) -> ``Terms``.
    actuators
        B (n, p), one column per actuator: an array or a function of (t, q).
    t
        Time [s].
    q, v
        Coordinates (n,) and velocities (n,). With a kinematic map, q may have another size.
    acceleration
        The acceleration q̈ (n,).
    weight
        N, positive definite: a number, (p,) or (p, p), or a function of (t, q). Of all solutions, u minimises
        (u − s)ᵀ N (u − s).
    secondary
        s (p,): an array or a function of (t, q, v).

    Returns
    -------
    Command
        ``u`` (p,) is the force or torque of each actuator, in the unit of B. ``unreachable`` (n,) is the part of the
        acceleration that no u can give. ``wanted`` and ``rank`` are as in ``Command``.

    Raises
    ------
    InputError
        If no u gives that acceleration, because it violates a constraint or has a component that no actuator can drive.
        Under ``jit`` values are unknown and no error is raised: check ``unreachable``.
    """
    check_function("model", model, "t, q, v")
    refuse_contacts("inverse_dynamics", model)
    t, q, v = as_number("t", t, "s"), as_array("q", q), as_array("v", v)
    acceleration = as_array("acceleration", acceleration)
    shapes_match = v.shape == q.shape if kinematic_map_of(model) is None else v.ndim == 1
    if q.ndim != 1 or not shapes_match or acceleration.shape != v.shape:
        raise InputError(
            f"q, v and acceleration must all have shape (n,), got shapes {q.shape}, {v.shape} and {acceleration.shape}"
        )
    B = actuator_matrix(as_function("actuators", actuators, "t, q")(t, q), v)
    p = B.shape[1]
    N = square_matrix("weight", as_weight(weight)(t, q), p)
    s = vector_of(p, "actuator", "secondary", as_vector_function("secondary", secondary, "t, q, v"), t, q, v)
    for name, value in (("q", q), ("v", v), ("acceleration", acceleration), ("secondary", s)):
        check_finite(name, value)
    motion = passive_mobility(model, t, q, v)
    command = allocate(motion, jnp.eye(v.size, dtype=q.dtype), acceleration, B, N, s)
    if is_concrete(command):
        labels, scale = [f"acceleration of q{i + 1}" for i in range(v.size)], motion.scale
        free_force = scale**2 * jnp.abs(getattr(model, "passive", model)(t, q, v).Q)
        # Accelerations are compared in the scale of the masses: an entry of one coordinate may be the rounding error
        # of another.
        largest = jnp.max((jnp.abs(acceleration) + jnp.abs(command.wanted) + free_force) / scale)
        message = shortfall(command, labels, np.asarray(largest * scale))
        if message:
            raise InputError(f"acceleration cannot be reached: {message}")
    return command
