"""diffrax's loop, for features that no other integrator supports: implicit solvers, chosen adjoints, progress meters,
and the event that ends a motion."""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool

from ..._errors import InputError
from ..._kinematic_map import rate
from ..._run.compile import jit, jit_batch, split
from ..._run.threads import run_interruptibly
from ..._system import kinematic_map_of
from ..event import check_event, on_surface
from ..plan import Plan
from ..problem import SMALLEST_STEP, InitialState, Problem, Solution
from ..result import EVENT, FINISHED, TOO_SMALL, classify, finite
from ..stepper.base import AbstractStepper
from ..stepper.drift_correction import same_at_every_level
from ..stepper.error_control import FIRST
from ..stepper.inconsistent_rows import acceleration_only_rows
from ..stepper.radau import Radau
from ..stepper.runge_kutta import acceleration
from .base import AbstractBatchIntegrator
from .end_on_times import EndOnTimes
from .event_controller import EventController
from .event_past_pose import past_singular_poses
from .projected import AT_SINGULAR_POSE, LEFT_CONSTRAINTS, Projected, batch_of_one, correct_step
from .stepper_solver import StepperSolver

UNSET = dfx.with_stepsize_controller_tols(optx.Chord)().rtol
"""Placeholder that diffrax stores in an implicit solver for a tolerance that was not given."""


class DiffraxLoop(AbstractBatchIntegrator):
    """Integrator that calls ``diffrax.diffeqsolve``, under ``vmap`` for a batch."""

    checks_every_step: ClassVar[bool] = False

    @property
    def program(self):
        return _solved

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        if plan.differentiation == "forward":
            problem = replace(problem, adjoint=_forward_adjoint(problem.adjoint))
        if not plan.eager:
            return _solved(start, problem)
        return past_singular_poses(run_interruptibly(_solved, start, problem), problem, start, plan)


def _forward_adjoint(adjoint):
    """The given adjoint, or else diffrax's for forward mode; ``InputError`` for an adjoint of reverse mode only."""
    if isinstance(adjoint, dfx.RecursiveCheckpointAdjoint | dfx.ImplicitAdjoint | dfx.BacksolveAdjoint):
        raise InputError(
            f"adjoint={type(adjoint).__name__}() is for reverse mode (jax.grad, jax.vjp), and this is forward mode "
            "(jax.jvp, jax.jacfwd): use adjoint=diffrax.ForwardMode(), or leave it out"
        )
    return dfx.ForwardMode() if adjoint is None else adjoint


@jit_batch
def _solved(start, problem):
    if problem.event is not None:
        check_event(problem.event, *(x.reshape(-1, *x.shape[x.ndim - k :])[0] for x, k in _state(problem, start)))
    if start.q.ndim == 1:
        return _one(problem, start)
    one = lambda ts, start: _one(replace(problem, ts=ts), start)
    return jax.vmap(one, in_axes=(0 if problem.ts.ndim == 2 else None, 0))(problem.ts, start)


def _state(problem, start):
    """t, q and v of the start, which may be a batch, each with its number of axes for one member."""
    return (problem.begin, 0), (start.q, 1), (start.v, 1)


def _one(problem: Problem, start: InitialState) -> Solution:
    """Integrate one motion.

    The independent variable is the time since the start: it has small rounding errors also if the times are large.
    """
    model, ts, method, event = problem.model_of(start.numbers), problem.ts, problem.method, problem.event
    q0, v0, scale = start.q, start.v, start.scale
    adjoint = dfx.RecursiveCheckpointAdjoint() if problem.adjoint is None else problem.adjoint
    begin, elapsed_ts = ts[0], ts - ts[0]
    solver = _with_tolerances(dfx.Dopri8() if problem.solver is None else problem.solver, problem, scale)
    starts_off = jnp.asarray(False)
    if problem.projection:
        q0, v0, starts_off = correct_step(model, begin, q0, v0, same_at_every_level(method), scale)[:3]
        if not isinstance(solver, StepperSolver):
            solver = Projected(solver, even=problem.dt is not None)
    is_backsolve = isinstance(adjoint, dfx.BacksolveAdjoint)  # saves only the samples
    field, args = _field, (model, method, scale, begin)
    if is_backsolve:
        # A gradient has no result code. Without this option, a failure of the backward integration would be silent.
        adjoint = dfx.BacksolveAdjoint(**{"throw": True} | adjoint.kwargs)
        static, args = split(args)  # the backward integration of diffrax fails for an empty tuple in the arguments
        field = lambda t, y, arrays: _field(t, y, static.join(arrays))
    at_samples, at_end = dfx.SubSaveAt(ts=elapsed_ts), dfx.SubSaveAt(t1=True)
    solution = dfx.diffeqsolve(
        dfx.ODETerm(field),
        solver,
        elapsed_ts[0],
        elapsed_ts[-1],
        _first_step(problem, scale, elapsed_ts[-1]),
        jnp.concatenate([q0, v0]),  # one array, so that each entry has its own tolerance
        args=args,
        saveat=dfx.SaveAt(ts=elapsed_ts)
        if is_backsolve
        else dfx.SaveAt(subs=[at_samples, at_end], controller_state=event is not None),
        stepsize_controller=_controller(problem, kinematic_map_of(model), scale, elapsed_ts),
        adjoint=adjoint,
        max_steps=problem.max_steps,
        throw=False,
        progress_meter=dfx.TextProgressMeter() if problem.progress else dfx.NoProgressMeter(),
    )
    if is_backsolve:
        elapsed_at_samples, y = elapsed_ts, solution.ys
        elapsed, y_last = elapsed_at_samples[-1], y[-1]  # pyright: ignore
    else:
        (elapsed_at_samples, (elapsed,)), (y, (y_last,)) = solution.ts, solution.ys  # pyright: ignore
    (q, v), (q_last, v_last) = (jnp.split(x, [q0.size], axis=-1) for x in (y, y_last))  # pyright: ignore
    elapsed, q_last, v_last = (jnp.where(starts_off, x, y) for x, y in ((0, elapsed), (q0, q_last), (v0, v_last)))
    off = starts_off | (solution.result == LEFT_CONSTRAINTS)
    reached = jnp.isfinite(elapsed_at_samples) & ~(off & (elapsed_at_samples >= elapsed))
    t, q, v = (jnp.where(reached if x.ndim == 1 else reached[:, None], x, jnp.nan) for x in (ts, q, v))
    if problem.projection:  # samples between steps are interpolated, off the constraints
        project = lambda sample: correct_step(model, *sample, same_at_every_level(method), scale)[:3]
        q, v, off_at_samples = jax.lax.map(project, (t, q, v))
        off = off | jnp.any(off_at_samples)
    rejected = _rejected_step(problem, model, begin + elapsed, q_last, v_last, scale)
    inconsistent = _inconsistent(model, t, q, v, method, problem.projection)
    result = _result(solution, off, rejected, inconsistent, q_last, v_last)
    last = jnp.where(result == FINISHED, ts[-1], begin + elapsed), q_last, v_last
    displaced = start.displaced(jnp, q[0], v[0])
    if event is not None:  # its time is an additional sample
        accelerate = lambda t, q, v: acceleration(model, t, q, v, method)[0]
        last = on_surface(event, kinematic_map_of(model), accelerate, *last, met=result == EVENT)
        t, q, v = (jnp.concatenate([x, y[None]]) for x, y in zip((t, q, v), last, strict=True))
    return Solution(t, q, v, result, solution.stats["num_steps"].astype(np.int32), last, displaced)


def _first_step(problem, scale, span):
    """First step size [s], None for diffrax's choice.

    diffrax's choice depends on the unit of time. It is used if there is an event, since ``EventController`` estimates
    the rounding error of a start on the event from this step size.
    """
    if problem.dt is not None or problem.event is not None:
        return problem.dt
    least = 1e3 * SMALLEST_STEP * span
    return jnp.clip(FIRST * scale.shortest_time, least, jnp.maximum(least, span))


def _with_tolerances(solver, problem, scale):
    """The solver for diffrax, with the tolerances of ``Radau``, or of an implicit solver that takes fixed steps.

    The latter takes its tolerances from the controller of adaptive steps, and has none for fixed steps. A fixed step
    cannot be repeated with a shorter length, so its equations are solved by Newton's method.
    """
    if isinstance(solver, AbstractStepper):
        return StepperSolver(solver)
    if isinstance(solver, Radau):
        return Radau(**_tolerances(problem, scale))
    if problem.dt is None or not isinstance(solver, dfx.AbstractImplicitSolver):
        return solver
    if getattr(solver.root_finder, "rtol", None) is not UNSET:
        return solver
    return eqx.tree_at(lambda solver: solver.root_finder, solver, optx.Newton(**_tolerances(problem, scale)))


def _tolerances(problem, scale) -> dict[str, Any]:
    tolerance = problem.tolerance(scale)
    atol = jnp.concatenate([tolerance.q, tolerance.v])
    if isinstance(problem.adjoint, dfx.BacksolveAdjoint):  # its backward integration has more variables than q and v
        atol = jnp.min(atol)
    return dict(rtol=problem.rtol, atol=atol)


def _controller(problem, kinematic_map, scale, elapsed_ts):
    tolerances, span = _tolerances(problem, scale), elapsed_ts[-1]
    if problem.dt is None:
        steps = dfx.PIDController(**tolerances, dtmin=SMALLEST_STEP * span, force_dtmin=False)
    else:
        steps = dfx.ConstantStepSize()
    ends = elapsed_ts if problem.dt is not None or problem.ends_on_samples else elapsed_ts[-1:]
    steps = EndOnTimes(controller=steps, times=ends, dt=problem.dt, **tolerances)
    if problem.event is None:
        return steps
    return EventController(
        controller=steps,
        event=problem.event,
        kinematic_map=kinematic_map,
        n=scale.q.size,
        start=problem.ts[0],
        span=span,
        even=problem.dt is not None,
        **tolerances,
    )


def _inconsistent(model, t, q, v, method, projection):
    """Whether constraints contradict each other at a sample, in a way that shows only in accelerations."""
    if acceleration_only_rows(model, projection, t[0], q[0], v[0]) is False:
        return jnp.asarray(False)
    at = lambda sample: acceleration(model, *sample, method, projection).inconsistent
    return jnp.any(jax.lax.map(at, (t, q, v)))


class RejectedStep(NamedTuple):
    """The step after the last accepted one.

    Attributes
    ----------
    jumped
        Whether it would need a jump onto the constraints.
    not_finite
        Whether its result would not be finite.
    """

    jumped: Bool[Array, ""]
    not_finite: Bool[Array, ""]


def _rejected_step(problem, model, t, q, v, scale) -> RejectedStep:
    """Why the step from (t, q, v) was rejected, if the motion ended because a step was.

    Adaptive steps end if the step after a rejected one would be shorter than the smallest. diffrax's controller makes a
    step at most five times shorter, so the rejected step was shorter than five times the smallest. A step of ten times
    the smallest ends after the end of the rejected one. A fixed step is rejected if it jumps, or else is not finite.
    """
    method, is_adaptive = problem.method, problem.dt is None
    h = 10 * SMALLEST_STEP * scale.t if is_adaptive else problem.dt
    q_dot = rate(kinematic_map_of(model), q, v)
    ahead, jumped = (t + h, q + h * q_dot, v), jnp.asarray(False)
    is_finite = finite(q_dot, acceleration(model, *ahead, method)[0]) if is_adaptive else jnp.asarray(False)
    if problem.projection:
        moved = correct_step(model, *ahead, same_at_every_level(method), scale).moved
        jumped = scale.is_jump(moved, h, jnp.abs(q_dot))
        if is_adaptive:  # where rows are nearly dependent, a small residual moves q far
            jumped = jumped & (scale.relative_violation(model.violation(*ahead)) > scale.max_violation(q))
    return RejectedStep(jumped, ~jumped & ~is_finite)


def _result(solution, off, rejected, inconsistent, q, v):
    stopped = solution.result == dfx.RESULTS.dt_min_reached
    is_finite = finite(q, v)
    is_result = lambda result: solution.result == result
    event_state = solution.controller_state
    away, nan = (True, False) if event_state is None else (event_state.away, event_state.nan)
    at_event = is_result(dfx.RESULTS.event_occurred) & is_finite & ~off & ~jnp.asarray(nan)
    return classify(
        finished=is_result(dfx.RESULTS.successful) & is_finite & ~off,
        event=at_event & away,
        on_event=at_event & ~jnp.asarray(away),
        event_nan=nan,
        singular=is_result(AT_SINGULAR_POSE),
        jumped=stopped & rejected.jumped & ~off,
        off=off,
        not_finite=~is_finite | stopped & rejected.not_finite,
        exhausted=is_result(dfx.RESULTS.max_steps_reached),
        inconsistent=inconsistent,
        otherwise=TOO_SMALL,
    )


@jit
def _field(t, y, args):
    """ẏ = (q̇, v̇)."""
    model, method, scale, begin = args
    q, v = jnp.split(y, [scale.q.size])
    accelerate = batch_of_one(lambda t, q, v: acceleration(model, t, q, v, method).v_rate)
    return jnp.concatenate([rate(kinematic_map_of(model), q, v), accelerate(begin + t, q, v)])
