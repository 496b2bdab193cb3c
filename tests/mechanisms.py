"""Small mechanisms whose motion is known: by closed form, by published digits, or by a reduction integrated by SciPy."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.special
from jaxtyping import Array

import ukjax as uk

GRAVITY = 9.81


def leaf():
    """A number that can be changed without compiling anew, and differentiated."""
    return eqx.field(converter=jnp.asarray)


# --- laws shared by several ----------------------------------------------------------------------------------------


class Kinetic(eqx.Module):
    """T = m |v|² / 2."""

    mass: Array = leaf()

    def __call__(self, t, q, v):
        return self.mass * v @ v / 2


class Weight(eqx.Module):
    """V = w y."""

    weight: Array = leaf()

    def __call__(self, t, q):
        return self.weight * q[1]


class Rod(eqx.Module):
    """|q|² − L² = 0."""

    length: Array = leaf()

    def __call__(self, t, q):
        return q @ q - self.length**2


def by_quadrature(acceleration, y0, ts):
    """y = (positions, velocities) at ts by SciPy's DOP853, for y'' = acceleration(t, y, y')."""
    n = len(y0) // 2
    solution = scipy.integrate.solve_ivp(
        lambda t, y: np.concatenate([y[n:], np.atleast_1d(acceleration(t, y[:n], y[n:]))]),
        (ts[0], ts[-1]),
        y0,
        "DOP853",
        ts,
        rtol=1e-13,
        atol=1e-13,
    )
    return solution.y.T


# --- A01: the simple pendulum --------------------------------------------------------------------------------------
#
#      o────●        start: horizontal, to the left, at rest
#

PENDULUM_START = np.array([-1.0, 0.0]), np.zeros(2)
PENDULUM_PERIOD = 2.36784194757623745
PENDULUM_AT = {
    1.0: (0.986291751131875, -0.165010853125541),
    5.0: (-0.942305435043757, -0.334754338414001),
    9.99: (-0.316436469913031, -0.948613704575777),
    10.0: (-0.275087462576117, -0.961419205099125),
}


def pendulum(length=1.0, mass=1.0, weight=GRAVITY, gains=(), constraints=None):
    """A point on a rod. ``weight`` is in N, so that its mass matters; ``constraints`` replace the rod."""
    rod = uk.Holonomic(Rod(length), *gains, name="rod")
    return uk.System(
        uk.Lagrangian(Kinetic(mass), Weight(weight)),
        (rod,) if constraints is None else constraints,
        coordinates=(("x", "m"), ("y", "m")),
    )


def pendulum_exact(ts):
    """q and v at ts from the horizontal at rest: sin(θ/2) = k cd(ω t, k), k² = 1/2."""
    k, w = np.sqrt(0.5), np.sqrt(GRAVITY)
    sn, cn, dn, _ = scipy.special.ellipj(w * np.asarray(ts), 0.5)
    s, s_dot = k * cn / dn, -k * w * (1 - 0.5) * sn / dn**2
    c = np.sqrt(1 - s**2)
    q = np.stack([-2 * s * c, 2 * s**2 - 1], axis=-1)
    return q, np.stack([-2 * s_dot * (c - s**2 / c), 4 * s * s_dot], axis=-1)


class Drive(eqx.Module):
    """x = x₀ + u t: a slider, pulled at constant speed."""

    start: Array = leaf()
    speed: Array = leaf()

    def __call__(self, t, q):
        return q[0] - self.start - self.speed * t


def pulled_pendulum(speed=0.5):
    """A rod of 1 m whose end is pulled in x from 0.5 m on: out of its reach at t = 0.5 / speed."""
    rod = uk.Holonomic(Rod(1.0), name="rod")
    return pendulum(constraints=(rod, uk.Holonomic(Drive(0.5, speed), name="drive")))


def pulled_pendulum_start(speed=0.5):
    x, y = 0.5, np.sqrt(0.75)
    return np.array([x, y]), np.array([speed, -speed * x / y])


# --- a bead on a wire that turns -----------------------------------------------------------------------------------


class TurningWire(eqx.Module):
    """y cos wt − x sin wt = 0."""

    rate: Array = leaf()

    def __call__(self, t, q):
        return q[1] * jnp.cos(self.rate * t) - q[0] * jnp.sin(self.rate * t)


def turning_wire(rate=2.0, mass=3.0):
    """No gravity; started from r₀ with the wire's velocity: r = r₀ cosh wt."""
    return uk.System(uk.Lagrangian(Kinetic(mass)), uk.Holonomic(TurningWire(rate), name="wire"))


def turning_wire_exact(ts, rate=2.0, r0=0.3):
    t = np.asarray(ts)[:, None]
    along = np.concatenate([np.cos(rate * t), np.sin(rate * t)], axis=1)
    across = np.concatenate([-np.sin(rate * t), np.cos(rate * t)], axis=1)
    r, r_dot = r0 * np.cosh(rate * t), r0 * rate * np.sinh(rate * t)
    return r * along, r_dot * along + rate * r * across


# --- a straight wire and a spring: the harmonic oscillator in two coordinates ---------------------------------------


class Spring(eqx.Module):
    """V = k |q|² / 2."""

    stiffness: Array = leaf()

    def __call__(self, t, q):
        return self.stiffness * q @ q / 2


class StraightWire(eqx.Module):
    """y cos α − x sin α = 0."""

    angle: Array = leaf()

    def __call__(self, t, q):
        return q[1] * jnp.cos(self.angle) - q[0] * jnp.sin(self.angle)


def oscillator(mass, stiffness, angle):
    return uk.System(uk.Lagrangian(Kinetic(mass), Spring(stiffness)), uk.Holonomic(StraightWire(angle), name="wire"))


# --- the car axis (IVP test set) -----------------------------------------------------------------------------------

CAR_AXIS_START = np.array([0.0, 0.5, 1.0, 0.5]), np.array([-0.5, 0.0, -0.5, 0.0])
CAR_AXIS_AT_3 = {
    "q": (0.0493455784275402809, 0.496989460230171154, 1.04174252488542152, 0.373911027265361257),
    "v": (-0.0770583684040972358, 0.00744686658723778553, 0.0175568157537232222, 0.770341043779251976),
    "lam": (-0.00473688659084893325, -0.00110468033125734369),
}


def _road(t):
    y = 0.1 * jnp.sin(10 * t)
    return jnp.sqrt(1 - y**2), y


def _car_axis_force(t, q, v):
    xl, yl, xr, yr = q
    xb, yb = _road(t)
    k = 10 * 0.01**2 / 2
    left, right = jnp.hypot(xl, yl), jnp.hypot(xr - xb, yr - yb)
    l, r = (0.5 - left) / left, (0.5 - right) / right
    return jnp.array([l * xl, l * yl - k, r * (xr - xb), r * (yr - yb) - k])


def _car_axis_phi(t, q):
    xl, yl, xr, yr = q
    xb, yb = _road(t)
    return [xb * xl + yb * yl, (xl - xr) ** 2 + (yl - yr) ** 2 - 1]


def car_axis():
    return uk.System(uk.MassForce(10 * 0.01**2 / 2 * jnp.eye(4), _car_axis_force), uk.Holonomic(_car_axis_phi))


def car_axis_multipliers(t, q, force):
    """λ of Qᶜ = Aᵀ λ, from the two end points' forces by hand."""
    y = 0.1 * np.sin(10 * t)
    apart = q[:2] - q[2:]
    A = np.array([[np.sqrt(1 - y**2), y, 0, 0], [*(2 * apart), *(-2 * apart)]])
    return np.linalg.lstsq(A.T, force, rcond=None)[0]


# --- A02: N windows of four bars -----------------------------------------------------------------------------------
#
#      ●────●────●        rockers θ₀ ... θ_N from the vertical, couplers from the horizontal
#      │    │    │
#      ┴    ┴    ┴
#

FOUR_BAR_AT = {
    1: {1.0: (-0.260712675, -0.965416439), 5.0: (-0.944908186, -0.327335485)},
    2: {1.0: (-0.195020302, -0.980799206), 5.0: (-0.811310461, -0.584615545)},
}


def _four_bar_kinetic(t, q, v):
    rockers, (theta, coupler), (theta_dot, coupler_dot) = (q.size + 1) // 2, *(_split(x) for x in (q, v))
    tip = theta_dot[:-1, None] * jnp.stack([jnp.cos(theta), -jnp.sin(theta)], axis=1)[:-1]
    centre = tip + coupler_dot[:, None] * jnp.stack([-jnp.sin(coupler), jnp.cos(coupler)], axis=1) / 2
    assert theta.size == rockers
    return (jnp.sum(theta_dot**2) / 3 + jnp.sum(centre**2) + jnp.sum(coupler_dot**2) / 12) / 2


def _four_bar_potential(t, q):
    theta, coupler = _split(q)
    return GRAVITY * (jnp.sum(jnp.cos(theta)) / 2 + jnp.sum(jnp.cos(theta[:-1]) + jnp.sin(coupler) / 2))


def _four_bar_loops(t, q):
    theta, coupler = _split(q)
    x = 1 + jnp.sin(theta[1:]) - jnp.sin(theta[:-1]) - jnp.cos(coupler)
    y = jnp.cos(theta[1:]) - jnp.cos(theta[:-1]) - jnp.sin(coupler)
    return jnp.concatenate([x, y])


def _split(q):
    rockers = (q.size + 1) // 2
    return q[:rockers], q[rockers:]


def four_bar():
    """Any number of windows: q holds N + 1 rocker angles, then N coupler angles."""
    return uk.System(uk.Lagrangian(_four_bar_kinetic, _four_bar_potential), uk.Holonomic(_four_bar_loops, name="loops"))


def four_bar_start(windows):
    return np.zeros(2 * windows + 1), np.array([1.0] * (windows + 1) + [0.0] * windows)


# --- nonholonomic --------------------------------------------------------------------------------------------------


class Planar(eqx.Module):
    """T = m (ẋ² + ẏ²) / 2 + J θ̇² / 2."""

    mass: Array = leaf()
    inertia: Array = leaf()

    def __call__(self, t, q, v):
        return (self.mass * v[:2] @ v[:2] + self.inertia * v[2] ** 2) / 2


class Edge(eqx.Module):
    """No sideways velocity at the edge, a behind the centre: −ẋ sin θ + ẏ cos θ − a θ̇ = 0. As A(t, q)."""

    behind: Array = leaf()

    def __call__(self, t, q):
        return jnp.stack([-jnp.sin(q[2]), jnp.cos(q[2]), -self.behind])


SLEIGH_AT_5 = {"speed": 0.7378041677, "turning": 0.2781446097, "angle": 3.3001642583}
SLEIGH_START = np.zeros(3), np.array([0.0, 0.3, 1.0])


def chaplygin_sleigh(mass=1.0, inertia=0.5, behind=0.3):
    return uk.System(uk.Lagrangian(Planar(mass, inertia)), uk.Pfaffian(Edge(behind), name="edge"))


def sleigh_exact(ts, m=1.0, J=0.5, a=0.3, w0=1.0):
    """Forward speed v = V tanh kt and turning w = V √(m/I) sech kt, from v = 0."""
    I = J + m * a**2
    V = np.sqrt(I / m) * w0
    k = a * V * m / I
    return V * np.tanh(k * ts), V * np.sqrt(m / I) / np.cosh(k * ts)


KNIFE_EDGE_AT_3 = (0.0478685208, 3.8432431352)
KNIFE_EDGE_START = np.zeros(3), np.array([0.0, 0.0, 2.0])


def _downhill(t, q):
    return -GRAVITY * jnp.sin(jnp.pi / 6) * q[0]


def _no_slip(t, q, v):
    return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])


def knife_edge():
    """On an incline of 30 degrees, spinning freely: x points downhill."""
    dynamics = uk.Lagrangian(Planar(1.0, 0.7), _downhill)
    return uk.System(dynamics, uk.Nonholonomic(_no_slip, name="edge"))


def knife_edge_exact(ts, w=2.0):
    s = GRAVITY * np.sin(np.pi / 6) / (2 * w**2)
    return np.stack([s * np.sin(w * ts) ** 2, s * (w * ts - np.sin(2 * w * ts) / 2)], axis=-1)


class Speed(eqx.Module):
    """|v|² − c² = 0: nonlinear in v."""

    speed: Array = leaf()

    def __call__(self, t, q, v):
        return v @ v - self.speed**2


def constant_speed(speed=2.0, alpha=0.0):
    """A particle that falls without going faster."""
    return uk.System(uk.Lagrangian(Kinetic(1.0), Weight(GRAVITY)), uk.Nonholonomic(Speed(speed), alpha, name="speed"))


def constant_speed_exact(ts, c=2.0):
    """From a horizontal start the slope of the path is −sinh s, s = g t / c."""
    s = GRAVITY * np.asarray(ts) / c
    q = c**2 / GRAVITY * np.stack([np.arctan(np.sinh(s)), -np.log(np.cosh(s))], axis=-1)
    return q, c * np.stack([1 / np.cosh(s), -np.tanh(s)], axis=-1)
