"""What a simulation gives: the motion, its forces, how well the constraints were kept; as arrays, tables and files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._files import write_whole
from .._system import AbstractSystem

if TYPE_CHECKING:
    import xarray


class Trajectory(eqx.Module):
    """A motion sampled at times t, time first: (samples, ...), or (batch, samples, ...) from many starts.

    | field | per sample | meaning |
    |---|---|---|
    | ``t``, ``q``, ``v``, ``acceleration`` | (), (n,), (n,), (n,) | the motion |
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

    ``finished`` says whether the solver reached its end, ``steps`` how many it took, ``last`` the t, q, v it came to.
    Samples that were not reached are NaN. A model that is a bare function has residuals in accelerations only.
    """

    t: Float[Array, "*batch samples"]
    q: Float[Array, "*batch samples n"]
    v: Float[Array, "*batch samples n"]
    acceleration: Float[Array, "*batch samples n"]
    constraint_force: Float[Array, "*batch samples n"]
    ideal_force: Float[Array, "*batch samples n"]
    nonideal_force: Float[Array, "*batch samples n"]
    residual: Float[Array, "*batch samples m"]
    position_residual: Float[Array, "*batch samples k"]
    velocity_residual: Float[Array, "*batch samples l"]
    acceleration_residual: Float[Array, "*batch samples m"]
    rank: Int[Array, "*batch samples"]
    inconsistency: Float[Array, "*batch samples"]
    energy: Float[Array, "*batch samples"] | None
    control: Float[Array, "*batch samples p"] | None
    task_residual: Float[Array, "*batch samples k2"] | None
    unreachable: Float[Array, "*batch samples k2"] | None
    control_rank: Int[Array, "*batch samples"] | None
    finished: Bool[Array, "*batch"]
    steps: Int[Array, "*batch"]
    last: tuple[Float[Array, "*batch"], Float[Array, "*batch n"], Float[Array, "*batch n"]]
    model: AbstractSystem | Callable

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
        cut: dict[str, Any] = {k: None if x is None else x[kept] for k, x in self._samples().items()}
        return Trajectory(**cut, finished=self.finished, steps=self.steps, last=self.last, model=self.model)

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
            last = () if value.ndim == len(batch) + 1 else ("coordinate" if name in _PER_COORDINATE else f"{name}_row",)
            attributes = {"long_name": _LONG_NAMES[name]} | ({"units": "J"} if name == "energy" else {})
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
        return {name: getattr(self, name) for name in ("t", *_LONG_NAMES)}

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


_PER_COORDINATE = ("q", "v", "acceleration", "constraint_force", "ideal_force", "nonideal_force")
_LONG_NAMES = {
    "q": "generalised coordinates",
    "v": "generalised velocities",
    "acceleration": "generalised accelerations",
    "constraint_force": "force of all constraints",
    "ideal_force": "force of the constraints, ideal part",
    "nonideal_force": "force of the constraints, non-ideal part",
    "residual": "each constraint as written",
    "position_residual": "constraints on positions",
    "velocity_residual": "constraints on velocities",
    "acceleration_residual": "A q'' - b",
    "rank": "independent rows of A",
    "inconsistency": "part of b out of reach",
    "energy": "kinetic and potential energy",
    "control": "forces of the actuators",
    "task_residual": "each servo constraint as written",
    "unreachable": "part of the task out of the actuators' reach",
    "control_rank": "independent task rows in the actuators' reach",
}


def force_unit(unit: str) -> str:
    """The unit of the generalised force that goes with a coordinate in ``unit``: N for a length, N m for an angle."""
    return {"m": "N", "rad": "N m"}.get(unit, "J" if not unit else f"J/{unit}")
