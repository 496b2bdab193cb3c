"""The contact geometry of two shapes: gaps, points and normals, from the pose of one body in the frame of the other."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._precision import in_precision
from .._rotation import cross
from .shapes import AbstractRound, AbstractShape, AbstractSolid, Plane

PARALLEL = 1e-12
"""Segments whose squared sine of the angle between them is below this are parallel."""

OPPOSITE = np.array([-0.48, 0.6, -0.64])
"""Normal at which the directions of slip between round shapes are not defined. It lies in no coordinate plane."""


class Touching(NamedTuple):
    """The points at which two shapes touch, or would touch, in the frame of the second body.

    Attributes
    ----------
    gap : (k,)
        Distances [m].
    point : (k, 3)
        Points of contact [m].
    tangents : (k, 2, 3)
        Two unit vectors across each normal.
    """

    gap: Float[Array, " k"]
    point: Float[Array, "k 3"]
    tangents: Float[Array, "k 2 3"]


def touching(a: AbstractShape, b: AbstractShape, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Touching:
    """The points at which two shapes touch, for the pose R, p of the body of a in the frame of the body of b."""
    if isinstance(a, AbstractSolid) and isinstance(b, Plane):
        found = on_plane(a, b, R, p)
    else:
        assert isinstance(a, AbstractRound) and isinstance(b, AbstractRound)
        found = on_round(a, b, R, p)
    return in_precision(found, R.dtype)  # shapes may contain wider constants


def on_plane(solid: AbstractSolid, plane: Plane, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Touching:
    """A solid at the pose R, p on a plane."""
    normal = plane.normal.vector()
    point = p + solid.lowest(R.T @ normal) @ R.T
    tangents = jnp.broadcast_to(plane.normal.across(), (len(point), 2, 3))
    return Touching((point - plane.at) @ normal, point, tangents)


def on_round(first: AbstractRound, second: AbstractRound, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Touching:
    """A ball or capsule at the pose R, p on another."""
    x, y = nearest_points(p + first.core() @ R.T, second.core())
    distance = jnp.sqrt((x - y) @ (x - y))
    normal = (x - y) / distance
    gap = distance - first.radius - second.radius
    return Touching(gap[None], (y + second.radius * normal)[None], across(normal)[None])


def nearest_points(a: Float[Array, "ends 3"], b: Float[Array, "others 3"]) -> tuple[Array, Array]:
    """The nearest points of two segments, or of points, given by their ends.

    For parallel segments the points are in the middle of the part where the segments overlap.
    """
    if len(a) == 1 and len(b) == 1:
        return a[0], b[0]
    if len(a) == 1:
        return a[0], _nearest_on(b, a[0])
    if len(b) == 1:
        return _nearest_on(a, b[0]), b[0]
    along_a, along_b = a[1] - a[0], b[1] - b[0]
    aa, bb, ab = along_a @ along_a, along_b @ along_b, along_a @ along_b
    squared_sine = aa * bb - ab * ab
    is_parallel = squared_sine <= PARALLEL * aa * bb
    apart = a[0] - b[0]
    s = (ab * (along_b @ apart) - bb * (along_a @ apart)) / jnp.where(is_parallel, 1, squared_sine)
    beside = jnp.mean(jnp.clip((b - a[0]) @ along_a / aa, 0, 1))
    s = jnp.where(is_parallel, beside, jnp.clip(s, 0, 1))
    y = _nearest_on(b, a[0] + s * along_a)
    return jnp.where(is_parallel, a[0] + s * along_a, _nearest_on(a, y)), y


def _nearest_on(segment, x):
    along = segment[1] - segment[0]
    return segment[0] + jnp.clip((x - segment[0]) @ along / (along @ along), 0, 1) * along


def across(normal: Float[Array, " 3"]) -> Float[Array, "2 3"]:
    """Two unit vectors across a normal: those of a fixed direction, rotated with it to the normal by the smallest
    angle."""
    fixed = -OPPOSITE
    first = np.cross(fixed, [1.0, 0.0, 0.0])
    first = first / np.linalg.norm(first)
    axis = cross(jnp.asarray(fixed), normal)
    turn = lambda x: x + cross(axis, x) + cross(axis, cross(axis, x)) / (1 + fixed @ normal)
    return jnp.stack([turn(jnp.asarray(first)), turn(jnp.asarray(np.cross(fixed, first)))])
