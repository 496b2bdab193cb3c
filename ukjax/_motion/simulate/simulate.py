"""Constrained motion over time: ``simulate`` checks its arguments, and chooses and runs an integrator."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..._check import check_flag
from ..._errors import InputError
from ..._integration import Integration
from ..._jaxpr.tracing import is_concrete
from ..._outside import external_values_in, read_once
from ..._precision import Numbers, warn_if_single
from ..._solve import AbstractMethod
from ..._system import AbstractSystem
from ..._terms import Terms
from ..._with_states import plant_of, with_initial_states
from ..diagnose.contact import check_gaps
from ..diagnose.creep import warn_of_creep
from ..diagnose.motion import check_differentiated, check_end, check_start, warn_of_coarse_time, warn_of_unarmed_event
from ..diagnose.servo import check_limits, check_limits_of_coordinates, check_reached, check_task, with_result_of_task
from ..diagnose.stiffness import warn_of_stiffness
from ..event import Event
from ..fallback.sparsity import band_method
from ..inputs import canonicalise, check_kinematic_map, hint_if_batched_model
from ..integrate.automatic import check_automatic, integrate_automatically
from ..integrate.named import integrator
from ..integrate.switches import at_samples, stops_of
from ..plan import choose as choose_plan
from ..problem import InitialState
from ..stepper.error_control import DEFAULT_RTOL
from ..stepper.scaling import scales
from ..trajectory.continuation import Continuation, Provenance, as_recorded
from ..trajectory.trajectory import Trajectory
from .arguments import DEFAULT_MAX_STEPS, Arguments, longest_times

AUTO = "auto"


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
    event: Event | Callable | Sequence[Event | Callable] | None = None,
    switches: Numbers | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
    progress: bool = False,
    throw: bool = True,
    reset: Any = None,
) -> Trajectory:
    """Integrate the constrained motion from q0, v0 at ts[0], and return its samples at the times ``ts``.

    Parameters
    ----------
    model
        ``System``, or function (t, q, v) -> ``Terms``. One model for all members of a batch.
    q0
        Coordinates at ts[0], shape (nq,); or (batch, nq) for a batch of starts.
    v0
        Velocities at ts[0], shape (n,) or (batch, n). Without a kinematic map, n = nq. For a control with states,
        (v, s) of shape (n + k,) or (batch, n + k) is allowed; without s, the states have the initial values of the
        control.
    ts
        Increasing times of the samples [s], shape (samples,). In a batch also (batch, samples), one row per member;
        a member whose times are all equal stays at its start.
    drift
        ``"projection"``, the default for a ``System``, projects every step and every sample onto the constraints.
        ``"none"``, the default for a function, integrates the accelerations without correction.
    dt
        Largest length of fixed steps [s]. The steps between two samples are equal: the smallest number of steps that
        are not longer than dt. None for adaptive steps.
    rtol
        Allowed error per adaptive step, relative to each coordinate and velocity: 1e-9 in float64 and 1e-5 in float32
        by default.
    atol
        Allowed absolute error per adaptive step, in addition: a number, or one per coordinate (n,). The default is
        ``rtol``'s default times the size of each variable at the start; if that size is zero, it follows from the
        masses. So the default does not depend on units.
    method
        Name of a solver for accelerations or a solver object, see ``constrained_motion``. For a large system,
        ``sparse`` is tried first if the matrix [M Aᵀ; A 0] has a narrow band, after its rows are reordered.
    solver
        diffrax solver; the default is ``Dopri8``. ``Radau`` is for stiff systems, ``RungeKutta4`` for fixed steps,
        ``Rattle`` for fixed steps of long motions, ``MoreauJean`` for fixed steps of systems with many contacts.
        ``"auto"`` uses the default, or ``Radau`` for a motion that proves to be stiff.
    adjoint
        diffrax adjoint. The default suits the requested derivative. See the notes.
    event
        ``Event``, or function (t, q, v) that returns a number: the motion ends where this number crosses zero, or
        continues after the event's ``reset``. A list for several events.
    switches
        Times [s] at which forces are discontinuous, shape (k,). No step crosses them. They are differentiable.
    max_steps
        Largest number of steps. With concrete ``dt`` and ``ts``, all fixed steps to the last time are allowed.
    progress
        Whether to show a progress meter.
    throw
        Whether to raise ``SimulationError`` for a failed motion.
    reset
        Not an option here, since each event has its own: ``event=Event(function, reset=reset)``.

    Returns
    -------
    Trajectory
        The motion. For a batch all its fields have a leading batch axis.

    Raises
    ------
    InputError
        For invalid input.
    SimulationError
        If the motion cannot be continued, violates its constraints, or has a servo task that its actuators cannot
        perform. The message names the trajectory, the time and the constraint. With ``throw=False``, or under ``jit``,
        see ``Trajectory.finished`` instead.

    Notes
    -----
    **Numbers of the model.** All computations use the widest precision among q0, v0, the model's arrays and its Terms.
    A Python ``float`` in a field of the model counts as an array. A traced number in a closure is differentiable, as a
    field is, but each new function is compiled again. Any other number that a function reads, in a global variable or
    an attribute of an object, is a constant of the compiled programs. If it changes, they are compiled again, and
    forces and energies of motions that were computed before raise an error. Numbers that change often should be fields
    of the model.

    **Drift.** The projection moves each state onto φ = 0, φ̇ = 0 and ψ = 0, in the metric of M. It needs a consistent
    start (see ``project``). Without projection the constraints drift, unless they have Baumgarte gains, and the start
    may violate them. Baumgarte gains act in both cases.

    **Stiff systems.** An explicit solver needs tiny steps for fast parts, even at rest. A motion of more than 5000 such
    steps gives a warning, which names ``solver=Radau()``.

    ``solver="auto"`` begins with the default. A motion that is found to be stiff is integrated by ``Radau`` from its
    start. Stiffness is examined after 5000 steps, and at the end of a motion with more steps. A motion with fewer steps
    is that of the default solver. ``Trajectory.plan`` names the solver, and ``Trajectory.steps`` are its steps. A batch
    has one solver for all members: the member with the shortest steps decides. Derivatives are those of the chosen
    solver. The choice needs the values of the motion: under ``jit`` and ``vmap`` ``"auto"`` is an error. It is also an
    error with ``dt``, contacts, several events or sampled control. Motions with 90 velocities or more are not examined.

    **Batches.** Each member takes its own adaptive steps, and no member depends on another. Memory is proportional to
    the number of samples: ``ts=[0, 10]`` stores only start and end. A new batch of the same shape, or a model with
    other numbers, needs no new compilation. Explicit Runge–Kutta solvers without event, adjoint and progress are the
    fastest. Other diffrax solvers, a single event that ends the motion, ``adjoint``, ``progress`` and separate times
    per member use ``vmap`` of diffrax's loop. For one model per start, map over both:
    ``equinox.filter_vmap(lambda model, q0, v0: ukjax.simulate(model, q0, v0, ts))``.

    **Derivatives.** Use ``adjoint=diffrax.ForwardMode()`` for forward mode through your own ``jit``.
    ``DirectAdjoint``, with a small ``max_steps``, supports both modes and second derivatives. ``BacksolveAdjoint``,
    only with ``drift="none"``, needs little memory in reverse mode; its gradients have a discretisation error, and a
    failure of the backward integration is an error. ``python -m benchmarks adjoints`` shows cost and accuracy.

    With adaptive steps, a derivative is as accurate as the motion if the motion itself needs small steps. A motion at
    rest, or at constant velocity, does not. Its steps are then those that a small disturbance of its start would need,
    except with ``event`` or ``adjoint``. Fast parts that are at rest while others move slowly do not limit the steps
    either. Use ``dt`` for derivatives of such motions.

    A motion that fails has derivatives at the samples that it reached. In reverse mode with ``dt``, they are NaN if the
    motion ended at a number that is not finite.

    **Switches.** Without ``switches``, adaptive steps may miss a force that acts for less time than a step takes.

    **Events.** Crossings count in both directions, unless the ``Event`` has a direction. The last sample is the
    crossing, within rounding of it and on the near side of zero; later samples are removed. In a batch, or under
    ``jit``, the crossing follows all other samples, and the samples after it are NaN. Such a motion has ``met_event``
    and is not ``finished``. The time of a crossing has first and second derivatives if the crossing speed is not zero.
    To continue, start again from ``last``; for a batch, with ``ts`` of shape (batch, samples).

    If the number is zero up to rounding at the start, such as after an impact, crossings count only after it has been
    away from zero. If it does not leave zero, because it crosses zero in the direction that counts, or rests there, the
    motion ends at once with the result "started on its event", a failure. With ``throw=False``, and in ``ensemble``,
    this is the result of that member, and the others continue.

    Steps end on every sample. The event is evaluated along a cubic polynomial of each step, at 64 points or more of an
    adaptive step, 16 or more of a fixed step, 1024 or more of the whole motion, and at each minimum that the signs of
    its slope show between two points. Two crossings between two points are missed if the slopes at both points do not
    show the minimum. Then use more samples. A motion with adaptive steps that comes to a singular pose is integrated
    again without the event, and the event is evaluated at 1024 points or more; ``plan.notes`` says so.

    The above is for one event that ends the motion. Several events, events with a ``reset`` or ``ends=False``, and
    events of systems with contacts are searched together, with explicit Runge–Kutta solvers: at 8 points or more of a
    step, 512 or more of the whole motion, and at each minimum that the signs of the slopes show. ``Trajectory.events``
    has their instants and counts. A sample at such an instant has the state after the reset. Events at the same instant
    are applied in the order of the list. Derivatives of the motion contain those of the instants, by the saltation
    matrix of each reset. A start on the surface of an event with ``ends=False`` does not count. Resets that follow one
    another in ever shorter times end the motion with the result "came to events that follow one another in ever shorter
    times", a failure.

    **Contacts.** A system with ``Unilateral`` or ``Coulomb`` constraints is integrated by steps that end where a
    contact or a friction force changes; ``solver=MoreauJean()`` does not look for these instants.
    ``Trajectory.contacts`` has the impacts and the mode of each sample. Such a motion ends with the result "came to
    contacts and friction without consistent forces" where no contact forces are possible, as in Painlevé's problem.
    Within each step gaps are evaluated along a cubic polynomial, at 8 points or more and 512 or more of the whole
    motion, and at each minimum that the signs of their slopes show between two points. Forces of contacts and friction
    are evaluated at the end of each step and at 512 points or more of the whole motion: a load that acts for a shorter
    time on a body at rest needs ``switches``. Derivatives include those of all instants; they do not exist where a
    contact is touched without speed. ``adjoint`` and ``progress`` are not available; with ``MoreauJean``, ``event`` is
    not available either.

    **Checks.** Residuals of constraints are relative to the terms of each row. The start may be off by 1e-6, and is
    projected by the first step; the motion may be off by 1e-8 (1e-3 in float32). A motion that could only continue by a
    jump onto its constraints ends: a prescribed path may jump, or a constraint may become active while it is violated.

    Without projection, and for rows that are given as accelerations, contradictions of constraints do not show in the
    positions. Such a motion satisfies them in the least-squares sense, and has the result "came to constraints that
    contradict each other", a failure. Rows that are nearly dependent at the start, so that a tolerance decides which
    rows are used, give a warning (see ``constrained_motion``).

    Examples
    --------
    A pendulum of 1 m:

    >>> import jax.numpy as jnp
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> rod = uk.Holonomic(lambda t, q: q @ q - 1.0)
    >>> fall = uk.MassForce(lambda t, q: jnp.eye(2), lambda t, q, v: jnp.array([0.0, -9.81]))
    >>> motion = uk.simulate(uk.System(fall, rod), [1.0, 0.0], [0.0, 0.0], [0.0, 0.5, 1.0])
    >>> motion.q.shape
    (3, 2)
    """
    with read_once():
        if reset is not None:
            raise InputError("reset is an argument of the event: write event=ukjax.Event(function, reset=reset)")
        automatic = isinstance(solver, str) and solver == AUTO
        solver = None if automatic else solver
        model, v0 = with_initial_states(model, q0, v0)
        arguments = Arguments.checked(
            model, q0, v0, ts, drift, dt, solver, adjoint, event, max_steps, progress, switches
        )
        check_flag("throw", throw)
        with hint_if_batched_model(model, arguments.q0):
            model, q0, v0, ts = canonicalise(model, arguments.q0, arguments.v0, arguments.ts)
        stops = None if arguments.switches is None else stops_of(ts, arguments.switches)
        if stops is not None:
            ts, arguments = stops.times, arguments.at_times(stops.times)
        if rtol is None and dt is None:
            warn_if_single(q0.dtype)
        problem = arguments.problem(model, q0, ts, rtol, atol, method)
        may_end = any(event.is_end for event in arguments.events)
        with hint_if_batched_model(model, q0):
            begin, span = _begin_and_span(ts)
            start = InitialState(q0, v0, scales(model, begin, q0, v0, span, problem.method))
            plan = choose_plan(problem, start)
            if automatic:
                check_automatic(problem, plan)
            if plan.eager:
                check_kinematic_map(model, q0, v0)
                check_gaps(model, begin, start)
                warn_of_coarse_time(model, longest_times(np.asarray(ts)), q0, v0)
                check_task(model, problem, start)
            if (band := band_method(problem, start)) is not None:
                problem = replace(problem, band=band)
                plan = choose_plan(problem, start)
            if automatic:
                solution, problem, plan = integrate_automatically(problem, start)
            else:
                solution = integrator(plan.integrator).run(problem, start, plan)
            chosen_integrator = integrator(plan.integrator)
        solution = solution if stops is None else at_samples(solution, stops)
        trajectory = Trajectory(
            solution.t,
            solution.q,
            solution.v,
            solution.result,
            solution.steps,
            solution.last,
            plant_of(model),
            problem.method,
            contacts=solution.contacts,
            held=solution.held,
            events=solution.events,
            provenance=Provenance.of(
                Continuation(
                    Integration(
                        dt=as_recorded(dt),
                        rtol=as_recorded(DEFAULT_RTOL[str(q0.dtype)] if rtol is None else rtol),
                        atol=as_recorded(atol),
                        solver=problem.solver,
                        method=method,
                        drift=arguments.drift,
                        max_steps=max_steps,
                    ),
                    switches=as_recorded(switches),
                    throw=throw,
                    simulate=simulate,
                ),
                external_values_in(model),
                q0.shape[:-1],
            ),
        )
        if not (plan.eager and throw):  # otherwise ``check_reached`` raises an error
            trajectory = with_result_of_task(trajectory, start)
        if not plan.eager:
            if throw and plan.values_known:
                check_differentiated(trajectory, problem, start)
            return Trajectory.with_plan(trajectory, plan)
        with hint_if_batched_model(model, q0):
            check_start(trajectory, problem, chosen_integrator, start, solution.displaced)
        if may_end and q0.ndim == 1:
            trajectory = trajectory.reached()
        if problem.event is not None:
            warn_of_unarmed_event(trajectory, problem.event)
        if not automatic:
            warn_of_stiffness(trajectory, problem, start.scale)
        if throw:
            check_end(trajectory, problem, chosen_integrator, start)
            check_reached(trajectory, start)
            check_limits(trajectory)
            check_limits_of_coordinates(trajectory)
        warn_of_creep(trajectory, problem, start.scale)
        return Trajectory.with_plan(trajectory, plan)


def _begin_and_span(ts):
    """First time and duration [s]. Concrete times use NumPy, since indexing an array of JAX runs a program."""
    ts = np.asarray(ts) if is_concrete(ts) else ts
    begin, span = ts[..., 0], ts[..., -1] - ts[..., 0]
    return (np.asarray(begin), np.asarray(span)) if is_concrete(ts) else (begin, span)
