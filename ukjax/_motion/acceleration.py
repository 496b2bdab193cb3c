"""Constrained acceleration at given states, one or many."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import as_array, as_numbers, check_finite, check_function
from .._check_terms import check_terms, check_unique
from .._equation import constrained_motion
from .._errors import InputError
from .._jaxpr.tracing import is_eager
from .._kernel import per_member
from .._labels import direction_names
from .._precision import Numbers
from .._run.chunks import in_chunks
from .._run.compile import jit_batch, jit_fast_compile, jit_unoptimised
from .._run.threads import run_interruptibly
from .._solve import AbstractMethod, FastPath, Sparse, choose, solve
from .._system import AbstractSystem, kinematic_map_of, refuse_contacts
from .._terms import Terms
from .._with_states import with_initial_states
from .fallback.row_noise import without_noise_rows
from .fallback.sparsity import band_at_states, forget_band, with_sparsity
from .inputs import canonicalise, check_kinematic_map, check_starts, hint_if_batched_model
from .stepper.evaluate import Evaluator
from .stepper.inconsistent_rows import inconsistent_rows
from .stepper.limits import has_single_loop, is_kernel
from .stepper.runge_kutta import acceleration as accelerated


def acceleration(
    model: AbstractSystem | Callable[..., Terms],
    t: Numbers,
    q: Numbers,
    v: Numbers,
    method: str | AbstractMethod = "orthogonal",
) -> Float[Array, "*batch n"]:
    """Return the acceleration v̇ of the constrained motion at one state, or at each of many states.

    The result is the ``acceleration`` of ``constrained_motion(model(t, q, v), method)``, evaluated as in the steps of
    ``simulate``. A kernel on all cores evaluates many states.

    Parameters
    ----------
    model
        ``System``, or function (t, q, v) -> ``Terms``.
    t
        Time [s], one number, or one per state (batch,).
    q
        Coordinates, shape (nq,) or (batch, nq).
    v
        Velocities, shape (n,) or (batch, n). Without a kinematic map, n = nq. For a control with states, (v, s) of
        shape (n + k,) or (batch, n + k) is allowed; without s, the states have the initial values of the control.
    method
        Name of a solver or a solver object, see ``constrained_motion``.

    Returns
    -------
    Array
        v̇, in the unit of v per second, shape (n,) or (batch, n); (v̇, ṡ) for a control with states.

    Raises
    ------
    InputError
        For invalid input; for concrete values, also if no unique acceleration exists.

    Notes
    -----
    If rows contradict each other, the result satisfies them in the least-squares sense, with a warning.

    In a large system the matrix [M Aᵀ; A 0] may have a narrow band, if its rows are reordered. Then the banded matrix
    is factorised, and M and A are not stored in full. Where values are traced, by ``jit``, ``vmap`` or a derivative,
    only ``method`` is used; for the band, use ``ukjax.Sparse.of((M, A))``.
    """
    if not isinstance(model, AbstractSystem):
        check_function("model", model, "t, q, v")
    model, v = with_initial_states(model, q, v, "v")
    refuse_contacts("acceleration", model, ": it depends on which of them act, as motion.acceleration knows")
    t, q, v = as_numbers("t", t), as_array("q", q), as_array("v", v)
    check_starts(q, v, kinematic_map_of(model), ("q", "v", "state"))
    batch = q.shape[:-1]
    if t.shape not in ((), batch):
        raise InputError(f"t must be one time [s], or one per state, shape {batch}, got shape {t.shape}")
    for name, value in (("t", t), ("q", q), ("v", v)):
        check_finite(name, value)
    method = choose(method)
    with hint_if_batched_model(model, q):
        v, t = jnp.broadcast_to(v, (*batch, v.shape[-1])), jnp.broadcast_to(t, batch)
        model, q, v, t = canonicalise(model, q, v, t)
        check_kinematic_map(model, q, v)
        if not is_eager(model, t, q, v):
            return _at_all(t, q, v, model, method).acceleration
        band = (
            band_at_states(model, t, q, v)
            if method.fast_path() is not None and has_single_loop(model, Sparse(), True)
            else None
        )
        full_method = with_sparsity(method, model, t, q, v)
        if batch:
            return jnp.asarray(_at_many(model, t, q, v, band, full_method))
        if band is not None:
            result = _at_one(t, q, v, model, band)
            if not result.beyond:
                return result.acceleration
        terms = model(t, q, v)
        motion = constrained_motion(terms, full_method)
        known_terms, result = jax.tree.map(np.asarray, (terms, motion.acceleration))
        if np.any(inconsistent_rows(known_terms, result, full_method, xp=np)):
            _warn_of_contradictions("for this state")
        return motion.acceleration


class CheckedAcceleration(NamedTuple):
    """An acceleration and its checks.

    Attributes
    ----------
    acceleration
        v̇.
    beyond
        Whether the method was not applicable.
    inconsistent
        Whether rows contradict each other.
    """

    acceleration: Float[Array, "*batch n"]
    beyond: Bool[Array, "*batch"]
    inconsistent: Bool[Array, "*batch"]


@per_member
def _at(t, q, v, model, method) -> CheckedAcceleration:
    false = jnp.asarray(False)
    if isinstance(method, Sparse) and has_single_loop(model, method, True):
        M, Q, rows = Evaluator.at(model, method)(t, q, v)
        factorisation = method.factorise(*jax.lax.stop_gradient((M, rows.A)))
        x = solve(M, rows.A, Q, rows.b, factorisation)
        return CheckedAcceleration(x, factorisation.needs_fallback | ~jnp.all(jnp.isfinite(x)), false)
    return CheckedAcceleration(*accelerated(model, t, q, v, method, False))


def _at_all(t, q, v, model, method):
    """Accelerations at one state, or at many."""
    if q.ndim == 1:
        return _at(t, q, v, model, method)
    at_columns = jax.vmap(lambda t, q, v: _at(t, q, v, model, method), in_axes=-1, out_axes=-1)
    result = at_columns(t, q.T, v.T)
    return result._replace(acceleration=result.acceleration.T)


_at_one = jit_fast_compile(_at_all)


@jit_batch
def _at_chunk(states, model, method):
    t, q, v = states
    return _at_all(t, q, v, model, method)


def _at_many(model, t, q, v, band, method):
    """Accelerations at many states, as a NumPy array.

    Each method is used for the states at which the method before it was not applicable.
    """
    if band is None:
        check_terms(_terms(model, t[0], q[0], v[0]), " for state 0", direction_names(model))
    arguments, states = (t, q, v), jax.tree.map(np.asarray, (t, q, v))
    accelerations, remaining = np.full(v.shape, np.nan, v.dtype), np.arange(len(q))
    fast_path = method.fast_path()
    fast_path = replace(fast_path, assumes=True) if isinstance(fast_path, FastPath) else fast_path
    for current_method in (band, fast_path, method):
        if current_method is None:
            continue
        is_last = current_method is method
        if is_last:
            current_method = without_noise_rows(method, model, *arguments)
        # The number of states is padded to a power of two, so that other numbers of states reuse the program.
        size = len(q) if remaining.size == len(q) else min(len(q), 2 ** int(np.ceil(np.log2(remaining.size))))
        indices = np.pad(remaining, (0, size - remaining.size), mode="edge")
        chunk = jax.device_put(jax.tree.map(lambda x, indices=indices: x[indices], states))
        if is_kernel(current_method):
            result = run_interruptibly(_at_chunk, chunk, model, current_method)
        else:
            result = in_chunks(
                _at_chunk, chunk, model, current_method, entries=v.shape[1] if current_method.is_sparse else 1
            )
        result = jax.tree.map(lambda x, count=remaining.size: np.asarray(x)[:count], result)
        accelerations[remaining] = result.acceleration
        if is_last:
            _check_accelerations(model, states, remaining, result, method)
            break
        remaining = remaining[result.beyond]
        if not remaining.size:
            break
        if current_method is band:
            forget_band(model, *arguments)
    return accelerations


def _check_accelerations(model, states, indices, result, method):
    """Raise ``InputError`` for states without acceleration; warn about rows that contradict each other."""
    failed = indices[~np.all(np.isfinite(result.acceleration), axis=1)]
    if failed.size:
        state, where = jax.device_put([x[failed[0]] for x in states]), f" for state {failed[0]}"
        terms, names = _terms(model, *state), direction_names(model)
        check_terms(terms, where, names)
        check_unique(terms, np.full(states[2].shape[1], np.nan), type(method).__name__, where, names)
    inconsistent = indices[result.inconsistent]
    if inconsistent.size:
        _warn_of_contradictions(
            f"for {inconsistent.size} of {len(states[1])} states, first for state {inconsistent[0]}"
        )


def _warn_of_contradictions(where):
    warnings.warn(
        f"the constraints contradict each other {where}: there the acceleration satisfies them in the "
        "least-squares sense, and the inconsistency of constrained_motion is the size of the contradiction",
        stacklevel=3,
    )


@jit_unoptimised
def _terms(model, t, q, v):
    return model(t, q, v)
