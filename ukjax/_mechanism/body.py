"""A rigid body: how heavy it is, and where."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_number, as_numbers, check_finite, is_concrete
from .._rotation import as_vector
from .shape import Shape, check_shape


class Body(eqx.Module):
    """``mass`` [kg], ``centre`` (3,) of mass [m] in the body's frame, ``inertia`` [kg m²] about the centre, along the
    axes of the body's frame.

    The inertia is given as three moments (xx, yy, zz), as six numbers (xx, yy, zz, xy, xz, yz), entries of the matrix,
    or as the matrix (3, 3), and kept as three or six numbers; it is 0 for a point mass. The frame is the one that the
    body's joints are given in. ``shapes`` are what it looks like in pictures, and nothing else. ``buoyancy`` is the
    share of the weight that a constant force at the centre of mass carries: 1 for a body that floats, 0 if it is left
    out. Raises ``ValueError`` for a mass or an inertia that is negative, and shapes that do not fit.
    """

    mass: Float[Array, ""]
    centre: Float[Array, " 3"]
    inertia: Float[Array, " k"]
    shapes: tuple[Shape, ...] = eqx.field(static=True)
    buoyancy: Float[Array, ""] | None

    def __init__(
        self,
        mass: Any,
        centre: Any = (0.0, 0.0, 0.0),
        inertia: Any = (0.0, 0.0, 0.0),
        shapes: Iterable[Shape] = (),
        buoyancy: Any = None,
    ):
        self.mass = as_number("mass", mass, "kg", least=0)
        self.centre = as_vector("centre", centre)
        self.inertia = _six_or_three(inertia)
        self.shapes = tuple(check_shape(shape) for shape in shapes)
        self.buoyancy = None if buoyancy is None else as_number("buoyancy", buoyancy)

    def inertia_matrix(self) -> Float[Array, "3 3"]:
        """About the centre, along the body's axes."""
        return inertia_matrix(self.inertia)


def inertia_matrix(entries: Float[Array, " k"]) -> Float[Array, "3 3"]:
    """Of three or six numbers."""
    if entries.shape == (3,):
        return jnp.diag(entries)
    xx, yy, zz, xy, xz, yz = entries
    return jnp.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _is_symmetric(matrix):
    return np.all(np.abs(matrix - matrix.T) <= 1e-9 * np.max(np.abs(matrix)))


def _six_or_three(given):
    value = as_numbers("inertia", given)
    if value.shape == (3, 3):
        if is_concrete(value) and not _is_symmetric(np.asarray(value)):
            raise ValueError(f"inertia must be symmetric, got {value.tolist()}")
        value = jnp.stack([value[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))])
    if value.shape not in ((3,), (6,)):
        raise ValueError(
            "inertia must be three moments (xx, yy, zz), six numbers (xx, yy, zz, xy, xz, yz) or a matrix (3, 3), "
            f"got shape {value.shape}"
        )
    if is_concrete(value):
        check_finite("inertia", value)
        six = np.zeros(6)
        six[: value.size] = value
        xx, yy, zz, xy, xz, yz = six
        least = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])[0]
        if float(least) < -1e-9 * float(np.max(np.abs(six))):
            raise ValueError(
                f"inertia must have no negative principal moment, got {float(least):.3g} kg m² among those of "
                f"{value.tolist()}"
            )
    return value
