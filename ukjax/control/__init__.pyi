from .adaptive import Adaptive as Adaptive
from .base import AbstractControl as AbstractControl
from .base import Command as Command
from .feedback import Feedback as Feedback
from .inverse_dynamics import inverse_dynamics as inverse_dynamics
from .robust import Robust as Robust
from .servo import Servo as Servo
from .sliding import SlidingMode as SlidingMode
