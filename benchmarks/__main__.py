"""``python -m benchmarks [NAME ...]``: all, or those named."""

import argparse
import importlib
import subprocess
import sys

from ukjax._command.bench import text_table

from .record import keep

NAMES = (
    "accuracy",
    "drift",
    "first_result",
    "constrained_step",
    "acceleration",
    "rollouts",
    "ensemble",
    "adaptive",
    "gradient",
    "adjoints",
    "batch_size",
    "scaling",
    "bodies",
    "identification",
    "tuning",
    "robots",
    "plots",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"from: {', '.join(NAMES)}")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    names = options.names or NAMES
    if len(names) > 1:  # each in a process of its own, as if it had been asked for alone
        for name in names:
            command = [sys.executable, "-m", "benchmarks", name, *(["--no-save"] if options.no_save else [])]
            subprocess.run(command, check=True)
        return
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        rows = module.run()
        print(text_table(rows))
        if not options.no_save and name != "plots":
            print(f"kept in {keep(name, rows)}")


if __name__ == "__main__":
    main()
