"""What dry friction should hold, and what moves all the same, since friction is smooth about the standstill."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

from ..._equation import mobility
from ..._kinematic_map import columns
from ..._run.compile import jit_unoptimised
from ..._system import AbstractSystem
from ..problem import Problem
from ..stepper.scaling import Scale
from ..trajectory.trajectory import Trajectory

HELD = 3.0
"""Times the width: below such a rate the force is less than 0.995 of its limit, and what moves is held, but creeps."""

CREPT = 1e-3
"""Of the size of a coordinate: so far it may creep before that is told."""

STEPS = 2.0
"""Times the width, over the acceleration that friction makes: about the longest step of an explicit method."""


def warn_of_creep(trajectory: Trajectory, problem: Problem, scale: Scale) -> None:
    """One warning for each rate whose friction holds it at several samples on end, while it comes further than
    ``CREPT``: it names the joint, how far it crept, and what to do.

    Steps of dt know a rate no better than the change that friction makes in one of them.
    """
    model = trajectory.model
    friction = model.dry_friction if isinstance(model, AbstractSystem) else None
    if friction is None:
        return
    t, q, v = (np.asarray(x) for x in (trajectory.t, trajectory.q, trajectory.v))
    if v.ndim == 2:
        t, q, v, scale = jax.tree.map(lambda x: np.asarray(x)[None], (t, q, v, scale))
    t = np.broadcast_to(t, v.shape[:-1])
    samples = t.shape[1]
    # As many as a power of two, so that another number of samples is the same program.
    more = 2 ** int(np.ceil(np.log2(samples))) - samples
    longer = (np.pad(x, ((0, 0), (0, more), *((0, 0),) * (x.ndim - 2)), mode="edge") for x in (t, q, v))
    rate, A, size = (np.asarray(x) for x in _rates(model, *longer, scale.q))
    rate, limit, width = np.abs(rate[:, :samples]), np.asarray(friction.limit), np.asarray(friction.width)
    dt = 0.0 if problem.dt is None else float(problem.dt)

    def crept(push):
        """How far each of them came while it was held, if a unit of force makes this acceleration."""
        held = (rate <= HELD * np.maximum(width, dt * limit * push)[:, None]) & (limit > 0)
        mean = np.where(held[:, 1:] & held[:, :-1], (rate[:, 1:] + rate[:, :-1]) / 2, 0)
        return np.nansum(np.diff(t, axis=1)[..., None] * mean, axis=1)

    if not np.any(crept(np.sum((A * np.asarray(scale.unit)[:, None]) ** 2, axis=-1)) > CREPT * size):
        return
    push = np.asarray(_push(model, t[0, 0], q[0, 0], v[0, 0]))  # the constraints see to that, too
    way = crept(push[None])
    for i in np.flatnonzero(np.any(way > CREPT * size, axis=0)):
        member = int(np.argmax(way[:, i] / size[:, i]))
        longest = STEPS * width[i] / (limit[i] * push[i])
        if dt * limit[i] * push[i] > width[i]:
            cure = (
                f"steps of dt = {dt:g} s are too long for its friction, which turns about within its creep, "
                f"{width[i]:g} per second: take steps of {_rounded_down(longest / STEPS):g} s, or none, dt=None"
            )
        else:
            allowed = CREPT * size[member, i]
            enough = allowed / way[member, i] * width[i]
            default = ", the default" if friction.usual[i] else ""
            cure = (
                f"its friction is smooth below its creep, {width[i]:g} per second{default}. "
                f"creep={_rounded_down(enough):g} keeps it below {allowed:.1g}, a thousandth of the size of its "
                f"coordinate, in steps of about {_rounded_down(longest * enough / width[i]):g} s"
            )
        who = f" of trajectory {member}" if len(t) > 1 else ""
        warnings.warn(
            f"{friction.names[i]!r}{who} is held by dry friction and creeps, by {way[member, i]:.3g}: {cure}",
            stacklevel=3,
        )


def _rounded_down(x):
    """To one digit."""
    unit = 10 ** np.floor(np.log10(x))
    return float(np.floor(x / unit) * unit)


@jit_unoptimised
def _rates(model, t, q, v, of_q):
    """The rates that friction acts against (members, samples, k); at the first sample of each member their derivatives
    by v (members, k, n), and the sizes of what they are the rates of, from those of the coordinates."""

    def first(t, q, v, of_q):
        A, of_v = model.dry_friction.rates(t, q, v)[1], of_q
        if model.kinematic_map is not None:
            N = jnp.abs(columns(model.kinematic_map, q, v))
            of_v = jnp.min(jnp.where(N > 0, of_q[:, None] / jnp.where(N > 0, N, 1), jnp.inf), axis=0)
        return A, jnp.max(jnp.where(A == 0, 0, jnp.abs(A) * of_v), axis=1)

    rates = jax.vmap(jax.vmap(lambda *at: model.dry_friction.rates(*at)[0]))(t, q, v)
    return rates, *jax.vmap(first)(t[:, 0], q[:, 0], v[:, 0], of_q)


@jit_unoptimised
def _push(model, t, q, v):
    """The acceleration of each rate per unit of a force along it."""
    A = model.dry_friction.rates(t, q, v)[1]
    W = mobility(model(t, q, v), "svd").matrix  # of all methods the one that is compiled soonest
    return jnp.sum((A @ W) * A, axis=1)
