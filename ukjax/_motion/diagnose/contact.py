"""Checks of systems with contacts and dry friction."""

from typing import Any

import jax
import numpy as np

from ..._check import repr_of
from ..._constraint import nonsmooth_names
from ..._contact.moreau_jean import MoreauJean
from ..._contact.rows import gaps
from ..._errors import InputError
from ..._kernel.if_repeated import jit_if_repeated
from ..._system import nonsmooth_of
from ..event import Event
from ..problem import InitialState
from ..stepper.contact_setting import max_penetration


def check_options_with_contact(
    model: Any, events: tuple[Event, ...], solver: Any, drift: str, steps_known: bool, **not_available: Any
) -> None:
    """Raise ``InputError`` for options that need contacts, or that contacts or events on which steps end do not allow.

    ``steps_known``: steps are adaptive, or the number of fixed steps is known.
    """
    nonsmooth, time_stepping = nonsmooth_of(model), isinstance(solver, MoreauJean)
    if time_stepping and not nonsmooth:
        raise InputError("solver=MoreauJean() is for systems with ukjax.Unilateral or ukjax.Coulomb: leave it out")
    if time_stepping and events:
        raise InputError("event is not available with solver=MoreauJean(), whose steps do not end at events")
    if not nonsmooth and not events:
        return
    subject = (
        "for systems with ukjax.Unilateral or ukjax.Coulomb"
        if nonsmooth
        else "for several events, or one that does not end the motion"
    )
    for name, value in not_available.items():
        if value is not None and value is not False:
            raise InputError(f"{name} is not available {subject}, got {repr_of(value)}")
    if nonsmooth and drift != "projection":
        raise InputError(
            f"drift must be 'projection' for systems with ukjax.Unilateral or ukjax.Coulomb, got {drift!r}: closed "
            "contacts would drift apart"
        )
    if not time_stepping and solver is not None and not hasattr(solver, "tableau"):
        raise InputError(
            f"solver must be an explicit Runge-Kutta method of diffrax{', or ukjax.MoreauJean(),' if nonsmooth else ''}"
            f" {subject}, got {type(solver).__name__}"
        )
    if not steps_known:
        raise InputError(
            f"dt and ts must be concrete numbers, not traced by JAX, and the same for all members, {subject}"
        )


def check_gaps(model: Any, t: Any, start: InitialState) -> None:
    """Raise ``InputError``, naming the contact, if a start penetrates it."""
    if not nonsmooth_of(model):
        return
    batch = start.q.ndim == 2
    q, v, scale = start.q, start.v, start.scale
    if not batch:
        q, v, scale = jax.tree.map(lambda x: np.asarray(x)[None], (q, v, scale))
    gap, size = map(np.asarray, _gaps(model, np.broadcast_to(np.asarray(t), q.shape[:1]), q, scale))
    relative = gap / np.maximum(size, np.finfo(gap.dtype).tiny)
    if not relative.size or np.all(relative >= -max_penetration(gap.dtype)):
        return
    member, i = np.unravel_index(int(np.argmin(np.where(np.isnan(relative), -np.inf, relative))), relative.shape)
    name = nonsmooth_names(model.nonsmooth, t, q[0], v[0])[i]
    subject = f"trajectory {member} starts" if batch else "the start is"
    raise InputError(
        f"{subject} inside of a contact: the gap of {name!r} is {gap[member, i]:.3g}, and must be at least 0"
    )


@jit_if_repeated
def _gaps(model, t, q, scale):
    """The gaps of each member, and the sizes of their terms."""
    of_gaps = lambda t, q: gaps(model.nonsmooth, t, q)
    return jax.vmap(lambda t, q, scale: (of_gaps(t, q), scale.of(of_gaps, t, q)))(t, q, scale)
