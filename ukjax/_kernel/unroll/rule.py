"""The table of rules: for every primitive of JAX that a kernel can contain, how results follow from operands."""

from collections.abc import Callable, Sequence
from typing import Any

Rule = Callable[[Any, Any, list[Any]], Sequence[Any]]
"""``rule(unroller, equation, operands)``: the results of ``equation``, one line of a jaxpr, as ``unroller`` (see there)
comes to it."""

RULES: dict[str, Rule] = {}


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Enters the function that it decorates into the table, under the names of its ``primitives``."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        return function

    return enter
