"""Cut measured motions into segments, and simulate these as batches, with derivatives."""

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
from .._motion.inputs import sampling_of
from .._motion.integrate.event_driven import contact_loop
from .._motion.integrate.fixed_step import fixed_step_loop
from .._motion.problem import InitialState
from .._motion.simulate.simulate import simulate
from .._motion.stepper.contact_setting import compiled
from .._motion.stepper.drift_correction import MethodPerLevel, same_at_every_level
from .._motion.stepper.explicit import RungeKutta
from .._motion.stepper.scaling import scale_of
from .._motion.stepper.tableau import RUNGE_KUTTA4, Tableau, order_of, tableau_of
from .._parameters import Observed, Parameters, with_array
from .._run.compile import jit, jit_unoptimised
from .._solve import AbstractMethod
from .._system import AbstractSystem, mass_of
from .._with_states import equations_of
from .experiment import Experiment
from .integration import TOLERANCE_FACTOR

MAX_BATCH = 4096
"""Largest number of motions times derivatives in a batch; its data fit into a core's caches."""


class Segment(NamedTuple):
    """Samples ``first`` to ``last`` (inclusive) of an experiment.

    Unless the segment is ``final``, its last sample is the first sample of the next segment, which compares it with the
    measurement.
    """

    experiment: int
    first: int
    last: int
    final: bool


class Predicted(NamedTuple):
    """The simulation of one segment.

    Attributes
    ----------
    outputs : array, shape (samples, outputs)
        Predicted outputs.
    begin, end : array, shape (nq + n,)
        First and last state.
    outputs_jacobian, begin_jacobian, end_jacobian : array
        Derivatives of these along the last axis, with respect to x, shape (p,), and, if the starts are estimated, the
        start z of the segment, shape (k,).
    """

    outputs: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    outputs_jacobian: np.ndarray
    begin_jacobian: np.ndarray
    end_jacobian: np.ndarray


class Prediction(eqx.Module):
    """The functions that predict outputs from parameters x and a start z. The fields are explained in ``fit``.

    ``rtol`` is None for fixed steps. ``dt`` is the length of fixed steps of a solver that is not an explicit
    Runge–Kutta method.
    """

    observed: Observed
    parameters: Parameters
    state: Callable
    method: AbstractMethod
    drift: str = eqx.field(static=True)
    solver: Any
    dt: Any
    rtol: Any
    atol: Any
    max_steps: int = eqx.field(static=True)

    def outputs_with(
        self,
        method: AbstractMethod | MethodPerLevel,
        x: Array,
        z: Array,
        ts: Array,
        step_counts: Array,
        step_factor: Array,
        setting: dict[str, Array],
        times: tuple[float, ...] | None = None,
    ) -> tuple[Any, Bool[Array, ""]]:
        """(outputs, first state, last state) of one segment, and whether another method is needed.

        ``step_counts`` are the numbers of steps of a Runge–Kutta method between the samples. The steps of other
        solvers, and those of a tolerance, are scaled by ``step_factor``. ``times`` are the values of ``ts``, where the
        instants of sampled control must be known.
        """
        observed = self.observed_with(x, setting)
        q0, v0, needs_fallback = self.state(observed.model, z, ts[0], method)
        model = equations_of(observed.model)
        if self.fixed_tableau is None:
            at = ts if times is None else np.asarray(times, ts.dtype)
            q, v, beyond = self._simulated(method, observed.model, q0, v0, at, step_factor)
        elif isinstance(model, AbstractSystem) and model.nonsmooth:
            initial = InitialState(q0, v0, scale_of(model, ts[0], q0, v0, ts[-1] - ts[0], driven=False))
            q, v, beyond = contact_loop(model, initial, ts, step_counts, method, self.fixed_tableau)
        else:
            initial = InitialState(q0, v0, scale_of(model, ts[0], q0, v0, ts[-1] - ts[0], driven=False))
            options = None, method, RungeKutta(self.fixed_tableau), self.drift == "projection"
            q, v, _, flags = fixed_step_loop(lambda _: model, initial, ts, step_counts, *options)
            beyond = flags.beyond
        outputs = jax.lax.map(lambda sample: vector("observe", observed.observe, *sample), (ts, q, v))
        return (outputs, jnp.concatenate([q[0], v[0]]), jnp.concatenate([q[-1], v[-1]])), needs_fallback | beyond

    def _simulated(self, method, model, q0, v0, ts, step_factor):
        """The samples by ``simulate``: q, v, and that no other method is needed."""
        motion = simulate(
            model,
            q0,
            v0,
            ts,
            drift=self.drift,
            dt=None if self.dt is None else self.dt * step_factor,
            rtol=None if self.rtol is None else self.rtol * step_factor ** np.log2(TOLERANCE_FACTOR),
            atol=None if self.atol is None else self.atol * step_factor ** np.log2(TOLERANCE_FACTOR),
            method=method,
            solver=self.solver,
            max_steps=self.max_steps,
            throw=False,
        )
        return motion.q, motion.v, jnp.zeros((), bool)

    @property
    def fixed_tableau(self) -> Tableau | None:
        """The Butcher tableau of an explicit Runge–Kutta method with fixed steps, None for other steps."""
        if self.rtol is not None:
            return None
        return RUNGE_KUTTA4 if self.solver is None else tableau_of(self.solver)

    @property
    def reduction(self) -> float:
        """The factor by which the integration error decreases with half the steps, or the smaller tolerance."""
        if self.rtol is not None:
            return TOLERANCE_FACTOR
        return 2.0 ** (RUNGE_KUTTA4.order if self.solver is None else order_of(self.solver))

    def observed_with(self, x: Array, setting: dict[str, Array]) -> Observed:
        """The model and its outputs with the parameters x and the setting of an experiment."""
        observed = self.parameters.put(self.observed, x)
        for name, value in setting.items():
            observed = with_array(observed, name, value)
        return observed

    def compiled(self, function: Callable, z: Array, t: Array) -> Callable:
        """``function`` of one segment as a kernel, or by XLA if there are many contact rows."""
        model = self.observed.model
        if self.fixed_tableau is None:
            return function  # ``simulate`` compiles its own kernels
        if not isinstance(model, AbstractSystem) or not model.nonsmooth:
            return per_member(function)
        q, v, _ = jax.eval_shape(lambda z, t: self.state(model, z, t, self.method), z, t)
        return compiled(function, equations_of(model), q, v)

    def mass(self, x: Array, z: Array, t: Array, setting: dict[str, Array]) -> Float[Array, "n n"]:
        """The mass matrix at the start of a motion."""
        model = self.observed_with(x, setting).model
        q, v, _ = self.state(model, z, t, self.method)
        return mass_of(equations_of(model), t, q, v) if isinstance(model, AbstractSystem) else model(t, q, v).M


def cut(experiments: Sequence[Experiment], segments: int) -> list[Segment]:
    """Cut every experiment into ``segments`` pieces of about the same length."""
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
    """Outputs and derivatives of every segment. Segments with equal numbers of samples and steps form a batch.

    ``counts`` are the numbers of steps between the samples of each experiment. They are doubled ``halvings`` times, and
    once more if ``finer``; the same compiled program is used for both. Other steps are refined likewise.
    """
    derivatives = x.size + (starts.shape[1] if by_starts else 0)
    known_times = sampling_of(prediction.observed.model) is not None
    groups: dict[Any, list[int]] = {}
    steps = {}
    for i, segment in enumerate(segments):
        steps[i] = counts[segment.experiment][segment.first : segment.last] * 2**halvings
        setting = experiments[segment.experiment].setting
        shape = tuple((name, value.shape) for name, value in setting.items())
        times = tuple(_times(experiments, segment).tolist()) if known_times else None
        groups.setdefault((steps[i].size, int(steps[i].max()), shape, times), []).append(i)
    predictions: list[Any] = [None] * len(segments)
    for (*_, times), group in groups.items():
        batch_size = max(1, MAX_BATCH // derivatives)
        for k in range(0, len(group), batch_size):
            batch = group[k : k + batch_size]
            padded = batch + batch[-1:] * (
                min(batch_size, len(group)) - len(batch)
            )  # equal shapes use one compiled program
            ts = np.stack([_times(experiments, segments[i]) for i in padded])
            step_counts = np.stack([steps[i] for i in padded]) * (1 + finer)
            settings = [experiments[segments[i].experiment].setting for i in padded]
            setting = {name: np.stack([s[name] for s in settings]) for name in settings[0]}
            factor = np.full(len(padded), 0.5 ** (halvings + finer))
            inputs = starts[padded], ts, step_counts, factor, setting
            values, slopes = _predict_with_fallback(prediction, x, inputs, by_starts, times)
            for j, i in enumerate(batch):
                predictions[i] = Predicted(*(value[j] for value in values), *(slope[j] for slope in slopes))
    return predictions


def _times(experiments, segment):
    return experiments[segment.experiment].t[segment.first : segment.last + 1]


def _predict_with_fallback(prediction, x, batch, by_starts, times):
    """Simulate with the fast-path solver, and again with the requested one where that fails.

    The result is NaN if a search tries parameters for which the mass matrix is invalid.
    """
    x, (z, ts, _, _, setting) = jnp.asarray(x), batch

    def predict_with(method, rows):
        inputs = jax.tree.map(lambda y: jnp.asarray(y[rows]), batch)
        results, failed = _in_parallel(method, prediction, by_starts, times, x, *inputs)
        return jax.tree.map(np.array, results), np.asarray(failed)

    # ``simulate`` has its own fallback.
    fast = None if prediction.fixed_tableau is None else prediction.method.fast_path()
    all_rows = np.arange(len(z))
    if fast is None:
        return predict_with(prediction.method, all_rows)[0]
    results, failed = predict_with(same_at_every_level(fast), all_rows)
    if not np.any(failed):
        return results
    masses = np.asarray(_mass_matrices(prediction, x, *jax.tree.map(jnp.asarray, (z, ts[:, 0], setting))))
    invalid_mass = np.array([bool(complaint_of_mass(M)) for M in masses])
    retried = np.flatnonzero(failed & ~invalid_mass)
    leaves = jax.tree.leaves(results)
    for leaf in leaves:
        leaf[failed & invalid_mass] = np.nan
    if retried.size:
        # Padded to a power of two, so that few different shapes are compiled.
        padded_size = min(len(z), 2 ** int(np.ceil(np.log2(retried.size))))
        retried_results = predict_with(
            prediction.method, np.pad(retried, (0, padded_size - retried.size), mode="edge")
        )[0]
        for leaf, retried_leaf in zip(leaves, jax.tree.leaves(retried_results), strict=True):
            leaf[retried] = retried_leaf[: retried.size]
    return results


@jit_unoptimised
def _mass_matrices(prediction, x, z, t, setting):
    return jax.vmap(lambda *member: prediction.mass(x, *member))(z, t, setting)


@jit
def _in_parallel(method, prediction, by_starts, times, x, z, ts, step_counts, step_factor, setting):
    """Simulate a batch of segments with derivatives: ((values, derivatives), failed)."""
    predicted = prediction.compiled(partial(prediction.outputs_with, method, times=times), z[0], ts[0, 0])

    def one_segment(z, ts, step_counts, step_factor, setting):
        def evaluate(variables):
            x_i, z_i = (variables[: x.size], variables[x.size :]) if by_starts else (variables, z)
            results, failed = predicted(x_i, z_i, ts, step_counts, step_factor, setting)
            return results, (results, failed)

        slopes, (values, failed) = jax.jacfwd(evaluate, has_aux=True)(jnp.concatenate([x, z]) if by_starts else x)
        return (values, slopes), failed

    inputs = z, ts, step_counts, step_factor, setting
    if len(z) > 1:
        return jax.vmap(one_segment)(*inputs)
    results = one_segment(*jax.tree.map(lambda leaf: leaf[0], inputs))  # a single system is factorised by LAPACK
    return jax.tree.map(lambda leaf: leaf[None], results)
