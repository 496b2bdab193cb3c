"""The command line, ``ukjax`` or ``python -m ukjax``: parse the arguments, call the library, print the result."""

import argparse
import atexit
import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

from . import __version__
from ._command import COMMANDS, UsageError
from ._command.interrupt import interrupt_guard
from ._errors import SimulationError
from ._names import closest, did_you_mean_one_of

FIRST_STEPS = """\
ukjax simulates constrained mechanical systems. Start with:

  ukjax list               the systems of the gallery and the robots
  ukjax view four_bar      a linkage moving, in the browser
  ukjax run scara --plot   simulate a robot, print a summary, draw its motion
  ukjax check leg          tree, loops and degrees of freedom of a robot
  ukjax --help             all commands; ukjax COMMAND --help has the options of one

In Python: import ukjax as uk
"""


class _Parser(argparse.ArgumentParser):
    """Argument parser that reports bad usage in one line on standard error, with exit code 2.

    An unknown command or option is reported with the most similar known one.
    """

    def __init__(self, *arguments: Any, **keywords: Any):
        self.names: list[str] = []
        self.commands: tuple[str, ...] = ()
        super().__init__(*arguments, **keywords)

    def add_argument(self, *names: Any, **keywords: Any) -> argparse.Action:
        self.names += names
        return super().add_argument(*names, **keywords)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        if self.commands and args and not args[0].startswith("-") and args[0] not in self.commands:
            self.error(f"there is no command {args[0]!r}{did_you_mean_one_of(args[0], self.commands)}")
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            match = closest(name, self.names) if name.startswith("-") else None
            self.error(f"unrecognized arguments: {' '.join(unknown)}{f'; did you mean {match!r}?' if match else ''}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> _Parser:
    """Return the parser of all sub-commands and their options."""
    top = _Parser(prog="ukjax", description="Constrained mechanical systems by the Udwadia–Kalaba equation.")
    top.add_argument("--version", action="version", version=f"ukjax {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command", parser_class=_Parser)

    for command in COMMANDS:
        command.add_to(commands)
    top.commands = tuple(commands.choices)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code.

    The code is 0 after success, 1 if a motion failed, 2 for bad usage or a file that cannot be written, 130 after
    Ctrl-C, and 141 if the reader of standard output closed it (broken pipe).
    """
    name = "ukjax"
    print_error = lambda message: print(f"{name}: {' '.join(str(message).split())}", file=sys.stderr, flush=True)
    # Programs that contain equinox's runtime checks are not stored in the compilation cache. ukjax checks the results.
    os.environ.setdefault("EQX_ON_ERROR", "off")
    show_warning, warnings.showwarning = warnings.showwarning, lambda message, *_: print_error(message)
    with _few_garbage_collections(), interrupt_guard(lambda: print_error("interrupted")) as interrupts:
        try:
            try:
                words = sys.argv[1:] if arguments is None else arguments
                top = parser()
                if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
                    import argcomplete

                    argcomplete.autocomplete(top)
                if not words:
                    print(FIRST_STEPS, end="")
                    return 0
                options = top.parse_args(words)
                name = f"ukjax {options.command}"
                return options.call(options)
            finally:
                warnings.showwarning = show_warning
                sys.stdout.flush()
        except BaseException as error:
            if interrupts.received or isinstance(error, KeyboardInterrupt):
                print_error("interrupted")
                atexit.register(os._exit, 130)  # do not wait for threads that still run
                return 130
            if isinstance(error, UsageError | SimulationError):
                print_error(error)
                return 1 if isinstance(error, RuntimeError) else 2
            if isinstance(error, OSError):
                return _report_write_error(error, print_error)
            raise


@contextlib.contextmanager
def _few_garbage_collections() -> Iterator[None]:
    """Collect garbage less often. Imports and traces create many objects, most of which stay, and with Python's
    default the collections take a twelfth of the start-up time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(50_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _report_write_error(error, print_error):
    """Report a file or standard output that cannot be written in one line, and return the exit code.

    A broken pipe is not reported.
    """
    if error.filename is not None:
        print_error(f"{error.filename!r} cannot be written: {error.strerror}")
        return 2
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), sys.stdout.fileno())  # otherwise the interpreter flushes the buffer again at exit
    if isinstance(error, BrokenPipeError):
        return 141
    print_error(f"the output cannot be written: {error.strerror or error}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
