"""How a trajectory was integrated, stored with it, to evaluate it between its samples."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check import as_array, check_finite
from ..._errors import InputError, SimulationError
from ..._integration import Integration
from ..._jaxpr.tracing import is_concrete, is_tracing
from ..._outside import holds_tracers
from ..._precision import Numbers
from ..._solve import AbstractMethod


@dataclass(frozen=True, eq=False)
class Continuation:
    """How ``simulate`` integrated a motion, to integrate parts of it again.

    Parameters
    ----------
    integration
        The options of the integration, with concrete numbers as NumPy arrays.
    switches
        Times [s] at which the model is discontinuous.
    throw
        Whether failures raise an error.
    simulate
        The function ``ukjax.simulate``: the module that defines it imports this one.
    """

    integration: Integration
    switches: Float[Array | np.ndarray, " k"] | None
    throw: bool
    simulate: Callable

    def states(
        self,
        model: Any,
        method: AbstractMethod,
        t: Float[np.ndarray, " samples"],
        q: Array | np.ndarray,
        v: Array | np.ndarray,
        times: Float[np.ndarray, " k"],
    ) -> tuple[Array, Array]:
        """q and v at ``times``, each integrated from the last sample before it; at a sample, that sample.

        The samples ``t`` increase strictly, and the times lie within them. ``q`` and ``v`` have shape (samples, n), or
        (batch, samples, n).
        """
        distinct, place = np.unique(times, return_inverse=True)
        before = np.searchsorted(t, distinct, side="right") - 1
        parts = []
        for k in np.unique(before):
            inside = distinct[before == k]
            part = q[..., k : k + 1, :], v[..., k : k + 1, :]
            after_sample = inside[inside > t[k]]
            if after_sample.size:
                dt = self.integration.dt
                dt = None if dt is None else jnp.minimum(dt, after_sample[-1] - t[k])
                motion = self.simulate(
                    model,
                    q[..., k, :],
                    v[..., k, :],
                    np.append(t[k], after_sample).astype(t.dtype),
                    **replace(self.integration, method=method, dt=dt, max_steps=None),
                    switches=self.switches,
                    throw=self.throw,
                )
                if is_concrete(motion.result) and not np.all(motion.finished):
                    at, reason = motion.last[0], np.ravel(motion.reason)
                    raise SimulationError(
                        f"motion(t) could not be integrated from the sample at t = {t[k]:.6g} s to t = "
                        f"{after_sample[-1]:.6g} s: it {reason[np.argmin(np.ravel(motion.finished))]}, at t = "
                        f"{np.min(at):.6g} s"
                    )
                # With the sample itself, if it is wanted too.
                wanted = slice(0 if after_sample.size < inside.size else 1, None)
                integrated = motion.q[..., 1:, :], motion.v[..., 1:, :]
                part = tuple(_joined([x, y])[..., wanted, :] for x, y in zip(part, integrated, strict=True))
            parts.append(part)
        of_q, of_v = (_joined([part[i] for part in parts])[..., place, :] for i in (0, 1))
        return jnp.asarray(of_q), jnp.asarray(of_v)


def as_recorded(x: Any) -> Any:
    """A copy of concrete numbers ``x``, by NumPy, since JAX traces new arrays inside of ``jit``; else ``x`` itself."""
    return x if x is None or not is_concrete(x) else np.array(x, float)


def _numbers(options):
    """All numbers among the options."""
    how = options.integration
    method_numbers = jax.tree.leaves(how.method) if isinstance(how.method, AbstractMethod) else []
    return [x for x in (how.rtol, how.atol, how.dt, options.switches) if x is not None] + method_numbers


def _checksum(options):
    """An integer that depends on all options, the same in every process; 0 for traced ones."""
    numbers = _numbers(options)
    if not is_concrete(numbers):
        return 0
    how = options.integration
    solver = how.solver
    if is_dataclass(solver) and not fields(solver):
        solver = type(solver)  # the representation of the object takes long
    names = [name for name in how if name != "method"]  # the method is a field of the trajectory
    values = how.drift, how.max_steps, solver, options.throw, *(np.asarray(x).tolist() for x in numbers)
    return zlib.crc32(repr((names, values)).encode()) >> 1


@lru_cache(maxsize=64)
def _key(checksum, batch):
    key = np.full(batch, checksum, np.int32)
    return key if is_tracing() else jax.device_put(key)


@jax.tree_util.register_pytree_node_class
class Provenance:
    """How a motion was computed: the options, and the numbers that the model read from outside.

    As a pytree it has one leaf, ``key``, a checksum of the options for each member. All else is metadata that compares
    equal, so that motions with different options have the same tree structure, as ``jax.lax.cond`` and
    ``jax.tree.map`` require. If these functions select from such motions, the options are known for the members whose
    key is that of the metadata. Options that ``jit``, ``vmap`` or a derivative traces are unknown outside of it.

    Parameters
    ----------
    options
        The options, None if they are unknown.
    outside
        ``external_values_in`` the model, None if they are unknown.
    batch_axes
        Number of batch axes, 0 or 1, that share one model.
    key
        Checksum of the options, with the batch axes of the motion.
    """

    def __init__(self, options: Continuation | None, outside: Any, batch_axes: int, key: Any):
        self._options, self.outside, self.batch_axes, self.key = options, outside, batch_axes, key

    @classmethod
    def of(cls, options: Continuation, outside: Any, batch: tuple[int, ...]) -> "Provenance":
        """That of a motion, or of a batch of them with one model."""
        make_key = _key.__wrapped__ if is_tracing() else _key
        return cls(options, outside, len(batch), make_key(_checksum(options), batch))

    @property
    def options(self) -> Continuation | None:
        """The options, None if they are unknown."""
        if self._options is None or not is_concrete(self.key):
            return None
        return self._options if np.all(np.asarray(self.key) == _checksum(self._options)) else None

    def of_members(self, at: Any) -> "Provenance":
        """That of the members ``at`` of a batch: an integer, a slice or an array of integers."""
        key = self.key[at]
        return Provenance(self._options, self.outside, min(self.batch_axes, key.ndim), key)

    def tree_flatten(self) -> tuple[tuple[Any], "_AlwaysEqual"]:
        """The key, and the metadata without traced numbers, which have no value outside of the trace."""
        options = None if self._options is None or not is_concrete(_numbers(self._options)) else self._options
        outside = None if self.outside is None or holds_tracers(self.outside) else self.outside
        return (self.key,), _AlwaysEqual(options, outside, self.batch_axes)

    @classmethod
    def tree_unflatten(cls, metadata: "_AlwaysEqual", children: tuple[Any]) -> "Provenance":
        """The inverse of ``tree_flatten``."""
        (key,) = children
        return cls(metadata.options, metadata.outside, metadata.batch_axes, key)

    def __deepcopy__(self, memo: dict) -> "Provenance":
        return self  # immutable

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"outside": None}  # arrays are compared by identity, which a pickle does not keep


class _AlwaysEqual:
    def __init__(self, options, outside, batch_axes):
        self.options, self.outside, self.batch_axes = options, outside, batch_axes

    def __eq__(self, other):
        return isinstance(other, _AlwaysEqual)

    def __hash__(self):
        return 0


def check_times_within(t: Numbers, first: float, last: float, dtype: Any) -> Float[np.ndarray, " k"]:
    """``t`` as concrete times (k,) between ``first`` and ``last``, or raise ``InputError``.

    One number is one time.
    """
    array = as_array("t", t, "times")
    if not is_concrete(array):
        raise InputError(
            "t must be known times: under jit or vmap, and for derivatives with respect to t, give these times to "
            "ukjax.simulate, as ts"
        )
    times = np.asarray(array)
    if times.ndim > 1 or times.size == 0:
        raise InputError(f"t must be one time [s], or times of shape (k,), got shape {times.shape}")
    check_finite("t", times)
    times = np.atleast_1d(times).astype(dtype)
    outside = times[(times < first) | (times > last)]
    if outside.size:
        digits = 9 if f"{outside[0]:.9g}" not in (f"{first:.9g}", f"{last:.9g}") else 17
        bounds = f"{first:.{digits}g} to {last:.{digits}g} s"
        raise InputError(f"t must lie within the motion, {bounds}, got {outside[0]:.{digits}g}")
    return times


def _joined(parts):
    return (
        np.concatenate([np.asarray(x) for x in parts], axis=-2)
        if is_concrete(parts)
        else jnp.concatenate(parts, axis=-2)
    )
