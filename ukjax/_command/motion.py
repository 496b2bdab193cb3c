"""Options of the commands that simulate a motion, and the simulation itself."""

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from .mechanism import add_contact, add_system, check_contact, check_system, load_options, mechanism_of
from .usage import UsageError, check_memory, one_of

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Array

    from .._motion.trajectory.trajectory import Trajectory
    from ..systems.base import AbstractMechanism

TOLERANCE = 1e-11


def add_motion(parser: argparse.ArgumentParser) -> None:
    """Add the options for mechanism, parameters, start, time span and solver."""
    option = parser.add_argument
    add_system(parser)
    add_contact(parser)
    option(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="set a parameter or an initial value (q1, dq1)"
    )
    option("--t1", type=float, metavar="SECONDS", help="end time (default: that of the source)")
    option("--samples", type=int, default=1001, metavar="N", help="number of equally spaced samples (default 1001)")
    option(
        "--drift",
        **one_of("projection", "none"),
        default="projection",
        help="how drift off the constraints is removed (default: projection)",
    )
    option(
        "--method", default="orthogonal", help="linear solver of the constrained accelerations (default: orthogonal)"
    )
    option(
        "--dt",
        type=float,
        metavar="SECONDS",
        help="size of fixed steps (default: that of the system, or adaptive steps)",
    )
    option(
        "--moreau-jean",
        action="store_true",
        help="time-stepping of Moreau and Jean, for many contacts (needs --dt)",
    )
    option("--rtol", type=float, help="relative tolerance of adaptive steps (default 1e-11)")
    option("--atol", type=float, help="absolute tolerance of adaptive steps (default 1e-11)")
    option("--progress", action="store_true", help="show a progress meter")


def check_motion(options: argparse.Namespace) -> None:
    """Check the options without importing JAX. Raises ``UsageError``."""
    check_system(options.system, options.floating)
    check_contact(options)
    if options.samples < 2:
        raise UsageError(f"--samples must be at least 2, got {options.samples}")
    if options.t1 is not None and not 0 < options.t1 < float("inf"):
        raise UsageError(f"--t1 must be a positive time in seconds, got {options.t1:g}")
    if options.moreau_jean and options.dt is None:
        raise UsageError("--moreau-jean needs --dt, the size of its steps")
    for name in ("dt", "rtol", "atol"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be positive, got {value:g}")
    for name in ("rtol", "atol"):
        if options.dt is not None and getattr(options, name) is not None:
            raise UsageError(f"--{name} is for adaptive steps, and --dt for fixed ones: leave one of them out")


class SimulationRequest(NamedTuple):
    """A simulation as requested on the command line.

    Attributes
    ----------
    mechanism
        The mechanism, with the user's parameters.
    q0, v0
        Initial positions (n,) and velocities (n,), as specified: not projected.
    ts
        Sample times (samples,) [s].
    simulate_options
        Keyword arguments of ``simulate``, except ``drift``.
    """

    mechanism: "AbstractMechanism"
    q0: "Array"
    v0: "Array"
    ts: "np.ndarray"
    simulate_options: dict[str, Any]

    def motion(self, drift: str) -> "Trajectory":
        """Run the simulation. With ``drift="projection"`` the start is first projected onto the constraints."""
        from .._mechanism import Mechanism
        from .._motion.consistent.project import project
        from .._motion.simulate.simulate import simulate

        mechanism, q0, v0, ts, simulate_options = self
        consistent = isinstance(mechanism, Mechanism) and ts[0] == 0
        if drift == "projection" and not consistent:
            q0, v0 = project(mechanism, ts[0], q0, v0, simulate_options["method"])
        return simulate(mechanism, q0, v0, ts, drift=drift, **simulate_options)


def simulation_request(options: argparse.Namespace) -> SimulationRequest:
    """Build the requested simulation, in double precision. Raises ``UsageError`` or ``InputError``."""
    # JAX is imported only after the options have been checked.
    import numpy as np

    from .. import _precision
    from .._cache import enable_compilation_cache
    from .._check import check_step
    from .settings import with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    mechanism, (q0, v0) = with_settings(
        mechanism_of(options.system, options.floating, **load_options(options)), options.set
    )
    array_entries = options.samples * (1 + 6 * q0.size)  # t, q, v, accelerations and forces
    check_memory(f"--samples {options.samples} take", array_entries, "take fewer")
    ts = np.linspace(0.0, mechanism.end if options.t1 is None else options.t1, options.samples)
    if options.dt is not None:
        check_step(options.dt, ts)
    simulate_options = {name: getattr(options, name) for name in ("method", "progress")} | _steps(
        options, mechanism.step, ts
    )
    if options.moreau_jean:
        if not mechanism.nonsmooth:
            raise UsageError(f"--moreau-jean is for contacts, stops and dry friction: {options.system} has none here")
        from .._contact.moreau_jean import MoreauJean

        simulate_options["solver"] = MoreauJean()
    return SimulationRequest(mechanism, q0, v0, ts, simulate_options)


def _steps(options, step, ts) -> dict[str, Any]:
    """Return the user's step or tolerances; by default the fixed step recommended for the mechanism, if any."""
    if step is not None and step > ts[-1] - ts[0]:
        step = None
    if options.dt is not None or options.rtol is not None or options.atol is not None:
        step = options.dt
    return {"dt": step} | {name: getattr(options, name) or TOLERANCE for name in ("rtol", "atol")}
