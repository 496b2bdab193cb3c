"""Gains and dimensions that make a motion good, by gradients through closed-loop trajectories."""

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
from .._functions import two_arrays
from .._kernel import without_unused
from .._motion.diagnose.motion import SimulationError
from .._motion.result import UNUSUAL
from .._motion.simulate import simulate
from .._motion.stepper.tableau import check_solver
from .._motion.trajectory.observation import observe_by
from .._motion.trajectory.trajectory import Trajectory
from .._parameters import Parameters, check_settings, with_array
from .._precision import Numbers
from .._run.compile import jit_unoptimised
from .._solve import choose
from .._system import AbstractSystem, kinematic_map_of
from .following import following_cost
from .tuned import Tuned

MAX_LOG_CHANGE = float(np.log(1e4))
"""How far x goes: four powers of ten for what is positive."""

COST_TOLERANCE, FIRST_COST_TOLERANCE = 0.02, 1e-6
"""Shares of the tuned cost, and of that of the first guess, by which half the steps may change the tuned cost."""

MAX_ROUNDS = 4
"""So many lengths of steps are tried; each compiles the motions anew."""

FAILED_COST = 1e6
"""What a motion costs that breaks down, in units of the first cost: it is worse than any other."""


def tune(
    model: Any,
    free: str | Iterable[str],
    q0: Numbers,
    v0: Numbers,
    ts: Numbers,
    *,
    dt: float | None = None,
    cost: Callable[[Trajectory], Array] | None = None,
    effort: float = 0.0,
    settings: Mapping[str, Numbers] | None = None,
    held_out: tuple[Numbers, Numbers] | None = None,
    start_of: Callable[[Any, Array, Array], tuple[Array, Array]] | None = None,
    bounds: Mapping[str, Any] | None = None,
    drift: str = "none",
    solver: Any = None,
    most_evaluations: int = 60,
    progress: bool = False,
) -> Tuned:
    """The ``free`` parameters of ``model`` (gains, rates, lengths) with which ``cost`` is least, averaged over starts.

    ``q0`` and ``v0``, (n,) or (starts, n), are where motions begin; they are simulated over ``ts`` [s] in fixed steps
    of at most ``dt`` [s]. Left out, dt begins at a quarter of the distance of samples, and is shortened, and the search
    taken up again, until half of it changes the tuned cost by less than 2 %; where four rounds are not enough, a
    ``UserWarning`` says so. ``Tuned.dt`` and ``Tuned.cost_error`` say what came out. Whether a dt of yours is short
    enough is not checked: another dt compiles all anew. ``settings`` lets other fields of the model differ from start
    to start, name -> (starts, ...): a gain that is good for one payload may not be for another. ``cost(motion)`` is a
    number from the ``Trajectory`` of one start, such as ``jnp.mean(motion.q[:, 0] ** 2)``; left out, it is
    ``following_cost(effort)``.

    ``held_out`` are starts (q0, v0) on which the result is tried and not tuned. ``start_of(model, q0, v0) -> (q0, v0)``
    returns the start for a model with the parameters in question, such as one that closes loops whose links change.
    ``free`` and ``bounds`` as in ``fit``: what is positive stays positive. ``drift="none"``: what is tuned is often
    what removes drift; ``"projection"`` keeps all constraints.

    Quasi-Newton steps (SciPy's L-BFGS-B) on exact derivatives, by forward mode: made for a few parameters. Raises
    ``ValueError`` for bad input and ``SimulationError`` where a motion does not reach the end at the first guess.
    """
    check_function("model", model, "t, q, v")
    parameters = Parameters.of(model, free, bounds)
    as_number("effort", effort, least=0, below=float("inf"))
    cost = _cost_of(model, cost, effort)
    check_word("drift", drift, ("none", "projection"))
    check_solver(solver)
    most_evaluations = as_integer("most_evaluations", most_evaluations, 1)
    check_flag("progress", progress)
    if start_of is not None:
        check_function("start_of", start_of, "model, q0, v0")
    if not isinstance(settings, Mapping | None):
        raise ValueError(f"settings must be a dictionary, name -> array, got {repr_of(settings)}")
    settings = {name: as_array(f"settings[{name!r}]", value) for name, value in (settings or {}).items()}
    starts = _starts(model, q0, v0)
    ts = as_numpy("ts", ts, "times")
    check_times("ts", ts)
    if dt is not None:
        check_step(dt, ts)
    tried = None if held_out is None else _held_out(model, held_out, starts)
    _check_settings(model, settings, len(starts[0]), held_out)
    if solver is None:
        from .._motion.stepper.runge_kutta4 import RungeKutta4  # diffrax takes a while to import

        solver = RungeKutta4()

    method, guess = choose("orthogonal"), np.zeros(len(parameters.names))
    step = float(np.median(np.diff(ts))) / 4 if dt is None else float(dt)
    nearest, evaluations, cost_error = guess, 0, None
    for last in (False,) * (MAX_ROUNDS - 1) + (True,):
        cost_with = lambda dt: _cost_of_motion(
            parameters, cost, start_of, partial(simulate, ts=ts, dt=dt, drift=drift, solver=solver)
        )
        evaluate = _compiled(cost_with(step), method)
        chosen = _Objective(evaluate, _observed(parameters, method), model, starts, settings)
        values, _, before = chosen(guess)
        if dt is None and not last and not np.all(np.isfinite(values)):
            step /= 4
            continue
        _check_costs(values, float(ts[-1]))
        first = float(np.mean(values))
        size = first if first > 0 else 1.0
        left = max(1, most_evaluations - evaluations)
        solution, more = _minimise(chosen, parameters, size, left, progress, nearest)
        nearest, evaluations = solution.x, evaluations + more
        if dt is not None:
            break
        finer = _cost_only(cost_with(step / 2), method)(model, jnp.asarray(solution.x), starts, settings)
        cost_error = float(np.mean(np.asarray(finer))) - float(solution.fun) * size
        off = abs(cost_error) / (COST_TOLERANCE * abs(float(solution.fun)) * size + FIRST_COST_TOLERANCE * size)
        if off <= 1:
            break
        if last:
            _warn_of_steps(float(solution.fun) * size, cost_error, step)
            break
        step *= float(np.clip((2 * off) ** -0.25, 1 / 8, 1 / 2)) if np.isfinite(off) else 1 / 8

    shown = chosen if tried is None else chosen._replace(starts=tried)
    values, _, after = shown(solution.x)
    if tried is not None:
        first_values, _, before = shown(guess)
    x = jnp.asarray(solution.x)
    best = parameters.put(model, x)
    before, after = (
        replace(shown.with_observation(guess, before), model=model),
        replace(shown.with_observation(x, after), model=best),
    )
    _warn_of_rank(after)
    return Tuned(
        model=best,
        names=parameters.names,
        first_values=np.asarray(parameters.first),
        values=np.asarray(parameters.values(x)),
        first=first,
        cost=float(solution.fun) * size,
        dt=step,
        cost_error=cost_error,
        first_held_out=None if tried is None else float(np.mean(first_values)),
        held_out=None if tried is None else float(np.mean(values)),
        evaluations=evaluations,
        converged=bool(solution.success),
        before=before,
        after=after,
    )


class _Objective(NamedTuple):
    """Motions from some starts, to be made good."""

    evaluate: Callable
    observed: Callable
    model: Any
    starts: tuple[Array, Array]
    settings: dict[str, Array]

    def __call__(self, x) -> tuple[Array, Array, Trajectory]:
        """With the free numbers x (p,): every motion's cost, its derivatives, and the motions."""
        return self.evaluate(self.model, jnp.asarray(x), self.starts, self.settings)

    def with_observation(self, x, motions: Trajectory) -> Trajectory:
        """The motions with these numbers, and all that is known at their samples."""
        return replace(motions, observation=self.observed(self.model, jnp.asarray(x), self.settings, motions))


def _cost_of_motion(parameters, cost, start_of, motion_from):
    """(x, model, start, setting, method) -> the cost of one motion, and besides, that cost, the motion, and whether it
    is beyond what the method can do."""

    def of(x, model, start, setting, method):
        this = _with_numbers(parameters, model, x, setting)
        placed = (
            start if start_of is None else two_arrays("start_of", "(q0, v0)", call("start_of", start_of, this, *start))
        )
        motion = motion_from(this, *placed, method=method)
        seen, needs_fallback = observe_by(method, this, motion.t, motion.q, motion.v)
        value = as_array("cost", call("cost", cost, replace(motion, observation=seen)), "one number", "return")
        if value.ndim:
            raise ValueError(f"cost must return one number per motion, got shape {value.shape}")
        return value, (value, motion.without_model(), jnp.any(needs_fallback) | (motion.result == UNUSUAL))

    return of


def _compiled(of, method):
    """(model, x, starts, settings) -> every start's cost, its derivatives by x, and its motion."""

    @eqx.filter_jit
    def by(method, model, x, starts, settings):
        evaluated = without_unused(of)  # of all that is known at the samples a cost needs little

        def member(start, setting):
            along = lambda x: evaluated(x, model, start, setting, method)
            if x.size > 1:
                slope, (value, motion, needs_fallback) = jax.jacfwd(along, has_aux=True)(x)
            else:  # without a batch of directions, for which JAX would trace all loops again
                _, slope, (value, motion, needs_fallback) = jax.jvp(along, (x,), (jnp.ones_like(x),), has_aux=True)
                slope = slope[None]
            return (value, slope, motion), needs_fallback

        if len(starts[0]) > 1:
            return jax.vmap(member)(starts, settings)
        found = member(*jax.tree.map(lambda leaf: leaf[0], (starts, settings)))
        return jax.tree.map(lambda leaf: leaf[None], found)

    return _with_fallback(by, method)


def _cost_only(of, method):
    """(model, x, starts, settings) -> every start's cost alone, to be computed once."""

    @jit_unoptimised
    def by(method, model, x, starts, settings):
        def member(start, setting):
            _, (value, _, needs_fallback) = without_unused(of)(x, model, start, setting, method)
            return value, needs_fallback

        return jax.vmap(member)(starts, settings)

    return _with_fallback(by, method)


def _observed(parameters, method):
    """(model, x, settings, motions) -> all that is known at the samples of every motion."""

    @eqx.filter_jit
    def by(method, model, x, settings, motions):
        def member(setting, t, q, v):
            return observe_by(method, _with_numbers(parameters, model, x, setting), t, q, v)

        return jax.vmap(member)(settings, motions.t, motions.q, motions.v)

    return _with_fallback(by, method)


def _with_numbers(parameters, model, x, setting):
    """The model with the free numbers, and what is set for one start."""
    this = parameters.put(model, x)
    for name, value in setting.items():
        this = with_array(this, name, value)
    return this


def _with_fallback(by, method):
    """What ``by`` finds by the usual method first, if there is one, and by the other where that may be wrong."""

    def done(*given):
        usual = method.usual()
        if usual is not None:
            found, needs_fallback = by(usual, *given)
            if not np.any(np.asarray(needs_fallback)):
                return found
        return by(method, *given)[0]

    return done


def _minimise(chosen, parameters, size, most_evaluations, progress, guess):
    """SciPy's solution for the least mean cost, in units of ``size``, and how often it was evaluated."""
    steps = 0

    def objective(x):
        nonlocal steps
        steps += 1
        values, slopes = (np.asarray(found) for found in chosen(x)[:2])
        value, slope = np.mean(values), np.mean(slopes, axis=0)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return FAILED_COST, np.zeros_like(x)
        if progress:
            shown = np.asarray(parameters.values(jnp.asarray(x)))
            print(f"{steps:3d}  cost {value:.6g}  " + "  ".join(f"{v:.5g}" for v in shown), flush=True)
        return value / size, slope / size

    most = [(-MAX_LOG_CHANGE, MAX_LOG_CHANGE)] * len(parameters.names)
    solution = scipy.optimize.minimize(
        objective, guess, jac=True, method="L-BFGS-B", bounds=most,
        options={"maxfun": most_evaluations, "ftol": 1e-9, "gtol": 1e-7},
    )  # fmt: skip
    return solution, steps


def _cost_of(model, cost, effort):
    """The user's cost, or the standard one where it can tell how well a motion follows."""
    if cost is not None:
        check_function("cost", cost, "motion")
        return cost
    task = getattr(getattr(model, "control", None), "task", ())
    own = isinstance(model, AbstractSystem) and type(model).task_error is not AbstractSystem.task_error
    if not own and any(constraint.level == "acceleration" for constraint in task):
        raise ValueError(
            "cost must be given: the task is an AccelerationConstraint, which always holds and says nothing of how "
            "well a motion follows; write a function of the motion, such as lambda motion: jnp.mean(motion.v**2)"
        )
    return following_cost(effort)


def _starts(model, q0, v0, names=("q0", "v0")):
    given = tuple(map(as_array, names, (q0, v0)))
    for name, value in zip(names, given, strict=True):
        check_finite(name, value)
    q0, v0 = map(jnp.atleast_2d, given)
    members = max(len(q0), len(v0))
    as_many = q0.shape[-1] == v0.shape[-1] or kinematic_map_of(model) is not None
    fits = q0.ndim == v0.ndim == 2 and as_many and {len(q0), len(v0)} <= {1, members}
    if not fits or 0 in q0.shape or 0 in v0.shape or not given[0].ndim:
        raise ValueError(
            f"{' and '.join(names)} must have shape (n,) or (starts, n), got shapes {given[0].shape} and "
            f"{given[1].shape}"
        )
    return jnp.broadcast_to(q0, (members, q0.shape[1])), jnp.broadcast_to(v0, (members, v0.shape[1]))


def _held_out(model, held_out, starts):
    if not isinstance(held_out, tuple | list) or len(held_out) != 2:
        raise ValueError(f"held_out must be further starts (q0, v0), got {repr_of(held_out)}")
    tried = _starts(model, *held_out, names=("held_out[0]", "held_out[1]"))
    if tried[0].shape[1] != starts[0].shape[1]:
        raise ValueError(
            f"held_out must have {starts[0].shape[1]} coordinates like q0, got starts of shape {tried[0].shape}"
        )
    return tried


def _check_settings(model, settings, starts, held_out):
    check_settings(model, settings, leading=1)
    for name, value in settings.items():
        if value.shape[:1] != (starts,):
            raise ValueError(
                f"settings[{name!r}] must have an entry for each of {starts} starts, got shape {value.shape}"
            )
    if held_out is not None and settings:
        raise ValueError("held_out starts have no settings of their own: evaluate them apart, or leave settings out")


def _check_costs(values, end):
    """One finite number for each start, at the first guess."""
    if not np.all(np.isfinite(values)):
        bad = int(np.argmin(np.isfinite(values)))
        raise SimulationError(
            f"start {bad} has no finite cost at the first guess: its motion does not reach t = {end:g} s; take a "
            "smaller dt, a shorter time, or gains that are nearer"
        )


def _warn_of_steps(cost, error, dt):
    warnings.warn(
        f"the steps are too long: with dt = {dt:.3g} s the tuned cost is {cost:.4g}, with half of it "
        f"{cost + error:.4g}. The result depends on the steps: give a smaller dt",
        stacklevel=3,
    )


def _warn_of_rank(motion):
    if not np.all(motion.differentiable):
        warnings.warn(
            "the rank of the constraints changes along a motion: where it does, the cost has no gradient, and another "
            "guess may lead elsewhere",
            stacklevel=3,
        )
