"""The woodpecker toy, which hammers its way down a pole: Leine, van Campen & Glocker, J. Vib. Control 9 (2003) 25."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Unilateral
from .._dynamics import MassForce
from .base import AbstractMechanism, Parameter, parameter


class Woodpecker(AbstractMechanism):
    """A woodpecker on a spring, on a sleeve with play on a pole. It falls, jams and pecks, about seven times a second::

         pole
          ║ _
         [║]~~~~( )     sleeve at height y, turned by phi_M; spring; woodpecker turned by phi_S
         [║]   beak      angles are small: all geometry is linear in them
          ║

    M = [[m_S + m_M, m_S l_M, m_S l_G], [·, J_M + m_S l_M², m_S l_M l_G], [·, ·, J_S + m_S l_G²]], with the moments
    ±c (phi_M − phi_S) of the spring and the weights. Three contacts with friction ``mu``: the beak on the pole,
    l_M + l_G − l_S − r_0 − h_S phi_S ≥ 0, and the lower and upper edge of the sleeve, r_M − r_0 ± h_M phi_M ≥ 0. The
    beak has the restitution ``e``, the sleeve none. ``m_M``, ``m_S`` [kg], ``J_M``, ``J_S`` [kg m²], ``c`` [N m/rad],
    ``g`` [m/s²], lengths [m]. The numbers are those of an example of the program Siconos; the start is
    close to the limit cycle, on the lower edge.
    """

    m_M: Parameter = parameter(0.0003)
    J_M: Parameter = parameter(5e-9)
    m_S: Parameter = parameter(0.0045)
    J_S: Parameter = parameter(7e-7)
    c: Parameter = parameter(0.0056)
    g: Parameter = parameter(9.81)
    r_0: Parameter = parameter(0.0025)
    r_M: Parameter = parameter(0.0031)
    h_M: Parameter = parameter(0.0058)
    l_M: Parameter = parameter(0.010)
    l_G: Parameter = parameter(0.015)
    h_S: Parameter = parameter(0.02)
    l_S: Parameter = parameter(0.0201)
    e: Parameter = parameter(0.5)
    mu: Parameter = parameter(0.3)

    end: ClassVar[float] = 0.6
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("y", "m"), ("phi_M", "rad"), ("phi_S", "rad"))

    @property
    def dynamics(self) -> MassForce:
        arms = jnp.stack([jnp.ones_like(self.l_M), self.l_M, self.l_G])
        M = self.m_S * jnp.outer(arms, arms) + jnp.diag(jnp.stack([self.m_M, self.J_M, self.J_S]))
        weight = -self.g * (self.m_S * arms + self.m_M * jnp.array([1.0, 0, 0]))
        spring = self.c * jnp.array([[0.0, 0, 0], [0, 1, -1], [0, -1, 1]])
        return MassForce(M, lambda t, q, v: weight - spring @ q)

    @property
    def nonsmooth(self) -> tuple[Unilateral]:
        play = self.r_M - self.r_0
        beak = self.l_M + self.l_G - self.l_S - self.r_0
        gap = lambda t, q: jnp.stack([beak - self.h_S * q[2], play + self.h_M * q[1], play - self.h_M * q[1]])
        slip = lambda t, q, v: (
            v[0] + jnp.stack([self.l_M * v[1] + (self.l_G - self.l_S) * v[2], self.r_M * v[1], self.r_M * v[1]])
        )
        restitution = jnp.stack([self.e, 0 * self.e, 0 * self.e])
        return (Unilateral(gap, restitution, self.mu, slip, name=("beak", "lower edge", "upper edge")),)

    def start(self) -> tuple[Array, Array]:
        jammed = -(self.r_M - self.r_0) / self.h_M  # on the lower edge
        return jnp.stack([0 * jammed, jammed, 0 * jammed - 0.2788]), jnp.array([-0.3411, 0.0, -7.4583])

    def outline(self, t: ScalarLike, q: Float[Array, " 3"]) -> tuple[Float[Array, "points 2"], ...]:
        y, phi_M, phi_S = q
        turned = lambda phi, x: x @ jnp.stack([jnp.stack([jnp.ones_like(phi), phi]), jnp.stack([-phi, 1 + 0 * phi])])
        at = jnp.stack([0 * y, y])
        r, h = self.r_M, self.h_M
        sleeve = at + turned(phi_M, jnp.stack([-r, -h, r, -h, r, h, -r, h, -r, -h]).reshape(5, 2))
        arm = at + turned(phi_M, jnp.stack([r, 0 * r, self.l_M, 0 * r]).reshape(2, 2))
        body = jnp.stack([0 * r, 0 * r, self.l_G, 0 * r, self.l_G, self.h_S, self.l_G - self.l_S, self.h_S])
        bird = arm[1] + turned(phi_S, body.reshape(4, 2))
        pole = jnp.stack([jnp.stack([x, z]) for x, z in ((self.r_0, 0.03), (self.r_0, -0.1), (-self.r_0, -0.1))])
        pole = jnp.concatenate([pole, jnp.stack([-self.r_0, 0.03 + 0 * self.r_0])[None], pole[:1]])
        return pole, sleeve, arm, bird

    def contact_points(self, t: ScalarLike, q: Float[Array, " 3"]) -> Float[Array, "3 2"]:
        height = jnp.stack([self.h_S, -self.h_M, self.h_M])
        side = self.r_0 * jnp.array([1.0, 1.0, 1.0])
        return jnp.stack([side, q[0] + height], axis=1)
