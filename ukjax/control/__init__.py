"""Servo control: tasks are constraints that actuators enforce, exactly or robustly, within their capability.

    robot = ukjax.System(dynamics, loops, control=ukjax.control.Servo(B, ukjax.Holonomic(path)))
    ukjax.simulate(robot, q0, v0, ts).control

A task is written like any other constraint, but its force comes from the actuators.
"""

from .._control import AbstractControl as AbstractControl
from .._control import Command as Command
from .adaptive import Adaptive as Adaptive
from .feedback import Feedback as Feedback
from .inverse_dynamics import inverse_dynamics as inverse_dynamics
from .robust import Robust as Robust
from .sampled import Sampled as Sampled
from .servo import Servo as Servo
from .sliding import SlidingMode as SlidingMode
