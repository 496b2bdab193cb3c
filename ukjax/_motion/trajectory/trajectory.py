"""What a simulation gives: the motion, its forces, how well the constraints were kept; as arrays, tables and files."""

import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._check import as_path, is_concrete
from ..._extras import extra_package
from ..._files import write_whole
from ..._outside import external_values_in
from ..._solve import AbstractMethod
from ..._system import AbstractSystem
from ..inputs import hint_if_batched_model
from ..labels import Labels, named_coordinates, named_directions, named_inputs, named_rows, title_of
from ..result import EVENT, FINISHED, in_words
from .files import SavedMotion, as_dataset, read_netcdf, read_npz, write_csv, write_netcdf, write_npz
from .observation import Observation, observe

if TYPE_CHECKING:
    import xarray

OBSERVED = {each.name: each.metadata for each in fields(Observation)}
"""What files say of each quantity."""

WITH_ROWS = (
    "residual",
    "position_residual",
    "velocity_residual",
    "acceleration_residual",
    "task_residual",
    "unreachable",
)


class Trajectory(eqx.Module):
    """A motion sampled at times t, time first: (samples, ...), or (batch, samples, ...) from many starts.

    | field | per sample | meaning |
    |---|---|---|
    | ``t``, ``q``, ``v`` | (), (n,), (n,) | the motion |
    | ``acceleration`` | (n,) | q̈ |
    | ``constraint_force`` | (n,) | Qᶜ = ``ideal_force`` + ``nonideal_force`` |
    | ``residual`` | (m,) | each constraint as written: φ, or ψ, or A q̈ − b |
    | ``position_residual``, ``velocity_residual`` | (k,) | φ; φ̇ and ψ |
    | ``acceleration_residual`` | (m,) | A q̈ − b |
    | ``rank``, ``inconsistency`` | () | as in ``Motion`` |
    | ``energy`` | () | T + V [J], None where the model has none |
    | ``control`` | (p,) | u, one column per actuator; this and the next three are None without control |
    | ``task_residual`` | (k,) | each servo constraint as written |
    | ``unreachable`` | (k,) | accelerations of the task that the actuators cannot give |
    | ``control_rank`` | () | independent task rows that the actuators can move |

    All but the motion is computed when it is first looked at. ``result`` says how the motion ended, in words
    ``reason``; ``finished`` whether at its last time, ``met_event`` whether at its event; ``steps`` how many it took,
    ``last`` the t, q, v it came to, per member.
    Samples that were not reached are NaN. A model that is a bare function has residuals in accelerations only.
    One that was read from a file has no ``model``, and in ``labels`` the names that were its.
    """

    t: Float[Array, "*batch samples"]
    q: Float[Array, "*batch samples nq"]
    v: Float[Array, "*batch samples n"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    last: tuple[Float[Array, "*batch"], Float[Array, "*batch nq"], Float[Array, "*batch n"]]
    model: AbstractSystem | Callable | None
    method: AbstractMethod | None
    observation: Observation | None = None
    labels: Labels | None = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
    else:

        def __getattr__(self, name):
            if name in OBSERVED:
                return getattr(self.observed(), name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def observed(self) -> Observation:
        """All that is known at the samples; computed, and compiled, when it is first looked at."""
        if self.observation is not None:
            return self.observation
        seen = self.__dict__.get("_seen")
        if seen is None:
            self._check_numbers()
            if self.model is None or self.method is None:
                raise ValueError(
                    "without its model nothing but t, q and v is known of this motion: call with_observation() before "
                    "without_model()"
                )
            with hint_if_batched_model(self.model, self.q[..., 0, :]):
                seen = observe(self.model, self.t, self.q, self.v, self.method)
            if is_concrete(seen):
                object.__setattr__(self, "_seen", seen)  # no field: what is derived from the others
        return seen

    def remembering_numbers(self) -> "Trajectory":
        """The same, which knows the numbers that its model reads from outside now."""
        object.__setattr__(self, "_outside", external_values_in(self.model))
        return self

    def _check_numbers(self):
        computed_with = self.__dict__.get("_outside")
        if computed_with is not None and computed_with != external_values_in(self.model):
            raise ValueError(
                "a number that the model reads from outside, such as a global, has changed since this motion was "
                "computed, so that forces and energies would be those of another model: make it a field of the model, "
                "or call with_observation() before it changes"
            )

    def with_observation(self) -> "Trajectory":
        """The same with all that is known at the samples among its leaves: for where the model is to be changed."""
        return replace(self, observation=self.observed())

    def without_model(self) -> "Trajectory":
        """The same without what may hold more than arrays: for results of ``jit`` and ``vmap``."""
        return replace(self, model=None, method=None)

    def __repr__(self) -> str:
        if not all(map(eqx.is_array, (self.t, self.q, self.result))):
            return object.__repr__(self)  # of something else in the same structure
        *batch, samples = self.t.shape
        members = "".join(f"{size} x " for size in batch)
        shown = f"{self.title!r}, {members}{samples} samples of {self.q.shape[-1]} coordinates"
        if is_concrete(self.t, self.result):
            reasons = Counter(np.atleast_1d(in_words(np.ravel(self.result))).tolist())
            ended = ", ".join(f"{count} {reason}" if batch else reason for reason, count in reasons.items())
            shown += f", t = {np.min(self.t):g} to {np.max(self.t):g} s, {ended}"
        return f"Trajectory({shown})"

    @property
    def finished(self) -> Bool[Array, "*batch"]:
        """Whether the motion reached its last time."""
        return self.result == FINISHED

    @property
    def met_event(self) -> Bool[Array, "*batch"]:
        """Whether the motion ended before, where its event is."""
        return self.result == EVENT

    @property
    def reason(self) -> "str | np.ndarray":
        """Why the motion ended, in words, for each of a batch."""
        return in_words(self.result)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each coordinate: the model's, or q1, q2, ... without units."""
        return named_coordinates(self.model, self.q.shape[-1]) if self.labels is None else self.labels.coordinates

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """What each entry of v, of accelerations and of forces is along, and the unit of what v is the rate of: the
        coordinates, unless the model has ``rates`` of its own."""
        if self.labels is not None:
            return self.labels.along
        return named_directions(self.model, self.v.shape[-1]) or self.coordinates

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each actuator: the model's, or u1, u2, ... without units; none without control."""
        if self.control is None:
            return ()
        return named_inputs(self.model, self.control.shape[-1]) if self.labels is None else self.labels.inputs

    @property
    def title(self) -> str:
        """What the model is called, or the name of its class."""
        return title_of(self.model) if self.labels is None else self.labels.title

    @property
    def rows(self) -> dict[str, tuple[str, ...]]:
        """The names of the rows of each residual, by the residual's name: the constraints', or 1, 2, ..."""
        if self.labels is not None:
            return dict(self.labels.rows)
        sizes = {name: getattr(self, name).shape[-1] for name in WITH_ROWS if getattr(self, name) is not None}
        first = lambda x, of_sample: x[(0,) * (x.ndim - of_sample)]
        return dict(named_rows(self.model, first(self.t, 0), first(self.q, 1), first(self.v, 1), sizes))

    @property
    def differentiable(self) -> Bool[Array, "*batch"]:
        """Whether the rank of the rows is the same at all samples that were reached. Where it changes, at a singular
        pose, the motion has no derivative, and what differentiation gives is that of the motion at constant rank."""
        reached = jnp.isfinite(self.t)
        first = self.rank[..., :1]
        return jnp.all((self.rank == first) | ~reached, axis=-1)

    def reached(self) -> "Trajectory":
        """A single trajectory without the samples it did not come to, after an event or where it had to stop."""
        reached = np.asarray(jnp.isfinite(self.t))
        repeated = np.concatenate([[True], np.diff(np.asarray(self.t)) != 0])  # an event at a sample, or none at all
        kept = np.flatnonzero(reached & repeated)
        cut = lambda tree: jax.tree.map(lambda x: x[kept], tree)
        t, q, v, observation = cut((self.t, self.q, self.v, self.observation))
        return replace(self, t=t, q=q, v=v, observation=observation)

    def to_xarray(self) -> "xarray.Dataset":
        """An ``xarray.Dataset`` with named coordinates, units and rows, by the CF conventions; needs the package
        xarray."""
        extra_package("xarray", "data", "to_xarray")
        return as_dataset(self._saved())

    def save(self, path: str | os.PathLike) -> Path:
        """Write to ``path``: plain arrays by these names (.npz), netCDF (.nc, needs xarray) or a table (.csv). The
        first two hold everything that is known of the motion, and ``load_trajectory`` reads them.

        The file appears whole or not at all. Raises ``ValueError`` for another ending, or a batch as .csv, and
        ``OSError``, with its name, where it cannot be written.
        """
        path = as_path(path)
        writers = {".npz": write_npz, ".nc": write_netcdf, ".csv": write_csv}
        if path.suffix not in writers:
            raise ValueError(f"path must end in {', '.join(writers)}, got {str(path)!r}")
        if path.suffix == ".csv" and self.t.ndim == 2:
            raise ValueError("a table (.csv) holds one trajectory, this is a batch: use .npz or .nc")
        saved = self._saved()
        write_whole(path, lambda part: writers[path.suffix](saved, part))
        return path

    def _saved(self) -> SavedMotion:
        observed = self.observed()
        found = {"t": self.t, "q": self.q, "v": self.v, "result": self.result, "steps": self.steps}
        found |= dict(zip(("last_t", "last_q", "last_v"), self.last, strict=True))
        found |= {name: getattr(observed, name) for name in OBSERVED}
        directions = None if self.directions == self.coordinates else self.directions
        labels = Labels(self.title, self.coordinates, self.inputs, tuple(self.rows.items()), directions)
        return SavedMotion({name: np.asarray(x) for name, x in found.items() if x is not None}, OBSERVED, labels)


def load_trajectory(path: str | os.PathLike) -> Trajectory:
    """The trajectory that ``Trajectory.save`` wrote to ``path``, .npz or .nc (which needs the package xarray).

    Everything that was saved is there: the motion, how it ended, forces, residuals, energy, control, names and units.
    The model is not: ``model`` is None. Raises ``ValueError`` for a file that holds no such thing or is not whole, and
    ``OSError`` where there is none. Warns where numbers in double precision are rounded, since JAX computes in single.
    """
    path = as_path(path)
    readers = {".npz": read_npz, ".nc": read_netcdf}
    if path.suffix not in readers:
        raise ValueError(
            f"path must end in {' or '.join(readers)}, got {str(path)!r}: a table (.csv) does not hold all of a motion"
        )
    saved = readers[path.suffix](path, OBSERVED)
    arrays = {name: jnp.asarray(x) for name, x in saved.arrays.items()}
    if arrays["q"].dtype.itemsize < saved.arrays["q"].dtype.itemsize:
        warnings.warn(
            f"{str(path)!r} is in {saved.arrays['q'].dtype} and was rounded to {arrays['q'].dtype}, in which JAX "
            "computes: call ukjax.enable_float64() before",
            stacklevel=2,
        )
    observed: dict[str, Any] = {name: arrays.get(name) for name in OBSERVED}
    return Trajectory(
        t=arrays["t"],
        q=arrays["q"],
        v=arrays["v"],
        result=arrays["result"],
        steps=arrays["steps"],
        last=(arrays["last_t"], arrays["last_q"], arrays["last_v"]),
        model=None,
        method=None,
        observation=Observation(**observed),
        labels=saved.labels,
    )
