"""Bricard's loop: five uniform rods of 1 m and 1 kg with square section, and six hinges along the edges of a cube.

The rods lie on the points (0, 0, 0), (1, 0, 0), (1, −1, 0), (1, −1, 1), (0, −1, 1), (0, 0, 1); the hinges there have
the axes y, z, x, y, z, x, the first and the last to the ground. Gravity is along −y. By the count of its joints the
loop could not move; the five angles have five equations of rank 4. It starts at rest. The values are x, y and z of
the end of the second rod after 8 s. Parameters: width of the section [m], g [m/s²].
"""

import jax.numpy as jnp
import numpy as np

from ..._mechanism import Body, Mechanism
from ...joints import Revolute
from ..base import Motion, tolerances

CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1.0)])
AXES = "yzxyzx"


def build(width=0.1, g=9.81):
    edges = np.diff(CORNERS, axis=0)
    bodies, joints = {}, {}
    for i, edge in enumerate(edges):
        along, across = width**2 / 6, (1 + width**2) / 12
        bodies[f"rod{i + 1}"] = Body(1.0, edge / 2, jnp.where(edge != 0, along, across))
        at = {"at": edges[i - 1]} if i else {}
        joints[f"hinge{i}"] = Revolute(f"rod{i}" if i else "ground", f"rod{i + 1}", axis=AXES[i], **at)
    joints["hinge5"] = Revolute("ground", "rod5", at=CORNERS[5], to=edges[4], axis=AXES[5])
    loop = Mechanism(bodies, joints, gravity=-g * jnp.array([0.0, 1.0, 0.0]))
    return loop, jnp.zeros(5), jnp.zeros(5)


def end_of_second_rod(motion):
    a, b = motion.q[-1, 0], motion.q[-1, 1]
    out = 1 + jnp.sin(b)
    return jnp.stack([jnp.cos(a) * out, -jnp.cos(b), -jnp.sin(a) * out])


PROBLEM = Motion(
    title="IFToMM A04: Bricard's loop, mobile against the count of its joints",
    statement=__doc__,
    source="Gonzalez, Dopico, Lugris & Cuadrado, Multibody Syst. Dyn. 16 (2006) 65",
    build=build,
    ts=(0.0, 8.0),
    quantity=end_of_second_rod,
    compared=("x [m]", "y [m]", "z [m]"),
    reference=(-0.7643526022336872, -0.9781537944096761, -0.20788254972929532),
    doubt=1e-12,
    evidence="the angle of the first hinge, DOP853 of SciPy at two tolerances",
    settings=tolerances(1e-6, 1e-9, 1e-12),
)
