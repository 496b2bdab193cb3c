"""Servo control: tasks as constraints that actuators enforce, exactly, robustly, and no more than they can.

    robot = ukjax.System(dynamics, loops, control=ukjax.control.Servo(B, ukjax.Holonomic(path)))
    ukjax.simulate(robot, q0, v0, ts).control

A task is written like any other constraint; the difference is who provides its force.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
