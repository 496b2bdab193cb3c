"""Gains and dimensions that make a motion good, by gradients through closed-loop trajectories."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from ._check import check_function
from ._constraint import AccelerationConstraint
from ._files import write_json
from ._fit.parameters import Parameters, check_settings, with_array
from ._precision import Numbers, as_float
from ._motion.diagnose import SimulationError
from ._motion.runge_kutta4 import RungeKutta4
from ._motion.simulate import simulate
from ._motion.trajectory import Trajectory

BEYOND = 1e3
"""What an actuator costs that is driven to twice its limit, in the standard cost."""


STRETCH = float(np.log(1e4))
"""How far x goes: four powers of ten for what is positive."""


class Tuned(eqx.Module):
    """What ``tune`` found: ``model`` with the best ``values`` (p,) of the parameters ``names``, its mean ``cost``, and
    that of the ``first`` guess; on the held-out starts, if there were any, ``held_out`` and ``first_held_out``. The
    motions ``before`` and ``after``, of the held-out starts if there were any, have a leading axis of starts."""

    model: Any
    names: tuple[str, ...] = eqx.field(static=True)
    first_values: Float[np.ndarray, " p"]
    values: Float[np.ndarray, " p"]
    first: float
    cost: float
    first_held_out: float | None
    held_out: float | None
    evaluations: int
    converged: bool
    before: Trajectory
    after: Trajectory

    def __str__(self) -> str:
        width = max(9, *map(len, self.names))
        lines = [f"{'parameter':{width}}  {'before':>12}  {'after':>12}"]
        for name, before, after in zip(self.names, self.first_values, self.values, strict=True):
            lines.append(f"{name:{width}}  {before:12.6g}  {after:12.6g}")
        lines.append(f"{'cost':{width}}  {self.first:12.6g}  {self.cost:12.6g}")
        if self.held_out is not None:
            lines.append(f"{'held out':{width}}  {self.first_held_out:12.6g}  {self.held_out:12.6g}")
        if not self.converged:
            lines.append(f"not converged after {self.evaluations} evaluations")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The table as plain numbers."""
        rows = zip(self.names, self.first_values, self.values, strict=True)
        return {
            "parameters": {name: {"before": float(a), "after": float(b)} for name, a, b in rows},
            "cost": {"before": self.first, "after": self.cost},
            "held_out": None if self.held_out is None else {"before": self.first_held_out, "after": self.held_out},
            "evaluations": self.evaluations,
            "converged": self.converged,
        }

    def save(self, path: str | Path) -> Path:
        """``as_dict`` as JSON; a file of that name is replaced only when the new one is whole."""
        return write_json(Path(path), self.as_dict())


def following_cost(effort: float = 0.0) -> Callable[[Trajectory], Array]:
    """The standard cost of one motion: mean |error|² + ``effort`` mean |force|², over the samples.

    The error is the system's own ``task_error(t, q, v)`` (k,) if it has one, that of its control's task, or that of the
    constraints of a system without one, as they are written; the force is u, or the constraint force. Where the control
    has limits, what goes beyond them costs as well.
    """

    def cost(motion: Trajectory) -> Array:
        error = following_error(motion)
        force = motion.constraint_force if motion.control is None else motion.control
        total = jnp.mean(jnp.sum(error**2, axis=-1)) + effort * jnp.mean(jnp.sum(force**2, axis=-1))
        limits = getattr(getattr(motion.model, "control", None), "limits", None)
        if limits is not None and motion.control is not None:
            total += BEYOND * jnp.mean(jnp.sum(jnp.maximum(0, jnp.abs(motion.control) / limits - 1) ** 2, axis=-1))
        return total

    return cost


def following_error(motion: Trajectory) -> Array:
    """What the motion, or each of a batch, is to bring to zero, (samples, k): see ``following_cost``."""
    own = getattr(motion.model, "task_error", None)
    if own is not None:
        n = motion.q.shape[-1]
        error = jax.vmap(own)(motion.t.reshape(-1), motion.q.reshape(-1, n), motion.v.reshape(-1, n))
        return error.reshape(*motion.t.shape, -1)
    return motion.residual if motion.task_residual is None else motion.task_residual


def tune(
    model: Any,
    free: str | Iterable[str],
    q0: Numbers,
    v0: Numbers,
    ts: Numbers,
    *,
    dt: float,
    cost: Callable[[Trajectory], Array] | None = None,
    effort: float = 0.0,
    settings: Mapping[str, Numbers] | None = None,
    held_out: tuple[Numbers, Numbers] | None = None,
    place: Callable[[Any, Array, Array], tuple[Array, Array]] | None = None,
    bounds: Mapping[str, Any] | None = None,
    drift: str = "none",
    solver: dfx.AbstractERK | None = None,
    most_evaluations: int = 60,
    progress: bool = False,
) -> Tuned:
    """The ``free`` parameters of ``model`` (gains, rates, lengths) with which ``cost`` is least, averaged over starts.

    ``q0`` and ``v0``, (n,) or (starts, n), are where motions begin; they are simulated over ``ts`` [s] in fixed steps
    of at most ``dt`` [s]. ``settings`` lets other fields of the model differ from start to start, name ->
    (starts, ...): a gain that is good for one payload may not be for another. ``cost(motion)`` is a number from the
    ``Trajectory`` of one start, such as ``jnp.mean(motion.q[:, 0] ** 2)``; left out, it is ``following_cost(effort)``.
    ``held_out`` are starts (q0, v0) on which the result is tried and not tuned. ``place(model, q0, v0) -> (q0, v0)``
    puts every start where the parameters in question want it: on loops whose links change, say. ``free`` and ``bounds``
    as in ``fit``: what is positive stays positive. ``drift="none"``: what is tuned is often what removes drift;
    ``"projection"`` keeps all constraints.

    Quasi-Newton steps (SciPy's L-BFGS-B) on exact derivatives, by forward mode: made for a few parameters. Raises
    ``ValueError`` for bad input and ``SimulationError`` where a motion does not reach the end at the first guess.
    """
    parameters = Parameters.of(model, free, bounds)
    if cost is not None:
        check_function("cost", cost, "motion")
    elif not hasattr(model, "task_error") and _only_accelerations(model):
        raise ValueError(
            "cost must be given: the task is an AccelerationConstraint, which always holds and says nothing of how "
            "well a motion follows; write a function of the motion, such as lambda motion: jnp.mean(motion.v**2)"
        )
    if place is not None:
        check_function("place", place, "model, q0, v0")
    one = following_cost(effort) if cost is None else cost
    settings = {name: as_float(value) for name, value in (settings or {}).items()}
    check_settings(model, settings, leading=1)
    ts = np.asarray(ts, float)
    solver = RungeKutta4() if solver is None else solver

    @eqx.filter_jit
    def each(model, x, starts, settings):
        """Every start's cost, and its derivatives."""

        def member(q, v, setting):
            def of(x):
                this = parameters.put(model, x)
                for name, value in setting.items():
                    this = with_array(this, name, value)
                start = (q, v) if place is None else place(this, q, v)
                motion = simulate(this, *start, ts, dt=dt, drift=drift, solver=solver)
                value = one(motion)
                return value, (value, eqx.tree_at(lambda m: m.model, motion, None))  # it may hold more than arrays

            slope, (value, motion) = jax.jacfwd(of, has_aux=True)(x)
            return value, slope, motion

        return jax.vmap(member)(starts[0], starts[1], settings)

    starts = _starts(q0, v0)
    for name, value in settings.items():
        if value.shape[:1] != starts[0].shape[:1]:
            raise ValueError(
                f"settings[{name!r}] must have an entry for each of {len(starts[0])} starts, got shape {value.shape}"
            )
    if held_out is not None and settings:
        raise ValueError("held_out starts have no settings of their own: evaluate them apart, or leave settings out")
    none = jnp.zeros(len(parameters.names))
    values, _, before = each(model, none, starts, settings)
    if np.shape(values) != (len(starts[0]),):
        raise ValueError(f"cost must return one number per motion, got shape {np.shape(values)[1:]}")
    if not np.all(np.isfinite(values)):
        bad = int(np.argmin(np.isfinite(values)))
        raise SimulationError(
            f"start {bad} has no finite cost at the first guess: its motion does not reach t = {ts[-1]:g} s; take a "
            "smaller dt, a shorter time, or gains that are nearer"
        )
    first = float(np.mean(values))
    size = first if first > 0 else 1.0
    steps = 0

    def objective(x):
        nonlocal steps
        steps += 1
        values, slopes = (np.asarray(found) for found in each(model, jnp.asarray(x), starts, settings)[:2])
        value, slope = np.mean(values), np.mean(slopes, axis=0)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return 1e6, np.zeros_like(x)  # a motion that breaks down is worse than any other
        if progress:
            shown = np.asarray(parameters.values(jnp.asarray(x)))
            print(f"{steps:3d}  cost {value:.6g}  " + "  ".join(f"{v:.5g}" for v in shown), flush=True)
        return value / size, slope / size

    most = [(-STRETCH, STRETCH)] * len(parameters.names)
    solution = scipy.optimize.minimize(
        objective, np.zeros(len(parameters.names)), jac=True, method="L-BFGS-B", bounds=most,
        options={"maxfun": most_evaluations, "ftol": 1e-9, "gtol": 1e-7},
    )  # fmt: skip
    x = jnp.asarray(solution.x)
    shown = starts if held_out is None else _starts(*held_out)
    values, _, after = each(model, x, shown, settings)
    tried = held_out is not None
    if tried:
        first_values, _, before = each(model, none, shown, settings)
    best = parameters.put(model, x)
    if not np.all(replace(after, model=best).differentiable):
        warnings.warn(
            "the rank of the constraints changes along a motion: where it does, the cost has no gradient, and another "
            "guess may lead elsewhere",
            stacklevel=2,
        )
    return Tuned(
        model=best,
        names=parameters.names,
        first_values=np.asarray(parameters.first),
        values=np.asarray(parameters.values(x)),
        first=first,
        cost=float(solution.fun) * size,
        first_held_out=float(np.mean(first_values)) if tried else None,
        held_out=float(np.mean(values)) if tried else None,
        evaluations=steps,
        converged=bool(solution.success),
        before=replace(before, model=model),
        after=replace(after, model=best),
    )


def _only_accelerations(model):
    return any(isinstance(c, AccelerationConstraint) for c in getattr(getattr(model, "control", None), "task", ()))


def _starts(q0, v0):
    q0, v0 = jnp.atleast_2d(as_float(q0)), jnp.atleast_2d(as_float(v0))
    if q0.ndim != 2 or q0.shape[1] != v0.shape[1]:
        raise ValueError(f"q0 and v0 must have shape (n,) or (starts, n), got {q0.shape} and {v0.shape}")
    members = max(len(q0), len(v0))
    return tuple(jnp.broadcast_to(x, (members, x.shape[1])) for x in (q0, v0))
