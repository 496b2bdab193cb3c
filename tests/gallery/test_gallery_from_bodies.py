"""The gallery, which is written as matrices and energies, once more as bodies and joints: the same mechanisms."""

from collections.abc import Callable
from dataclasses import fields
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._parameters import find, put, value_at
from ukjax._rotation import quaternion_of
from ukjax.control import Feedback, Servo
from ukjax.joints import Gear, Planar, Prismatic, Revolute, Rolling, Strut

from ..mechanisms import in_velocities

# --- the mechanisms, each with the numbers of its twin in the gallery ----------------------------------------------


def flat(mass, inertia, along=0.0, across=0.0):
    """A body in the plane: ``inertia`` about its centre, which is at (along, across)."""
    return uk.Body(mass, (along, across, 0), (0, 0, inertia))


def parallel_robot(twin, **more):
    """Three chains of two links, from the ground to one point."""
    bodies, joints = {}, {}
    for i in range(3):
        a, b = f"a{i + 1}", f"b{i + 1}"
        bodies |= {a: flat(twin.ma[i], twin.Ia[i], twin.ra[i]), b: flat(twin.mb[i], twin.Ib[i], twin.rb[i])}
        joints[f"q{a}"] = Revolute("ground", a, at=(twin.xA[i], twin.yA[i], 0))
        joints[f"q{b}"] = Revolute(a, b, at=(twin.L, 0, 0))
    end = (twin.L, 0, 0)
    joints |= {f"end{i}": Revolute(f"b{i}", "b1", at=end, to=end) for i in (2, 3)}
    return uk.Mechanism(bodies, joints, (0, 0, 0), **more)


def parallel_robot_with_a_motor(twin, **more):
    robot = parallel_robot(twin, **more)
    return robot.driven(Feedback(robot.along("qa1"), lambda t, q, v: twin.torque * jnp.cos(jnp.pi * t)[None]))


def parallel_robot_on_a_line(twin, **more):
    robot = parallel_robot(twin, **more)
    first = twin.ends(twin.start()[0])[0]

    def off_the_line(t, q):
        link = robot.pose(q)["b1"]
        return (link.p + twin.L * link.R[:, 0])[:2] - first - twin.amplitude * jnp.stack([jnp.cos(t) - 1, 0 * t])

    return robot.driven(Servo(robot.along("qa1", "qa2", "qa3"), uk.Holonomic(off_the_line)))


def coordinated_robots(twin, **more):
    """Two robots whose hands, links 3 and 4, are hinged to each other: u1 to u6 are joints and motors."""
    links = {f"link{i + 1}": flat(twin.m[i], twin.I[i], twin.l[i] / 2) for i in range(5)}
    end = [(l, 0, 0) for l in twin.l]
    joints = {
        "u1": Revolute("ground", "link1"),
        "u2": Revolute("link1", "link2", at=end[0]),
        "u3": Revolute("link2", "link3", at=end[1]),
        "u6": Revolute("ground", "link5", at=(twin.L, 0, 0), to=end[4]),
        "u5": Revolute("link5", "link4", to=end[3]),
        "u4": Revolute("link4", "link3", to=end[2]),
    }
    robots = uk.Mechanism(links, joints, (0, -twin.g, 0), **more)

    def off_the_path(t, q):
        load = robots.pose(q)["link3"]
        x, y = (load.p + twin.l[2] / 2 * load.R[:, 0])[:2]
        angle = jnp.arctan2(load.R[1, 0], load.R[0, 0])
        return jnp.stack([x - 1.5 * twin.l[2], y - twin.l[2] / 2 * (1 - jnp.cos(t)), angle])

    return robots.driven(Servo(robots.along("u1", "u2", "u3", "u4", "u5", "u6"), uk.Holonomic(off_the_path)))


def four_bar(twin, **more):
    """Upright, and clockwise."""
    rod, end = flat(twin.m, twin.m * twin.l**2 / 12, across=twin.l / 2), (0, twin.l, 0)
    joints = {
        "theta1": Revolute("ground", "left", axis="-z"),
        "turn": Revolute("left", "coupler", axis="-z", at=end),
        "theta3": Revolute("ground", "right", axis="-z", at=(twin.l, 0, 0)),
        "pin": Revolute("right", "coupler", axis="-z", at=end, to=end),
    }
    return uk.Mechanism({"left": rod, "coupler": rod, "right": rod}, joints, (0, -twin.g, 0), **more)


def andrews_squeezer(twin, **more):
    s = twin
    along = [s.ra, -s.da, s.sb, 0.0, s.ta, s.zf - s.fa, -s.ub]
    across = [0.0, 0.0, -s.sa, s.ea - s.e, s.tb, 0.0, -s.ua]
    bodies = {f"K{i + 1}": flat(s.m[i], s.I[i], along[i], across[i]) for i in range(7)}
    end = {"K2": (-s.d, 0, 0), "K3": (0, -s.ss, 0), "K4": (0, -s.e, 0), "K6": (s.zf, 0, 0)}
    joints = {
        "beta": Revolute("ground", "K1"),
        "Theta": Revolute("K1", "K2", at=(s.rr, 0, 0)),
        "gamma": Revolute("ground", "K3", at=(s.xb, s.yb, 0)),
        "delta": Revolute("ground", "K5", at=(s.xa, s.ya, 0)),
        "Phi": Revolute("K5", "K4", at=(s.zt, 0, 0)),
        "epsilon": Revolute("ground", "K7", at=(s.xa, s.ya, 0)),
        "Omega": Revolute("K7", "K6", at=(0, -s.u, 0)),
        "spring": Strut("ground", "K3", at=(s.xc, s.yc, 0), to=(s.sd, -s.sc, 0), stiffness=s.c0, rest=s.l0),
    }
    joints |= {f"E{i}": Revolute(f"K{i}", "K2", at=end[f"K{i}"], to=end["K2"]) for i in (3, 4, 6)}
    squeezer = uk.Mechanism(bodies, joints, (0, 0, 0), **more)
    return squeezer.driven(Feedback(squeezer.along("beta"), lambda t, q, v: s.mom[None]))


def double_pendulum(twin, **more):
    rod = lambda mass, length: flat(mass, mass * length**2 / 12, across=-length / 2)
    joints = {"pivot": Revolute("ground", "upper"), "elbow": Revolute("upper", "lower", at=(0, -twin.l1, 0))}
    bodies = {"upper": rod(twin.m1, twin.l1), "lower": rod(twin.m2, twin.l2)}
    return uk.Mechanism(bodies, joints, (0, -twin.g, 0), **more)


def arms(twin, **more):
    """Arms that hang in a row, from inertias about the upper pins."""
    bodies, joints, last, at = {}, {}, "ground", None
    for i in range(twin.m.size):
        name, distance = f"arm{i + 1}", twin.h[i] / twin.m[i]
        bodies[name] = flat(twin.m[i], twin.I[i] - twin.h[i] * distance, across=-distance)
        joints[f"pin{i + 1}"] = Revolute(last, name, at=at, damping=twin.k[i])
        last, at = name, (0, -twin.L[i], 0)
    return uk.Mechanism(bodies, joints, (0, -twin.g, 0), **more)


def acrobot(twin, **more):
    """Arms whose motors' rotors turn with them, the second one in the first arm."""
    plain = arms(twin)
    joints = dict(plain.joints.items()) | {
        "axle1": Revolute("ground", "rotor1"),
        "axle2": Revolute("arm1", "rotor2"),
        "gear1": Gear("axle1", "pin1", ratio=twin.gear),
        "gear2": Gear("axle2", "pin2", ratio=-twin.gear),
    }
    rotor = flat(0.0, twin.J)
    bodies = dict(plain.bodies.items()) | {"rotor1": rotor, "rotor2": rotor}
    machine = uk.Mechanism(bodies, joints, (0, -twin.g, 0), **more)

    def torque(t, q, v):
        motors = jnp.stack([jnp.interp(t, twin.times, column) for column in twin.torque.T])
        return motors - twin.c * (2 / jnp.pi) * jnp.arctan(100 * v[:2])

    return machine.driven(Feedback(machine.along("pin1", "pin2"), torque))


def scara(twin, **more):
    bodies = {"lower": flat(twin.m1, twin.Iz1, across=twin.r1), "upper": flat(twin.m2, twin.Iz2, across=twin.r2)}
    bodies |= {"wrist": flat(twin.m3, twin.Iz3), "tool": flat(twin.m4, twin.Iz4)}
    joints = {
        "q1": Revolute("ground", "lower", at=(0, 0, twin.l0)),
        "q2": Revolute("lower", "upper", at=(0, twin.l1, 0)),
        "q3": Revolute("upper", "wrist", at=(0, twin.l2, 0)),
        "q4": Prismatic("wrist", "tool"),
    }
    robot = uk.Mechanism(bodies, joints, (0, 0, -twin.g), **more)

    def off_the_path(t, q):
        R, p = robot.pose(q)["tool"]
        return jnp.append(p, jnp.arctan2(R[1, 0], R[0, 0])) - twin.path(t)

    return robot.driven(Servo(robot.along(*joints), uk.Holonomic(off_the_path, twin.alpha, twin.beta)))


def cart_pole(twin, **more):
    bodies = {"cart": uk.Body(twin.M), "pole": uk.Body(twin.m, (0, twin.l, 0))}
    joints = {"x": Prismatic("ground", "cart", axis="x"), "theta": Revolute("cart", "pole", axis="-z")}
    machine = uk.Mechanism(bodies, joints, (0, -twin.g, 0), **more)
    swing = uk.Holonomic(lambda t, q: q[1] - twin.swing * jnp.sin(twin.omega * t))
    return machine.driven(Servo(machine.along("x"), swing))


def mobile_robot(twin, **more):
    """Two wheels that roll, neither of them sideways: one row more than there is."""
    wheel = uk.Body(0.0, inertia=(0, twin.Jw, 0))
    bodies = {"chassis": uk.Body(twin.m, inertia=(0, 0, twin.J)), "right": wheel, "left": wheel}
    joints = {
        "axle": Planar("ground", "chassis", at=(0, 0, twin.r)),
        "right": Revolute("chassis", "right", axis="y", at=(0, -twin.b, 0)),
        "left": Revolute("chassis", "left", axis="y", at=(0, twin.b, 0)),
        "right_rim": Rolling("ground", "right", radius=twin.r),
        "left_rim": Rolling("ground", "left", radius=twin.r),
    }
    robot = uk.Mechanism(bodies, joints, **more)

    def off_the_path(t, q):
        R, p = robot.pose(q)["chassis"]
        return (p + twin.d * R[:, 0])[:2] - twin.path(t)

    return robot.driven(Servo(robot.along("right", "left"), uk.Holonomic(off_the_path)))


# --- which is which ------------------------------------------------------------------------------------------------


class Rebuilt(NamedTuple):
    """``place`` gives the mechanism's coordinates from those of its twin, None where they have the same names;
    ``carried`` the joint whose force is the multiplier of the twin's rows, less that of the next one if there is one.
    """

    build: Callable
    place: Callable | None = None
    carried: dict[str, tuple[str, ...]] = {}


def between(angles):
    """Angles of arms in a row, from those against one direction."""
    return jnp.diff(angles, prepend=0.0)


ARMS = lambda q: between(q[2::3])
LOOPS = {"loop 1-2": ("end2",), "loop 1-3": ("end3",)}
BASES = {f"base {i}": (f"qa{i}",) for i in (1, 2, 3)}
PINS = {"pin 1": ("pin1", "pin2"), "pin 2": ("pin2",)}
THREE_PINS = {"pin 1": ("pin1", "pin2"), "pin 2": ("pin2", "pin3"), "pin 3": ("pin3",)}
AT_E = {"E by 3": ("E3",), "E by 5-4": ("E4",), "E by 7-6": ("E6",)}

REBUILT = {
    "parallel_robot": Rebuilt(parallel_robot_with_a_motor, None, LOOPS | BASES),
    "parallel_manipulator": Rebuilt(parallel_robot_on_a_line, None, LOOPS),
    "four_bar": Rebuilt(four_bar, lambda q: jnp.stack([q[0], q[1] - q[0], q[2]]), {"loop": ("pin",)}),
    "andrews_squeezer": Rebuilt(andrews_squeezer, None, AT_E),
    "parallel_robot_tracking": Rebuilt(parallel_robot_on_a_line, None, LOOPS | BASES),
    "coordinated_robots": Rebuilt(
        coordinated_robots, lambda q: jnp.append(between(q[:3]), between(q[:2:-1])), {"loop": ("u6",)}
    ),
    "double_pendulum": Rebuilt(double_pendulum, ARMS, {"pivot": ("pivot",), "elbow": ("elbow",)}),
    "triple_arm_pendulum": Rebuilt(arms, ARMS, THREE_PINS),
    "acrobot": Rebuilt(acrobot, lambda q: jnp.array([1, 1, 6, -6]) * jnp.tile(ARMS(q), 2), PINS),
    "scara": Rebuilt(scara),
    "cart_pole": Rebuilt(cart_pole),
    "mobile_robot": Rebuilt(mobile_robot, lambda q: q),
}


def names_of(system):
    return [name for name, _ in system.coordinates]


def twins(name, formulation="joint"):
    """The gallery's, the one of bodies, and the coordinates of this as a function of those of the former."""
    twin, (build, place, _) = uk.systems.named(name), REBUILT[name]
    mechanism, in_joints = build(twin, formulation=formulation), build(twin)
    place = place or (lambda q: q[jnp.array([names_of(twin).index(name) for name in names_of(in_joints)])])

    def in_space(q):
        poses = in_joints.pose(place(q))
        bodies = [link.body for link in mechanism.tree.links]
        return jnp.concatenate([x for body in bodies for x in (poses[body].p, quaternion_of(poses[body].R))])

    return twin, mechanism, place if formulation == "joint" else in_space


@pytest.fixture(autouse=True)
def forget_compiled_programs():
    """After each test: those of all mechanisms are more than a process can map."""
    yield
    jax.clear_caches()


def moved(mechanism, place, q, v, acceleration):
    """Coordinates, velocities and accelerations of the mechanism, from the twin's."""
    rate = lambda q, v: jax.jvp(place, (q,), (v,))[1]
    return place(q), *in_velocities(mechanism, place(q), *jax.jvp(rate, (q, v), (v, acceleration)))


def consistent(system, t, q, v):
    """On the constraints: by Newton's method, in NumPy, the rates by one step of it."""
    off = eqx.filter_jit(lambda t, q: (system.position_slope(t, q, v), system.position_residual(t, q)))
    too_fast = eqx.filter_jit(lambda t, q, v: (system.velocity_slope(t, q, v), system.velocity_residual(t, q, v)))
    step = lambda slope, residual: np.linalg.pinv(slope, 1e-9) @ residual
    for _ in range(12):
        q = q - step(*off(t, q))
    return q, v - step(*too_fast(t, q, v))


def states(twin, rng, count):
    """Some, near the start but for the task of its control."""
    free = uk.System(twin.dynamics, twin.constraints)
    for t in np.linspace(0.0, 0.8, count):
        (q, v), (aside, faster) = twin.start(), rng.normal(size=(2, len(twin.coordinates)))
        yield t, *consistent(free, t, q + 0.1 * aside, v + 2 / min(1.0, twin.end) * faster)


def close(found, expected, tolerance=1e-10):
    size = np.max(np.abs(expected), initial=1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size)


def looking(system):
    """What there is at an instant that no coordinates are needed to compare, and the acceleration."""
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


INSTANTS = "parallel_robot_tracking", "coordinated_robots", "triple_arm_pendulum", "scara", "mobile_robot"
"""A servo, loops with redundant rows, hanging arms, slides and wheels; the others are alike."""
PAIRS = [*((name, "joint") for name in INSTANTS), ("four_bar", "absolute")]


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_instants(pair, rng):
    """Accelerations, energies, the motors' torques, and the forces in the joints."""
    twin, mechanism, place = twins(*pair)
    look, look_at_twin, carried = looking(mechanism), looking(twin), REBUILT[pair[0]].carried
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


@pytest.mark.optimised
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("four_bar", "absolute"), ("mobile_robot", "joint")])
def test_motion(name, kind):
    """What is the same at every instant moves as one: a loop, stiff ones, wheels with redundant rows."""
    twin, mechanism, place = twins(name, kind)
    ts = np.linspace(0, min(0.2, twin.end / 10), 5)
    q, v = consistent(twin, 0.0, *twin.start())
    expected = uk.simulate(twin, q, v, ts, dt=ts[-1] / 200)
    Q, V, _ = jax.vmap(lambda q, v: moved(mechanism, place, q, v, v))(expected.q, expected.v)
    found = uk.simulate(mechanism, Q[0], V[0], ts, dt=ts[-1] / 200)
    close(found.q, Q, 1e-9)
    close(found.v, V, 1e-9)


def led(system, q, v, by):
    """The acceleration of the first of some coordinates, which stay as they are while the rest is fitted to them."""
    q, v = uk.project(system, 0.0, q, v, fixed=by)
    return uk.constrained_motion(system(0.0, q, v)).acceleration[names_of(system).index(by[0])]


@pytest.mark.slow
def test_derivatives_by_the_numbers_of_the_twin(rng):
    """By each mass, length and place, which are joint points, points of loops and centres of bodies."""
    name, by = "parallel_robot", ("qa1", "qa2")
    twin, mechanism, place = twins(name)
    ((_, q, v),) = states(twin, rng, 1)
    Q, V, _ = moved(mechanism, place, q, v, v)
    expected = eqx.filter_jit(eqx.filter_grad(lambda twin: led(twin, q, v, by)))(twin)
    found = eqx.filter_jit(eqx.filter_grad(lambda twin: led(REBUILT[name].build(twin), Q, V, by)))(twin)
    for field in fields(twin):
        assert np.any(getattr(expected, field.name)), field.name
        close(getattr(found, field.name), getattr(expected, field.name), 1e-9)


@pytest.mark.slow
def test_derivatives_by_the_numbers_of_bodies_and_joints(rng):
    """By differences: what the twin has no name for too, where a loop is closed among it."""
    twin, mechanism, place = twins("andrews_squeezer")
    ((_, q, v),) = states(twin, rng, 1)
    q, v, _ = moved(mechanism, place, q, v, v)
    names = ("bodies.K4.mass", "bodies.K6.inertia[2]", "bodies.K3.centre[1]", "joints.Omega.at[1]", "joints.E4.at[1]")
    names += ("joints.gamma.at[0]", "joints.E6.at[0]", "joints.E4.to[0]", "joints.E4.to[1]", "joints.spring.to[0]")
    places = [find(mechanism, name, "parameter")[0] for name in names]
    values = jnp.stack([value_at(mechanism, place) for place in places])
    one = eqx.filter_jit(lambda values: led(put(mechanism, places, values), q, v, ("beta",)))
    slope = jax.jit(jax.grad(one))(values)
    for i, name in enumerate(names):
        share = 2e-3 if name.startswith("bodies") else 2e-4
        h = jnp.zeros(len(names)).at[i].set(share * abs(values[i] or 0.03))
        wide, narrow = ((one(values + x) - one(values - x)) / (2 * x[i]) for x in (h, h / 2))
        np.testing.assert_allclose(slope[i], (4 * narrow - wide) / 3, rtol=1e-6, err_msg=name)
