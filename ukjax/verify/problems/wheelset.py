"""A railway wheelset that runs along a straight track and hunts: it swings across the track until the rails hold it.

Two cones on an axle roll at a constant speed over rails whose section is a circle. q = (x, y, z, theta, phi, beta):
the centre of mass, across the track, upwards and along it from the moving axes of the track; yaw; roll; and the turning
about the axle. The last velocity is sigma = beta' + theta' sin(phi), so that the mass matrix is diagonal. Springs hold
x, z and the yaw. Each wheel touches its rail at one point: two holonomic constraints, in closed form. The friction of
creep at a contact is a function of the velocities there and of the normal force N, hence a non-ideal force that depends
on the multipliers: its longitudinal part is −mu N tanh(G c² C11 nu/(mu N)), and c³ is proportional to N.

The published start closes the contacts to 5e-10 m; these gaps are kept, as in the published index-2 equations. The
values are the positions after 10 s. Parameters: mass [kg]; inertias I1 about the axle and I2 across it [kg m²]; speed
[m/s]; radius of the wheels, gauge (half the distance of the rails), rail radius [m]; cone angle [rad]; lever of the
springs [m], spring [N/m]; friction, poisson, shear modulus [N/m²]; g [m/s²].
"""

import jax
import jax.numpy as jnp
import numpy as np

from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Motion, tolerances

SIDE = np.array([1.0, -1.0])
"""The left wheel and the right one."""
AREA = 1.3537956 / np.sqrt(0.7115218)
"""Of the contact ellipse, by Hertz; C11, C22 and C23 of the creep forces, by Kalker."""
C11, C22, C23 = 4.72772197, 4.27526987, 1.97203505
NEWTON = 6
"""Iterations for the multipliers. The friction changes them by a tenth, so that this is enough for all digits."""


def build(
    mass=16.08,
    I1=0.0605,
    I2=0.366,
    speed=30.0,
    radius=0.1,
    gauge=0.1506,
    rail=0.06,
    cone=0.0262,
    lever=0.19,
    spring=6400.0,
    friction=0.12,
    poisson=0.28,
    shear=7.92e10,
    g=9.81,
):
    q0 = jnp.array([0.14941e-2, 0.40089e-6, 0.11241e-5, -0.28573e-3, 0.26459e-3, 0.0])
    taper, spin = jnp.tan(cone), speed / radius

    def contact(q):
        """Gaps of both wheels; distance xi along the axle, angle psi, radius R; slope G of the rail, by wheel."""
        x, y, _, theta, phi, _ = q
        st, ct, sp, cp = jnp.sin(theta), jnp.cos(theta), jnp.sin(phi), jnp.cos(phi)
        slope = -SIDE * taper
        out = st * sp
        psi = jnp.arcsin(slope * st * cp / jnp.sqrt(out**2 + ct**2)) - jnp.arctan2(out, ct)
        s, c = jnp.sin(psi), jnp.cos(psi)
        normal = slope * ct * cp - c * ct * sp + s * st, slope * sp + c * cp
        G = -normal[0] / normal[1]
        away = rail / jnp.sqrt(1 + G**2)
        at = SIDE * (gauge + jnp.sin(cone) * rail) - G * away
        turned = ct * sp * c - st * s
        xi = (at - x - (radius + taper * gauge) * turned) / (ct * cp + slope * turned)
        R = radius + taper * gauge + slope * xi
        height = away - radius - jnp.cos(cone) * rail
        return height - y - xi * sp + R * cp * c, (xi, psi, R, G)

    def inertia(t, q):
        return jnp.diag(jnp.stack([*[mass + 0 * q[4]] * 3, I2 * jnp.cos(q[4]), I2 + 0 * q[4], I1 + 0 * q[4]]))

    def force(t, q, v):
        x, _, z, theta, phi, _ = q
        _, _, _, yawing, rolling, sigma = v
        sp, cp = jnp.sin(phi), jnp.cos(phi)
        yaw = -2 * lever**2 * spring * theta
        return jnp.stack(
            [
                -2 * spring * x,
                -mass * g,
                -2 * spring * z,
                2 * I2 * yawing * rolling * sp - I1 * (spin + sigma) * rolling + cp * yaw,
                I1 * (spin + sigma) * yawing * cp - I2 * yawing**2 * sp * cp,
                sp * yaw,
            ]
        )

    def creep(q, v):
        """Function of the multipliers that returns the generalised forces of friction, by wheel (2, 6)."""
        xi, psi, R, G = contact(q)[1]
        theta, phi = q[3], q[4]
        vx, vy, vz, yawing, rolling, sigma = v
        s, c, sp, cp = jnp.sin(psi), jnp.cos(psi), jnp.sin(phi), jnp.cos(phi)
        cd = 1 / jnp.sqrt(1 + G**2)
        sd = G * cd
        # The published creepages have theta/cos(delta) in place of theta.
        st, ct = jnp.sin(theta / cd), jnp.cos(theta / cd)
        turning = spin + sigma - yawing * sp
        w1 = vx - turning * R * (st * c + ct * sp * s) - yawing * (R * (st * sp * c + ct * s) + xi * st * cp)
        w1 -= rolling * ct * (xi * sp - R * cp * c)
        w2 = vy + turning * R * cp * s + rolling * (xi * cp + R * sp * c)
        # speed + vz − turning R (1 − less): the speed and the rolling cancel, and are left out.
        less = 2 * jnp.sin(theta / cd / 2) ** 2 + 2 * ct * jnp.sin(psi / 2) ** 2 + st * sp * s
        more = spin * taper * (gauge - SIDE * xi) + (sigma - yawing * sp) * R
        w3 = vz + speed * less - more * (1 - less) + rolling * st * (xi * sp - R * cp * c)
        w3 -= yawing * (xi * ct * cp + R * (ct * sp * c - st * s))
        rate = jnp.sqrt((w1 - 2 * vx) ** 2 + (w2 - 2 * vy) ** 2 + (w3 - 2 * vz - 2 * speed) ** 2) / 2
        along = (st * w1 + ct * w3) / rate
        across = (ct * cd * w1 + sd * w2 - st * cd * w3) / rate
        about = (cd * yawing - sd * turning) / rate
        curvature = 1 / (R * jnp.sqrt(1 + taper**2)) + 1 / rail
        first = jnp.stack([st, 0 * st, ct]), jnp.stack([ct * cd, sd, -st * cd])
        st, ct = jnp.sin(theta), jnp.cos(theta)
        arms = [
            jnp.stack([-(xi * st + R * s * ct * cp), -R * s * sp, -xi * ct + R * s * st * cp]),
            jnp.stack([-xi * ct * sp + R * c * ct * cp, xi * cp + R * c * sp, xi * st * sp - R * c * st * cp]),
            -R * jnp.stack([c * st + s * ct * sp, -s * cp, c * ct - s * st * sp]),
        ]

        def forces(multipliers):
            N = -multipliers / cd
            size = jnp.cbrt(3 * N * (1 - poisson) * AREA / (jnp.pi * curvature * shear))
            limit = friction * N
            stiff = shear * size**2 / limit
            a, b = jnp.tanh(stiff * C11 * along), jnp.tanh(stiff * (C22 * across + size * C23 * about))
            both = jnp.sqrt(jnp.maximum(a**2 + b**2, 1.0))
            T = -limit / both * (a * first[0] + b * first[1])
            return jnp.concatenate([T, jnp.stack([jnp.sum(arm * T, axis=0) for arm in arms])]).T

        return forces

    def friction_forces(t, q, v):
        """Newton's method for the multipliers, on which the friction depends."""
        gaps = lambda q: contact(q)[0]
        A = jax.jacfwd(gaps)(q)
        b = -jax.jvp(lambda q: jax.jvp(gaps, (q,), (v,))[1], (q,), (v,))[1]
        per_mass = A / jnp.diagonal(inertia(t, q))
        forces, applied, own = creep(q, v), force(t, q, v), jnp.ones(2)
        multipliers = -mass * g / 2 * own
        for _ in range(NEWTON):
            F, slope = jax.jvp(forces, (multipliers,), (own,))
            wrong = per_mass @ (applied + A.T @ multipliers + jnp.sum(F, axis=0)) - b
            J = per_mass @ (A + slope).T
            det = J[0, 0] * J[1, 1] - J[0, 1] * J[1, 0]
            step = jnp.stack([J[1, 1] * wrong[0] - J[0, 1] * wrong[1], J[0, 0] * wrong[1] - J[1, 0] * wrong[0]])
            multipliers = multipliers - step / det
        return jnp.sum(forces(multipliers), axis=0)

    start = contact(q0)[0]
    touch = Holonomic(lambda t, q: contact(q)[0] - start, name=("left contact", "right contact"))
    system = System(MassForce(inertia, force), touch, nonideal=friction_forces)
    return system, q0, jnp.zeros(6)


PROBLEM = Motion(
    title="Railway wheelset that hunts, with creep forces",
    statement=__doc__,
    source="Simeon, Führer & Rentrop, Surv. Math. Ind. 1 (1991) 1; IVP test set, wheelset",
    build=build,
    ts=(0.0, 10.0),
    quantity=lambda motion: 1e3 * motion.q[-1, :5],
    compared=("x [mm]", "y [mm]", "z [mm]", "theta [mrad]", "phi [mrad]"),
    reference=(8.6355382401, 0.0130383410999, -0.0936358109331, -13.642296001, 1.5292894195),
    doubt=5e-9,
    evidence="Radau of ukjax at two tolerances; DOP853 of SciPy in three coordinates agrees to 3e-9, the published "
    "digits, by DASSL with a tolerance of 1e-9, to 3e-7",
    settings=tolerances(1e-6, 1e-9, 1e-12, size=1e-3),
    passes=2e-8,
)
