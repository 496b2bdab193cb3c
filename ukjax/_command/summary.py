"""Summarise a trajectory as a dictionary of numbers and as a text table."""

from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from .._contact.rows import gaps
from .._labels import force_unit
from .._motion.result import all_ended_well
from .._motion.trajectory.trajectory import Trajectory
from .._run.compile import jit, jit_unoptimised
from .._system import AbstractSystem
from ..systems.base import AbstractMechanism


def summarise(trajectory: Trajectory) -> dict[str, Any]:
    """Return the figures of merit of a run: residuals, rank, energy drift, and error against an exact solution."""
    names = [name for name, _ in trajectory.coordinates]
    t = np.asarray(trajectory.t)
    rank = np.asarray(trajectory.rank)
    result: dict[str, Any] = {
        "t0": float(t[0]),
        "t1": float(t[-1]),
        "samples": int(t.size),
        "steps": int(trajectory.steps),
        "finished": all_ended_well(trajectory.result),
        "reason": trajectory.reason,
        "max_residual": _largest(trajectory.residual),
        "max_position_residual": _largest(trajectory.position_residual),
        "max_velocity_residual": _largest(trajectory.velocity_residual),
        "max_acceleration_residual": _largest(trajectory.acceleration_residual),
        "rows": int(trajectory.acceleration_residual.shape[-1]),
        "rank_min": int(rank.min()),
        "rank_max": int(rank.max()),
        "max_inconsistency": _largest(trajectory.inconsistency),
    }
    model = trajectory.model
    if trajectory.energy is not None:
        energy = np.asarray(trajectory.energy)
        result["energy_start"], result["max_energy_change"] = float(energy[0]), _largest(energy - energy[0])
    exact = _reference(model, trajectory.t) if isinstance(model, AbstractMechanism) else None
    if exact is not None:
        result["max_reference_error"] = _largest(np.asarray(trajectory.q) - np.asarray(exact))
    if trajectory.control is not None:
        result["control"] = _control(trajectory)
    if trajectory.contacts is not None:
        result["contacts"] = _contacts(trajectory)
    directions = trajectory.directions[: trajectory.v.shape[-1] - len(trajectory.states)]
    force = np.abs(np.asarray(trajectory.constraint_force))[:, : len(directions)].max(axis=0)
    direction_names = [name for name, _ in directions]
    result["max_constraint_force"] = dict(zip(direction_names, map(float, force), strict=True))
    result["q_end"] = dict(zip(names, map(float, np.asarray(trajectory.q)[-1]), strict=True))
    result["units"] = dict(trajectory.coordinates + directions)
    if trajectory.states:
        result["states_end"] = {name: float(np.asarray(x)[-1]) for name, x in trajectory.states.items()}
        result["units"] |= dict(trajectory.named_states)
    if trajectory.plan is not None:
        result["plan"] = asdict(trajectory.plan)
    return result


@jit  # compile one program instead of one per operation
def _reference(mechanism, t):
    return jax.vmap(mechanism.reference)(t)


AT_REST = 1e-9
"""A motion is at rest while its speeds are below this part of the largest speed of the motion."""


def _contacts(trajectory: Trajectory) -> dict[str, Any]:
    """Return impacts, changes of the contact mode, time at rest, the largest impulse and force, and penetration."""
    contacts, t = trajectory.contacts, np.asarray(trajectory.t)
    assert contacts is not None and isinstance(trajectory.model, AbstractSystem)
    names = trajectory.rows["contact_force"]
    times, impulses = np.asarray(contacts.impact_times), np.abs(np.asarray(contacts.impulses))
    force = np.abs(np.asarray(trajectory.contact_force))
    gap_values = np.asarray(_gaps(trajectory.model, trajectory.t, trajectory.q))
    speed = np.abs(np.asarray(trajectory.v)).max(axis=-1, initial=0)
    moving = np.flatnonzero(speed > AT_REST * speed.max(initial=0))
    first_at_rest = int(moving[-1]) + 1 if moving.size else 0
    report: dict[str, Any] = {
        "impacts": int(contacts.impacts),
        "changes": int(contacts.changes),
        "first_impact": float(times[0]) if times.size and np.isfinite(times[0]) else None,
        "at_rest_from": float(t[first_at_rest]) if first_at_rest < t.size else None,
        "max_force": _largest_of(force, names),
        "max_impulse": None,
        "max_penetration": max(0.0, -float(np.min(gap_values, initial=0))),
        "touching_end": [name for name, closed in zip(names, np.asarray(contacts.closed)[-1], strict=False) if closed],
    }
    if times.size and np.isfinite(times[0]):
        impulses = np.where(np.isfinite(times)[:, None], impulses, 0)
        largest = _largest_of(impulses, names)
        report["max_impulse"] = largest and largest | {"t": float(times[impulses.max(axis=1).argmax()])}
    return report


def _largest_of(values, names) -> dict[str, Any] | None:
    """The largest entry of ``values`` (..., rows), and the name of its row."""
    if not values.size:
        return None
    of_rows = values.reshape(-1, values.shape[-1]).max(axis=0)
    row = int(of_rows.argmax())
    return {"value": float(of_rows[row]), "of": names[row]}


@jit_unoptimised
def _gaps(model, t, q):
    return jax.vmap(lambda t, q: gaps(model.nonsmooth, t, q))(t, q)


def _control(trajectory: Trajectory) -> dict[str, Any]:
    """Return the largest control values, the rank, and the residuals of the servo task."""
    u = np.abs(np.asarray(trajectory.control)).max(axis=0)
    rank = np.asarray(trajectory.control_rank)
    return {
        "max": {name: float(value) for (name, _), value in zip(trajectory.inputs, u, strict=True)},
        "units": dict(trajectory.inputs),
        "rank_min": int(rank.min()),
        "rank_max": int(rank.max()),
        "task_rows": int(np.asarray(trajectory.task_residual).shape[-1]),
        "task_residual_start": _largest(np.asarray(trajectory.task_residual)[0]),
        "task_residual_end": _largest(np.asarray(trajectory.task_residual)[-1]),
        "max_unreachable": _largest(trajectory.unreachable),
    }


def table(report: dict[str, Any], verbose: bool = False) -> str:
    """Format the report of a run as text."""
    lines = [report["title"], report["source"]]
    runs = report["runs"] if report["as_published"] else {f"drift control: {report['drift']}": report}
    for name, run in runs.items():
        lines += ["", name, *_rows(run), *(_plan_rows(run) if verbose else [])]
    lines += ["", *(f"wrote {file}" for file in report["files"]), f"{report['seconds']:.1f} s in all"]
    return "\n".join(lines)


def _rows(run):
    rank = f"{run['rank_min']}" if run["rank_min"] == run["rank_max"] else f"{run['rank_min']} to {run['rank_max']}"
    rows = [
        ("time", f"{run['t0']:g} to {run['t1']:g} s, {run['samples']} samples, {run['steps']} steps"),
        *([] if run["finished"] else [("stopped", run["reason"])]),
        ("constraints", f"{run['rows']} rows of rank {rank}"),
        ("residual", f"{run['max_residual']:.1e} as written"),
    ]
    levels = (("position", "positions"), ("velocity", "velocities"), ("acceleration", "accelerations"))
    rows += [("", f"{run[f'max_{key}_residual']:.1e} in {word}") for key, word in levels]
    if run["max_inconsistency"] > 1e-9:
        rows.append(("contradiction", f"{run['max_inconsistency']:.1e} of b is out of reach"))
    if "max_energy_change" in run:
        rows.append(("energy", f"{run['energy_start']:.6g} J, changes by {run['max_energy_change']:.1e} J"))
    if "max_reference_error" in run:
        rows.append(("exact motion", f"missed by {run['max_reference_error']:.1e} at most"))
    if "control" in run:
        rows += _control_rows(run["control"])
    if "contacts" in run:
        rows += _contact_rows(run["contacts"])
    units = run["units"]
    force = [f"{name} {value:.4g} {force_unit(units[name])}" for name, value in run["max_constraint_force"].items()]
    rows.append(("largest force", ", ".join(force)))
    end = run["q_end"] | run.get("states_end", {})
    rows.append(("end", ", ".join(f"{name} {value:.6g} {units[name]}".rstrip() for name, value in end.items())))
    return [f"  {label:17}{text}" for label, text in rows]


def _contact_rows(contacts):
    rows = [("contacts", f"{contacts['impacts']} impacts, {contacts['changes']} changes of the contact mode")]
    if contacts["first_impact"] is not None:
        rows.append(("", f"first impact at {contacts['first_impact']:.6g} s"))
    rest = contacts["at_rest_from"]
    rows.append(("", "moves to the end" if rest is None else f"at rest from the sample at {rest:.6g} s"))
    if contacts["max_penetration"]:
        rows.append(("", f"{contacts['max_penetration']:.1e} of penetration at most"))
    if (largest := contacts["max_impulse"]) is not None:
        text = f"{largest['value']:.4g} of {largest['of']} at {largest['t']:.6g} s"
        rows.append(("largest impulse", text))
    if (largest := contacts["max_force"]) is not None:
        rows.append(("contact force", f"{largest['value']:.4g} at most, of {largest['of']}"))
    if contacts["touching_end"]:
        rows.append(("touches at end", ", ".join(contacts["touching_end"])))
    return rows


def _plan_rows(run):
    plan = run["plan"]
    rows = [(name, plan[name]) for name in ("integrator", "reason", "steps", "step", "method")]
    rows += [("fell back" if i == 0 else "", note) for i, note in enumerate(plan["notes"])]
    return [f"  {label:17}{text}" for label, text in rows]


def _control_rows(control):
    largest = [f"{name} {value:.4g} {control['units'][name]}" for name, value in control["max"].items()]
    rows = [("largest control", ", ".join(largest))]
    if control["task_rows"]:
        reachable = f"{control['rank_min']} of {control['task_rows']} rows in reach of the actuators"
        rows.append(("task", f"{control['task_residual_end']:.1e} at the end, {reachable}"))
    return rows


def _largest(x) -> float:
    return float(np.max(np.abs(np.asarray(x)), initial=0))
