"""The robot swarm of Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018), section 8.2."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._check import as_integer
from .._constraint import Nonholonomic
from .._dynamics import MassForce
from ..control import Servo
from .base import AbstractMechanism, Parameter, parameter


class Swarm(AbstractMechanism):
    """Robots on a plane, each controlled to move down the gradient of an interaction potential with the others.

    They attract each other far apart and repel each other near; the two forces of each robot enforce the rule (61)::

        q̇ⁱ = −Σⱼ ∇ G(|qⁱ − qʲ|),      G(d) = d²/2 − near d + 50            (62)

              o1        o2            q = (x1, y1, ..., xN, yN) [m]
                 \\    /              mᵢ q̈ⁱ = uⁱ
            o5 -- (centre)
                 /    \\              β = q̇ + ∇ΣG,   β̇ = −P⁻¹ β
              o4        o3

    Without feedback, β would keep its value at the start, where the robots are at rest and β is large. The feedback
    term of eq. 72, with P [s], makes it decay as exp(−t/P). ``agents`` is the number of robots, ``near`` [m] the
    distance at which two robots alone are in equilibrium. The paper's table of starts is not available: here the robots
    start on a spiral with radius ``spread`` [m].
    """

    m: Parameter = parameter(2.0)
    near: Parameter = parameter(0.5)
    P: Parameter = parameter(0.5)
    spread: Parameter = parameter(5.0)
    agents: int = eqx.field(default=5, static=True)

    end: ClassVar[float] = 5.0
    constraints: ClassVar[tuple[()]] = ()

    def __check_init__(self):
        as_integer("agents", self.agents, 1)

    @property
    def coordinates(self) -> Any:
        return tuple((f"{axis}{i + 1}", "m") for i in range(self.agents) for axis in "xy")

    @property
    def dynamics(self) -> MassForce:
        n = 2 * self.agents
        return MassForce(self.m * jnp.eye(n), jnp.zeros(n))

    @property
    def control(self) -> Servo:
        names = tuple(f"robot {i + 1} {axis}" for i in range(self.agents) for axis in "xy")
        inputs = tuple((f"u{axis}{i + 1}", "N") for i in range(self.agents) for axis in "xy")
        task = Nonholonomic(self.following_error, name=names)
        return Servo(np.eye(2 * self.agents), task, P=self.P, projected=False, inputs=inputs)

    def following_error(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return β of all robots, eq. 65."""
        return v + jax.grad(self.interaction)(q)

    def interaction(self, q: Float[Array, " n"]) -> Float[Array, ""]:
        """Return the sum of G over all pairs, whose gradient with respect to qⁱ is that of eq. 61."""
        positions = q.reshape(-1, 2)
        pairs = jnp.triu_indices(self.agents, 1)
        square = jnp.sum((positions[pairs[0]] - positions[pairs[1]]) ** 2, axis=1)
        return jnp.sum(square / 2 - self.near * jnp.sqrt(square) + 50)

    def start(self) -> tuple[Array, Array]:
        turn = (
            jnp.arange(self.agents) * jnp.pi * (3 - jnp.sqrt(5.0))
        )  # the golden angle: no two robots are close together
        radius = self.spread * jnp.sqrt((jnp.arange(self.agents) + 0.5) / self.agents)
        q = (radius[:, None] * jnp.stack([jnp.cos(turn), jnp.sin(turn)], axis=1)).reshape(-1)
        return q, jnp.zeros_like(q)

    def outline(self, t: ScalarLike, q: Float[Array, " n"]) -> tuple[Float[Array, "points 2"], ...]:
        return tuple(q.reshape(-1, 1, 2))
