"""Long motions: energy, residual, reversal, order and memory of ``Rattle`` over a million steps, against RungeKutta4.

Rounding errors and slow oscillations of the energy look like a trend of a single motion. So the trend is the mean of
eight motions, whose velocities at the start differ by 0.1 %, with the standard error of this mean.

A four-bar linkage that swings below its pivots, a planar parallel manipulator whose two loops share one point and which
turns without forces, and the fast heavy top of Brüls & Cardona, in quaternions.
"""

import resource
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

SAMPLES, BLOCKS, MEMBERS = 2000, 20, 8
STEPS = {"Rattle()": 1_000_000, "Rattle(4)": 1_000_000, "RungeKutta4()": 1_000_000}
SOLVERS: dict[str, Any] = {"Rattle()": uk.Rattle(), "Rattle(4)": uk.Rattle(4), "RungeKutta4()": uk.RungeKutta4()}


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    return [
        {"system": make.__name__.replace("_", " "), "solver": solver} | measured(*make(), solver)
        for make in (four_bar, parallel_manipulator, heavy_top)
        for solver in SOLVERS
    ]


def measured(model, q0, v0, dt, name):
    steps, how = STEPS[name], dict(dt=dt, solver=SOLVERS[name], throw=False)
    uk.simulate(model, q0, v0, sample_times(dt, steps // 10), **how)
    memory, begin = peak_memory(), time.process_time()
    motion = uk.simulate(model, q0, v0, sample_times(dt, steps), **how)
    motion.q.block_until_ready()
    seconds, memory = time.process_time() - begin, peak_memory() - memory
    relative = np.asarray(energies(model, motion) / kinetic(model, q0, v0)) if motion.finished else np.array([np.nan])
    slope, error = trends(model, q0, v0, sample_times(dt, steps), how)
    end = uk.simulate(model, q0, v0, [0.0, 1000 * dt], **how)
    back = uk.simulate(model, end.q[-1], -end.v[-1], [0.0, 1000 * dt], **how)
    return {
        "dt [s]": dt,
        "steps": int(motion.steps),
        "residual": float(np.max(motion.residual, initial=0)),
        "range of energy": float(np.ptp(relative)),
        "trend of energy": slope,
        "its standard error": error,
        "reversed, error of q": float(np.abs(np.asarray(back.q[-1]) - np.asarray(q0)).max()),
        "order": round(order(model, q0, v0, dt, name), 2),
        "CPU s": round(seconds, 1),
        "memory for 9/10 of the steps [MB]": round(memory, 1),
    }


def sample_times(dt, steps):
    """Multiples of dt, at random so that they do not follow a period of the motion."""
    inner = np.random.default_rng(0).choice(np.arange(1, steps), SAMPLES - 2, replace=False)
    return dt * np.concatenate([[0], np.sort(inner), [steps]])


def kinetic(model, q, v):
    return v @ (model(0.0, q, v).M @ v) / 2


def energies(model, motion):
    if motion.energy is not None:
        return motion.energy
    return jax.vmap(lambda q, v: kinetic(model, q, v))(motion.q, motion.v)  # no potential


def trends(model, q0, v0, ts, how):
    """Mean over the members of the trend of the energy, and the standard error of the mean."""
    q = np.repeat(np.asarray(q0)[None], MEMBERS, axis=0)
    v = np.asarray(v0) * (1 + 1e-3 * np.arange(MEMBERS))[:, None]
    motions = uk.simulate(model, q, v, ts, **how)
    if not np.all(motions.finished):
        return np.nan, np.nan
    slopes = [trend(np.asarray(energies(model, motion) / kinetic(model, q0, v0))) for motion in motions]
    return float(np.mean(slopes)), float(np.std(slopes, ddof=1) / np.sqrt(MEMBERS))


def trend(energy):
    """Change over the whole motion of a line fitted to the means of blocks."""
    means = np.array([np.mean(block) for block in np.array_split(energy - energy[0], BLOCKS)])
    x = np.linspace(-0.5, 0.5, BLOCKS)
    return x @ means / (x @ x)


def order(model, q0, v0, dt, name):
    """The order, measured with two step sizes, 8 dt and 4 dt, over 200 dt."""
    ts = np.array([0.0, 200 * dt])
    reference = uk.simulate(model, q0, v0, ts, rtol=1e-13, atol=1e-13).q[-1]
    errors = [
        float(np.abs(uk.simulate(model, q0, v0, ts, dt=length, solver=SOLVERS[name]).q[-1] - reference).max())
        for length in (8 * dt, 4 * dt)
    ]
    return float(np.log2(errors[0] / errors[1]))


def peak_memory():
    """Peak memory of the process [MB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def four_bar():
    """A four-bar linkage that swings to 52 degrees, and does not reach the flat poses."""
    return uk.systems.FourBar(), jnp.array([jnp.pi, jnp.pi / 2, jnp.pi]), jnp.array([3.0, 0.0, 3.0]), 0.005


def parallel_manipulator():
    robot = uk.systems.ParallelManipulator()
    model = uk.System(robot.dynamics, robot.constraints)
    q0, v0 = uk.project(model, 0.0, robot.start()[0], jnp.array([1.0, -0.5, 0.3, 0.4, -0.2, 0.8]))
    return model, q0, v0, 0.005


def heavy_top():
    problem: Any = uk.verify.problem("heavy_top")
    return *problem.model(), 5e-4
