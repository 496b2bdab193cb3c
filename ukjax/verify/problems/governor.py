"""A flyball governor with stiff springs: a spindle that turns freely, two arms with balls, and a slider.

The arms are rods of 1 m and 0.3 kg, hinged to the spindle at (±offset, 0, 1), with a ball of 5 kg at the end. The
slider moves along the spindle. A spring and a damper connect the middle of each arm with the slider, at (±offset, 0,
0) in its frame. It starts with the arms ``down`` degrees below the horizontal and at rest relative to the spindle,
which turns at ``turn``. The springs make the equations stiff. The value is the height of the slider after 1 s.
Parameters: masses rod, ball, slider [kg], width of the rods, side of the slider, offset, rest length [m], K [N/m],
C [N s/m], down [degrees], turn [rad/s], start_height of the slider [m], g [m/s²].
"""

import jax.numpy as jnp
import numpy as np

from ..._mechanism import Body, Mechanism
from ...joints import Prismatic, Revolute, Strut
from ..base import Motion, tolerances


def build(
    rod=0.3,
    ball=5.0,
    slider=3.0,
    width=0.01,
    side=0.1,
    offset=0.05,
    rest=0.5,
    K=8e5,
    C=4e4,
    down=30.0,
    turn=2 * np.pi,
    start_height=0.5,
    g=9.81,
):
    thick, reach = rod * width**2 / 12, (rod / 2 + ball) / (rod + ball)
    across = rod / 12 + thick + rod * (reach - 0.5) ** 2 + ball * (1 - reach) ** 2
    X, Z = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 1.0])
    cube = slider * side**2 / 6 * jnp.ones(3)
    bodies = {
        "spindle": Body(rod, Z / 2, jnp.stack([rod / 12 + thick, rod / 12 + thick, 2 * thick])),
        "slider": Body(slider, inertia=cube),
    }
    joints = {
        "axis": Revolute("ground", "spindle", axis="z"),
        "guide": Prismatic("spindle", "slider", axis="z"),
    }
    for name, sign in (("right", 1.0), ("left", -1.0)):
        out = sign * offset * X
        bodies[name] = Body(rod + ball, sign * reach * X, jnp.stack([2 * thick, across, across]))
        joints[f"{name}_hinge"] = Revolute("spindle", name, at=Z + out, axis="y")
        joints[f"{name}_spring"] = Strut(name, "slider", at=sign * X / 2, to=out, stiffness=K, rest=rest, damping=C)
    angle = down * jnp.pi / 180
    q0 = jnp.stack([0 * angle, start_height + 0 * angle, angle, -angle])
    return Mechanism(bodies, joints, gravity=-g * Z), q0, turn * jnp.array([1.0, 0.0, 0.0, 0.0])


PROBLEM = Motion(
    title="IFToMM A05: stiff flyball governor",
    statement=__doc__,
    source="Gonzalez, Dopico, Lugris & Cuadrado, Multibody Syst. Dyn. 16 (2006) 65",
    build=build,
    ts=(0.0, 1.0),
    quantity=lambda motion: motion.q[-1, 1:2],
    compared=("height of the slider [m]",),
    reference=(0.5014209223795418,),
    doubt=1e-13,
    evidence="two coordinates and the conserved angular momentum, Radau of SciPy; DOP853 agrees to 5e-14",
    settings=tolerances(1e-6, 1e-9, 1e-12),
)
