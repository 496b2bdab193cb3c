"""What a simulation gives: the motion, its forces, how well the constraints were kept; as arrays, tables and files."""

import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._check import known
from .._files import write_whole
from .._solve import AbstractMethod
from .._system import AbstractSystem
from .given import telling_of_batches
from .observe import Observation, observe
from .outcome import ended_well, in_words

if TYPE_CHECKING:
    import xarray

OBSERVED = {each.name: each.metadata for each in fields(Observation)}
SAMPLED = {
    "q": {"long_name": "generalised coordinates", "per_coordinate": True},
    "v": {"long_name": "generalised velocities", "per_coordinate": True},
} | OBSERVED
"""What files say of each quantity."""


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
    ``reason``; ``finished`` whether well; ``steps`` how many it took, ``last`` the t, q, v it came to, per member.
    Samples that were not reached are NaN. A model that is a bare function has residuals in accelerations only.
    """

    t: Float[Array, "*batch samples"]
    q: Float[Array, "*batch samples n"]
    v: Float[Array, "*batch samples n"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    last: tuple[Float[Array, "*batch"], Float[Array, "*batch n"], Float[Array, "*batch n"]]
    model: AbstractSystem | Callable | None
    method: AbstractMethod | None
    observation: Observation | None = None

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
            assert self.model is not None and self.method is not None, "without a model nothing more is known"
            with telling_of_batches(self.model, self.q[..., 0, :]):
                seen = observe(self.model, self.t, self.q, self.v, self.method)
            if known(seen):
                object.__setattr__(self, "_seen", seen)  # no field: what is derived from the others
        return seen

    def with_observation(self) -> "Trajectory":
        """The same with all that is known at the samples among its leaves: for where the model is to be changed."""
        return replace(self, observation=self.observed())

    def without_model(self) -> "Trajectory":
        """The same without what may hold more than arrays: for results of ``jit`` and ``vmap``."""
        return replace(self, model=None, method=None)

    @property
    def finished(self) -> Bool[Array, "*batch"]:
        """Whether the motion reached its last time, or its event."""
        return ended_well(self.result)

    @property
    def reason(self) -> "str | np.ndarray":
        """Why the motion ended, in words, for each of a batch."""
        return in_words(self.result)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each coordinate: the model's, or q1, q2, ... without units."""
        named = self.model.coordinates if isinstance(self.model, AbstractSystem) else None
        return named or tuple((f"q{i + 1}", "") for i in range(self.q.shape[-1]))

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each actuator: the model's, or u1, u2, ... without units; none without control."""
        if self.control is None:
            return ()
        system = self.model
        named = system.control.inputs if isinstance(system, AbstractSystem) and system.control is not None else None
        return named or tuple((f"u{i + 1}", "") for i in range(self.control.shape[-1]))

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
        """An ``xarray.Dataset`` with named coordinates and units; needs the package xarray."""
        try:
            import xarray
        except ImportError:
            raise ImportError("to_xarray needs the package xarray: pip install 'ukjax[data]'") from None
        batch = ("member",) if self.t.ndim == 2 else ()
        names = [name for name, _ in self.coordinates]
        units = [unit for _, unit in self.coordinates]
        dataset = xarray.Dataset(attrs={"title": type(self.model).__name__, "finished": int(np.all(self.finished))})
        if batch:  # every member has the same times, but for those it did not reach
            times = np.asarray(self.t)[int(np.isfinite(self.t).sum(axis=1).argmax())]
        else:
            times = np.asarray(self.t)
        dataset = dataset.assign_coords(
            time=("time", times, {"units": "s"}), coordinate=("coordinate", names), unit=("coordinate", units)
        )
        for name, value in self._samples().items():
            if name == "t" or value is None:
                continue
            about = SAMPLED[name]
            last = () if value.ndim == len(batch) + 1 else ("coordinate" if about["per_coordinate"] else f"{name}_row",)
            attributes = {"long_name": about["long_name"]} | ({"units": "J"} if name == "energy" else {})
            dataset[name] = ((*batch, "time", *last), np.asarray(value), attributes)
        return dataset

    def save(self, path: str | os.PathLike) -> Path:
        """Write to ``path``: plain arrays by these names (.npz), netCDF (.nc, needs xarray) or a table (.csv).

        The file appears whole or not at all. Raises ``ValueError`` for another ending, or a batch as .csv.
        """
        path = Path(path)
        writers = {".npz": self._write_npz, ".nc": self._write_netcdf, ".csv": self._write_csv}
        if path.suffix not in writers:
            raise ValueError(f"path must end in {', '.join(writers)}, got {str(path)!r}")
        if path.suffix == ".csv" and self.t.ndim == 2:
            raise ValueError("a table (.csv) holds one trajectory, this is a batch: use .npz or .nc")
        write_whole(path, writers[path.suffix])
        return path

    def _samples(self) -> dict[str, Any]:
        observed = self.observed()
        return {"t": self.t, "q": self.q, "v": self.v} | {name: getattr(observed, name) for name in OBSERVED}

    def _write_npz(self, path: Path) -> None:
        arrays: dict[str, Any] = {k: np.asarray(x) for k, x in self._samples().items() if x is not None}
        with open(path, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def _write_netcdf(self, path: Path) -> None:
        self.to_xarray().to_netcdf(path, engine="scipy")

    def _write_csv(self, path: Path) -> None:
        columns = {"t [s]": np.asarray(self.t)}
        for prefix, value, suffix in (("", self.q, ""), ("d", self.v, "/s"), ("dd", self.acceleration, "/s^2")):
            for i, (name, unit) in enumerate(self.coordinates):
                columns[f"{prefix}{name} [{unit or '-'}{suffix}]"] = np.asarray(value[:, i])
        for i, (name, unit) in enumerate(self.coordinates):
            columns[f"force on {name} [{force_unit(unit)}]"] = np.asarray(self.constraint_force[:, i])
        for i, (name, unit) in enumerate(self.inputs):
            columns[f"control {name} [{unit or '-'}]"] = np.asarray(self.control)[:, i]
        for i in range(self.residual.shape[1]):
            columns[f"residual {i + 1}"] = np.asarray(self.residual[:, i])
        table = np.column_stack(list(columns.values()))
        np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")


def force_unit(unit: str) -> str:
    """The unit of the generalised force that goes with a coordinate in ``unit``: N for a length, N m for an angle."""
    return {"m": "N", "rad": "N m"}.get(unit, "J" if not unit else f"J/{unit}")
