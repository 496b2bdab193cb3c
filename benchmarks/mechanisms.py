"""The closed loops of the benchmarks, written as by a user, and starts for batches.

Rods in a plane have the coordinates (x, y, angle), bodies in space a position and a unit quaternion (w, x, y, z).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import ukjax as uk
from ukjax.systems import Parameter, parameter


class Case(NamedTuple):
    """A mechanism with its motors off, and a start on its constraints."""

    name: str
    system: uk.System
    q0: Float[Array, " n"]
    v0: Float[Array, " n"]

    def starts(self, batch: int) -> tuple[Float[Array, "batch n"], Float[Array, "batch n"]]:
        """Starts near the first one, on the constraints, with different small velocities."""
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

    Unit rods of 1 kg: cranks a_0 … a_count on the ground at (i, 0), and rods b_i from the end of each crank to the end
    of the next. q = (a, b), absolute angles.
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


def four_bars_by_energies(count: int) -> Case:
    """The same row, defined only by T and V."""

    def ends(q):
        direction = lambda angle: jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
        feet = jnp.stack([jnp.arange(count + 1.0), jnp.zeros(count + 1)], axis=-1)
        tips = feet + direction(q[: count + 1])
        return feet, tips, tips[:-1] + direction(q[count + 1 :])

    def centres(q):
        feet, tips, far = ends(q)
        return jnp.concatenate([feet + tips, tips[:-1] + far]) / 2

    def kinetic(t, q, v):
        moving = jax.jvp(centres, (q,), (v,))[1]
        return jnp.sum(moving**2) / 2 + v @ v / 24

    def closed(t, q):
        _, tips, far = ends(q)
        return (far - tips[1:]).reshape(-1)

    potential = lambda t, q: 9.81 * jnp.sum(centres(q)[:, 1])
    system = uk.System(uk.Lagrangian(kinetic, potential), uk.Holonomic(closed))
    return Case(f"P3_{count} by energies", system, *four_bars(count)[2:])


def windows(count: int) -> Case:
    """Four-bars in a row as in ``four_bars``, but upright, and every rod is a body: IFToMM's A02.

    6 count + 3 coordinates and 6 count + 2 rows. The motion passes poses in which all rods are in line.
    """

    def pins(t, q):
        start, end = _ends(q)
        columns, bars = slice(None, count + 1), slice(count + 1, None)
        feet = jnp.stack([jnp.arange(count + 1.0), jnp.zeros(count + 1)], axis=-1)
        gaps = start[columns] - feet, start[bars] - end[:count], end[bars] - end[1 : count + 1]
        return jnp.concatenate(gaps).reshape(-1)

    dynamics = _rods(np.ones(2 * count + 1), np.ones(2 * count + 1))
    i, half = np.arange(count + 1.0), np.full(count + 1, 0.5)
    columns = np.stack([i, half, np.pi * half], axis=-1)
    bars = np.stack([i[:count] + 0.5, 2 * half[:count], 0 * i[:count]], axis=-1)
    falling = np.concatenate([np.tile([0.5, 0, -1.0], (count + 1, 1)), np.tile([1.0, 0, 0], (count, 1))])
    system = uk.System(dynamics, uk.Holonomic(pins, name="pins"))
    return Case(
        f"{count} windows", system, jnp.asarray(np.concatenate([columns, bars]).ravel()), jnp.asarray(falling.ravel())
    )


def rockers() -> Case:
    """Three equal rockers of 1 m carry a coupler of 2 m: n = 12 and 12 rows, of which one is redundant."""
    lengths, apart = np.array([1.0, 1.0, 1.0, 2.0]), np.array([-1.0, 0.0, 1.0])
    feet = np.stack([apart, 0 * apart], axis=-1)

    def pins(t, q):
        start, end = _ends(q, lengths)
        left, right = start[3], end[3]
        carried = (left + right) / 2 + apart[:, None] * (right - left) / 2
        return jnp.concatenate([start[:3] - feet, end[:3] - carried]).reshape(-1)

    angle = 0.8
    up, turning = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    q0 = np.concatenate([*(np.append(foot + up / 2, angle) for foot in feet), up, [0.0]])
    v0 = np.concatenate([np.tile(np.append(turning / 2, 1.0), 3), turning, [0.0]]) / 2
    system = uk.System(_rods(lengths, lengths), uk.Holonomic(pins, name="pins"))
    return Case("rockers", system, jnp.asarray(q0), jnp.asarray(v0))


CRANK = np.array([0.5, 1.5, 0.3])
"""Lengths [m] of crank, rod and slider, and their masses [kg]."""


def _crank_pins(t, q):
    start, end = _ends(q[:6], CRANK[:2])
    return jnp.concatenate([start[0], end[0] - start[1], end[1] - q[6:8], q[7:]])


CRANK_PINS = uk.Holonomic(_crank_pins, name="pins")


def slider_crank() -> Case:
    """Crank, rod and slider, each a body in the plane: n = 9 and 8 rows."""
    crank, rod, _ = CRANK
    angle = np.pi / 3
    lean = -np.arcsin(crank / rod * np.sin(angle))
    pin = crank * np.array([np.cos(angle), np.sin(angle)])
    slider = pin + rod * np.array([np.cos(lean), np.sin(lean)])
    q0 = np.concatenate([pin / 2, [angle], (pin + slider) / 2, [lean], slider, [0.0]])
    return Case("slider-crank", uk.System(_rods(CRANK, CRANK), CRANK_PINS), jnp.asarray(q0), jnp.zeros(9))


class SliderCrank(uk.AbstractSystem):
    """The same mechanism, with two masses [kg] as parameters."""

    rod: Parameter = parameter(CRANK[1])
    slider: Parameter = parameter(CRANK[2])

    @property
    def constraints(self) -> tuple[uk.Holonomic, ...]:
        return (CRANK_PINS,)

    @property
    def dynamics(self) -> uk.MassForce:
        return _rods(jnp.stack([CRANK[0], self.rod, self.slider]), CRANK)


def _ends(q, lengths: Any = 1.0):
    """Both ends of each rod."""
    rods = q.reshape(-1, 3)
    lengths = jnp.broadcast_to(jnp.asarray(lengths), len(rods))
    half = lengths[:, None] / 2 * jnp.stack([jnp.cos(rods[:, 2]), jnp.sin(rods[:, 2])], axis=-1)
    return rods[:, :2] - half, rods[:, :2] + half


def _rods(masses, lengths):
    """Masses and weights of thin rods."""
    inertia = jnp.stack([masses, masses, masses * lengths**2 / 12], axis=-1).ravel()
    weight = jnp.stack([0 * masses, -9.81 * masses, 0 * masses], axis=-1).ravel()
    return uk.MassForce(jnp.diag(inertia), weight)


X, Y, Z = np.eye(3)
GROUND = np.array([0.0, 0, 0, 1, 0, 0, 0])


def bricard() -> Case:
    """Bricard's loop of six hinges along the edges of a cube, IFToMM's A04: five rods of 1 m and 1 kg, n = 35.

    Its 35 rows, hinges and unit quaternions, have rank 34: counting joints, it could not move.
    """
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1.0]])
    pins = Y, Z, X, Y, Z, X
    middle, half = (corners[1:] + corners[:-1]) / 2, (corners[1:] - corners[:-1]) / 2
    inertia = np.stack([np.diag(np.where(edge, 0.02 / 12, 1.01 / 12)) for edge in half != 0])

    def hinges(t, q):
        rods = _bodies(q)
        rows = [hinge(rods[i], half[i], rods[i + 1], -half[i + 1], pins[i + 1]) for i in range(4)]
        rows += [hinge(GROUND, corners[0], rods[0], -half[0], pins[0])]
        rows += [hinge(GROUND, corners[5], rods[4], half[4], pins[5])]
        return jnp.concatenate(rows)

    down = np.array([0, -9.81, 0])
    weight = lambda t, q: -jnp.sum(_bodies(q)[:, :3] @ down)
    energies = uk.Lagrangian(lambda t, q, v: _kinetic(np.ones(5), inertia, q, v), weight)
    system = uk.System(energies, [uk.Holonomic(hinges, name="hinges"), UNITS])
    return Case("bricard", system, jnp.asarray(_unturned(middle)), jnp.zeros(35))


def governor() -> Case:
    """A flyball governor with stiff springs, IFToMM's A05: spindle, two arms with balls, slider; n = 28, 24 rows."""
    stiffness, damping, rest = 8e5, 4e4, 0.5
    tilt, offset, ball, rod = np.deg2rad(30), 0.05, 5.0, 0.3
    along = [np.array([side * np.cos(tilt), 0, -np.sin(tilt)]) for side in (1, -1)]
    outward = [side * offset * X for side in (1, -1)]
    reach = (rod / 2 + ball) / (rod + ball)  # distance of an arm's hinge from its centre of mass

    def arm_inertia(d):
        thick = rod * 1e-4 / 12
        across = rod / 12 + thick + rod * (reach - 0.5) ** 2 + ball * (1 - reach) ** 2
        return across * (np.eye(3) - np.outer(d, d)) + thick * 2 * np.outer(d, d)

    masses = np.array([rod, rod + ball, rod + ball, 3.0])
    spindle = rod / 12 * np.diag([1.0001, 1.0001, 2e-4])
    inertia = np.stack([spindle, *map(arm_inertia, along), 0.005 * np.eye(3)])

    def springs(q):
        """Lengths of the springs, from the middle of each arm to the slider."""
        _, *arms, slider = _bodies(q)
        ends = [(arms[i], (0.5 - reach) * along[i], outward[i]) for i in (0, 1)]
        return jnp.stack([jnp.linalg.norm(point(arm, s) - point(slider, r)) for arm, s, r in ends])

    def potential(t, q):
        return 9.81 * masses @ _bodies(q)[:, 2] + stiffness / 2 * jnp.sum((springs(q) - rest) ** 2)

    def dampers(t, q, v):
        _, rate = jax.jvp(springs, (q,), (v,))
        return jax.vjp(springs, q)[1](-damping * rate)[0]

    def joints(t, q):
        spindle, *arms, slider = _bodies(q)
        hinges = [hinge(spindle, 0.5 * Z + outward[i], arms[i], -reach * along[i], Y) for i in (0, 1)]
        turns_with_it = jnp.stack([turned(slider, a) @ turned(spindle, b) for a, b in ((Z, X), (Z, Y), (X, Y))])
        return jnp.concatenate([hinge(GROUND, 0.5 * Z, spindle, 0 * Z, Z), *hinges, slider[:2], turns_with_it])

    places = np.stack([0.5 * Z, *(Z + outward[i] + reach * along[i] for i in (0, 1)), 0.5 * Z])
    spin = 2 * np.pi * Z
    v0 = np.concatenate([np.concatenate([np.cross(spin, place), [0], spin / 2]) for place in places])
    energies = uk.Lagrangian(lambda t, q, v: _kinetic(masses, inertia, q, v), potential, dampers)
    system = uk.System(energies, [uk.Holonomic(joints, name="joints"), UNITS])
    return Case("governor", system, jnp.asarray(_unturned(places)), jnp.asarray(v0))


def turned(body, s):
    """The vector s of the body, in space."""
    w, r = body[3], jnp.asarray(body[4:])
    return (w**2 - r @ r) * s + 2 * (r @ s) * r + 2 * w * jnp.cross(r, s)


def point(body, s):
    """The position in space of the point s of the body."""
    return body[:3] + turned(body, s)


def hinge(first, s, second, r, axis):
    """Five rows: a common point of two bodies, and a common direction, which is ``axis`` if the bodies are not
    rotated."""
    across = [direction for direction in (X, Y, Z) if direction @ axis == 0]
    leaning = jnp.stack([turned(first, direction) @ turned(second, axis) for direction in across])
    return jnp.concatenate([point(first, s) - point(second, r), leaning])


def _bodies(q):
    return q.reshape(-1, 7)


def _unturned(places):
    return np.concatenate([np.append(place, [1, 0, 0, 0]) for place in places])


def _kinetic(masses, inertia, q, v):
    """The kinetic energy, by body-fixed angular velocities ω = 2 Im(p̄ ṗ)."""
    bodies, rates = _bodies(q), _bodies(v)
    w, r, w_rate, r_rate = bodies[:, 3:4], bodies[:, 4:], rates[:, 3:4], rates[:, 4:]
    omega = 2 * (w * r_rate - w_rate * r - jnp.cross(r, r_rate))
    return masses @ jnp.sum(rates[:, :3] ** 2, axis=1) / 2 + jnp.einsum("bi,bij,bj", omega, inertia, omega) / 2


UNITS = uk.Holonomic(lambda t, q: jnp.sum(_bodies(q)[:, 3:] ** 2, axis=1) - 1, name="unit quaternions")
