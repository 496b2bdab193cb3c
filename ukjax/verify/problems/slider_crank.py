"""A planar slider-crank of two uniform thin rods and a sliding mass, driven by a constant torque on the crank.

Coordinates: the angles of crank and rod, and the position x of the slider, with two equations of the loop, x and y at
the wrist pin. No gravity. It starts at rest, stretched out along x. The values are the angle of the crank and the
position of the slider after 2 s. Parameters: lengths crank and rod [m], crank_mass, rod_mass, slider_mass [kg], torque
[N m].
"""

import jax.numpy as jnp

from ..._constraint import Holonomic
from ..._dynamics import Lagrangian
from ..._system import System
from ..base import Motion, tolerances


def build(crank=0.1, rod=0.3, crank_mass=0.2, rod_mass=0.2, slider_mass=0.4, torque=0.1):
    def kinetic(t, q, v):
        across = jnp.cos(q[0] - q[1]) * crank * rod * v[0] * v[1] / 2
        centre = crank**2 * v[0] ** 2 + rod**2 * v[1] ** 2 / 4 + 2 * across
        turning = crank_mass * crank**2 * v[0] ** 2 / 3 + rod_mass * rod**2 * v[1] ** 2 / 12
        return (turning + rod_mass * centre + slider_mass * v[2] ** 2) / 2

    def loop(t, q):
        x, y = crank * jnp.cos(q[0]) + rod * jnp.cos(q[1]), crank * jnp.sin(q[0]) + rod * jnp.sin(q[1])
        return jnp.stack([x - q[2], y])

    drive = lambda t, q, v: torque * jnp.array([1.0, 0.0, 0.0])
    system = System(Lagrangian(kinetic, lambda t, q: 0.0 * q[0], drive), Holonomic(loop, name=("wrist x", "wrist y")))
    return system, jnp.array([0.0, 0.0, 1.0]) * (crank + rod), jnp.zeros(3)


PROBLEM = Motion(
    title="Slider-crank under a constant torque, through its dead centres",
    statement=__doc__,
    source="Exudyn, example sliderCrank; the motion is longer",
    build=build,
    ts=(0.0, 2.0),
    quantity=lambda motion: motion.q[-1, ::2],
    compared=("crank angle [rad]", "slider [m]"),
    reference=(55.072443795656085, 0.292443450227706),
    doubt=1e-16,
    evidence="the angle of the crank, extrapolated in 34 digits; SciPy agrees to 1e-13",
    settings=tolerances(1e-6, 1e-9, 1e-12),
)
