"""``Integration``: a record of how to integrate."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ._precision import Numbers
from ._solve import AbstractMethod


@dataclass(frozen=True, eq=False)
class Integration(Mapping):
    """How to integrate: options that ``simulate``, ``ensemble``, ``export``, ``fit`` and ``tune`` share.

    The record is a mapping of the options that are not None. Pass them by ``**``. Options that are None have the
    default of the function that is called. ``Trajectory.integration`` is the record of a motion.

    Parameters
    ----------
    dt
        Largest length of fixed steps [s]. None for adaptive steps; in ``fit`` and ``tune``, for steps whose length is
        chosen.
    rtol, atol
        Allowed relative and absolute error per adaptive step. With dt, they have no effect on the steps.
    solver
        diffrax solver, such as ``RungeKutta4()`` or ``Radau()``.
    method
        Name of a solver for accelerations, or a solver object, see ``constrained_motion``.
    drift
        ``"projection"`` or ``"none"``.
    max_steps
        Largest number of steps.

    See Also
    --------
    simulate : Explains each option.

    Examples
    --------
    >>> import ukjax as uk
    >>> how = uk.Integration(dt=0.01, drift="none")
    >>> how
    Integration(dt=0.01, drift='none')
    >>> motion = uk.simulate(uk.systems.Pendulum(), [0.6, -0.8], [0.0, 0.0], [0.0, 1.0], **how)
    >>> finer = uk.Integration(**{**how, "dt": 0.005})
    """

    dt: Numbers | None = None
    rtol: Numbers | None = None
    atol: Numbers | None = None
    solver: Any = None
    method: str | AbstractMethod | None = None
    drift: str | None = None
    max_steps: int | None = None

    def __getitem__(self, name: str) -> Any:
        if name not in set(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self) if getattr(self, field.name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        shown = (f"{name}={_shown(value)}" for name, value in self.items())
        return f"Integration({', '.join(shown)})"


def _shown(value):
    return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)
