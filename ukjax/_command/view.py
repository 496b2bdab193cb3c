"""``ukjax view``."""

import argparse
from typing import Any

from .mechanism import file_stem
from .motion import add_motion, asked, check_motion
from .usage import check_output, saying_what_is_refused


def add_to(commands: Any) -> None:
    """Its options, among the sub-commands of the command line."""
    parser = commands.add_parser(
        "view",
        help="watch a system move, in the browser",
        description="Simulate a system as `ukjax run` does and show it in motion: a page that needs nothing but a "
        "browser, opened there if this machine has a screen.",
        allow_abbrev=False,
    )
    add_motion(parser)
    parser.add_argument("--out", metavar="FILE", help="the page (default SYSTEM.html)")
    parser.set_defaults(call=view_system)


def view_system(options: argparse.Namespace) -> int:
    """Simulate, save the page, open it."""
    check_motion(options)
    name = f"{file_stem(options.system)}.html" if options.out is None else options.out
    path = check_output("--out", name, (".html",))
    with saying_what_is_refused():
        trajectory = asked(options).motion(options.drift)

    # With JAX, which a mistaken word does not wait for.
    from .._view import open_in_browser, view

    path = view(trajectory).save(path)
    print(f"{path}{'' if open_in_browser(path) else ': open it in a browser'}")
    return 0
