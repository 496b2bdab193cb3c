"""Contacts of a motion: which gaps were closed, and the impacts."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .mode import ContactMode
from .rows import Layout

MAX_IMPACTS = 256
"""Largest number of impacts per motion whose instant and impulses are stored."""


class ContactHistory(eqx.Module):
    """Contacts and dry friction during a motion, with a leading batch axis for a batch.

    The rows are the gaps of all ``Unilateral`` constraints in their order, and then the components of their friction
    forces and of ``Coulomb`` friction.

    Attributes
    ----------
    closed
        Whether each gap is closed at each sample (samples, gaps).
    sticking
        Whether each friction force sticks at each sample (samples, groups).
    direction
        Direction of the slip of each friction force at each sample, 0 where it does not slip (samples, groups, dim).
    impact_times
        Instants of the first impacts [s], NaN after the last one (256,).
    impulses
        Impulses of these impacts (256, rows) [N s, or N m s for an angle].
    impacts
        Number of all impacts; ``missing`` of them are not stored. With time stepping it is 0: its impulses combine
        those of impacts and of contact forces.
    changes
        Number of all changes of the contact mode, impacts among them.
    grazing
        Whether a gap touched zero without speed: it closed, or nearly closed, where it was about to open again. The
        motion has no derivative there. False with time stepping, whose derivative is that of its steps.
    """

    closed: Bool[Array, "*batch samples gaps"]
    sticking: Bool[Array, "*batch samples groups"]
    direction: Float[Array, "*batch samples groups dim"]
    impact_times: Float[Array, "*batch stored"]
    impulses: Float[Array, "*batch stored rows"]
    impacts: Int[Array, "*batch"]
    changes: Int[Array, "*batch"]
    grazing: Bool[Array, "*batch"]

    @property
    def mode(self) -> ContactMode:
        """The contact mode of each sample."""
        return ContactMode(self.closed, self.sticking, self.direction)

    @property
    def missing(self) -> Int[Array, "*batch"]:
        """Number of impacts after the last stored one; 0 if all impacts are stored."""
        return jnp.maximum(self.impacts - self.impact_times.shape[-1], 0)

    def at_samples(self, indices: np.ndarray) -> "ContactHistory":
        """The contacts of a single motion at the samples with these ``indices``."""
        select = lambda x: x[indices]
        closed, sticking, direction = map(select, (self.closed, self.sticking, self.direction))
        return replace(self, closed=closed, sticking=sticking, direction=direction)

    def __repr__(self) -> str:
        try:
            impacts, changes = (int(np.sum(np.asarray(x))) for x in (self.impacts, self.changes))
        except Exception:
            return object.__repr__(self)
        lost = int(np.sum(np.asarray(self.missing)))
        more = f", of which {lost} are counted only, and not stored" if lost else ""
        return f"ContactHistory({impacts} impacts{more}, {changes} changes of the contact mode)"


def empty_contacts(layout: Layout, samples: int, stored: int, dtype: Any) -> ContactHistory:
    """The history of a motion without any contact or friction, with room for ``stored`` impacts."""
    nothing = lambda kind, *shape: jnp.zeros(shape, kind)
    return ContactHistory(
        closed=nothing(bool, samples, layout.gaps),
        sticking=nothing(bool, samples, layout.groups),
        direction=nothing(dtype, samples, layout.groups, layout.dim),
        impact_times=nothing(dtype, stored) + jnp.nan,
        impulses=nothing(dtype, stored, layout.rows),
        impacts=nothing(np.int32),
        changes=nothing(np.int32),
        grazing=nothing(bool),
    )


def mode_of(contacts: ContactHistory | None) -> ContactMode | None:
    """The contact mode of each sample, None for a system without contacts and dry friction."""
    return None if contacts is None else contacts.mode
