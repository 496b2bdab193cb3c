"""Names of the problems. Each is a file of ``problems``, imported on demand."""

import importlib

from .._errors import InputError
from .._names import did_you_mean
from .base import AbstractProblem

NAMES = (
    "pendulum",
    "double_pendulum",
    "spherical_pendulum",
    "bead_on_hoop",
    "kepler",
    "slider_crank",
    "spatial_slider_crank",
    "four_bar",
    "andrews",
    "bricard",
    "governor",
    "crank",
    "car_axis",
    "wheelset",
    "fekete",
    "free_body",
    "heavy_top",
    "knife_edge",
    "chaplygin_sleigh",
    "snakeboard",
    "rolling_disk",
    "steady_disk",
    "rolling_coin",
    "rattleback",
    "bouncing_ball",
    "friction_oscillator",
    "rimless_wheel",
    "hanging_chain",
    "four_bar_modes",
    "whipple",
    "mathieu",
)


def names() -> tuple[str, ...]:
    """Return the names of all problems.

    Returns
    -------
    tuple of str
        The names, for ``problem`` and ``run``.
    """
    return NAMES


def problem(name: str) -> AbstractProblem:
    """Return a problem with its reference.

    Parameters
    ----------
    name
        One of ``names()``.

    Returns
    -------
    AbstractProblem
        A ``Motion`` or an ``Analysis``. ``problem.model()`` returns the system, q0 and v0, for any other method of
        solution; ``problem.error(values)`` compares its result with the reference.

    Raises
    ------
    InputError
        If there is no problem of that name.

    Examples
    --------
    The error of a solution of your own:

    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> pendulum = uk.verify.problem("pendulum")
    >>> system, q0, v0 = pendulum.model()
    >>> motion = uk.simulate(system, q0, v0, pendulum.ts, rtol=1e-6, atol=1e-6)
    >>> pendulum.error(pendulum.quantity(motion)) < 1e-5
    True
    """
    if not isinstance(name, str):
        raise InputError(f"name must be that of a problem, such as 'pendulum', got {name!r}")
    if name not in NAMES:
        raise InputError(f"no problem is named {name!r}{did_you_mean(name, NAMES)} There are: {', '.join(NAMES)}")
    return importlib.import_module(f"{__package__}.problems.{name}").PROBLEM.named(name)
