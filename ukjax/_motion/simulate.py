"""Constrained motion over time: the front door of the loops."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import (
    MAX_FIXED_STEPS,
    as_array,
    as_integer,
    as_number,
    as_numbers,
    as_numpy,
    check_finite,
    check_flag,
    check_function,
    check_memory,
    check_step,
    check_times,
    is_concrete,
    repr_of,
    size_of,
    without_derivatives,
)
from .._closures import hoist_tracers
from .._kinematic_map import KinematicMap
from .._precision import Numbers, warn_if_single
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem, kinematic_map_of
from .._terms import Terms
from .diagnose.creep import warn_of_creep
from .diagnose.motion import check_end, check_start, warn_of_coarse_time, warn_of_unarmed_event
from .diagnose.servo import check_limits, check_limits_of_coordinates, check_reached, check_task
from .event import Event, as_event
from .fallback.sparsity import band_method, with_sparsity
from .inputs import canonicalise, check_kinematic_map, check_starts, hint_if_batched_model
from .integrate.fixed_step import step_counts
from .integrate.named import batch_integrator, integrator
from .integrate.switches import at_samples, check_switches, stops_of
from .plan import choose as choose_plan
from .problem import InitialState, Problem, Solution, StepCounts
from .stepper.error_control import DEFAULT_RTOL
from .stepper.limits import is_kernel
from .stepper.scaling import scales
from .stepper.tableau import DOPRI8, Tableau, check_solver
from .trajectory.continuation import IntegrationOptions
from .trajectory.trajectory import Trajectory

MOST_STEPS = 1_000_000
DRIFTS = "projection", "none"


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
    solver: Any = None,
    adjoint: Any = None,
    event: Event | Callable | None = None,
    switches: Numbers | None = None,
    max_steps: int = MOST_STEPS,
    progress: bool = False,
    throw: bool = True,
) -> Trajectory:
    """The constrained motion from q0, v0 at ts[0], sampled at the times ``ts`` [s].

    ``q0`` and ``v0`` have shape (n,), or (batch, n) for many starts at once: every field of the trajectory then has a
    leading batch axis. ``model`` is a ``System``, or any function (t, q, v) -> ``Terms``. All is computed in the widest
    precision among q0, v0, the model's arrays and its Terms. A Python ``float`` in a field of the model counts as an
    array; so does a traced number in a closure, which has a derivative as a field has, though a function made anew is
    compiled anew. Any other number that a function reads from outside, a global or an attribute of an object, is a
    constant of the compiled programs; when it has changed, they are compiled anew, and forces and energies of motions
    computed before are refused. Numbers that change often are better fields of the model.

    **Drift.** ``drift="projection"``, the default for a ``System``, brings every step and every sample back onto the
    constraints, φ = 0, φ̇ = 0 and ψ = 0, in the metric of M; it wants a consistent start (see ``project``).
    ``drift="none"`` integrates the accelerations as they are: the constraints drift, unless they carry Baumgarte
    gains, and the start may violate them. Baumgarte gains act either way.

    **Steps.** Adaptive by default: an error of ``rtol`` (1e-9 in float64, 1e-5 in float32) times the size of each
    coordinate and velocity, and ``atol`` besides, a number or (n,), one per coordinate; left out, as little of the size
    that the start shows of each (what is not there, by its mass), so that units do not matter. ``dt`` asks for fixed
    steps instead: as many equal ones between each sample and the next as make none longer than dt. ``solver`` is
    any diffrax solver (default ``Dopri8``; ``RungeKutta4`` for fixed steps), ``adjoint`` any diffrax adjoint (left out,
    the one that a derivative wants, but say ``ForwardMode`` for forward mode through a ``jit`` of yours;
    ``DirectAdjoint``, with a small ``max_steps``, for both modes and for second derivatives; ``BacksolveAdjoint``, with
    ``drift="none"`` only, for reverse mode in little memory but not to rounding, an error where the way back fails:
    ``python -m benchmarks adjoints`` shows cost and accuracy). With adaptive steps a derivative is as exact as the
    motion where the motion makes the steps small. A motion at rest, or of constant velocities, does not: its steps are
    those that a small disturbance of its start would need, but not with ``event`` or ``adjoint``; nor do fast parts
    that are at rest while others move slowly. For derivatives of these choose ``dt``. ``method`` as in
    ``constrained_motion``; a large system whose [M Aᵀ; A 0] has entries near the diagonal alone, in some order, is
    tried by ``sparse`` first.

    **Batches.** Every member takes the adaptive steps that it needs itself, and what befalls it befalls no other.
    Memory is that of what is saved: ``ts=[0, 10]`` keeps start and end alone. A new batch of the same shape, or a model
    with other numbers in it, compiles nothing anew. Explicit Runge–Kutta solvers without event, adjoint and progress
    run fastest; anything else goes through ``vmap`` of diffrax's own loop. The model is one for all starts; with one
    for each, map over both: ``equinox.filter_vmap(lambda model, q0, v0: ukjax.simulate(model, q0, v0, ts))``.

    **Switches.** ``switches`` (k,) are times [s] at which forces jump: no step crosses one, whichever way steps are
    chosen. Without them, adaptive steps may pass over a force that acts for less time than a step takes. A derivative
    by a switch includes the change of the motion with it.

    **Events.** ``event(t, q, v)`` ends the motion where it crosses zero, in one direction only if it is an ``Event``
    that says so. The last sample is that instant, within rounding of it and on the near side of zero; those after it
    are left out (in a batch, or under ``jit``, the instant follows all others, and what it cut off is NaN). Such a
    motion has ``met_event`` and is not ``finished``. A start that is zero but for rounding, as it is after an impact,
    does not count until the motion has been away; one that does not come away, since it moves through zero as is
    counted or rests there, ends at once with the result "started on its event", a ``SimulationError`` unless
    ``throw=False``. The instant has derivatives, first and second, wherever it is crossed with some speed. To go on
    after it, start again from ``last``; a batch does so with ``ts`` (batch, samples), times of each member's own, where
    a member whose times are all the same stays where it is.

    Steps end on every sample, and within each step the event is evaluated along a cubic polynomial: at 64 points or
    more of an adaptive step, 16 or more of a fixed one, at 1024 or more of the whole motion, and at each minimum that
    the signs of its slope show between two points. It can still be missed where it crosses zero twice between two
    points, and the slope at both does not show it: take more samples where that may be.

    **Checks.** Constraints are judged beside the terms they are made of, row by row: a start may be off by 1e-6 of them
    (the first step puts it right), the motion by 1e-8 (1e-3 in float32). A motion that could only go on by leaping onto
    its constraints, since a prescribed path jumps or a constraint begins to hold while it is violated, ends there.
    Without projection, and for rows that are given as accelerations alone, constraints that contradict each other show
    in no position: such a motion meets them as nearly as can be, has the result "met constraints that contradict each
    other", and is a ``SimulationError`` unless ``throw=False``. Rows that are nearly dependent at the start, so that a
    tolerance decides which of them count, are a warning (see ``constrained_motion``).

    ``progress`` shows a meter. Raises ``ValueError`` for bad input and ``SimulationError`` where the motion cannot be
    continued, does not keep its constraints, or has a servo task that its actuators cannot perform, saying which
    trajectory, when and which constraint; with ``throw=False``, or under ``jit``, see ``Trajectory.finished`` instead.
    """
    asked = Arguments.checked(model, q0, v0, ts, drift, dt, solver, adjoint, event, max_steps, progress, switches)
    check_flag("throw", throw)
    with hint_if_batched_model(model, asked.q0):
        model, q0, v0, ts = canonicalise(model, asked.q0, asked.v0, asked.ts)
    stops = None if asked.switches is None else stops_of(ts, asked.switches)
    if stops is not None:
        ts, asked = stops.times, asked.at_times(stops.times)
    if rtol is None and dt is None:
        warn_if_single(q0.dtype)
    problem = asked.problem(model, q0, ts, rtol, atol, method)
    ending = problem.event
    with hint_if_batched_model(model, q0):
        begin, span = _begin_and_span(ts)
        start = InitialState(q0, v0, scales(model, begin, q0, v0, span, problem.method))
        plan = choose_plan(problem, start)
        if plan.eager:
            check_kinematic_map(model, q0, v0)
            warn_of_coarse_time(model, _longest(np.asarray(ts)), q0, v0)
            check_task(model, problem, start)
        if (along := band_method(problem, start)) is not None:
            problem = replace(problem, along=along)
            plan = choose_plan(problem, start)
        loop = integrator(plan.integrator)
        samples = loop.run(problem, start, plan)
    samples = samples if stops is None else at_samples(samples, stops)
    trajectory = Trajectory(
        samples.t,
        samples.q,
        samples.v,
        samples.result,
        samples.steps,
        samples.last,
        model,
        problem.method,
        integration=IntegrationOptions.of(
            problem, q0.shape[:-1], asked.switches, asked.drift, max_steps, throw, simulate
        ),
    )
    if not plan.eager:
        return trajectory
    with hint_if_batched_model(model, q0):
        check_start(trajectory, problem, loop, start, samples.displaced)
    if ending is not None and q0.ndim == 1:
        trajectory = trajectory.reached()
    if ending is not None:
        warn_of_unarmed_event(trajectory, ending)
    if throw:
        check_end(trajectory, problem, loop, start)
        check_reached(trajectory, start)
        check_limits(trajectory)
        check_limits_of_coordinates(trajectory)
    warn_of_creep(trajectory, problem, start.scale)
    return trajectory.with_plan(plan)


class Arguments(NamedTuple):
    """What ``simulate`` was given, where it makes sense; ``times`` and ``length`` are the values of ts and dt, None
    where these are being traced or not given."""

    q0: Array
    v0: Array
    ts: Array
    times: np.ndarray | None
    dt: Any
    length: np.ndarray | None
    drift: str
    solver: Any
    adjoint: Any
    event: Event | None
    max_steps: int
    progress: bool
    switches: Array | None

    @classmethod
    def checked(
        cls, model, q0, v0, ts, drift, dt, solver, adjoint, event, max_steps, progress, switches=None
    ) -> "Arguments":
        """``ValueError`` where it does not."""
        _check_size(q0, ts)
        # The values of times are known even where a function being traced makes them into arrays.
        given, ts = ts, as_array("ts", ts, "times")
        given, step = without_derivatives((given, dt))  # within a derivative they have values
        times = np.asarray(given, float) if is_concrete(given) else None
        length = as_numpy("dt", step, "one number [s]") if step is not None and is_concrete(step) else None
        q0, v0 = _check_state(q0, v0, ts, times, kinematic_map_of(model))
        _check_names(model, q0)
        drift = _check_drift(drift, model)
        event = as_event(event)
        _check_solver(solver, adjoint, event, drift, dt)
        max_steps = as_integer("max_steps", max_steps, 1)
        if dt is not None:
            max_steps = _check_steps(max_steps, _as_typed(dt, length), times, event is not None)
        check_flag("progress", progress)
        switches = None if switches is None else check_switches(switches, solver)
        return cls(q0, v0, ts, times, dt, length, drift, solver, adjoint, event, max_steps, progress, switches)

    def at_times(self, ts: Array) -> "Arguments":
        """The same with steps that end at these times."""
        values = without_derivatives(ts)
        times = np.asarray(values, float) if is_concrete(values) else None
        if self.dt is None:
            return self._replace(ts=ts, times=times)
        max_steps = _check_steps(self.max_steps, _as_typed(self.dt, self.length), times, self.event is not None)
        return self._replace(ts=ts, times=times, max_steps=max_steps)

    def problem(self, model: Any, q0: Array, ts: Array, rtol: Any, atol: Any, method: Any) -> Problem:
        """The same as loops want it, of a model, starts and times that were ``canonicalise``."""
        rtol, atol = _tolerances(rtol, atol, q0, kinematic_map_of(model))
        problem = Problem(
            model=model,
            ts=ts,
            dt=None if self.dt is None else as_number("dt", self.dt, "s").astype(q0.dtype),
            counts=None,
            rtol=rtol,
            atol=atol,
            method=with_sparsity(choose(method), model, ts, q0, self.v0.astype(q0.dtype)),
            solver=self.solver,
            adjoint=self.adjoint,
            event=hoist_tracers(self.event),
            tableau=_tableau(self.solver),
            projection=self.drift == "projection",
            max_steps=self.max_steps,
            progress=self.progress,
            ends_on_samples=self.event is not None or self.switches is not None,
        )
        if self.times is None or self.length is None or not problem.plain:
            return problem
        between = step_counts(self.times, float(self.length))
        return replace(problem, counts=StepCounts(jax.device_put(between), int(between.max())))


def _begin_and_span(ts):
    """When a motion begins, and how long it lasts; by NumPy, since each entry of an array of JAX is a program."""
    ts = np.asarray(ts) if is_concrete(ts) else ts
    begin, span = ts[..., 0], ts[..., -1] - ts[..., 0]
    return (np.asarray(begin), np.asarray(span)) if is_concrete(ts) else (begin, span)


def _longest(ts):
    """The times of the member that takes the longest time, or those of all."""
    return ts if ts.ndim == 1 else ts[np.argmax(ts[:, -1] - ts[:, 0])]


def batch_program(problem: Problem) -> Callable[[InitialState, Problem], Solution]:
    """The program that integrates a batch of any size by the method that was asked for, without fall-backs, or
    ``ValueError``."""
    if not problem.plain:
        raise ValueError("solver must be an explicit Runge-Kutta method, such as ukjax.RungeKutta4() or the default")
    if problem.counts is not None:
        return batch_integrator("fixed_step").program
    return batch_integrator("adaptive_batch" if is_kernel(problem.method) else "lanes").program


def _as_typed(dt, length):
    """dt as an error is to show it, with its value where that is known."""
    return dt if length is None or type(dt) in (int, float) else length


def _tableau(solver):
    if solver is None:
        return DOPRI8
    import diffrax as dfx

    return Tableau.of(solver) if isinstance(solver, dfx.AbstractERK) else None


def _check_solver(solver, adjoint, event, drift, dt):
    check_solver(solver)
    if adjoint is not None:
        import diffrax as dfx

        if not isinstance(adjoint, dfx.AbstractAdjoint):
            raise ValueError(f"adjoint must be one of diffrax, such as diffrax.DirectAdjoint(), got {repr_of(adjoint)}")
    backwards = adjoint is not None and type(adjoint).__name__ == "BacksolveAdjoint"
    if backwards and (drift == "projection" or event is not None):
        raise ValueError(
            "adjoint=BacksolveAdjoint() runs the motion backwards, which projected steps and events do not allow: say "
            "drift='none' without an event, or use the default RecursiveCheckpointAdjoint, whose gradients are exact"
        )
    if dt is None and solver is not None and not _estimates_error(solver):
        raise ValueError(
            f"{type(solver).__name__} does not estimate its error, so that it cannot choose its steps: give dt, the "
            "length of fixed ones [s]"
        )


def _estimates_error(solver):
    import diffrax as dfx

    return isinstance(solver, dfx.AbstractAdaptiveSolver) and type(solver).__name__ != "RungeKutta4"


def _check_names(model, q0):
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    if named is not None and len(named) != q0.shape[-1]:
        names = ", ".join(name for name, _ in named)
        raise ValueError(f"the model has {len(named)} coordinates ({names}), but q0 has shape {q0.shape}")


def _tolerances(rtol, atol, q0, kinematic_map):
    usual = DEFAULT_RTOL[str(q0.dtype)]
    rtol = as_number("rtol", usual if rtol is None else rtol, least=0, below=1)
    if atol is None:
        return _as_type(rtol, q0.dtype), None
    atol = as_numbers("atol", atol, least=0, below=float("inf"))
    if kinematic_map is not None and atol.ndim:
        raise ValueError(
            f"atol must be one number where velocities are no rates of coordinates, got shape {atol.shape}"
        )
    if atol.shape not in ((), q0.shape[-1:]):
        raise ValueError(
            f"atol must be a number or have shape {q0.shape[-1:]}, one per coordinate, got shape {atol.shape}"
        )
    if is_concrete(rtol, atol) and float(rtol) < float(jnp.finfo(q0.dtype).eps) and np.any(np.asarray(atol) == 0):
        raise ValueError(
            f"rtol and atol must allow some error: with rtol = {float(rtol):g} and atol = 0 no step is small enough. "
            f"The default is {usual:g} of what is computed, and of the size of each coordinate"
        )
    return _as_type(rtol, q0.dtype), _as_type(atol, q0.dtype)


def _as_type(x, dtype):
    """By NumPy where it can be: JAX would compile a program for it."""
    return jax.device_put(np.asarray(x, dtype)) if is_concrete(x) else x.astype(dtype)


def _check_size(q0, ts):
    starts, samples = size_of(q0), size_of(ts)
    n, members = (starts or (1,))[-1], starts[0] if len(starts) == 2 else 1
    name, value = ("q0", q0) if members > (samples or (1,))[0] else ("ts", ts)
    check_memory(name, value, (2 * n + 1) * members * (samples or (1,))[0])


def _check_state(
    q0: Any, v0: Any, ts: Array, times: np.ndarray | None, kinematic_map: KinematicMap | None
) -> tuple[Float[Array, "*batch nq"], Float[Array, "*batch n"]]:
    q0, v0 = as_array("q0", q0), as_array("v0", v0)
    check_starts(q0, v0, kinematic_map)
    _check_times(ts if times is None else times, q0)
    check_finite("q0", q0)
    check_finite("v0", v0)
    return q0, v0 if v0.ndim == q0.ndim else jnp.broadcast_to(v0, (len(q0), v0.size))


def _check_times(ts, q0):
    """Times that increase, for all; or for each of a batch, where one member's may also be all the same."""
    if ts.ndim != 2:
        return check_times("ts", ts)
    if q0.ndim != 2 or len(ts) != len(q0):
        raise ValueError(
            "ts must have shape (samples,), or (batch, samples) with q0 of shape (batch, n), "
            f"got shape {ts.shape} with q0 of shape {q0.shape}"
        )
    if not is_concrete(ts):
        return check_times("ts", ts[0])
    for member, times in enumerate(np.asarray(ts)):
        if times.size < 2 or not np.all(times == times[0]):
            check_times(f"ts[{member}]", times)


def _check_drift(drift, model):
    is_system = isinstance(model, AbstractSystem)
    if not is_system:
        check_function("model", model, "t, q, v")
    if drift is None:
        return "projection" if is_system else "none"
    if drift not in DRIFTS:
        raise ValueError(
            f"drift must be 'projection' or 'none', got {repr_of(drift)}; for Baumgarte's stabilisation give the "
            "constraints their gains, Holonomic(phi, *critically_damped(5.0)), and choose 'none'"
        )
    if drift == "projection" and not is_system:
        raise ValueError(
            "drift='projection' needs a ukjax.System: a function that returns Terms does not say where the "
            "constraints are. Use drift='none'"
        )
    return drift


def _check_steps(max_steps, dt, times, seeks_event):
    """How many steps of ``dt`` are allowed: all that lead through the ``times``, and ``max_steps`` to find an event."""
    if times is None or not is_concrete(dt):
        check_step(dt, None)
        return max_steps
    longest = _longest(times)
    check_step(dt, longest, max(max_steps, MAX_FIXED_STEPS), ", or allow as many by max_steps")
    needed = int(step_counts(longest, float(dt)).sum()) + times.shape[-1]
    # The same for any shorter time, so that a restart compiles nothing anew.
    return max(max_steps, needed) + (max_steps if seeks_event else 0)
