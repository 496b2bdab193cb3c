"""What to go on with where the usual method was not enough: without the redundant rows, or by the method asked for.

Which rows of a mechanism are redundant hardly ever changes. So they are found once, by NumPy, and left out of a program
that is as quick as any other; it goes on measuring them, and a row that is left out and yet not kept is as unusual as
rows that are no longer independent. Then the question is asked anew.
"""

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..._check_terms import check_terms, complaint_of_mass
from ..._constraint import names_of
from ..._labels import direction_names
from ..._run.chunks import in_chunks
from ..._run.compile import Program, jit_unoptimised
from ..._run.threads import interruptibly
from ..._solve import AbstractMethod, FastPath, RuntimeRows, doubtful, independent_rows, is_nearly_singular, row_limits
from ..._system import AbstractSystem, dynamics_of, structure_of
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import REFUSED, UNUSUAL
from ..stepper.drift_correction import MethodPerLevel, same_at_every_level
from ..stepper.limits import MIN_ROWS_TO_CHECK, is_kernel, is_single_kernel
from .nearly_dependent import warn_of_nearly_dependent
from .row_noise import classify_rows, mass_and_rows, smallest_row_of, without_noise_rows
from .sparsity import forget_band

MOST = 8
"""How often it is decided anew before the method asked for does the rest."""

WATCHED = 1 / 3
"""Rows that are dependent but for eps^WATCHED (6e-6 in float64) may show that a singular pose is near."""


def initial_method(problem: Problem, runtime_rows: bool) -> AbstractMethod | MethodPerLevel:
    """What to begin with, and to go on with where going along a band did not do. ``runtime_rows``, the next attempt is the
    same program: which rows count, and whether M is singular, are numbers given to it; otherwise they are part of it,
    and cost nothing when it runs."""
    if problem.along is not None:
        return problem.along
    usual = problem.method.usual()
    if not isinstance(usual, FastPath):
        return problem.method
    if runtime_rows:
        return same_at_every_level(
            replace(usual, runtime_rows=RuntimeRows.of(0.0, None, problem.ts.dtype, usual.least, usual.rtol))
        )
    least, rtol = row_limits(usual, problem.ts.dtype)
    return same_at_every_level(replace(usual, assumes=True, least=least, rtol=rtol))


def initial_method_for_one(
    problem: Problem, rows: int, t: Array | np.ndarray, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> AbstractMethod | MethodPerLevel:
    """What to begin with for one motion: the first attempt, but where there are many ``rows``, or so many that
    independent ones would let nothing move, which of them count is asked at once. Raises ``ValueError`` as
    ``next_method``."""
    runtime_rows = not is_single_kernel(problem.method, v.size, rows)
    method = initial_method(problem, runtime_rows)
    if rows < min(v.size, MIN_ROWS_TO_CHECK) or not isinstance(method, MethodPerLevel):
        return method
    found = next_method(problem, method, t, q, v, runtime_rows=runtime_rows)
    return found if isinstance(found, MethodPerLevel) else method


def with_tight_limits(method: AbstractMethod | MethodPerLevel) -> AbstractMethod | MethodPerLevel:
    """The same method in the same program, to which rows that are nearly dependent are unusual, too."""
    usual = method.acceleration if isinstance(method, MethodPerLevel) else None
    if not isinstance(usual, FastPath):
        return method
    limits = usual if usual.runtime_rows is None else usual.runtime_rows
    if not isinstance(limits.least, np.ndarray) or not isinstance(limits.rtol, np.ndarray):
        return method
    limit = np.asarray(float(np.finfo(limits.least.dtype).eps) ** WATCHED, limits.least.dtype)
    least, rtol = (np.asarray(np.maximum(x, limit)) for x in (limits.least, limits.rtol))
    if usual.runtime_rows is None:
        assert isinstance(method, MethodPerLevel)
        return MethodPerLevel(*(replace(each, least=least, rtol=rtol) for each in _each(method)))
    return same_at_every_level(replace(usual, runtime_rows=usual.runtime_rows._replace(least=least, rtol=rtol)))


def active_rows(method: AbstractMethod | MethodPerLevel, rows: int) -> tuple[int, ...] | None:
    """Which of so many rows a method takes for independent; None for all."""
    return _kept(method.acceleration, rows) if isinstance(method, MethodPerLevel) else None


def next_method(
    problem: Problem,
    tried: AbstractMethod | MethodPerLevel,
    t: Array | np.ndarray,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    who: str = "",
    runtime_rows: bool = False,
) -> AbstractMethod | MethodPerLevel:
    """What to go on with at (t, q, v), where what was tried met something unusual; ``who`` is which of a batch,
    ``runtime_rows`` as for the first attempt.

    Raises ``ValueError`` if that is a mass matrix that is none, or terms that are not finite, and that at the start:
    later such a motion ends there, by the method asked for.
    """
    if tried.has_fallback and not isinstance(tried, MethodPerLevel):
        forget_band(problem.model, t, q, v)
        return initial_method(replace(problem, along=None), runtime_rows)
    model, starts = problem.model, float(t) == float(np.asarray(problem.ts)[0])
    where = f"{who} at t = {float(t):g} s"
    otherwise = lambda: without_noise_rows(problem.method, model, t, q, v)
    if not isinstance(tried, MethodPerLevel) or not isinstance(model, AbstractSystem) or not problem.projection:
        if starts:
            terms = _terms(model, t, q, v)
            check_terms(terms, where, direction_names(model))
            warn_of_nearly_dependent(mass_and_rows, problem, terms.M, terms.A, t, q, v, where)
        return otherwise()
    M, rows = _mass_and_rows(model, t, q, v)
    M = np.asarray(M)
    wrong = bool(complaint_of_mass(M))
    A = [] if wrong else classify_rows(_mass_and_rows, model, t, q, v, M, rows)
    if wrong or not all(np.all(np.isfinite(x)) for x in (M, *(each.rows for each in A))):
        if starts:
            check_terms(_terms(model, t, q, v), where, direction_names(model))
        return problem.method
    M, usual = (M + M.T) / 2, tried.acceleration
    assert isinstance(usual, FastPath)
    dtype, before = q.dtype, _weight(usual)
    weight = before or (
        float(np.mean(np.diagonal(M))) if is_nearly_singular(M) else 0.0
    )  # rows in units like those of M's entries
    _tell_of_untold(model, A[0], t, q, v, starts)
    rtol = 10 * (float(np.finfo(dtype).eps) ** 0.5 if usual.rtol is None else float(usual.rtol))
    kept = [independent_rows(M, each.rows, rtol) for each in A]
    if any(each is None for each in kept) or not _watched(model, t, q, v, kept[0]):
        return otherwise()
    if starts:
        warn_of_nearly_dependent(_mass_and_rows, problem, M, A[0].rows, t, q, v, where)
    sizes = [len(each.rows) for each in A] * (3 if len(A) == 1 else 1)
    kept = [*kept] * (3 if len(A) == 1 else 1)
    kept = [None if each is None or len(each) == size else each for each, size in zip(kept, sizes, strict=True)]
    least = smallest_row_of(A, dtype)
    lower = least is not None and least < _least(usual, dtype)
    if (
        not lower
        and weight == before
        and kept == [_kept(each, size) for each, size in zip(_each(tried), sizes, strict=True)]
    ):
        if usual.assumes:  # nothing is wrong with the rows: it was a choice
            return MethodPerLevel(*(replace(each, assumes=False) for each in _each(tried)))
        return otherwise()
    usual = _with_least(usual, least, dtype) if lower else usual
    by = {rows: _with(usual, weight, rows, dtype) for rows in dict.fromkeys(kept)}
    return MethodPerLevel(*(by[rows] for rows in kept))


def _with(usual, weight, kept, dtype):
    """The usual method with the rows that are ``kept`` and the weight of them beside M."""
    if usual.runtime_rows is not None:
        return replace(usual, runtime_rows=RuntimeRows.of(weight, kept, dtype, usual.runtime_rows.least, usual.rtol))
    return replace(usual, assumes=True, weight=weight or None, kept=kept)


def _with_least(usual, least, dtype):
    """The usual method that takes rows of more than ``least`` of the largest for rows."""
    if usual.runtime_rows is None:
        return replace(usual, least=np.asarray(least, dtype))
    return replace(usual, runtime_rows=usual.runtime_rows._replace(least=np.asarray(least, dtype)))


def _weight(usual):
    return float(usual.weight or 0.0) if usual.runtime_rows is None else float(usual.runtime_rows.weight)


def _least(usual, dtype):
    if usual.runtime_rows is not None:
        return float(usual.runtime_rows.least)
    return doubtful(dtype) if usual.least is None else float(usual.least)


def _tell_of_untold(system, judged, t, q, v, starts):
    """Rows that are no more than rounding of others, and yet what they say does not come from rounding: a mistake of
    units at the start, or a row that fades away."""
    if not np.any(judged.untold):
        return
    at = jax.device_put(t), q, v
    labels = names_of(structure_of(system), lambda c: c.rows(*at)[1])
    which = ", ".join(repr(label) for label, left in zip(labels, judged.untold, strict=True) if left)
    if starts:
        raise ValueError(
            f"constraint {which} cannot be told from rounding at t = {float(t):g} s: its row is that small beside the "
            "others. Write it in a unit in which it is of their size, or leave it out"
        )
    warnings.warn(
        f"constraint {which} is left out at t = {float(t):g} s: beside the others its row has become so small that it "
        "cannot be told from rounding",
        stacklevel=2,
    )


def _kept(usual, rows):
    """The rows that it keeps, of so many; None for all."""
    if usual.runtime_rows is None:
        return usual.kept
    count = int(usual.runtime_rows.count)
    return None if count >= rows else tuple(sorted(np.asarray(usual.runtime_rows.order)[:count].tolist()))


def in_words(method: AbstractMethod | MethodPerLevel) -> str:
    """The method, and which rows it leaves out, for a note in a plan."""
    if not isinstance(method, MethodPerLevel):
        return f"solved by {type(method).__name__}"
    fast = method.acceleration
    assert isinstance(fast, FastPath)
    if fast.runtime_rows is None:
        kept = "all rows" if fast.kept is None else f"{len(fast.kept)} independent rows"
    else:
        kept = f"at most {int(fast.runtime_rows.count)} independent rows"
    regular = " and a singular mass matrix made regular by the rows" if _weight(fast) else ""
    return f"solved by {type(fast).__name__} with {kept}{regular}"


def solve_batch(program: Program, problem: Problem, start: InitialState, plan: Plan) -> Solution:
    """Integrate a batch by ``program``: a kernel does all members at once, other programs do them in chunks."""
    if is_kernel(problem.method):
        run = lambda problem, start: interruptibly(program, start, problem)
    else:
        entries = start.v.shape[1] if problem.method.is_sparse else 1
        run = lambda problem, start: in_chunks(program, start, problem, entries=entries)
    return solve_every_member(run, problem, start, plan)


def solve_every_member(
    run: Callable[..., Solution],
    problem: Problem,
    start: InitialState,
    plan: Plan,
    refuse: bool = True,
    again: int | None = None,
) -> Solution:
    """What ``run(request, start)`` gives of a batch, by as many methods as it takes; what one member needs changes
    nothing for the others. A member whose terms make no sense at its start is a ``ValueError``, or, without
    ``refuse``, has the result ``REFUSED``. Members that need another method are done ``again`` so many at a time, which
    is one program for any number of them; or at once, in one of a few."""
    method = initial_method(problem, runtime_rows=False)
    with contextlib.nullcontext() if refuse else contextlib.suppress(ValueError):
        method = initial_method_at(problem, start)
    samples = run(replace(problem, attempt=method), start)
    for decided in range(MOST + 1):
        needs_fallback = np.flatnonzero(np.asarray(samples.result) == UNUSUAL)
        refused = []
        for first in needs_fallback:
            try:
                method = problem.method if decided == MOST else next_method_of(problem, method, start, first)
                break
            except ValueError:
                if refuse:
                    raise
                refused.append(first)
        if refused:
            samples = samples._replace(result=samples.result.at[np.array(refused)].set(REFUSED))
            needs_fallback = needs_fallback[len(refused) :]
        if not needs_fallback.size:
            break
        which = "member" if needs_fallback.size == 1 else f"{needs_fallback.size} members, first"
        plan.note(f"{which} {needs_fallback[0]}: {in_words(method)}")
        for part in np.split(needs_fallback, range(again, needs_fallback.size, again)) if again else [needs_fallback]:
            # As many as a power of two, so that another number of them is the same program.
            size = again or 2 ** int(np.ceil(np.log2(part.size)))
            filled = np.pad(part, (0, size - part.size), mode="edge")
            found = run(replace(problem, attempt=method), jax.tree.map(lambda x, at=filled: x[at], start))
            samples = jax.tree.map(lambda x, y, at=part: x.at[at].set(y[: at.size]), samples, found)
    return samples


def initial_method_at(problem: Problem, start: InitialState) -> AbstractMethod | MethodPerLevel:
    """What to begin with for a batch, by its first member; or for one motion, as part of its program."""
    method = initial_method(problem, runtime_rows=False)
    if isinstance(method, MethodPerLevel) and _must_be_redundant(problem, start):
        return next_method_of(problem, method, start, 0)
    return method


def next_method_of(problem, method, start, member):
    """``next_method`` for one of a batch, or for a motion alone."""
    numbers, q, v = start.numbers, start.q, start.v
    alone = q.ndim == 1
    if not alone:
        numbers, q, v = jax.device_put(jax.tree.map(lambda x: np.asarray(x)[member], (numbers, q, v)))
    problem = replace(problem, model=problem.model_of(numbers))
    return next_method(problem, method, problem.ts[0], q, v, "" if alone else f" for trajectory {member}")


def _must_be_redundant(problem, start):
    """Whether there are so many rows that independent ones would let nothing move."""
    if not isinstance(problem.model, AbstractSystem):
        return False
    of_one = lambda x, axes: jax.ShapeDtypeStruct(x.shape[x.ndim - axes :], x.dtype)
    state = of_one(problem.ts, 0), of_one(start.q, 1), of_one(start.v, 1)
    A = eqx.filter_eval_shape(problem.model.passive, *state).A
    return A.shape[0] >= A.shape[1]


def _each(levels):
    return levels.acceleration, levels.position, levels.velocity


def _watched(system, t, q, v, kept):
    """Whether every row of the acceleration that is left out says something of positions or velocities, too."""
    if not any(constraint.level == "acceleration" for constraint in system.constraints):
        return True
    first = 0
    for constraint in structure_of(system):
        rows = range(first, first + eqx.filter_eval_shape(constraint.rows, t, q, v)[1].shape[0])
        first = rows.stop
        if constraint.level == "acceleration" and not set(rows) <= set(kept):
            return False
    return True


@jit_unoptimised
def _terms(model, t, q, v):
    return model(t, q, v)


@jit_unoptimised
def _mass_and_rows(system, t, q, v):
    """M; and A of accelerations, ∂φ/∂q and ∂(φ̇, ψ)/∂v, one for all where they are the same."""
    M, positions = dynamics_of(system).mass(t, q, v), system.position_slope(t, q, v)
    if system.control is None and all(constraint.level == "position" for constraint in system.held):
        return M, [positions]
    velocities = system.velocity_slope(t, q, v)
    return M, [system.passive(t, q, v).A, positions, velocities]
