"""``ukjax completion``: print the code that completes commands, options and names in a shell."""

import argparse
from typing import Any

from .._extras import extra_package
from .usage import library_errors_as_usage_errors, one_of

SHELLS = ("bash", "zsh", "fish", "powershell")


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "completion",
        help="print code that completes commands, options and names in a shell",
        description="Print code for a shell, which then completes commands, options, systems and files when the tab "
        "key is pressed. For bash or zsh, add this line to ~/.bashrc or ~/.zshrc: "
        'eval "$(ukjax completion bash)". For fish: ukjax completion fish > ~/.config/fish/completions/ukjax.fish. '
        "Needs the package argcomplete: pip install 'ukjax[completion]'.",
        allow_abbrev=False,
    )
    parser.add_argument("shell", **one_of(*SHELLS), help=", ".join(SHELLS))
    parser.set_defaults(call=print_completion)


def print_completion(options: argparse.Namespace) -> int:
    """Print the code for a shell. Returns exit code 0."""
    with library_errors_as_usage_errors():
        argcomplete = extra_package("argcomplete", "completion", "ukjax completion")
    print(argcomplete.shellcode(["ukjax"], shell=options.shell))
    return 0
