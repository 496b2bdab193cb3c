from .base import AbstractControl as AbstractControl
from .base import Command as Command
from .feedback import Feedback as Feedback
from .servo import Servo as Servo
