"""A mass on a spring with dry friction, which sticks."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Coulomb
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class FrictionOscillator(AbstractMechanism):
    """A mass on a spring that slides on a rough table, and stops for good::

        |   k    .---.
        |-/\\/\\/--| m |--> x         m ẍ = −k x + f,    |f| ≤ limit,    f = −limit sign(ẋ) where it slides
        |        '---'
        ================

    Each half oscillation is a cosine around −limit/k or limit/k and is shorter by 2 limit/k than the last. The mass
    sticks at the first turn with |k x| ≤ limit: at x = 0.6821789367 m from t = arctan(6/13) + 7π s on. ``m`` [kg],
    ``k`` [N/m], ``limit`` [N]; ``x`` [m] and ``speed`` > 0 [m/s] at the start. The numbers are those of an example of
    the program Siconos.
    """

    m: Parameter = parameter(1.0)
    k: Parameter = parameter(1.0)
    limit: Parameter = parameter(1.0)
    x: Parameter = parameter(12.0)
    speed: Parameter = parameter(6.0)

    end: ClassVar[float] = 30.0
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("x", "m"),)

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(lambda t, q, v: self.m * v @ v / 2, lambda t, q: self.k * q @ q / 2)

    @property
    def nonsmooth(self) -> tuple[Coulomb]:
        return (Coulomb(lambda t, q, v: v, self.limit, name="table"),)

    def start(self) -> tuple[Array, Array]:
        return self.x[None], self.speed[None]

    def reference(self, t: ScalarLike) -> Float[Array, " 1"]:
        """Half cosines up to the first turn at which the friction holds."""
        rate, reach = jnp.sqrt(self.k / self.m), self.limit / self.k
        amplitude = jnp.hypot(self.x + reach, self.speed / rate)  # around −reach, until the first turn
        first = jnp.arctan2(self.speed / rate, self.x + reach) / rate
        last = jnp.maximum(jnp.ceil((amplitude - 2 * reach) / (2 * reach)), 0)  # the turn at which it sticks
        half = jnp.pi / rate
        turn = jnp.clip(jnp.floor((t - first) / half), 0, last)
        size = amplitude - reach - 2 * reach * turn  # |x| at this turn
        sign = jnp.where(turn % 2 == 0, 1.0, -1.0)
        since = t - first - turn * half
        sliding = sign * (reach + (size - reach) * jnp.cos(rate * since))
        later = jnp.where(turn == last, sign * size, sliding)
        return jnp.where(t < first, amplitude * jnp.cos(rate * (t - first)) - reach, later)[None]

    def outline(self, t: ScalarLike, q: Float[Array, " 1"]) -> tuple[Float[Array, "points 2"], ...]:
        side = 0.1 * jnp.hypot(self.x, self.speed * jnp.sqrt(self.m / self.k))
        wall = -1.5 * jnp.hypot(self.x, self.speed * jnp.sqrt(self.m / self.k))
        corners = side * jnp.array([[-1.0, 0], [1, 0], [1, 2], [-1, 2], [-1, 0]])
        box = jnp.stack([q[0], 0.0 * q[0]]) + corners
        x = jnp.linspace(wall, q[0] - side, 14)
        y = side * (1 + 0.5 * jnp.array([0, 0, *([1, -1] * 5), 0, 0]))
        return jnp.stack([x, y], axis=1), box
