"""Arguments of ``simulate``: their checks, and the ``Problem`` that they describe."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check import (
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
    check_number,
    check_step,
    check_times,
    repr_of,
    size_of,
)
from ..._contact.moreau_jean import MoreauJean
from ..._control import Sampling
from ..._errors import InputError
from ..._jaxpr.closures import hoist_tracers
from ..._jaxpr.tracing import is_concrete, without_derivatives
from ..._kinematic_map import KinematicMap
from ..._solve import choose
from ..._system import AbstractSystem, kinematic_map_of, nonsmooth_of
from ..diagnose.contact import check_options_with_contact
from ..event import Event, as_events
from ..fallback.sparsity import with_sparsity
from ..inputs import check_starts, sampling_of
from ..integrate.fixed_step import step_counts
from ..integrate.schedule import schedule_of
from ..integrate.switches import check_switches
from ..problem import Problem, StepCounts
from ..stepper.base import AbstractStepper
from ..stepper.error_control import DEFAULT_RTOL
from ..stepper.tableau import check_solver, tableau_of

DEFAULT_MAX_STEPS = 1_000_000
DRIFT_CORRECTIONS = "projection", "none"


class Arguments(NamedTuple):
    """Checked arguments of ``simulate``.

    ``times`` and ``length`` are the values of ts and dt; None if these are traced or not given. ``sampling`` are the
    period and the delay of sampled control. The other fields have the names of the arguments.
    """

    q0: Array
    v0: Array
    ts: Array
    times: np.ndarray | None
    dt: Any
    length: np.ndarray | None
    drift: str
    solver: Any
    adjoint: Any
    events: tuple[Event, ...]
    max_steps: int
    progress: bool
    switches: Array | None
    sampling: Sampling | None

    @classmethod
    def checked(
        cls, model, q0, v0, ts, drift, dt, solver, adjoint, event, max_steps, progress, switches=None
    ) -> "Arguments":
        """Check the arguments, or raise ``InputError``."""
        _check_size(q0, ts)
        # Concrete times are kept, since ``as_array`` returns a traced array inside of a trace.
        concrete_ts, ts = ts, as_array("ts", ts, "times")
        concrete_ts, concrete_dt = without_derivatives((concrete_ts, dt))  # arrays being differentiated have values
        times = np.asarray(concrete_ts, float) if is_concrete(concrete_ts) else None
        length = (
            as_numpy("dt", concrete_dt, "one number [s]")
            if concrete_dt is not None and is_concrete(concrete_dt)
            else None
        )
        q0, v0 = _check_state(q0, v0, ts, times, kinematic_map_of(model))
        _check_names(model, q0)
        drift = _check_drift(drift, model)
        events = as_events(event)
        check_steps(model, solver, drift, dt)
        if not isinstance(solver, MoreauJean):
            _check_adjoint(adjoint, events, drift)
        max_steps = as_integer("max_steps", max_steps, 1)
        if dt is not None:
            max_steps = _largest_count(max_steps, _as_typed(dt, length), times, bool(events))
        check_flag("progress", progress)
        switches = None if switches is None else check_switches(switches, solver)
        return cls(
            q0,
            v0,
            ts,
            times,
            dt,
            length,
            drift,
            solver,
            adjoint,
            events,
            max_steps,
            progress,
            switches,
            sampling_of(model),
        )

    def at_times(self, ts: Array) -> "Arguments":
        """Replace the sample times, so that steps end on ``ts``."""
        values = without_derivatives(ts)
        times = np.asarray(values, float) if is_concrete(values) else None
        if self.dt is None:
            return self._replace(ts=ts, times=times)
        max_steps = _largest_count(self.max_steps, _as_typed(self.dt, self.length), times, bool(self.events))
        return self._replace(ts=ts, times=times, max_steps=max_steps)

    def _known_times(self) -> np.ndarray:
        """The times of the samples of a motion with sampled control.

        Raises ``InputError`` for arguments that sampled control does not allow.
        """
        reasons = {
            "adjoint": self.adjoint is not None,
            "progress": self.progress,
            "a solver that is neither an explicit Runge-Kutta method nor MoreauJean": tableau_of(self.solver) is None
            and not isinstance(self.solver, MoreauJean),
        }
        for reason, holds in reasons.items():
            if holds:
                raise InputError(f"sampled control, ukjax.control.Sampled, is not available with {reason}")
        if self.times is None or self.times.ndim != 1 or self.dt is not None and self.length is None:
            raise InputError(
                "ts and dt must be numbers, one row of times for all members, with sampled control "
                "(ukjax.control.Sampled), and are traced by JAX or have more rows: make them by NumPy outside of jit"
            )
        return self.times

    def _fixed_step(self, dtype):
        """dt as a number of ``dtype``, None for adaptive steps. Concrete values use NumPy, which is faster."""
        if self.dt is None:
            return None
        known = self.length is not None and is_concrete(self.dt)
        return np.asarray(self.length, dtype) if known else as_number("dt", self.dt, "s").astype(dtype)

    def problem(self, model: Any, q0: Array, ts: Array, rtol: Any, atol: Any, method: Any) -> Problem:
        """The ``Problem`` for integrators; model, q0 and ts are results of ``canonicalise``."""
        rtol, atol = tolerances(rtol, atol, q0, kinematic_map_of(model))
        events = hoist_tracers(self.events)
        event = events[0] if is_plain(events) and not nonsmooth_of(model) and self.sampling is None else None
        events = events if event is None else ()
        problem = Problem(
            model=model,
            ts=ts,
            dt=self._fixed_step(q0.dtype),
            counts=None,
            rtol=rtol,
            atol=atol,
            method=with_sparsity(choose(method), model, ts, q0, self.v0.astype(q0.dtype)),
            solver=self.solver,
            adjoint=self.adjoint,
            event=event,
            events=events,
            tableau=tableau_of(self.solver),
            projection=self.drift == "projection",
            max_steps=self.max_steps,
            progress=self.progress,
            ends_on_samples=event is not None or self.switches is not None,
        )
        has_counts = problem.plain or isinstance(self.solver, MoreauJean)
        if self.sampling is not None:
            length = None if self.length is None else float(self.length)
            schedule = schedule_of(self._known_times(), *self.sampling, length, ts.dtype)
            counts = None if length is None else StepCounts(schedule.counts, schedule.most)
            problem = replace(problem, schedule=schedule, counts=counts)
        elif self.times is not None and self.times.ndim == 1 and self.length is not None and has_counts:
            per_interval = step_counts(self.times, float(self.length))
            problem = replace(problem, counts=StepCounts(per_interval, int(per_interval.max())))
        check_options_with_contact(
            model, events, self.solver, self.drift, self.dt is None or problem.counts is not None,
            adjoint=self.adjoint, progress=self.progress,
        )  # fmt: skip
        return problem


def longest_times(ts):
    """The times of the member with the longest duration, or those of all members."""
    return ts if ts.ndim == 1 else ts[np.argmax(ts[:, -1] - ts[:, 0])]


def _as_typed(dt, length):
    """dt for error messages, with its value if that is known."""
    return dt if length is None or type(dt) in (int, float) else length


def is_plain(events: tuple[Event, ...]) -> bool:
    """Whether the only event is one that ends the motion."""
    return len(events) == 1 and events[0].is_end


def check_steps(model: Any, solver: Any, drift: str, dt: Any) -> None:
    """Raise ``InputError`` for a solver that the model, the drift correction, or steps without ``dt`` do not allow."""
    if isinstance(solver, MoreauJean):
        if dt is None:
            raise InputError("solver=MoreauJean() needs dt, the length of its steps [s]")
        return
    if isinstance(solver, AbstractStepper):
        if dt is None:
            raise InputError(
                f"solver={type(solver).__name__}() needs dt, the length of its steps [s]: it does not choose them by "
                "rtol and atol"
            )
        solver.check(model, drift)
    else:
        check_solver(solver)
    if dt is None and solver is not None and not _estimates_error(solver):
        raise InputError(
            f"{type(solver).__name__} does not estimate its error, so that it cannot choose its steps: give dt, the "
            "length of fixed ones [s]"
        )


def _check_adjoint(adjoint, events, drift):
    if adjoint is None:
        return
    import diffrax as dfx

    if not isinstance(adjoint, dfx.AbstractAdjoint):
        raise InputError(f"adjoint must be one of diffrax, such as diffrax.DirectAdjoint(), got {repr_of(adjoint)}")
    if type(adjoint).__name__ == "BacksolveAdjoint" and (drift == "projection" or events):
        raise InputError(
            "adjoint=BacksolveAdjoint() runs the motion backwards, which projected steps and events do not allow: use "
            "drift='none' without an event, or use the default RecursiveCheckpointAdjoint, whose gradients are exact"
        )


def _estimates_error(solver):
    import diffrax as dfx

    return isinstance(solver, dfx.AbstractAdaptiveSolver) and type(solver).__name__ != "RungeKutta4"


def _check_names(model, q0):
    coordinates = model.coordinates if isinstance(model, AbstractSystem) else None
    if coordinates is not None and len(coordinates) != q0.shape[-1]:
        names = ", ".join(name for name, _ in coordinates)
        raise InputError(f"the model has {len(coordinates)} coordinates ({names}), but q0 has shape {q0.shape}")


def tolerances(rtol: Any, atol: Any, q0: Any, kinematic_map: KinematicMap | None) -> tuple[Any, Any]:
    """The tolerances rtol and atol in the type of ``q0``, or raise ``InputError``."""
    default = DEFAULT_RTOL[str(q0.dtype)]
    rtol = default if rtol is None else check_number("rtol", rtol, least=0, below=1)
    if atol is None:
        return _as_type(rtol, q0.dtype), None
    atol = as_numbers("atol", atol, least=0, below=float("inf"))
    if kinematic_map is not None and atol.ndim:
        raise InputError(f"atol must be one number for a model with a kinematic_map, got shape {atol.shape}")
    if atol.shape not in ((), q0.shape[-1:]):
        raise InputError(
            f"atol must be a number or have shape {q0.shape[-1:]}, one per coordinate, got shape {atol.shape}"
        )
    if is_concrete(rtol, atol) and float(rtol) < float(jnp.finfo(q0.dtype).eps) and np.any(np.asarray(atol) == 0):
        raise InputError(
            f"rtol and atol must allow some error: with rtol = {float(rtol):g} and atol = 0 no step is small enough. "
            f"The default is {default:g} of what is computed, and of the size of each coordinate"
        )
    return _as_type(rtol, q0.dtype), _as_type(atol, q0.dtype)


def _as_type(x, dtype):
    """Convert to ``dtype``. Concrete values use NumPy, since JAX would compile a program."""
    return np.asarray(x, dtype) if is_concrete(x) else x.astype(dtype)


def _check_size(q0, ts):
    start_shape, times_shape = size_of(q0), size_of(ts)
    n, members = (start_shape or (1,))[-1], start_shape[0] if len(start_shape) == 2 else 1
    name, value = ("q0", q0) if members > (times_shape or (1,))[0] else ("ts", ts)
    check_memory(name, value, (2 * n + 1) * members * (times_shape or (1,))[0])


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
    """Raise ``InputError`` unless times increase; those of one member of a batch may also be all equal."""
    if ts.ndim != 2:
        return check_times("ts", ts)
    if q0.ndim != 2 or len(ts) != len(q0):
        raise InputError(
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
    if drift not in DRIFT_CORRECTIONS:
        raise InputError(
            f"drift must be 'projection' or 'none', got {repr_of(drift)}; for Baumgarte's stabilisation give the "
            "constraints their gains, Holonomic(phi, *critically_damped(5.0)), and choose 'none'"
        )
    if drift == "projection" and not is_system:
        raise InputError(
            "drift='projection' needs a ukjax.System: a function that returns Terms does not say where the "
            "constraints are. Use drift='none'"
        )
    return drift


def _largest_count(max_steps, dt, times, seeks_event):
    """Check ``dt``; return the largest number of steps: those to the last time, and ``max_steps`` more for an event."""
    if times is None or not is_concrete(dt):
        check_step(dt, None)
        return max_steps
    longest = longest_times(times)
    check_step(dt, longest, max(max_steps, MAX_FIXED_STEPS), ", or allow as many by max_steps")
    needed = int(step_counts(longest, float(dt)).sum()) + times.shape[-1]
    # The same number for any shorter time, so that a restart needs no new compilation.
    return max(max_steps, needed) + (max_steps if seeks_event else 0)
