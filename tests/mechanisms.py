"""Small systems whose motion is known in other ways."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk

import ukjax as uk

GRAVITY = 9.81


class Pendulum(uk.AbstractSystem):
    """Benchmark A01 in Cartesian coordinates: a point on a rod, with mass, length and gains as leaves."""

    mass: Array = eqx.field(default=1.0, converter=jnp.asarray)
    length: Array = eqx.field(default=1.0, converter=jnp.asarray)
    alpha: Array = eqx.field(default=0.0, converter=jnp.asarray)
    beta: Array = eqx.field(default=0.0, converter=jnp.asarray)
    copies: int = eqx.field(default=1, static=True)

    nonideal: ClassVar[Any] = None
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"))

    @property
    def dynamics(self):
        return uk.Lagrangian(lambda t, q, v: self.mass * v @ v / 2, lambda t, q: self.mass * GRAVITY * q[1])

    @property
    def constraints(self):
        rod = lambda t, q: (q @ q - self.length**2) / 2
        return tuple(uk.Holonomic(rod, self.alpha, self.beta, name="rod") for _ in range(self.copies))


class LostActuator(uk.AbstractSystem):
    """A particle whose task is to move along x. Its only actuator turns from x to y at the place ``end`` on y."""

    end: Array = eqx.field(default=1.0, converter=jnp.asarray)

    constraints: ClassVar[Any] = ()
    nonideal: ClassVar[Any] = None

    @property
    def dynamics(self):
        return uk.MassForce(np.eye(2), np.zeros(2))

    @property
    def control(self):
        B = lambda t, q: jnp.where(q[1] < self.end, jnp.array([[1.0], [0.0]]), jnp.array([[0.0], [1.0]]))
        return uk.control.Servo(B, uk.Holonomic(lambda t, q: q[0] - jnp.sin(t), name="path"))


def pendulum_exact(t):
    """Return x, y of A01: length 1 m, released from rest at the level of its pivot; Jacobi's functions with k = sin
    45°."""
    k2 = 0.5
    sn = ellipj(ellipk(k2) - np.sqrt(GRAVITY) * np.asarray(t), k2)[0]
    theta = -2 * np.arcsin(np.sqrt(k2) * sn)
    return np.stack([np.sin(theta), -np.cos(theta)], axis=-1)


def redundant_only_on_the_constraint():
    """The row of the pendulum's rod, and its product with a function of q: the rank is 1 only where q q = 1."""
    rod = lambda t, q: q @ q - 1
    again = lambda t, q: jnp.exp(q[0] + q[1]) * rod(t, q)
    energies = uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: GRAVITY * q[1])
    return uk.System(energies, [uk.Holonomic(rod, name="rod"), uk.Holonomic(again, name="rod again")])


def four_bar():
    """Benchmark A02 with one window, with three angles from the vertical: model, q0, v0, and the exact angle θ(t)."""

    def ends(q):
        rods = jnp.stack([jnp.sin(q), jnp.cos(q)], axis=-1)
        return rods[0] + rods[1], jnp.array([1.0, 0.0]) + rods[2]

    def centres(q):
        rods = jnp.stack([jnp.sin(q), jnp.cos(q)], axis=-1)
        return jnp.stack([rods[0] / 2, rods[0] + rods[1] / 2, jnp.array([1.0, 0.0]) + rods[2] / 2])

    def kinetic(t, q, v):
        import jax

        return jnp.sum(jax.jvp(centres, (q,), (v,))[1] ** 2) / 2 + v @ v / 24

    loop = uk.Holonomic(lambda t, q: ends(q)[0] - ends(q)[1], name=("loop x", "loop y"))
    model = uk.System(uk.Lagrangian(kinetic, lambda t, q: GRAVITY * jnp.sum(centres(q)[:, 1])), loop)

    def exact(t):
        fall = lambda _, y: [y[1], GRAVITY * (1 + 1) / (2 / 3 + 1) * np.sin(y[0])]
        return solve_ivp(fall, (0, t[-1]), [0, 1], "DOP853", t, rtol=1e-13, atol=1e-13).y[0]

    return model, [0.0, np.pi / 2, 0.0], [1.0, 0.0, 1.0], exact


def in_velocities(system: Any, q: Any, rate: Any, acceleration: Any = None) -> Any:
    """Return v, and v̇ if q̈ is given, by least squares: q̇ = N(q) v and q̈ = N v̇ + Ṅ v."""
    if system.kinematic_map is None:
        return rate if acceleration is None else (rate, acceleration)
    N = jax.jacfwd(lambda v: system.kinematic_map(q, v))(jnp.zeros(system.tree.n))
    v = jnp.linalg.lstsq(N, rate)[0]
    if acceleration is None:
        return v
    turning = jax.jvp(lambda q: system.kinematic_map(q, v), (q,), (rate,))[1]
    return v, jnp.linalg.lstsq(N, acceleration - turning)[0]
