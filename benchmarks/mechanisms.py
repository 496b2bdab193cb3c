"""The closed loops on which everything is measured, as a user would write them, and starts for a batch of them."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import ukjax as uk


class Case(NamedTuple):
    """A mechanism with its motors off, and a start on its constraints."""

    name: str
    system: uk.System
    q0: Float[Array, " n"]
    v0: Float[Array, " n"]

    def starts(self, batch: int) -> tuple[Float[Array, "batch n"], Float[Array, "batch n"]]:
        """Starts around the first, on the constraints, each with a little speed of its own."""
        rng = np.random.default_rng(0)
        different = min(batch, 64)
        near = lambda x, size: x + size * rng.normal(size=(different, x.size))
        onto = eqx.filter_jit(lambda q, v: jax.lax.map(lambda x: uk.project(self.system, 0.0, *x), (q, v)))
        q, v = onto(near(self.q0, 0.02), near(self.v0, 0.2))
        repeat = lambda x: jnp.tile(x, (-(-batch // different), 1))[:batch]
        return repeat(q), repeat(v)


def three_chains() -> Case:
    """P1: three RR chains joined at a point, 6 coordinates, 4 rows, no gravity (links and bases of Han et al. 2020)."""
    gallery = uk.systems.ParallelManipulator()
    system = uk.System(gallery.dynamics, gallery.loops)
    return Case("P1", system, *uk.project(system, 0.0, *gallery.start()))


def five_links() -> Case:
    """P2: a closed chain of five links, 5 coordinates, 2 rows, gravity (Liu et al. 2015)."""
    gallery = uk.systems.CoordinatedRobots()
    system = uk.System(gallery.dynamics, gallery.closed)
    return Case("P2", system, *uk.project(system, 0.0, *gallery.start()))


def four_bars(count: int) -> Case:
    """P3: four-bars in a row, 2 count + 1 coordinates, 2 count rows, one degree of freedom, gravity.

    Unit rods of 1 kg: cranks a_0 … a_count on the ground at (i, 0), and rods b_i from the end of each to that of the
    next. q = (a, b), absolute angles.
    """
    i = jnp.arange(count)

    def mass_matrix(t, q):
        coupling = jnp.cos(q[:count] - q[count + 1 :]) / 2
        diagonal = jnp.full(2 * count + 1, 1 / 3).at[:count].add(1.0)
        j = count + 1 + i
        return jnp.diag(diagonal).at[i, j].set(coupling).at[j, i].set(coupling)

    def force(t, q, v):
        a, b, va, vb = q[: count + 1], q[count + 1 :], v[: count + 1], v[count + 1 :]
        coupling = jnp.sin(a[:count] - b) / 2
        carried = jnp.full(count + 1, 0.5).at[:count].add(1.0)
        on_a = (-9.81 * carried * jnp.cos(a)).at[:count].add(-coupling * vb**2)
        return jnp.concatenate([on_a, -9.81 / 2 * jnp.cos(b) + coupling * va[:count] ** 2])

    def closed(t, q):
        direction = lambda angle: jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
        ground = jnp.stack([jnp.arange(count + 1.0), jnp.zeros(count + 1)], axis=-1)
        ends = ground + direction(q[: count + 1])
        return (ends[:-1] + direction(q[count + 1 :]) - ends[1:]).reshape(-1)

    system = uk.System(uk.MassForce(mass_matrix, force), uk.Holonomic(closed))
    q0 = jnp.concatenate([jnp.full(count + 1, 1.2), jnp.zeros(count)])
    v0 = jnp.concatenate([jnp.full(count + 1, 1.0), jnp.zeros(count)])
    return Case(f"P3_{count}", system, q0, v0)
