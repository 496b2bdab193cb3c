"""``ukjax verify``: solve problems with known answers, and print errors, steps and times."""

import argparse
import json
import textwrap
from typing import Any

from .usage import library_errors_as_usage_errors


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "verify",
        help="solve published problems, and compare with their reference numbers",
        description="Solve problems with known answers at several tolerances. Without NAME: all of them, one line "
        "each. With NAME: the statement of the problem, its reference, and one line per tolerance.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    option("name", nargs="?", metavar="NAME", help="name of a problem")
    option("--list", action="store_true", help="print names and titles only")
    option("--json", action="store_true", help="print JSON")
    parser.set_defaults(call=verify_problems)


def verify_problems(options: argparse.Namespace) -> int:
    """Solve the problems and print the results. Returns 0 if all pass, else 1."""
    from .. import _precision
    from ..verify.catalogue import names, problem
    from ..verify.measure import verify

    _precision.enable_float64()
    with library_errors_as_usage_errors():
        chosen = [problem(name) for name in ([options.name] if options.name else names())]
    if options.list:
        titles = {each.name: each.title for each in chosen}
        print(json.dumps(titles, indent=1) if options.json else "\n".join(f"{n:20}{t}" for n, t in titles.items()))
        return 0
    results, alone = [], options.name is not None
    if not options.json:
        print(_statement(chosen[0]) if alone else HEADER, flush=True)
    for each in chosen:
        results.append(verify(each))
        if not options.json:
            print("\n".join(_rows(results[-1])) if alone else _line(results[-1]), flush=True)
    failed = [result.name for result in results if not result.passed]
    if options.json:
        print(json.dumps({"problems": [_as_json(*pair) for pair in zip(chosen, results, strict=True)]}, indent=1))
    elif not alone:
        print(f"{len(results) - len(failed)} of {len(results)} pass, {sum(r.seconds for r in results):.0f} s")
    return 1 if failed else 0


HEADER = f"{'problem':20}{'digits':>7}{'error':>10}{'derivative':>12}{'steps':>8}{'ms':>10}{'s in all':>10}"
"""The columns: known digits of the reference; error, error of the derivative, steps and CPU time of the solution with
the finest setting; CPU time of everything with compilation."""


def _line(result):
    best = result.measured[-1]
    derivative = "" if result.derivative_error is None else f"{result.derivative_error:.1e}"
    steps = "" if best.steps is None else best.steps
    return (
        f"{result.name:20}{result.digits:7}{best.error:10.1e}{derivative:>12}{steps:>8}{1e3 * best.seconds:10.2f}"
        f"{result.seconds:10.1f}  {'passes' if result.passed else 'FAILS'}"
    )


def _statement(problem):
    fill = lambda text: textwrap.fill(" ".join(text.split()), 100)
    blocks = [
        f"{problem.name}: {problem.title}",
        *map(str.rstrip, (problem.statement or "").strip().split("\n\n")),
        fill("Parameters: " + ", ".join(f"{name} = {value:.10g}" for name, value in problem.parameters.items())),
        fill(f"Source: {problem.source}."),
        fill(f"Reference: {problem.evidence}. Largest error {problem.doubt:.0e}, relative to the largest value."),
        "\n".join(f"  {x:22.16g}  {what}" for x, what in zip(problem.reference, problem.compared, strict=True)),
    ]
    if problem.derivative is not None:
        values = ", ".join(f"{x:.16g}" for x in problem.derivative.values)
        blocks.append(fill(f"Derivative with respect to {problem.derivative.parameter}: {values}"))
    return "\n\n".join(blocks) + "\n"


def _rows(result):
    yield f"{'setting':32}{'error':>10}{'steps':>8}{'ms':>10}"
    for each in result.measured:
        setting = ", ".join(f"{name} = {value:g}" for name, value in each.setting.items())
        yield f"{setting:32}{each.error:10.1e}{'' if each.steps is None else each.steps:>8}{1e3 * each.seconds:10.2f}"
    if result.derivative_error is not None:
        yield f"{'derivative':32}{result.derivative_error:10.1e}"
    yield "passes" if result.passed else "FAILS"


def _as_json(problem, result):
    return {
        "name": result.name,
        "title": result.title,
        "source": problem.source,
        "parameters": {name: float(value) for name, value in problem.parameters.items()},
        "compared": list(problem.compared),
        "reference": list(problem.reference),
        "doubt": problem.doubt,
        "evidence": problem.evidence,
        "measured": [each._asdict() for each in result.measured],
        "derivative": None if problem.derivative is None else problem.derivative._asdict(),
        "derivative_error": result.derivative_error,
        "seconds": result.seconds,
        "passed": result.passed,
    }
