"""Joints, connections, rolling contacts and couplings of a ``ukjax.Mechanism``, one class per kind."""

from .base import AbstractActing as AbstractActing
from .base import AbstractConnection as AbstractConnection
from .base import AbstractJoint as AbstractJoint
from .connections import Bushing as Bushing
from .connections import Distance as Distance
from .connections import PointOnLine as PointOnLine
from .connections import PointOnSurface as PointOnSurface
from .connections import Strut as Strut
from .contacts import AbstractContact as AbstractContact
from .contacts import KnifeEdge as KnifeEdge
from .contacts import Rolling as Rolling
from .couplings import AbstractCoupling as AbstractCoupling
from .couplings import Cam as Cam
from .couplings import Drive as Drive
from .couplings import Gear as Gear
from .lower_pairs import Cylindrical as Cylindrical
from .lower_pairs import Fixed as Fixed
from .lower_pairs import Free as Free
from .lower_pairs import Planar as Planar
from .lower_pairs import Prismatic as Prismatic
from .lower_pairs import Revolute as Revolute
from .lower_pairs import Screw as Screw
from .lower_pairs import Spherical as Spherical
from .lower_pairs import Universal as Universal
