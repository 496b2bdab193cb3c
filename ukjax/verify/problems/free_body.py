"""A rigid body without torque, turning about its intermediate axis and nearly tumbling; attitude by a unit quaternion.

The 4 × 4 mass matrix of the quaternion is singular; the constraint is its norm. The body starts unturned with the
angular velocity (first, 2, 0) rad/s about its axes of inertia. The values are the quaternion after 10 s. Parameters:
inertias J1, J2, J3 [kg m²], first [rad/s].
"""

import jax.numpy as jnp

from ...systems.rigid_body import RigidBody
from ..base import Derivative, Motion, tolerances


def build(J1=1.0, J2=2.0, J3=3.0, first=0.05):
    J1, J2, J3, first = map(jnp.asarray, (J1, J2, J3, first))
    body = RigidBody(J=jnp.stack([J1, J2, J3]), omega=jnp.stack([first, 2.0 + 0 * first, 0 * first]))
    return body, *body.start()


PROBLEM = Motion(
    title="Free rigid body about its intermediate axis, in unit quaternions",
    statement=__doc__,
    source="Udwadia & Schutte, J. Appl. Mech. 77 (2010) 044505; Jacobi (1849)",
    build=build,
    ts=(0.0, 10.0),
    quantity=lambda motion: motion.q[-1],
    compared=("u0", "u1", "u2", "u3"),
    reference=(0.02157601493275925, -0.9983459739865957, -0.0060667729875601975, 0.05294323441096265),
    doubt=1e-16,
    evidence="Euler's equations, extrapolated in 34 digits; SciPy agrees to 2e-13",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("first", (1.3863265917794096, 0.03573439880389309, -0.5453809649921473, 0.04637395984126088)),
)
