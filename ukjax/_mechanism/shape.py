"""Shapes of bodies, which are drawn in figures and have no other effect."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .._check import check_word
from .._errors import InputError
from .mesh import mesh_drawing

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


class Surface(NamedTuple):
    """Surface of a solid as triangles.

    Attributes
    ----------
    vertices : (k, 3)
        Vertices in the body's frame [m].
    faces : (f, 3)
        Indices of the vertices of each triangle, counterclockwise as seen from outside.
    """

    vertices: np.ndarray
    faces: np.ndarray


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
        File of a mesh, which figures draw by cross sections.
    """

    kind: str
    size: tuple[float, ...]
    at: tuple[float, ...] = (0.0, 0.0, 0.0)
    turn: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)
    path: str = ""

    def wires(self) -> list[np.ndarray]:
        """Edges of the shape, or circles on it, as lines (points, 3) in the body's frame [m]."""
        if self.kind == "mesh":
            lines = [line * np.array(self.size) for line in mesh_drawing(self.path).lines]
        else:
            lines = _LINES[self.kind](*self.size)
        return [self._placed(line) for line in lines]

    def surface(self) -> Surface:
        """Surface of the shape in the body's frame [m]."""
        if self.kind == "mesh":
            vertices, faces = mesh_drawing(self.path).surface
            vertices, mirrored = vertices * np.array(self.size), np.prod(self.size) < 0
            return Surface(self._placed(vertices), faces[:, ::-1] if mirrored else faces)
        vertices, faces = _SURFACES[self.kind](*self.size)
        return Surface(self._placed(vertices), faces)

    def _placed(self, points):
        w, v = self.turn[0], np.array(self.turn[1:])
        return points + 2 * np.cross(v, w * points + np.cross(v, points)) + np.array(self.at)


def surface_of(shapes: Iterable[Shape]) -> Surface:
    """The surfaces of several shapes as one."""
    vertices, faces, count = [np.zeros((0, 3))], [np.zeros((0, 3), int)], 0
    for shape in shapes:
        surface = shape.surface()
        vertices.append(surface.vertices)
        faces.append(surface.faces + count)
        count += len(surface.vertices)
    return Surface(np.concatenate(vertices), np.concatenate(faces))


def edges_of(shapes: Iterable[Shape]) -> np.ndarray:
    """The wires of several shapes as one line (points, 3), separated by NaN."""
    wires, gap = [wire for shape in shapes for wire in shape.wires()], np.full((1, 3), np.nan)
    return np.concatenate([np.zeros((0, 3)), *(part for wire in wires for part in (wire, gap))])


def warn_of_undrawn(shapes: Iterable[Shape]) -> None:
    """Issue one warning for all meshes that cannot be drawn."""
    reasons = {shape.path: mesh_drawing(shape.path).reason for shape in shapes if shape.kind == "mesh"}
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


def _revolved(profile):
    """Surface of revolution about z of a profile (k, 2) of radius and height, from the lower pole to the upper."""
    angle = np.linspace(0, 2 * np.pi, 2 * CIRCLE_SEGMENTS, endpoint=False)
    radius, height = np.asarray(profile, float).T[:, :, None]
    rings = np.stack(
        [radius * np.cos(angle), radius * np.sin(angle), np.broadcast_to(height, (len(radius), 1)) + 0 * angle], axis=-1
    )
    k = len(angle)
    here, there = np.arange(k), (np.arange(k) + 1) % k
    faces = []
    for ring in range(len(rings) - 1):
        a, b = ring * k, (ring + 1) * k
        if profile[ring][0] > 0:
            faces.append(np.stack([a + here, a + there, b + here], axis=1))
        if profile[ring + 1][0] > 0:
            faces.append(np.stack([a + there, b + there, b + here], axis=1))
    return rings.reshape(-1, 3), np.concatenate(faces)


def _half_circle(count):
    angle = np.linspace(-np.pi / 2, np.pi / 2, count + 1)
    profile = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    profile[[0, -1], 0] = 0.0
    return profile


def _solid_box(x, y, z):
    corners = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)]) * np.array([x, y, z]) / 2
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return corners, np.array([face for a, b, c, d in quads for face in ((a, b, c), (a, c, d))])


def _solid_ellipsoid(x, y, z):
    vertices, faces = _revolved(_half_circle(CIRCLE_SEGMENTS))
    return vertices * np.array([x, y, z]), faces


def _solid_capsule(radius, length):
    lower, upper = np.split(radius * _half_circle(CIRCLE_SEGMENTS), [CIRCLE_SEGMENTS // 2 + 1])
    middle = [[radius, length / 2]]
    return _revolved(np.concatenate([lower - [0, length / 2], middle, upper + [0, length / 2]]))


_SURFACES = {
    "box": _solid_box,
    "sphere": lambda radius: _solid_ellipsoid(radius, radius, radius),
    "cylinder": lambda radius, length: _revolved(
        [(0, -length / 2), (radius, -length / 2), (radius, length / 2), (0, length / 2)]
    ),
    "capsule": _solid_capsule,
    "ellipsoid": _solid_ellipsoid,
}
