"""Warning for motions whose explicit steps are limited by stability, not by accuracy."""

import warnings

from ..fallback.stiffness import stiffness
from ..problem import Problem
from ..stepper.scaling import Scale
from ..trajectory.trajectory import Trajectory


def warn_of_stiffness(trajectory: Trajectory, problem: Problem, scale: Scale) -> None:
    """Warn if stability limited the steps of an explicit adaptive solver, and name ``Radau``."""
    found = stiffness(problem, scale, trajectory.steps, trajectory.last)
    if found is None:
        return
    of_member = "" if found.member == () else f" of trajectory {found.member}"
    warnings.warn(
        f"the motion{of_member} is stiff: {found.in_words}. Use solver=ukjax.Radau(), or solver='auto', or replace a "
        "stiff spring or damper by a constraint",
        stacklevel=3,
    )
