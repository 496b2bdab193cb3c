"""Who drives: actuators, and how much of a task they can do. The laws themselves are in ``ukjax.control``."""

from .allocation import UNREACHED as UNREACHED
from .allocation import allocate as allocate
from .allocation import shortfall as shortfall
from .allocation import undriven as undriven
from .base import AbstractControl as AbstractControl
from .base import Command as Command
from .base import actuator_matrix as actuator_matrix
from .base import as_limits as as_limits
from .base import constraints_of as constraints_of
from .base import no_task as no_task
from .base import square_matrix as square_matrix
