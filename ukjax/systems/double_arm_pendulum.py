"""The double pendulum of Kaheman, Fasel, Bramburger, Strom, Kutz & Brunton, arXiv:2205.06231 (2022)."""

from typing import Any, ClassVar

from jaxtyping import Array

from .arms import AbstractArms, names
from .base import Parameter, parameter


class DoubleArmPendulum(AbstractArms):
    """Two arms that swing freely: ``AbstractArms`` with the parameters of Kaheman et al.

    Units as in ``AbstractArms``. The source gives the distances a [m] to the centres and the inertias [kg m²] about
    the centres: h = m a, I = I_centre + m a². Coulomb friction is not in their model. The start is the first
    sample of their first validation record.
    """

    m: Parameter = parameter((0.09384397, 0.137596))
    h: Parameter = parameter((0.01018819, 0.01606832))
    I: Parameter = parameter((0.001543613, 0.003145272))
    L: Parameter = parameter((0.1727192, 0.233558))
    k: Parameter = parameter((2.371428e-4, 1.0e-5))
    c: Parameter = parameter((0.0, 0.0))
    g: Parameter = parameter(9.80858)

    end: ClassVar[float] = 2.666
    coordinates: ClassVar[Any] = names(2)

    def start(self) -> tuple[Array, Array]:
        return self._at((0.0136416, 0.0325685), (1.0768462, 1.9006220))
