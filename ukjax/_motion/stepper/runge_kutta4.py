"""The classical Runge–Kutta method, which diffrax does not have."""

from typing import ClassVar

import diffrax as dfx
import numpy as np

from .tableau import RUNGE_KUTTA4


class RungeKutta4(dfx.AbstractERK):
    """Four stages of order four: the method of most papers and simulators, for fixed steps, ``simulate(..., dt=...)``.

    It has no error estimate. W. Kutta, Z. Math. Phys. 46 (1901) 435.
    """

    tableau: ClassVar[dfx.ButcherTableau] = dfx.ButcherTableau(
        c=np.array(RUNGE_KUTTA4.c[1:]),
        a_lower=tuple(map(np.array, RUNGE_KUTTA4.a[1:])),
        b_sol=np.array(RUNGE_KUTTA4.b),
        b_error=np.array(RUNGE_KUTTA4.b_error),
    )
    interpolation_cls = dfx.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms):
        return 4
