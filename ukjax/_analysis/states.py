"""Independent coordinates and velocities, which are the states of a linearised system."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from .._check import repr_of
from .._errors import InputError
from .._jaxpr.tracing import is_eager, without_derivatives
from .._labels import Named, named_coordinates, named_directions
from .._motion.diagnose.motion import check_model
from .._names import did_you_mean
from .._run.compile import jit_unoptimised
from .._solve import AbstractMethod, coordinate_scale_by_numpy, independent_rows, rounding
from .._system import AbstractSystem, kinematic_map_of, mass_of

PREFERENCE = 0.9
"""Of two coordinates, the first is chosen if it is at least this fraction as independent as the other."""


class States(NamedTuple):
    """Indices of the independent displacements (p,) and of the independent velocities (d,), among n each."""

    of_q: tuple[int, ...]
    of_v: tuple[int, ...]


def position_names(system: AbstractSystem, nq: int, n: int) -> Named:
    """Names and units of the n displacements: the coordinates, or the directions of velocities that are no rates."""
    return named_directions(system, n) or named_coordinates(system, nq)


def velocity_names(system: AbstractSystem, nq: int, n: int) -> Named:
    """Names and units of the n velocities. The rate of a coordinate ``q1`` is ``dq1``."""
    per_second = lambda unit: f"{unit}/s" if unit else ""
    if kinematic_map_of(system) is None:
        return tuple((f"d{name}", per_second(unit)) for name, unit in named_coordinates(system, nq))
    return system.velocities or tuple((f"v{i + 1}", "") for i in range(n))


def names_of_states(system: AbstractSystem, nq: int, n: int, states: States) -> Named:
    """Names and units of the states: those of displacements, followed by those of velocities."""
    of_q, of_v = position_names(system, nq, n), velocity_names(system, nq, n)
    return (*(of_q[i] for i in states.of_q), *(of_v[i] for i in states.of_v))


def named_states(system: AbstractSystem, nq: int, n: int, names: Any) -> States:
    """Return the states with these names. Raises ``InputError`` for names that do not exist or occur twice."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(f"states must be names of coordinates and velocities, ('x', 'dx'), got {repr_of(names)}")
    names = tuple(name[0] if isinstance(name, tuple | list) and name else name for name in names)
    of_q, of_v = ([name for name, _ in f(system, nq, n)] for f in (position_names, velocity_names))
    for name in names:
        if name not in (*of_q, *of_v):
            known = (*of_q, *of_v)
            hint = did_you_mean(name, known) if isinstance(name, str) else "."
            raise InputError(f"states names no coordinate or velocity {name!r}{hint} There are: {', '.join(known)}")
        if names.count(name) > 1:
            raise InputError(f"states must be different, got {name!r} twice")
    return States(
        tuple(of_q.index(name) for name in names if name in of_q),
        tuple(of_v.index(name) for name in names if name not in of_q),
    )


def choose_states(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], method: AbstractMethod
) -> States:
    """Return the coordinates and velocities that are most nearly independent at a state.

    The tangent space has an orthonormal basis Z (n, p) in coordinates of unit mass. The coordinates are chosen one by
    one: the next is that whose row of Z is farthest from the span of the rows chosen before. Raises ``InputError``
    inside ``jit`` and ``vmap``, where the number of states would depend on traced values, and for invalid masses.
    """
    system, t, q, v = inputs = without_derivatives((system, t, q, v))
    if not is_eager(inputs):
        raise InputError(
            "states must be named inside jax.jit and jax.vmap, since their number depends on the rank of the "
            "constraints: states=ukjax.linearize(system, q, v).states, from one system outside"
        )
    M, G, A = map(np.asarray, _mass_and_slopes(system, t, q, v))
    if not all(np.all(np.isfinite(x)) for x in (M, G, A)):
        check_model(system, t, q, v, method)
    least = getattr(method, "least", None)
    least = rounding(A.dtype) if least is None else float(least)
    rtol = getattr(method, "rtol", None)
    rtol = 10 * float(np.finfo(A.dtype).eps) ** 0.5 if rtol is None else float(rtol)
    unit = coordinate_scale_by_numpy(M)
    of_v = _independent(unit, A, rtol, least)
    return States(of_v if system.velocity_follows else _independent(unit, G, rtol, least), of_v)


@jit_unoptimised
def _mass_and_slopes(system, t, q, v):
    return mass_of(system, t, q, v), system.position_slope(t, q, v), system.velocity_slope(t, q, v)


def _independent(unit, A, rtol, least) -> tuple[int, ...]:
    """Indices of coordinates that determine a vector of the null space of A (m, n)."""
    rows = independent_rows(np.diag(unit**-2), A, rtol, least) if A.size else ()
    assert rows is not None, "the matrix of masses is the diagonal, which is positive"
    orthonormal, _ = np.linalg.qr((A[list(rows)] * unit).T, mode="complete")
    Z = orthonormal[:, len(rows) :]
    chosen: list[int] = []
    for _ in range(Z.shape[1]):
        size = np.linalg.norm(Z, axis=1)
        size[chosen] = 0
        chosen.append(int(np.argmax(size >= PREFERENCE * size.max())))
        row = Z[chosen[-1]] / size[chosen[-1]]
        Z = Z - np.outer(Z @ row, row)
    return tuple(sorted(chosen))
