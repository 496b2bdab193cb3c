from .base import AbstractControl as AbstractControl
from .base import Command as Command
from .servo import Servo as Servo
