"""The classical Runge–Kutta method, which diffrax does not have."""

from typing import ClassVar

import diffrax as dfx
import numpy as np


class RungeKutta4(dfx.AbstractERK):
    """Four stages of order four: the method of most papers and simulators, for fixed steps, ``simulate(..., dt=...)``.

    It has no error estimate. W. Kutta, Z. Math. Phys. 46 (1901) 435.
    """

    tableau: ClassVar[dfx.ButcherTableau] = dfx.ButcherTableau(
        c=np.array([0.5, 0.5, 1.0]),
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        b_error=np.zeros(4),
    )
    interpolation_cls = dfx.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms):
        return 4
