"""Abstract base class of control laws, and allocation of a task to actuators. The laws are in ``ukjax.control``."""

from .allocation import UNREACHED as UNREACHED
from .allocation import allocate as allocate
from .allocation import passive_mobility as passive_mobility
from .allocation import shortfall as shortfall
from .base import AbstractControl as AbstractControl
from .base import Command as Command
from .base import ConstantInputs as ConstantInputs
from .base import InputsAtInstant as InputsAtInstant
from .base import MotorForce as MotorForce
from .base import Sampling as Sampling
from .base import actuator_matrix as actuator_matrix
from .base import as_limits as as_limits
from .base import constraints_of as constraints_of
from .base import known_input_count as known_input_count
from .base import no_task as no_task
from .base import square_matrix as square_matrix
