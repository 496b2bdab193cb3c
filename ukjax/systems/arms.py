"""Rigid arms in a row that swing in a vertical plane: what pendulum rigs are made of."""

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import MassForce
from .._precision import as_float
from .base import AbstractMechanism, Parameter

SHARP = 100.0  # [s/rad]: how suddenly Coulomb friction turns about, as in the acrobot's source


class AbstractArms(AbstractMechanism):
    """Arms as free bodies, each pinned to the end of the one above::

        o  (x1, y1)       q = (x1, y1, theta1, x2, y2, theta2, …): upper pins [m], angles from hanging straight down
         \\
          \\ theta1        [ m     h e' ] [p̈]   [ h θ̇² e − m g ŷ ]        e  = (sin θ, −cos θ), along the arm
           o (x2, y2)     [ h e'ᵀ  I   ] [θ̈] = [ −g h sin θ      ]        e' = (cos θ, sin θ)
           |
           | theta2       pins:  p₁ = 0,  pᵢ₊₁ = pᵢ + Lᵢ eᵢ

    The equations are linear in the masses ``m`` [kg], the first moments about the upper pin ``h`` [kg m] (mass times
    the distance to the centre) and the inertias about it ``I`` [kg m²]; ``L`` [m] are the distances from pin to pin,
    the last one that to the tip, which is only drawn. The joints rub, each with the moment k ω + c (2/π) arctan(100 ω)
    against its relative rate ω: the non-ideal force. ``k`` [N m s], ``c`` [N m], ``g`` [m/s²].
    """

    m: Parameter
    h: Parameter
    I: Parameter
    L: Parameter
    k: Parameter
    c: Parameter
    g: Parameter

    @property
    def dynamics(self) -> MassForce:
        return MassForce(self.mass_matrix, self.force)

    @property
    def constraints(self) -> tuple[Holonomic]:
        names = (f"pin {i} {axis}" for i in range(1, self.m.size + 1) for axis in "xy")
        return (Holonomic(self.pin_error, name=tuple(names)),)

    def mass_matrix(self, t: ScalarLike, q: Float[Array, " n"]) -> Float[Array, "n n"]:
        """A block for each arm."""
        M = jnp.zeros((q.size, q.size))
        for i, angle in enumerate(q[2::3]):
            mx, my = self.h[i] * jnp.cos(angle), self.h[i] * jnp.sin(angle)
            none = 0 * mx
            block = [[self.m[i], none, mx], [none, self.m[i], my], [mx, my, self.I[i]]]
            M = M.at[3 * i : 3 * i + 3, 3 * i : 3 * i + 3].set(jnp.array(block))
        return M

    def force(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Weight, and what turning costs."""
        angle, rate = q[2::3], v[2::3]
        outward = self.h * rate**2
        parts = outward * jnp.sin(angle), -outward * jnp.cos(angle) - self.m * self.g, -self.g * self.h * jnp.sin(angle)
        return jnp.stack(parts, axis=1).reshape(-1)

    def nonideal(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """The joints' friction c."""
        rate = jnp.diff(v[2::3], prepend=0.0)
        moment = self.k * rate + self.c * (2 / jnp.pi) * jnp.arctan(SHARP * rate)
        return self.between_arms(-moment)

    def between_arms(self, moment: Float[Array, " arms"]) -> Float[Array, " n"]:
        """Moments in the joints as a generalised force: what turns an arm turns the one above the other way."""
        turning = moment - jnp.append(moment[1:], 0.0)
        return jnp.zeros(3 * turning.size).at[2::3].set(turning)

    def pin_error(self, t: ScalarLike, q: Float[Array, " n"]) -> Float[Array, " m"]:
        """Each upper pin from where it belongs."""
        return (q.reshape(-1, 3)[:, :2] - self._pins(q[2::3])[:-1]).reshape(-1)

    def placed(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The pins where the angles put them."""
        angle, rate = q[2::3], v[2::3]
        turned = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1) * (self.L * rate)[:, None]
        speed = jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(turned, axis=0)[:-1]])
        position = self._pins(angle)[:-1]
        fill = lambda place, turn: jnp.concatenate([place, turn[:, None]], axis=1).reshape(-1)
        return fill(position, angle), fill(speed, rate)

    def outline(self, t: ScalarLike, q: Float[Array, " n"]) -> tuple[Float[Array, "points 2"], ...]:
        pins = self._pins(q[2::3])
        return tuple(pins[i : i + 2] for i in range(self.m.size))

    def _pins(self, angle):
        """From the first pin to the tip, (arms + 1, 2)."""
        steps = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1) * self.L[:, None]
        return jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(steps, axis=0)])

    def _at(self, angles, rates) -> tuple[Array, Array]:
        spread = lambda x: jnp.zeros(3 * len(x)).at[2::3].set(as_float(x))
        return self.placed(spread(angles), spread(rates))


def names(arms: int) -> tuple[tuple[str, str], ...]:
    """Coordinates and units of so many arms."""
    each = ("x", "m"), ("y", "m"), ("theta", "rad")
    return tuple((f"{name}{i}", unit) for i in range(1, arms + 1) for name, unit in each)
