"""Times of several compared programs, measured in turn, so that a busy machine slows all of them."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Measured(NamedTuple):
    """The shortest CPU time of a call [s], summed over all threads, and the result of the first call."""

    seconds: float
    result: Any


def measured(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Measured]:
    """Measure the calls in ``rounds``; each round makes all calls once.

    Each is called once before the first round, for compilation. Other processes do not add to the CPU time of this one,
    but they use its caches. So ratios of the results are more reliable than the results.
    """
    results = {name: jax.block_until_ready(call()) for name, call in calls.items()}
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time()
            jax.block_until_ready(call())
            least[name] = min(least[name], time.process_time() - began)
    return {name: Measured(least[name], results[name]) for name in calls}
