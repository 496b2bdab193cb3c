"""The acceleration at given states: of one, or of many at once."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import as_array, as_numbers, check_finite, check_function, is_eager
from .._check_terms import check_terms, check_unique
from .._equation import constrained_motion
from .._kernel import per_member
from .._labels import direction_names
from .._precision import Numbers
from .._run.chunks import in_chunks
from .._run.compile import jit_batch, jit_fast_compile, jit_unoptimised
from .._run.threads import interruptibly
from .._solve import AbstractMethod, FastPath, Sparse, choose, solve
from .._system import AbstractSystem, kinematic_map_of
from .._terms import Terms
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
    """v̇ of the constrained motion at the state q (nq,), v (n,), or at each of many, (batch, nq) and (batch, n); t is
    one time [s], or one for each.

    It is the ``acceleration`` of ``constrained_motion(model(t, q, v), method)``, done as the steps of ``simulate`` are:
    many states are done by a kernel and shared by the cores, and a large system whose [M Aᵀ; A 0] has entries near the
    diagonal alone, in some order, goes along that band, its M and A never made in full. Where values are traced, by
    ``jit``, ``vmap`` or a derivative, ``method`` does it by itself; for the band that is ``ukjax.Sparse.of((M, A))``.

    Raises ``ValueError`` for bad input, and where values are known and there is no such acceleration. Rows that
    contradict each other are met as nearly as can be, with a warning.
    """
    if not isinstance(model, AbstractSystem):
        check_function("model", model, "t, q, v")
    t, q, v = as_numbers("t", t), as_array("q", q), as_array("v", v)
    check_starts(q, v, kinematic_map_of(model), ("q", "v", "state"))
    batch = q.shape[:-1]
    if t.shape not in ((), batch):
        raise ValueError(f"t must be one time [s], or one per state, shape {batch}, got shape {t.shape}")
    for name, value in (("t", t), ("q", q), ("v", v)):
        check_finite(name, value)
    method = choose(method)
    with hint_if_batched_model(model, q):
        v, t = jnp.broadcast_to(v, (*batch, v.shape[-1])), jnp.broadcast_to(t, batch)
        model, q, v, t = canonicalise(model, q, v, t)
        check_kinematic_map(model, q, v)
        if not is_eager(model, t, q, v):
            return _at_all(t, q, v, model, method).acceleration
        along = (
            band_at_states(model, t, q, v)
            if method.usual() is not None and has_single_loop(model, Sparse(), True)
            else None
        )
        by = with_sparsity(method, model, t, q, v)
        if batch:
            return jnp.asarray(_of_many(model, t, q, v, along, by))
        if along is not None:
            found = _at_one(t, q, v, model, along)
            if not found.beyond:
                return found.acceleration
        terms = model(t, q, v)
        motion = constrained_motion(terms, by)
        known_terms, found = jax.tree.map(np.asarray, (terms, motion.acceleration))
        if np.any(inconsistent_rows(known_terms, found, by, xp=np)):
            _tell_of_contradictions("for this state")
        return motion.acceleration


class AccelerationFound(NamedTuple):
    """An acceleration, whether that was ``beyond`` its method, and whether rows have a ``contradiction``."""

    acceleration: Float[Array, "*batch n"]
    beyond: Bool[Array, "*batch"]
    contradiction: Bool[Array, "*batch"]


@per_member
def _at(t, q, v, model, method) -> AccelerationFound:
    none = jnp.asarray(False)
    if isinstance(method, Sparse) and has_single_loop(model, method, True):
        M, Q, rows = Evaluator.at(model, method)(t, q, v)
        response = method.factorise(*jax.lax.stop_gradient((M, rows.A)))
        x = solve(M, rows.A, Q, rows.b, response)
        return AccelerationFound(x, response.needs_fallback | ~jnp.all(jnp.isfinite(x)), none)
    return AccelerationFound(*accelerated(model, t, q, v, method, False))


def _at_all(t, q, v, model, method):
    """Of one state or of many."""
    if q.ndim == 1:
        return _at(t, q, v, model, method)
    at = jax.vmap(lambda t, q, v: _at(t, q, v, model, method), in_axes=-1, out_axes=-1)
    found = at(t, q.T, v.T)
    return found._replace(acceleration=found.acceleration.T)


_at_one = jit_fast_compile(_at_all)


@jit_batch
def _of_block(states, model, method):
    t, q, v = states
    return _at_all(t, q, v, model, method)


def _of_many(model, t, q, v, along, method):
    """By NumPy: each method for those that are beyond the one before."""
    if along is None:
        check_terms(_terms(model, t[0], q[0], v[0]), " for state 0", direction_names(model))
    given, states = (t, q, v), jax.tree.map(np.asarray, (t, q, v))
    found, left = np.full(v.shape, np.nan, v.dtype), np.arange(len(q))
    usual = method.usual()
    usual = replace(usual, assumes=True) if isinstance(usual, FastPath) else usual
    for by in (along, usual, method):
        if by is None:
            continue
        lasting = by is method
        if lasting:
            by = without_noise_rows(method, model, *given)
        # As many as a power of two, so that another number of them is the same program.
        size = len(q) if left.size == len(q) else min(len(q), 2 ** int(np.ceil(np.log2(left.size))))
        at = np.pad(left, (0, size - left.size), mode="edge")
        each = jax.device_put(jax.tree.map(lambda x, at=at: x[at], states))
        if is_kernel(by):
            new = interruptibly(_of_block, each, model, by)
        else:
            new = in_chunks(_of_block, each, model, by, entries=v.shape[1] if by.is_sparse else 1)
        new = jax.tree.map(lambda x, count=left.size: np.asarray(x)[:count], new)
        found[left] = new.acceleration
        if lasting:
            _complain(model, states, left, new, method)
            break
        left = left[new.beyond]
        if not left.size:
            break
        if by is along:
            forget_band(model, *given)
    return found


def _complain(model, states, which, found, method):
    """Of what has no acceleration, and of contradictions."""
    lost = which[~np.all(np.isfinite(found.acceleration), axis=1)]
    if lost.size:
        at, where = jax.device_put([x[lost[0]] for x in states]), f" for state {lost[0]}"
        terms, names = _terms(model, *at), direction_names(model)
        check_terms(terms, where, names)
        check_unique(terms, np.full(states[2].shape[1], np.nan), type(method).__name__, where, names)
    against = which[found.contradiction]
    if against.size:
        _tell_of_contradictions(f"for {against.size} of {len(states[1])} states, first for state {against[0]}")


def _tell_of_contradictions(where):
    warnings.warn(
        f"the constraints contradict each other {where}: there the acceleration is the one that meets them as nearly "
        "as can be (constrained_motion says by how much, in inconsistency)",
        stacklevel=3,
    )


@jit_unoptimised
def _terms(model, t, q, v):
    return model(t, q, v)
