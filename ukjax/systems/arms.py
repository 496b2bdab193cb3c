"""Serial chains of rigid arms that swing in a vertical plane, such as pendulum test rigs."""

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import MassForce
from .._precision import as_float
from .base import AbstractMechanism, Parameter

ARCTAN_SLOPE = 100.0  # [s/rad]: slope of the smoothed Coulomb friction, as in the source of the acrobot


class AbstractArms(AbstractMechanism):
    """Arms as free bodies, each pinned to the end of the one above::

        o  (x1, y1)       q = (x1, y1, theta1, x2, y2, theta2, …): upper pins [m], angles from hanging straight down
         \\
          \\ theta1        [ m     h e' ] [p̈]   [ h θ̇² e − m g ŷ ]        e  = (sin θ, −cos θ), along the arm
           o (x2, y2)     [ h e'ᵀ  I   ] [θ̈] = [ −g h sin θ      ]        e' = (cos θ, sin θ)
           |
           | theta2       pins:  p₁ = 0,  pᵢ₊₁ = pᵢ + Lᵢ eᵢ

    The equations are linear in the masses ``m`` [kg], the first moments ``h`` [kg m] (mass times the distance from the
    upper pin to the centre) and the inertias about the upper pins ``I`` [kg m²]. ``L`` [m] are the distances from pin
    to pin; the last one is that to the tip, which is only drawn. The friction moment of each joint is
    k ω + c (2/π) arctan(100 ω), against its relative rate ω; it is the non-ideal force. ``k`` [N m s], ``c`` [N m],
    ``g`` [m/s²].
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
        """Return M(q), with a 3 × 3 block per arm."""
        M = jnp.zeros((q.size, q.size))
        for i, angle in enumerate(q[2::3]):
            mx, my = self.h[i] * jnp.cos(angle), self.h[i] * jnp.sin(angle)
            zero = 0 * mx
            block = [[self.m[i], zero, mx], [zero, self.m[i], my], [mx, my, self.I[i]]]
            M = M.at[3 * i : 3 * i + 3, 3 * i : 3 * i + 3].set(jnp.array(block))
        return M

    def force(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return weight and centrifugal forces."""
        angle, rate = q[2::3], v[2::3]
        centrifugal = self.h * rate**2
        entries = (
            centrifugal * jnp.sin(angle),
            -centrifugal * jnp.cos(angle) - self.m * self.g,
            -self.g * self.h * jnp.sin(angle),
        )
        return jnp.stack(entries, axis=1).reshape(-1)

    def nonideal(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the friction of the joints."""
        rate = jnp.diff(v[2::3], prepend=0.0)
        moment = self.k * rate + self.c * (2 / jnp.pi) * jnp.arctan(ARCTAN_SLOPE * rate)
        return self.between_arms(-moment)

    def between_arms(self, moment: Float[Array, " arms"]) -> Float[Array, " n"]:
        """Convert joint moments to a generalised force: each acts on its arm and, reversed, on the arm above."""
        generalised_force = moment - jnp.append(moment[1:], 0.0)
        return jnp.zeros(3 * generalised_force.size).at[2::3].set(generalised_force)

    def pin_error(self, t: ScalarLike, q: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return the distance of each upper pin from the end of the arm above, x and y [m]."""
        return (q.reshape(-1, 3)[:, :2] - self._pins(q[2::3])[:-1]).reshape(-1)

    def placed(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Recompute the pins from the angles and rates."""
        angle, rate = q[2::3], v[2::3]
        pin_velocity = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1) * (self.L * rate)[:, None]
        speed = jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(pin_velocity, axis=0)[:-1]])
        position = self._pins(angle)[:-1]
        assemble = lambda place, turn: jnp.concatenate([place, turn[:, None]], axis=1).reshape(-1)
        return assemble(position, angle), assemble(speed, rate)

    def outline(self, t: ScalarLike, q: Float[Array, " n"]) -> tuple[Float[Array, "points 2"], ...]:
        pins = self._pins(q[2::3])
        return tuple(pins[i : i + 2] for i in range(self.m.size))

    def _pins(self, angle):
        """Return the pins (arms + 1, 2) [m], from the first pin to the tip."""
        steps = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1) * self.L[:, None]
        return jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(steps, axis=0)])

    def _at(self, angles, rates) -> tuple[Array, Array]:
        to_coordinates = lambda x: jnp.zeros(3 * len(x)).at[2::3].set(as_float(x))
        return self.placed(to_coordinates(angles), to_coordinates(rates))


def names(arms: int) -> tuple[tuple[str, str], ...]:
    """Return names and units of the coordinates of a number of arms."""
    fields = ("x", "m"), ("y", "m"), ("theta", "rad")
    return tuple((f"{name}{i}", unit) for i in range(1, arms + 1) for name, unit in fields)
