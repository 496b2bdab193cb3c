"""Who drives: actuators, the task they serve, and the law that commands them."""

from .allocation import UNREACHED as UNREACHED
from .allocation import allocate as allocate
from .allocation import shortfall as shortfall
from .base import AbstractControl as AbstractControl
from .base import Command as Command
from .base import actuator_matrix as actuator_matrix
from .feedback import Feedback as Feedback
from .robust import Robust as Robust
from .robust import length as length
from .servo import Servo as Servo
from .servo import square as square
