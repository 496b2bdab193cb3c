"""Step size controller whose steps end on given times. It wraps another controller."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float

from .fixed_step import step_counts


class EndOnTimesState(NamedTuple):
    """State of the controller.

    Attributes
    ----------
    inner
        State of the wrapped controller.
    wanted
        Step size that the wrapped controller requested [s].
    """

    inner: Any
    wanted: Float[Array, ""]


class EndOnTimes(dfx.AbstractAdaptiveStepSizeController):
    """Shorten the steps of another controller so that no step crosses one of the given times.

    The step after a shortened one has the size that was requested before. With ``dt``, the steps between two times are
    equal: the smallest number of steps that are not longer than dt. The motion then ends before a step whose result is
    not finite. A requested step size of NaN ends the motion.

    Attributes
    ----------
    controller
        The wrapped controller.
    times
        Increasing times on which steps end [s].
    dt
        Largest length of equal steps [s], None for adaptive steps.
    rtol, atol, norm
        Tolerances and norm for implicit solvers.
    """

    controller: dfx.AbstractStepSizeController
    times: Float[Array, " times"]
    dt: Array | None
    rtol: Array
    atol: Array
    norm: Callable = optx.rms_norm

    def wrap(self, direction):
        inner, times = self.controller.wrap(direction), jnp.sort(self.times * direction)
        return eqx.tree_at(lambda controller: (controller.controller, controller.times), self, (inner, times))

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        first, inner = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        wanted = jnp.asarray(first - t0)
        return self.end(t0, wanted), EndOnTimesState(inner, wanted)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        before = controller_state.wanted
        good, begin, end, jump, inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state.inner
        )
        wanted = end - begin
        if self.dt is not None:
            good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y1_candidate)]))
            begin = jnp.where(good, begin, t0)
            result = dfx.RESULTS.where(good, result, dfx.RESULTS.dt_min_reached)
        shortened = jnp.asarray(good) & (t1 - t0 < before)
        result = dfx.RESULTS.where(shortened, dfx.RESULTS.successful, result)
        result = dfx.RESULTS.where(jnp.isnan(wanted), dfx.RESULTS.dt_min_reached, result)
        wanted = jnp.where(shortened, jnp.maximum(before, wanted), wanted)
        return good, begin, self.end(begin, wanted), jump, EndOnTimesState(inner, wanted), result

    def end(self, begin: Any, wanted: Array) -> Float[Array, ""]:
        """Time at which a step from ``begin`` ends."""
        # A backward integration starts at the last time, so that no time follows.
        following = jnp.searchsorted(self.times, begin, side="right")
        last = self.times.size - 1
        stop = jnp.where(following > last, begin + wanted, self.times[jnp.minimum(following, last)])
        if self.dt is None:
            return jnp.where(begin + wanted < stop, begin + wanted, stop)
        count = step_counts(jnp.stack([begin, stop]), self.dt, xp=jnp)[0]
        return jnp.where(count > 1, begin + (stop - begin) / count, stop)
