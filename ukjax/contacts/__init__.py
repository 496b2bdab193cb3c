"""Contacts between the bodies of a ``ukjax.Mechanism``: shapes on bodies, which touch, slip and separate.

Contacts that never open, such as a wheel that always rolls, are joints: ``ukjax.joints.Rolling``.
"""

from .contact import Contact as Contact
from .shapes import AbstractShape as AbstractShape
from .shapes import Box as Box
from .shapes import Capsule as Capsule
from .shapes import Cylinder as Cylinder
from .shapes import Plane as Plane
from .shapes import Point as Point
from .shapes import Sphere as Sphere
