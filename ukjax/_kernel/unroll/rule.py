"""The table of rules: how the unroller evaluates each JAX primitive that a kernel can contain."""

from collections.abc import Callable, Sequence
from typing import Any

Rule = Callable[[Any, Any, list[Any]], Sequence[Any]]
"""``rule(unroller, equation, operands)``: the results of ``equation``, one equation of a jaxpr.

``unroller`` is the ``Unroller`` that evaluates it.
"""

RULES: dict[str, Rule] = {}


def rule(*primitives: str) -> Callable[[Rule], Rule]:
    """Decorator: register a rule under the names of its ``primitives``."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(primitives, function))
        return function

    return register
