"""``Ensemble``: the result of an ensemble, in memory or in a folder."""

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._check import memory
from .._errors import InputError
from .._extras import extra_package
from .._motion.result import EVENT, FINISHED, REASONS, RUNNING, ended_well
from .._motion.trajectory.trajectory import OBSERVED
from .._names import did_you_mean_one_of
from .block import CONTACT_ARRAYS, ENDING_ARRAYS, EVENT_ARRAYS, MOTION_ARRAYS
from .dataset import as_dataset, empty, times_of
from .store import Store, count

if TYPE_CHECKING:
    import xarray

WORDS = REASONS | {RUNNING: "is not done yet"}  # texts of the result codes
PROBABILITIES = 0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0


class Failure(NamedTuple):
    """A member that failed: its index, the time ``t`` [s] that it reached, and the reason in words."""

    member: int
    t: float
    reason: str


class Ensemble:
    """The result of ``ensemble``: swept numbers, motions, and how each member ended.

    Arrays of a stored ensemble are read from its folder when they are first accessed. ``found[name]`` is the array that
    was stored under that name, for any of ``names``. The first axis of every array is the member.

    Attributes
    ----------
    members : int
        Number of members.
    """

    def __init__(self, metadata: dict[str, Any], store: Store | None, arrays: dict[str, np.ndarray] | None):
        self._metadata, self._store, self._arrays = metadata, store, arrays or {}
        self.members: int = metadata["members"]
        self._done = [(0, self.members)] if store is None else store.done()

    @classmethod
    def in_memory(cls, metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Ensemble":
        """An ensemble of arrays, name -> (members, ...), with the metadata that a store has in its manifest."""
        return cls(metadata, None, arrays)

    def __repr__(self) -> str:
        location = "in memory" if self._store is None else f"in {str(self._store.path)!r}"
        progress = "" if self.complete else f", {self.done} of them done"
        return (
            f"<Ensemble of {self.members} {self.title}{progress}, {location}, over {', '.join(self._metadata['over'])}>"
        )

    @property
    def done(self) -> int:
        """Number of members that are computed."""
        return count(self._done)

    @property
    def complete(self) -> bool:
        """Whether all members are computed."""
        return self.done == self.members

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays that were stored for each member, for ``found[name]``."""
        return tuple(name for name in self._first if name != "over")

    def __getitem__(self, name: str) -> np.ndarray:
        """The array that was stored under ``name``, or a swept number, shape (members, ...).

        Members that are not computed yet are NaN in arrays of floats, -1 in ``result`` and 0 in other integers.
        Raises ``InputError`` for an unknown name, or if the array does not fit into memory: read parts of it by
        ``dataset[name]``.
        """
        if name in self._metadata["over"]:
            return self.over[name]
        self._check_name(name)
        return self._whole(name)

    @property
    def over(self) -> dict[str, Float[np.ndarray, " members"]]:
        """The swept numbers of each member, name -> shape (members,), each in its own unit."""
        numbers = self._whole("over")
        return {name: numbers[:, i] for i, name in enumerate(self._metadata["over"])}

    @property
    def t(self) -> Float[np.ndarray, " samples"]:
        """Times of the samples [s], shape (samples,); the last time alone if ``keep="end"``."""
        return times_of(self._metadata)

    @property
    def q(self) -> Float[np.ndarray, "members samples nq"]:
        """Coordinates, shape (members, samples, nq), in the units of ``coordinates``.

        NaN at samples that a member did not reach. With an ``event`` that ends the motion, there is one more sample
        than there are times: the instant of that event, or the last time again.
        """
        return self["q"]

    @property
    def v(self) -> Float[np.ndarray, "members samples n"]:
        """Velocities, shape (members, samples, n), at the same samples as ``q``.

        They are the rates of the coordinates, in their units per second, unless the model defines other velocities.
        """
        return self["v"]

    @property
    def result(self) -> Int[np.ndarray, " members"]:
        """How each member ended, as a code, shape (members,): 0 at its last time, 1 at its event, -1 not computed yet,
        other codes for failures. ``reason`` is the same in words."""
        return self["result"].astype(int)

    @property
    def steps(self) -> Int[np.ndarray, " members"]:
        """Number of time steps of each member, shape (members,)."""
        return self["steps"]

    @property
    def last_t(self) -> Float[np.ndarray, " members"]:
        """Time [s] that each member reached, shape (members,)."""
        return self["last_t"]

    @property
    def finished(self) -> Bool[np.ndarray, " members"]:
        """Whether each member reached its last time, shape (members,). False for one that ended at its event."""
        return self.result == FINISHED

    @property
    def met_event(self) -> Bool[np.ndarray, " members"]:
        """Whether each member ended at an event, shape (members,)."""
        return self.result == EVENT

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the events, in the order of ``event``; empty without."""
        return tuple(self._metadata.get("events", ()))

    @property
    def event_t(self) -> Float[np.ndarray, "members events"]:
        """Time [s] of the first occurrence of each event, shape (members, events).

        NaN for an event that did not happen, or not at one of the first 256 instants of events of a member. Raises
        ``InputError`` for an ensemble without events.
        """
        return self["event_t"]

    @property
    def event_counts(self) -> Int[np.ndarray, "members events"]:
        """How often each event happened, shape (members, events). Raises ``InputError`` for an ensemble without
        events."""
        return self["event_counts"]

    @property
    def impacts(self) -> Int[np.ndarray, " members"]:
        """Number of impacts of each member, shape (members,); 0 with ``MoreauJean``, see ``ContactHistory``. Raises
        ``InputError`` for an ensemble without contacts and dry friction."""
        return self["impacts"]

    @property
    def contact_changes(self) -> Int[np.ndarray, " members"]:
        """Number of changes of the contact mode of each member, impacts among them, shape (members,). Raises
        ``InputError`` for an ensemble without contacts and dry friction."""
        return self["contact_changes"]

    @property
    def reason(self) -> np.ndarray:
        """How each member ended, in words, shape (members,)."""
        words = np.array([WORDS[code] for code in sorted(WORDS)])
        return words[np.searchsorted(sorted(WORDS), self.result)]

    @property
    def failures(self) -> list[Failure]:
        """The members that failed, as (member, t, reason): those that reached neither their last time nor an event."""
        result = self.result
        failed = np.flatnonzero(~ended_well(result) & (result != RUNNING))
        times = self.last_t
        return [Failure(int(i), float(times[i]), WORDS[int(result[i])]) for i in failed]

    @property
    def title(self) -> str:
        """Name of the model."""
        return self._metadata["model"]

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each coordinate, nq pairs."""
        return tuple((name, unit) for name, unit in self._metadata["coordinates"])

    @property
    def dataset(self) -> "xarray.Dataset":
        """All arrays with names and units, as an ``xarray.Dataset``; needs the package xarray.

        Its arrays are read lazily: selecting some members reads the files of these alone.
        """
        extra_package("xarray", "data", "dataset")
        return as_dataset(self._metadata, self._first, self._rows)

    def ends(self) -> Float[np.ndarray, "members nq"]:
        """Coordinates at the end of each motion, shape (members, nq), in the units of ``coordinates``.

        NaN for members that failed or are not computed yet. Raises ``InputError`` if q was not stored.
        """
        self._check_name("q")
        ends = np.full((self.members, len(self.coordinates)), np.nan)
        for first, last in self._done:
            ends[first:last] = self._part(first, last, "q")[:, -1]
        return ends

    def summary(self) -> dict[str, Any]:
        """Counts and distributions, as a dictionary that JSON can store.

        ``"model"``, its name; ``"members"``, ``"done"``, ``"finished"`` and ``"failed"``, numbers of members;
        ``"reasons"``, the number of members by reason. ``"over"``, ``"ends"`` and ``"kept"`` have seven quantiles of
        each swept number, of each coordinate at the end, and of each stored number: minimum, 5 %, 25 %, median, 75 %,
        95 % and maximum, in the unit of that number; None if no value is finite.
        """
        result = self.result
        counts = {
            WORDS[int(code)]: int(count) for code, count in zip(*np.unique(result, return_counts=True), strict=True)
        }
        summary: dict[str, Any] = {"model": self._metadata["model"], "members": self.members, "done": self.done}
        summary |= {"finished": int(np.sum(self.finished)), "failed": len(self.failures), "reasons": counts}
        summary["over"] = {name: _quantiles_of(x) for name, x in self.over.items()}
        if "q" in self.names:
            summary["ends"] = {
                name: _quantiles_of(x) for (name, _), x in zip(self.coordinates, self.ends().T, strict=True)
            }
        for name in self.names:
            others = (*MOTION_ARRAYS, *ENDING_ARRAYS, *EVENT_ARRAYS, *CONTACT_ARRAYS, *OBSERVED)
            if name not in others and self[name].ndim == 1:
                summary.setdefault("kept", {})[name] = _quantiles_of(self[name])
        return summary

    def _check_name(self, name):
        if name not in self.names:
            known = [*self.names, *self._metadata["over"]]
            raise InputError(f"the ensemble has no {name!r}{did_you_mean_one_of(name, known)}")

    def _part(self, first, last, name):
        """The array ``name`` for the members ``first``, ..., ``last`` - 1, which one file contains."""
        if self._store is None or name in self._arrays:
            return self._arrays[name][first:last]
        return self._store.read(first, last, [name])[name]

    def _rows(self, name, members):
        """The array ``name`` for some ``members``, in any order; only their files are read."""
        example = self._first[name]
        rows = np.full((members.size, *example.shape[1:]), empty(name, example.dtype), example.dtype)
        for first, last in self._done:
            inside = (members >= first) & (members < last)
            if inside.any():
                rows[inside] = self._part(first, last, name)[members[inside] - first]
        return rows

    @cached_property
    def _first(self) -> dict[str, np.ndarray]:
        """The arrays of the first file, which is read once."""
        if self._store is None:
            return self._arrays
        if not self._done:
            raise InputError(f"{str(self._store.path)!r} contains no members yet")
        return self._store.read(*self._done[0])

    def _whole(self, name) -> np.ndarray:
        """The array ``name`` for all members, which is read once and cached."""
        if self._store is None or name in self._arrays:
            return self._arrays[name]
        example = self._first[name]
        shape = self.members, *example.shape[1:]
        if example.dtype.itemsize * np.prod(shape, dtype=float) > memory():
            raise InputError(f"{name} of shape {shape} does not fit into memory: read parts of it by dataset[{name!r}]")
        whole = np.empty(shape, example.dtype) if self.complete else np.full(shape, empty(name, example.dtype))
        for first, last in self._done:
            whole[first:last] = self._part(first, last, name)
        self._arrays[name] = whole
        return whole


def _quantiles_of(x: np.ndarray) -> list[float] | None:
    """Seven quantiles of the finite values; None if there are none."""
    finite = x[np.isfinite(x)]
    return [float(q) for q in np.quantile(finite, PROBABILITIES)] if finite.size else None


def open_ensemble(store: str | os.PathLike) -> Ensemble:
    """Open an ensemble that ``ensemble`` stored, also while it is still being computed.

    Arrays are read when they are first accessed.

    Parameters
    ----------
    store : path
        The folder: NumPy archives or a Zarr group.

    Returns
    -------
    Ensemble
        The members that are in the folder when it is opened.

    Raises
    ------
    InputError
        If the folder contains no ensemble.
    ImportError
        If it is a Zarr group and the package zarr is missing.

    Examples
    --------
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> over = {"length": uk.Grid(0.5, 1.5, 3)}
    >>> stored = uk.ensemble(uk.systems.Pendulum(), over, ts=[0.0, 1.0], dt=0.01, store="lengths")
    >>> found = uk.open_ensemble("lengths")
    >>> found.complete, found.q.shape
    (True, (3, 2, 2))
    """
    folder = Store(store)
    return Ensemble(folder.manifest(), folder, None)
