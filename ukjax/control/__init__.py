"""Servo control: tasks are constraints that actuators enforce, exactly or robustly, as far as they can.

    robot = ukjax.System(dynamics, loops, control=ukjax.control.Servo(B, ukjax.Holonomic(path)))
    ukjax.simulate(robot, q0, v0, ts).control

A task is written like any other constraint, but its force comes from the actuators.
"""

from .._control import AbstractControl as AbstractControl
from .._control import Command as Command
from .actuator_states import DCMotor as DCMotor
from .actuator_states import LowPass as LowPass
from .adaptive import Adaptive as Adaptive
from .dynamic_feedback import DynamicFeedback as DynamicFeedback
from .feedback import Feedback as Feedback
from .inverse_dynamics import inverse_dynamics as inverse_dynamics
from .pid import PID as PID
from .robust import Robust as Robust
from .sampled import Sampled as Sampled
from .servo import Servo as Servo
from .sliding import SlidingMode as SlidingMode
