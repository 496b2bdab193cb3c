"""The surfaces of events, on which a motion ends, continues from another state, or is only counted."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._contact.crossing import first_crossing
from ..._kinematic_map import KinematicMap, rate
from ..event import Event, Step
from ..stepper.scaling import ROUNDINGS, Scale


class Rates(NamedTuple):
    """Derivatives of the values of the events along the motion.

    Attributes
    ----------
    first, second
        First and second derivative (events,). The second is that at constant v̇.
    rounding
        Rounding error of the first (events,).
    """

    first: Float[Array, " events"]
    second: Float[Array, " events"]
    rounding: Float[Array, " events"]


class Outlook(NamedTuple):
    """Values at the end of a step that are positive until an event or a change of the contact mode.

    Attributes
    ----------
    values
        The values there (k,).
    beyond
        Whether the step ends beyond a change, or crosses one.
    aim
        Length of a shorter step to that change [s].
    met
        The values at whose change the step ends (k,).
    grazes
        Whether an open gap touches zero without speed; False for events.
    """

    values: Float[Array, " k"]
    beyond: Bool[Array, ""]
    aim: Float[Array, ""]
    met: Bool[Array, " k"]
    grazes: Bool[Array, ""]


class Surfaces(NamedTuple):
    """The events of a motion, in their order.

    The side of an event is the sign of its value before the next crossing, 0 where the motion rests on the surface.

    Attributes
    ----------
    events
        The events.
    kinematic_map
        The kinematic map of the model, or None.
    rounding
        Rounding errors of their values (events,).
    time_rounding
        Rounding error of the time [s].
    """

    events: tuple[Event, ...]
    kinematic_map: KinematicMap | None
    rounding: Float[Array, " events"]
    time_rounding: Float[Array, ""]

    @classmethod
    def of(
        cls, events: tuple[Event, ...], kinematic_map: KinematicMap | None, scale: Scale, t: Array, q: Array, v: Array
    ) -> "Surfaces":
        """The events of a motion of this ``scale`` that starts at t, q, v."""
        surfaces, eps = cls(events, kinematic_map, jnp.zeros(len(events), q.dtype), t), jnp.finfo(q.dtype).eps
        sizes: Any = scale.of(surfaces.values, t, q, v) if events else surfaces.rounding
        roundings: Any = ROUNDINGS * eps * sizes, 4 * eps * (jnp.abs(t) + scale.t)
        return cls(events, kinematic_map, *jax.lax.stop_gradient(roundings))

    def values(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " events"]:
        """The values of all events."""
        return jnp.concatenate([q[:0], *(jnp.reshape(event(t, q, v), 1).astype(q.dtype) for event in self.events)])

    def rates(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], v_dot: Float[Array, " n"]) -> Rates:
        """The derivatives of the values along the motion with the acceleration ``v_dot``."""
        along = lambda q, v: (jnp.ones_like(t), rate(self.kinematic_map, q, v), v_dot)

        def first(t, q, v):
            return jax.jvp(self.values, (t, q, v), along(q, v))[1]

        slope, second = jax.jvp(first, (t, q, v), along(q, v))
        parts = zip(jax.jacfwd(self.values, (0, 1, 2))(t, q, v), along(q, v), strict=True)
        size: Any = sum(jnp.abs(J).reshape(slope.size, -1) @ jnp.abs(jnp.reshape(x, -1)) for J, x in parts)
        return Rates(slope, second, float(ROUNDINGS * jnp.finfo(q.dtype).eps) * size)

    @property
    def _counted(self) -> np.ndarray:
        return np.array([event.counted for event in self.events], int)

    def counts(self, side: Float[Array, " events"]) -> Bool[Array, " events"]:
        """Whether a crossing from this side counts."""
        return (self._counted == 0) | (side == -self._counted)

    def _is_on(self, value, rates):
        """Whether the motion is on each surface, up to the rounding errors of value and time."""
        return jnp.abs(value) <= self.rounding + jnp.abs(rates.first) * self.time_rounding

    def side(self, value: Float[Array, " events"], rates: Rates) -> Float[Array, " events"]:
        """The side at an instant; on the surface, the side to which the motion leaves."""
        leaves = jnp.where(jnp.abs(rates.first) > rates.rounding, jnp.sign(rates.first), 0)
        return jnp.where(self._is_on(value, rates), leaves, jnp.sign(value))

    def held(self, value: Float[Array, " events"], side: Float[Array, " events"], rates: Rates) -> Bool[Array, ""]:
        """Whether a start is on the surface of an event that ends or resets the motion, and does not leave it.

        It rests there, or crosses it at once in the direction that counts.
        """
        acts = np.array([event.is_end or event.reset is not None for event in self.events], bool)
        return jnp.any(acts & self._is_on(value, rates) & ~((side != 0) & self.counts(side)))

    def flight(self, value: Float[Array, " events"], side: Float[Array, " events"], rates: Rates) -> Float[Array, ""]:
        """Time until a motion that has just left a surface returns to it, at constant acceleration [s]."""
        leaving, falling = side * rates.first, -side * rates.second
        returns = self._is_on(value, rates) & (leaving > 0) & (falling > 0)
        return jnp.min(jnp.where(returns, 2 * leaving / jnp.where(returns, falling, 1), jnp.inf), initial=jnp.inf)

    def outlook(
        self,
        taken: Step,
        t0: Array,
        h: Array,
        cells: Array,
        side: Float[Array, " events"],
        acceleration: Callable[[Array, Array, Array], Float[Array, " n"]],
    ) -> Outlook:
        """Look for a crossing along a step. Without derivatives."""

        def along(x):
            t, q, v = taken.at(x)
            return side * jax.lax.stop_gradient(self.values(t0 + t, q, v))

        no_grazing = jnp.zeros_like(self.rounding)  # only contacts report it
        crossing = first_crossing(along, side != 0, self.rounding, no_grazing, cells)
        at_end = t0 + taken.t1, taken.q1, taken.v1
        value = side * jax.lax.stop_gradient(self.values(*at_end))
        near = ~crossing.found & (side != 0) & (value <= self.rounding)

        def falls():
            rates = jax.lax.stop_gradient(self.rates(*at_end, acceleration(*at_end)))
            return side * rates.first < -rates.rounding

        met = near & jax.lax.cond(jnp.any(near), falls, lambda: jnp.zeros(near.shape, bool))
        return Outlook(value, crossing.found, h * crossing.fraction, met, jnp.asarray(False))

    def reset(
        self, met: Bool[Array, " events"], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
    ) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """q and v after the resets of the events that are ``met``, one after the other."""
        for i, event in enumerate(self.events):
            if event.reset is not None:
                q, v = jax.lax.cond(
                    met[i], lambda t, q, v, event=event: event.after(t, q, v), lambda t, q, v: (q, v), t, q, v
                )
        return q, v

    def resets(self, met: Bool[Array, " events"]) -> Bool[Array, ""]:
        """Whether one of the events that are ``met`` has a reset."""
        return jnp.any(met & np.array([event.reset is not None for event in self.events], bool))

    def ends(self, met: Bool[Array, " events"]) -> Bool[Array, ""]:
        """Whether the motion ends at the events that are ``met``."""
        return jnp.any(met & np.array([event.is_end for event in self.events], bool))
