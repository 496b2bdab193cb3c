"""Onto the constraints: consistent initial conditions."""

from collections.abc import Iterable
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check import as_array, as_number, check_finite, is_eager, kind_of, without_derivatives
from ..._check_terms import check_terms
from ..._precision import Numbers
from ..._run.compile import jit_unoptimised
from ..._solve import AbstractMethod, choose
from ..._system import AbstractSystem, dynamics_of
from ..._terms import Terms
from ..diagnose.motion import check_model, worst_of, worst_row
from ..fallback.sparsity import with_sparsity
from ..inputs import canonicalise, check_kinematic_map
from ..stepper.drift_correction import same_at_every_level
from ..stepper.scaling import scales
from .local_chart import chart_at, point_of
from .locked import locked
from .newton import MOST_ITERATIONS, project_by_newton
from .optimality import with_derivatives
from .search_numpy import SearchResult, search
from .search_traced import project_by_search

_project_nearby, _project_anywhere = jit_unoptimised(project_by_newton), jit_unoptimised(project_by_search)


def project(
    model: AbstractSystem,
    t: Numbers,
    q0: Numbers,
    v0: Numbers,
    method: str | AbstractMethod = "orthogonal",
    fixed: Iterable[str] = (),
) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
    """Consistent initial conditions: the point on the constraints nearest to q0 (n,), v0 (n,) at time t.

        min (q − q0)ᵀ M (q − q0)  with φ(t, q) = 0,      then  min (v − v0)ᵀ M (v − v0)  with φ̇ = 0 and ψ = 0,

    with M at q0 for the first and at the new q for the second. (Where q̇ = N(q) v, q − q0 stands for the x with which
    q̇ = N(q) x leads from q0 to q in a unit of time, so that what N keeps is kept.) Redundant constraints are no
    trouble. A start that lies on an axis of symmetry of the constraints stays on it, though the nearest points may lie
    on both its sides: move it a little. Differentiable, with exact first and second derivatives, by the conditions of
    the minimum (not through the iteration).

    ``fixed`` names coordinates that stay as they are given, value and rate, while the rest is moved to fit them: those
    of ``model.coordinates``, or q1, q2, ...

    Raises ``ValueError`` if no such point is found: the constraint that remains violated is named. Under ``jit`` the
    result is NaN instead.
    """
    if not isinstance(model, AbstractSystem):
        raise ValueError(
            f"model must be a ukjax.System to be projected onto its constraints, got {kind_of(model)}: "
            "rows A and b alone do not say where the constraints are"
        )
    t, q0, v0 = as_number("t", t, "s"), as_array("q0", q0), as_array("v0", v0)
    if q0.ndim != 1 or not q0.size or (v0.shape != q0.shape if model.kinematic_map is None else v0.ndim != 1):
        raise ValueError(f"q0 and v0 must both have shape (n,), got shapes {q0.shape} and {v0.shape}")
    for name, value in (("t", t), ("q0", q0), ("v0", v0)):
        check_finite(name, value)
    model = locked(model, fixed, t, q0, v0)
    model, q0, v0, t = canonicalise(model, q0, v0, t)
    check_kinematic_map(model, q0, v0)
    method, all_known = with_sparsity(choose(method), model, t, q0, v0), is_eager(model, t, q0, v0)
    given: Any = model, t, q0, v0
    here = without_derivatives(given)  # within jax.grad these are known as well
    scale = scales(*(here if is_eager(here) else given))
    seen, x0, sizes = chart_at(model, q0, v0, scale)
    given = seen, t, x0, v0
    here, usual = without_derivatives(given), method.usual()
    if usual is not None and is_eager(here):
        found = _found(usual, here, sizes)
        if not found.reached:
            _refuse(without_derivatives((model, t, q0, v0)), method, found, point_of(here[0], found.q))
        if all_known:
            return point_of(seen, found.q), found.v
        x, v, needs_fallback = with_derivatives(seen, t, x0, v0, found.q, found.v, found.levels)
        if not without_derivatives(needs_fallback):
            return point_of(seen, x), v
    if all_known:  # before the long way is compiled
        check_terms(_masses(model, t, q0, v0), f" at t = {float(t):g} s")
    x, v, reached, (last_x, last_v) = _project_anywhere(seen, t, x0, v0, sizes, method)
    if all_known and not reached:
        check_model(model, t, q0, v0, method)
        raise ValueError(_not_found(t, q0, worst_row(model, t, point_of(seen, last_x), last_v, scale)))
    return point_of(seen, x), v


def _found(usual, here, scale):
    """The result by the usual method: as it is for a start that is near, or else by NumPy."""
    model, t, q0, v0 = here
    levels = same_at_every_level(usual)
    q, v, sure = _project_nearby(model, t, q0, v0, scale, levels)
    return SearchResult(q, v, levels) if sure else search(usual, model, t, q0, v0, scale)


def _refuse(given, method, found, q) -> NoReturn:
    model, t, q0, v0 = given
    if not found.sensible:
        check_terms(_masses(model, t, q0, v0), f" at t = {float(t):g} s")
        check_model(model, t, q0, v0, method)
    raise ValueError(_not_found(t, q0, worst_of(found.missed, model, t, q, found.v)))


def _not_found(t, q0, worst):
    return (
        f"no consistent initial conditions found near q0 = {np.asarray(q0)}: at t = {float(t):g} s constraint {worst} "
        f"still has residual {worst.size:.3g} after {MOST_ITERATIONS} iterations. Either the constraints cannot be met "
        "(a path out of reach, links too short), or q0 is too far away: start closer"
    )


@jit_unoptimised
def _masses(system, t, q, v):
    """Terms without anything but M."""
    none = jnp.zeros(0, q.dtype)
    return Terms(dynamics_of(system).mass(t, q, v), jnp.zeros_like(v), jnp.zeros((0, v.size), q.dtype), none)
