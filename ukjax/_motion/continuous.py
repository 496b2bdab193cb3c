"""Diffrax's own loop, for what the others do not do: events, implicit solvers, a chosen adjoint, a progress meter."""

from typing import ClassVar

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .base import SMALLEST_STEP, AbstractLoop, Request, Samples, check_shapes
from .correct import at_every_level
from .event import check_event, on_surface
from .outcome import EVENT, FINISHED, MOST_STEPS, NOT_FINITE, ON_EVENT, TOO_SMALL
from .projected import Projected, correct_step
from .step import acceleration
from .watch import Watch


class Continuous(AbstractLoop):
    """Anything that diffrax can do, for one motion or, by ``vmap``, for several."""

    keeps_watch: ClassVar[bool] = False

    def accepts(self, request: Request, q0: Float[Array, "*batch n"], v0: Float[Array, "*batch n"]) -> bool:
        return True

    def run(self, request: Request, q0: Float[Array, "*batch n"], v0: Float[Array, "*batch n"]) -> Samples:
        return _solved(request, q0, v0)


@eqx.filter_jit
def _solved(request, q0, v0):
    first = request.ts[0], *(x if x.ndim == 1 else x[0] for x in (q0, v0))
    check_shapes(request.model, *first)
    if request.event is not None:
        check_event(request.event, *first)
    if q0.ndim == 1:
        return _one(request, q0, v0)
    return jax.vmap(lambda q, v: _one(request, q, v))(q0, v0)


def _one(request: Request, q0, v0) -> Samples:
    """In the time since the start, which is exact where the time itself is large."""
    model, ts, method, event = request.model, request.ts, request.method, request.event
    adjoint = dfx.RecursiveCheckpointAdjoint() if request.adjoint is None else request.adjoint
    start, since = ts[0], ts - ts[0]
    solver = dfx.Dopri8() if request.solver is None else request.solver
    if request.projection:
        q0, v0 = correct_step(model, start, q0, v0, at_every_level(method))
        solver = Projected(solver)
    backwards = isinstance(adjoint, dfx.BacksolveAdjoint)  # saves the samples and nothing else
    at_samples, at_end = dfx.SubSaveAt(ts=since), dfx.SubSaveAt(t1=True)
    solution = dfx.diffeqsolve(
        dfx.ODETerm(_field),
        solver,
        since[0],
        since[-1],
        request.dt if request.times is None else None,
        (q0, v0),
        args=(model, method, start),
        saveat=dfx.SaveAt(ts=since)
        if backwards
        else dfx.SaveAt(subs=[at_samples, at_end], controller_state=event is not None),
        stepsize_controller=_controller(request, since[-1]),
        adjoint=adjoint,
        max_steps=request.max_steps,
        throw=False,
        progress_meter=dfx.TextProgressMeter() if request.progress else dfx.NoProgressMeter(),
    )
    if backwards:
        passed, (q, v) = since, solution.ys  # pyright: ignore
        last = passed[-1], q[-1], v[-1]
    else:
        (passed, (wait,)), ((q, v), last) = solution.ts, solution.ys  # pyright: ignore
        last = wait, *(x[0] for x in last)
    result = _result(solution, *last[1:])
    reached = jnp.isfinite(passed)
    t, q, v = (jnp.where(reached if x.ndim == 1 else reached[:, None], x, jnp.nan) for x in (ts, q, v))
    if request.projection:  # between steps they are not yet on the constraints
        on = lambda sample: correct_step(model, sample[0], sample[1], sample[2], at_every_level(method))
        q, v = jax.lax.map(on, (t, q, v))
    last = jnp.where(result == FINISHED, ts[-1], start + last[0]), *last[1:]
    if event is not None:  # its instant is one more sample
        last = on_surface(event, lambda t, q, v: acceleration(model, t, q, v, method)[0], *last, met=result == EVENT)
        t, q, v = (jnp.concatenate([x, y[None]]) for x, y in zip((t, q, v), last, strict=True))
    return Samples(t, q, v, result, solution.stats["num_steps"], last)


def _controller(request, span):
    if request.dt is None:
        least = SMALLEST_STEP * span
        steps = dfx.PIDController(rtol=request.rtol, atol=request.atol, dtmin=least, force_dtmin=False)
    else:
        steps = dfx.ConstantStepSize() if request.times is None else _To(request.times - request.ts[0])
    if request.event is None:
        return steps
    return Watch(controller=steps, event=request.event, start=request.ts[0], rtol=request.rtol, atol=request.atol)


def _result(solution, q, v):
    finite = jnp.all(jnp.isfinite(q) & jnp.isfinite(v))
    is_result = lambda result: solution.result == result
    watched = solution.controller_state
    away = True if watched is None else watched.away
    result = jnp.asarray(TOO_SMALL)
    for condition, outcome in (
        (~finite, NOT_FINITE),
        (is_result(dfx.RESULTS.max_steps_reached), MOST_STEPS),
        (is_result(dfx.RESULTS.event_occurred) & finite, jnp.where(away, EVENT, ON_EVENT)),
        (is_result(dfx.RESULTS.successful) & finite, FINISHED),
    ):
        result = jnp.where(condition, outcome, result)
    return result


class _To(dfx.AbstractStepSizeController):
    """Steps to the ``times`` given, which need not be of a known number: the last may stand there several times."""

    times: Float[Array, " steps"]

    def wrap(self, direction):
        return self

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        return self.times[1], jnp.asarray(2)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        following = self.times[jnp.minimum(controller_state, self.times.size - 1)]
        return True, t1, following, False, controller_state + 1, dfx.RESULTS.successful


@eqx.filter_jit
def _field(t, y, args):
    """ẏ = (v, q̈)."""
    (q, v), (model, method, start) = y, args
    return v, acceleration(model, start + t, q, v, method)[0]
