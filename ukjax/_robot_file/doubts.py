"""Plausibility checks of a mechanism: impossible inertias, and values in wrong units."""

from collections.abc import Iterator

import numpy as np

from .._mechanism import Mechanism

MAX_LENGTH_RATIO = 100.0
"""Largest plausible length, in metres and relative to the median length; larger ones may be in millimetres."""
MAX_GYRATION_RATIO = 10.0
"""Largest plausible ratio of a radius of gyration to the largest length; above it the inertia may be in other units."""
DENSITY_RANGE = (1.0, 30_000.0)
"""Plausible densities [kg/m³], from foam to above gold; outside this range the mass may be in grams or tonnes."""


def doubts(mechanism: Mechanism) -> list[str]:
    """One line for each implausible value of the mechanism."""
    return [*_inertias(mechanism), *_leaves(mechanism), *_lengths(mechanism), *_densities(mechanism)]


def _inertias(mechanism) -> Iterator[str]:
    size = max(_all_lengths(mechanism).values(), default=0.0)
    for name, body in mechanism.bodies.items():
        moments = np.linalg.eigvalsh(np.asarray(body.inertia_matrix()))
        moments_text = ", ".join(f"{moment:.3g}" for moment in moments)
        mass, radius = float(body.mass), 0.0
        if mass:
            radius = float(np.sqrt(max(moments[-1], 0) / mass))
        elif moments[-1] > 0:
            yield f"{name} has an inertia, but no mass"
        if moments[0] < -1e-9 * abs(moments[-1]):
            yield f"{name} has an inertia that no body has: of its moments {moments_text} one is negative"
        elif moments[0] + moments[1] < moments[2] * (1 - 1e-3):
            yield f"{name} has an inertia that no body has: of its moments {moments_text} two are less than the third"
        elif size and radius > MAX_GYRATION_RATIO * size:
            yield (
                f"{name} has its mass {radius:.3g} m about its centre (√(I/m)), in a mechanism of {size:.3g} m: is its "
                "inertia in kg m²?"
            )


def _leaves(mechanism) -> Iterator[str]:
    """Moving bodies that have no mass and carry no body with mass.

    The motion of such a body is still determined if a loop or a coupling constrains it.
    """
    with_mass, carriers = set(), set()
    for link in reversed(mechanism.tree.links):
        if float(mechanism.bodies[link.body].mass) or link.body in with_mass:
            with_mass |= {link.body, link.parent}
        elif link.size and link.body not in carriers:
            yield f"{link.body} moves and has no mass, nor has what it carries"
        carriers.add(link.parent)


def _lengths(mechanism) -> Iterator[str]:
    lengths = _all_lengths(mechanism)
    median = float(np.median(list(lengths.values()))) if lengths else 0.0
    for description, length in lengths.items():
        if length > MAX_LENGTH_RATIO or length > MAX_LENGTH_RATIO * median:
            yield f"{description} is {length:.4g} m away: is it in millimetres?"
    if lengths and max(lengths.values()) < 1 / MAX_LENGTH_RATIO**2:
        yield f"the largest of all lengths is {max(lengths.values()):.3g} m: are they in kilometres?"


def _densities(mechanism) -> Iterator[str]:
    for name, body in mechanism.bodies.items():
        volumes = [_volume(shape.kind, *shape.size) for shape in body.shapes]
        mass, volume = float(body.mass), sum(volumes)  # NaN for a mesh: all comparisons are False
        if volume and mass and (mass < DENSITY_RANGE[0] * volume or mass > DENSITY_RANGE[1] * volume):
            yield f"{name} has {mass:.4g} kg in the {volume:.3g} m³ of its shapes: is its mass in kg?"


def _all_lengths(mechanism) -> dict[str, float]:
    """All lengths that are not 0, by description."""
    points = {f"the centre of {name}": body.centre for name, body in mechanism.bodies.items()}
    for name, joint in mechanism.joints.items():
        points |= {f"joint {name} in its parent": getattr(joint, "at", None)}
        points |= {f"joint {name} in its child": getattr(joint, "to", None)}
    lengths = {description: float(np.linalg.norm(point)) for description, point in points.items() if point is not None}
    return {description: length for description, length in lengths.items() if length}


def _volume(kind, *size) -> float:
    return {
        "box": lambda x, y, z: x * y * z,
        "sphere": lambda r: 4 / 3 * np.pi * r**3,
        "cylinder": lambda r, length: np.pi * r * r * length,
        "capsule": lambda r, length: np.pi * r * r * (length + 4 / 3 * r),
        "ellipsoid": lambda x, y, z: 4 / 3 * np.pi * x * y * z,
    }.get(kind, lambda *_: float("nan"))(*size)
