"""``project``: consistent initial conditions, the point on the constraints nearest to a start."""

from collections.abc import Iterable
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check import as_array, as_number, check_finite, kind_of
from ..._check_terms import check_terms
from ..._errors import InputError
from ..._jaxpr.tracing import is_concrete, is_eager, is_tracing, without_derivatives
from ..._outside import read_once
from ..._precision import Numbers
from ..._run.compile import jit, jit_unoptimised
from ..._solve import AbstractMethod, choose
from ..._system import AbstractSystem, dynamics_of
from ..._terms import Terms
from ..._with_states import with_given_states
from ..diagnose.motion import check_model, worst_of, worst_row
from ..fallback.sparsity import with_sparsity
from ..inputs import canonicalise, check_kinematic_map
from ..stepper.drift_correction import same_at_every_level
from ..stepper.scaling import scales
from .local_chart import chart_at, point_of
from .locked import locked
from .newton import MAX_ITERATIONS, project_by_newton
from .optimality import with_derivatives
from .search_numpy import SearchResult, search
from .search_traced import project_by_search

_project_by_newton, _project_by_search = jit_unoptimised(project_by_newton), jit_unoptimised(project_by_search)


def project(
    model: AbstractSystem,
    t: Numbers,
    q0: Numbers,
    v0: Numbers,
    method: str | AbstractMethod = "orthogonal",
    fixed: Iterable[str] = (),
) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
    """Compute consistent initial conditions: the state on the constraints nearest to a start.

        min (q − q0)ᵀ M (q − q0)  with φ(t, q) = 0,      then  min (v − v0)ᵀ M (v − v0)  with φ̇ = 0 and ψ = 0,

    with M at q0 for the first and at the new q for the second. If the model has a kinematic map q̇ = N(q) v, the
    difference q − q0 is replaced by the vector x for which the solution of q̇ = N(q) x goes from q0 to q in unit time.
    This preserves invariants of N, such as the norm of a quaternion. Redundant constraints are allowed. A start on an
    axis of symmetry of the constraints stays on the axis, even if the nearest points lie on both sides of it. Move such
    a start slightly.

    Parameters
    ----------
    model
        The system. A bare function of (t, q, v) is not sufficient: rows A and b do not define the positions.
    t
        Time [s].
    q0
        Coordinates of the start, shape (nq,), in the units of the model.
    v0
        Velocities of the start, shape (n,); (nq,) unless the model has a kinematic map. For a control with states,
        (v, s) of shape (n + k,) is allowed; s is not changed.
    method
        Solver for the constraints, by name or as an object.
    fixed
        Names of coordinates that keep their value and rate: those of ``model.coordinates``, or q1, q2, ... The
        others are adjusted to them.

    Returns
    -------
    q, v
        The consistent state, with the shapes of q0 and v0. Its first and second derivatives with respect to all inputs
        are exact. They follow from the optimality conditions, not from the iteration.

    Raises
    ------
    InputError
        If no such state is found; the message names the violated constraint. Under ``jit`` the result is NaN
        instead. Also for an invalid argument.
    """
    if not isinstance(model, AbstractSystem):
        raise InputError(
            f"model must be a ukjax.System to be projected onto its constraints, got {kind_of(model)}: "
            "rows A and b alone do not say where the constraints are"
        )
    model = with_given_states(model, q0, v0)
    t, q0, v0 = as_number("t", t, "s"), as_array("q0", q0), as_array("v0", v0)
    if q0.ndim != 1 or not q0.size or (v0.shape != q0.shape if model.kinematic_map is None else v0.ndim != 1):
        advice = ": for many starts, map over them with jax.vmap" if q0.ndim == 2 else ""
        raise InputError(f"q0 and v0 must both have shape (n,), got shapes {q0.shape} and {v0.shape}{advice}")
    for name, value in (("t", t), ("q0", q0), ("v0", v0)):
        check_finite(name, value)
    with read_once():
        return project_state(locked(model, fixed, t, q0, v0), t, q0, v0, method)


def project_state(
    model: AbstractSystem, t: Array, q0: Array, v0: Array, method: str | AbstractMethod, is_near: bool = True
) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
    """``project`` for arguments of the right kinds and shapes.

    ``is_near`` is False if the start is known to be far from the constraints; then Newton's method is not compiled.
    """
    model, q0, v0, t = canonicalise(model, q0, v0, t)
    if not is_concrete(without_derivatives((model, t, q0, v0))) and not is_tracing():
        return _as_one_program(model, t, q0, v0, method, is_near)  # mapped: else each operation would be compiled alone
    check_kinematic_map(model, q0, v0)
    method, eager = with_sparsity(choose(method), model, t, q0, v0), is_eager(model, t, q0, v0)
    inputs: Any = model, t, q0, v0
    constants = without_derivatives(inputs)  # concrete within jax.grad, too
    scale = scales(*(constants if is_eager(constants) else inputs))
    chart, x0, sizes = chart_at(model, q0, v0, scale)
    inputs = chart, t, x0, v0
    constants, fast_path = without_derivatives(inputs), method.fast_path()
    if fast_path is not None and is_eager(constants):
        solution = _solve_eagerly(fast_path, constants, sizes, is_near)
        if not solution.reached:
            _raise_not_found(
                without_derivatives((model, t, q0, v0)), method, solution, point_of(constants[0], solution.q)
            )
        if eager:
            return point_of(chart, solution.q), solution.v
        x, v, needs_fallback = with_derivatives(chart, t, x0, v0, solution.q, solution.v, solution.levels)
        if not without_derivatives(needs_fallback):
            return point_of(chart, x), v
    if eager:  # before the search is compiled
        check_terms(_masses(model, t, q0, v0), f" at t = {float(t):g} s")
    x, v, reached, (last_x, last_v) = _project_by_search(chart, t, x0, v0, sizes, method)
    if eager and not reached:
        check_model(model, t, q0, v0, method)
        raise InputError(_not_found_text(t, q0, worst_row(model, t, point_of(chart, last_x), last_v, scale)))
    return point_of(chart, x), v


_as_one_program = jit(project_state)


def _solve_eagerly(fast_path, inputs, scale, is_near):
    """The result by the fast path: Newton's method if the start is near, else a search by NumPy."""
    model, t, q0, v0 = inputs
    if not is_near:
        return search(fast_path, model, t, q0, v0, scale)
    levels = same_at_every_level(fast_path)
    q, v, converged = _project_by_newton(model, t, q0, v0, scale, levels)
    return SearchResult(q, v, levels) if converged else search(fast_path, model, t, q0, v0, scale)


def _raise_not_found(inputs, method, solution, q) -> NoReturn:
    model, t, q0, v0 = inputs
    if not solution.valid:
        check_terms(_masses(model, t, q0, v0), f" at t = {float(t):g} s")
        check_model(model, t, q0, v0, method)
    raise InputError(_not_found_text(t, q0, worst_of(solution.residuals, model, t, q, solution.v)))


def _not_found_text(t, q0, worst):
    return (
        f"no consistent initial conditions found near q0 = {np.asarray(q0)}: at t = {float(t):g} s constraint {worst} "
        f"still has residual {worst.size:.3g} after {MAX_ITERATIONS} iterations. Either they cannot be satisfied "
        "(a path out of reach, links too short), or q0 is too far away: start closer"
    )


@jit_unoptimised
def _masses(system, t, q, v):
    """Terms that contain only M."""
    none = jnp.zeros(0, q.dtype)
    return Terms(dynamics_of(system).mass(t, q, v), jnp.zeros_like(v), jnp.zeros((0, v.size), q.dtype), none)
