"""Warning for joints that creep although dry friction holds them: friction is smoothed near zero velocity."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

from ..._equation import mobility
from ..._kernel.if_repeated import jit_if_repeated
from ..._kinematic_map import columns
from ..._system import AbstractSystem
from ..problem import Problem
from ..stepper.scaling import Scale
from ..trajectory.trajectory import Trajectory

HELD_BELOW = 3.0
"""Rate, in units of the smoothing width, below which the force is less than 0.995 of its limit: the joint is held, but
creeps.
"""

MAX_CREEP = 1e-3
"""Creep distance that triggers a warning, relative to the size of the coordinate."""

LONGEST_STEP = 2.0
"""Approximate longest step of an explicit method, in units of the width over the acceleration by friction."""


def warn_of_creep(trajectory: Trajectory, problem: Problem, scale: Scale) -> None:
    """Warn once for each joint that creeps further than ``MAX_CREEP`` while friction holds it at consecutive samples.

    The warning names the joint, the creep distance and the remedy. With fixed steps ``dt``, rates are uncertain by the
    change that friction causes in one step.
    """
    model = trajectory.equations
    friction = model.dry_friction if isinstance(model, AbstractSystem) else None
    if friction is None:
        return
    t, q, v = (np.asarray(x) for x in (trajectory.t, trajectory.q, trajectory.v))
    if v.ndim == 2:
        t, q, v, scale = jax.tree.map(lambda x: np.asarray(x)[None], (t, q, v, scale))
    t = np.broadcast_to(t, v.shape[:-1])
    samples = t.shape[1]
    # Padded to a power of two, so that similar numbers of samples share one program.
    padding = 2 ** int(np.ceil(np.log2(samples))) - samples
    padded = (np.pad(x, ((0, 0), (0, padding), *((0, 0),) * (x.ndim - 2)), mode="edge") for x in (t, q, v))
    rate, A, size = (np.asarray(x) for x in _rates(model, *padded, scale.q))
    rate, limit, width = np.abs(rate[:, :samples]), np.asarray(friction.limit), np.asarray(friction.width)
    dt = 0.0 if problem.dt is None else float(problem.dt)

    def creep_distances(acceleration_per_force):
        """Distance that each joint moved while held, if a unit of force causes this acceleration."""
        is_held = (rate <= HELD_BELOW * np.maximum(width, dt * limit * acceleration_per_force)[:, None]) & (limit > 0)
        mean_rate = np.where(is_held[:, 1:] & is_held[:, :-1], (rate[:, 1:] + rate[:, :-1]) / 2, 0)
        return np.nansum(np.diff(t, axis=1)[..., None] * mean_rate, axis=1)

    if not np.any(creep_distances(np.sum((A * np.asarray(scale.unit)[:, None]) ** 2, axis=-1)) > MAX_CREEP * size):
        return
    # Includes the effect of the constraints.
    acceleration_per_force = np.asarray(_acceleration_per_force(model, t[0, 0], q[0, 0], v[0, 0]))
    distances = creep_distances(acceleration_per_force[None])
    for i in np.flatnonzero(np.any(distances > MAX_CREEP * size, axis=0)):
        member = int(np.argmax(distances[:, i] / size[:, i]))
        dt_max = LONGEST_STEP * width[i] / (limit[i] * acceleration_per_force[i])
        if dt * limit[i] * acceleration_per_force[i] > width[i]:
            remedy = (
                f"steps of dt = {dt:g} s are too long for its friction, which changes sign within its creep, "
                f"{width[i]:g} per second: take steps of {_rounded_down(dt_max / LONGEST_STEP):g} s, or adaptive "
                "steps, dt=None"
            )
        else:
            allowed = MAX_CREEP * size[member, i]
            enough = allowed / distances[member, i] * width[i]
            default = ", the default" if friction.is_default[i] else ""
            remedy = (
                f"its friction is smooth below its creep, {width[i]:g} per second{default}. "
                f"creep={_rounded_down(enough):g} keeps it below {allowed:.1g}, a thousandth of the size of its "
                f"coordinate, in steps of about {_rounded_down(dt_max * enough / width[i]):g} s"
            )
        of_member = f" of trajectory {member}" if len(t) > 1 else ""
        warnings.warn(
            f"{friction.names[i]!r}{of_member} is held by dry friction but creeps by {distances[member, i]:.3g}: "
            f"{remedy}",
            stacklevel=3,
        )


def _rounded_down(x):
    """x rounded down to one digit."""
    unit = 10 ** np.floor(np.log10(x))
    return float(np.floor(x / unit) * unit)


@jit_if_repeated
def _rates(model, t, q, v, of_q):
    """The rates that friction opposes (members, samples, k).

    Also returned, at the first sample of each member: the derivatives of the rates by v (members, k, n), and the sizes
    of the quantities that have these rates (members, k). These follow from ``of_q``, the sizes of the coordinates.
    """

    def first(t, q, v, of_q):
        A, of_v = model.dry_friction.rates(t, q, v)[1], of_q
        if model.kinematic_map is not None:
            N = jnp.abs(columns(model.kinematic_map, q, v))
            of_v = jnp.min(jnp.where(N > 0, of_q[:, None] / jnp.where(N > 0, N, 1), jnp.inf), axis=0)
        return A, jnp.max(jnp.where(A == 0, 0, jnp.abs(A) * of_v), axis=1)

    rates = jax.vmap(jax.vmap(lambda *at: model.dry_friction.rates(*at)[0]))(t, q, v)
    return rates, *jax.vmap(first)(t[:, 0], q[:, 0], v[:, 0], of_q)


@jit_if_repeated
def _acceleration_per_force(model, t, q, v):
    """The acceleration of each rate per unit of force along it."""
    A = model.dry_friction.rates(t, q, v)[1]
    W = mobility(model(t, q, v), "svd").matrix  # the method that compiles fastest
    return jnp.sum((A @ W) * A, axis=1)
