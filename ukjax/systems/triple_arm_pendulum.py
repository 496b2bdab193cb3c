"""The triple pendulum of Kaheman, Fasel, Bramburger, Strom, Kutz & Brunton, arXiv:2205.06231 (2022)."""

from typing import Any, ClassVar

from jaxtyping import Array

from .arms import AbstractArms, names
from .base import Parameter, parameter


class TripleArmPendulum(AbstractArms):
    """Three arms that swing freely: ``AbstractArms`` with the parameters of Kaheman et al.

    Masses m [kg], first moments h [kg m], inertias I about the upper pins [kg m²], lengths L [m].
    """

    m: Parameter = parameter((0.258172, 0.2794278, 0.1186242))
    h: Parameter = parameter((0.0413075, 0.05670685, 0.02179231))
    I: Parameter = parameter((0.006709241, 0.0118222, 0.004172177))
    L: Parameter = parameter((0.1727997, 0.2287, 0.3674175))
    k: Parameter = parameter((0.001477095, 2.595766e-4, 1.0e-5))
    c: Parameter = parameter((0.0, 0.0, 0.0))
    g: Parameter = parameter(9.808344)

    end: ClassVar[float] = 1.538
    coordinates: ClassVar[Any] = names(3)

    def start(self) -> tuple[Array, Array]:
        return self._at((0.1383193, 0.1883331, 0.3279779), (0.1539495, 0.7481843, 3.7616316))
