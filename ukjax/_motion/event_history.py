"""Events of a motion: when they happened, which, and how often."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._errors import InputError
from .._names import did_you_mean

MAX_EVENTS = 256
"""Largest number of instants of a motion of which time and state are stored."""


class EventHistory(eqx.Module):
    """Events during a motion, with a leading batch axis for a batch.

    Time and state of the first 256 instants are stored; ``counts`` has all of them.

    Attributes
    ----------
    t
        Instants of the events in their order [s], NaN after the last one (256,).
    q, v
        State at these instants, before a reset (256, nq) and (256, n).
    met
        The events that happened at each instant (256, events).
    counts
        How often each event happened (events,).
    names
        Names of the events.
    """

    t: Float[Array, "*batch stored"]
    q: Float[Array, "*batch stored nq"]
    v: Float[Array, "*batch stored n"]
    met: Bool[Array, "*batch stored events"]
    counts: Int[Array, "*batch events"]
    names: tuple[str, ...] = eqx.field(static=True)

    def times(self, name: str) -> Float[Array, "*batch stored"]:
        """The instants of one event.

        Parameters
        ----------
        name
            Name of the event.

        Returns
        -------
        Array
            Its instants in their order [s], NaN after the last one, shape (256,) or (batch, 256).

        Raises
        ------
        InputError
            If there is no event of this name.
        """
        if name not in self.names:
            raise InputError(f"there is no event {name!r}{did_you_mean(name, self.names)}")
        return jnp.sort(jnp.where(self.met[..., self.names.index(name)], self.t, jnp.nan), axis=-1)

    def __repr__(self) -> str:
        try:
            counts = np.asarray(self.counts)
            met, t = np.asarray(self.met), np.asarray(self.t)
        except Exception:
            return object.__repr__(self)
        totals = counts.reshape(-1, len(self.names)).sum(axis=0)
        text = ", ".join(f"{name}: {count}" for name, count in zip(self.names, totals, strict=True))
        lost = int(totals.sum() - np.sum(met & np.isfinite(t)[..., None]))
        return f"EventHistory({text}{f'; the last {lost} are counted only, and not stored' if lost else ''})"
