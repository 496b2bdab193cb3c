"""How much better tuned gains follow their task than those of the papers, on starts that were not tuned on."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import ukjax as uk

STARTS, SPREAD = 8, 0.01


def following(motion):
    """Of the flexible joints: β = q̇2 + q̇4, which is to vanish (eq. 69), and the motors' torques."""
    return jnp.mean((motion.v[:, 1] + motion.v[:, 3]) ** 2) + 1e-9 * jnp.mean(jnp.sum(motion.control**2, axis=1))


CASES = {  # gains, end [s], step [s], cost
    "Scara": (("alpha", "beta"), 4.0, 0.005, uk.following_cost(effort=1e-6)),
    "FlexibleJointManipulator": (("P", "rate"), 2.0, 0.005, following),
}


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    rows = []
    for name, (free, end, dt, cost) in CASES.items():
        system = getattr(uk.systems, name)()
        rng = np.random.default_rng(0)
        q, v = (np.asarray(x) + SPREAD * rng.normal(size=(2 * STARTS, x.size)) for x in system.start())
        ts = np.linspace(0.0, end, 201)
        held_out = q[STARTS:], v[STARTS:]
        found = uk.tune(system, free, q[:STARTS], v[:STARTS], ts, dt=dt, cost=cost, held_out=held_out)
        gains = zip(found.names, found.first_values, found.values, strict=True)
        assert found.held_out is not None and found.first_held_out is not None
        rows.append(
            {
                "system": name,
                "gains": ", ".join(f"{gain} {before:.3g} -> {after:.3g}" for gain, before, after in gains),
                "cost": found.cost / found.first,
                "held out": found.held_out / found.first_held_out,
                "evaluations": found.evaluations,
            }
        )
    return rows
