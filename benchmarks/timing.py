"""Time that waits for the result, with compilation apart."""

import statistics
import time
from collections.abc import Callable

import jax


def measure(function: Callable, *arguments, repeats: int = 9) -> tuple[float, float]:
    """Seconds of the first call less a later one (compilation), and the median seconds of ``repeats`` later calls."""

    def once() -> float:
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        return time.perf_counter() - began

    first = once()
    median = statistics.median(once() for _ in range(repeats))
    return max(first - median, 0.0), median
