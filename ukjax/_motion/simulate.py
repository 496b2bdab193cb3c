"""Constrained motion over time: a thin layer over diffrax."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

from .._batch import per_member
from .._batch.blocks import in_blocks
from .._check import check_function, check_terms, check_unique, known
from .._constraint import as_written, rows
from .correct import at_every_level, onto_constraints
from .._equation import constrained_motion
from .lanes import run_in_lanes
from .._precision import Numbers, as_float, warn_if_single
from .projected import Projected, correct_step
from .diagnose import check_finished, check_kept, check_limits, check_reached, check_start, check_task
from .even_steps import Counts, roll
from .runge_kutta4 import RungeKutta4
from .._solve import AbstractMethod, choose
from .step import acceleration
from .._system import AbstractSystem
from .._terms import Terms
from .trajectory import Trajectory

MOST_STEPS = 1_000_000
SMALLEST_STEP = 1e-12  # of the whole time: a motion that asks for less has come to its end
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}


def simulate(
    model: AbstractSystem | Callable[..., Terms],
    q0: Numbers,
    v0: Numbers,
    ts: Numbers,
    *,
    drift: str | None = None,
    dt: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    method: str | AbstractMethod = "orthogonal",
    solver: dfx.AbstractSolver | None = None,
    adjoint: dfx.AbstractAdjoint | None = None,
    event: Callable | None = None,
    max_steps: int = MOST_STEPS,
    progress: bool = False,
    throw: bool = True,
) -> Trajectory:
    """The constrained motion from q0, v0 at ts[0], sampled at the times ``ts`` [s].

    ``q0`` and ``v0`` have shape (n,), or (batch, n) for many starts at once: every field of the trajectory then has a
    leading batch axis. ``model`` is a ``System``, or any function (t, q, v) -> ``Terms``.

    **Drift.** ``drift="projection"``, the default for a ``System``, brings every step and every sample back onto the
    constraints, φ = 0, φ̇ = 0 and ψ = 0, in the metric of M; it wants a consistent start (see ``project``).
    ``drift="none"`` integrates the accelerations as they are: the constraints drift, unless they carry Baumgarte
    gains, and the start may violate them. Baumgarte gains act either way.

    **Steps.** Adaptive by default, with ``rtol`` and ``atol`` (1e-9 in float64, 1e-5 in float32); ``dt`` asks for
    fixed steps instead: as many equal ones between each sample and the next as make none longer than dt. ``solver`` is
    any diffrax solver (default ``Dopri8``; ``RungeKutta4`` for fixed steps), ``adjoint`` any diffrax adjoint
    (default ``RecursiveCheckpointAdjoint``, for reverse mode; ``ForwardMode`` for forward mode; ``DirectAdjoint``, with
    a small ``max_steps``, for both and for second derivatives; ``BacksolveAdjoint``, with ``drift="none"`` only, for
    reverse mode in little memory but not to rounding: ``python -m benchmarks adjoints`` shows cost and accuracy).
    With adaptive steps a derivative is as exact as the motion only where the motion makes the steps small: choose
    ``dt`` for derivatives at rest. ``method`` as in ``constrained_motion``.

    **Batches.** Every member takes the adaptive steps that it needs itself, and what befalls it befalls no other.
    Memory is that of what is saved: ``ts=[0, 10]`` keeps start and end alone. A new batch of the same shape, or a model
    with other numbers in it, compiles nothing anew. Explicit Runge–Kutta solvers without event, adjoint and progress
    run fastest; anything else goes through ``vmap`` of diffrax's own loop.

    **Events.** ``event(t, q, v)`` ends the motion where it crosses zero; a single trajectory then ends with that
    instant, and samples after it are left out (in a batch, or under ``jit``, they are NaN).

    ``progress`` shows a meter. Raises ``ValueError`` for bad input and ``SimulationError`` where the motion cannot be
    continued, does not keep its constraints, or has a servo task that its actuators cannot perform, saying which
    trajectory, when and which constraint; with ``throw=False``, or under ``jit``, see ``Trajectory.finished`` instead.
    """
    given = ts, dt  # known even where a function being traced made them into arrays
    q0, v0, ts = _check_state(q0, v0, ts)
    drift = _check_drift(drift, model)
    if event is not None:
        check_function("event", event, "t, q, v")
    if isinstance(adjoint, dfx.BacksolveAdjoint) and (drift == "projection" or event is not None):
        raise ValueError(
            "adjoint=BacksolveAdjoint() runs the motion backwards, which projected steps and events do not allow: say "
            "drift='none' without an event, or use the default RecursiveCheckpointAdjoint, whose gradients are exact"
        )
    if dt is None and isinstance(solver, RungeKutta4):
        raise ValueError(
            "RungeKutta4 does not estimate its error, so that it cannot choose its steps: give dt, the "
            "length of fixed ones [s]"
        )
    if rtol is None and dt is None:
        warn_if_single(q0.dtype)
    tolerance = TOLERANCE[str(q0.dtype)]
    how = _How(
        projection=drift == "projection",
        dt=None if dt is None else as_float(dt),
        rtol=as_float(tolerance if rtol is None else rtol),
        atol=as_float(tolerance if atol is None else atol),
        method=choose(method),
        solver=dfx.Dopri8() if solver is None else solver,
        adjoint=dfx.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        event=event,
        max_steps=_check_steps(max_steps, dt, ts),
        progress=progress,
    )
    counts = None
    plain = event is None and adjoint is None and not progress and isinstance(how.solver, dfx.AbstractERK)
    if dt is not None and plain and known(given):
        counts = Counts.of(np.asarray(given[0], float), float(np.asarray(dt)))
    traced = not known(model, q0, v0, ts, how)
    if not traced:
        _check_model(model, q0, v0, ts, how)
    alone = traced or q0.ndim == 1
    run = _roll if counts is not None else _pass if plain and not alone else _simulate
    found = run(q0, v0, model, ts, counts, how) if alone else in_blocks(run, q0, v0, model, ts, counts, how)
    trajectory = Trajectory(**found, model=model)
    if traced:
        return trajectory
    if event is not None and q0.ndim == 1:
        trajectory = trajectory.reached()
    if throw:
        check_finished(trajectory, how.max_steps)
        check_reached(trajectory)
        check_limits(trajectory)
        if how.projection:
            check_kept(trajectory)
    return trajectory


class _How(eqx.Module):
    """How to integrate: numbers are leaves, so that changing one compiles nothing anew."""

    projection: bool = eqx.field(static=True)
    dt: Array | None
    rtol: Array
    atol: Array
    method: AbstractMethod
    solver: dfx.AbstractSolver
    adjoint: dfx.AbstractAdjoint
    event: Callable | None
    max_steps: int = eqx.field(static=True)
    progress: bool = eqx.field(static=True)


@eqx.filter_jit
def _simulate(q0, v0, model, ts, _, how):
    if q0.ndim == 1:
        return _one(model, q0, v0, ts, how)
    return jax.vmap(lambda q, v: _one(model, q, v, ts, how))(q0, v0)


@eqx.filter_jit
def _roll(q0, v0, model, ts, counts, how):
    """Fixed steps from sample to sample."""
    q, v = roll(model, q0.T, v0.T, ts, counts, how.method, how.solver, how.projection)
    if q0.ndim == 1:
        found = _observe(model, ts, q, v, how)
    else:
        q, v = jnp.moveaxis(q, -1, 0), jnp.moveaxis(v, -1, 0)
        found = _observe_batch(model, ts, q, v, how.method)
    good = jnp.all(jnp.isfinite(q) & jnp.isfinite(v), axis=-1)
    return found | {
        "finished": good[..., -1],
        "steps": jnp.broadcast_to(jnp.sum(counts.between), good.shape[:-1]),
        "last": _last_reached(ts, q, v),
    }


@eqx.filter_jit
def _pass(q0, v0, model, ts, _, how):
    """Adaptive steps, each member as many as it needs."""
    tolerance = how.rtol, how.atol
    passed = run_in_lanes(
        model, q0, v0, ts, how.method, how.solver, how.projection, tolerance, how.max_steps, SMALLEST_STEP
    )
    _, q, v = _last_reached(ts, passed.q, passed.v)
    return _observe_batch(model, ts, passed.q, passed.v, how.method) | {
        "finished": passed.finished,
        "steps": passed.steps,
        "last": (passed.t, q, v),
    }


def _last_reached(ts, q, v):
    """t, q and v of the last sample that was reached."""
    good = jnp.all(jnp.isfinite(q) & jnp.isfinite(v), axis=-1)
    last = jnp.maximum(jnp.sum(jnp.cumprod(good, axis=-1), axis=-1) - 1, 0)
    at_last = lambda x: jnp.take_along_axis(x, last[..., None, None], axis=-2)[..., 0, :]
    return ts[last], at_last(q), at_last(v)


def _one(model, q0, v0, ts, how: _How) -> dict[str, Any]:
    t0, t1 = ts[0], ts[-1]
    solver = how.solver
    if how.projection:
        q0, v0 = correct_step(model, t0, q0, v0, at_every_level(how.method))
        solver = Projected(how.solver)
    controller = (
        dfx.ConstantStepSize()
        if how.dt is not None
        else dfx.PIDController(rtol=how.rtol, atol=how.atol, dtmin=SMALLEST_STEP * (t1 - t0), force_dtmin=False)
    )
    backwards = isinstance(how.adjoint, dfx.BacksolveAdjoint)  # saves the samples and nothing else
    ending = [dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)]
    solution = dfx.diffeqsolve(
        dfx.ODETerm(_field),
        solver,
        t0,
        t1,
        how.dt,
        (q0, v0),
        args=(model, how.method),
        saveat=dfx.SaveAt(ts=ts) if backwards else dfx.SaveAt(subs=ending),
        stepsize_controller=controller,
        adjoint=how.adjoint,
        event=None if how.event is None else dfx.Event(_crossing(how.event), optx.Bisection(rtol=1e-12, atol=1e-14)),
        max_steps=how.max_steps,
        throw=False,
        progress_meter=dfx.TextProgressMeter() if how.progress else dfx.NoProgressMeter(),
    )
    if backwards:
        t, (q, v) = ts, solution.ys  # pyright: ignore
        last, last_q, last_v = t[-1:], q[-1:], v[-1:]
    else:
        (t, last), ((q, v), (last_q, last_v)) = solution.ts, solution.ys  # pyright: ignore
    if how.event is not None:  # its instant is one more sample
        t, q, v = (jnp.concatenate(pair) for pair in ((t, last), (q, last_q), (v, last_v)))
    reached = jnp.isfinite(t)
    t, q, v = (jnp.where(reached if x.ndim == 1 else reached[:, None], x, jnp.nan) for x in (t, q, v))
    return _observe(model, t, q, v, how, between_steps=True) | {
        "finished": dfx.is_okay(solution.result) & jnp.all(jnp.isfinite(last_q) & jnp.isfinite(last_v)),
        "steps": solution.stats["num_steps"],
        "last": (last[0], last_q[0], last_v[0]),
    }


@eqx.filter_jit
def _field(t, y, args):
    """ẏ = (v, q̈)."""
    (q, v), (model, method) = y, args
    return v, acceleration(model, t, q, v, method)


def _crossing(event):
    return lambda t, y, args, **_: event(t, *y)


def _observe(model, t, q, v, how, between_steps=False) -> dict[str, Any]:
    """All that is known at each sample, from t, q and v. ``between_steps``, q and v are not yet on the constraints."""

    def at(sample):
        t, q, v = sample
        if between_steps and how.projection:
            q, v = onto_constraints(model, t, q, v, at_every_level(how.method))
        return {"t": t, "q": q, "v": v} | _observation(model, t, q, v, how.method)

    return jax.lax.map(at, (t, q, v))


def _observe_batch(model, ts, q, v, method) -> dict[str, Any]:
    """The same for q and v (batch, samples, n): sample after sample, since a batch may be all that fits into memory."""
    each = jax.vmap(lambda t, q, v: _observation(model, t, q, v, method), in_axes=(None, 0, 0))
    found = jax.lax.map(lambda sample: each(*sample), (ts, jnp.moveaxis(q, 1, 0), jnp.moveaxis(v, 1, 0)))
    found = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), found)
    return {"t": jnp.broadcast_to(ts, q.shape[:2]), "q": q, "v": v} | found


def _observation(model, t, q, v, method) -> dict[str, Any]:
    @per_member
    def at(model, t, q, v, method):
        terms = model(t, q, v)
        motion = constrained_motion(terms, method)
        seen = {
            "acceleration": motion.acceleration,
            "constraint_force": motion.constraint_force,
            "ideal_force": motion.ideal_force,
            "nonideal_force": motion.nonideal_force,
            "rank": motion.rank,
            "inconsistency": motion.inconsistency,
        }
        if not isinstance(model, AbstractSystem):  # only the rows are known
            A, b = terms.A, terms.b
            return seen | {
                "acceleration_residual": A @ motion.acceleration - b,
                "residual": A @ motion.acceleration - b,
                "position_residual": b[:0],
                "velocity_residual": b[:0],
                "energy": None,
                **_driven(None, t, q, v, motion),
            }
        A, b = rows(model.held, t, q, v)
        return seen | {
            "acceleration_residual": A @ motion.acceleration - b,
            "residual": model.residual(t, q, v, motion.acceleration),
            "position_residual": model.position_residual(t, q),
            "velocity_residual": model.velocity_residual(t, q, v),
            "energy": model.energy(t, q, v),
            **_driven(model if model.control is not None else None, t, q, v, motion),
        }

    return at(model, t, q, v, method)


def _driven(system, t, q, v, motion) -> dict[str, Any]:
    """What the actuators of ``system`` do; None for everything where there are none."""
    if system is None:
        return dict.fromkeys(("control", "task_residual", "unreachable", "control_rank"))
    command = system.command(t, q, v)
    return {
        "control": command.u,
        "task_residual": as_written(system.control.task, t, q, v, motion.acceleration),
        "unreachable": command.unreachable,
        "control_rank": command.rank,
    }


def _check_state(q0: Any, v0: Any, ts: Any) -> tuple[Float[Array, "*batch n"], Float[Array, "*batch n"], Array]:
    q0, v0, ts = as_float(q0), as_float(v0), as_float(ts)
    if q0.ndim not in (1, 2) or q0.shape[-1] == 0:
        raise ValueError(f"q0 must have shape (n,), or (batch, n) for many starts, got shape {q0.shape}")
    if v0.shape != q0.shape and v0.shape != q0.shape[-1:]:
        raise ValueError(f"v0 must have the shape of q0, {q0.shape}, got shape {v0.shape}")
    if ts.ndim != 1 or ts.size < 2:
        raise ValueError(f"ts must be at least two times in one row, shape (samples,), got shape {ts.shape}")
    for name, value in (("q0", q0), ("v0", v0), ("ts", ts)):
        if known(value) and not np.all(np.isfinite(value)):
            raise ValueError(f"{name} must be finite, got {np.asarray(value)}")
    if known(ts) and not np.all(np.diff(ts) > 0):
        raise ValueError("ts must increase strictly: the motion starts at ts[0] and is sampled at each of ts")
    dtype = jnp.result_type(q0, v0)
    return q0.astype(dtype), jnp.broadcast_to(v0, q0.shape).astype(dtype), ts.astype(dtype)


def _check_drift(drift, model):
    is_system = isinstance(model, AbstractSystem)
    if not is_system:
        check_function("model", model, "t, q, v")
    if drift is None:
        return "projection" if is_system else "none"
    if drift not in ("projection", "none"):
        raise ValueError(
            f"drift must be 'projection' or 'none', got {drift!r}; for Baumgarte's stabilisation give the constraints "
            "their gains, Holonomic(phi, *critically_damped(5.0)), and choose 'none'"
        )
    if drift == "projection" and not is_system:
        raise ValueError(
            "drift='projection' needs a ukjax.System: a function that returns Terms does not say where the "
            "constraints are. Use drift='none'"
        )
    return drift


def _check_steps(max_steps, dt, ts):
    if dt is None or not known(dt, ts):
        return max_steps
    span, step = float(ts[-1] - ts[0]), float(np.asarray(dt))
    if not 0 < step <= span:
        raise ValueError(f"dt must be positive and no longer than the whole time, {span:g} s, got {step:g}")
    return max(max_steps, int(np.ceil(span / step)) + 2)


def _check_model(model, q0, v0, ts, how):
    """The start, looked at before anything is integrated."""
    first_q, first_v = (q0, v0) if q0.ndim == 1 else (q0[0], v0[0])
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    if named is not None and len(named) != q0.shape[-1]:
        names = ", ".join(name for name, _ in named)
        raise ValueError(f"the model has {len(named)} coordinates ({names}), but q0 has shape {q0.shape}")
    starts = _starts(model, ts[0], jnp.atleast_2d(q0), jnp.atleast_2d(v0), how.method)
    terms, acceleration, position, velocity = starts
    where = f" at t = {float(ts[0]):g} s" if q0.ndim == 1 else f" for trajectory 0 at t = {float(ts[0]):g} s"
    check_terms(terms, where)
    check_unique(terms, np.asarray(acceleration), type(how.method).__name__, where)
    if how.event is not None:
        _check_event(how.event, ts[0], jnp.atleast_2d(q0), jnp.atleast_2d(v0))
    if isinstance(model, AbstractSystem) and model.control is not None:
        check_task(model, ts[0], jnp.atleast_2d(q0), jnp.atleast_2d(v0))
    if how.projection:
        check_start(model, ts[0], position, velocity, first_q, first_v, batch=q0.ndim == 2)


def _check_event(event, t0, q0, v0):
    for q, v in zip(q0, v0, strict=True):
        value = jnp.asarray(event(t0, q, v))
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
            raise ValueError(
                f"event must return one number that crosses zero, got shape {value.shape} of {value.dtype}; "
                "write q[0] rather than q[0] > 0"
            )
        if value == 0:
            raise ValueError(
                f"event is already zero at the start, t = {float(t0):g} s: there is no crossing to find. Start a "
                "little later, or let the event ask for a sign of its rate too"
            )


@eqx.filter_jit
def _starts(model, t0, q0, v0, method):
    """Terms and acceleration of the first start, residuals of all."""
    terms = model(t0, q0[0], v0[0])
    if not isinstance(terms, Terms):
        raise ValueError(f"model must return ukjax.Terms(M, Q, A, b), got {type(terms).__name__}")
    if terms.Q.shape != q0.shape[1:]:
        raise ValueError(f"the model has {terms.Q.size} coordinates, but q0 has shape {q0.shape[1:]}")
    acceleration = constrained_motion(terms, method).acceleration
    if not isinstance(model, AbstractSystem):
        return terms, acceleration, jnp.zeros((1, 0)), jnp.zeros((1, 0))
    residuals = lambda q, v: (model.position_residual(t0, q), model.velocity_residual(t0, q, v))
    return terms, acceleration, *jax.vmap(residuals)(q0, v0)
