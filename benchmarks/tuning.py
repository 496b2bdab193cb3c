"""Tuned gains against those of the papers: cost on starts that were not used for tuning."""

from typing import Any

import numpy as np

import ukjax as uk

STARTS, SPREAD = 8, 0.01


CASES = {  # gains, end [s], step [s], weight of the effort
    "Scara": (("alpha", "beta"), 4.0, 0.005, 1e-6),
    "FlexibleJointManipulator": (("P", "rate"), 2.0, 0.005, 1e-9),
}


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    rows = []
    for name, (free, end, dt, effort) in CASES.items():
        system = getattr(uk.systems, name)()
        rng = np.random.default_rng(0)
        q, v = (np.asarray(x) + SPREAD * rng.normal(size=(2 * STARTS, x.size)) for x in system.start())
        ts = np.linspace(0.0, end, 201)
        held_out = q[STARTS:], v[STARTS:]
        start_of = lambda model, q, v: model.placed(q, v)
        how: dict[str, Any] = dict(dt=dt, effort=effort, held_out=held_out, start_of=start_of)
        found = uk.tune(system, free, q[:STARTS], v[:STARTS], ts, **how)
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
