"""The command line: ``ukjax`` or ``python -m ukjax``. Parses, calls what a Python user would call, prints."""

import argparse
import os
import sys
from typing import NoReturn

from . import __version__
from ._command import COMMANDS, UsageError


class _Parser(argparse.ArgumentParser):
    """Bad usage is one line on standard error and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """All sub-commands and their options."""
    top = _Parser(prog="ukjax", description="Constrained mechanical systems by the Udwadia–Kalaba equation.")
    top.add_argument("--version", action="version", version=f"ukjax {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command", parser_class=_Parser)

    for command in COMMANDS:
        command.add_to(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0, 1 where a motion failed, 2 for bad usage."""
    options = parser().parse_args(arguments)
    # The checks that equinox compiles into a program keep it out of the compilation cache; ukjax checks the results.
    os.environ.setdefault("EQX_ON_ERROR", "off")
    try:
        return options.call(options)
    except _usage_errors() as error:
        print(f"ukjax {options.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1 if isinstance(error, RuntimeError) else 2
    except KeyboardInterrupt:
        print(f"ukjax {options.command}: interrupted", file=sys.stderr)
        return 130


def _usage_errors():
    """What a user's words can cause. Anything else is a defect of ours, and shows its traceback."""
    if "ukjax._motion.diagnose" not in sys.modules:
        return (UsageError,)
    from ._motion.diagnose import SimulationError

    return (UsageError, SimulationError)


if __name__ == "__main__":
    sys.exit(main())
