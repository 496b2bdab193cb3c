"""The contact of two shapes."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._check import as_number, kind_of, repr_of
from .._constraint.unilateral import as_static
from .._errors import InputError
from .shapes import AbstractRound, AbstractShape, AbstractSolid, Plane


class Contact(eqx.Module):
    """Two shapes on two bodies, which may touch::

        foot = Contact(Sphere("foot", radius=0.02), Plane(), friction=0.8)
        robot = Mechanism(bodies, joints, contacts=[foot])

    Its gaps are the distances of the shapes [m], with the laws of impact and friction of ``ukjax.Unilateral``. Slip is
    the relative velocity of the two bodies at the point of contact, in two directions across the normal. Any shape may
    touch a ``Plane``; ``Sphere`` and ``Capsule`` may touch each other. Two capsules have one point of contact, even if
    they are parallel.

    Parameters
    ----------
    a, b : shape
        Shapes of ``ukjax.contacts`` on two bodies, in any order.
    friction : float, optional
        Coefficient of friction, at least 0. None for a contact without friction.
    restitution : float
        Coefficient of restitution, from 0 to 1.
    static_friction : float, optional
        Coefficient of friction where it sticks, at least ``friction``. Default: ``friction``.
    name : str, optional
        Name of the contact in messages and tables. Default: ``"foot on ground"`` for these two bodies.

    Raises
    ------
    InputError
        If this pair of shapes is not supported, both are on one body, or a coefficient is out of its range.
    """

    a: AbstractShape
    b: AbstractShape
    friction: Float[Array, ""] | None
    restitution: Float[Array, ""]
    static_friction: Float[Array, ""] | None
    name: str = eqx.field(static=True)

    def __init__(
        self,
        a: Any,
        b: Any,
        friction: Any = None,
        restitution: Any = 0.0,
        *,
        static_friction: Any = None,
        name: str | None = None,
    ):
        for argument, shape in (("a", a), ("b", b)):
            if not isinstance(shape, AbstractShape):
                raise InputError(f"{argument} must be a shape of ukjax.contacts, got {kind_of(shape)}")
        a, b = (b, a) if isinstance(a, Plane) else (a, b)
        if not are_supported(a, b):
            raise InputError(
                f"a contact of {type(a).__name__} and {type(b).__name__} is not supported. Supported are Point, "
                "Sphere, Capsule, Box or Cylinder with Plane, and Sphere or Capsule with each other; for other shapes, "
                "ukjax.Unilateral(gap) takes their distance as a function"
            )
        if a.body == b.body:
            raise InputError(f"a and b must be on two bodies, got {a.body!r} twice")
        if name is not None and not isinstance(name, str):
            raise InputError(f"name must be a word, got {repr_of(name)}")
        self.a, self.b = a, b
        self.friction = None if friction is None else as_number("friction", friction, least=0, below=float("inf"))
        self.restitution = as_number("restitution", restitution, least=0, most=1)
        if static_friction is not None:
            if self.friction is None:
                raise InputError("static_friction needs friction, got only static_friction")
            static_friction = as_static(
                "static_friction", as_number("static_friction", static_friction), "friction", self.friction
            )
        self.static_friction = static_friction
        self.name = f"{a.body} on {b.body}" if name is None else name

    @property
    def points(self) -> int:
        """Number of gaps."""
        return self.a.points if isinstance(self.a, AbstractSolid) and isinstance(self.b, Plane) else 1


def are_supported(a: AbstractShape, b: AbstractShape) -> bool:
    """Whether these two shapes may touch, in this order."""
    if isinstance(b, Plane):
        return isinstance(a, AbstractSolid)
    return isinstance(a, AbstractRound) and isinstance(b, AbstractRound)
