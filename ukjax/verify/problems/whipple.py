"""Whipple's bicycle, upright at constant speed: eigenvalues of the nonlinear nonholonomic model.

Four bodies, nine coordinates, two contacts and four rolling conditions. The axes of space are x forward, y to the right
and z down; the ground is z = 0. In the reference pose, the bicycle stands upright at the origin and steers straight::

                    steering axis
        B body        \\  |        q = (x, y, z, yaw, roll, pitch, steer, rear, front): the centre of the rear wheel,
          o            \\ o H      Rz(yaw) Rx(roll) Ry(pitch) of the frame, and the turns of steering axis and wheels
         / \\____________\\
       (R)               (F)       rolling: the lowest points of both wheels touch the ground and do not slip
    -----+--------------+-+-----
                      trail

The values are the eigenvalues of lean and steer at a steady speed: caster and capsize, which are real, and weave.
Parameters: speed [m/s], gravity [m/s²]; the others are the benchmark parameters of the source.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ..._analysis import linearize
from ..._constraint import Holonomic, Nonholonomic
from ..._dynamics import Lagrangian
from ..._system import System
from ..base import Analysis, Derivative

WHEELBASE, TRAIL, TILT, GRAVITY = 1.02, 0.08, np.pi / 10, 9.81
REAR_RADIUS, FRONT_RADIUS = 0.3, 0.35

# Of the rear wheel, the body, the fork and the front wheel, in the reference pose.
MASSES = np.array([2.0, 85.0, 4.0, 3.0])
CENTRES = np.array([(0, 0, -REAR_RADIUS), (0.3, 0, -0.9), (0.9, 0, -0.7), (WHEELBASE, 0, -FRONT_RADIUS)])
INERTIAS = np.array(
    [
        ((0.0603, 0, 0), (0, 0.12, 0), (0, 0, 0.0603)),
        ((9.2, 0, 2.4), (0, 11.0, 0), (2.4, 0, 2.8)),
        ((0.05892, 0, -0.00756), (0, 0.06, 0), (-0.00756, 0, 0.00708)),
        ((0.1405, 0, 0), (0, 0.28, 0), (0, 0, 0.1405)),
    ]
)
ON_AXIS = np.array([WHEELBASE + TRAIL, 0.0, 0.0])
"""Where the steering axis meets the ground."""

AXLE, DOWN = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
NAMES = ("x", "y", "z", "yaw", "roll", "pitch", "steer", "rear", "front")
UNITS = ("m", "m", "m", *6 * ("rad",))
WHEELS = np.array([0, 3])


def turn(axis, angle):
    """The rotation by an angle about a unit vector, by Rodrigues' formula."""
    K = np.cross(np.eye(3), -np.array(axis))
    return np.eye(3) + jnp.sin(angle) * K + (1 - jnp.cos(angle)) * (K @ K)


@jax.jit  # traced once, though all equations use it
def poses(q):
    """Centres (4, 3) of the bodies, and axes of the frame and of the fork (2, 3, 3), without the turns of wheels."""
    frame = turn((0, 0, 1), q[3]) @ turn((1, 0, 0), q[4]) @ turn((0, 1, 0), q[5])
    fork = frame @ turn((np.sin(TILT), 0, np.cos(TILT)), q[6])
    on_axis = q[:3] + frame @ (ON_AXIS - CENTRES[0])
    of_frame = q[:3] + (CENTRES[:2] - CENTRES[0]) @ frame.T
    return jnp.concatenate([of_frame, on_axis + (CENTRES[2:] - ON_AXIS) @ fork.T]), jnp.stack([frame, fork])


@jax.jit
def motion(q, v):
    """Velocities of the centres (4, 3); angular velocities (4, 3) in the axes of the frame and of the fork."""
    (_, R), (rates, R_dot) = jax.jvp(poses, (q,), (v,))
    S = jnp.einsum("bji,bjk->bik", R, R_dot)
    frame, fork = jnp.stack([S[:, 2, 1], S[:, 0, 2], S[:, 1, 0]], axis=1)
    return rates, jnp.stack([frame + v[7] * AXLE, frame, fork, fork + v[8] * AXLE])


def kinetic(t, q, v):
    rates, spins = motion(q, v)
    return (MASSES @ jnp.sum(rates**2, axis=1) + jnp.einsum("bi,bij,bj->", spins, INERTIAS, spins)) / 2


def arms(R):
    """The vectors (2, 3) from the centres of both wheels to their lowest points."""
    axles = R @ AXLE
    in_plane = DOWN - axles[:, 2:] * axles
    radii = np.array([[REAR_RADIUS], [FRONT_RADIUS]])
    return radii * in_plane / jnp.sqrt(jnp.sum(in_plane**2, axis=1, keepdims=True))


def heights(t, q):
    centres, R = poses(q)
    return (centres[WHEELS] + arms(R))[:, 2]


def slip(t, q, v):
    _, R = poses(q)
    rates, spins = motion(q, v)
    spins = jnp.einsum("bij,bj->bi", R, spins[WHEELS])
    return (rates[WHEELS] + jnp.cross(spins, arms(R)))[:, :2].ravel()


def bicycle(gravity=GRAVITY):
    return System(
        Lagrangian(kinetic, lambda t, q: -gravity * (MASSES @ poses(q)[0][:, 2])),
        (Holonomic(heights, name=("rear contact", "front contact")), Nonholonomic(slip, name="rolling")),
        coordinates=tuple(zip(NAMES, UNITS, strict=True)),
    )


def upright(speed):
    """The steady motion straight ahead."""
    q = jnp.zeros(9).at[2].set(-REAR_RADIUS)
    v = jnp.zeros(9).at[0].set(speed).at[7].set(-speed / REAR_RADIUS).at[8].set(-speed / FRONT_RADIUS)
    return q, v


def build(speed=5.0, gravity=GRAVITY):
    return bicycle(gravity), *upright(speed)


def of_lean_and_steer(system, q, v):
    """The other eigenvalues are zero: position and yaw of the bicycle and turns of its wheels do not matter."""
    eigenvalues = linearize(system, q, v).eigenvalues
    four = eigenvalues[jnp.argsort(-jnp.abs(eigenvalues))[:4]]
    four = four[jnp.argsort(four.real)]
    caster, weave, capsize = four[0], four[jnp.argmax(four.imag)], four[jnp.argmin(jnp.abs(four))]
    return jnp.stack([caster.real, capsize.real, weave.real, weave.imag])


PROBLEM = Analysis(
    title="Whipple's bicycle at 5 m/s, from the nonlinear nonholonomic model",
    statement=__doc__,
    source="Meijaard, Papadopoulos, Ruina & Schwab, Proc. R. Soc. A 463 (2007) 1955",
    build=build,
    analyse=of_lean_and_steer,
    compared=("caster [1/s]", "capsize [1/s]", "weave, real [1/s]", "weave, imaginary [rad/s]"),
    reference=(-14.07838969279806, -0.3228664290041081, -0.7753418821958089, 4.46486771378819),
    doubt=1e-14,
    evidence="roots of the published characteristic polynomial; they agree with the published eigenvalues to 14 digits",
    settings=({},),
    derivative=Derivative("speed", (-1.9674059063465175, 0.5592202429888924, -0.8911011569405661, 1.4704888607131252)),
)
