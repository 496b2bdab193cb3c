"""A motion step by step, for whoever decides along the way what the actuators do."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._batch import per_member
from .._check import known
from .._constraint import AbstractConstraint
from .._control import AbstractControl, Command, no_task
from .._dynamics import AbstractDynamics
from .._precision import Numbers, as_float
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem, System
from .._terms import Terms
from .correct import at_every_level
from .diagnose import check_consistent
from .outcome import FINISHED, NOT_FINITE, OFF_CONSTRAINTS, in_words
from .small_rows import with_noise_left_out
from .step import step as one_step
from .tableau import RUNGE_KUTTA4, Tableau


class State(eqx.Module):
    """Where a motion is at time ``t`` [s], or each of a batch: q and v (n,). ``result`` says, per member, whether it
    came there as it should, in words ``reason``."""

    t: Float[Array, "*batch"]
    q: Float[Array, "*batch n"]
    v: Float[Array, "*batch n"]
    result: Int[Array, "*batch"]

    @property
    def reason(self) -> "str | np.ndarray":
        """What became of the last step, in words."""
        return in_words(self.result)


def start(model: AbstractSystem | Callable[..., Terms], q0: Numbers, v0: Numbers, t: Numbers = 0.0) -> State:
    """The state q0, v0 (n,), or (batch, n), at time t, from which ``step`` goes on.

    Raises ``ValueError`` for starts off the constraints (see ``project``), if their values are known.
    """
    q0, v0, t = as_float(q0), as_float(v0), as_float(t)
    if q0.ndim not in (1, 2) or q0.shape[-1] == 0:
        raise ValueError(f"q0 must have shape (n,), or (batch, n) for many starts, got shape {q0.shape}")
    if v0.shape not in (q0.shape, q0.shape[-1:]):
        raise ValueError(f"v0 must have the shape of q0, {q0.shape}, got shape {v0.shape}")
    v0 = jnp.broadcast_to(v0, q0.shape)
    if isinstance(model, AbstractSystem) and known(model, q0, v0, t):
        # Not its task: the actuators may be given something else to do.
        check_consistent(System(model.dynamics, model.constraints), t, q0, v0)
    batch = q0.shape[:-1]
    return State(jnp.broadcast_to(t, batch).astype(q0.dtype), q0, v0, jnp.full(batch, FINISHED, np.int32))


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
    member, and its q and v are NaN or off the constraints.

    Raises ``ValueError`` for bad input, and for u where the model has no actuators.
    """
    _check(model, state, u, steps, drift)
    dt = as_float(dt).astype(state.q.dtype)
    u = None if u is None else jnp.broadcast_to(as_float(u), (*state.t.shape, np.shape(u)[-1]))
    tableau = RUNGE_KUTTA4 if solver is None else Tableau.of(solver)
    projection = drift != "none" and isinstance(model, AbstractSystem)
    how = tableau, projection, steps
    surely = choose(method)
    usual = surely.usual()
    if usual is None:
        return _stepped(model, state, dt, u, surely, *how)[0]
    after, beyond = _stepped(model, state, dt, u, at_every_level(usual), *how)
    if known(beyond):
        if not np.any(beyond):
            return after
        surely = with_noise_left_out(surely, model, state.t, state.q, state.v)
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

    def command(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"], passive: Terms) -> Command:
        p = self.matrix(t, q).shape[1]
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
    def control(self) -> AbstractControl | None:
        return None if self.plant.control is None else Given(self.plant.control, self.u)


@eqx.filter_jit
def _stepped(model, state, dt, u, method, tableau, projection, steps):
    """The state after all steps, and whether one of them was beyond the method."""

    @per_member
    def once(t, h, q, v, u):
        this = model if u is None else Driven(model, u)
        stepped = one_step(this, t, h, q, v, method, tableau, projection)
        return stepped.q, stepped.v, stepped.off() if projection else jnp.asarray(False), stepped.beyond(method)

    if state.t.ndim:
        once = jax.vmap(once, in_axes=(-1, None, -1, -1, -1), out_axes=-1)
    h = dt / steps

    def go_on(carry, i):
        q, v, off, beyond = carry
        q, v, now_off, now_beyond = once(state.t + i * h, h, q, v, None if u is None else u.T)
        return (q, v, off | now_off, beyond | now_beyond), None

    none = jnp.zeros(state.t.shape, bool)
    (q, v, off, beyond), _ = jax.lax.scan(go_on, (state.q.T, state.v.T, none, none), jnp.arange(steps))
    finite = jnp.all(jnp.isfinite(q) & jnp.isfinite(v), axis=0)
    result = jnp.where(finite, jnp.where(off, OFF_CONSTRAINTS, FINISHED), NOT_FINITE)
    return State(state.t + dt, q.T, v.T, result.astype(state.result.dtype)), beyond


def _check(model, state, u, steps, drift):
    if not isinstance(state, State):
        raise ValueError(f"state must be what ukjax.start or ukjax.step returned, got {type(state).__name__}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if drift not in (None, "projection", "none"):
        raise ValueError(f"drift must be 'projection' or 'none', got {drift!r}")
    if u is not None and (not isinstance(model, AbstractSystem) or model.control is None):
        raise ValueError(
            "u is for the actuators of a system with control, which this model has not: "
            "System(dynamics, constraints, control=ukjax.control.Feedback(B, 0 * u))"
        )
