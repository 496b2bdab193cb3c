"""Functions that usually run once: evaluated by NumPy, and compiled only if they are called repeatedly."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._jaxpr.tracing import is_traced, is_tracing
from .._run.compile import MAX_PROGRAMS, UNOPTIMISED, LRUCache, Program, Static, join
from .graph.graph import TooLarge
from .unroll.evaluator import evaluate
from .unsupported import Unsupported

EVALUATIONS = 2
"""Default number of calls that are evaluated by NumPy. XLA compiles a function in the time of about ten evaluations."""


def jit_if_repeated(function: Callable, evaluations: int = EVALUATIONS) -> Program:
    """``function`` of pytrees: NumPy evaluates the first ``evaluations`` calls, later ones are compiled.

    The compiled program is not optimised. It is for checks and decisions at a start or an end. The results of both
    differ by rounding, so do not use it for numbers that are returned to the user.
    """
    return RepeatedProgram(function, UNOPTIMISED, evaluations)


class RepeatedProgram(Program):
    """A ``Program`` whose first calls with arguments of the same structure are evaluated by NumPy."""

    def __init__(self, function: Callable, options: dict[str, Any], evaluations: int):
        super().__init__(function, options)
        self.evaluations = evaluations

    def of(self, static: Static, arrays: Sequence[Any]) -> Any:
        """Call the function with arguments that were split by ``split``."""
        shapes = tuple((x.shape, x.dtype) for x in arrays)
        evaluations = _evaluations.of((self, static, shapes), lambda: Evaluations(self.evaluations))
        if evaluations.remaining > 0 and _are_on_host(arrays) and evaluations.may_evaluate():
            try:
                return self._evaluated(static, arrays)
            except (TooLarge, Unsupported):
                evaluations.stop()
        return super().of(static, arrays)

    def _evaluated(self, static, arrays):
        traced = self._compiled(static, arrays).trace(*arrays)
        results = evaluate(traced.jaxpr, list(map(np.asarray, arrays)))
        tree = jax.tree.structure(traced.out_info)
        return join(tree.unflatten(jax.device_put(results)))


class Evaluations:
    """Counts the calls of a program that are evaluated by NumPy."""

    def __init__(self, count: int):
        self.remaining, self.lock = count, threading.Lock()

    def may_evaluate(self) -> bool:
        with self.lock:
            self.remaining -= 1
            return self.remaining >= 0

    def stop(self) -> None:
        """Let all further calls be compiled."""
        self.remaining = 0


_evaluations = LRUCache(MAX_PROGRAMS)


def _are_on_host(arrays):
    """Whether all arrays have values, on the default device, a CPU; and NaN is allowed."""
    if is_tracing() or any(map(is_traced, arrays)) or jax.default_backend() != "cpu":
        return False
    if jax.config.jax_debug_nans or jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    default = jax.config.jax_default_device or jax.devices()[0]  # pyright: ignore[reportAttributeAccessIssue]
    return all(x.devices() == {default} and not _is_key(x) for x in arrays if isinstance(x, jax.Array))


def _is_key(x):
    """Whether x are random keys, which NumPy does not have."""
    return jnp.issubdtype(x.dtype, jax.dtypes.extended)
