"""Fallback policy: the solver to use where the fast path did not apply.

Which rows of a mechanism are redundant hardly ever changes. So redundant rows are determined once, by NumPy, and
dropped from the compiled program, which is then as fast as any other. The program still evaluates these rows: a dropped
row that is violated triggers a fallback, as do rows that become dependent. Then the rows are chosen again.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..._check_terms import check_terms, complaint_of_mass
from ..._constraint import names_of
from ..._errors import InputError
from ..._jaxpr.tracing import is_concrete, without_derivatives
from ..._kernel.if_repeated import jit_if_repeated
from ..._labels import direction_names
from ..._outside import ByIdentity
from ..._run.chunks import in_chunks
from ..._run.compile import MAX_PROGRAMS, LRUCache, Program, split
from ..._run.threads import run_interruptibly
from ..._solve import AbstractMethod, FastPath, RuntimeRows, doubtful, independent_rows, is_nearly_singular, row_limits
from ..._system import AbstractSystem, dynamics_of, structure_of
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import NEEDS_FALLBACK, REFUSED
from ..stepper.drift_correction import MethodPerLevel, same_at_every_level
from ..stepper.limits import MIN_ROWS_TO_CHECK, is_kernel, is_single_kernel
from .nearly_dependent import warn_of_nearly_dependent
from .row_noise import classify_rows, mass_and_rows, smallest_row_of, without_noise_rows
from .sparsity import forget_band

MAX_METHOD_CHANGES = 8
"""Largest number of times that rows are chosen again, before the requested method is used for the rest."""

MAX_METHODS = 3
"""Largest number of methods that are compiled and tried for a derivative, before the requested one is used."""

NEARLY_DEPENDENT_POWER = 1 / 3
"""Rows that are dependent within eps to this power (6e-6 in float64) may indicate a singular pose nearby."""


_variants = LRUCache(64)
"""Recent methods with other rows or limits. To make one takes as long as ten steps of a small motion."""


def initial_method(problem: Problem, runtime_rows: bool) -> AbstractMethod | MethodPerLevel:
    """Solver to start with, also after a band turned out to be wrong.

    With ``runtime_rows`` the active rows, and whether M is singular, are inputs of the program, so that the next method
    reuses it. Otherwise they are compiled in, and cost nothing at run time.
    """
    if problem.band is not None:
        return problem.band
    try:
        return _initial(problem.method, problem.ts.dtype, runtime_rows)
    except TypeError:  # a method with arrays is not hashable
        return _initial.__wrapped__(problem.method, problem.ts.dtype, runtime_rows)


@functools.lru_cache(maxsize=64)
def _initial(method, dtype, runtime_rows):
    fast_path = method.fast_path()
    if not isinstance(fast_path, FastPath):
        return method
    if runtime_rows:
        rows = RuntimeRows.of(0.0, None, dtype, fast_path.least, fast_path.rtol)
        return same_at_every_level(replace(fast_path, runtime_rows=rows))
    least, rtol = row_limits(fast_path, dtype)
    return same_at_every_level(replace(fast_path, assumes=True, least=least, rtol=rtol))


def initial_method_for_one(
    problem: Problem, rows: int, t: Array | np.ndarray, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> AbstractMethod | MethodPerLevel:
    """Solver to start with for one motion.

    It is ``initial_method``; but the active rows are determined at once if there are many rows, or at least as many as
    degrees of freedom. With fewer rows, the first motion of models of one structure decides whether they are determined
    for the others, too. The check takes a small fraction of the time to compile a method that is not applicable.
    Raises ``InputError`` as ``next_method``.
    """
    runtime_rows = not is_single_kernel(problem.method, v.size, rows)
    method = initial_method(problem, runtime_rows)
    if not isinstance(method, MethodPerLevel):
        return method
    is_few = rows < min(v.size, MIN_ROWS_TO_CHECK)
    if is_few and (rows < 2 or runtime_rows):  # one row is not redundant; a program for any rows is not compiled twice
        return method
    few_rows = _few_rows(problem) if is_few else FewRows()
    if not few_rows.checked:
        return method
    chosen = next_method(problem, method, t, q, v, runtime_rows=runtime_rows)
    # If all rows are independent, ``next_method`` returns the method without ``assumes``, which is for a failed one.
    few_rows.checked = isinstance(chosen, MethodPerLevel) and (
        runtime_rows or getattr(chosen.acceleration, "assumes", True)
    )
    return chosen if few_rows.checked else method


@dataclass
class FewRows:
    """Whether the active rows of a model with few rows are determined before a motion."""

    checked: bool = True


def _few_rows(problem):
    """The record of models of this structure."""
    static, arrays = split(problem.model)
    if not static.is_hashable():
        return FewRows()
    return _few_rows_of.of((static, tuple(x.shape for x in arrays), problem.projection), FewRows)


_few_rows_of = LRUCache(MAX_PROGRAMS)


def nearly_dependent_limit(dtype: np.dtype) -> float:
    """Limit below which a pose is near a singular one, for ``with_limit``."""
    return float(np.finfo(dtype).eps) ** NEARLY_DEPENDENT_POWER


def with_limit(method: AbstractMethod | MethodPerLevel, limit: float) -> AbstractMethod | MethodPerLevel:
    """The same method in the same program, which also requests a fallback for rows dependent within ``limit``."""
    fast_path = method.acceleration if isinstance(method, MethodPerLevel) else None
    if not isinstance(fast_path, FastPath):
        return method
    limits = fast_path if fast_path.runtime_rows is None else fast_path.runtime_rows
    if not isinstance(limits.least, np.ndarray) or not isinstance(limits.rtol, np.ndarray):
        return method
    at_least = np.asarray(limit, limits.least.dtype)
    least, rtol = (np.asarray(np.maximum(x, at_least)) for x in (limits.least, limits.rtol))
    if fast_path.runtime_rows is None:
        assert isinstance(method, MethodPerLevel)
        limited = lambda level: _variants.of((ByIdentity(level), limit), lambda: replace(level, least=least, rtol=rtol))
        return MethodPerLevel(*map(limited, _levels(method)))
    return same_at_every_level(replace(fast_path, runtime_rows=fast_path.runtime_rows._replace(least=least, rtol=rtol)))


def active_rows(method: AbstractMethod | MethodPerLevel, rows: int) -> tuple[int, ...] | None:
    """Indices of the rows, out of ``rows`` of them, that a method treats as independent; None for all."""
    return _active(method.acceleration, rows) if isinstance(method, MethodPerLevel) else None


def next_method(
    problem: Problem,
    tried: AbstractMethod | MethodPerLevel,
    t: Array | np.ndarray,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    who: str = "",
    runtime_rows: bool = False,
) -> AbstractMethod | MethodPerLevel:
    """Solver to continue with at (t, q, v), after ``tried`` requested a fallback there.

    ``who`` names the member of a batch in messages; ``runtime_rows`` is as for ``initial_method``.

    Raises ``InputError`` if the mass matrix is invalid, or terms are not finite, at the start of the motion. Later such
    a motion ends there, by the requested method.
    """
    if tried.has_fallback and not isinstance(tried, MethodPerLevel):
        forget_band(problem.model, t, q, v)
        return initial_method(replace(problem, band=None), runtime_rows)
    model, at_start = problem.model, float(t) in np.asarray(problem.ts)[:1]
    where = f"{who} at t = {float(t):g} s"
    requested_method = lambda: without_noise_rows(problem.method, model, t, q, v)
    if not isinstance(tried, MethodPerLevel) or not isinstance(model, AbstractSystem) or not problem.projection:
        if at_start:
            terms = _terms(model, t, q, v)
            check_terms(terms, where, direction_names(model))
            warn_of_nearly_dependent(mass_and_rows, problem, terms.M, terms.A, t, q, v, where)
        return requested_method()
    M, rows = _mass_and_rows(model, t, q, v)
    M = np.asarray(M)
    invalid_mass = bool(complaint_of_mass(M))
    A = [] if invalid_mass else classify_rows(_mass_and_rows, model, t, q, v, M, rows)
    if invalid_mass or not all(np.all(np.isfinite(x)) for x in (M, *(level.rows for level in A))):
        if at_start:
            check_terms(_terms(model, t, q, v), where, direction_names(model))
        return problem.method
    M, fast_path = (M + M.T) / 2, tried.acceleration
    assert isinstance(fast_path, FastPath)
    dtype, old_weight = q.dtype, _weight(fast_path)
    weight = old_weight or float(is_nearly_singular(M))
    _report_undecided_rows(model, A[0], t, q, v, at_start)
    rtol = 10 * (float(np.finfo(dtype).eps) ** 0.5 if fast_path.rtol is None else float(fast_path.rtol))
    active = [independent_rows(M, level.rows, rtol) for level in A]
    if any(level is None for level in active):
        return requested_method()
    if len(A) > 1 and not _dropped_rows_are_checked(model, t, q, v, active[0]):  # otherwise all are rows of positions
        return requested_method()
    if at_start:
        warn_of_nearly_dependent(_mass_and_rows, problem, M, A[0].rows, t, q, v, where)
    sizes = [len(level.rows) for level in A] * (3 if len(A) == 1 else 1)
    active = [*active] * (3 if len(A) == 1 else 1)
    active = [None if level is None or len(level) == size else level for level, size in zip(active, sizes, strict=True)]
    least = smallest_row_of(A, dtype)
    lower_limit = least is not None and least < _least(fast_path, dtype)
    if (
        not lower_limit
        and weight == old_weight
        and active == [_active(level, size) for level, size in zip(_levels(tried), sizes, strict=True)]
    ):
        if fast_path.assumes:  # the rows are fine: an assumed branch failed
            return MethodPerLevel(*(replace(level, assumes=False) for level in _levels(tried)))
        return requested_method()
    fast_path = _with_least(fast_path, least, dtype) if lower_limit else fast_path
    method_of = {rows: _with_rows(fast_path, weight, rows, dtype) for rows in dict.fromkeys(active)}
    return MethodPerLevel(*(method_of[rows] for rows in active))


def _with_rows(fast_path, weight, active, dtype):
    """The fast path with these active rows, weighted by ``weight`` when added to M."""
    if fast_path.runtime_rows is not None:
        return replace(
            fast_path, runtime_rows=RuntimeRows.of(weight, active, dtype, fast_path.runtime_rows.least, fast_path.rtol)
        )
    return _variants.of(
        (ByIdentity(fast_path), weight, active),
        lambda: replace(fast_path, assumes=True, weight=weight or None, kept=active),
    )


def _with_least(fast_path, least, dtype):
    """The fast path with ``least`` as the smallest relative norm of a row."""
    if fast_path.runtime_rows is None:
        return replace(fast_path, least=np.asarray(least, dtype))
    return replace(fast_path, runtime_rows=fast_path.runtime_rows._replace(least=np.asarray(least, dtype)))


def _weight(fast_path):
    return float(fast_path.weight or 0.0) if fast_path.runtime_rows is None else float(fast_path.runtime_rows.weight)


def _least(fast_path, dtype):
    if fast_path.runtime_rows is not None:
        return float(fast_path.runtime_rows.least)
    return doubtful(dtype) if fast_path.least is None else float(fast_path.least)


def _report_undecided_rows(system, classes, t, q, v, at_start):
    """Raise or warn about rows as small as rounding that do not come from rounding.

    At the start this is an error, probably a mistake of units. Later it is a row that vanishes slowly.
    """
    if not np.any(classes.undecided):
        return
    at = jax.device_put(t), q, v
    labels = names_of(structure_of(system), lambda c: c.rows(*at)[1])
    names = ", ".join(
        repr(label) for label, is_undecided in zip(labels, classes.undecided, strict=True) if is_undecided
    )
    if at_start:
        raise InputError(
            f"constraint {names} cannot be distinguished from rounding at t = {float(t):g} s: its row is too small "
            "compared with the others. Scale it to their size, or leave it out"
        )
    warnings.warn(
        f"constraint {names} is left out at t = {float(t):g} s: its row has become so small compared with the others "
        "that it cannot be distinguished from rounding",
        stacklevel=2,
    )


def _active(fast_path, rows):
    """The active rows out of ``rows``; None for all."""
    if fast_path.runtime_rows is None:
        return fast_path.kept
    count = int(fast_path.runtime_rows.count)
    return None if count >= rows else tuple(sorted(np.asarray(fast_path.runtime_rows.order)[:count].tolist()))


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


def note_rows_left_out(plan: Plan, method: AbstractMethod | MethodPerLevel, rows: int) -> None:
    """Note in the plan if the method to start with leaves out redundant rows."""
    if active_rows(method, rows) is not None:
        plan.note(f"from the start: {in_words(method)}")


def solve_batch(program: Program, problem: Problem, start: InitialState, plan: Plan) -> Solution:
    """Integrate a batch by ``program``: a kernel integrates all members at once, other programs integrate them in
    chunks."""
    if is_kernel(problem.method):
        run = lambda problem, start: run_interruptibly(program, start, problem)
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
    """Run ``run(problem, start)`` for a batch, with as many methods as its members need.

    A method that one member needs does not affect the others. A member whose terms are invalid at its start raises
    ``InputError``, or has the result ``REFUSED`` if ``refuse`` is false. Members that need another method run ``again``
    at a time, with one program for any number of members. If ``again`` is None, they run all at once, padded to a power
    of two.
    """
    method = initial_method(problem, runtime_rows=False)
    with contextlib.nullcontext() if refuse else contextlib.suppress(ValueError):
        method = initial_method_at(problem, start)
    note_rows_left_out(plan, method, start.scale.rows.shape[-1])
    samples = run(replace(problem, attempt=method), start)
    for iteration in range(MAX_METHOD_CHANGES + 1):
        needs_fallback = np.flatnonzero(np.asarray(samples.result) == NEEDS_FALLBACK)
        refused = []
        for member in needs_fallback:
            try:
                method = (
                    problem.method
                    if iteration == MAX_METHOD_CHANGES
                    else next_method_of(problem, method, start, member)
                )
                break
            except ValueError:
                if refuse:
                    raise
                refused.append(member)
        if refused:
            samples = samples._replace(result=samples.result.at[np.array(refused)].set(REFUSED))
            needs_fallback = needs_fallback[len(refused) :]
        if not needs_fallback.size:
            break
        which = "member" if needs_fallback.size == 1 else f"{needs_fallback.size} members, first"
        plan.note(f"{which} {needs_fallback[0]}: {in_words(method)}")
        for members in (
            np.split(needs_fallback, range(again, needs_fallback.size, again)) if again else [needs_fallback]
        ):
            # Padded to a power of two, so that similar numbers of members share one program.
            size = again or 2 ** int(np.ceil(np.log2(members.size)))
            padded = np.pad(members, (0, size - members.size), mode="edge")
            repeated = run(replace(problem, attempt=method), jax.tree.map(lambda x, at=padded: x[at], start))
            samples = jax.tree.map(lambda x, y, at=members: x.at[at].set(y[: at.size]), samples, repeated)
    return samples


def solve_eagerly(program: Program, problem: Problem, start: InitialState, plan: Plan) -> Solution:
    """``solve_every_member`` for a batch, or for one motion as a batch of one."""
    run = lambda problem, start: run_interruptibly(program, start, problem)
    if start.q.ndim == 2:
        return solve_every_member(run, problem, start, plan)
    as_batch = jax.tree.map(lambda x: np.asarray(x)[None], start)
    solution = solve_every_member(run, problem, as_batch, plan)
    return jax.device_put(jax.tree.map(lambda x: np.asarray(x)[0], solution))


def solve_differentiated(
    run: Callable[[Problem, InitialState], Solution], problem: Problem, start: InitialState, plan: Plan
) -> Solution:
    """``run(problem, start)`` while JAX traces or differentiates: by the fast path if it is applicable to every member,
    otherwise by the requested method.

    The fast path is tried only if the values are known, since otherwise its applicability cannot be checked.
    """
    primal_problem, primal_start = without_derivatives((problem, start))
    method = initial_method_at(primal_problem, primal_start) if plan.values_known else None
    for _ in range(MAX_METHODS):
        if method is None or not method.has_fallback:
            break
        solution = run(replace(problem, attempt=method), start)
        result = without_derivatives(solution.result)
        if not is_concrete(result):
            break
        needs_fallback = np.flatnonzero(np.asarray(result) == NEEDS_FALLBACK)
        if not needs_fallback.size:
            return solution
        method = next_method_of(primal_problem, method, primal_start, needs_fallback[0])
        plan.note(f"member {needs_fallback[0]}: {in_words(method)}" if start.q.ndim == 2 else in_words(method))
    return run(problem, start)


def initial_method_at(problem: Problem, start: InitialState) -> AbstractMethod | MethodPerLevel:
    """Solver to start with, compiled in: for a batch, chosen by its first member, or for one motion.

    With many rows, or at least as many as velocities, some may be redundant. They are determined at the first member.
    Otherwise a program would be compiled that no member can use.
    """
    method = initial_method(problem, runtime_rows=False)
    many_rows = min(start.v.shape[-1], MIN_ROWS_TO_CHECK)
    if isinstance(method, MethodPerLevel) and start.scale.rows.shape[-1] >= many_rows:
        chosen = next_method_of(problem, method, start, 0)
        return chosen if isinstance(chosen, MethodPerLevel) else method
    return method


def next_method_of(problem, method, start, member):
    """``next_method`` for one member of a batch, or for a single motion."""
    numbers, q, v = start.numbers, start.q, start.v
    single = q.ndim == 1
    if not single:
        numbers, q, v = jax.device_put(jax.tree.map(lambda x: np.asarray(x)[member], (numbers, q, v)))
    problem = replace(problem, model=problem.model_of(numbers))
    return next_method(problem, method, problem.ts[0], q, v, "" if single else f" for trajectory {member}")


def _levels(levels):
    return levels.acceleration, levels.position, levels.velocity


def _dropped_rows_are_checked(system, t, q, v, active):
    """Whether every dropped row of the acceleration also constrains positions or velocities."""
    if not any(constraint.level == "acceleration" for constraint in system.constraints):
        return True
    first = 0
    for constraint in structure_of(system):
        rows = range(first, first + eqx.filter_eval_shape(constraint.rows, t, q, v)[1].shape[0])
        first = rows.stop
        if constraint.level == "acceleration" and not set(rows) <= set(active):
            return False
    return True


@jit_if_repeated
def _terms(model, t, q, v):
    return model(t, q, v)


@jit_if_repeated
def _mass_and_rows(system, t, q, v):
    """M, and A of accelerations, ∂φ/∂q and ∂(φ̇, ψ)/∂v, as one matrix if they are equal."""
    M, positions = dynamics_of(system).mass(t, q, v), system.position_slope(t, q, v)
    if system.control is None and all(constraint.level == "position" for constraint in system.enforced):
        return M, [positions]
    velocities = system.velocity_slope(t, q, v)
    return M, [system.passive(t, q, v).A, positions, velocities]
