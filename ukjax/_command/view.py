"""``ukjax view``: show an animation in the browser."""

import argparse
from typing import Any

from .mechanism import file_stem
from .motion import add_motion, check_motion, simulation_request
from .status import status_line
from .usage import check_output, library_errors_as_usage_errors


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "view",
        help="show an animation of a system in the browser",
        description="Simulate a system like `ukjax run`, save an animation as a self-contained HTML page, and open the "
        "page in the browser if this machine has a screen.",
        allow_abbrev=False,
    )
    add_motion(parser)
    parser.add_argument("--out", metavar="FILE", help="file of the page (default SYSTEM.html)")
    parser.add_argument("--forces", action="store_true", help="draw forces and moments as arrows")
    parser.set_defaults(call=view_system)


def view_system(options: argparse.Namespace) -> int:
    """Simulate, save the page, open it. Returns exit code 0."""
    check_motion(options)
    name = f"{file_stem(options.system)}.html" if options.out is None else options.out
    path = check_output("--out", name, (".html",))
    with library_errors_as_usage_errors(), status_line("simulating", hidden=options.progress):
        trajectory = simulation_request(options).motion(options.drift)

    # Imports JAX, so only after the options have been checked.
    from .._view import open_in_browser, view

    with status_line("writing"):
        path = view(trajectory, forces=options.forces).save(path)
    print(f"{path}{'' if open_in_browser(path) else ': open it in a browser'}")
    return 0
