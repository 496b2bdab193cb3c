"""Systems whose linear analysis has a closed form."""

import jax.numpy as jnp
import numpy as np

import ukjax as uk

GRAVITY = 9.81


def hanging_chain(N, doubled=False):
    """N points of unit mass in (x, y), connected in series by massless rods of unit length."""

    def rods(t, q):
        points = jnp.concatenate([jnp.zeros((1, 2)), q.reshape(N, 2)])
        return jnp.sum(jnp.diff(points, axis=0) ** 2, axis=1) - 1

    def twice(t, q):
        return jnp.concatenate([rods(t, q), 3 * rods(t, q)[::-1]])

    weight = jnp.tile(jnp.array([0.0, -GRAVITY]), N)
    return uk.System(uk.MassForce(np.eye(2 * N), weight), uk.Holonomic(twice if doubled else rods, name="rod"))


def hanging(N):
    return jnp.stack([jnp.zeros(N), -jnp.arange(1.0, N + 1)], axis=1).ravel()


def four_bars(N):
    """N four-bar windows of hanging rods of unit mass and length; the coordinates are angle and centre of each rod.

    The N + 1 rockers and N couplers are pinned by two equations in each joint. All rockers are parallel, so that some
    of these equations are redundant where a coupler is connected to the next rocker. Additional, redundant equations
    make the couplers level.
    """
    rods = 2 * N + 1
    inertia = np.tile([1.0, 1.0, 1 / 12], rods)

    def ends(q):
        x, y, angle = q.reshape(rods, 3).T
        half = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1) / 2
        centre = jnp.stack([x, y], axis=1)
        return centre - half, centre + half

    def joints(t, q):
        first, last = ends(q)
        ground = jnp.stack([jnp.arange(N + 1.0), jnp.zeros(N + 1)], axis=1)
        pinned = [first[: N + 1] - ground, last[:N] - first[N + 1 :], last[1 : N + 1] - last[N + 1 :]]
        level = (last - first)[N + 1 :, 1]
        return jnp.concatenate([*(part.ravel() for part in pinned), level])

    force = jnp.tile(jnp.array([0.0, -GRAVITY, 0.0]), rods)
    rockers = np.stack([np.arange(N + 1.0), np.full(N + 1, -0.5), np.zeros(N + 1)], axis=1)
    couplers = np.stack([np.arange(N) + 0.5, np.full(N, -1.0), np.full(N, np.pi / 2)], axis=1)
    return uk.System(uk.MassForce(np.diag(inertia), force), uk.Holonomic(joints)), np.concatenate([rockers, couplers])


def pendulum(length=1.0, damping=0.0, gravity=GRAVITY):
    """A bob of unit mass in (x, y) on a rod, with viscous damping."""
    force = lambda t, q, v: jnp.stack([0.0 * q[0], -gravity + 0.0 * q[0]]) - damping * v
    rod = uk.Holonomic(lambda t, q: q @ q - length**2, name="rod")
    return uk.System(uk.MassForce(np.eye(2), force), rod, coordinates=(("x", "m"), ("y", "m")))


def cart_pole(mass=0.3, length=0.5, cart=1.0, gravity=GRAVITY):
    """A cart with a point mass on a massless pole, in (cart, x, y); the pole is a constraint."""
    M = jnp.diag(jnp.stack([jnp.asarray(cart), jnp.asarray(mass), jnp.asarray(mass)]))
    pole = uk.Holonomic(lambda t, q: (q[1] - q[0]) ** 2 + q[2] ** 2 - length**2, name="pole")
    weight = lambda t, q, v: jnp.stack([0.0 * q[0], 0.0 * q[0], -mass * gravity + 0.0 * q[0]])
    return uk.System(uk.MassForce(M, weight), pole, coordinates=(("cart", "m"), ("x", "m"), ("y", "m")))
