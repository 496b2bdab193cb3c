"""``Tuned``: the result of ``tune``, as numbers and as a table."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._files import write_json
from .._motion.trajectory.trajectory import Trajectory


class Tuned(eqx.Module):
    """The result of ``tune``. ``print`` shows the parameters and the cost before and after.

    Attributes
    ----------
    model : callable
        The model with the tuned parameters.
    names : tuple of str
        Names of the tuned parameters.
    first_values, values : array, shape (p,)
        The parameters before and after, in their own units.
    first, cost : float
        Mean cost before and after.
    dt : float or None
        Longest time step [s]; None for adaptive steps.
    cost_error : float or None
        Change of ``cost`` with half the time step; None if ``dt`` or a tolerance was an argument of ``tune``.
    first_held_out, held_out : float or None
        Mean cost of the held-out starts before and after; None without such starts.
    evaluations : int
        Number of evaluations of the cost.
    converged : bool
        Whether the search converged.
    before, after : Trajectory
        The motions before and after, with a leading axis of starts: of the held-out starts if there are any.
    """

    model: Any
    names: tuple[str, ...] = eqx.field(static=True)
    first_values: Float[np.ndarray, " p"]
    values: Float[np.ndarray, " p"]
    first: float
    cost: float
    dt: float | None
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
        """The table as a dictionary that JSON can store."""
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
        """Write ``as_dict()`` to a JSON file, atomically; returns its path."""
        return write_json(Path(path), self.as_dict())
