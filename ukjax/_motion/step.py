"""Integration step by step, for controllers outside of the model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._check import as_array, as_integer, as_numbers, check_finite, check_function, check_number, check_word, kind_of
from .._contact.moreau_jean import MoreauJean
from .._control import Sampling
from .._errors import InputError
from .._jaxpr.tracing import is_concrete, is_eager, without_derivatives
from .._kernel import per_member
from .._precision import Numbers, in_precision
from .._run.compile import cached, jit, split
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem, Driven, kinematic_map_of, nonsmooth_of
from .._terms import Terms
from .._with_states import with_initial_states, with_states
from .diagnose.contact import check_gaps, check_options_with_contact
from .diagnose.motion import check_consistent
from .diagnose.servo import out_of_reach
from .fallback.row_choice import choice_of_rows, choose_rows, method_after
from .fallback.sparsity import with_sparsity
from .inputs import (
    canonicalise,
    check_kinematic_map,
    check_starts,
    hint_if_batched_model,
    sampling_of,
    split_model,
)
from .integrate.schedule import SampledInputs, ScheduledStops
from .integrate.time_stepping import corrected_step
from .problem import InitialState
from .result import FINISHED, OUT_OF_REACH, classify, finite, in_words
from .stepper.contact_setting import compiled, setting_of
from .stepper.drift_correction import MethodPerLevel, same_at_every_level
from .stepper.limits import is_kernel
from .stepper.model_batch import SingleModel
from .stepper.runge_kutta import step as one_step
from .stepper.scaling import Scale, scales
from .stepper.single_loop import single_loop_step
from .stepper.singular_turn import in_doubt, is_close
from .stepper.tableau import RUNGE_KUTTA4, Tableau, check_solver


class HeldInputs(eqx.Module):
    """Inputs that sampled control holds.

    Attributes
    ----------
    began
        First time of the motion [s], its first instant.
    memory
        Inputs of the latest instants (instants, p); those of instant k are in row k modulo the number of rows.
    latest
        Number of the latest instant, 0 for the first, −1 before it.
    """

    began: Float[Array, "*batch"]
    memory: Float[Array, "*batch instants p"]
    latest: Int[Array, "*batch"]


class State(eqx.Module):
    """State of a motion, or of each member of a batch.

    Attributes
    ----------
    t
        Time [s], shape () or (batch,).
    q, v
        Coordinates (nq,) and velocities (n,), with a leading batch axis for a batch.
    result
        Code of the result of all steps so far, one per member; 0 if all succeeded. After a failure, the code of the
        failed step. ``reason`` gives it in words.
    scale
        Characteristic scales, to which tolerances are relative.
    close
        Whether the last step ended close to a singular pose, so that the next one may be in doubt.
    held
        Inputs that sampled control holds, None for a system without.
    """

    t: Float[Array, "*batch"]
    q: Float[Array, "*batch nq"]
    v: Float[Array, "*batch n"]
    result: Int[Array, "*batch"]
    scale: Scale
    close: Bool[Array, "*batch"]
    held: HeldInputs | None = None

    @property
    def reason(self) -> "str | np.ndarray":
        """The result of the steps so far, in words; an array for a batch."""
        return in_words(self.result)


def initial_state(model: AbstractSystem | Callable[..., Terms], q0: Numbers, v0: Numbers, t: Numbers = 0.0) -> State:
    """Return the state from which ``step`` continues.

    Parameters
    ----------
    model
        ``System``, or function (t, q, v) -> ``Terms``.
    q0
        Coordinates, shape (nq,) or (batch, nq).
    v0
        Velocities, shape (n,) or (batch, n).
    t
        Time [s], one number, or one per member (batch,).

    Returns
    -------
    State
        State at time t.

    Raises
    ------
    InputError
        For invalid input; for concrete values, also if the state is off the constraints (see ``project``).
    """
    if not isinstance(model, AbstractSystem):
        check_function("model", model, "t, q, v")
    model, v0 = with_initial_states(model, q0, v0)
    q0, v0, t, sampling = as_array("q0", q0), as_array("v0", v0), as_numbers("t", t), sampling_of(model)
    check_starts(q0, v0, kinematic_map_of(model))
    if t.shape not in ((), q0.shape[:-1]):
        raise InputError(f"t must be one time [s], or one per start, shape {q0.shape[:-1]}, got shape {t.shape}")
    for name, value in (("q0", q0), ("v0", v0), ("t", t)):
        check_finite(name, value)
    with hint_if_batched_model(model, q0):
        model, q0, v0, t = canonicalise(model, q0, jnp.broadcast_to(v0, (*q0.shape[:-1], v0.shape[-1])), t)
        check_kinematic_map(model, q0, v0)
        plant = _without_task(model) if isinstance(model, AbstractSystem) else model
        scale = scales(plant, t, q0, v0)
        if isinstance(plant, AbstractSystem) and is_eager(plant, q0, v0, t):
            check_consistent(plant, t, q0, v0, scale)
            check_gaps(plant, t, InitialState(q0, v0, scale))
            if not plant.nonsmooth:
                requested = choose("orthogonal")
                structure, _ = split_model(model, q0.shape[-1:], v0.shape[-1:])
                choice = choice_of_rows(structure, requested, True, plant.control is not None)
                choose_rows(choice, requested, plant, q0, v0, t, scale.rows.shape[-1])
    batch = q0.shape[:-1]
    t = jnp.broadcast_to(t, batch).astype(q0.dtype)
    held = None if sampling is None else _nothing_held(model, sampling, t, q0, v0)
    return State(t, q0, v0, jnp.full(batch, FINISHED, np.int32), scale, jnp.zeros(batch, bool), held)


def step(
    model: AbstractSystem | Callable[..., Terms],
    state: State,
    dt: Numbers,
    u: Numbers | None = None,
    *,
    steps: int = 1,
    drift: str | None = None,
    method: str | AbstractMethod = "orthogonal",
    solver: Any = None,
) -> State:
    """Advance a state by ``dt``, in equal Runge–Kutta steps.

    This is a pure function, for ``jit``, ``vmap``, ``grad`` and ``jax.lax.scan``. Inputs ``u`` that are constant during
    dt suit sampled controllers, model-predictive control and reinforcement learning.

    Parameters
    ----------
    model
        ``System``, or function (t, q, v) -> ``Terms``.
    state
        Result of ``initial_state`` or ``step``.
    dt
        Duration [s].
    u
        Inputs of the actuators of ``model.control``, shape (p,) or (batch, p), constant during dt. They replace the
        control law; None uses the law. After steps with inputs, sampled control begins anew, as in ``initial_state``.
    steps
        Number of equal steps.
    drift
        ``"projection"`` or ``"none"``, see ``simulate``.
    method
        Name of a solver or a solver object, see ``constrained_motion``.
    solver
        Explicit Runge–Kutta solver of diffrax; None for the classical method of order 4. ``MoreauJean()`` for systems
        with contacts or dry friction.

    Returns
    -------
    State
        State at time t + dt.

    Raises
    ------
    InputError
        For invalid input, and for ``u`` if the model has no actuators.

    Notes
    -----
    A failed step does not raise an error: see ``State.result``, one code per member. q and v are then NaN or off the
    constraints. The first failure remains in ``State.result`` until ``initial_state`` creates a new state.

    Sampled control, ``ukjax.control.Sampled``, is evaluated at its instants, which must be beginnings of the equal
    steps. So dt / steps must divide its period, its delay, and the times of the first state and of ``state``.
    """
    _check_state(state)
    shapes = state.q.shape[-1:], state.v.shape[-1:]
    static, arrays = split_model(model, *shapes)
    traits = static.ask(_traits, model)
    if traits.has_states and isinstance(model, AbstractSystem):
        model = with_states(model)
        static, arrays = split_model(model, *shapes)
    _check(model, traits, drift, solver)
    steps, dt = as_integer("steps", steps, 1), check_number("dt", dt, "s", above=0)
    dt = np.asarray(dt, float) if type(dt) in (int, float) else dt  # faster than an array of JAX
    u = None if u is None else _inputs(traits, state, u)
    if u is None and traits.sampling is not None:
        _check_instants(traits.sampling, state, dt, steps)
    if isinstance(solver, MoreauJean):
        model, q, v, t = canonicalise(model, state.q, state.v, state.t)
        scale, held, dt, u = in_precision((state.scale, state.held, dt, u), q.dtype)
        state = State(t, q, v, state.result, scale, state.close, held)
        return _integrate_with_contact(model, state, dt, u, with_sparsity(choose(method), model, t, q, v), steps)
    full_method = with_sparsity(choose(method), model, state.t, state.q, state.v)
    projection = drift != "none" and isinstance(model, AbstractSystem)
    options = RUNGE_KUTTA4 if solver is None else Tableau.of(solver), projection, steps
    choice = choice_of_rows(static, full_method, projection, u is not None)
    integrate = lambda structure, numbers: _program(static, structure, *options)(arrays, numbers, state, dt, u)
    first_method = choice.method
    with hint_if_batched_model(model, state.q):
        result, beyond = integrate(*choice.parts)
    if not first_method.has_fallback:
        return result
    if not is_concrete(beyond):
        repeat = lambda: integrate(*split(full_method))[0]
        return jax.lax.cond(jnp.any(beyond), repeat, lambda: result)
    next_method = first_method
    for last in (False, False, True):
        members = np.flatnonzero(beyond)
        if not members.size or not isinstance(next_method, MethodPerLevel):
            break
        at = without_derivatives((static.join(arrays), state.q, state.v, state.t))
        plant, q, v, t = canonicalise(*at)
        plant = plant if u is None else _without_task(plant)
        next_method = (
            full_method if last else method_after(next_method, full_method, plant, q, v, t, int(members[0]), projection)
        )
        result, beyond = integrate(*split(next_method))
    choice.remember(next_method)
    return result


def _without_task(model: AbstractSystem) -> Driven:
    """The model without the task of its control, as ``step`` uses it if the inputs ``u`` are given."""
    return Driven(model, jnp.zeros(0))


def _program(static, method, *options):
    """The compiled function ``_integrate``, for a model and a method with these static parts."""

    def integrate(arrays, numbers, state, dt, u):
        return _integrate(static.join(arrays), state, dt, u, method.join(numbers), *options)

    return cached((_integrate, static, method, *options), integrate)


def _integrate(model, state, dt, u, method, tableau, projection, steps):
    """The state after all steps, and whether the method was not applicable in one of them."""
    model, q, v, t = canonicalise(model, state.q, state.v, state.t)
    scale, held, dt, u = in_precision((state.scale, state.held, dt, u), q.dtype)
    h = dt / steps

    @per_member
    def advance_member(t, q, v, scale, close, u, held):
        take_step = one_step if is_kernel(method) else single_loop_step
        is_sampled = u is None and held is not None

        def advance(carry, i):
            q, v, close, flags, held = carry
            now = t + i * h
            held, inputs = _sampled(model, held, now, h, q, v) if is_sampled else (held, u)
            driven = model if inputs is None else Driven(model, inputs)
            step_scale = scale.of_rows(driven, now, q, v) if projection else scale
            stepped = take_step(SingleModel(driven), now, h, q, v, method, tableau, projection, step_scale)
            singular = in_doubt(close, stepped.moved, q, stepped.q, scale)
            step_flags = stepped.beyond(method), stepped.off, stepped.jumped, singular, stepped.inconsistent
            flags = jax.tree.map(jnp.logical_or, flags, step_flags)
            return (stepped.q, stepped.v, is_close(stepped.independence), flags, held), None

        flags = (jnp.asarray(False),) * 5
        return jax.lax.scan(advance, (q, v, close, flags, held), jnp.arange(steps))[0]

    advance_all = jax.vmap(advance_member) if t.ndim else advance_member
    q, v, close, flags, held = advance_all(t, q, v, scale, state.close, u, held)
    beyond, off, jumped, singular, inconsistent = flags
    is_finite = finite(q, v)
    result = classify(
        finished=is_finite & ~(off | jumped | singular),
        singular=singular,
        jumped=jumped,
        off=off,
        not_finite=~is_finite,
        inconsistent=inconsistent,
    )
    end = State(t + dt, q, v, result, scale, close, held)
    return _after(model, state.result, end, u), beyond


def _after(model, earlier, end, u) -> State:
    """The end of a step, with its result after an ``earlier`` one, and what its inputs u leave of sampled control."""
    t, result = end.t, end.result
    if u is None:
        of_task = lambda t, q, v, scale: out_of_reach(model, t, q, v, scale)
        is_out = (jax.vmap(of_task) if t.ndim else of_task)(t, end.q, end.v, end.scale)
        result = jnp.where((result == FINISHED) & is_out, OUT_OF_REACH, result).astype(np.int32)
    result = jnp.where(earlier != FINISHED, earlier, result)
    return replace(end, result=result, held=end.held if u is None else _begun(end.held, t))


INSTANT = 1e-6
"""Steps divide a time if they do so up to this fraction of the period of sampled control, and rounding."""


def _nothing_held(model, sampling, t, q, v) -> HeldInputs:
    """The held inputs before the first instant."""
    one = (jax.ShapeDtypeStruct(x.shape[x.ndim - axes :], x.dtype) for x, axes in ((t, 0), (q, 1), (v, 1)))
    p = eqx.filter_eval_shape(model.command, *one).u.size
    instants = int(np.ceil(sampling.delay / sampling.period)) + 1
    return HeldInputs(t, jnp.zeros((*t.shape, instants, p), q.dtype), jnp.full(t.shape, -1, np.int32))


def _begun(held, t) -> HeldInputs | None:
    """The held inputs of sampled control that begins at t: the latest instants have passed without its law."""
    return None if held is None else HeldInputs(t, jnp.zeros_like(held.memory), jnp.full_like(held.latest, -1))


def _sampled(model, held, t, h, q, v) -> tuple[HeldInputs, Float[Array, " p"]]:
    """The held inputs at the beginning t of a step of h, and those that act from there.

    An instant is at the nearest beginning of a step: t may be a sum of many steps, with rounding errors.
    """
    period, delay = model.control.sampling
    count = lambda t: jnp.floor((t + h / 2) / period)
    number = lambda t: (count(t) - count(held.began)).astype(np.int32)
    latest, acts = number(t), t - delay + h / 2 >= held.began
    stop = ScheduledStops(t, latest > held.latest, latest, jnp.where(acts, number(t - delay), -1))
    sampled = SampledInputs(held.memory, held.memory[0]).after(stop, model, t, q, v)
    return HeldInputs(held.began, sampled.memory, latest), sampled.u


def _check_instants(sampling, state, dt, steps):
    """Raise ``InputError`` unless steps end on all instants of sampled control."""
    if state.held is None:
        raise InputError("state must be that of ukjax.initial_state for the same model, whose control is sampled")
    length, began, now = without_derivatives((dt, state.held.began, state.t))
    if not is_concrete(length):
        return
    h, eps = float(length) / steps, float(np.finfo(state.t.dtype).eps)
    times = {"period": sampling.period, "delay": sampling.delay}
    times |= {"first time of the state": began, "time of the state": now} if is_concrete(began, now) else {}
    for name, value in times.items():
        value = np.asarray(value, float)
        off = np.abs(value - h * np.round(value / h))
        if np.any(off > INSTANT * sampling.period + eps**0.5 * np.abs(value)):
            raise InputError(
                f"steps must end on the instants of the sampled control: dt / steps = {h:g} s does not divide the "
                f"{name}, {float(np.max(value)):g} s"
            )


@jit
def _integrate_with_contact(model, state, dt, u, method, steps):
    """The state after all steps of Moreau and Jean."""
    h, levels = dt / steps, same_at_every_level(method)

    def advance_member(t, q, v, scale, u, held):
        setting = setting_of(model, method, t, q, v, scale)
        is_sampled = u is None and held is not None

        def advance(carry, i):
            q, v, impulse, off, off_task, solved, held = carry
            now = t + i * h
            held, inputs = _sampled(model, held, now, h, q, v) if is_sampled else (held, u)
            driven = model if inputs is None else Driven(model, inputs)
            step_scale = scale.of_rows(driven, now, q, v) if driven.enforced else scale
            driven = setting._replace(system=driven)
            after, q, v, step_off, step_off_task, _ = corrected_step(driven, now, h, q, v, impulse, levels, step_scale)
            impulse = jax.lax.stop_gradient(after.impulse)
            return (q, v, impulse, off | step_off, off_task | step_off_task, solved & after.solved, held), None

        no_impulse = jnp.zeros(setting.layout.rows, q.dtype)
        false = jnp.asarray(False)
        start = q, v, no_impulse, false, false, jnp.asarray(True), held
        q, v, _, off, off_task, solved, held = jax.lax.scan(advance, start, jnp.arange(steps))[0]
        return q, v, off, off_task, solved, held

    advance_member = compiled(advance_member, model, state.q, state.v)
    advance_all = jax.vmap(advance_member) if state.t.ndim else advance_member
    q, v, off, off_task, solved, held = advance_all(state.t, state.q, state.v, state.scale, u, state.held)
    is_finite = finite(q, v)
    finished = is_finite & ~off & ~off_task & solved
    result = classify(finished=finished, off_task=off_task, no_mode=~solved, off=off, not_finite=~is_finite)
    return _after(model, state.result, State(state.t + dt, q, v, result, state.scale, state.close, held), u)


class _Traits(NamedTuple):
    """Properties of a model, which some models compute anew on each access.

    ``has_control``: whether it has a control; ``has_states``: whether this has states that are not yet velocities;
    ``sampling``: its period and delay; ``nonsmooth``: whether there are contacts or dry friction.
    """

    has_control: bool
    has_states: bool
    sampling: Sampling | None
    nonsmooth: bool


def _traits(model):
    if not isinstance(model, AbstractSystem):
        return _Traits(False, False, None, False)
    extended = with_states(model)
    return _Traits(model.control is not None, extended is not model, sampling_of(extended), bool(nonsmooth_of(model)))


def _check_state(state):
    if not isinstance(state, State):
        raise InputError(f"state must be what ukjax.initial_state or ukjax.step returned, got {kind_of(state)}")


def _check(model, traits, drift, solver):
    if not isinstance(model, AbstractSystem):
        check_function("model", model, "t, q, v")
    if drift is not None:
        check_word("drift", drift, ("projection", "none"))
    check_options_with_contact(model, (), solver, "projection" if drift is None else drift, steps_known=True)
    if traits.nonsmooth and not isinstance(solver, MoreauJean):
        raise InputError(
            "the system has ukjax.Unilateral or ukjax.Coulomb constraints, which ukjax.step follows by time stepping: "
            "give solver=ukjax.MoreauJean()"
        )
    if not traits.nonsmooth:
        check_solver(solver, explicit=True)


def _inputs(traits, state, u):
    if not traits.has_control:
        raise InputError(
            "u is for the actuators of a system with control, and this model has none: "
            "System(dynamics, constraints, control=ukjax.control.Feedback(B, 0 * u))"
        )
    u = u if type(u) is np.ndarray and u.dtype in (np.float32, np.float64) else as_array("u", u)
    if u.ndim == 0 or u.ndim > 1 and u.shape[:-1] != state.t.shape:
        batch_shape = f", or {(*state.t.shape, 'p')} for each of a batch".replace("'", "") if state.t.shape else ""
        raise InputError(f"u must have shape (p,), one entry per actuator{batch_shape}, got shape {u.shape}")
    check_finite("u", u)
    shape = *state.t.shape, u.shape[-1]
    return u if u.shape == shape else jnp.broadcast_to(u, shape)
