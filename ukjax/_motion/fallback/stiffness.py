"""Motions whose explicit steps are limited by stability, not by accuracy.

The decision is made after the motion, so that steps have no additional cost. A motion with many steps, far shorter than
the time in which its state changes, is suspected. Then the eigenvalues of the Jacobian of (q̇, v̇) at its end decide.
Systems with so many velocities that a band matrix is used are not examined: their Jacobian takes long to compile.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._kernel.if_repeated import jit_if_repeated
from ..._solve import AbstractMethod
from ..._system import nonsmooth_of
from ..problem import Problem
from ..result import finite
from ..stepper.limits import MIN_BAND
from ..stepper.runge_kutta import slope_at
from ..stepper.scaling import Scale, scales
from ..stepper.tableau import Tableau

MANY_STEPS = 5000
"""Motions with fewer steps are not examined. A step of Radau takes about 50 times as long as an explicit one, so it is
not faster for them (``python -m benchmarks stiff``)."""

SHORT = 0.02
"""Mean step size, relative to the time in which the state changes, below which a motion is suspected."""

DAMPED = 0.5
"""Smallest decay rate of a stiff part, relative to the modulus of its eigenvalue. An oscillation may need its steps."""

NEAR_LIMIT = 0.2
"""Mean step size, relative to the stability limit, beyond which stability limits the steps. Steps near the limit are
often rejected, and rejected steps count: the mean is 0.2 to 0.7 of the limit."""


class Stiffness(NamedTuple):
    """A motion whose steps were limited by stability: the ``member`` of a batch, () for one motion; its number of
    ``steps``, their mean length ``h`` [s], and the ``time`` within which a fast part decays [s].
    """

    member: int | tuple[()]
    steps: int
    h: float
    time: float

    @property
    def in_words(self) -> str:
        """The steps and their limit in words."""
        return (
            f"its {self.steps} steps, of {self.h:.2g} s on average, are limited by stability and not by accuracy, "
            f"since a fast part decays within {self.time:.2g} s"
        )


def stiffness(problem: Problem, scale: Scale, steps: Any, last: tuple[Any, Any, Any]) -> Stiffness | None:
    """The ``Stiffness`` if stability limited the steps of an explicit adaptive solver, else None.

    ``steps`` and ``last`` are those of the solution. Of a batch, the member with the shortest steps is examined.
    """
    model = problem.model
    if problem.dt is not None or problem.tableau is None or nonsmooth_of(model):
        return None
    steps, (t, q, v) = np.asarray(steps), (np.asarray(x) for x in last)
    begin = np.broadcast_to(np.asarray(problem.ts)[..., 0], t.shape)
    duration: Any = t - begin
    member: Any = () if steps.ndim == 0 else int(np.argmax(steps / np.maximum(duration, np.finfo(t.dtype).tiny)))
    t, q, v, duration = t[member], q[member], v[member], float(duration[member])
    if steps[member] < MANY_STEPS or duration <= 0 or v.size >= MIN_BAND or not finite(q, v, xp=np):
        return None
    h = duration / int(steps[member])
    t, q, v = state = jax.device_put((t, q, v))
    at_end = scales(model, t, q, v, np.asarray(duration, t.dtype), method=problem.method)
    slowest = max(float(np.asarray(scale.shortest_time)[member]), float(at_end.shortest_time))
    if h > SHORT * slowest:
        return None
    eigenvalues = np.linalg.eigvals(np.asarray(_jacobian(model, *state, problem.method)))
    damped = np.abs(eigenvalues[eigenvalues.real < -DAMPED * np.abs(eigenvalues)])
    fastest = float(np.max(damped, initial=0))
    if not h * fastest > NEAR_LIMIT * stability_limit(problem.tableau):
        return None
    return Stiffness(member, int(steps[member]), h, 1 / fastest)


@lru_cache
def stability_limit(tableau: Tableau) -> float:
    """The largest h |λ| for which the method is stable, for a real λ < 0.

    The method multiplies a solution of ẏ = λ y by R(z) = 1 + z b (1 − z A)⁻¹ 1 with z = h λ, a polynomial.
    """
    ones, A, b = np.ones(tableau.stages), tableau.weights(), np.array(tableau.b)
    grown = lambda x: abs(1 - x * (b @ np.linalg.solve(np.eye(tableau.stages) + x * A, ones))) > 1
    return next(x for x in np.arange(0.05, 100, 0.05) if grown(x))


@jit_if_repeated
def _jacobian(model: Any, t: Any, q: Any, v: Any, method: AbstractMethod) -> Any:
    """Jacobian of (q̇, v̇) by (q, v)."""
    slope = lambda y: slope_at(model, method, t, y[: q.size], y[q.size :], True)[0]
    return jax.jacfwd(slope)(jnp.concatenate([q, v]))
