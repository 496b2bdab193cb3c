"""Independent coordinates and velocities, which are the states of a linearised system."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from .._check import repr_of
from .._check_terms import check_terms
from .._errors import InputError
from .._kernel.if_repeated import jit_if_repeated
from .._kinematic_map import StateMap, count_states
from .._labels import Named, direction_names, named_coordinates, named_directions, per_second, state_names
from .._names import did_you_mean_one_of
from .._solve import (
    AbstractMethod,
    FastPath,
    coordinate_scale_by_numpy,
    independent_rows,
    is_nearly_singular,
    rounding,
)
from .._system import AbstractSystem, kinematic_map_of

PREFERENCE = 0.9
"""Of two coordinates, the first is chosen if it is at least this fraction as independent as the other."""


class States(NamedTuple):
    """Indices of the independent displacements (p,) and of the independent velocities (d,), among n each."""

    of_q: tuple[int, ...]
    of_v: tuple[int, ...]


def position_names(system: AbstractSystem, nq: int, n: int) -> Named:
    """Names and units of the n displacements: the coordinates, or the directions of velocities that are not rates."""
    named = named_directions(system, n) or named_coordinates(system, nq)
    return named[: len(named) - count_states(kinematic_map_of(system))]


def velocity_names(system: AbstractSystem, nq: int, n: int) -> Named:
    """Names and units of the n velocities. The rate of a coordinate ``q1`` is ``dq1``."""
    kinematic_map = kinematic_map_of(system)
    if kinematic_map is not None and system.velocities is not None:
        return system.velocities
    if kinematic_map is None or isinstance(kinematic_map, StateMap) and kinematic_map.others is None:
        named = tuple((f"d{name}", per_second(unit)) for name, unit in named_coordinates(system, nq))
    else:
        named = tuple((f"v{i + 1}", "") for i in range(n - count_states(kinematic_map)))
    return (*named, *state_names(system))


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
            raise InputError(f"states names no coordinate or velocity {name!r}{did_you_mean_one_of(str(name), known)}")
        if names.count(name) > 1:
            raise InputError(f"states must be different, got {name!r} twice")
    return States(
        tuple(of_q.index(name) for name in names if name in of_q),
        tuple(of_v.index(name) for name in names if name not in of_q),
    )


class Rows(NamedTuple):
    """A system at one state, as NumPy arrays: M, the applied force Q + c, and the rows A of accelerations; the
    residuals of constraints on positions and on velocities, with their slopes by displacements and by velocities.
    """

    M: Float[np.ndarray, "n n"]
    force: Float[np.ndarray, " n"]
    A: Float[np.ndarray, "m n"]
    position: Float[np.ndarray, " k"]
    velocity: Float[np.ndarray, " l"]
    of_positions: Float[np.ndarray, "k n"]
    of_velocities: Float[np.ndarray, "l n"]

    @classmethod
    def at(cls, system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> "Rows":
        """Evaluate the rows. Raises ``InputError`` if they are not finite."""
        terms, *others = jax.tree.map(np.asarray, _rows(system, t, q, v))
        check_terms(terms, f" at t = {float(t):g} s", direction_names(system))
        return cls(terms.M, terms.Q if terms.c is None else terms.Q + terms.c, terms.A, *others)

    def limits(self, method: AbstractMethod) -> tuple[float, float]:
        """The limits of a method, below which a row counts as dependent, and as rounding of 0."""
        eps = float(np.finfo(self.M.dtype).eps)
        rtol, least = (getattr(method, name, None) for name in ("rtol", "least"))
        return 10 * eps**0.5 if rtol is None else float(rtol), rounding(self.M.dtype) if least is None else float(least)

    def states(self, method: AbstractMethod, system: AbstractSystem) -> States:
        """The coordinates and velocities that are most nearly independent; the same for both, if all constraints are
        those of positions. First-order states are among the velocities only.

        The tangent space has an orthonormal basis Z (n, p) in coordinates of unit mass. The coordinates are chosen one
        by one. The next one is the coordinate whose row of Z is farthest from the span of the rows chosen before.
        """
        unit, limits = coordinate_scale_by_numpy(self.M), self.limits(method)
        of_v = _independent(unit, self.of_velocities, *limits)
        of_q = of_v if system.velocity_follows else _independent(unit, self.of_positions, *limits)
        moving = len(unit) - count_states(kinematic_map_of(system))
        return States(tuple(i for i in of_q if i < moving), of_v)

    def fast_path(self, method: AbstractMethod) -> AbstractMethod | None:
        """The fast path of a method with the rows that are independent here; None if there is none."""
        fast_path = method.fast_path()
        if not isinstance(fast_path, FastPath):
            return None
        active = independent_rows(self.M, self.A, *self.limits(method)) if len(self.A) else ()
        if active is None:
            return None
        weight = float(np.mean(np.diagonal(self.M))) if is_nearly_singular(self.M) else None
        return replace(fast_path, kept=None if len(active) == len(self.A) else active, weight=weight)

    def free(self, method: AbstractMethod) -> Float[np.ndarray, "n d"]:
        """Independent accelerations (n, d) that satisfy the rows A."""
        unit = coordinate_scale_by_numpy(self.M)
        return unit[:, None] * _null_space(unit, self.A, *self.limits(method))

    def balanced(self, method: AbstractMethod) -> bool:
        """Whether the constraints balance the force: it has no component along ``free``, except for rounding."""
        Z, limit = self.free(method), float(np.finfo(self.M.dtype).eps) ** 0.5
        return bool(np.all(np.abs(self.force @ Z) <= limit * (np.abs(self.force) @ np.abs(Z))))

    def fast_path_of_multipliers(self, method: AbstractMethod) -> AbstractMethod:
        """The fast path of a method for the equations Aᵀ λ = f, with the equations that are independent here."""
        fast_path, m = method.fast_path(), len(self.A)
        active = independent_rows(np.eye(m), self.A.T, *self.limits(method)) if m else None
        return method if active is None or not isinstance(fast_path, FastPath) else replace(fast_path, kept=active)

    def has_small(self) -> bool:
        """Whether some rows are so small relative to others that they may be rounding errors of 0."""
        unit = coordinate_scale_by_numpy(self.M)
        for A in (self.A, self.of_positions, self.of_velocities):
            length = np.linalg.norm(A * unit, axis=1)
            if np.any((length > 0) & (length < np.finfo(A.dtype).eps ** 0.5 * length.max(initial=0))):
                return True
        return False


@jit_if_repeated
def _rows(system, t, q, v):
    return (
        system(t, q, v),
        system.position_residual(t, q),
        system.velocity_residual(t, q, v),
        system.position_slope(t, q, v),
        system.velocity_slope(t, q, v),
    )


def _null_space(unit, A, rtol, least) -> Float[np.ndarray, "n p"]:
    """An orthonormal basis of the null space of A (m, n), in coordinates of unit mass."""
    rows = independent_rows(np.diag(unit**-2), A, rtol, least) if A.size else ()
    assert rows is not None, "the matrix of masses is the diagonal, which is positive"
    orthonormal, _ = np.linalg.qr((A[list(rows)] * unit).T, mode="complete")
    return orthonormal[:, len(rows) :]


def _independent(unit, A, rtol, least) -> tuple[int, ...]:
    """Indices of coordinates that determine a vector of the null space of A (m, n)."""
    Z = _null_space(unit, A, rtol, least)
    chosen: list[int] = []
    for _ in range(Z.shape[1]):
        size = np.linalg.norm(Z, axis=1)
        size[chosen] = 0
        chosen.append(int(np.argmax(size >= PREFERENCE * size.max())))
        row = Z[chosen[-1]] / size[chosen[-1]]
        Z = Z - np.outer(Z @ row, row)
    return tuple(sorted(chosen))
