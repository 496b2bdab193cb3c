"""Contacts, impacts and dry friction: errors against closed forms, and times.

"first" includes compilation. The batch of pendulums that bounce on a stop is compared, per step, with the same
pendulums without a stop.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

import ukjax as uk
from ukjax.joints import Revolute

from .apart import apart

G = 9.81
BATCH = 4096
STANDING = 4096  # members of the batch of humanoids


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    return [*ball(), friction_oscillator(), walls(), *pendulums(), *robots(), humanoid()]


def ball():
    """A ball dropped from 1 m, radius 0.1 m, restitution 0.9."""
    fall = uk.MassForce(jnp.eye(1), lambda t, q, v: jnp.array([-G]))
    make = lambda e: uk.System(fall, uk.Unilateral(lambda t, q: q[0] - 0.1, e))
    motion, times = _timed(lambda: uk.simulate(make(0.9), [1.0], [0.0], [0.0, 10.0]))
    first = np.sqrt(1.8 / G)
    yield {"what": "bouncing ball: first impact", "error": abs(float(motion.contacts.impact_times[0]) - first)} | times
    accumulation = float(np.nanmax(motion.contacts.impact_times))
    yield {"what": "bouncing ball: accumulation of impacts", "error": abs(accumulation - 19 * first)}
    heights = lambda e: uk.simulate(make(e), [1.0], [0.0], jnp.array([0.0, 1.0, 2.5])).q[1:, 0]
    exact = np.array([_slope_of_height(t) for t in (1, 2.5)])
    for mode, derivative in (("forward", jax.jacfwd(heights)), ("reverse", jax.jacrev(heights))):
        slope, times = _timed(lambda derivative=derivative: derivative(0.9))
        yield {"what": f"bouncing ball: ∂height/∂e, {mode}", "error": float(np.abs(slope - exact).max())} | times


def _slope_of_height(t):
    """∂height/∂e at e = 0.9, from the closed form in 30 digits."""
    mpmath.mp.dps = 30

    def height(e):
        g = mpmath.mpf("9.81")
        first = mpmath.sqrt(2 * mpmath.mpf("0.9") / g)
        at, speed = first, g * first * e
        while at + 2 * speed / g < t:
            at, speed = at + 2 * speed / g, speed * e
        return speed * (t - at) - g * (t - at) ** 2 / 2

    return float(mpmath.diff(height, mpmath.mpf("0.9")))


def friction_oscillator():
    """m = k = 1, friction 1; the start is 12, with velocity 6."""
    system = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -q), uk.Coulomb(lambda t, q, v: v[0], 1.0))
    motion, times = _timed(lambda: uk.simulate(system, [12.0], [6.0], [0.0, 30.0], rtol=1e-13, atol=1e-13))
    return {"what": "friction oscillator: rests at", "error": abs(float(motion.q[-1, 0]) - 0.6821789367236466)} | times


def walls():
    """A ball between two walls, without energy loss."""
    system = uk.System(
        uk.MassForce(jnp.eye(1), lambda t, q, v: 0 * v), uk.Unilateral(lambda t, q: [q[0], 1 - q[0]], restitution=1.0)
    )
    motion, times = _timed(lambda: uk.simulate(system, [0.3], [1.0], [0.0, 1e5]))
    return {"what": "energy after 1e5 impacts", "error": abs(float(motion.v[-1, 0]) ** 2 - 1)} | times


def pendulums():
    """Rod pendulums, with and without a stop."""
    rod = uk.Body(1.0, centre=(0.5, 0, 0), inertia=(0, 1 / 12, 1 / 12))
    make = lambda **stop: uk.Mechanism({"rod": rod}, {"hinge": Revolute("ground", "rod", axis="y", **stop)})
    q0, v0 = np.linspace(0, 1, BATCH)[:, None], np.zeros((BATCH, 1))
    ts = np.array([0.0, 4.0])
    of_step = {}
    for what, mechanism in (("without stop", make()), ("on a stop", make(limits=(-3.0, 2.0), restitution=0.8))):
        motion, times = _timed(lambda mechanism=mechanism: uk.simulate(mechanism, q0, v0, ts), repeats=5)
        of_step[what] = times["again [s]"] / int(np.sum(np.asarray(motion.steps)))
        impacts = 0 if motion.contacts is None else int(np.sum(np.asarray(motion.contacts.impacts)))
        yield (
            {"what": f"{BATCH} pendulums {what}", "impacts": impacts}
            | times
            | {"ns per step": 1e9 * of_step[what], "ratio": of_step[what] / of_step["without stop"]}
        )


def robots():
    """Robots that fall onto the stops of their joints, in steps of 1 ms by Moreau and Jean."""
    for name in ("seven_axis_arm", "leg", "stewart_platform"):
        robot, ts = uk.load(uk.robots.path(name)).with_stops(), np.linspace(0.0, 1.0, 11)
        q0, v0 = robot.start()
        motion, times = _timed(
            lambda robot=robot, q0=q0, v0=v0, ts=ts: uk.simulate(robot, q0, v0, ts, dt=1e-3, solver=uk.MoreauJean())
        )
        gaps = jax.vmap(lambda t, q, robot=robot: jnp.concatenate([each.gaps(t, q) for each in robot.nonsmooth]))
        yield {
            "what": f"{name} on its stops, 1000 steps",
            "error": float(np.abs(motion.residual).max(initial=0)),
            "penetration": max(0.0, -float(jnp.min(gaps(motion.t, motion.q)))),
        } | times


def humanoid():
    """A humanoid on the eight corners of its feet, by Moreau and Jean and by MuJoCo, on one core."""
    result = apart("standing", "run", STANDING, patience=900.0, cores=1) or {}
    return {"what": "humanoid on eight corners of its feet, 200 steps"} | result


def _timed(function, repeats=3):
    """The result, with the time of the first call and the shortest time of later ones."""
    began = time.perf_counter()
    result = jax.block_until_ready(function())
    first, again = time.perf_counter() - began, []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        again.append(time.perf_counter() - began)
    return result, {"first [s]": first, "again [s]": min(again)}
