"""A rattleback: half an ellipsoid that rolls on a plane, with axes of inertia that are not those of its shape.

q = (x, y, z, quaternion): the centre of mass, at h below the centre of the ellipsoid with semi-axes a, b, c, and the
attitude. Constraints: the norm of the quaternion, and a contact point without velocity, three rows. The inertia matrix
per unit mass is [[A, D, 0], [D, B, 0], [0, 0, C]]. It starts level but for half a degree about x, with the angular
velocity ``spin`` about its z axis, and reverses its spin. The values are the angular velocities in the body after 5 s.
Parameters: a, b, c, h [m], A, B, C, D [m²], g [m/s²], spin [rad/s].
"""

import jax.numpy as jnp

from ..._constraint import Holonomic, Nonholonomic
from ..._dynamics import Lagrangian
from ..._rotation import of_quaternion
from ..._system import System
from ...systems.rigid_body import quaternion_matrix
from ..base import Motion, tolerances

LEAN = jnp.pi / 360


def angular_velocity(q, v):
    return 2 * quaternion_matrix(q[3:]) @ v[3:]


def build(a=0.2, b=0.03, c=0.02, h=0.01, A=2e-4, B=16e-4, C=17e-4, D=-0.2e-4, g=9.80665, spin=-5.0):
    squares = jnp.stack([jnp.asarray(x) ** 2 for x in (a, b, c)])
    J = jnp.array([[A, D, 0.0], [D, B, 0.0], [0.0, 0.0, C]])

    def arm(q):
        """From the centre of mass to the contact point, in the body."""
        up = of_quaternion(q[3:])[2]
        return -squares * up / jnp.sqrt(squares @ up**2) + h * jnp.array([0.0, 0.0, 1.0])

    def kinetic(t, q, v):
        omega = angular_velocity(q, v)
        return (v[:3] @ v[:3] + omega @ J @ omega) / 2

    def slip(t, q, v):
        return v[:3] + of_quaternion(q[3:]) @ jnp.cross(angular_velocity(q, v), arm(q))

    system = System(
        Lagrangian(kinetic, lambda t, q: g * q[2]),
        (
            Holonomic(lambda t, q: (q[3:] @ q[3:] - 1) / 2, name="unit"),
            Nonholonomic(slip, name=("contact x", "contact y", "contact z")),
        ),
    )
    u = jnp.array([jnp.cos(LEAN / 2), jnp.sin(LEAN / 2), 0.0, 0.0])
    omega = spin * jnp.array([0.0, 0.0, 1.0])
    q0 = jnp.concatenate([jnp.zeros(3), u])
    R, r = of_quaternion(u), arm(q0)
    q0 = q0.at[2].set(-(R @ r)[2])
    return system, q0, jnp.concatenate([-R @ jnp.cross(omega, r), omega @ quaternion_matrix(u) / 2])


PROBLEM = Motion(
    title="Rattleback that reverses its spin",
    statement=__doc__,
    source="Kane & Levinson, Int. J. Non-Linear Mech. 17 (1982) 175, without damping",
    build=build,
    ts=(0.0, 5.0),
    quantity=lambda motion: angular_velocity(motion.q[-1], motion.v[-1]),
    compared=("omega x [rad/s]", "omega y [rad/s]", "omega z [rad/s]"),
    reference=(-1.7215371458299418, -4.41282526775056, 1.3084364858746464),
    doubt=3e-10,
    evidence="Newton's and Euler's equations, DOP853 of SciPy at three tolerances",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    passes=2e-8,
)
