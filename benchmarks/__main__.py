"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named, and save their results.

``readme`` is not a benchmark: it writes the tables of README.md and docs/ from the saved results.
"""

import argparse
import importlib
import subprocess
import sys

from ukjax._command.bench import text_table

from .record import BUSY, save, surroundings

NAMES = (
    "accuracy",
    "gallery",
    "kernels",
    "gpu",
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
    "nonsmooth",
    "stiff",
    "long_motion",
    "robots",
    "verify",
    "plots",
)
LIMIT = 1800
"""Seconds for one benchmark of several. The slowest takes less than half of it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"from: {', '.join(NAMES)}, readme")
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in (*NAMES, "readme")]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)} and readme")
    names = options.names or NAMES
    if len(names) > 1:
        if failed := [name for name in names if not succeeds(name, ["--no-save"] if options.no_save else [])]:
            sys.exit(f"failed, with their earlier results kept: {', '.join(failed)}")
        return
    (name,) = names
    if name == "readme":
        print(f"wrote {importlib.import_module('benchmarks.readme').write()}")
        return
    where = surroundings()
    try:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        if (where["machine"]["load before"] or 0.0) > BUSY:
            print(
                f"warning: the load average is {where['machine']['load before']}; times will be too long",
                file=sys.stderr,
            )
        rows = module.run()
    except ModuleNotFoundError as error:
        sys.exit(f"{name} needs the package {error.name}: pip install -e '.[peers]'")
    print(text_table(rows))
    if not options.no_save and name != "plots":
        name = module.results_name() if name == "gpu" else name
        print(f"saved in {save(name, rows, where)}")


def succeeds(name: str, words: list[str]) -> bool:
    """Run one benchmark in a process of its own; ``False`` if it fails or does not end."""
    try:
        return subprocess.run([sys.executable, "-m", "benchmarks", name, *words], timeout=LIMIT).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"{name} did not end in {LIMIT} s", file=sys.stderr)
        return False


if __name__ == "__main__":
    main()
