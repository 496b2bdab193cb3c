"""What tuning found, in numbers and words."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._files import write_json
from .._motion.trajectory.trajectory import Trajectory


class Tuned(eqx.Module):
    """What ``tune`` found: ``model`` with the best ``values`` (p,) of the parameters ``names``, its mean ``cost``, and
    that of the ``first`` guess; on the held-out starts, if there were any, ``held_out`` and ``first_held_out``. The
    motions ``before`` and ``after``, of the held-out starts if there were any, have a leading axis of starts.
    ``dt`` [s] is the longest step that was taken, and ``cost_error`` by how much half of it changes the tuned ``cost``,
    None where dt was given to ``tune``."""

    model: Any
    names: tuple[str, ...] = eqx.field(static=True)
    first_values: Float[np.ndarray, " p"]
    values: Float[np.ndarray, " p"]
    first: float
    cost: float
    dt: float
    cost_error: float | None
    first_held_out: float | None
    held_out: float | None
    evaluations: int
    converged: bool
    before: Trajectory
    after: Trajectory

    def __str__(self) -> str:
        width = max(9, *map(len, self.names))
        lines = [f"{'parameter':{width}}  {'before':>12}  {'after':>12}"]
        for name, before, after in zip(self.names, self.first_values, self.values, strict=True):
            lines.append(f"{name:{width}}  {before:12.6g}  {after:12.6g}")
        lines.append(f"{'cost':{width}}  {self.first:12.6g}  {self.cost:12.6g}")
        if self.held_out is not None:
            lines.append(f"{'held out':{width}}  {self.first_held_out:12.6g}  {self.held_out:12.6g}")
        if self.cost_error is not None:
            lines.append(f"steps of at most {self.dt:.3g} s; half of it changes the cost by {self.cost_error:.2g}")
        if not self.converged:
            lines.append(f"not converged after {self.evaluations} evaluations")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The table as plain numbers."""
        rows = zip(self.names, self.first_values, self.values, strict=True)
        return {
            "parameters": {name: {"before": float(a), "after": float(b)} for name, a, b in rows},
            "cost": {"before": self.first, "after": self.cost},
            "dt": self.dt,
            "cost_error": self.cost_error,
            "held_out": None if self.held_out is None else {"before": self.first_held_out, "after": self.held_out},
            "evaluations": self.evaluations,
            "converged": self.converged,
        }

    def save(self, path: str | Path) -> Path:
        """``as_dict`` as JSON; a file of that name is replaced only when the new one is whole."""
        return write_json(Path(path), self.as_dict())
