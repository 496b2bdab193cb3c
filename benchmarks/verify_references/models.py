"""The problems in minimal coordinates, derived independently of the systems of ``ukjax.verify``.

``m`` is the module that has sin, cos and sqrt: mpmath's ``mp``, SymPy or NumPy. ``p`` has the parameters as attributes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from mpmath import mp

from . import wheelset
from .lagrange import Points


class Model(NamedTuple):
    """A problem in minimal coordinates.

    Attributes
    ----------
    equations
        ``Points``, or a function (m, p, t, y) -> y'.
    start
        Function (m, p) -> y at the start: coordinates and velocities, or other variables y.
    compared
        Function (m, p, t, y) -> values that are compared, at the last time.
    times
        Start and end [s].
    """

    equations: Points | Callable
    start: Callable
    compared: Callable
    times: tuple[str, str]


def rod(mass, inertia, place, along):
    """A planar body as two points: (x, y) of its centre, a unit vector, mass, inertia as k² = I/m."""
    k = inertia
    return [
        (mass / 2, [place[0] + k * along[0], place[1] + k * along[1]]),
        (mass / 2, [place[0] - k * along[0], place[1] - k * along[1]]),
    ]


def uniform(m, mass, length, first, along):
    """A uniform thin rod from ``first`` along a unit vector."""
    place = [first[i] + length / 2 * along[i] for i in range(len(first))]
    return _pair(mass, place, [length / m.sqrt(12) * a for a in along])


def _pair(mass, place, arm):
    """Two points at place ± arm, whose second moment is mass times arm armᵀ."""
    return [(mass / 2, [c + sign * a for c, a in zip(place, arm, strict=True)]) for sign in (1, -1)]


# --- pendulums --------------------------------------------------------------------------------------------------------


def _pendulum():
    at = lambda m, q: [m.sin(q[0]), -m.cos(q[0])]
    return Model(
        Points(
            lambda m, p, t, q: [(p.m, [p.length * x for x in at(m, q)])],
            lambda m, p, t, q: p.m * p.g * p.length * at(m, q)[1],
        ),
        lambda m, p: [-m.pi / 2, 0],
        lambda m, p, t, y: [p.length * x for x in at(m, y)],
        ("0", "10"),
    )


def _double_pendulum():
    along = lambda m, a: [m.sin(a), -m.cos(a)]

    def positions(m, p, t, q):
        first, second = along(m, q[0]), along(m, q[1])
        elbow = [p.l1 * x for x in first]
        return uniform(m, p.m1, p.l1, [0, 0], first) + uniform(m, p.m2, p.l2, elbow, second)

    def potential(m, p, t, q):
        return -p.g * (p.m1 * p.l1 / 2 * m.cos(q[0]) + p.m2 * (p.l1 * m.cos(q[0]) + p.l2 / 2 * m.cos(q[1])))

    return Model(
        Points(positions, potential),
        lambda m, p: [m.pi / 2, m.pi / 2, 0, 0],
        lambda m, p, t, y: [y[0], y[1]],
        ("0", "5"),
    )


def _spherical_pendulum():
    """Angles: from the downward vertical, and about it."""
    at = lambda m, p, q: [p.length * x for x in (m.sin(q[0]) * m.cos(q[1]), m.sin(q[0]) * m.sin(q[1]), -m.cos(q[0]))]
    return Model(
        Points(
            lambda m, p, t, q: [(1, at(m, p, q))],
            lambda m, p, t, q: p.g * at(m, p, q)[2],
        ),
        lambda m, p: [m.pi / 3, 0, 0, p.speed / (p.length * m.sin(m.pi / 3))],
        lambda m, p, t, y: at(m, p, y),
        ("0", "10"),
    )


def _bead_on_hoop():
    at = lambda m, p, t, q: [
        p.radius * x for x in (m.sin(q[0]) * m.cos(p.turn * t), m.sin(q[0]) * m.sin(p.turn * t), -m.cos(q[0]))
    ]
    return Model(
        Points(lambda m, p, t, q: [(1, at(m, p, t, q))], lambda m, p, t, q: p.g * at(m, p, t, q)[2]),
        lambda m, p: [1, 0],
        lambda m, p, t, y: at(m, p, t, y),
        ("0", "5"),
    )


def _four_bar():
    return Model(
        lambda m, p, t, y: [y[1], 6 * p.g / (5 * p.l) * m.sin(y[0])],
        lambda m, p: [0, p.speed / p.l],
        lambda m, p, t, y: [p.l * m.sin(y[0]), p.l * m.cos(y[0])],
        ("0", "10"),
    )


# --- loops ------------------------------------------------------------------------------------------------------------


def _slider_crank():
    def shape(m, p, q):
        sine = -p.crank * m.sin(q[0]) / p.rod
        return m.cos(q[0]), m.sin(q[0]), m.sqrt(1 - sine**2), sine

    def positions(m, p, t, q):
        c, s, cosine, sine = shape(m, p, q)
        pin = [p.crank * c, p.crank * s]
        slider = (p.slider_mass, [p.crank * c + p.rod * cosine, 0])
        return [
            *uniform(m, p.crank_mass, p.crank, [0, 0], [c, s]),
            *uniform(m, p.rod_mass, p.rod, pin, [cosine, sine]),
            slider,
        ]

    def compared(m, p, t, y):
        c, _, cosine, _ = shape(m, p, y)
        return [y[0], p.crank * c + p.rod * cosine]

    return Model(
        Points(positions, lambda m, p, t, q: 0, lambda m, p, t, q, v: [p.torque]),
        lambda m, p: [0, 0],
        compared,
        ("0", "2"),
    )


def _spatial_slider_crank():
    """The angle of the crank. The rod has the axes u along it, n normal to u and x, and w."""

    def shape(m, p, angle):
        ball = [0, p.aside - p.crank * m.sin(angle), p.above + p.crank * m.cos(angle)]
        out = m.sqrt(ball[1] ** 2 + ball[2] ** 2)
        return ball, m.sqrt(p.rod**2 - out**2), out

    def positions(m, p, t, q):
        ball, x, out = shape(m, p, q[0])
        u = [-x / p.rod, ball[1] / p.rod, ball[2] / p.rod]
        n = [0, ball[2] / out, -ball[1] / out]
        thin = m.sqrt(p.rod_along / (2 * p.rod_mass))
        long = m.sqrt(p.rod_across / p.rod_mass - thin**2)
        arms = [[long * a for a in u], [thin * a for a in n], [thin * a for a in _cross(u, n)]]
        centre = [(x + ball[0]) / 2, ball[1] / 2, ball[2] / 2]
        axis = [0, p.aside, p.above]
        along = [0, -m.sin(q[0]), m.cos(q[0])]
        middle = [a + p.crank / 2 * b for a, b in zip(axis, along, strict=True)]
        crank = [m.sqrt(p.crank_inertia / p.crank_mass) * a for a in along]
        rod = [point for arm in arms for point in _pair(p.rod_mass / 3, centre, [m.sqrt(3) * a for a in arm])]
        return [*_pair(p.crank_mass, middle, crank), *rod, (p.slider_mass, [x, 0, 0])]

    def potential(m, p, t, q):
        height = p.crank * m.cos(q[0])
        return p.g * (p.crank_mass * height / 2 + p.rod_mass * height / 2)

    return Model(
        Points(positions, potential),
        lambda m, p: [0, p.speed],
        lambda m, p, t, y: [y[0], shape(m, p, y[0])[1]],
        ("0", "5"),
    )


def _meet(m, first, a, second, b, side):
    """The point at distances a and b from two points, and the unit vectors that lead to it."""
    d = [second[0] - first[0], second[1] - first[1]]
    square = d[0] ** 2 + d[1] ** 2
    x = (a**2 - b**2 + square) / (2 * square)
    y = side * m.sqrt(a**2 / square - x**2)
    point = [first[0] + x * d[0] - y * d[1], first[1] + x * d[1] + y * d[0]]
    return point, [(point[i] - first[i]) / a for i in (0, 1)], [(point[i] - second[i]) / b for i in (0, 1)]


def _andrews():
    """One coordinate, the angle of the crank: the three loops are triangles with known sides."""

    def shape(m, p, beta):
        crank = [m.cos(beta), m.sin(beta)]
        F = [p.rr * x for x in crank]
        B, A = [p.xb, p.yb], [p.xa, p.ya]
        E, to_E, from_B = _meet(m, F, p.d, B, p.ss, 1)
        G, from_A5, from_E4 = _meet(m, A, p.zt, E, p.e, 1)
        H, from_A7, from_E6 = _meet(m, A, p.u, E, p.zf, -1)
        return crank, F, to_E, E, from_B, G, from_A5, from_E4, H, from_A7, from_E6

    turned = lambda u, along, across: [along * u[0] - across * u[1], along * u[1] + across * u[0]]
    place = lambda point, u, along, across: [a + b for a, b in zip(point, turned(u, along, across), strict=True)]

    def positions(m, p, t, q):
        crank, F, to_E, E, from_B, G, from_A5, from_E4, H, from_A7, from_E6 = shape(m, p, q[0])
        A, B = [p.xa, p.ya], [p.xb, p.yb]
        third = turned(from_B, 0, 1)  # from_B is at right angles to the axis of body 3, which is at gamma
        fourth = turned(from_E4, 0, -1)
        seventh = turned(from_A7, 0, 1)
        sixth = [-x for x in from_E6]
        centres = [
            place([0, 0], crank, p.ra, 0),
            place(F, [-x for x in to_E], -p.da, 0),
            place(B, third, p.sb, -p.sa),
            place(G, fourth, 0, p.ea - p.e),
            place(A, from_A5, p.ta, p.tb),
            place(H, sixth, p.zf - p.fa, 0),
            place(A, seventh, -p.ub, -p.ua),
        ]
        axes = [crank, to_E, third, fourth, from_A5, sixth, seventh]
        points = []
        for mass, inertia, centre, axis in zip(p.m, p.I, centres, axes, strict=True):
            points += rod(mass, m.sqrt(inertia / mass), centre, axis)
        return points

    def potential(m, p, t, q):
        from_B = shape(m, p, q[0])[4]
        third = turned(from_B, 0, 1)
        end = place([p.xb, p.yb], third, p.sd, -p.sc)
        return p.c0 * (m.sqrt((end[0] - p.xc) ** 2 + (end[1] - p.yc) ** 2) - p.l0) ** 2 / 2

    def compared(m, p, t, y):
        E = shape(m, p, y[0])[3]
        return [y[0], 100 * E[0], 100 * E[1]]

    return Model(
        Points(positions, potential, lambda m, p, t, q, v: [p.mom]),
        lambda m, p: [ANDREWS_START + 0 * p.mom, 0],
        compared,
        ("0", "0.03"),
    )


def _bricard():
    """One coordinate, the angle a of the first hinge. The motion from the cube keeps its threefold symmetry.

    Every second hinge turns by a, the others by b: sin a + sin b + sin a sin b = 0.
    """
    corners = [[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1]]
    pins = [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]

    def frames(m, q):
        """Rotation and corners of the chain of five rods."""
        sine = m.sin(q[0])
        other = -sine / (1 + sine)
        turns = [(sine, m.cos(q[0])), (other, m.sqrt(1 - other**2))]
        R = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
        at, places = [0, 0, 0], []
        for i in range(5):
            s, c = turns[i % 2]
            R = _times(R, _about(pins[i], s, c))
            edge = [b - a for a, b in zip(corners[i], corners[i + 1], strict=True)]
            places.append((at, R, edge))
            step = _applied(R, edge)
            at = [a + b for a, b in zip(at, step, strict=True)]
        return places, at

    def positions(m, p, t, q):
        points, share = [], (1 + 0 * p.g) / 6
        for at, R, edge in frames(m, q)[0]:
            centre = [a + b / 2 for a, b in zip(at, _applied(R, edge), strict=True)]
            along = next(i for i in range(3) if edge[i])
            arms = []
            for axis in range(3):
                size = 1 if axis == along else p.width
                column = [R[i][axis] for i in range(3)]
                # three pairs share the mass: second moment size²/12 = arm² / 3
                arms.append([size / 2 * x for x in column])
            for arm in arms:
                for sign in (1, -1):
                    points.append((share, [c + sign * a for c, a in zip(centre, arm, strict=True)]))
        return points

    def potential(m, p, t, q):
        return p.g * sum(at[1] + _applied(R, edge)[1] / 2 for at, R, edge in frames(m, q)[0])

    def compared(m, p, t, y):
        return frames(m, y)[0][2][0]

    return Model(Points(positions, potential), lambda m, p: [0, 0], compared, ("0", "8"))


ANDREWS_START = mp.mpf("-0.0617138900142764496358948458001")


def _about(axis, s, c):
    """Rotation about a coordinate axis."""
    i = next(k for k in range(3) if axis[k])
    j, k = (i + 1) % 3, (i + 2) % 3
    R = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
    R[i][i], R[j][j], R[j][k], R[k][j], R[k][k] = 1, c, -s, s, c
    return R


def _times(P, Q):
    return [[sum(P[i][k] * Q[k][j] for k in range(3)) for j in range(3)] for i in range(3)]


def _applied(R, x):
    return [sum(R[i][k] * x[k] for k in range(3)) for i in range(3)]


def _governor():
    """Arms at one angle below the horizontal, the height of the slider, and the conserved angular momentum."""

    def inertia(m, p, angle):
        """About the axis: of all; and its derivative by the angle."""
        c, s, b = m.cos(angle), m.sin(angle), p.offset
        thick = p.rod * p.width**2 / 12
        arm = p.rod * (b**2 + b * c + c**2 / 3) + p.ball * (b + c) ** 2 + thick * (1 + s**2)
        slope = -s * (p.rod * (b + 2 * c / 3) + 2 * p.ball * (b + c)) + 2 * thick * s * c
        fixed = 2 * p.rod * p.width**2 / 12 + p.slider * p.side**2 / 6
        return fixed + 2 * arm, 2 * slope

    def rate(m, p, t, y):
        angle, height, turning, speed, momentum = y
        c, s = m.cos(angle), m.sin(angle)
        I, slope = inertia(m, p, angle)
        arm = p.rod / 3 + p.ball + p.rod * p.width**2 / 12
        x, z = c / 2, 1 - s / 2 - height
        length = m.sqrt(x**2 + z**2)
        stretching = (x * (-s / 2 * turning) + z * (-c / 2 * turning - speed)) / length
        force = p.K * (length - p.rest) + p.C * stretching
        of_angle = -force * (x * (-s / 2) + z * (-c / 2)) / length + p.g * (p.rod / 2 + p.ball) * c
        return [
            turning,
            speed,
            (of_angle + momentum**2 / I**2 * slope / 4) / arm,
            2 * force * z / length / p.slider - p.g,
            0 * momentum,
        ]

    def start(m, p):
        angle = p.down * m.pi / 180
        return [angle, p.start_height, 0, 0, inertia(m, p, angle)[0] * p.turn]

    return Model(rate, start, lambda m, p, t, y: [y[1]], ("0", "1"))


def _car_axis():
    def shape(m, p, t, q):
        yb = p.r * m.sin(p.w * t)
        xb = m.sqrt(p.L**2 - yb**2)
        left = [-q[0] * yb / p.L, q[0] * xb / p.L]
        return left, [left[0] + p.L * m.cos(q[1]), left[1] + p.L * m.sin(q[1])], xb, yb

    mass = lambda p: p.M * p.eps**2 / 2

    def positions(m, p, t, q):
        left, right, _, _ = shape(m, p, t, q)
        return [(mass(p), left), (mass(p), right)]

    def potential(m, p, t, q):
        left, right, xb, yb = shape(m, p, t, q)
        first = m.sqrt(left[0] ** 2 + left[1] ** 2)
        second = m.sqrt((right[0] - xb) ** 2 + (right[1] - yb) ** 2)
        return ((first - p.L0) ** 2 + (second - p.L0) ** 2) / 2 + mass(p) * (left[1] + right[1])

    def start(m, p):
        # the left point has x' = -1/2 through the turning of the axle alone: x = -s yb, s = L0, yb' = r w
        return [p.L0, 0, 0, 0]

    def compared(m, p, t, y):
        left, right, _, _ = shape(m, p, t, y)
        return [*left, *right]

    return Model(Points(positions, potential), start, compared, ("0", "3"))


# --- rigid bodies -----------------------------------------------------------------------------------------------------


def _fekete():
    """In Cartesian coordinates: the constraint force is −(g·p + v·v) p."""
    dot = lambda a, b: sum(x * y for x, y in zip(a, b, strict=True))

    def rate(m, p, t, y):
        points, speeds = ([y[60 * k + 3 * i : 60 * k + 3 * i + 3] for i in range(20)] for k in (0, 1))
        pull = []
        for at, v in zip(points, speeds, strict=True):
            force = [-p.damping * x for x in v]
            for other in points:
                if other is not at:
                    apart = [a - b for a, b in zip(at, other, strict=True)]
                    square = dot(apart, apart)
                    force = [f + x / square for f, x in zip(force, apart, strict=True)]
            normal = (dot(force, at) + dot(v, v)) / dot(at, at)
            pull += [f - normal * x for f, x in zip(force, at, strict=True)]
        return [*y[60:], *pull]

    def start(m, p):
        places = []
        for number, latitude, turn, first in (
            (3, (3, 8), 13, 1),
            (7, (1, 8), 29, 1),
            (6, (-2, 15), 7, 1),
            (4, (-3, 10), 17, 0),
        ):
            high = m.pi * latitude[0] / latitude[1]
            for k in range(number):
                angle = 2 * m.pi * (k + first) / number + m.pi / turn
                places += [m.cos(angle) * m.cos(high), m.sin(angle) * m.cos(high), m.sin(high)]
        return [*places, *[0] * 60]

    def compared(m, p, t, y):
        ends = list(y[:3]), list(y[57:60])
        return [x / m.sqrt(dot(end, end)) for end in ends for x in end]

    return Model(rate, start, compared, ("0", "1000"))


def _quaternion_rate(u, w):
    return [
        (-u[1] * w[0] - u[2] * w[1] - u[3] * w[2]) / 2,
        (u[0] * w[0] + u[2] * w[2] - u[3] * w[1]) / 2,
        (u[0] * w[1] + u[3] * w[0] - u[1] * w[2]) / 2,
        (u[0] * w[2] + u[1] * w[1] - u[2] * w[0]) / 2,
    ]


def _cross(a, b):
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def _free_body():
    def rate(m, p, t, y):
        w, u, J = y[:3], y[3:], [p.J1, p.J2, p.J3]
        turning = _cross([J[i] * w[i] for i in range(3)], w)
        return [*(turning[i] / J[i] for i in range(3)), *_quaternion_rate(u, w)]

    return Model(rate, lambda m, p: [p.first, 2, 0, 1, 0, 0, 0], lambda m, p, t, y: y[3:], ("0", "10"))


def _heavy_top():
    """Euler's equations about the fixed point, with the direction of the vertical in the body."""

    def rate(m, p, t, y):
        w, u = y[:3], y[3:]
        across, axial = p.across + p.m * p.length**2, p.axial
        J = [across, axial, across]
        up = [
            2 * (u[1] * u[3] - u[0] * u[2]),
            2 * (u[2] * u[3] + u[0] * u[1]),
            u[0] ** 2 - u[1] ** 2 - u[2] ** 2 + u[3] ** 2,
        ]
        weight = _cross([0, p.length, 0], [-p.m * p.g * x for x in up])
        turning = _cross([J[i] * w[i] for i in range(3)], w)
        return [*((turning[i] + weight[i]) / J[i] for i in range(3)), *_quaternion_rate(u, w)]

    def compared(m, p, t, y):
        u = y[3:]
        return [
            p.length * x
            for x in (
                2 * (u[1] * u[2] - u[0] * u[3]),
                u[0] ** 2 - u[1] ** 2 + u[2] ** 2 - u[3] ** 2,
                2 * (u[2] * u[3] + u[0] * u[1]),
            )
        ]

    return Model(rate, lambda m, p: [0, p.spin, p.precession, 1, 0, 0, 0], compared, ("0", "1"))


# --- skates and wheels ------------------------------------------------------------------------------------------------


def _chaplygin_sleigh():
    def rate(m, p, t, y):
        v, w, angle = y[0], y[1], y[2]
        I = p.J + p.m * p.a**2
        c, s = m.cos(angle), m.sin(angle)
        # the centre of mass moves with v along the edge and a w across it
        return [p.a * w**2, -p.m * p.a * v * w / I, w, v * c - p.a * w * s, v * s + p.a * w * c]

    return Model(rate, lambda m, p: [0, p.turn, 0, 0, 0], lambda m, p, t, y: [y[3], y[4], y[2]], ("0", "5"))


def _snakeboard():
    """The speed u along the board is an exact function of both angles; q̈4 = q̈5 = −ṙ."""

    def rate(m, p, t, y):
        u, x, z, heading, a4, a5, w4, w5 = y
        t4, t5 = m.sin(a4) / m.cos(a4), m.sin(a5) / m.cos(a5)
        d4, d5 = (1 + t4**2) * w4, (1 + t5**2) * w5
        a, b = (t4 + t5) / 2, (t4 - t5) / p.l
        a_rate, b_rate = (d4 + d5) / 2, (d4 - d5) / p.l
        J = p.m * p.l**2 / 2 + p.I
        change = -u * (3 * p.m * a * a_rate + J * b * b_rate) / (3 * p.m * (1 + a**2) + J * b**2)
        turning = b * change + b_rate * u
        c, s = m.cos(heading), m.sin(heading)
        return [change, u * c - a * u * s, u * s + a * u * c, b * u, w4, w5, -turning, -turning]

    def start(m, p):
        angle = 5 * m.pi / 180
        return [p.speed, 0, 0, 0, angle, -angle, p.first, -p.first]

    return Model(rate, start, lambda m, p, t, y: [y[1], y[2], y[3], y[4], y[5]], ("0", "8"))


def _disk_rate(m, p, t, y):
    """Newton and Euler in the axes (level, up, axle); y = (ω, tilt, yaw, spin, x, y)."""
    w, tilt, yaw = y[:3], y[3], y[4]
    s, c = m.sin(tilt), m.cos(tilt)
    A, C = p.m * p.r**2 / 4, p.m * p.r**2 / 2
    axes = [w[0], w[1], w[1] * c / s]
    v = [-p.r * w[2], 0, p.r * w[0]]
    carried, turned = _cross(axes, v), _cross(axes, [A * w[0], A * w[1], C * w[2]])
    inertia = p.m * p.r**2
    w0 = (-turned[0] - p.r * p.m * (carried[2] + p.g * c)) / (A + inertia)
    w2 = (-turned[2] + p.r * p.m * carried[0]) / (C + inertia)
    cy, sy = m.cos(yaw), m.sin(yaw)
    return [
        w0,
        -turned[1] / A,
        w2,
        w[0],
        w[1] / s,
        w[2] - w[1] * c / s,
        v[0] * cy + v[2] * s * sy,
        v[0] * sy - v[2] * s * cy,
    ]


def _rolling_disk():
    def start(m, p):
        A, C, W = p.m * p.r**2 / 4, p.m * p.r**2 / 2, p.precession
        s, c = m.sin(p.tilt), m.cos(p.tilt)
        axial = (A * W**2 * s * c - p.m * p.g * p.r * c) / ((C + p.m * p.r**2) * W * s)
        return [p.wobble, W * s, axial, p.tilt, 0, 0, 0, 0]

    return Model(_disk_rate, start, lambda m, p, t, y: [y[6], y[7], y[4], y[3]], ("0", "5"))


def _rolling_coin():
    """A coin that leans and turns about the vertical, with its centre at rest; the path of the contact is compared."""

    def start(m, p):
        lean = m.pi / 2 - p.lean
        return [0, p.turn * m.sin(lean), p.turn * m.cos(lean), lean, 0, 0, 0, 0]

    def compared(m, p, t, y):
        out, first = p.r * m.cos(y[3]), p.r * m.sin(p.lean)
        return [y[6] + out * m.sin(y[4]), y[7] - out * m.cos(y[4]) + first]

    return Model(_disk_rate, start, compared, ("0", "0.5"))


def _rattleback():
    """Newton and Euler in the body, per unit mass; y = (ω, γ), γ the upward vertical."""

    def rate(m, p, t, y):
        w, up = y[:3], y[3:6]
        squares = [p.a**2, p.b**2, p.c**2]
        size = m.sqrt(sum(k * x**2 for k, x in zip(squares, up, strict=True)))
        up_rate = _cross(up, w)
        size_rate = sum(k * x * d for k, x, d in zip(squares, up, up_rate, strict=True)) / size
        R = [-k * x / size for k, x in zip(squares, up, strict=True)]
        R_rate = [-k * (d / size - x * size_rate / size**2) for k, x, d in zip(squares, up, up_rate, strict=True)]
        R = [R[0], R[1], R[2] + p.h]
        J = [[p.A, p.D, 0], [p.D, p.B, 0], [0, 0, p.C]]
        Jw = [sum(J[i][k] * w[k] for k in range(3)) for i in range(3)]
        v = [-x for x in _cross(w, R)]
        bias = [-a + b + p.g * x for a, b, x in zip(_cross(w, R_rate), _cross(w, v), up, strict=True)]
        moment = [a - b for a, b in zip(_cross(R, bias), _cross(w, Jw), strict=True)]
        square = sum(x**2 for x in R)
        matrix = [[J[i][k] + (square if i == k else 0) - R[i] * R[k] for k in range(3)] for i in range(3)]
        return [*_solve3(matrix, moment), *up_rate]

    def start(m, p):
        lean = m.pi / 360
        return [0, 0, p.spin, 0, m.sin(lean), m.cos(lean)]

    return Model(rate, start, lambda m, p, t, y: [y[0], y[1], y[2]], ("0", "5"))


def _solve3(M, b):
    x = _cross(M[1], M[2])
    det = sum(a * c for a, c in zip(M[0], x, strict=True))
    y, z = _cross(M[2], M[0]), _cross(M[0], M[1])
    return [(x[i] * b[0] + y[i] * b[1] + z[i] * b[2]) / det for i in range(3)]


def _crank():
    """Simeon's matrices of the rod, with the angle and the slider eliminated by the loop; y = (η, η̇). In NumPy."""

    def matrices(m, p):
        F, L, pi = p.b * p.h * p.l2, p.l2, m.pi
        M, B = F * p.rho * np.diag([0.5, 0.5, 0, 0]), np.zeros((4, 4))
        M[2:, 2:] = F * p.rho * p.axial_mass / 15 * np.array([[8, 1], [1, 2]])
        bending, along = p.E * p.b * p.h**3 / 12 * pi**4 / (2 * L**3), p.E * p.b * p.h / (3 * L)
        K = np.diag([bending, 16 * bending, 0, 0])
        K[2:, 2:] = along * np.array([[16, -8], [-8, 7]])
        B[2, 0], B[3, 0], B[3, 1] = 16 / pi**3, 1 / pi - 8 / pi**3, -1 / (2 * pi)
        c1, c2 = np.array([0, 0, 2 / 3, 1 / 6]), np.array([2 / pi, 0, 0, 0])
        c12, c21 = L * np.array([0, 0, 1 / 3, 1 / 6]), L * np.array([1 / pi, -1 / (2 * pi), 0, 0])
        return M, K, p.rho * F * (B - B.T), *(p.rho * F * x for x in (c1, c2, c12, c21))

    def loop(m, p, t, y):
        """Angle of the rod and slider, their rates, and their accelerations as a slope and a bias."""
        reach, rate, turn = p.l2 + y[3], y[7], p.omega * t
        sin = -p.l1 * m.sin(turn) / reach
        cos = m.sqrt(1 - sin**2)
        w = -(p.l1 * p.omega * m.cos(turn) + rate * sin) / (reach * cos)
        bias = (p.l1 * p.omega**2 * m.sin(turn) - 2 * rate * cos * w + reach * sin * w**2) / (reach * cos)
        slope = -sin / (reach * cos)
        slider_bias = -p.l1 * p.omega**2 * m.cos(turn) - 2 * rate * sin * w - reach * cos * w**2 - reach * sin * bias
        x = p.l1 * m.cos(turn) + reach * cos
        return sin, cos, w, x, np.array([slope, cos - reach * sin * slope]), np.array([bias, slider_bias])

    def rate(m, p, t, y):
        q, u = np.array(y[:4]), np.array(y[4:])
        M, K, B, c1, c2, c12, c21 = matrices(m, p)
        sin, cos, w, _, slope, bias = loop(m, p, t, y)
        s, c = (m.sin(p.omega * t), m.cos(p.omega * t))
        s12, c12_ = s * cos - c * sin, c * cos + s * sin
        mass, square = p.rho * p.b * p.h * p.l2, p.l1 * p.omega**2
        inertia = np.zeros((6, 6))  # angle, slider, η
        inertia[0, 0] = p.J2 + q @ M @ q + 2 * c12 @ q
        inertia[1, 1] = p.m3
        inertia[0, 2:] = inertia[2:, 0] = c21 + q @ B
        inertia[2:, 2:] = M
        turning = square * (mass * p.l2 / 2 * s12 + s12 * c1 @ q - c12_ * c2 @ q) - 2 * w * (c12 @ u + u @ M @ q)
        along = w**2 * (M @ q + c12) + square * (c12_ * c1 + s12 * c2) + 2 * w * B @ u - K @ q
        J = np.zeros((6, 4))
        J[:2, 3], J[2:] = slope, np.eye(4)
        force = np.concatenate([[turning, 0.0], along]) - inertia @ np.concatenate([bias, np.zeros(4)])
        return [*u, *np.linalg.solve(J.T @ inertia @ J, J.T @ force)]

    def start(m, p):
        at = [0.0, 0.0, 1.03339863e-5, 1.69327969e-5]
        return [*at, 0.4448961125815990, 4.634339319238670e-3, -1.785910760000550e-6, -2.689386719979040e-6]

    def compared(m, p, t, y):
        sin, cos, _, x, *_ = loop(m, p, t, y)
        return [np.arctan2(sin, cos), x, *(1000 * each for each in y[:4])]

    return Model(rate, start, compared, ("0", "0.1"))


MODELS = {
    "pendulum": _pendulum(),
    "double_pendulum": _double_pendulum(),
    "spherical_pendulum": _spherical_pendulum(),
    "bead_on_hoop": _bead_on_hoop(),
    "four_bar": _four_bar(),
    "slider_crank": _slider_crank(),
    "spatial_slider_crank": _spatial_slider_crank(),
    "andrews": _andrews(),
    "bricard": _bricard(),
    "governor": _governor(),
    "crank": _crank(),
    "car_axis": _car_axis(),
    "wheelset": Model(
        wheelset.accelerations,
        lambda m, p: [*(wheelset.START[i] for i in (0, 2, 3)), 0, 0, 0, 0],
        wheelset.positions,
        ("0", "10"),
    ),
    "fekete": _fekete(),
    "free_body": _free_body(),
    "heavy_top": _heavy_top(),
    "chaplygin_sleigh": _chaplygin_sleigh(),
    "snakeboard": _snakeboard(),
    "rolling_disk": _rolling_disk(),
    "rolling_coin": _rolling_coin(),
    "rattleback": _rattleback(),
}
"""Model of each problem, by its name in ``ukjax.verify``."""
