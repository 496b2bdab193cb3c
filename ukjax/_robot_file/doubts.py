"""What looks wrong about a mechanism: what no body can have, and units that were mistaken."""

from collections.abc import Iterator

import numpy as np

from .._mechanism import Mechanism

MAX_LENGTH_RATIO = 100.0
"""Metres, and times the middle one of a mechanism's lengths, beyond which a length is rather in millimetres."""
MAX_GYRATION_RATIO = 10.0
"""Times a mechanism's largest length: a radius of gyration beyond it is that of an inertia in other units."""
DENSITY_RANGE = (1.0, 30_000.0)
"""Of foam and of what is denser than gold, kg/m³: beyond them a mass is rather in grams or tonnes."""


def doubts(mechanism: Mechanism) -> list[str]:
    """A line for each thing that looks wrong."""
    return [*_inertias(mechanism), *_leaves(mechanism), *_lengths(mechanism), *_densities(mechanism)]


def _inertias(mechanism) -> Iterator[str]:
    size = max(_all_lengths(mechanism).values(), default=0.0)
    for name, body in mechanism.bodies.items():
        moments = np.linalg.eigvalsh(np.asarray(body.inertia_matrix()))
        shown = ", ".join(f"{moment:.3g}" for moment in moments)
        mass, radius = float(body.mass), 0.0
        if mass:
            radius = float(np.sqrt(max(moments[-1], 0) / mass))
        elif moments[-1] > 0:
            yield f"{name} has an inertia, but no mass"
        if moments[0] < -1e-9 * abs(moments[-1]):
            yield f"{name} has an inertia that no body has: of its moments {shown} one is negative"
        elif moments[0] + moments[1] < moments[2] * (1 - 1e-3):
            yield f"{name} has an inertia that no body has: of its moments {shown} two are less than the third"
        elif size and radius > MAX_GYRATION_RATIO * size:
            yield (
                f"{name} has its mass {radius:.3g} m about its centre (√(I/m)), in a mechanism of {size:.3g} m: is its "
                "inertia in kg m²?"
            )


def _leaves(mechanism) -> Iterator[str]:
    """What a joint moves and has no mass; where it is bound by loops or couplings it can move nevertheless."""
    heavy, carrying = set(), set()
    for link in reversed(mechanism.tree.links):
        if float(mechanism.bodies[link.body].mass) or link.body in heavy:
            heavy |= {link.body, link.parent}
        elif link.size and link.body not in carrying:
            yield f"{link.body} moves and has no mass, nor has what it carries"
        carrying.add(link.parent)


def _lengths(mechanism) -> Iterator[str]:
    lengths = _all_lengths(mechanism)
    middle = float(np.median(list(lengths.values()))) if lengths else 0.0
    for what, length in lengths.items():
        if length > MAX_LENGTH_RATIO or length > MAX_LENGTH_RATIO * middle:
            yield f"{what} is {length:.4g} m away: is it in millimetres?"
    if lengths and max(lengths.values()) < 1 / MAX_LENGTH_RATIO**2:
        yield f"the largest of all lengths is {max(lengths.values()):.3g} m: are they in kilometres?"


def _densities(mechanism) -> Iterator[str]:
    for name, body in mechanism.bodies.items():
        volumes = [_volume(shape.kind, *shape.size) for shape in body.shapes]
        mass, volume = float(body.mass), sum(volumes)  # NaN, of a mesh, is beyond nothing
        if volume and mass and (mass < DENSITY_RANGE[0] * volume or mass > DENSITY_RANGE[1] * volume):
            yield f"{name} has {mass:.4g} kg in the {volume:.3g} m³ of its shapes: is its mass in kg?"


def _all_lengths(mechanism) -> dict[str, float]:
    """Of what is not 0."""
    found = {f"the centre of {name}": body.centre for name, body in mechanism.bodies.items()}
    for name, joint in mechanism.joints.items():
        found |= {f"joint {name} in its parent": getattr(joint, "at", None)}
        found |= {f"joint {name} in its child": getattr(joint, "to", None)}
    sizes = {what: float(np.linalg.norm(place)) for what, place in found.items() if place is not None}
    return {what: size for what, size in sizes.items() if size}


def _volume(kind, *size) -> float:
    return {
        "box": lambda x, y, z: x * y * z,
        "sphere": lambda r: 4 / 3 * np.pi * r**3,
        "cylinder": lambda r, length: np.pi * r * r * length,
        "capsule": lambda r, length: np.pi * r * r * (length + 4 / 3 * r),
        "ellipsoid": lambda x, y, z: 4 / 3 * np.pi * x * y * z,
    }.get(kind, lambda *_: float("nan"))(*size)
