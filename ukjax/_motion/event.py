"""Where a motion is to end before its time: an event, and what a step says about it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import call, check_function, seen
from .._rates import Rates, rate

DIRECTIONS = {"falling": -1, "rising": 1, None: 0}


class Event(eqx.Module):
    """Ends a motion where ``function(t, q, v)``, one number, crosses zero: ``simulate(..., event=Event(...))``.

    ``direction="falling"`` counts crossings from above zero to below it only, ``"rising"`` only those from below, None
    both. A plain function given as ``event`` is the same with None. The function is that of a surface, a floor or a
    wall, say its distance in whatever unit; parameters in it are leaves if it is an ``equinox.Module``.

    Raises ``ValueError`` for another direction, or what is no function.
    """

    function: Callable
    direction: str | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_function("event", self.function, "t, q, v")
        if not isinstance(self.direction, str | None) or self.direction not in DIRECTIONS:
            raise ValueError(f"direction must be 'falling', 'rising' or None for both, got {self.direction!r}")

    def __call__(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Any:
        return self.function(t, q, v)

    @property
    def counted(self) -> int:
        """−1 for falling, 1 for rising, 0 for both."""
        return DIRECTIONS[self.direction]


def as_event(event: Any) -> Event | None:
    """What a user gives as ``event``, or ``ValueError``."""
    return event if event is None or isinstance(event, Event) else Event(event)


def check_event(event: Event, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
    """An event is one number, or ``ValueError``: asked while a program is traced."""
    value = jax.eval_shape(lambda t, q, v: _number_of(event, t, q, v), t, q, v)
    if value.ndim != 0 or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"event must return one number that crosses zero, got shape {value.shape} of {value.dtype}; "
            "write q[0] rather than q[0] > 0"
        )


def _number_of(event, t, q, v):
    value = call("event", event, t, q, v)
    if not isinstance(value, jax.Array | np.ndarray | np.generic | float | int):
        raise ValueError(f"event must return one number that crosses zero, got {seen(value)}")
    return jnp.asarray(value)


class Step(NamedTuple):
    """A step from (t0, q0, v0) to (t1, q1, v1), and the cubic between: good enough to look for crossings that its end
    does not show, and to aim at them. What it promises is always tried by a true step."""

    t0: Float[Array, ""]
    q0: Float[Array, " nq"]
    v0: Float[Array, " n"]
    t1: Float[Array, ""]
    q1: Float[Array, " nq"]
    v1: Float[Array, " n"]
    rates: Rates | None = None

    def at(self, x: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """t, q and v at the share x of the step."""
        h = self.t1 - self.t0
        jump = self.q1 - self.q0
        r0, r1 = rate(self.rates, self.q0, self.v0), rate(self.rates, self.q1, self.v1)
        q = self.q0 + x * (h * r0 + x * (3 * jump - h * (2 * r0 + r1 + x * (-r0 - r1))))
        q = q - 2 * x**3 * jump
        if self.rates is not None:  # of v too little is known for more than a line
            return self.t0 + x * h, jnp.where(x < 1, q, self.q1), self.v0 + x * (self.v1 - self.v0)
        slope = 6 * x * (1 - x) * jump / h
        v = slope + (1 - x) * (1 - 3 * x) * self.v0 + x * (3 * x - 2) * self.v1
        return self.t0 + x * h, jnp.where(x < 1, q, self.q1), jnp.where(x < 1, v, self.v1)


SHARES = np.sort(np.concatenate([2.0 ** -np.arange(5, 25), np.arange(1, 17) / 16]))
"""Of a step, where it is looked at: evenly, and ever closer to its start, where it may have just left the surface."""

SOONEST = float(SHARES[0])
ZOOM = np.arange(1, 17) / 16


def first_below(
    value: Callable[[Array], Array], values: Float[Array, " shares"], level: Float[Array, ""]
) -> Float[Array, ""]:
    """The share of a step at which ``value`` first falls to ``level``, where ``values`` are those at ``SHARES``."""
    ends = jnp.concatenate([jnp.zeros(1, values.dtype), jnp.asarray(SHARES, values.dtype)])
    heights = jnp.concatenate([value(jnp.zeros((), values.dtype))[None], values])
    for _ in range(2):
        k = 1 + jnp.argmax(heights[1:] < level)
        low, high, above = ends[k - 1], ends[k], heights[k - 1]
        inside = low + (high - low) * jnp.asarray(ZOOM, values.dtype)
        ends = jnp.concatenate([low[None], inside.at[-1].set(high)])
        heights = jnp.concatenate([above[None], jax.vmap(value)(inside[:-1]), heights[k][None]])
    k = 1 + jnp.argmax(heights[1:] < level)
    low, high, above, below = ends[k - 1], ends[k], heights[k - 1] - level, heights[k] - level
    return low + (high - low) * jnp.clip(above / (above - below), 0, 1)


def on_surface(
    event: Event,
    rates: Rates | None,
    acceleration: Callable[[Array, Array, Array], Array],
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    met: Bool[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, " nq"], Float[Array, " n"]]:
    """(t, q, v) as it is, and with the derivatives, first and second, of the instant at which the event is met.

    To (t, q, v) a ``wait`` is added that is zero and has the derivatives of the root: two steps of Newton's method,
    along the motion as the midpoint rule has it.
    """
    q_dot, v_dot = rate(rates, q, v), acceleration(t, q, v)
    slope = jax.jvp(event, (t, q, v), (jnp.ones_like(t), q_dot, v_dot))[1]
    slope = jnp.where(met, slope, 1)

    def more(*state):
        height = event(*state)
        return -jnp.where(met, height - jax.lax.stop_gradient(height), 0) / slope

    wait = more(t, q, v)
    q_half, v_half = q + wait / 2 * q_dot, v + wait / 2 * v_dot
    t, q, v = t + wait, q + wait * rate(rates, q_half, v_half), v + wait * acceleration(t + wait / 2, q_half, v_half)
    wait = more(t, q, v)  # zero in its first derivative, too
    return t + wait, q + wait * q_dot, v + wait * v_dot
