"""A motion step by step, for whoever decides along the way what the actuators do."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._check import (
    as_array,
    as_integer,
    as_number,
    as_numbers,
    check_finite,
    check_function,
    check_word,
    is_concrete,
    is_eager,
    kind_of,
)
from .._constraint import AbstractConstraint
from .._control import AbstractControl, Command, no_task
from .._dynamics import AbstractDynamics
from .._kernel import per_member
from .._kinematic_map import KinematicMap
from .._precision import Numbers, in_precision
from .._run.compile import jit
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem, kinematic_map_of
from .._terms import Terms
from .diagnose.motion import check_consistent
from .fallback.row_noise import without_noise_rows
from .fallback.sparsity import with_sparsity
from .inputs import canonicalise, check_kinematic_map, check_starts, hint_if_batched_model
from .result import FINISHED, classify, finite, in_words
from .stepper.drift_correction import same_at_every_level
from .stepper.limits import is_kernel
from .stepper.model_batch import SingleModel
from .stepper.runge_kutta import step as one_step
from .stepper.scaling import Scale, scales
from .stepper.single_loop import single_loop_step
from .stepper.tableau import RUNGE_KUTTA4, Tableau, check_solver


class State(eqx.Module):
    """Where a motion is at time ``t`` [s], or each of a batch: q and v (n,). ``result`` says, per member, whether it
    came there as it should, in words ``reason``: after a step that failed, what that step met. ``scale`` is what
    tolerances are measured by."""

    t: Float[Array, "*batch"]
    q: Float[Array, "*batch nq"]
    v: Float[Array, "*batch n"]
    result: Int[Array, "*batch"]
    scale: Scale

    @property
    def reason(self) -> "str | np.ndarray":
        """What became of the steps so far, in words."""
        return in_words(self.result)


def initial_state(model: AbstractSystem | Callable[..., Terms], q0: Numbers, v0: Numbers, t: Numbers = 0.0) -> State:
    """The state q0, v0 (n,), or (batch, n), at time t, from which ``step`` goes on.

    Raises ``ValueError`` for starts off the constraints (see ``project``), if their values are known.
    """
    if not isinstance(model, AbstractSystem):
        check_function("model", model, "t, q, v")
    q0, v0, t = as_array("q0", q0), as_array("v0", v0), as_numbers("t", t)
    check_starts(q0, v0, kinematic_map_of(model))
    if t.shape not in ((), q0.shape[:-1]):
        raise ValueError(f"t must be one time [s], or one per start, shape {q0.shape[:-1]}, got shape {t.shape}")
    for name, value in (("q0", q0), ("v0", v0), ("t", t)):
        check_finite(name, value)
    with hint_if_batched_model(model, q0):
        model, q0, v0, t = canonicalise(model, q0, jnp.broadcast_to(v0, (*q0.shape[:-1], v0.shape[-1])), t)
        check_kinematic_map(model, q0, v0)
        # Not with its task: the actuators may be given something else to do.
        plant = Driven(model, jnp.zeros(0)) if isinstance(model, AbstractSystem) else model
        scale = scales(plant, t, q0, v0)
        if isinstance(plant, AbstractSystem) and is_eager(plant, q0, v0, t):
            check_consistent(plant, t, q0, v0, scale)
    batch = q0.shape[:-1]
    return State(jnp.broadcast_to(t, batch).astype(q0.dtype), q0, v0, jnp.full(batch, FINISHED, np.int32), scale)


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
    """The state ``dt`` [s] later, by so many equal ``steps`` of Runge and Kutta's method.

    ``u`` (p,), or (batch, p), is what the actuators of ``model.control`` are given, held over all of dt, in place of
    the control's own law: for sampled controllers, model-predictive control and reinforcement learning. Left out, the
    law acts. A pure function: ``jit``, ``vmap`` and ``grad`` go through it, and ``jax.lax.scan`` over it. ``drift``,
    ``method`` and an explicit ``solver`` as in ``simulate``. What a step cannot do is in ``State.result``, for each
    member, and its q and v are NaN or off the constraints. A state remembers its first failure: the ``result`` of later
    steps is that of the step that failed, until ``initial_state`` makes a new state.

    Raises ``ValueError`` for bad input, and for u where the model has no actuators.
    """
    _check(model, state, drift, solver)
    steps, dt = as_integer("steps", steps, 1), as_number("dt", dt, "s", above=0)
    u = None if u is None else _inputs(model, state, u)
    model, q, v, t = canonicalise(model, state.q, state.v, state.t)
    state, dt, u = State(t, q, v, state.result, in_precision(state.scale, q.dtype)), *in_precision((dt, u), q.dtype)
    tableau = RUNGE_KUTTA4 if solver is None else Tableau.of(solver)
    projection = drift != "none" and isinstance(model, AbstractSystem)
    how = tableau, projection, steps
    surely = with_sparsity(choose(method), model, t, q, v)
    usual = surely.usual()
    with hint_if_batched_model(model, state.q):
        by = surely if usual is None else same_at_every_level(usual)
        after, beyond = _stepped(model, state, dt, u, by, *how)
    if usual is None:
        return after
    if is_concrete(beyond):
        if not np.any(beyond):
            return after
        surely = without_noise_rows(surely, model, state.t, state.q, state.v)
        return _stepped(model, state, dt, u, surely, *how)[0]
    again = lambda: eqx.filter(_stepped(model, state, dt, u, surely, *how)[0], eqx.is_array)
    return jax.lax.cond(jnp.any(beyond), again, lambda: after)


class Given(AbstractControl):
    """The actuators of another control, with forces ``u`` (p,) that are simply given."""

    control: AbstractControl
    u: Float[Array, " p"]
    task: ClassVar[tuple[AbstractConstraint, ...]] = ()
    held: ClassVar[bool] = False

    @property
    def actuators(self) -> Callable:
        return self.control.actuators

    @property
    def inputs(self) -> tuple[tuple[str, str], ...] | None:
        return self.control.inputs

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        p = self.matrix(t, q, v).shape[1]
        if self.u.shape != (p,):
            raise ValueError(f"u must have {p} entries, one per actuator, got {self.u.size}")
        return no_task(self.u)


class Driven(AbstractSystem):
    """``plant`` with its actuators given ``u`` (p,)."""

    plant: AbstractSystem
    u: Float[Array, " p"]

    @property
    def dynamics(self) -> AbstractDynamics:
        return self.plant.dynamics

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return self.plant.constraints

    @property
    def nonideal(self) -> Callable | None:
        return self.plant.nonideal

    @property
    def kinematic_map(self) -> KinematicMap | None:
        return self.plant.kinematic_map

    @property
    def control(self) -> AbstractControl | None:
        return None if self.plant.control is None else Given(self.plant.control, self.u)


@jit
def _stepped(model, state, dt, u, method, tableau, projection, steps):
    """The state after all steps, and whether one of them was beyond the method."""

    h = dt / steps

    @per_member
    def of_one(t, q, v, scale, u):
        this = model if u is None else Driven(model, u)
        take = one_step if is_kernel(method) else single_loop_step

        def go_on(carry, i):
            q, v, so_far = carry
            now = t + i * h
            here = scale.of_rows(this, now, q, v) if projection else scale
            stepped = take(SingleModel(this), now, h, q, v, method, tableau, projection, here)
            went = stepped.beyond(method), stepped.off, stepped.jumped, stepped.inconsistent
            return (stepped.q, stepped.v, jax.tree.map(jnp.logical_or, so_far, went)), None

        none = jnp.asarray(False)
        return jax.lax.scan(go_on, (q, v, (none, none, none, none)), jnp.arange(steps))[0]

    of_all = jax.vmap(of_one) if state.t.ndim else of_one
    q, v, (beyond, off, jumped, inconsistent) = of_all(state.t, state.q, state.v, state.scale, u)
    sound = finite(q, v)
    result = classify(
        finished=sound & ~off & ~jumped, jumped=jumped, off=off, not_finite=~sound, inconsistent=inconsistent
    )
    result = jnp.where(state.result != FINISHED, state.result, result)
    return State(state.t + dt, q, v, result, state.scale), beyond


def _check(model, state, drift, solver):
    if not isinstance(model, AbstractSystem):
        check_function("model", model, "t, q, v")
    if not isinstance(state, State):
        raise ValueError(f"state must be what ukjax.initial_state or ukjax.step returned, got {kind_of(state)}")
    if drift is not None:
        check_word("drift", drift, ("projection", "none"))
    check_solver(solver, explicit=True)


def _inputs(model, state, u):
    if not isinstance(model, AbstractSystem) or model.control is None:
        raise ValueError(
            "u is for the actuators of a system with control, which this model has not: "
            "System(dynamics, constraints, control=ukjax.control.Feedback(B, 0 * u))"
        )
    u = as_array("u", u)
    if u.ndim == 0 or u.ndim > 1 and u.shape[:-1] != state.t.shape:
        members = f", or {(*state.t.shape, 'p')} for each of a batch".replace("'", "") if state.t.shape else ""
        raise ValueError(f"u must have shape (p,), one entry per actuator{members}, got shape {u.shape}")
    check_finite("u", u)
    return jnp.broadcast_to(u, (*state.t.shape, u.shape[-1]))
