"""Andrews' squeezing mechanism, as in the test set for initial value problem solvers of Mazzia & Magherini (2008)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter

# Body 2 is hinged to the far joint of body 1, 4 to that of 5, 6 to that of 7; its angle is relative to that body.
CARRIED_BY = np.zeros((7, 7), int)
CARRIED_BY[[1, 3, 5], [0, 4, 6]] = 1


class AndrewsSqueezer(AbstractMechanism):
    """Seven bodies in three loops that meet at E: a motor at O turns the crank, which squeezes a spring from C to D::

                           C           q = (beta, Theta, gamma, Phi, delta, Omega, epsilon)
                  B       /
                   o-----o D           body   1  2      3  4      5  6      7
                    \\ 3 /              angle  β  β + Θ  γ  Φ + δ  δ  Ω + ε  ε
            G o      \\ /
           5 / \\ 4    V                T = Σ m |ċ|²/2 + I ω²/2,    c the centres of mass
            /   \\____ E    2           V = c0 (|CD| − l0)²/2,      Q_β = mom
         A o     _____o---------o F
            \\   / 6      O o--/ 1      loops: E by 1-2 = E by 3 = E by 5-4 = E by 7-6
           7 \\ /
            H o

    A, B, C and O are fixed. No gravity. T + V − mom β is conserved. Masses ``m`` [kg] and inertias about the centres
    ``I`` [kg m²], an entry per body; lengths and places [m] as in the source, ``c0`` [N/m], ``mom`` [N m]. From
    Schiehlen, Multibody Systems Handbook (1990), by Hairer & Wanner, Solving Ordinary Differential Equations II,
    section VII.7.
    """

    m: Parameter = parameter((0.04325, 0.00365, 0.02373, 0.00706, 0.07050, 0.00706, 0.05498))
    I: Parameter = parameter((2.194e-6, 4.410e-7, 5.255e-6, 5.667e-7, 1.169e-5, 5.667e-7, 1.912e-5))
    xa: Parameter = parameter(-0.06934)
    ya: Parameter = parameter(-0.00227)
    xb: Parameter = parameter(-0.03635)
    yb: Parameter = parameter(0.03273)
    xc: Parameter = parameter(0.014)
    yc: Parameter = parameter(0.072)
    c0: Parameter = parameter(4530.0)
    l0: Parameter = parameter(0.07785)
    d: Parameter = parameter(0.028)
    da: Parameter = parameter(0.0115)
    e: Parameter = parameter(0.02)
    ea: Parameter = parameter(0.01421)
    rr: Parameter = parameter(0.007)
    ra: Parameter = parameter(0.00092)
    ss: Parameter = parameter(0.035)
    sa: Parameter = parameter(0.01874)
    sb: Parameter = parameter(0.01043)
    sc: Parameter = parameter(0.018)
    sd: Parameter = parameter(0.02)
    ta: Parameter = parameter(0.02308)
    tb: Parameter = parameter(0.00916)
    u: Parameter = parameter(0.04)
    ua: Parameter = parameter(0.01228)
    ub: Parameter = parameter(0.00449)
    zf: Parameter = parameter(0.02)
    zt: Parameter = parameter(0.04)
    fa: Parameter = parameter(0.01421)
    mom: Parameter = parameter(0.033)

    end: ClassVar[float] = 0.03
    coordinates: ClassVar[Any] = tuple(
        (name, "rad") for name in ("beta", "Theta", "gamma", "Phi", "delta", "Omega", "epsilon")
    )

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic, self.potential, lambda t, q, v: jnp.zeros_like(q).at[0].set(self.mom))

    @property
    def constraints(self) -> tuple[Holonomic]:
        names = tuple(f"E by {bodies} {axis}" for bodies in ("3", "5-4", "7-6") for axis in "xy")
        return (Holonomic(self.loop_error, name=names),)

    def kinetic(self, t: ScalarLike, q: Float[Array, " 7"], v: Float[Array, " 7"]) -> Array:
        rates, spins = jax.jvp(self.centres, (q,), (v,))[1], self.angles(v)
        return (self.m @ jnp.sum(rates**2, axis=1) + self.I @ spins**2) / 2

    def potential(self, t: ScalarLike, q: Float[Array, " 7"]) -> Array:
        spring = self.spring_end(q) - jnp.stack([self.xc, self.yc])
        return self.c0 * (jnp.sqrt(spring @ spring) - self.l0) ** 2 / 2

    def angles(self, q: Float[Array, " 7"]) -> Float[Array, " 7"]:
        """Return the absolute angles of the bodies [rad]."""
        return q + CARRIED_BY @ q

    def joints(self, q: Float[Array, " 7"]) -> Float[Array, "7 2"]:
        """Return the far joint of each body [m]: F, E, E, E, G, E, H."""
        reach = self._reach(q)
        return self._roots() + CARRIED_BY @ reach + reach

    def centres(self, q: Float[Array, " 7"]) -> Float[Array, "7 2"]:
        """Return the centre of mass of each body [m]."""
        along = [self.ra, -self.da, self.sb, 0 * self.e, self.ta, self.zf - self.fa, -self.ub]
        across = [0 * self.ra, 0 * self.da, -self.sa, self.ea - self.e, self.tb, 0 * self.zf, -self.ua]
        offsets = _turned(self.angles(q), jnp.stack(along), jnp.stack(across))
        return self._roots() + CARRIED_BY @ self._reach(q) + offsets

    def spring_end(self, q: Float[Array, " 7"]) -> Float[Array, " 2"]:
        """Return the end D of the spring [m]."""
        return jnp.stack([self.xb, self.yb]) + _turned(q[2], self.sd, -self.sc)

    def loop_error(self, t: ScalarLike, q: Float[Array, " 7"]) -> Float[Array, " 6"]:
        """Return the distance of E, computed by bodies 1 and 2, from E computed by the three other chains [m]."""
        joints = self.joints(q)
        return (joints[1] - joints[jnp.array([2, 3, 5])]).reshape(-1)

    def start(self) -> tuple[Array, Array]:
        """Return the start of the source: at rest, consistent to all digits."""
        q = [
            -0.0617138900142764496358948458001,
            0.0,
            0.455279819163070380255912382449,
            0.222668390165885884674473185609,
            0.487364979543842550225598953530,
            -0.222668390165885884674473185609,
            1.23054744454982119249735015568,
        ]
        return jnp.array(q), jnp.zeros(7)

    def outline(self, t: ScalarLike, q: Float[Array, " 7"]) -> tuple[Float[Array, "points 2"], ...]:
        F, E, _, _, G, _, H = self.joints(q)
        O, _, B, A, *_ = self._roots()
        lines = (
            [O, F, E],
            [B, E, self.spring_end(q), B],
            [E, G, A, H, E],
            [jnp.stack([self.xc, self.yc]), self.spring_end(q)],
        )
        return tuple(jnp.stack(line) for line in lines)

    def _roots(self):
        """Return the ground joint of each body, or of the body it is hinged to [m]."""
        O, A, B = jnp.zeros(2), jnp.stack([self.xa, self.ya]), jnp.stack([self.xb, self.yb])
        return jnp.stack([O, O, B, A, A, A, A])

    def _reach(self, q):
        """Return the vector from the near joint of each body to its far joint [m]."""
        zero = 0 * self.rr
        along = jnp.stack([self.rr, -self.d, zero, zero, self.zt, self.zf, zero])
        across = jnp.stack([zero, zero, -self.ss, -self.e, zero, zero, -self.u])
        return _turned(self.angles(q), along, across)


def _turned(angle, along, across):
    """Return vectors in the plane from their components along and across bodies at these angles."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([along * c - across * s, along * s + across * c], axis=-1)
