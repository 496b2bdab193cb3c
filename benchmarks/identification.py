"""Nine inertial parameters of the parallel manipulator from 20 noisy motions, with ten distant first guesses.

Motors drive it with known torques; the six angles are measured 50 times a second with an error of 1 %. The data
determine seven combinations of the nine parameters: the mass at the common point of the chains may belong to any chain.
The first fit compiles the program; the others reuse it.
"""

import time
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax.systems import Parameter, parameter

FREE = ("Ia", "Ib", "mb")
MOTIONS, SECONDS, RATE, NOISE = 20, 1.0, 50, 0.01


class Driven(uk.systems.ParallelManipulator):
    """The manipulator with the torques amplitude sin(ω t + phase)."""

    torque: Parameter = parameter((0.1, 0.1, 0.1))
    phase: Parameter = parameter((0.0, 1.0, 2.0))

    @property
    def control(self) -> Any:
        motors = jnp.zeros((6, 3)).at[jnp.array([0, 2, 4]), jnp.arange(3)].set(1.0)
        return uk.control.Feedback(motors, lambda t, q, v: self.torque * jnp.sin(8.0 * t + self.phase))


def observed(t, q, v):
    return jnp.concatenate([q, v])


def measured(robot: Driven) -> list[uk.Experiment]:
    """The simulated measurements."""
    rng = np.random.default_rng(0)
    ts = np.arange(0.0, SECONDS + 1e-9, 1 / RATE)
    q0, _ = uk.project(robot, 0.0, *robot.start())
    found = []
    for _ in range(MOTIONS):
        setting = {"torque": rng.uniform(0.3, 1.0, 3) * rng.choice([-1, 1], 3), "phase": rng.uniform(0, 6, 3)}
        this = eqx.tree_at(lambda r: (r.torque, r.phase), robot, tuple(map(jnp.asarray, setting.values())))
        start = uk.project(this, 0.0, q0 + 0.1 * rng.normal(size=6), jnp.zeros(6))
        motion = uk.simulate(this, *start, ts, dt=1 / RATE / 4, solver=uk.RungeKutta4())
        exact = np.concatenate([motion.q, motion.v], axis=1)
        sigma = NOISE * np.sqrt(np.mean(exact**2, axis=0))
        y = exact + sigma * rng.normal(size=exact.shape)
        found.append(uk.Experiment(ts, y, start, sigma=sigma, setting=setting))
    return found


def run(starts: int = 10) -> list[dict[str, Any]]:
    uk.enable_float64()
    truth = Driven()
    experiments = measured(truth)
    exact = {f"{name}[{i}]": float(getattr(truth, name)[i]) for name in FREE for i in range(3)}
    rng, rows = np.random.default_rng(1), []
    for start in range(starts):
        far = {name: getattr(truth, name) * rng.uniform(0.5, 1.5, 3) for name in FREE}
        guess = eqx.tree_at(lambda r: tuple(getattr(r, name) for name in FREE), truth, tuple(far.values()))
        began = time.perf_counter()
        found = uk.fit(guess, experiments, FREE, observe=observed, fit_starts=False)
        seconds = time.perf_counter() - began
        off = [
            abs(c.value / sum(k * exact[name] for name, k in c.coefficients.items()) - 1) for c in found.combinations
        ]
        rows.append(
            {
                "start": start,
                "seconds": seconds,
                "evaluations": found.evaluations,
                "noise": found.noise,
                "rank": found.identifiability.rank,
                "largest error": max(off),
                "undetermined": " ".join(found.undetermined),
                "combinations": "; ".join(map(str, found.combinations)),
            }
        )
    return rows
