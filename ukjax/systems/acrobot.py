"""The torque-driven double pendulum of the DFKI, design A.0 (github.com/dfki-ric-underactuated-lab/double_pendulum)."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._precision import Numbers, as_float
from .arms import AbstractArms, names
from .base import Parameter, parameter

TIMES = np.linspace(0.0, 2.0, 201)
TORQUE = np.stack([np.sin(np.pi * TIMES), 0.4 * np.sin(3 * np.pi * TIMES)], axis=1)


class Acrobot(AbstractArms):
    """Two arms with a motor in each joint: ``AbstractArms`` with the numbers of design A.0, model 2.0.

    The source has the Coulomb friction 0.093 arctan(100 ω) and 0.078 arctan(100 ω) [N m]; ``c`` is π/2 times these
    numbers. The rotors of the motors, of inertia ``J`` [kg m²], turn ``gear`` times as fast as their joints. The second
    one is on the first arm: its rate is gear (θ̇2 − θ̇1) − θ̇1. The torques at the joints are a table: ``torque`` [N m]
    with a row for each of ``times`` [s], interpolated linearly. By default they are two sine waves, and the arms start
    at rest.
    """

    m: Parameter = parameter((0.5593806, 0.6043459))
    h: Parameter = parameter((0.1678142, 0.1110648))
    I: Parameter = parameter((0.05347081, 0.02392375))
    L: Parameter = parameter((0.3, 0.2))
    k: Parameter = parameter((0.001, 0.001))
    c: Parameter = parameter((0.1460841, 0.1225221))
    g: Parameter = parameter(9.81)
    J: Parameter = parameter(7.659298e-5)
    gear: Parameter = parameter(6.0)
    times: Parameter = parameter(TIMES)
    torque: Parameter = parameter(TORQUE)

    end: ClassVar[float] = 2.0
    coordinates: ClassVar[Any] = names(2)
    record: ClassVar[tuple[str, ...]] = ("tau1", "tau2")

    def start(self) -> tuple[Array, Array]:
        return self._at((0.0, 0.0), (0.0, 0.0))

    def mass_matrix(self, t: ScalarLike, q: Float[Array, " 6"]) -> Float[Array, "6 6"]:
        """Return M(q) of the arms and of the rotors, whose rates are B θ̇."""
        zero = 0 * self.gear
        B = jnp.array([[self.gear, zero], [-self.gear - 1, self.gear]])
        angles = jnp.array([2, 5])
        return super().mass_matrix(t, q).at[angles[:, None], angles].add(self.J * B.T @ B)

    def force(self, t: ScalarLike, q: Float[Array, " 6"], v: Float[Array, " 6"]) -> Float[Array, " 6"]:
        """Return weight, centrifugal forces and motor torques."""
        torque = jnp.stack([jnp.interp(t, self.times, column) for column in self.torque.T])
        return super().force(t, q, v) + self.between_arms(torque)

    def recorded(self, t: Numbers, inputs: Numbers) -> dict[str, Array]:
        return {"times": as_float(t), "torque": as_float(inputs)}
