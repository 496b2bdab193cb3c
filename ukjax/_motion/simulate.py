"""Constrained motion over time: the front door of the loops."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import check_function, known
from .._closures import opened
from .._precision import Numbers, as_real, warn_if_single
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem
from .._terms import Terms
from .base import Counts, Request
from .diagnose import check_end, check_event, check_start
from .even_steps import EvenSteps, even_counts, even_times
from .given import check_starts, taken_in, telling_of_batches
from .lanes import InLanes
from .one import One
from .tableau import DOPRI8, Tableau
from .trajectory import Trajectory

MOST_STEPS = 1_000_000
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
PLAIN_LOOPS = One(), EvenSteps(), InLanes()
"""Our own ways to go through time; the first that accepts what is asked does it, or else diffrax's."""


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
    event: Callable | None = None,
    max_steps: int = MOST_STEPS,
    progress: bool = False,
    throw: bool = True,
) -> Trajectory:
    """The constrained motion from q0, v0 at ts[0], sampled at the times ``ts`` [s].

    ``q0`` and ``v0`` have shape (n,), or (batch, n) for many starts at once: every field of the trajectory then has a
    leading batch axis. ``model`` is a ``System``, or any function (t, q, v) -> ``Terms``. All is computed in the widest
    precision among q0, v0, the model's arrays and its Terms. A Python ``float`` in a field of the model counts as an
    array; so does a traced number in a closure, which has a derivative as a field has, though a function made anew is
    compiled anew.

    **Drift.** ``drift="projection"``, the default for a ``System``, brings every step and every sample back onto the
    constraints, φ = 0, φ̇ = 0 and ψ = 0, in the metric of M; it wants a consistent start (see ``project``).
    ``drift="none"`` integrates the accelerations as they are: the constraints drift, unless they carry Baumgarte
    gains, and the start may violate them. Baumgarte gains act either way.

    **Steps.** Adaptive by default, with ``rtol`` and ``atol`` (1e-9 in float64, 1e-5 in float32); ``dt`` asks for
    fixed steps instead: as many equal ones between each sample and the next as make none longer than dt. ``solver`` is
    any diffrax solver (default ``Dopri8``; ``RungeKutta4`` for fixed steps), ``adjoint`` any diffrax adjoint (left out,
    the one that a derivative wants, but say ``ForwardMode`` for forward mode through a ``jit`` of yours;
    ``DirectAdjoint``, with a small ``max_steps``, for both modes and for second derivatives; ``BacksolveAdjoint``, with
    ``drift="none"`` only, for reverse mode in little memory but not to rounding: ``python -m benchmarks adjoints``
    shows cost and accuracy). With adaptive steps a derivative is as exact as the motion only where the motion makes the
    steps small: choose ``dt`` for derivatives at rest. ``method`` as in ``constrained_motion``.

    **Batches.** Every member takes the adaptive steps that it needs itself, and what befalls it befalls no other.
    Memory is that of what is saved: ``ts=[0, 10]`` keeps start and end alone. A new batch of the same shape, or a model
    with other numbers in it, compiles nothing anew. Explicit Runge–Kutta solvers without event, adjoint and progress
    run fastest; anything else goes through ``vmap`` of diffrax's own loop. The model is one for all starts; with one
    for each, map over both: ``equinox.filter_vmap(lambda model, q0, v0: ukjax.simulate(model, q0, v0, ts))``.

    **Events.** ``event(t, q, v)`` ends the motion where it crosses zero; a single trajectory then ends with that
    instant, and samples after it are left out (in a batch, or under ``jit``, they are NaN).

    ``progress`` shows a meter. Raises ``ValueError`` for bad input and ``SimulationError`` where the motion cannot be
    continued, does not keep its constraints, or has a servo task that its actuators cannot perform, saying which
    trajectory, when and which constraint; with ``throw=False``, or under ``jit``, see ``Trajectory.finished`` instead.
    """
    # The values of times are known even where a function being traced makes them into arrays.
    times, length = _value("ts", ts), _value("dt", dt)
    q0, v0, ts = _check_state(q0, v0, ts, times)
    _check_names(model, q0)
    drift = _check_drift(drift, model)
    if event is not None:
        check_function("event", event, "t, q, v")
    _check_solver(solver, adjoint, event, drift, dt)
    with telling_of_batches(model, q0):
        model, q0, v0, ts = taken_in(model, q0, v0, ts)
    if rtol is None and dt is None:
        warn_if_single(q0.dtype)
    tolerance = TOLERANCE[str(q0.dtype)]
    request = Request(
        model=model,
        ts=ts,
        dt=None if dt is None else as_real("dt", dt, scalar=True),
        counts=None,
        times=None,
        rtol=as_real("rtol", tolerance if rtol is None else rtol, scalar=True),
        atol=as_real("atol", tolerance if atol is None else atol),
        method=choose(method),
        solver=solver,
        adjoint=adjoint,
        event=opened(event),
        tableau=_tableau(solver),
        projection=drift == "projection",
        max_steps=max_steps if times is None or length is None else _check_steps(max_steps, length, times),
        progress=progress,
    )
    if times is not None and length is not None:
        request = _with_even_steps(request, times, float(length))
    traced = not known(request, q0, v0)
    if event is not None and not traced:
        check_event(event, ts[0], q0, v0)
    loop = next((loop for loop in PLAIN_LOOPS if loop.accepts(request, q0, v0)), None) or _general_loop()
    with telling_of_batches(model, q0):
        samples = _done(loop, request, q0, v0)
    trajectory = Trajectory(
        samples.t, samples.q, samples.v, samples.result, samples.steps, samples.last, model, request.method
    )
    if traced:
        return trajectory
    with telling_of_batches(model, q0):
        check_start(trajectory, request, loop, q0, v0)
    if event is not None and q0.ndim == 1:
        trajectory = trajectory.reached()
    if throw:
        check_end(trajectory, request, loop)
    return trajectory


def _done(loop, request, q0, v0):
    """What the loop gives; where it is differentiated in forward mode, which only some can do, by one that can."""
    try:
        return loop.run(request, q0, v0)
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
    import diffrax as dfx

    if request.adjoint is not None:
        raise ValueError(
            f"adjoint={type(request.adjoint).__name__}() is for reverse mode (jax.grad, jax.vjp), and this is forward "
            "mode (jax.jvp, jax.jacfwd): say adjoint=diffrax.ForwardMode(), or leave it out"
        )
    return _general_loop().run(replace(request, adjoint=dfx.ForwardMode()), q0, v0)


def _value(name, given):
    """The value of a number or an array; None where it is being traced, or not given."""
    if given is None:
        return None
    as_real(name, given, scalar=name == "dt")  # or what is wrong with it
    return np.asarray(given, float) if known(given) else None


def _with_even_steps(request, ts, dt):
    between = even_counts(ts, dt)
    if request.plain:
        return eqx.tree_at(
            lambda r: r.counts, request, Counts(jnp.asarray(between), int(between.max())), is_leaf=lambda x: x is None
        )
    times = jnp.asarray(even_times(ts, dt), request.ts.dtype)
    return eqx.tree_at(lambda r: r.times, request, times, is_leaf=lambda x: x is None)


def _general_loop():
    from .continuous import Continuous  # diffrax takes a while to import, and is hardly ever needed

    return Continuous()


def _tableau(solver):
    if solver is None:
        return DOPRI8
    import diffrax as dfx

    return Tableau.of(solver) if isinstance(solver, dfx.AbstractERK) else None


def _check_solver(solver, adjoint, event, drift, dt):
    backwards = adjoint is not None and type(adjoint).__name__ == "BacksolveAdjoint"
    if backwards and (drift == "projection" or event is not None):
        raise ValueError(
            "adjoint=BacksolveAdjoint() runs the motion backwards, which projected steps and events do not allow: say "
            "drift='none' without an event, or use the default RecursiveCheckpointAdjoint, whose gradients are exact"
        )
    if dt is None and type(solver).__name__ == "RungeKutta4":
        raise ValueError(
            "RungeKutta4 does not estimate its error, so that it cannot choose its steps: give dt, the "
            "length of fixed ones [s]"
        )


def _check_names(model, q0):
    named = model.coordinates if isinstance(model, AbstractSystem) else None
    if named is not None and len(named) != q0.shape[-1]:
        names = ", ".join(name for name, _ in named)
        raise ValueError(f"the model has {len(named)} coordinates ({names}), but q0 has shape {q0.shape}")


def _check_state(
    q0: Any, v0: Any, ts: Any, times: np.ndarray | None
) -> tuple[Float[Array, "*batch n"], Float[Array, "*batch n"], Array]:
    q0, v0, ts = as_real("q0", q0), as_real("v0", v0), as_real("ts", ts)
    check_starts(q0, v0)
    if ts.ndim != 1 or ts.size < 2:
        raise ValueError(f"ts must be at least two times in one row, shape (samples,), got shape {ts.shape}")
    for name, value in (("q0", q0), ("v0", v0), ("ts", ts if times is None else times)):
        if known(value) and not np.all(np.isfinite(value)):
            raise ValueError(f"{name} must be finite, got {np.asarray(value)}")
    if times is not None and not np.all(np.diff(times) > 0):
        raise ValueError("ts must increase strictly: the motion starts at ts[0] and is sampled at each of ts")
    return q0, v0 if v0.shape == q0.shape else jnp.broadcast_to(v0, q0.shape), ts


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
    span, step = float(ts[-1] - ts[0]), float(dt)
    if not 0 < step <= span:
        raise ValueError(f"dt must be positive and no longer than the whole time, {span:g} s, got {step:g}")
    return max(max_steps, int(np.ceil(span / step)) + 2)
