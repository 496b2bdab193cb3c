"""Drift without correction, with Baumgarte's gains and with projection, on motions known exactly, over 10 s.

The pendulum of the IFToMM benchmark A01 (exact by Jacobi's functions) and a four-bar linkage with parallel rockers
(benchmark A02 with one window, exact by reduction to one angle), each at equal tolerance and at equal step.
"""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk

import ukjax as uk

END, GRAVITY = 10.0, 9.81


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    controls: dict[str, tuple[str, tuple[Any, ...]]] = {
        "none": ("none", ()),
        "Baumgarte, rate 5/s": ("none", uk.critically_damped(5.0)),
        "Baumgarte, rate 20/s": ("none", uk.critically_damped(20.0)),
        "projection": ("projection", ()),
    }
    steppings: dict[str, dict[str, Any]] = {
        "Dopri8, rtol 1e-9": {},
        "Dopri8, rtol 1e-6": {"rtol": 1e-6, "atol": 1e-6},
        "Dopri5, dt 0.01": {"dt": 0.01, "solver": dfx.Dopri5()},
    }
    rows = []
    for mechanism in (pendulum, four_bar):
        for stepping, how in steppings.items():
            for control, (drift, gains) in controls.items():
                model, q0, v0, exact = mechanism(gains)
                ts = np.linspace(0, END, 201)
                motion = uk.simulate(model, q0, v0, ts, drift=drift, max_steps=20_000, throw=False, **how)
                energy = np.asarray(motion.energy)
                row = {"mechanism": mechanism.__name__, "stepping": stepping, "drift control": control}
                if not np.isfinite(energy).all():
                    rows.append(row | {"stopped after s": float(np.asarray(motion.t)[np.isfinite(energy)].max())})
                    continue
                rows.append(
                    row
                    | {
                        "error of q": float(np.abs(np.asarray(motion.q) - exact(ts)).max()),
                        "residual": float(np.abs(np.asarray(motion.residual)).max()),
                        "relative energy drift": float(np.abs(energy - energy[0]).max() / np.ptp(energy_scale(motion))),
                        "steps": int(motion.steps),
                    }
                )
    return rows


def energy_scale(motion):
    """The kinetic energy along the motion, the scale for errors of the energy."""
    return np.sum(np.asarray(motion.v) ** 2, axis=-1) / 2


def pendulum(gains):
    """A point on a rod of 1 m, released at rest from the horizontal."""
    rod = uk.Holonomic(lambda t, q: q @ q - 1, *gains, name="rod")
    model = uk.System(uk.Lagrangian(lambda t, q, v: v @ v / 2, lambda t, q: GRAVITY * q[1]), rod)

    def exact(t):
        k = np.sin(np.pi / 4)  # amplitude 90 degrees
        rate = np.sqrt(GRAVITY)
        sn = ellipj(ellipk(k**2) - rate * t, k**2)[0]
        theta = -2 * np.arcsin(k * sn)
        return np.stack([np.sin(theta), -np.cos(theta)], axis=-1)

    return model, [-1.0, 0.0], [0.0, 0.0], exact


def four_bar(gains):
    """Two vertical rockers and a coupler, rods of 1 m and 1 kg, in the angles of the three rods; it starts upright with
    1 m/s."""

    def ends(q):
        directions = jnp.stack([jnp.sin(q), jnp.cos(q)], axis=-1)
        return directions[0], directions[0] + directions[1], jnp.array([1.0, 0.0]) + directions[2]

    def centres(q):
        a, b, c = ends(q)
        return jnp.stack([a / 2, (a + b) / 2, (jnp.array([1.0, 0.0]) + c) / 2])

    def kinetic(t, q, v):
        velocity = jax.jvp(centres, (q,), (v,))[1]
        return jnp.sum(velocity**2) / 2 + jnp.sum(v**2) / 24

    loop = uk.Holonomic(lambda t, q: ends(q)[1] - ends(q)[2], *gains, name="loop")
    model = uk.System(uk.Lagrangian(kinetic, lambda t, q: GRAVITY * jnp.sum(centres(q)[:, 1])), loop)

    def exact(t):
        fall = lambda _, y: [y[1], GRAVITY * 2 / (2 / 3 + 1) * np.sin(y[0])]
        angle = solve_ivp(fall, (0, END), [0, 1], "DOP853", t, rtol=1e-13, atol=1e-13).y[0]
        return np.stack([angle, np.full_like(t, np.pi / 2), angle], axis=-1)

    return model, [0.0, np.pi / 2, 0.0], [1.0, 0.0, 1.0], exact
