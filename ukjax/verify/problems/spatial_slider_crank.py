"""A slider-crank in space: a crank, a rod between a ball and a universal joint, and a slider, with gravity along −z.

The crank turns about an axis along x through (0, aside, above); its angle is 0 where it points along z. A ball at its
end carries the rod, whose other end is a universal joint of the slider: it turns about the x axis of the slider and
about an axis of the rod that is normal to both. The slider moves along x. The centres of mass of crank and rod are in
their middles. Coordinates of joints, with three equations of the ball. The values are the angle of the crank and the
position of the slider after 5 s. Parameters: crank, rod, aside, above [m]; crank_mass, rod_mass, slider_mass [kg];
crank_inertia about its axis, rod_along and rod_across [kg m²]; speed at the start [rad/s]; g [m/s²].
"""

import jax.numpy as jnp

from ..._mechanism import Body, Mechanism
from ...joints import Prismatic, Revolute, Spherical, Universal
from ..base import Motion, tolerances


def build(
    crank=0.08,
    rod=0.3,
    crank_mass=0.12,
    rod_mass=0.5,
    slider_mass=2.0,
    crank_inertia=1e-4,
    rod_along=4e-4,
    rod_across=4e-3,
    aside=0.1,
    above=0.12,
    speed=6.0,
    g=9.81,
):
    along = lambda axis, length: length * jnp.array([1.0 * (axis == i) for i in range(3)])
    bodies = {
        "crank": Body(crank_mass, along(2, crank / 2), crank_inertia * jnp.array([1.0, 1.0, 0.0])),
        "slider": Body(slider_mass),
        "rod": Body(rod_mass, along(0, -rod / 2), jnp.stack([jnp.asarray(rod_along), *[jnp.asarray(rod_across)] * 2])),
    }
    joints = {
        "axle": Revolute("ground", "crank", at=jnp.stack([0.0, jnp.asarray(aside), jnp.asarray(above)]), axis="x"),
        "guide": Prismatic("ground", "slider", axis="x"),
        "cross": Universal("slider", "rod", axis="x", second="z"),
        "ball": Spherical("crank", "rod", at=along(2, crank), to=along(0, -rod)),
    }
    height = above + crank
    out = jnp.sqrt(height**2 + aside**2)
    x = jnp.sqrt(rod**2 - out**2)
    q0 = jnp.stack([0.0, x, jnp.arctan2(height, aside), -jnp.arcsin(out / rod)])
    # The ball moves with −crank speed along y; the rod keeps its length, and turns about x and about the cross.
    of_out, of_turn = -crank * speed * aside / out, crank * speed * height / out**2
    v0 = jnp.stack([jnp.asarray(speed), -of_out * out / x, of_turn, -of_out / x])
    mechanism = Mechanism(bodies, joints, gravity=-g * jnp.array([0.0, 0.0, 1.0]))
    return mechanism, q0, v0


PROBLEM = Motion(
    title="Slider-crank in space: a loop with a ball and a universal joint",
    statement=__doc__,
    source="Haug, Computer-Aided Kinematics and Dynamics of Mechanical Systems (1989), 12.2; IFToMM library",
    build=build,
    ts=(0.0, 5.0),
    quantity=lambda motion: motion.q[-1, :2],
    compared=("crank [rad]", "slider [m]"),
    reference=(54.333332168313165, 0.24071957372961532),
    doubt=1e-16,
    evidence="the angle of the crank, extrapolated in 34 digits; SciPy agrees to 1e-12; the energy is that published",
    settings=tolerances(1e-6, 1e-9, 1e-12),
)
