"""Adaptive steps for 4096 motions of mixed difficulty: one batch, against the sum of the times of separate classes.

Pendulums whose speeds span three decades need 20 to over 1000 steps each. For the sum, each class of equal speeds is
simulated as a full batch, and its time is divided by the number of classes. In such a batch no member waits for
another. "by vmap": ``vmap`` of one motion within ``jit``, as in a program of a user.
"""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

BATCH, CLASSES, SECONDS = 4096, 16, 5.0


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    pendulum = uk.System(
        uk.Lagrangian(kinetic=lambda t, q, v: v @ v / 2, potential=lambda t, q: 9.81 * q[1]),
        uk.Holonomic(lambda t, q: q @ q - 1, name="rod"),
    )
    speeds = np.repeat(np.logspace(-1, 2, CLASSES), BATCH // CLASSES)
    mixed = np.random.default_rng(0).permutation(speeds)
    ts = np.array([0.0, SECONDS])

    def motion(speeds):
        q0 = jnp.tile(jnp.array([0.0, -1.0]), (len(speeds), 1))
        v0 = jnp.stack([jnp.asarray(speeds), jnp.zeros(len(speeds))], axis=1)
        return lambda: uk.simulate(pendulum, q0, v0, ts)

    together, seconds = _best(motion(mixed))
    alone = sum(_best(motion(np.full(BATCH, speed)))[1] / CLASSES for speed in np.unique(speeds))
    one = eqx.filter_jit(lambda q, v: uk.simulate(pendulum, q, v, ts).q[-1])
    mapped = jax.jit(jax.vmap(lambda v: one(jnp.array([0.0, -1.0]), jnp.stack([v, 0.0 * v]))))
    _, within = _best(lambda: mapped(jnp.asarray(mixed)))
    steps = np.asarray(together.steps)
    common = {"fewest steps": int(steps.min()), "most steps": int(steps.max()), "mean": float(steps.mean())}
    return [
        common | {"what": "all at once", "s": seconds, "share of the sum": seconds / alone},
        common | {"what": "sum of each alone", "s": alone, "share of the sum": 1.0},
        common | {"what": "by vmap", "s": within, "share of the sum": within / alone},
    ]


def _best(function, repeats=5):
    jax.block_until_ready(function())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = jax.block_until_ready(function())
        taken.append(time.perf_counter() - began)
    return result, min(taken)
