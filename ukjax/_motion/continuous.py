"""Diffrax's own loop, for what the others do not do: events, implicit solvers, a chosen adjoint, a progress meter."""

from typing import ClassVar

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx

from .base import SMALLEST_STEP, AbstractLoop, Request, Samples, Start
from .correct import at_every_level
from .outcome import EVENT, FINISHED, LEAPT, MOST_STEPS, NOT_FINITE, OFF_CONSTRAINTS, TOO_SMALL
from .projected import Projected, correct_step
from .step import acceleration


class Continuous(AbstractLoop):
    """Anything that diffrax can do, for one motion or, by ``vmap``, for several."""

    keeps_watch: ClassVar[bool] = False

    def accepts(self, request: Request, start: Start) -> bool:
        return True

    def run(self, request: Request, start: Start) -> Samples:
        return _solved(request, start)


@eqx.filter_jit
def _solved(request, start):
    if start.q.ndim == 1:
        return _one(request, start)
    return jax.vmap(lambda start: _one(request, start))(start)


def _one(request: Request, start: Start) -> Samples:
    model, ts, method, scale = request.model, request.ts, request.method, start.scale
    q0, v0 = start.q, start.v
    adjoint = dfx.RecursiveCheckpointAdjoint() if request.adjoint is None else request.adjoint
    t0, t1 = ts[0], ts[-1]
    solver = dfx.Dopri8() if request.solver is None else request.solver
    if request.projection:
        q0, v0 = correct_step(model, t0, q0, v0, at_every_level(method), scale)[:2]
        solver = Projected(solver, even=request.dt is not None)
    backwards = isinstance(adjoint, dfx.BacksolveAdjoint)  # saves the samples and nothing else
    solution = dfx.diffeqsolve(
        dfx.ODETerm(_field),
        solver,
        t0,
        t1,
        request.dt if request.times is None else None,
        jnp.stack([q0, v0]),  # one array, so that each entry has a tolerance of its own
        args=(model, method, scale),
        saveat=dfx.SaveAt(ts=ts) if backwards else dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)]),
        stepsize_controller=_controller(request, scale, t1 - t0),
        adjoint=adjoint,
        event=_event(request.event),
        max_steps=request.max_steps,
        throw=False,
        progress_meter=dfx.TextProgressMeter() if request.progress else dfx.NoProgressMeter(),
    )
    if backwards:
        t, y = ts, solution.ys
        last, last_y = t[-1:], y[-1:]  # pyright: ignore
    else:
        (t, last), (y, last_y) = solution.ts, solution.ys  # pyright: ignore
    (q, v), (last_q, last_v) = (jnp.moveaxis(states, 1, 0) for states in (y, last_y))  # pyright: ignore
    if request.event is not None:  # its instant is one more sample
        t, q, v = (jnp.concatenate(pair) for pair in ((t, last), (q, last_q), (v, last_v)))
    reached, off = jnp.isfinite(t), jnp.asarray(False)
    t, q, v = (jnp.where(reached if x.ndim == 1 else reached[:, None], x, jnp.nan) for x in (t, q, v))
    if request.projection:  # between steps they are not yet on the constraints
        on = lambda sample: correct_step(model, *sample, at_every_level(method), scale)[:3]
        q, v, off = jax.lax.map(on, (t, q, v))
    return Samples(
        t,
        q,
        v,
        _result(solution, jnp.any(off), last_q, last_v),
        solution.stats["num_steps"],
        (last[0], last_q[0], last_v[0]),
        start.displaced(jnp, q[0], v[0]),
    )


def _controller(request, scale, span):
    if request.dt is None:
        tolerance = request.tolerance(scale)
        atol = jnp.stack([tolerance.q, tolerance.v])
        return dfx.PIDController(rtol=request.rtol, atol=atol, dtmin=SMALLEST_STEP * span, force_dtmin=False)
    return dfx.ConstantStepSize() if request.times is None else dfx.StepTo(ts=request.times)


def _event(event):
    if event is None:
        return None
    return dfx.Event(lambda t, y, args, **_: event(t, *y), optx.Bisection(rtol=1e-12, atol=1e-14))


def _result(solution, off, q, v):
    finite = jnp.all(jnp.isfinite(q) & jnp.isfinite(v))
    is_result = lambda result: solution.result == result
    result = jnp.asarray(TOO_SMALL)
    for condition, outcome in (
        (~finite, NOT_FINITE),
        (is_result(dfx.RESULTS.max_steps_reached), MOST_STEPS),
        (is_result(dfx.RESULTS.event_occurred) & finite, EVENT),
        (is_result(dfx.RESULTS.successful) & finite, FINISHED),
        (off, OFF_CONSTRAINTS),
        (is_result(dfx.RESULTS.internal_error), LEAPT),  # which none of diffrax's own solvers say
    ):
        result = jnp.where(condition, outcome, result)
    return result


@eqx.filter_jit
def _field(t, y, args):
    """ẏ = (v, q̈)."""
    (q, v), (model, method, _) = y, args
    return jnp.stack([v, acceleration(model, t, q, v, method)[0]])
