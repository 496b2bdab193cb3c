"""The wheelset in the coordinates x, z and theta, with the published equations of the contact.

Height and roll of the wheelset and the four contact variables are the solution of the published six equations, by
Newton's method. Derivatives of the contact with respect to time are complex steps.
"""

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np

START = 0.14941e-2, 0.40089e-6, 0.11241e-5, -0.28573e-3, 0.26459e-3
"""The published positions, whose digits leave gaps of 5e-10 m."""
STEP = 1e-40
"""Complex step: derivatives are exact."""


def rail(p: Any, x: complex) -> tuple[complex, complex, complex]:
    """Height of the rail at x, its slope and its curvature."""
    side = 1 if x.real > 0 else -1
    away = side * x - p.gauge - cmath.sin(p.cone) * p.rail
    root = cmath.sqrt(p.rail**2 - away**2)
    return root - p.radius - cmath.cos(p.cone) * p.rail, -side * away / root, -(p.rail**2) / root**3


def wheel(p: Any, xi: complex) -> tuple[complex, complex]:
    """Radius of the wheel at xi, and its slope."""
    side, slope = (1 if xi.real > 0 else -1), cmath.tan(p.cone)
    return p.radius + slope * (p.gauge - side * xi), -side * slope


def contact(p: Any, place: Any, side: int) -> dict[str, Any]:
    """The contact of one wheel at (x, y, theta, phi), by Newton's method for xi and psi."""
    x, y, theta, phi = place
    st, ct, sp, cp = cmath.sin(theta), cmath.cos(theta), cmath.sin(phi), cmath.cos(phi)
    xi, psi, c = side * (p.gauge + 0j), 0j, 1 + 0j
    for _ in range(20):
        R, slope = wheel(p, xi)
        s, c = cmath.sin(psi), cmath.cos(psi)
        across = x + xi * ct * cp + R * (ct * sp * c - st * s)
        height, G, curvature = rail(p, across)
        first = G * (slope * sp + cp * c) + slope * ct * cp - ct * sp * c + st * s
        second = slope * st * cp - st * sp * c - ct * s
        by_xi = ct * cp + slope * (ct * sp * c - st * s)
        by_psi = R * (-ct * sp * s - st * c)
        normal = slope * sp + cp * c
        J = [
            [curvature * by_xi * normal, curvature * by_psi * normal - G * cp * s + ct * sp * s + st * c],
            [0, st * sp * s - ct * c],
        ]
        d_psi = second / J[1][1]
        d_xi = (first - J[0][1] * d_psi) / J[0][0]
        xi, psi = xi - d_xi, psi - d_psi
        if abs(d_xi) + abs(d_psi) < 1e-12:
            break
    gap = height - y - xi * sp + R * cp * c
    row = [G, -1, 0, G * (R * (-ct * s - c * sp * st) - cp * st * xi)]
    row += [-c * R * sp - cp * xi + G * (cp * c * ct * R - ct * sp * xi)]
    return {"xi": xi, "psi": psi, "R": R, "slope": slope, "G": G, "curvature": curvature, "gap": gap, "row": row}


def position(p: Any, x: complex, theta: complex) -> tuple[complex, complex, list]:
    """Height and roll at which the gaps are those of the start, and the contacts."""
    x0, y0, _, theta0, phi0 = START
    gaps = [contact(p, (complex(x0), y0, theta0, phi0), side)["gap"] for side in (1, -1)]
    y, phi, both = 0j, 0j, []
    for _ in range(30):
        both = [contact(p, (x, y, theta, phi), side) for side in (1, -1)]
        (_, a, _, _, b), (_, c, _, _, d) = both[0]["row"], both[1]["row"]
        e, f = both[0]["gap"] - gaps[0], both[1]["gap"] - gaps[1]
        det = a * d - b * c
        dy, dphi = (d * e - b * f) / det, (a * f - c * e) / det
        y, phi = y - dy, phi - dphi
        if abs(dy) + abs(dphi) < 1e-11:
            break
    return y, phi, both


def creep(p: Any, at: dict, side: int, place: Any, v: Any, turning: float) -> Callable:
    """The friction on one wheel along the axes of the track, as a function of the normal force."""
    (theta, phi), (vx, vy, vz, v_theta, v_phi) = place, v
    xi, psi, R, G, slope, curvature = (at[each].real for each in ("xi", "psi", "R", "G", "slope", "curvature"))
    s, c, sp, cp = math.sin(psi), math.cos(psi), math.sin(phi), math.cos(phi)
    delta = side * math.atan(G)
    sd, cd = side * math.sin(delta), math.cos(delta)
    st, ct = math.sin(theta / cd), math.cos(theta / cd)
    A = 0.5 / (R * math.sqrt(1 + slope**2))
    B = -0.5 * curvature / (1 + G**2) ** 1.5
    spin = p.speed / p.radius + turning
    w1 = -spin * R * (st * c + ct * sp * s) + vx - v_theta * (R * (st * sp * c + ct * s) + xi * st * cp)
    w1 -= v_phi * ct * (xi * sp - R * cp * c)
    w2 = spin * R * cp * s + vy + v_phi * (xi * cp + R * sp * c)
    turned = 2 * math.sin(theta / cd / 2) ** 2 + 2 * ct * math.sin(psi / 2) ** 2 + st * sp * s
    thicker = side * slope * (side * xi - p.gauge)
    # p.speed + vz − spin R (1 − turned), without the difference of large numbers
    w3 = vz + p.speed * turned - (p.speed / p.radius * thicker + turning * R) * (1 - turned)
    w3 += -v_theta * (xi * ct * cp + R * (ct * sp * c - st * s)) + v_phi * st * (xi * sp - R * cp * c)
    rolling = 0.5 * math.sqrt((w1 - 2 * vx) ** 2 + (w2 - 2 * vy) ** 2 + (w3 - 2 * vz - 2 * p.speed) ** 2)
    along = (st * w1 + ct * w3) / rolling
    across = (ct * cd * w1 + sd * w2 - st * cd * w3) / rolling
    about = (-sd * spin + cd * v_theta) / rolling
    cube = 3 * (1 - p.poisson) * 1.3537956 / (2 * math.pi * (A + B) * p.shear * math.sqrt(0.7115218))

    def force(normal):
        limit, size = p.friction * normal, (cube * normal) ** (1 / 3)
        stiff = p.shear * size**2 / limit
        tx = -limit * cmath.tanh(stiff * 4.72772197 * along)
        ty = -limit * cmath.tanh(stiff * (4.27526987 * across + size * 1.97203505 * about))
        both = cmath.sqrt(tx**2 + ty**2)
        if both.real > limit.real:
            tx, ty = tx * limit / both, ty * limit / both
        return st * tx + ct * cd * ty, sd * ty, ct * tx - st * cd * ty

    return force


def accelerations(m: Any, p: Any, t: Any, y: Any) -> list[float]:
    """y' of y = (x, z, theta, x', z', theta', beta')."""
    x, z, theta, vx, vz, v_theta, turning = map(float, y)
    height, phi, both = position(p, complex(x), complex(theta))
    height, phi = height.real, phi.real
    G = np.array([[complex(a).real for a in each["row"]] for each in both])
    vy, v_phi = -_solved(G[:, [1, 4]], G[:, [0, 3]] @ [vx, v_theta])
    v = np.array([vx, vy, vz, v_theta, v_phi])
    ahead = tuple(complex(a, STEP * b) for a, b in zip((x, height, theta, phi), v[[0, 1, 3, 4]], strict=True))
    G_rate = np.array([[complex(a).imag / STEP for a in contact(p, ahead, side)["row"]] for side in (1, -1)])
    m, I1, I2, spin = p.mass, p.I1, p.I2, p.speed / p.radius + turning
    st, ct, sp, cp = np.sin(theta), np.cos(theta), np.sin(phi), np.cos(phi)
    M = np.array([m, m, m, I2 * cp, I2])
    yaw = -2 * p.lever**2 * p.spring * theta
    applied = np.array([-2 * p.spring * x, -m * p.g, -2 * p.spring * z, 0.0, 0.0])
    applied[3] = I2 * v_theta * v_phi * sp - I1 * spin * v_phi - (I1 - I2) * v_theta * sp * v_phi + cp * yaw
    applied[4] = I1 * spin * v_theta * cp + (I1 - I2) * v_theta * sp * v_theta * cp
    of_turning = -I1 * v_theta * v_phi * cp + sp * yaw

    forces, levers = [], []
    for at, side in zip(both, (1, -1), strict=True):
        forces.append(creep(p, at, side, (theta, phi), v, turning))
        xi, psi, R = (at[each].real for each in ("xi", "psi", "R"))
        s, c = np.sin(psi), np.cos(psi)
        about_y = [-(xi * st + R * s * ct * cp), -R * s * sp, -xi * ct + R * s * st * cp]
        about_z = [-(xi * ct * sp - R * c * ct * cp), xi * cp + R * c * sp, xi * st * sp - R * c * st * cp]
        about_x = [-R * (c * st + s * ct * sp), R * s * cp, -R * (c * ct - s * st * sp)]
        levers.append(np.array([*np.eye(3), about_y, about_z, about_x]))
    cosines = np.array([1 / np.sqrt(1 + each["G"].real ** 2) for each in both])
    normals, known = np.full(2, m * p.g / 2), G @ (applied / M) + G_rate @ v
    for _ in range(20):
        found = np.array([force(complex(N, STEP)) for force, N in zip(forces, normals, strict=True)])
        friction = np.array([lever @ T for lever, T in zip(levers, found, strict=True)])
        wrong = known + G @ ((np.sum(np.real(friction)[:, :5], axis=0) - G.T @ (cosines * normals)) / M)
        by_normals = G @ (np.imag(friction)[:, :5] / STEP / M).T - (G / M) @ (G.T * cosines)
        change = _solved(by_normals, wrong)
        normals = normals - change
        if np.max(np.abs(change)) < 1e-9 * m * p.g:
            break
    friction = np.sum(
        [lever @ [x.real for x in f(complex(N))] for lever, f, N in zip(levers, forces, normals, strict=True)], axis=0
    )
    force, torque = friction[:5] - G.T @ (cosines * normals), friction[5]
    a = (applied + force) / M
    turning_rate = (of_turning + torque) / I1 - sp * a[3]
    return [vx, vz, v_theta, a[0], a[2], a[3], turning_rate]


def positions(m: Any, p: Any, t: Any, y: Any) -> list[float]:
    """x, y, z in mm, theta, phi in mrad."""
    height, phi, _ = position(p, complex(y[0]), complex(y[2]))
    return [1e3 * x for x in (y[0], height.real, y[1], y[2], phi.real)]


def _solved(J, x):
    det = J[0, 0] * J[1, 1] - J[0, 1] * J[1, 0]
    return np.array([J[1, 1] * x[0] - J[0, 1] * x[1], J[0, 0] * x[1] - J[1, 0] * x[0]]) / det
