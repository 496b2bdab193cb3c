"""``ukjax explore``: sliders for parameters and starts, in the browser."""

import argparse
from typing import Any

from .mechanism import add_system, check_system, mechanism_of
from .status import status_line
from .usage import UsageError, library_errors_as_usage_errors


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "explore",
        help="change parameters and the start of a system by sliders in the browser",
        description="Serve a page with sliders for parameters and initial values, each of which simulates again, at "
        "127.0.0.1, which only this machine reaches. Ctrl-C ends it.",
        allow_abbrev=False,
    )
    add_system(parser)
    option = parser.add_argument
    option("--sliders", metavar="NAMES", help="parameters and initial values, such as m1,l1,q1,dq1 (default: a choice)")
    option(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="first value of a parameter or of the start"
    )
    option("--t1", type=float, metavar="SECONDS", help="end time (default: that of the source)")
    option("--port", type=int, default=0, metavar="N", help="port at 127.0.0.1 (default: a free one)")
    parser.set_defaults(call=explore_system)


def explore_system(options: argparse.Namespace) -> int:
    """Compile, serve, and wait for Ctrl-C. Returns exit code 0."""
    check_system(options.system, options.floating)
    if options.t1 is not None and not 0 < options.t1 < float("inf"):
        raise UsageError(f"--t1 must be a positive time in seconds, got {options.t1:g}")
    if not 0 <= options.port < 65536:
        raise UsageError(f"--port must be from 0 to 65535, got {options.port}")

    # Imports JAX, so only after the options have been checked.
    from .. import _precision
    from .._cache import enable_compilation_cache
    from .._view import explore
    from .settings import names_of, with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    names = None if options.sliders is None else names_of(options.sliders)
    with library_errors_as_usage_errors():
        with status_line("simulating"):
            mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
            exploration = explore(mechanism, names, q0=q0, v0=v0, t1=options.t1)
            exploration.motion()
        exploration.serve(options.port)
    return 0
