"""Shapes of a uniform straight beam, their integrals, and the stiffness: closed forms on the unit length.

The shapes on the unit length ξ = x/L are numbers of NumPy. Those of the beam are these times powers of L, so that they
have derivatives with respect to length, mass and stiffness.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._check import as_integer, as_number, as_numbers, check_flag, check_word, repr_of
from .._errors import InputError
from .._rotation import as_vector
from .named import is_reserved

MOST_MODES, MOST_AXIAL = 20, 8
"""Largest numbers of shapes, for which the integrals are exact to rounding."""

POINTS = 96
"""Number of Gauss points. Products of two of the highest modes have 40 half waves and are integrated to rounding."""

DRAWN = 17
"""Number of points of the line that is drawn."""


class Shapes(NamedTuple):
    """Displacement shapes along one axis at some places ξ, with derivatives by ξ: (shapes, places) each."""

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


def bending_shapes(ends: str, count: int, xi: Float[np.ndarray, " places"]) -> Shapes:
    """The first bending modes of a uniform beam.

    "pinned" is sin(kπξ). "cantilever" is cosh βξ − cos βξ − σ (sinh βξ − sin βξ) with cos β cosh β = −1, divided by its
    value at the end. "free" is cosh βξ + cos βξ − σ (sinh βξ + sin βξ) with cos β cosh β = 1, divided by its value at
    the start. (Any book on vibrations, such as Rao, Mechanical Vibrations, section 8.5.)
    """
    k = np.arange(1, count + 1)[:, None]
    if ends == "pinned":
        x = k * np.pi * xi
        return Shapes(np.sin(x), k * np.pi * np.cos(x), -((k * np.pi) ** 2) * np.sin(x))
    s = -1.0 if ends == "cantilever" else 1.0
    beta = np.array([frequency_number(ends, i) for i in range(1, count + 1)])[:, None]
    # 1 − σ, without the cancellation of cosh and sinh
    small = s * (np.cos(beta) - np.sin(beta)) - np.exp(-beta)
    small = small / (np.sinh(beta) - s * np.sin(beta))
    growing, falling = small * np.exp(beta * xi) / 2, (2 - small) * np.exp(-beta * xi) / 2
    cosh, sinh = growing + falling, growing - falling  # cosh − σ sinh, sinh − σ cosh
    sin, cos, sigma = np.sin(beta * xi), np.cos(beta * xi), 1 - small
    value = cosh + s * (cos - sigma * sin)
    slope = beta * (sinh - s * (sin + sigma * cos))
    curvature = beta**2 * (cosh - s * (cos - sigma * sin))
    unit = np.where(k % 2, 2.0, -2.0) if ends == "cantilever" else 2.0
    return Shapes(value / unit, slope / unit, curvature / unit)


def frequency_number(ends: str, k: int) -> float:
    """β of mode k: its angular frequency is (β/L)² √(EI/(ρA))."""
    if ends == "pinned":
        return k * np.pi
    s = -1.0 if ends == "cantilever" else 1.0
    beta = (k - 0.5 if s < 0 else k + 0.5) * np.pi
    for _ in range(50):
        beta -= (np.cos(beta) - s / np.cosh(beta)) / (-np.sin(beta) + s * np.tanh(beta) / np.cosh(beta))
    return float(beta)


def axial_shapes(count: int, xi: Float[np.ndarray, " places"]) -> Shapes:
    """Lagrange's polynomials of degree ``count`` on the points 0, 1/count, ..., 1, without that of 0."""
    points = np.linspace(0, 1, count + 1) if count else np.zeros(1)
    polynomials = [
        np.poly1d(np.delete(points, i), r=True) / np.prod(points[i] - np.delete(points, i)) for i in range(1, count + 1)
    ]
    rows = [[p.deriv(order)(xi) if order else p(xi) for p in polynomials] for order in range(3)]
    return Shapes(*(np.reshape(row, (count, xi.size)) for row in rows))


class Basis(NamedTuple):
    """All shapes of a beam of unit length at some places: (N, places, 3), and the power of L that scales each."""

    shapes: np.ndarray
    powers: np.ndarray


def basis(ends: str, axes: str, modes: int, axial: int, pairs: tuple, xi: np.ndarray) -> Basis:
    """The undeformed line, bending, axial shapes, and the second-order axial displacements −∫ w_k' w_l'/2 dξ."""
    bending, along = bending_shapes(ends, modes, xi), axial_shapes(axial, xi)
    directions = {"x": 0, "y": 1, "z": 2}
    rows = [_along(0, xi)]
    rows += [_along(directions[axis], value) for axis in axes for value in bending.value]
    rows += [_along(0, value) for value in along.value]
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    inner = bending_shapes(ends, modes, (np.outer(xi, (nodes + 1) / 2)).ravel()).slope.reshape(modes, xi.size, POINTS)
    for k, l in pairs:
        shortening = -np.sum(inner[k % modes] * inner[l % modes] * weights, axis=1) * xi / 4
        rows.append(_along(0, shortening * (1 if k == l else 2)))
    count = len(axes) * modes + axial
    return Basis(np.stack(rows), np.array([1] + [0] * count + [-1] * len(pairs)))


def _along(axis, values):
    return values[:, None] * np.eye(3)[axis]


def integrals(
    length, mass_per_length, EI, bending, modes, ends, axial, EA, section_inertia, nodes, stretching
) -> dict[str, Any]:
    """The fields of a ``FlexibleBody``, without damping, from the arguments of ``FlexibleBody.beam``."""
    L = as_number("length", length, "m", above=0, below=np.inf)
    mu = as_number("mass_per_length", mass_per_length, "kg/m", above=0, below=np.inf)
    check_word("bending", bending, ("y", "z", "yz"))
    check_word("ends", ends, ("pinned", "cantilever", "free"))
    check_flag("stretching", stretching)
    modes, axial = _count("modes", modes, 1, MOST_MODES), _count("axial", axial, 0, MOST_AXIAL)
    rigidity = as_numbers("EI", EI, above=0, below=np.inf)
    if rigidity.shape not in ((), (len(bending),)):
        raise InputError(f"EI must be one number, or one for each of the axes {bending!r}, got shape {rigidity.shape}")
    if (EA is None) != (axial == 0):
        raise InputError(
            f"EA, the axial stiffness [N], is needed with axial={axial}, got None"
            if EA is None
            else f"EA is the stiffness of axial coordinates, and axial={axial}: give both or neither"
        )
    of_section = as_vector("section_inertia", as_numbers("section_inertia", section_inertia, least=0, below=np.inf))
    fractions = _fractions(nodes)
    names, m = _mode_names(bending, modes, axial), len(bending) * modes + axial
    of_axis = [range(i * modes, (i + 1) * modes) for i in range(len(bending))]
    pairs = tuple((k, l) for part in of_axis for k in part for l in part if k <= l) if stretching else ()

    x, w = np.polynomial.legendre.leggauss(POINTS)
    xi, w = (x + 1) / 2, w / 2
    arguments = ends, bending, modes, axial, pairs
    at_points = basis(*arguments, xi)
    scale = L ** jnp.asarray(at_points.powers)
    products = np.einsum("api,p,bpj->abij", at_points.shapes, w, at_points.shapes)
    products = mu * L * scale[:, None, None, None] * scale[:, None, None] * products
    curvature, strain = bending_shapes(ends, modes, xi).curvature, axial_shapes(axial, xi).slope
    of_bending, of_axial = (np.einsum("kp,p,lp->kl", x, w, x) for x in (curvature, strain))
    K = jnp.zeros((m, m))
    for part, value in zip(of_axis, jnp.broadcast_to(rigidity, (len(bending),)), strict=True):
        K = K.at[np.ix_(part, part)].set(value / L**3 * np.diag(np.diagonal(of_bending)))  # the modes are orthogonal
    if EA is not None:
        rest = np.arange(m - axial, m)
        K = K.at[np.ix_(rest, rest)].set(as_number("EA", EA, "N", above=0, below=np.inf) / L * of_axial)
    places = np.array(list(fractions.values()))
    at_nodes, slopes = basis(*arguments, places), bending_shapes(ends, modes, places).slope
    turns = [_along({"y": 2, "z": 1}[axis], s if axis == "y" else -s) for axis in bending for s in slopes]
    turns += [np.zeros((places.size, 3))] * axial
    return dict(
        mass=mu * L,
        moments=mu * L * scale[:, None] * np.einsum("api,p->ai", at_points.shapes, w),
        products=products,
        modal_mass=jnp.trace(products, axis1=2, axis2=3),
        inertia=L * of_section,
        stiffness=K,
        positions=scale[:, None] * at_nodes.shapes.transpose(1, 0, 2),
        rotations=np.stack(turns, axis=1) / L,
        line=scale[:, None] * basis(*arguments, np.linspace(0, 1, DRAWN)).shapes.transpose(1, 0, 2),
        names=tuple(fractions),
        modes=names,
        pairs=pairs,
    )


def _count(name, value, least, most):
    value = as_integer(name, value, least=least)
    if value > most:
        raise InputError(f"{name} must be at most {most}, got {value}: higher shapes are not accurate in this model")
    return value


def _mode_names(bending, modes, axial):
    prefixes = ("mode",) if len(bending) == 1 else tuple(bending)
    names = [f"{prefix}{i + 1}" for prefix in prefixes for i in range(modes)]
    return (*names, *(f"axial{i + 1}" for i in range(axial)))


def _fractions(nodes):
    """Name -> x/L of all nodes."""
    if nodes is not None and not isinstance(nodes, Mapping):
        raise InputError(f"nodes must be a dictionary, name -> fraction of the length, got {repr_of(nodes)}")
    fractions = {"start": 0.0, "end": 1.0}
    for name, value in (nodes or {}).items():
        check_node_name("nodes", name)
        if name in fractions:
            raise InputError(f"nodes must not have the name {name!r}, which each beam has: leave it out")
        fractions[name] = float(np.asarray(as_number(f"nodes[{name!r}]", value, least=0, most=1)))
    return fractions


def check_node_name(what: str, name: Any) -> None:
    """Raise ``InputError`` for a name that cannot follow the point in ``"rod.end"``."""
    if not isinstance(name, str) or not name.isidentifier() or is_reserved(name):
        raise InputError(f"{what} must have names of letters, digits and _ that begin with a letter, got {name!r}")
