"""Shapes of bodies, which are drawn in figures and have no other effect."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .._check import check_word
from .._errors import InputError
from .mesh import mesh_lines

SIZE_NAMES = {
    "box": ("x", "y", "z"),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
    "ellipsoid": ("x", "y", "z"),
    "mesh": ("x", "y", "z"),
}
CIRCLE_SEGMENTS = 16
"""Number of segments by which a circle is drawn."""


class Shape(NamedTuple):
    """A solid on a body, for figures.

    Parameters
    ----------
    kind : {"box", "sphere", "cylinder", "capsule", "ellipsoid", "mesh"}
        Kind of the solid.
    size : tuple of float
        Box: three edges [m]. Sphere: radius [m]. Cylinder and capsule, both along z: radius and length [m]; that of a
        capsule is the length of its straight part. Ellipsoid: three semi-axes [m]. Mesh: three scale factors.
    at : (3,)
        Centre of the solid in the body's frame [m].
    turn : (4,)
        Attitude of the solid in the body's frame, a quaternion (w, x, y, z).
    path : str
        File of a mesh, which is drawn by cross sections.
    """

    kind: str
    size: tuple[float, ...]
    at: tuple[float, ...] = (0.0, 0.0, 0.0)
    turn: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)
    path: str = ""

    def wires(self) -> list[np.ndarray]:
        """Edges of the shape, or circles on it, as lines (points, 3) in the body's frame [m]."""
        if self.kind == "mesh":
            lines = [line * np.array(self.size) for line in mesh_lines(self.path)[0]]
        else:
            lines = _LINES[self.kind](*self.size)
        w, v = self.turn[0], np.array(self.turn[1:])
        rotate = lambda x: x + 2 * np.cross(v, w * x + np.cross(v, x))
        return [rotate(line) + np.array(self.at) for line in lines]


def edges_of(shapes: Iterable[Shape]) -> np.ndarray:
    """The wires of several shapes as one line (points, 3), separated by NaN."""
    wires, gap = [wire for shape in shapes for wire in shape.wires()], np.full((1, 3), np.nan)
    return np.concatenate([np.zeros((0, 3)), *(part for wire in wires for part in (wire, gap))])


def warn_of_undrawn(shapes: Iterable[Shape]) -> None:
    """Issue one warning for all meshes that cannot be drawn."""
    reasons = {shape.path: mesh_lines(shape.path)[1] for shape in shapes if shape.kind == "mesh"}
    missing = [(path, reason) for path, reason in reasons.items() if reason]
    if missing:
        path, reason = missing[0]
        count = "a mesh is" if len(missing) == 1 else f"{len(missing)} meshes are"
        warnings.warn(f"{count} not drawn: {path!r} {reason}", stacklevel=3)


def check_shape(shape: Shape) -> Shape:
    """Return the shape with its numbers as Python floats.

    Raises ``InputError`` if it is not a ``Shape``, or has a wrong kind or number of sizes.
    """
    if not isinstance(shape, Shape):
        raise InputError(f"shapes must be several ukjax.Shape, got {type(shape).__name__}")
    check_word("kind of a shape", shape.kind, SIZE_NAMES)
    size, at, turn = (tuple(float(x) for x in np.ravel(numbers)) for numbers in (shape.size, shape.at, shape.turn))
    for name, values, count in (("size", size, len(SIZE_NAMES[shape.kind])), ("at", at, 3), ("turn", turn, 4)):
        if len(values) != count:
            raise InputError(f"{name} of a {shape.kind} must be {count} numbers, got {len(values)}")
    return Shape(shape.kind, size, at, turn, str(shape.path))


def _circle(axis, rx, ry, height=0.0):
    angle = np.linspace(0, 2 * np.pi, CIRCLE_SEGMENTS + 1)
    return np.roll(np.stack([rx * np.cos(angle), ry * np.sin(angle), np.full_like(angle, height)], axis=1), axis + 1, 1)


def _box(x, y, z):
    corners = np.array([[-x, -y], [x, -y], [x, y], [-x, y], [-x, -y]]) / 2
    low, high = (np.column_stack([corners, np.full(5, h)]) for h in (-z / 2, z / 2))
    return [low, high, *(np.stack([a, b]) for a, b in zip(low[:4], high[:4], strict=True))]


def _ellipsoid(x, y, z):
    return [_circle(0, y, z), _circle(1, z, x), _circle(2, x, y)]


def _cylinder(radius, length):
    low, high = (_circle(2, radius, radius, h) for h in (-length / 2, length / 2))
    return [low, high, *(np.stack([low[i], high[i]]) for i in range(0, CIRCLE_SEGMENTS, CIRCLE_SEGMENTS // 4))]


def _capsule(radius, length):
    angle = np.linspace(0, np.pi, CIRCLE_SEGMENTS // 2 + 1)
    across, height = radius * np.cos(angle), radius * np.sin(angle) + length / 2
    arc_in_xz = np.stack([across, 0 * height, height], axis=1)
    arcs = [arc_in_xz, arc_in_xz[:, [1, 0, 2]]]
    return [*_cylinder(radius, length), *arcs, *(-line for line in arcs)]


_LINES = {
    "box": _box,
    "sphere": lambda radius: _ellipsoid(radius, radius, radius),
    "cylinder": _cylinder,
    "capsule": _capsule,
    "ellipsoid": _ellipsoid,
}
