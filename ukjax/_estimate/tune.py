"""``tune``: minimise a cost of closed-loop motions over gains and dimensions, by gradients through the simulation."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array

from .._check import (
    as_array,
    as_integer,
    as_number,
    as_numbers,
    as_numpy,
    call,
    check_finite,
    check_flag,
    check_function,
    check_step,
    check_times,
    check_word,
    repr_of,
)
from .._contact.history import mode_of
from .._errors import InputError, SimulationError
from .._functions import two_arrays
from .._integration import Integration
from .._kernel import without_unused
from .._motion.result import NEEDS_FALLBACK
from .._motion.simulate.arguments import DEFAULT_MAX_STEPS, DRIFT_CORRECTIONS, check_steps
from .._motion.simulate.simulate import simulate
from .._motion.stepper.tableau import order_of, tableau_of
from .._motion.trajectory.observation import observe_by
from .._motion.trajectory.trajectory import Trajectory
from .._parameters import Parameters, check_settings, with_array
from .._precision import Numbers
from .._run.compile import jit_unoptimised
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem, kinematic_map_of, nonsmooth_of
from .._with_states import equations_of
from .following import following_cost
from .tuned import Tuned

MAX_LOG_CHANGE = float(np.log(1e4))
"""Bound of |x|; x is the logarithm of a positive parameter relative to its first guess, so a factor of 1e4."""

COST_TOLERANCE, FIRST_COST_TOLERANCE = 0.02, 1e-6
"""Largest change of the tuned cost with half the time step, relative to the tuned cost, and to that of the first guess
(the two are added)."""

MAX_ROUNDS = 4
"""Largest number of time steps that are tried; each has to be compiled."""

FAILED_COST = 1e6
"""Cost of a motion that fails, in units of the first cost: larger than any other."""


def tune(
    model: Any,
    free: str | Iterable[str],
    q0: Numbers,
    v0: Numbers,
    ts: Numbers,
    *,
    cost: Callable[[Trajectory], Array] | None = None,
    effort: float = 0.0,
    settings: Mapping[str, Numbers] | None = None,
    held_out: tuple[Numbers, Numbers] | None = None,
    start_of: Callable[[Any, Array, Array], tuple[Array, Array]] | None = None,
    bounds: Mapping[str, Any] | None = None,
    dt: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    solver: Any = None,
    method: str | AbstractMethod = "orthogonal",
    drift: str = "none",
    max_steps: int = DEFAULT_MAX_STEPS,
    most_evaluations: int = 60,
    progress: bool = False,
) -> Tuned:
    """Tune parameters of a model (gains, rates, lengths): minimise a cost of its motions, averaged over starts.

    Parameters
    ----------
    model : callable
        The system, with its parameters as fields.
    free : str or iterable of str
        Names of the parameters to tune, as in ``fit``.
    q0, v0 : array_like, shape (n,) or (starts, n)
        Initial coordinates and velocities.
    ts : array_like, shape (samples,)
        Times of the samples [s].
    cost : callable, optional
        ``cost(motion) -> float`` for the ``Trajectory`` of one start, such as
        ``lambda motion: jnp.mean(motion.q[:, 0] ** 2)``. Default: ``following_cost(effort)``.
    effort : float, optional
        Weight of the force in the default cost. Default: 0.
    settings : dict, optional
        Values of other fields of the model that differ between starts, name -> array (starts, ...): for example
        payloads, since a gain that suits one payload may not suit another.
    held_out : tuple of array_like, optional
        Further starts (q0, v0), on which the result is evaluated but not tuned.
    start_of : callable, optional
        ``start_of(model, q0, v0) -> (q0, v0)`` returns the start for a model with tuned parameters: for example, it
        closes loops whose links change.
    bounds : dict, optional
        As in ``fit``. Default: a positive parameter stays positive.
    dt : float, optional
        Longest time step [s]. Default: the step begins at a quarter of the distance of the samples. It is shortened,
        and the search is resumed, until half the step changes the tuned cost by less than 2 %.
    rtol, atol : float, optional
        Tolerances of adaptive steps, as in ``simulate``. Default: fixed steps.
    solver : optional
        As in ``simulate``. Default: the Runge–Kutta method of order 4 for fixed steps, ``Dopri8`` for adaptive steps.
    method : str or AbstractMethod, optional
        Solver for the accelerations, as in ``simulate``.
    drift : {"none", "projection"}, optional
        As in ``simulate``. Default: "none", since the tuned parameters are often those that remove drift. Systems with
        contacts need "projection"; derivatives contain those of the impacts and their instants.
    max_steps : int, optional
        Largest number of adaptive steps of each motion.
    most_evaluations : int, optional
        Largest number of evaluations of the cost. Default: 60.
    progress : bool, optional
        Whether to print a line per evaluation. Default: False.

    Returns
    -------
    Tuned
        The model with the best parameters, and the costs and motions before and after.

    Raises
    ------
    InputError
        For bad input.
    SimulationError
        If a motion does not reach the end at the first guess.

    Warns
    -----
    UserWarning
        If the automatic time step is still too long after four rounds. If a motion with the tuned parameters grazes a
        contact, or the rank of its constraints changes.

    Notes
    -----
    The search is SciPy's quasi-Newton method L-BFGS-B with exact derivatives in forward mode, which suits a few
    parameters. ``Tuned.dt`` and ``Tuned.cost_error`` report the time step and its effect. The effect of a given ``dt``
    or tolerance is not checked, since another step has to be compiled again.
    """
    check_function("model", model, "t, q, v")
    parameters = Parameters.of(model, free, bounds)
    as_number("effort", effort, least=0, below=float("inf"))
    cost = _cost_of(model, cost, effort)
    check_word("drift", drift, DRIFT_CORRECTIONS)
    most_evaluations = as_integer("most_evaluations", most_evaluations, 1)
    check_flag("progress", progress)
    if start_of is not None:
        check_function("start_of", start_of, "model, q0, v0")
    if not isinstance(settings, Mapping | None):
        raise InputError(f"settings must be a dictionary, name -> array, got {repr_of(settings)}")
    settings = {name: as_numbers(f"settings[{name!r}]", value) for name, value in (settings or {}).items()}
    starts = _starts(model, q0, v0)
    ts = as_numpy("ts", ts, "times")
    check_times("ts", ts)
    if dt is not None:
        check_step(dt, ts)
    held_out_starts = None if held_out is None else _held_out(model, held_out, starts)
    _check_settings(model, settings, len(starts[0]), held_out)
    adaptive = dt is None and not (rtol is None and atol is None)
    steps_given = adaptive or dt is not None
    step = float(np.median(np.diff(ts))) / 4 if dt is None else float(np.asarray(dt))
    check_steps(model, solver, drift, None if adaptive else step)
    method, max_steps = choose(method), as_integer("max_steps", max_steps, 1)
    # ``simulate`` has its own fallback for adaptive and implicit steps.
    fast = None if adaptive or tableau_of(solver) is None else method.fast_path()
    if solver is None and not adaptive:
        from .._motion.stepper.runge_kutta4 import RungeKutta4

        solver = RungeKutta4()
    how = Integration(rtol=rtol, atol=atol, solver=solver, drift=drift, max_steps=max_steps)

    guess = np.zeros(len(parameters.names))
    motion_with = lambda dt: partial(simulate, ts=ts, **replace(how, dt=None if adaptive else dt))
    cost_with = lambda dt: _cost_of_motion(parameters, cost, start_of, motion_with(dt))
    best_x, evaluations, cost_error = guess, 0, None
    for last_round in (False,) * (MAX_ROUNDS - 1) + (True,):
        evaluate = _compiled(cost_with(step), method, fast)
        cost_at = _Objective(evaluate, _observed(parameters, method, fast), model, starts, settings)
        values, _, before = cost_at(guess)
        if not (steps_given or last_round or np.all(np.isfinite(values))):
            step /= 4
            continue
        _check_costs(values, before)
        first = float(np.mean(values))
        size = first if first > 0 else 1.0
        evaluations_left = max(1, most_evaluations - evaluations)
        solution, used = _minimise(cost_at, parameters, size, evaluations_left, progress, best_x)
        best_x, evaluations = solution.x, evaluations + used
        if steps_given:
            break
        finer_costs = _cost_only(cost_with(step / 2), method, fast)(model, jnp.asarray(solution.x), starts, settings)
        cost_error = float(np.mean(np.asarray(finer_costs))) - float(solution.fun) * size
        error_ratio = abs(cost_error) / (COST_TOLERANCE * abs(float(solution.fun)) * size + FIRST_COST_TOLERANCE * size)
        if error_ratio <= 1:
            break
        if last_round:
            _warn_of_steps(float(solution.fun) * size, cost_error, step)
            break
        shortest, longest = 1 / 8, 1 / 2
        factor = (2 * error_ratio) ** (-1 / order_of(solver)) if np.isfinite(error_ratio) else shortest
        step *= float(np.clip(factor, shortest, longest))

    reported = cost_at if held_out_starts is None else cost_at._replace(starts=held_out_starts)
    values, _, after = reported(solution.x)
    if held_out_starts is not None:
        first_values, _, before = reported(guess)
    x = jnp.asarray(solution.x)
    tuned_model = parameters.put(model, x)
    before, after = (
        replace(reported.with_observation(guess, before), model=model),
        replace(reported.with_observation(x, after), model=tuned_model),
    )
    _warn_of_missing_gradient(after)
    return Tuned(
        model=tuned_model,
        names=parameters.names,
        first_values=np.asarray(parameters.first),
        values=np.asarray(parameters.values(x)),
        first=first,
        cost=float(solution.fun) * size,
        dt=None if adaptive else step,
        cost_error=cost_error,
        first_held_out=None if held_out_starts is None else float(np.mean(first_values)),
        held_out=None if held_out_starts is None else float(np.mean(values)),
        evaluations=evaluations,
        converged=bool(solution.success),
        before=before,
        after=after,
    )


class _Objective(NamedTuple):
    """The cost of the motions from some starts, as a function of x (p,)."""

    evaluate: Callable
    observed: Callable
    model: Any
    starts: tuple[Array, Array]
    settings: dict[str, Array]

    def __call__(self, x) -> tuple[Array, Array, Trajectory]:
        """The cost of each motion, its derivatives with respect to x, and the motions."""
        return self.evaluate(self.model, jnp.asarray(x), self.starts, self.settings)

    def with_observation(self, x, motions: Trajectory) -> Trajectory:
        """The motions with x, completed by the quantities at their samples (forces, residuals, ...)."""
        return replace(motions, observation=self.observed(self.model, jnp.asarray(x), self.settings, motions))


def _cost_of_motion(parameters, cost, start_of, motion_from):
    """The function (x, model, start, setting, method) -> (cost, (cost, motion, needs_fallback)) of one motion."""

    def cost_of_motion(x, model, start, setting, method):
        changed = _with_numbers(parameters, model, x, setting)
        start_used = (
            start
            if start_of is None
            else two_arrays("start_of", "(q0, v0)", call("start_of", start_of, changed, *start))
        )
        motion = motion_from(changed, *start_used, method=method)
        observation, needs_fallback = observe_by(
            method, equations_of(changed), motion.t, motion.q, motion.v, mode_of(motion.contacts), motion.held
        )
        value = as_array("cost", call("cost", cost, replace(motion, observation=observation)), "one number", "return")
        if value.ndim:
            raise InputError(f"cost must return one number per motion, got shape {value.shape}")
        return value, (value, motion.without_model(), jnp.any(needs_fallback) | (motion.result == NEEDS_FALLBACK))

    return cost_of_motion


def _compiled(cost_of_motion, method, fast):
    """The function (model, x, starts, settings) -> (costs, their derivatives with respect to x, motions)."""

    @eqx.filter_jit
    def evaluate(method, model, x, starts, settings):
        # A cost uses few of the quantities at the samples. A loop over impacts or adaptive steps must be traced with
        # the direction of jacfwd, since its program for reverse mode has no derivative in forward mode.
        by_direction = fast is None or bool(nonsmooth_of(model))
        cost_at = cost_of_motion if by_direction else without_unused(cost_of_motion)

        def member(start, setting):
            cost_of_x = lambda x: cost_at(x, model, start, setting, method)
            if x.size > 1 or by_direction:
                slope, (value, motion, needs_fallback) = jax.jacfwd(cost_of_x, has_aux=True)(x)
            else:  # jacfwd would add a batch of one direction, for which JAX traces all loops again
                _, slope, (value, motion, needs_fallback) = jax.jvp(cost_of_x, (x,), (jnp.ones_like(x),), has_aux=True)
                slope = slope[None]
            return (value, slope, motion), needs_fallback

        if len(starts[0]) > 1:
            return jax.vmap(member)(starts, settings)
        result = member(*jax.tree.map(lambda leaf: leaf[0], (starts, settings)))
        return jax.tree.map(lambda leaf: leaf[None], result)

    return _with_fallback(evaluate, method, fast)


def _cost_only(cost_of_motion, method, fast):
    """The function (model, x, starts, settings) -> costs, compiled for a single evaluation."""

    @jit_unoptimised
    def evaluate(method, model, x, starts, settings):
        def member(start, setting):
            _, (value, _, needs_fallback) = without_unused(cost_of_motion)(x, model, start, setting, method)
            return value, needs_fallback

        return jax.vmap(member)(starts, settings)

    return _with_fallback(evaluate, method, fast)


def _observed(parameters, method, fast):
    """The function (model, x, settings, motions) -> quantities at the samples of every motion."""

    @eqx.filter_jit
    def evaluate(method, model, x, settings, motions):
        def member(setting, t, q, v, contacts, held):
            changed = equations_of(_with_numbers(parameters, model, x, setting))
            return observe_by(method, changed, t, q, v, mode_of(contacts), held)

        return jax.vmap(member)(settings, motions.t, motions.q, motions.v, motions.contacts, motions.held)

    return _with_fallback(evaluate, method, fast)


def _with_numbers(parameters, model, x, setting):
    """The model with the parameters x and the setting of one start."""
    changed = parameters.put(model, x)
    for name, value in setting.items():
        changed = with_array(changed, name, value)
    return changed


def _with_fallback(evaluate, method, fast):
    """``evaluate`` with the method ``fast`` if there is one, and again with ``method`` if that needs a fallback."""

    def with_fallback(*arguments):
        if fast is not None:
            result, needs_fallback = evaluate(fast, *arguments)
            if not np.any(np.asarray(needs_fallback)):
                return result
        return evaluate(method, *arguments)[0]

    return with_fallback


def _minimise(cost_at, parameters, size, most_evaluations, progress, guess):
    """Minimise the mean cost, in units of ``size``: SciPy's solution, and the number of evaluations."""
    steps = 0

    def objective(x):
        nonlocal steps
        steps += 1
        values, slopes = (np.asarray(array) for array in cost_at(x)[:2])
        value, slope = np.mean(values), np.mean(slopes, axis=0)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return FAILED_COST, np.zeros_like(x)
        if progress:
            values_now = np.asarray(parameters.values(jnp.asarray(x)))
            print(f"{steps:3d}  cost {value:.6g}  " + "  ".join(f"{v:.5g}" for v in values_now), flush=True)
        return value / size, slope / size

    limits = [(-MAX_LOG_CHANGE, MAX_LOG_CHANGE)] * len(parameters.names)
    solution = scipy.optimize.minimize(
        objective, guess, jac=True, method="L-BFGS-B", bounds=limits,
        options={"maxfun": most_evaluations, "ftol": 1e-9, "gtol": 1e-7},
    )  # fmt: skip
    return solution, steps


def _cost_of(model, cost, effort):
    """The cost of the user, or the default one; raises ``InputError`` if that does not apply to the task."""
    if cost is not None:
        check_function("cost", cost, "motion")
        return cost
    task = getattr(getattr(model, "control", None), "task", ())
    own = isinstance(model, AbstractSystem) and type(model).task_error is not AbstractSystem.task_error
    if not own and any(constraint.level == "acceleration" for constraint in task):
        raise InputError(
            "cost must be given: the task is an AccelerationConstraint, which has no error in positions or velocities. "
            "Write a function of the motion, such as lambda motion: jnp.mean(motion.v**2)"
        )
    return following_cost(effort)


def _starts(model, q0, v0, names=("q0", "v0")):
    """Checked q0 and v0, shape (starts, n)."""
    arrays = tuple(map(as_array, names, (q0, v0)))
    for name, value in zip(names, arrays, strict=True):
        check_finite(name, value)
    q0, v0 = map(jnp.atleast_2d, arrays)
    members = max(len(q0), len(v0))
    sizes_agree = q0.shape[-1] == v0.shape[-1] or kinematic_map_of(equations_of(model)) is not None
    fits = q0.ndim == v0.ndim == 2 and sizes_agree and {len(q0), len(v0)} <= {1, members}
    if not fits or 0 in q0.shape or 0 in v0.shape or not arrays[0].ndim:
        raise InputError(
            f"{' and '.join(names)} must have shape (n,) or (starts, n), got shapes {arrays[0].shape} and "
            f"{arrays[1].shape}"
        )
    return jnp.broadcast_to(q0, (members, q0.shape[1])), jnp.broadcast_to(v0, (members, v0.shape[1]))


def _held_out(model, held_out, starts):
    """Checked starts on which the result is evaluated, shape (starts, n)."""
    if not isinstance(held_out, tuple | list) or len(held_out) != 2:
        raise InputError(f"held_out must be further starts (q0, v0), got {repr_of(held_out)}")
    further = _starts(model, *held_out, names=("held_out[0]", "held_out[1]"))
    if further[0].shape[1] != starts[0].shape[1]:
        raise InputError(
            f"held_out must have {starts[0].shape[1]} coordinates like q0, got starts of shape {further[0].shape}"
        )
    return further


def _check_settings(model, settings, starts, held_out):
    check_settings(model, settings, leading=1)
    for name, value in settings.items():
        if value.shape[:1] != (starts,):
            raise InputError(
                f"settings[{name!r}] must have an entry for each of {starts} starts, got shape {value.shape}"
            )
    if held_out is not None and settings:
        raise InputError("held_out starts have no settings of their own: evaluate them apart, or leave settings out")


def _check_costs(values, motions):
    """Raise ``SimulationError`` unless every start has a finite cost at the first guess."""
    if np.all(np.isfinite(values)):
        return
    start = int(np.argmin(np.isfinite(values)))
    t, reason = np.asarray(motions.last[0])[start], motions.reason[start]
    raise SimulationError(
        f"start {start} has no finite cost at the first guess: its motion {reason}, at t = {t:g} s; take a smaller dt "
        "or rtol, a shorter time, or gains that are nearer"
    )


def _warn_of_steps(cost, error, dt):
    warnings.warn(
        f"the steps are too long: with dt = {dt:.3g} s the tuned cost is {cost:.4g}, with half of it "
        f"{cost + error:.4g}. The result depends on the steps: give a smaller dt",
        stacklevel=3,
    )


def _warn_of_missing_gradient(motion):
    if np.all(motion.differentiable):
        return
    grazes = motion.contacts is not None and np.any(motion.contacts.grazing)
    reason = "a contact is grazed in a motion" if grazes else "the rank of the constraints changes along a motion"
    warnings.warn(
        f"{reason}: the cost has no gradient there, and another guess may lead elsewhere",
        stacklevel=3,
    )
