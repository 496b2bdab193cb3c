"""Run problems at several settings: errors, steps and CPU time."""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from .._check import check_flag
from .._errors import InputError
from .base import AbstractProblem
from .catalogue import names as all_names
from .catalogue import problem


class Measured(NamedTuple):
    """A problem solved with one setting.

    Attributes
    ----------
    setting
        Options of the method, such as tolerances.
    error
        Largest error relative to the largest reference value.
    steps
        Number of integration steps, or None.
    seconds
        CPU time of the solution, without compilation [s].
    """

    setting: dict[str, Any]
    error: float
    steps: int | None
    seconds: float


class Verified(NamedTuple):
    """The result for one problem.

    Attributes
    ----------
    name, title
        The problem.
    digits
        Digits of the reference that are known: −log10 of its doubt.
    measured
        One entry per setting, from coarse to fine.
    derivative_error
        Error of the derivative with the finest setting; None if there is no reference derivative, or if it was not
        requested.
    seconds
        CPU time of everything, with compilation [s].
    passed
        Whether the errors with the finest setting are at most those that pass.
    """

    name: str
    title: str
    digits: int
    measured: tuple[Measured, ...]
    derivative_error: float | None
    seconds: float
    passed: bool


def run(names: str | Iterable[str] | None = None, *, finest: bool = False, derivatives: bool = True) -> list[Verified]:
    """Solve problems by ukjax, and compare with their references.

    Parameters
    ----------
    names
        A name, or names, of ``ukjax.verify.names()``. Default: all.
    finest
        Whether to solve with the finest setting only.
    derivatives
        Whether to compare derivatives, too.

    Returns
    -------
    list of Verified
        One entry per problem.

    Raises
    ------
    InputError
        If there is no problem of that name, or the arithmetic is not float64.
    """
    check_flag("finest", finest)
    check_flag("derivatives", derivatives)
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError("the references are for float64: call ukjax.enable_float64() first")
    chosen = all_names() if names is None else (names,) if isinstance(names, str) else tuple(names)
    return [verify(each, finest=finest, derivatives=derivatives) for each in [problem(name) for name in chosen]]


def verify(problem: AbstractProblem, *, finest: bool = False, derivatives: bool = True) -> Verified:
    """Solve one problem with its settings, and compare it with its reference. See ``run``."""
    began = time.process_time()
    model = problem.model()
    settings = problem.settings[-1 if finest else 0 :]
    _repeated(problem, model, settings[0], 1 + UNCOMPILED, MOST_SECONDS_UNCOMPILED)
    measured = tuple(_measure(problem, model, setting) for setting in settings)
    slope_error = problem.slope_error(problem.slope()) if derivatives and problem.derivative is not None else None
    return Verified(
        name=problem.name,
        title=problem.title,
        digits=int(np.floor(-np.log10(problem.doubt))),
        measured=measured,
        derivative_error=slope_error,
        seconds=time.process_time() - began,
        passed=measured[-1].error <= problem.passes and (slope_error or 0.0) <= problem.derivative_passes,
    )


MOST_SECONDS, MOST_REPETITIONS = 0.2, 6
"""A solution is repeated until the sum of the CPU times [s] or the number of repetitions reaches this limit."""

UNCOMPILED, MOST_SECONDS_UNCOMPILED = 5, 1.0
"""Number of calls in which some checks are evaluated without compiling them, and the same limit for these."""


def _measure(problem, model, setting):
    """Solve several times. The first call may compile; the time is the shortest of the others."""
    values, steps = problem.solve(model, setting)
    seconds = _repeated(problem, model, setting, MOST_REPETITIONS, MOST_SECONDS)
    return Measured(setting, problem.error(np.asarray(values)), None if steps is None else int(steps), min(seconds))


def _repeated(problem, model, setting, repetitions, most):
    """CPU times [s] of repeated solutions."""
    seconds = []
    while not seconds or sum(seconds[1:]) < most and len(seconds) < repetitions:
        began = time.process_time()
        jax.block_until_ready(problem.solve(model, setting))
        seconds.append(time.process_time() - began)
    return seconds
