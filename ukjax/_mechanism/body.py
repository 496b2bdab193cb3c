"""A rigid body: mass, centre of mass, inertia and shapes."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_number, as_numbers
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .._rotation import as_vector
from .shape import Shape, check_shape


class Body(eqx.Module):
    """A rigid body of a mechanism.

    The joints of the body are defined in the body's frame.

    Parameters
    ----------
    mass : float
        Mass [kg], at least 0.
    centre : (3,)
        Centre of mass in the body's frame [m].
    inertia : (3,), (6,) or (3, 3)
        Inertia about the centre of mass, along the axes of the body's frame [kg m²]: principal moments (xx, yy, zz),
        entries (xx, yy, zz, xy, xz, yz) of the inertia matrix, or the matrix. It is stored as three or six numbers.
        The default, 0, is a point mass.
    shapes : iterable of Shape
        Shapes that are drawn in figures. They have no other effect.
    buoyancy : float, optional
        Fraction of the weight that a constant force at the centre of mass balances: 1 for a body that floats.
        None is the same as 0.

    Raises
    ------
    InputError
        If a number is not finite, if the mass or a principal moment is negative, if the inertia is not symmetric or has
        another shape, or if an entry of ``shapes`` is not a valid ``Shape``.
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
        self.mass = as_number("mass", mass, "kg", least=0, below=np.inf)
        self.centre = as_vector("centre", centre)
        self.inertia = six_or_three(inertia)
        self.shapes = tuple(check_shape(shape) for shape in shapes)
        self.buoyancy = None if buoyancy is None else as_number("buoyancy", buoyancy)

    def inertia_matrix(self) -> Float[Array, "3 3"]:
        """The inertia matrix about the centre of mass, along the body's axes [kg m²]."""
        return inertia_matrix(self.inertia)


def inertia_matrix(entries: Float[Array, " k"]) -> Float[Array, "3 3"]:
    """The inertia matrix with the given three or six entries."""
    if entries.shape == (3,):
        return jnp.diag(entries)
    xx, yy, zz, xy, xz, yz = entries
    return jnp.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def inertia_entries(matrix: Float[Array, "3 3"]) -> Float[Array, " 6"]:
    """The entries xx, yy, zz, xy, xz and yz of an inertia matrix."""
    return jnp.stack([matrix[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))])


def _is_symmetric(matrix):
    return np.all(np.abs(matrix - matrix.T) <= 1e-9 * np.max(np.abs(matrix)))


def six_or_three(inertia: Any) -> Float[Array, " k"]:
    """The entries of an inertia: three moments, six numbers or a matrix. Raises ``InputError`` for anything else."""
    value = as_numbers("inertia", inertia)
    if value.shape == (3, 3):
        if is_concrete(value) and not _is_symmetric(np.asarray(value)):
            raise InputError(f"inertia must be symmetric, got {value.tolist()}")
        value = inertia_entries(value)
    if value.shape not in ((3,), (6,)):
        raise InputError(
            "inertia must be three moments (xx, yy, zz), six numbers (xx, yy, zz, xy, xz, yz) or a matrix (3, 3), "
            f"got shape {value.shape}"
        )
    if is_concrete(value):
        six = np.zeros(6)
        six[: value.size] = value
        xx, yy, zz, xy, xz, yz = six
        smallest = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])[0]
        if float(smallest) < -1e-9 * float(np.max(np.abs(six))):
            raise InputError(
                f"inertia must have no negative principal moment, got {float(smallest):.3g} kg m² among those of "
                f"{value.tolist()}"
            )
    return value
