"""What became of an ensemble, in memory or in a folder."""

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._check import memory
from .._extras import extra_package
from .._motion.result import FINISHED, REASONS, RUNNING, ended_well
from .._motion.trajectory.trajectory import OBSERVED
from .._names import did_you_mean
from .block import ENDING_KEPT, MOTION_KEPT
from .dataset import as_dataset, empty, times_of
from .store import Store, count

if TYPE_CHECKING:
    import xarray

WORDS = REASONS | {RUNNING: "is not done yet"}
SHARES = 0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0


class Failure(NamedTuple):
    """A member that did not come to its end: which, the time that it came to [s], and why."""

    member: int
    t: float
    reason: str


class Ensemble:
    """The members of an ensemble, read from its folder when they are looked at.

    ``over`` has the numbers that were swept, name -> (members,); ``t`` (samples,) the times; ``q`` and ``v`` (members,
    samples, n) what was kept of the motions, NaN where a member did not come to; ``result`` (members,) how each ended,
    in words ``reason``, with ``finished``; ``last_t`` the time it came to [s], ``steps`` how many it took; ``failures``
    those that failed. What else was kept is among the ``names`` and is got by ``found["name"]``. ``dataset`` is all of
    it as an ``xarray.Dataset`` with names and units, of which nothing is read before it is wanted.
    """

    def __init__(self, told: dict[str, Any], store: Store | None, arrays: dict[str, np.ndarray] | None):
        self._told, self._store, self._arrays = told, store, arrays or {}
        self.members: int = told["members"]
        self._done = [(0, self.members)] if store is None else store.done()

    @classmethod
    def in_memory(cls, told: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Ensemble":
        return cls(told, None, arrays)

    def __repr__(self) -> str:
        where = "in memory" if self._store is None else f"in {str(self._store.path)!r}"
        done = "" if self.complete else f", {self.done} of them done"
        return (
            f"<Ensemble of {self.members} {self._told['model']}{done}, {where}, over {', '.join(self._told['over'])}>"
        )

    @property
    def done(self) -> int:
        """How many members are done."""
        return count(self._done)

    @property
    def complete(self) -> bool:
        return self.done == self.members

    @property
    def names(self) -> tuple[str, ...]:
        """What was kept of each member."""
        return tuple(name for name in self._first if name != "over")

    def __getitem__(self, name: str) -> np.ndarray:
        """What was kept under that name, (members, ...): NaN, or 0, for members that are not done."""
        if name in self._told["over"]:
            return self.over[name]
        self._check_name(name)
        return self._whole(name)

    @property
    def over(self) -> dict[str, Float[np.ndarray, " members"]]:
        numbers = self._whole("over")
        return {name: numbers[:, i] for i, name in enumerate(self._told["over"])}

    @property
    def t(self) -> Float[np.ndarray, " samples"]:
        return times_of(self._told)

    @property
    def q(self) -> Float[np.ndarray, "members samples nq"]:
        return self["q"]

    @property
    def v(self) -> Float[np.ndarray, "members samples n"]:
        return self["v"]

    @property
    def result(self) -> Int[np.ndarray, " members"]:
        return self["result"].astype(int)

    @property
    def steps(self) -> Int[np.ndarray, " members"]:
        return self["steps"]

    @property
    def last_t(self) -> Float[np.ndarray, " members"]:
        return self["last_t"]

    @property
    def finished(self) -> Bool[np.ndarray, " members"]:
        return self.result == FINISHED

    @property
    def reason(self) -> np.ndarray:
        words = np.array([WORDS[code] for code in sorted(WORDS)])
        return words[np.searchsorted(sorted(WORDS), self.result)]

    @property
    def failures(self) -> list[Failure]:
        result = self.result
        failed = np.flatnonzero(~ended_well(result) & (result != RUNNING))
        times = self.last_t
        return [Failure(int(i), float(times[i]), WORDS[int(result[i])]) for i in failed]

    @property
    def title(self) -> str:
        """What the members are."""
        return self._told["model"]

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, unit) for name, unit in self._told["coordinates"])

    @property
    def dataset(self) -> "xarray.Dataset":
        """All of it with names and units; needs the package xarray."""
        extra_package("xarray", "data", "dataset")
        return as_dataset(self._told, self._first, self._rows)

    def ends(self) -> Float[np.ndarray, "members nq"]:
        """The last of q of each member; NaN where it did not come to its end."""
        self._check_name("q")
        ends = np.full((self.members, len(self.coordinates)), np.nan)
        for first, last in self._done:
            ends[first:last] = self._part(first, last, "q")[:, -1]
        return ends

    def summary(self) -> dict[str, Any]:
        """How many members there are and are done, how many ended in which way, and how what was swept, and the ends
        of all coordinates, are distributed: the least, 5, 25, 50, 75 and 95 of 100, and the greatest."""
        result = self.result
        counts = {
            WORDS[int(code)]: int(count) for code, count in zip(*np.unique(result, return_counts=True), strict=True)
        }
        told: dict[str, Any] = {"model": self._told["model"], "members": self.members, "done": self.done}
        told |= {"finished": int(np.sum(self.finished)), "failed": len(self.failures), "reasons": counts}
        told["over"] = {name: _spread(x) for name, x in self.over.items()}
        if "q" in self.names:
            told["ends"] = {name: _spread(x) for (name, _), x in zip(self.coordinates, self.ends().T, strict=True)}
        for name in self.names:
            if name not in (*MOTION_KEPT, *ENDING_KEPT, *OBSERVED) and self[name].ndim == 1:
                told.setdefault("kept", {})[name] = _spread(self[name])
        return told

    def _check_name(self, name):
        if name not in self.names:
            known = [*self.names, *self._told["over"]]
            raise ValueError(f"the ensemble has no {name!r}{did_you_mean(name, known)} There are: {', '.join(known)}")

    def _part(self, first, last, name):
        """What is called ``name`` of a range of members that was done together."""
        if self._store is None or name in self._arrays:
            return self._arrays[name][first:last]
        return self._store.read(first, last, [name])[name]

    def _rows(self, name, members):
        """The same of some ``members``, in any order; nothing but their files is read."""
        example = self._first[name]
        rows = np.full((members.size, *example.shape[1:]), empty(name, example.dtype), example.dtype)
        for first, last in self._done:
            inside = (members >= first) & (members < last)
            if inside.any():
                rows[inside] = self._part(first, last, name)[members[inside] - first]
        return rows

    @cached_property
    def _first(self) -> dict[str, np.ndarray]:
        """What the first members' file holds, which is read once."""
        if self._store is None:
            return self._arrays
        if not self._done:
            raise ValueError(f"{str(self._store.path)!r} holds no members yet")
        return self._store.read(*self._done[0])

    def _whole(self, name) -> np.ndarray:
        if self._store is None or name in self._arrays:
            return self._arrays[name]
        example = self._first[name]
        shape = self.members, *example.shape[1:]
        if example.dtype.itemsize * np.prod(shape, dtype=float) > memory():
            raise ValueError(f"{name} of shape {shape} does not fit into memory: read parts of it by dataset[{name!r}]")
        whole = np.empty(shape, example.dtype) if self.complete else np.full(shape, empty(name, example.dtype))
        for first, last in self._done:
            whole[first:last] = self._part(first, last, name)
        self._arrays[name] = whole
        return whole


def _spread(x: np.ndarray) -> list[float] | None:
    finite = x[np.isfinite(x)]
    return [float(q) for q in np.quantile(finite, SHARES)] if finite.size else None


def open_ensemble(store: str | os.PathLike) -> Ensemble:
    """What ``ensemble`` keeps in the folder ``store``, of either kind, also while it is still being computed.

    Raises ``ValueError`` for a folder that holds none, and ``ImportError`` for a Zarr store without the package zarr.
    """
    folder = Store(store)
    return Ensemble(folder.manifest(), folder, None)
