"""A motor of a mechanism: a record of what is there, which moves nothing by itself."""

from typing import NamedTuple


class Actuator(NamedTuple):
    """A motor ``name`` on the ``joint``: its force or torque u within ``limits`` (low, high), None where there are
    none, is ``gear`` u along the joint's coordinate, so that it is a column of ``mechanism.along(joint)``."""

    name: str
    joint: str
    gear: float = 1.0
    limits: tuple[float, float] | None = None
