"""The command line: ``ukjax`` or ``python -m ukjax``. Parses, calls what a Python user would call, prints."""

import argparse
import atexit
import os
import sys
from typing import NoReturn

from . import __version__
from ._command import COMMANDS, UsageError
from ._command.interrupt import answered_in_time


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
    """Run the command line; the exit code is 0, 1 where a motion failed, 2 for bad usage and files that cannot be
    written, 130 after Ctrl-C and 141 where nobody reads on."""
    name = "ukjax"
    say = lambda words: print(f"{name}: {' '.join(str(words).split())}", file=sys.stderr, flush=True)
    # The checks that equinox compiles into a program keep it out of the compilation cache; ukjax checks the results.
    os.environ.setdefault("EQX_ON_ERROR", "off")
    with answered_in_time(lambda: say("interrupted")) as interrupts:
        try:
            try:
                options = parser().parse_args(arguments)
                name = f"ukjax {options.command}"
                return options.call(options)
            finally:
                sys.stdout.flush()
        except BaseException as error:
            if interrupts.seen or isinstance(error, KeyboardInterrupt):
                say("interrupted")
                atexit.register(os._exit, 130)  # whatever still runs is not waited for
                return 130
            if isinstance(error, _usage_errors()):
                say(error)
                return 1 if isinstance(error, RuntimeError) else 2
            if isinstance(error, OSError):
                return _not_written(error, say)
            raise


def _not_written(error, say):
    """A file or the output that cannot be written, in one line; none where nobody reads the output any more."""
    if error.filename is not None:
        say(f"{error.filename!r} cannot be written: {error.strerror}")
        return 2
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())  # what is left would be tried again at the end
    if isinstance(error, BrokenPipeError):
        return 141
    say(f"the output cannot be written: {error.strerror or error}")
    return 2


def _usage_errors():
    """What a user's words can cause. Anything else is a defect of ours, and shows its traceback."""
    if "ukjax._motion.diagnose.motion" not in sys.modules:
        return (UsageError,)
    from ._motion.diagnose.motion import SimulationError

    return (UsageError, SimulationError)


if __name__ == "__main__":
    sys.exit(main())
