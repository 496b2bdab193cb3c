"""Systems of the gallery, defined by matrices and energies, against equal mechanisms of bodies and joints."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._parameters import find, put, value_at
from ukjax.control import Servo
from ukjax.joints import Prismatic, Revolute

from ..mechanisms import in_velocities

# --- the mechanisms, with the parameters of the system of the gallery ------------------------------------------------


def flat(mass, inertia, along=0.0, across=0.0):
    """A planar body: ``inertia`` about its centre, which is at (along, across)."""
    return uk.Body(mass, (along, across, 0), (0, 0, inertia))


def four_bar(twin):
    """Angles from the upright position, clockwise."""
    rod, end = flat(twin.m, twin.m * twin.l**2 / 12, across=twin.l / 2), (0, twin.l, 0)
    joints = {
        "theta1": Revolute("ground", "left", axis="-z"),
        "turn": Revolute("left", "coupler", axis="-z", at=end),
        "theta3": Revolute("ground", "right", axis="-z", at=(twin.l, 0, 0)),
        "pin": Revolute("right", "coupler", axis="-z", at=end, to=end),
    }
    return uk.Mechanism({"left": rod, "coupler": rod, "right": rod}, joints, (0, -twin.g, 0))


def scara(twin):
    bodies = {"lower": flat(twin.m1, twin.Iz1, across=twin.r1), "upper": flat(twin.m2, twin.Iz2, across=twin.r2)}
    bodies |= {"wrist": flat(twin.m3, twin.Iz3), "tool": flat(twin.m4, twin.Iz4)}
    joints = {
        "q1": Revolute("ground", "lower", at=(0, 0, twin.l0)),
        "q2": Revolute("lower", "upper", at=(0, twin.l1, 0)),
        "q3": Revolute("upper", "wrist", at=(0, twin.l2, 0)),
        "q4": Prismatic("wrist", "tool"),
    }
    robot = uk.Mechanism(bodies, joints, (0, 0, -twin.g))

    def off_the_path(t, q):
        R, p = robot.pose(q)["tool"]
        return jnp.append(p, jnp.arctan2(R[1, 0], R[0, 0])) - twin.path(t)

    return robot.driven(Servo(robot.along(*joints), uk.Holonomic(off_the_path, twin.alpha, twin.beta)))


# --- pairs of systems ----------------------------------------------------------------------------------------------


class Rebuilt(NamedTuple):
    """``place`` returns coordinates of the mechanism from those of its twin; None where names are equal.

    ``carried`` names the joint whose force is the multiplier of the rows of the twin, minus the force of the next joint
    if there is one.
    """

    build: Callable
    place: Callable | None = None
    carried: dict[str, tuple[str, ...]] = {}


REBUILT = {
    "four_bar": Rebuilt(four_bar, lambda q: jnp.stack([q[0], q[1] - q[0], q[2]]), {"loop": ("pin",)}),
    "scara": Rebuilt(scara),
}


def names_of(system):
    return [name for name, _ in system.coordinates]


def twins(name) -> tuple[Any, ...]:
    """Return the system of the gallery, the mechanism of bodies, and the map of coordinates from first to second."""
    twin, (build, place, _) = uk.systems.named(name), REBUILT[name]
    mechanism = build(twin)
    return twin, mechanism, place or (lambda q: q[jnp.array([names_of(twin).index(x) for x in names_of(mechanism)])])


@pytest.fixture(autouse=True)
def forget_compiled_programs():
    """Clear compiled programs after each test: a process cannot map those of all mechanisms."""
    yield
    jax.clear_caches()


def moved(mechanism, place, q, v, acceleration):
    """Return coordinates, velocities and accelerations of the mechanism from those of the twin."""
    rate = lambda q, v: jax.jvp(place, (q,), (v,))[1]
    return place(q), *in_velocities(mechanism, place(q), *jax.jvp(rate, (q, v), (v, acceleration)))


def consistent(system, t, q, v):
    """Return a state on the constraints, by Newton's method in NumPy; one step for the velocities."""
    off = eqx.filter_jit(lambda t, q: (system.position_slope(t, q, v), system.position_residual(t, q)))
    too_fast = eqx.filter_jit(lambda t, q, v: (system.velocity_slope(t, q, v), system.velocity_residual(t, q, v)))
    step = lambda slope, residual: np.linalg.pinv(slope, 1e-9) @ residual
    for _ in range(12):
        q = q - step(*off(t, q))
    return q, v - step(*too_fast(t, q, v))


def states(twin, rng, count):
    """Return states near the start, without the task of the control."""
    free = uk.System(twin.dynamics, twin.constraints)
    for t in np.linspace(0.0, 0.8, count):
        (q, v), (aside, faster) = twin.start(), rng.normal(size=(2, len(twin.coordinates)))
        yield t, *consistent(free, t, q + 0.1 * aside, v + 2 / min(1.0, twin.end) * faster)


def close(found, expected, tolerance=1e-10):
    size = np.max(np.abs(expected), initial=1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size)


def looking(system):
    """Return a function of the quantities at one time that do not depend on coordinates, and the acceleration."""
    structure = uk.System(system.dynamics, system.constraints)

    def look(t, q, v):
        terms = system(t, q, v)
        motion = uk.constrained_motion(terms)
        by_rows = motion.constraint_force - (0.0 if terms.c is None else terms.c)
        return {
            "acceleration": motion.acceleration,
            "residual": jnp.concatenate([structure.position_residual(t, q), structure.velocity_residual(t, q, v)]),
            "kinetic": v @ terms.M @ v / 2,
            "energy": system.energy(t, q, v),
            "torques": motion.constraint_force if system.control is None else system.command(t, q, v).u,
            "rows": (terms.A, by_rows),
        }

    return eqx.filter_jit(look)


@pytest.mark.slow
@pytest.mark.parametrize("name", REBUILT)
def test_accelerations_energies_torques_and_joint_forces_match_the_twin(name, rng):
    """A loop with redundant rows, and a robot with a slide and a servo."""
    twin, mechanism, place = twins(name)
    look, look_at_twin, carried = looking(mechanism), looking(twin), REBUILT[name].carried
    rows = [row for constraint in twin.constraints for row in constraint.name]
    energies = []
    for t, q, v in states(twin, rng, 3):
        expected = look_at_twin(t, q, v)
        Q, V, acceleration = eqx.filter_jit(moved)(mechanism, place, q, v, expected["acceleration"])
        found = look(t, Q, V)
        np.testing.assert_allclose(found["residual"], 0.0, rtol=0, atol=1e-12)
        close(found["acceleration"], acceleration)
        close(found["kinetic"], expected["kinetic"])
        energies.append((found["energy"], expected["energy"]))
        if isinstance(mechanism.control, Servo):  # the SCARA's torques are its twin's constraint force
            close(found["torques"], expected["torques"])
        if carried:
            reactions = mechanism.reactions(t, Q, V)
            forces = [[reactions[joint].force[:2] for joint in joints] for joints in carried.values()]
            A, by_rows = expected["rows"]
            multipliers = np.linalg.lstsq(A.T, by_rows, rcond=None)[0]
            of_rows = [[multipliers[rows.index(f"{row} {x}")] for x in "xy"] for row in carried]
            close([force - sum(others) for force, *others in forces], of_rows)
    if energies[0][1] is not None:
        of_mechanism, of_twin = np.diff(np.array(energies), axis=0).T
        close(of_mechanism, of_twin)


@pytest.mark.slow
def test_motion_of_a_loop_matches_the_twin():
    """Other mechanisms have equal accelerations at each state, and therefore equal motions."""
    twin, mechanism, place = twins("four_bar")
    ts = np.linspace(0, 0.2, 5)
    q, v = consistent(twin, 0.0, *twin.start())
    expected = uk.simulate(twin, q, v, ts, dt=ts[-1] / 200)
    Q, V, _ = jax.jit(jax.vmap(lambda q, v: moved(mechanism, place, q, v, v)))(expected.q, expected.v)
    found = uk.simulate(mechanism, Q[0], V[0], ts, dt=ts[-1] / 200)
    close(found.q, Q, 1e-9)
    close(found.v, V, 1e-9)


@pytest.mark.slow
def test_derivatives_by_parameters_of_twin_bodies_and_joints_match_differences(rng):
    """Accelerations at one state, differentiated by length and gravity of the twin, from which the mechanism is built,
    and by parameters of bodies, joint points, and the points at which the loop is closed."""
    twin, mechanism, place = twins("four_bar")
    ((_, q, v),) = states(twin, rng, 1)
    q, v, _ = moved(mechanism, place, q, v, v)
    names = ("bodies.coupler.mass", "bodies.right.inertia[2]", "bodies.left.centre[1]", "joints.turn.at[1]")
    names += ("joints.theta3.at[0]", "joints.pin.to[0]", "joints.pin.to[1]")
    places = [find(mechanism, name, "parameter")[0] for name in names]

    def weighed(change):
        altered = eqx.tree_at(lambda twin: (twin.l, twin.g), twin, (twin.l + change[0], twin.g + change[1]))
        built = REBUILT["four_bar"].build(altered)
        built = put(built, places, jnp.stack([value_at(built, place) for place in places]) + change[2:])
        return jnp.array([1.0, 2.0, 3.0]) @ uk.constrained_motion(built(0.0, q, v)).acceleration

    both = jax.jit(jax.value_and_grad(weighed))
    slope = both(jnp.zeros(2 + len(names)))[1]
    for i, name in enumerate(("l", "g", *names)):
        h = np.zeros(slope.size)
        h[i] = 1e-3
        wide, narrow = ((both(x)[0] - both(-x)[0]) / (2 * x[i]) for x in (h, h / 2))
        assert abs(slope[i]) > 1e-3, name
        np.testing.assert_allclose(slope[i], (4 * narrow - wide) / 3, rtol=1e-6, err_msg=name)
