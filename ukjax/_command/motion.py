"""The motion that a command is about: its options, and how it is computed."""

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from .mechanism import add_system, check_system, mechanism_of
from .usage import UsageError, check_memory

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Array

    from .._motion.trajectory.trajectory import Trajectory
    from ..systems.base import AbstractMechanism

TOLERANCE = 1e-11


def add_motion(parser: argparse.ArgumentParser) -> None:
    """The mechanism, its parameters and start, how long it moves and how that is computed."""
    option = parser.add_argument
    add_system(parser)
    option(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter, or an initial value (q1, dq1)"
    )
    option("--t1", type=float, metavar="SECONDS", help="end of the motion (default: the source's)")
    option("--samples", type=int, default=1001, metavar="N", help="equally spaced samples (default 1001)")
    option("--drift", choices=("projection", "none"), default="projection", help="default: projection")
    option("--method", default="orthogonal", help="how the constrained motion is solved")
    option("--dt", type=float, metavar="SECONDS", help="fixed steps instead of adaptive ones")
    option("--rtol", type=float, help="relative tolerance of adaptive steps (default 1e-11)")
    option("--atol", type=float, help="absolute tolerance of adaptive steps (default 1e-11)")
    option("--progress", action="store_true", help="show a progress meter")


def check_motion(options: argparse.Namespace) -> None:
    """The system and the numbers make sense, or ``UsageError``."""
    check_system(options.system, options.floating)
    if options.samples < 2:
        raise UsageError(f"--samples must be at least 2, got {options.samples}")
    if options.t1 is not None and not 0 < options.t1 < float("inf"):
        raise UsageError(f"--t1 must be a positive time in seconds, got {options.t1:g}")
    for name in ("dt", "rtol", "atol"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be positive, got {value:g}")


class Asked(NamedTuple):
    """What is to be simulated: the mechanism, its start as it is given, the samples, and how."""

    mechanism: "AbstractMechanism"
    q0: "Array"
    v0: "Array"
    ts: "np.ndarray"
    how: dict[str, Any]

    def motion(self, drift: str) -> "Trajectory":
        """From the start, brought onto the constraints if they are to be kept by projection."""
        from .._mechanism import Mechanism
        from .._motion.consistent.project import project
        from .._motion.simulate import simulate

        mechanism, q0, v0, ts, how = self
        fits = isinstance(mechanism, Mechanism) and ts[0] == 0
        if drift == "projection" and not fits:
            q0, v0 = project(mechanism, ts[0], q0, v0, how["method"])
        return simulate(mechanism, q0, v0, ts, drift=drift, **how)


def asked(options: argparse.Namespace) -> Asked:
    """The mechanism with the user's parameters, in double precision. ``UsageError``, or ``ValueError`` in the library's
    words, where there is none."""
    # JAX is imported only now, when the words were found to make sense.
    import numpy as np

    from .. import _precision
    from .._cache import enable_compilation_cache
    from .._check import check_step
    from .settings import with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
    numbers = options.samples * (1 + 6 * q0.size)  # t, q, v, q'' and forces
    check_memory(f"--samples {options.samples} take", numbers, "take fewer")
    ts = np.linspace(0.0, mechanism.end if options.t1 is None else options.t1, options.samples)
    if options.dt is not None:
        check_step(options.dt, ts)
    how = {name: getattr(options, name) for name in ("method", "progress")} | _steps(options, mechanism.step, ts)
    return Asked(mechanism, q0, v0, ts, how)


def _steps(options, step, ts) -> dict[str, Any]:
    """The user's steps or tolerances, else those that suit the mechanism."""
    if step is not None and step > ts[-1] - ts[0]:
        step = None
    if options.dt is not None or options.rtol is not None or options.atol is not None:
        step = options.dt
    return {"dt": step} | {name: getattr(options, name) or TOLERANCE for name in ("rtol", "atol")}
