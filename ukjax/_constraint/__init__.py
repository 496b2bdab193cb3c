"""Constraints: each evaluates its rows of A q̈ = b from the equation that the user writes."""

from .acceleration import AccelerationConstraint as AccelerationConstraint
from .base import AbstractConstraint as AbstractConstraint
from .base import Level as Level
from .base import Rows as Rows
from .base import no_rows as no_rows
from .baumgarte import critically_damped as critically_damped
from .beside_states import BesideStates as BesideStates
from .beside_states import NonsmoothBesideStates as NonsmoothBesideStates
from .holonomic import Holonomic as Holonomic
from .holonomicity import Holonomicity as Holonomicity
from .holonomicity import holonomicity as holonomicity
from .nonholonomic import Nonholonomic as Nonholonomic
from .part import OnPart as OnPart
from .pfaffian import Pfaffian as Pfaffian
from .several import all_at as all_at
from .several import as_written as as_written
from .several import join as join
from .several import names_of as names_of
from .several import nonsmooth_names as nonsmooth_names
from .several import rows as rows
from .several import velocities as velocities
from .unilateral import AbstractNonsmooth as AbstractNonsmooth
from .unilateral import Coulomb as Coulomb
from .unilateral import NonsmoothRows as NonsmoothRows
from .unilateral import Unilateral as Unilateral
