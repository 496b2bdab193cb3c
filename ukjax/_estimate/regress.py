"""Inertial parameters by linear least squares: what the equation of motion says of a motion that was seen."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.interpolate
import scipy.optimize
import scipy.signal
from jaxtyping import Array, Float

from .._check import as_number, check_function, kind_of
from .._parameters import Parameters, check_settings, put, with_array
from .._run.compile import jit
from .._system import kinematic_map_of
from .._terms import Terms
from .experiment import Experiment, as_experiments
from .identifiability import Identifiability, identifiability
from .result import estimates, table

Model = Callable[..., Terms]
CoordinatesOf = Callable[[Any, Array], Array]

RIDGE = 1e-7
"""Of the strongest direction: what holds directions that the data do not tell at the first guess."""

LINEARITY_TOLERANCE = 1e-8
"""How much the slope by a parameter may change, if it is to count as linear."""


class Regression(eqx.Module):
    """What ``regress`` found: ``model`` with the estimates in it.

    ``values`` ± ``errors`` (p,) of the parameters ``names``, an error infinite where the data do not determine the
    parameter alone; ``identifiability`` as in ``Fit``. ``rms`` (k,) is the root mean square of the force that is
    missing in each of the measured coordinates.
    """

    model: Any
    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[np.ndarray, " p"]
    identifiability: Identifiability
    rms: Float[np.ndarray, " k"]

    @property
    def errors(self) -> Float[np.ndarray, " p"]:
        """Standard errors of ``values``, infinite for what is not determined."""
        return self.identifiability.errors

    def __str__(self) -> str:
        lines = table(self.names, self.values, self.identifiability)
        return "\n".join([*lines, "missing force, RMS per coordinate: " + " ".join(f"{x:.3g}" for x in self.rms)])

    def as_dict(self) -> dict[str, Any]:
        """The table as plain numbers, None for what is not determined."""
        return estimates(self.names, self.values, self.identifiability) | {"rms": self.rms.tolist()}


def regress(
    model: Model,
    experiments: Experiment | Iterable[Experiment],
    free: str | Iterable[str],
    *,
    cutoff: float,
    coordinates_of: CoordinatesOf | None = None,
    bounds: Mapping[str, Any] | None = None,
) -> Regression:
    """The parameters ``free``, in which the equations of motion are linear, that leave the least force missing:

    minimises  Σ |Jᵀ (M a − Q − c)|²  over all samples, a linear problem with one solution, which needs no first guess.
    Masses, first moments, inertias, friction and motor constants enter linearly, lengths do not.

    ``Experiment.y`` holds measured coordinates s (samples, k), every sample of them; ``coordinates_of(model, s)``
    returns the coordinates q (n,) of the model for these, and J = ∂q/∂s. Left out, s is q, and J the projection I − A⁺A
    onto what the constraints let happen. Rates and accelerations are those of a spline through s behind a filter
    (Butterworth, both ways, so that nothing is late) that passes up to ``cutoff`` [Hz]; the equations pass through the
    same filter. Coordinates count by how well their equation holds. ``bounds`` as in ``fit``: what is positive stays
    so. What the data do not tell stays at the model's values.

    The noise of a record bends the estimates a little: they are a start for ``fit``, or, where torques were recorded,
    an end. Raises ``ValueError`` for parameters that are not linear, motions that fix no scale (nothing known
    is left for the free parameters to balance: hold a mass, or record torques), and bad input.
    """
    check_function("model", model, "t, q, v")
    experiments = as_experiments(experiments)
    parameters = Parameters.of(model, free, bounds)
    _check(model, experiments, cutoff, coordinates_of)
    seen = [_differentiated(experiment, cutoff) for experiment in experiments]
    slopes = [_force_and_slope(model, parameters, motion, coordinates_of) for motion in seen]
    _check_linear(model, parameters, seen[0], coordinates_of)
    _check_scale(model, parameters, seen, coordinates_of)
    first = np.asarray(parameters.first)
    size = np.where(first == 0, 1.0, np.abs(first))
    force = np.concatenate([motion.smooth(y) for motion, (y, _) in zip(seen, slopes, strict=True)])
    Y = np.concatenate([motion.smooth(by) for motion, (_, by) in zip(seen, slopes, strict=True)]) * size
    lower, upper = ((np.asarray(x) - first) / size for x in (parameters.lower, parameters.upper))
    weight = np.ones(force.shape[1])
    for _ in range(3):
        x = _solve(Y / weight[:, None], -force / weight, lower, upper)
        left = force + Y @ x
        rms = np.sqrt(np.mean(left**2, axis=0))
        weight = np.maximum(rms, 1e-9 * np.max(np.abs(force), initial=1e-300))
    values = first + size * x
    scale = np.maximum(np.abs(values), size)
    rows = (Y / weight[:, None] * scale / size).reshape(-1, len(first))
    freedom = max(1, len(rows) - np.linalg.matrix_rank(rows))
    noise = float(np.sqrt(np.sum((left / weight) ** 2) / freedom))
    no = np.zeros(len(first), bool)
    known = identifiability(parameters.names, values, scale, no, rows, np.zeros((len(rows), 0)), noise)
    fitted = put(model, parameters.places, jnp.asarray(values))
    return Regression(fitted, parameters.names, values, known, rms)


def missing_force(
    model: Model, experiment: Experiment, *, cutoff: float, coordinates_of: CoordinatesOf | None = None
) -> tuple[Float[np.ndarray, " samples"], Float[np.ndarray, "samples k"]]:
    """Times [s] and Jᵀ (M a − Q − c), the force in each measured coordinate that ``model`` lacks for the motion that
    was measured: inverse dynamics. Arguments and equation as in ``regress``."""
    check_function("model", model, "t, q, v")
    if not isinstance(experiment, Experiment):
        raise ValueError(f"experiment must be a ukjax.Experiment, got {kind_of(experiment)}")
    _check(model, (experiment,), cutoff, coordinates_of)
    seen = _differentiated(experiment, cutoff)
    return seen.t[seen.kept], seen.smooth(np.asarray(_force(_set(model, seen.setting), seen, coordinates_of)))


class _FilteredMotion(eqx.Module):
    """A measured motion at equal times, behind its filter."""

    t: np.ndarray
    s: np.ndarray
    rate: np.ndarray
    acceleration: np.ndarray
    setting: dict[str, np.ndarray]
    cutoff: float

    def smooth(self, x: np.ndarray) -> np.ndarray:
        """x behind the filter, but for both ends, and no more samples of it than are independent."""
        return _low_pass(x, self.t, self.cutoff)[self.kept]

    @property
    def kept(self) -> np.ndarray:
        step = self.t[1] - self.t[0]
        margin, every = int(np.ceil(2 / (self.cutoff * step))), max(1, round(0.5 / (self.cutoff * step)))
        return np.arange(margin, len(self.t) - margin, every)


def _differentiated(experiment: Experiment, cutoff: float) -> _FilteredMotion:
    t = np.linspace(experiment.t[0], experiment.t[-1], experiment.t.size)
    s = _low_pass(scipy.interpolate.make_interp_spline(experiment.t, experiment.y, k=3)(t), t, cutoff)
    smooth = scipy.interpolate.make_interp_spline(t, s, k=5)
    return _FilteredMotion(t, s, smooth(t, 1), smooth(t, 2), experiment.setting, cutoff)


def _low_pass(x, t, cutoff):
    b, a = scipy.signal.butter(4, cutoff * 2 * (t[1] - t[0]))  # pyright: ignore[reportAssignmentType]
    return scipy.signal.filtfilt(b, a, x, axis=0)


@jit
def _force(model, seen, coordinates_of):
    """Jᵀ (M a − Q − c), (samples, k)."""

    def at(t, s, rate, acceleration):
        if coordinates_of is None:
            q, v, a = s, rate, acceleration
        else:
            to = partial(coordinates_of, model)
            velocity = lambda s, rate: jax.jvp(to, (s,), (rate,))[1]
            q = to(s)
            v, a = jax.jvp(velocity, (s, rate), (rate, acceleration))
        terms = model(t, q, v)
        missing = terms.M @ a - terms.Q - (0 if terms.c is None else terms.c)
        if coordinates_of is None:
            return missing - jnp.linalg.pinv(terms.A) @ (terms.A @ missing) if terms.b.size else missing
        return jax.vjp(to, s)[1](missing)[0]

    return jax.lax.map(lambda x: at(*x), (seen.t, seen.s, seen.rate, seen.acceleration), batch_size=256)


def _set(model, setting):
    for name, value in setting.items():
        model = with_array(model, name, jnp.asarray(value))
    return model


def _force_and_slope(model, parameters, seen, coordinates_of, at=None):
    """The missing force at the values ``at``, the model's if None, and its derivative by the parameters."""
    model = _set(model, seen.setting)

    def of(values):
        force = _force(put(model, parameters.places, values), seen, coordinates_of)
        return force, force

    slope, force = jax.jacfwd(of, has_aux=True)(parameters.first if at is None else at)
    return np.asarray(force), np.asarray(slope)


def _solve(Y, force, lower, upper):
    """The bounded least-squares solution that is nearest to 0 where Y does not tell."""
    rows = Y.reshape(-1, Y.shape[-1])
    ridge = RIDGE * np.linalg.norm(rows, ord=2) * np.eye(rows.shape[1])
    rows, right = np.concatenate([rows, ridge]), np.append(force.reshape(-1), np.zeros(rows.shape[1]))
    return scipy.optimize.lsq_linear(rows, right, bounds=(lower, upper), method="bvls", tol=1e-12).x


def _check(model, experiments: Sequence[Experiment], cutoff, coordinates_of) -> None:
    if kinematic_map_of(model) is not None:
        raise ValueError("model must have the rates of its coordinates for velocities, which this has not: use fit")
    cutoff = float(as_number("cutoff", cutoff, "Hz", above=0))
    if coordinates_of is not None:
        check_function("coordinates_of", coordinates_of, "model, s")
    for i, experiment in enumerate(experiments):
        check_settings(model, experiment.setting, samples=experiment.t.size)
        if not np.all(experiment.measured):
            raise ValueError(f"experiment {i} lacks values: differences need every sample; fit does without")
        highest = 0.5 * (experiment.t.size - 1) / (experiment.t[-1] - experiment.t[0])
        if not 0 < cutoff < highest:
            raise ValueError(
                f"cutoff must lie below half the samples per second, {highest:.4g} Hz in experiment {i}, "
                f"got {cutoff:g} Hz"
            )
        if experiment.t.size * cutoff / highest < 24:
            raise ValueError(
                f"experiment {i} is too short for a cutoff of {cutoff:g} Hz: it must last several of its periods"
            )


def _check_linear(model, parameters, seen, coordinates_of) -> None:
    few = eqx.tree_at(
        lambda m: (m.t, m.s, m.rate, m.acceleration),
        seen,
        tuple(x[:: max(1, len(seen.t) // 50)] for x in (seen.t, seen.s, seen.rate, seen.acceleration)),
    )
    here = _force_and_slope(model, parameters, few, coordinates_of)[1]
    step = 0.3 * jnp.where(parameters.first == 0, 1.0, jnp.abs(parameters.first))
    bent = lambda there, i: (
        np.max(np.abs(there[..., i] - here[..., i])) > LINEARITY_TOLERANCE * np.max(np.abs(here[..., i]))
    )
    for i, name in enumerate(parameters.names):
        if bent(_force_and_slope(model, parameters, few, coordinates_of, parameters.first.at[i].add(step[i]))[1], i):
            raise ValueError(
                f"free parameter {name!r} does not enter the equations of motion linearly: regress finds masses, first "
                "moments, inertias and friction; leave the rest to fit"
            )
    there = _force_and_slope(model, parameters, few, coordinates_of, parameters.first + step)[1]
    if together := [name for i, name in enumerate(parameters.names) if bent(there, i)]:
        raise ValueError(
            f"the free parameters {', '.join(together)} multiply each other in the equations of motion: hold one of "
            "them"
        )


def _check_scale(model, parameters, motions, coordinates_of) -> None:
    """With accelerations that belong to other instants, nothing balances but what always does."""
    found = []
    for seen in motions:
        wrong = np.random.default_rng(0).permutation(seen.acceleration)
        force, slope = _force_and_slope(
            model, parameters, eqx.tree_at(lambda m: m.acceleration, seen, wrong), coordinates_of
        )
        found.append((force.ravel(), slope.reshape(-1, len(parameters.names))))
    force, Y = np.concatenate([f for f, _ in found]), np.concatenate([s for _, s in found])
    rest = force - Y @ np.asarray(parameters.first)
    left = rest - Y @ np.linalg.lstsq(Y, rest, rcond=1e-12)[0]
    if np.linalg.norm(left) <= 1e-9 * np.linalg.norm(force):
        raise ValueError(
            "the free parameters can make every force vanish, so that nothing says how large they are: hold one of "
            f"them ({', '.join(parameters.names)}) at a known value, or record torques"
        )
