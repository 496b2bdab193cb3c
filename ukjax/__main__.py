"""Command line ``ukjax`` or ``python -m ukjax``: parses arguments, calls the public API and prints."""

import argparse
import atexit
import os
import sys
from typing import NoReturn

from . import __version__
from ._command import COMMANDS, UsageError
from ._command.interrupt import answered_in_time


class _Parser(argparse.ArgumentParser):
    """Parser that reports wrong usage in one line on standard error, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser with all sub-commands and their options."""
    top = _Parser(prog="ukjax", description="Constrained mechanical systems by the Udwadia–Kalaba equation.")
    top.add_argument("--version", action="version", version=f"ukjax {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command", parser_class=_Parser)

    for command in COMMANDS:
        command.add_to(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code.

    0: success; 1: a simulation failed; 2: wrong usage or a file that cannot be written; 130: Ctrl-C; 141: the reader of
    the output closed the pipe.
    """
    name = "ukjax"
    report = lambda words: print(f"{name}: {' '.join(str(words).split())}", file=sys.stderr, flush=True)
    # JAX does not cache programs with run-time checks of equinox; ukjax checks the results itself.
    os.environ.setdefault("EQX_ON_ERROR", "off")
    with answered_in_time(lambda: report("interrupted")) as interrupts:
        try:
            try:
                options = parser().parse_args(arguments)
                name = f"ukjax {options.command}"
                return options.call(options)
            finally:
                sys.stdout.flush()
        except BaseException as error:
            if interrupts.seen or isinstance(error, KeyboardInterrupt):
                report("interrupted")
                atexit.register(os._exit, 130)  # exit without waiting for running threads
                return 130
            if isinstance(error, _usage_errors()):
                report(error)
                return 1 if isinstance(error, RuntimeError) else 2
            if isinstance(error, OSError):
                return _report_write_error(error, report)
            raise


def _report_write_error(error, report):
    """Report in one line that a file or the output cannot be written; nothing if the output pipe was closed."""
    if error.filename is not None:
        report(f"{error.filename!r} cannot be written: {error.strerror}")
        return 2
    with open(os.devnull, "w") as null_device:
        os.dup2(null_device.fileno(), sys.stdout.fileno())  # Python would flush the rest again at exit
    if isinstance(error, BrokenPipeError):
        return 141
    report(f"the output cannot be written: {error.strerror or error}")
    return 2


def _usage_errors():
    """Return the exceptions that wrong input can cause. Others are defects of ukjax and show a traceback."""
    if "ukjax._motion.diagnose.motion" not in sys.modules:
        return (UsageError,)
    from ._motion.diagnose.motion import SimulationError

    return (UsageError, SimulationError)


if __name__ == "__main__":
    sys.exit(main())
