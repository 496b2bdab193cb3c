"""Measured motions in pieces that are simulated side by side, with the derivatives of all of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._check_terms import complaint_of_mass
from .._functions import vector
from .._kernel import per_member
from .._motion.integrate.fixed_step import fixed_step_loop
from .._motion.problem import InitialState
from .._motion.stepper.drift_correction import MethodPerLevel, same_at_every_level
from .._motion.stepper.scaling import scale_of
from .._motion.stepper.tableau import RUNGE_KUTTA4
from .._parameters import Observed, Parameters, with_array
from .._run.compile import jit, jit_unoptimised
from .._solve import AbstractMethod
from .._system import AbstractSystem, mass_of
from .experiment import Experiment

MAX_BATCH = 4096
"""Motions times derivatives that are computed side by side: what they need stays in a core's caches."""


class Segment(NamedTuple):
    """Samples ``first`` to ``last`` (inclusive) of an experiment. But for an experiment's last one, its last sample is
    the first of the next one, and not compared here."""

    experiment: int
    first: int
    last: int
    final: bool


class Predicted(NamedTuple):
    """Of one segment: outputs (samples, outputs), its first and last state (2n,), and the derivatives of each with
    respect to x (p,) and, if wanted, the segment's start z (k,)."""

    outputs: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    outputs_jacobian: np.ndarray
    begin_jacobian: np.ndarray
    end_jacobian: np.ndarray


class Prediction(eqx.Module):
    """How to predict a measurement: see ``fit`` for the fields."""

    observed: Observed
    parameters: Parameters
    state: Callable
    method: AbstractMethod
    projection: bool = eqx.field(static=True)

    def outputs_with(
        self,
        method: AbstractMethod | MethodPerLevel,
        x: Array,
        z: Array,
        ts: Array,
        between: Array,
        setting: dict[str, Array],
    ) -> tuple[Any, Bool[Array, ""]]:
        """Outputs, first state and last; and whether they are beyond what the ``method`` can do."""
        observed = self.observed_with(x, setting)
        model = observed.model
        q0, v0, needs_fallback = self.state(model, z, ts[0], method)
        start = InitialState(q0, v0, scale_of(model, ts[0], q0, v0, ts[-1] - ts[0], driven=False))
        q, v, went = fixed_step_loop(lambda _: model, start, ts, between, None, method, RUNGE_KUTTA4, self.projection)
        outputs = jax.lax.map(lambda at: vector("observe", observed.observe, *at), (ts, q, v))
        return (outputs, jnp.concatenate([q[0], v[0]]), jnp.concatenate([q[-1], v[-1]])), needs_fallback | went.beyond

    def observed_with(self, x: Array, setting: dict[str, Array]) -> Observed:
        """The model and its outputs with these parameters, in an experiment of this setting."""
        observed = self.parameters.put(self.observed, x)
        for name, value in setting.items():
            observed = with_array(observed, name, value)
        return observed

    def mass(self, x: Array, z: Array, t: Array, setting: dict[str, Array]) -> Float[Array, "n n"]:
        """M where a motion begins."""
        model = self.observed_with(x, setting).model
        q, v, _ = self.state(model, z, t, self.method)
        return mass_of(model, t, q, v) if isinstance(model, AbstractSystem) else model(t, q, v).M


def cut(experiments: Sequence[Experiment], segments: int) -> list[Segment]:
    """Every experiment in ``segments`` pieces of about the same length."""
    pieces = []
    for i, experiment in enumerate(experiments):
        ends = np.round(np.linspace(0, experiment.t.size - 1, segments + 1)).astype(int)
        pieces += [
            Segment(i, int(a), int(b), k == segments - 1) for k, (a, b) in enumerate(zip(ends, ends[1:], strict=False))
        ]
    return pieces


def predict(
    prediction: Prediction,
    experiments: Sequence[Experiment],
    segments: Sequence[Segment],
    counts: Sequence[Int[np.ndarray, " intervals"]],
    halvings: int,
    x: Float[np.ndarray, " p"],
    starts: Float[np.ndarray, "segments k"],
    by_starts: bool,
    finer: bool = False,
) -> list[Predicted]:
    """Every segment's outputs and derivatives. Segments of as many samples and steps are done together.

    ``counts`` are the numbers of steps between the samples of each experiment, doubled ``halvings`` times, and once
    more if ``finer``, by the same program.
    """
    directions = x.size + (starts.shape[1] if by_starts else 0)
    groups: dict[Any, list[int]] = {}
    steps = {}
    for i, segment in enumerate(segments):
        steps[i] = counts[segment.experiment][segment.first : segment.last] * 2**halvings
        setting = experiments[segment.experiment].setting
        shape = tuple((name, value.shape) for name, value in setting.items())
        groups.setdefault((steps[i].size, int(steps[i].max()), shape), []).append(i)
    found: list[Any] = [None] * len(segments)
    for members in groups.values():
        size = max(1, MAX_BATCH // directions)
        for k in range(0, len(members), size):
            part = members[k : k + size]
            filled = part + part[-1:] * (min(size, len(members)) - len(part))  # one shape, one program
            ts = np.stack([_times(experiments, segments[i]) for i in filled])
            between = np.stack([steps[i] for i in filled]) * (1 + finer)
            settings = [experiments[segments[i].experiment].setting for i in filled]
            setting = {name: np.stack([s[name] for s in settings]) for name in settings[0]}
            values, slopes = _predict_with_fallback(prediction, x, starts[filled], ts, between, setting, by_starts)
            for j, i in enumerate(part):
                found[i] = Predicted(*(value[j] for value in values), *(slope[j] for slope in slopes))
    return found


def _times(experiments, segment):
    return experiments[segment.experiment].t[segment.first : segment.last + 1]


def _predict_with_fallback(prediction, x, z, ts, between, setting, by_starts):
    """By the usual method where that is enough; NaN where a search tries masses that no body can have."""
    x, given = jnp.asarray(x), (z, ts, between, setting)

    def found_by(method, members):
        each = jax.tree.map(lambda y: jnp.asarray(y[members]), given)
        found, beyond = _in_parallel(method, prediction, by_starts, x, *each)
        return jax.tree.map(np.array, found), np.asarray(beyond)

    usual, every = prediction.method.usual(), np.arange(len(z))
    if usual is None:
        return found_by(prediction.method, every)[0]
    found, beyond = found_by(same_at_every_level(usual), every)
    if not np.any(beyond):
        return found
    masses = np.asarray(_mass_matrices(prediction, x, *jax.tree.map(jnp.asarray, (z, ts[:, 0], setting))))
    unsound = np.array([bool(complaint_of_mass(M)) for M in masses])
    which = np.flatnonzero(beyond & ~unsound)
    parts = jax.tree.leaves(found)
    for part in parts:
        part[beyond & unsound] = np.nan
    if which.size:
        # As many as a power of two, so that another number of them is the same program.
        size = min(len(z), 2 ** int(np.ceil(np.log2(which.size))))
        again = found_by(prediction.method, np.pad(which, (0, size - which.size), mode="edge"))[0]
        for part, new in zip(parts, jax.tree.leaves(again), strict=True):
            part[which] = new[: which.size]
    return found


@jit_unoptimised
def _mass_matrices(prediction, x, z, t, setting):
    return jax.vmap(lambda *each: prediction.mass(x, *each))(z, t, setting)


@jit
def _in_parallel(method, prediction, by_starts, x, z, ts, between, setting):
    predicted = per_member(partial(prediction.outputs_with, method))

    def one(z, ts, between, setting):
        def of(both):
            x_here, z_here = (both[: x.size], both[x.size :]) if by_starts else (both, z)
            found, beyond = predicted(x_here, z_here, ts, between, setting)
            return found, (found, beyond)

        slopes, (values, beyond) = jax.jacfwd(of, has_aux=True)(jnp.concatenate([x, z]) if by_starts else x)
        return (values, slopes), beyond

    each = z, ts, between, setting
    if len(z) > 1:
        return jax.vmap(one)(*each)
    found = one(*jax.tree.map(lambda leaf: leaf[0], each))  # a single system is factorised by LAPACK
    return jax.tree.map(lambda leaf: leaf[None], found)
