"""Velocities of points of bodies, and the centre of mass and the momentum of a whole mechanism."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._rotation import cross
from .dynamics import BodyInertias, TreeDynamics
from .kinematics import moving, placed
from .modal import deforming, rigid_parts


class Momentum(NamedTuple):
    """Momentum of a mechanism along the axes of space.

    Attributes
    ----------
    linear : (3,)
        Linear momentum [kg m/s].
    angular : (3,)
        Angular momentum about the centre of mass [kg m²/s].
    """

    linear: Float[Array, " 3"]
    angular: Float[Array, " 3"]


def jacobian(
    dynamics: TreeDynamics, index: int, point: Float[Array, " 3"], t: Array, q: Float[Array, " nq"]
) -> Float[Array, "6 n"]:
    """Derivative, with respect to v, of the velocity of a point and of the angular velocity of body ``index``."""

    def velocity(v):
        motion = moving(dynamics.joints, dynamics.tree, t, q, v).bodies
        arm = motion.placed.d[index] + motion.placed.R[index] @ point
        linear = motion.drift[index] + motion.velocity[index] + cross(motion.omega[index], arm)
        return jnp.concatenate([linear, motion.omega[index]])

    return jax.jacfwd(velocity)(jnp.zeros(dynamics.tree.n, q.dtype))  # linear in v, but for prescribed motions


def centre_of_mass(dynamics: TreeDynamics, t: Array, q: Float[Array, " nq"]) -> Float[Array, " 3"]:
    """Σ m c / Σ m over the centres c of all bodies [m]."""
    positions = placed(dynamics.joints, dynamics.tree, t, q)
    masses, centres, _ = zip(*rigid_parts(dynamics.bodies, dynamics.tree, q), strict=True)
    mass, centres = jnp.stack(masses), jnp.stack(centres)
    return mass @ (positions.p[:-1] + jnp.einsum("lij,lj->li", positions.R[:-1], centres)) / jnp.sum(mass)


def momentum(dynamics: TreeDynamics, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Momentum:
    """Σ m ċ, and Σ I ω + (c − c₀) × m ċ about the centre of mass c₀."""
    motion = moving(dynamics.joints, dynamics.tree, t, q, v).bodies
    mass, centre, inertia, _ = BodyInertias.of(dynamics.bodies, dynamics.tree, motion, q)
    omega, at = motion.omega[:-1], motion.placed.base[:-1] + centre
    rates = motion.drift[:-1] + motion.velocity[:-1] + cross(omega, centre)
    linear = mass[:, None] * rates
    middle = mass @ at / jnp.sum(mass)
    angular = jnp.einsum("lij,lj->li", inertia, omega) + cross(at - middle, linear)
    total, turning = jnp.sum(linear, axis=0), jnp.sum(angular, axis=0)
    for each in deforming(dynamics.bodies, dynamics.tree, motion, q, v):
        of_modes = each.rate @ each.momenta()
        total = total + of_modes[3:]
        turning = turning + of_modes[:3] + cross(motion.placed.base[each.link] - middle, of_modes[3:])
    return Momentum(total, turning)
