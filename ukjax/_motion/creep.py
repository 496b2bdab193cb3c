"""Joints that dry friction should hold, and that move all the same, since it is smooth about the standstill."""

import warnings

import numpy as np

from .._system import AbstractSystem
from .base import Request
from .labels import direction_names
from .scale import Scale
from .trajectory import Trajectory

HELD = 3.0
"""Times the width: below such a rate the force is less than 0.995 of its limit, and what moves is held, but creeps."""

CREPT = 1e-3
"""Of the size of a coordinate: so far it may creep before that is told."""


def warn_of_creep(trajectory: Trajectory, request: Request, scale: Scale) -> None:
    """One warning for each velocity whose friction holds it at several samples on end, while it comes further than
    ``CREPT``: it names the joint and how far it crept.

    Steps of dt know a rate no better than the change limit · dt / M that friction makes in one of them.
    """
    model = trajectory.model
    friction = model.dry_friction if isinstance(model, AbstractSystem) else None
    if friction is None:
        return
    along = np.array(friction.along)
    limit, width = np.asarray(friction.limit), np.asarray(friction.width)
    t, v = np.atleast_2d(np.asarray(trajectory.t)), np.asarray(trajectory.v)
    rate = np.abs(v if v.ndim == 3 else v[None])[..., along]
    size, unit = (np.asarray(x).reshape(-1, x.shape[-1])[:, along] for x in (scale.q, scale.unit))
    dt = 0.0 if request.dt is None else float(request.dt)
    by_steps = dt * limit * unit**2
    held = rate <= HELD * np.maximum(width, by_steps)[:, None]
    mean = np.where(held[:, 1:] & held[:, :-1], (rate[:, 1:] + rate[:, :-1]) / 2, 0)
    way = np.nansum(np.diff(t, axis=1)[..., None] * mean, axis=1)
    names = direction_names(model)
    for i in np.flatnonzero(np.any(way > CREPT * size, axis=0)):
        member = int(np.argmax(way[:, i] / size[:, i]))
        who = f" of trajectory {member}" if len(t) > 1 else ""
        if by_steps[member % len(by_steps), i] > width[i]:
            cure = (
                f"steps of dt = {dt:g} s are too long for its friction, which turns about within its creep, "
                f"{width[i]:g} per second: take shorter ones, or none, dt=None"
            )
        else:
            cure = f"its friction is smooth below its creep, {width[i]:g} per second: a smaller one holds it better"
        warnings.warn(
            f"{names[along[i]]!r}{who} is held by dry friction and creeps, by {way[member, i]:.3g}: {cure}",
            stacklevel=3,
        )
