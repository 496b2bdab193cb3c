"""Equations of motion from positions of mass points and a potential, by independent methods.

``by_differences`` evaluates Lagrange's equations in mpmath with differences at 80 digits. ``by_symbols`` derives them
with SymPy, and ``by_jets`` those of systems with one coordinate by Taylor coefficients. A rigid body is a set of mass
points with the same inertia.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import sympy
from mpmath import mp

from .jets import Functions, Jet, jet

DIGITS = 80
SMALL, TINY = 17, 27
"""Digits of the two steps: for derivatives of momenta, and for velocities of points."""


class Points(NamedTuple):
    """A system of mass points in minimal coordinates.

    Attributes
    ----------
    positions
        Function (m, p, t, q) -> list of (mass, coordinates). ``m`` has sin, cos, sqrt; ``p`` the parameters.
    potential
        Function (m, p, t, q) -> V.
    force
        Function (m, p, t, q, v) -> generalised forces, or None.
    """

    positions: Callable
    potential: Callable
    force: Callable | None = None


def by_differences(system: Points, p: Any) -> Callable:
    """Return the function (t, y) -> y', y = (q, v), in mpmath at 80 digits."""

    def kinetic(t, q, v):
        h = mp.mpf(10) ** -TINY
        ahead = system.positions(mp, p, t + h, [a + h * b for a, b in zip(q, v, strict=True)])
        behind = system.positions(mp, p, t - h, [a - h * b for a, b in zip(q, v, strict=True)])
        square = mp.mpf(0)
        for (mass, new), (_, old) in zip(ahead, behind, strict=True):
            square += mass * sum((a - b) ** 2 for a, b in zip(new, old, strict=True))
        return square / (8 * h * h)

    def momentum(t, q, v):
        """∂T/∂v, exact since T is quadratic in v."""
        return [(kinetic(t, q, _moved(v, i, 1)) - kinetic(t, q, _moved(v, i, -1))) / 2 for i in range(len(v))]

    def rate(t, y):
        n, h = len(y) // 2, mp.mpf(10) ** -SMALL
        q, v = list(y[:n]), list(y[n:])
        zero = [mp.mpf(0)] * n
        rest = momentum(t, q, zero)
        mass = mp.matrix(n)
        for j in range(n):
            column = momentum(t, q, _moved(zero, j, 1))
            for i in range(n):
                mass[i, j] = column[i] - rest[i]
        ahead = momentum(t + h, [a + h * b for a, b in zip(q, v, strict=True)], v)
        behind = momentum(t - h, [a - h * b for a, b in zip(q, v, strict=True)], v)
        difference = lambda q: kinetic(t, q, v) - system.potential(mp, p, t, q)
        known = mp.matrix(n, 1)
        applied = zero if system.force is None else system.force(mp, p, t, q, v)
        for i in range(n):
            slope = (difference(_moved(q, i, h)) - difference(_moved(q, i, -h))) / (2 * h)
            known[i] = slope - (ahead[i] - behind[i]) / (2 * h) + applied[i]
        a = [known[0] / mass[0, 0]] if n == 1 else list(mp.lu_solve(mass, known))
        return [*v, *a]

    return rate


def by_symbols(system: Points, p: Any, n: int, module: str) -> Callable:
    """Return the function (t, y) -> y' for ``module``, "numpy" or "mpmath", derived with SymPy."""
    t = sympy.Symbol("t")
    q, v = sympy.symbols(f"q:{n}"), sympy.symbols(f"v:{n}")
    flow = lambda x: sympy.diff(x, t) + sum(sympy.diff(x, a) * b for a, b in zip(q, v, strict=True))
    T = sum(m * sum(flow(x) ** 2 for x in place) for m, place in system.positions(sympy, p, t, list(q))) / 2
    L = T - system.potential(sympy, p, t, list(q))
    force = [0] * n if system.force is None else system.force(sympy, p, t, list(q), list(v))
    momenta = [sympy.diff(L, b) for b in v]
    M = sympy.Matrix(n, n, lambda i, j: sympy.diff(momenta[i], v[j]))
    known = sympy.Matrix([sympy.diff(L, q[i]) - flow(momenta[i]) + force[i] for i in range(n)])
    compiled = sympy.lambdify((t, q, v), (M, known), module, cse=True)

    def rate(t, y):
        M, known = compiled(t, y[:n], y[n:])
        if n == 1:
            return [y[1], known[0, 0] / M[0, 0]]
        return [*y[n:], *(np.linalg.solve(M, known[:, 0]) if module == "numpy" else mp.lu_solve(M, known))]

    return rate


def by_jets(system: Points, p: Any, module: Any) -> Callable:
    """Return the function (t, y) -> y' of a system with one coordinate and no explicit time.

    T = m(q) v²/2 with m = Σ mass |x'(q)|², so that m a = −m' v²/2 − V' + force.
    """
    functions = Functions(module)

    def rate(t, y):
        q = [Jet(y[0], 1)]
        mass, slope = 0, 0
        for share, place in system.positions(functions, p, t, q):
            for x in map(jet, place):
                mass += share * x.d**2
                slope += 2 * share * x.d * x.dd
        applied = 0 if system.force is None else system.force(functions, p, t, y[:1], y[1:])[0]
        return [y[1], (applied - jet(system.potential(functions, p, t, q)).d - slope * y[1] ** 2 / 2) / mass]

    return rate


def _moved(x, i, step):
    moved = list(x)
    moved[i] = moved[i] + step
    return moved
