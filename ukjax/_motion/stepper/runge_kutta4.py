"""The classical Runge–Kutta method as a diffrax solver; diffrax does not include it."""

from typing import ClassVar

import diffrax as dfx
import numpy as np

from .tableau import RUNGE_KUTTA4


class RungeKutta4(dfx.AbstractERK):
    """The classical four-stage Runge–Kutta method of order four, for fixed steps.

    It has no error estimate, so it needs a step size: ``simulate(..., solver=RungeKutta4(), dt=0.001)`` with ``dt`` in
    seconds. It has no parameters.

    References
    ----------
    W. Kutta, Z. Math. Phys. 46 (1901) 435.
    """

    tableau: ClassVar[dfx.ButcherTableau] = dfx.ButcherTableau(
        c=np.array(RUNGE_KUTTA4.c[1:]),
        a_lower=tuple(map(np.array, RUNGE_KUTTA4.a[1:])),
        b_sol=np.array(RUNGE_KUTTA4.b),
        b_error=np.array(RUNGE_KUTTA4.b_error),
    )
    interpolation_cls = dfx.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms):
        """The order of the method, 4."""
        return 4
