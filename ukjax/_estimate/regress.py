"""``regress`` and ``missing_force``: the equations of motion, evaluated along a measured motion.

Parameters in which these equations are linear follow from linear least squares.
"""

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
from .._errors import InputError
from .._parameters import Parameters, check_settings, put, with_array
from .._run.compile import jit
from .._system import kinematic_map_of, refuse_contacts, refuse_states
from .._terms import Terms
from .experiment import Experiment, as_experiments
from .identifiability import Identifiability, identifiability
from .result import estimates, table

Model = Callable[..., Terms]
CoordinatesOf = Callable[[Any, Array], Array]

RIDGE = 1e-7
"""Ridge regularisation, relative to the largest singular value. Directions that the data do not determine stay at the
first guess."""

LINEARITY_TOLERANCE = 1e-8
"""Largest relative change of the derivative with respect to a parameter that counts as linear."""


class Regression(eqx.Module):
    """The result of ``regress``. ``print`` shows the estimates and their standard errors.

    Attributes
    ----------
    model : callable
        The model with the estimates.
    names : tuple of str
        Names of the estimated parameters.
    values : array, shape (p,)
        Their estimates, in the units of the parameters.
    identifiability : Identifiability
        Which parameters, or combinations of them, the data determine.
    rms : array, shape (k,)
        Root mean square of the missing force in each measured coordinate.
    """

    model: Any
    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[np.ndarray, " p"]
    identifiability: Identifiability
    rms: Float[np.ndarray, " k"]

    @property
    def errors(self) -> Float[np.ndarray, " p"]:
        """Standard errors of ``values``, shape (p,), infinite for parameters that are not determined."""
        return self.identifiability.errors

    def __str__(self) -> str:
        lines = table(self.names, self.values, self.identifiability)
        return "\n".join([*lines, "missing force, RMS per coordinate: " + " ".join(f"{x:.3g}" for x in self.rms)])

    def as_dict(self) -> dict[str, Any]:
        """The result as a dictionary that JSON can store; None for parameters that are not determined."""
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
    """Estimate parameters in which the equations of motion are linear, by linear least squares.

    ``regress`` minimises  Σ |Jᵀ (M a − Q − c)|²  over all samples. The problem is linear: it has one solution and needs
    no first guess. Masses, first moments, inertias, friction and motor constants enter linearly; lengths do not.

    Parameters
    ----------
    model : callable
        The system, with its parameters as fields. Its velocities are the rates of its coordinates.
    experiments : Experiment or iterable of Experiment
        The measured motions. ``y`` are the measured coordinates s, shape (samples, k), without missing values.
    free : str or iterable of str
        Names of the parameters to estimate, as in ``fit``.
    cutoff : float
        Cutoff frequency [Hz] of the low-pass filter for s and for the equations.
    coordinates_of : callable, optional
        ``coordinates_of(model, s) -> q``, the coordinates (n,) of the model for the measured coordinates s; J = ∂q/∂s.
        Default: q = s, and J is the projection I − A⁺A onto the velocities that the constraints allow.
    bounds : dict, optional
        As in ``fit``. Default: a positive parameter stays positive.

    Returns
    -------
    Regression
        The model with the estimates, and their standard errors. Parameters that the data do not determine keep the
        values of ``model``.

    Raises
    ------
    InputError
        For bad input, or if the equations are not linear in ``free``. Also if the scale of the parameters is not
        determined because all forces are proportional to them: fix a mass, or record torques.

    Notes
    -----
    s passes through a Butterworth filter, forwards and backwards, so that there is no delay. Rates and accelerations
    are those of a spline through the result. The equations pass through the same filter. Each coordinate is weighted by
    the residual of its equation.

    Noise in the records causes a small bias. The estimates are a first guess for ``fit``; with recorded torques they
    can be final.
    """
    check_function("model", model, "t, q, v")
    experiments = as_experiments(experiments)
    parameters = Parameters.of(model, free, bounds)
    _check(model, experiments, cutoff, coordinates_of)
    motions = [_differentiated(experiment, cutoff) for experiment in experiments]
    slopes = [_force_and_slope(model, parameters, motion, coordinates_of) for motion in motions]
    _check_linear(model, parameters, motions[0], coordinates_of)
    _check_scale(model, parameters, motions, coordinates_of)
    first = np.asarray(parameters.first)
    size = np.where(first == 0, 1.0, np.abs(first))
    force = np.concatenate([motion.smooth(y) for motion, (y, _) in zip(motions, slopes, strict=True)])
    Y = (
        np.concatenate([motion.smooth(derivative) for motion, (_, derivative) in zip(motions, slopes, strict=True)])
        * size
    )
    lower, upper = ((np.asarray(x) - first) / size for x in (parameters.lower, parameters.upper))
    weight = np.ones(force.shape[1])
    for _ in range(3):
        x = _solve(Y / weight[:, None], -force / weight, lower, upper)
        residual = force + Y @ x
        rms = np.sqrt(np.mean(residual**2, axis=0))
        weight = np.maximum(rms, 1e-9 * np.max(np.abs(force), initial=1e-300))
    values = first + size * x
    scale = np.maximum(np.abs(values), size)
    rows = (Y / weight[:, None] * scale / size).reshape(-1, len(first))
    degrees = max(1, len(rows) - np.linalg.matrix_rank(rows))
    noise = float(np.sqrt(np.sum((residual / weight) ** 2) / degrees))
    none_logarithmic = np.zeros(len(first), bool)
    known = identifiability(parameters.names, values, scale, none_logarithmic, rows, np.zeros((len(rows), 0)), noise)
    fitted = put(model, parameters.places, jnp.asarray(values))
    return Regression(fitted, parameters.names, values, known, rms)


def missing_force(
    model: Model, experiment: Experiment, *, cutoff: float, coordinates_of: CoordinatesOf | None = None
) -> tuple[Float[np.ndarray, " samples"], Float[np.ndarray, "samples k"]]:
    """Compute the force that a model lacks for a measured motion:  Jᵀ (M a − Q − c)  (inverse dynamics).

    Parameters
    ----------
    model : callable
        The system. Its velocities are the rates of its coordinates.
    experiment : Experiment
        The measured motion. ``y`` are the measured coordinates s, shape (samples, k), without missing values.
    cutoff : float
        Cutoff frequency [Hz] of the low-pass filter, as in ``regress``.
    coordinates_of : callable, optional
        ``coordinates_of(model, s) -> q``, as in ``regress``.

    Returns
    -------
    t : array, shape (times,)
        Times [s], spaced so that the filtered values are independent, without both ends of the record.
    force : array, shape (times, k)
        Generalised force in each measured coordinate.

    Raises
    ------
    InputError
        For bad input.
    """
    check_function("model", model, "t, q, v")
    if not isinstance(experiment, Experiment):
        raise InputError(f"experiment must be a ukjax.Experiment, got {kind_of(experiment)}")
    _check(model, (experiment,), cutoff, coordinates_of)
    motion = _differentiated(experiment, cutoff)
    return motion.t[motion.kept], motion.smooth(np.asarray(_force(_set(model, motion.setting), motion, coordinates_of)))


class _FilteredMotion(eqx.Module):
    """A measured motion after the filter, at equally spaced times: s, its rate and its acceleration, (samples, k)."""

    t: np.ndarray
    s: np.ndarray
    rate: np.ndarray
    acceleration: np.ndarray
    setting: dict[str, np.ndarray]
    cutoff: float

    def smooth(self, x: np.ndarray) -> np.ndarray:
        """x after the filter, at the samples ``kept``."""
        return _low_pass(x, self.t, self.cutoff)[self.kept]

    @property
    def kept(self) -> np.ndarray:
        """Indices of samples that are independent after the filter, without both ends of the record."""
        step = self.t[1] - self.t[0]
        margin, every = int(np.ceil(2 / (self.cutoff * step))), max(1, round(0.5 / (self.cutoff * step)))
        return np.arange(margin, len(self.t) - margin, every)


def _differentiated(experiment: Experiment, cutoff: float) -> _FilteredMotion:
    """Filter a measured motion and differentiate it by a spline."""
    t = np.linspace(experiment.t[0], experiment.t[-1], experiment.t.size)
    s = _low_pass(scipy.interpolate.make_interp_spline(experiment.t, experiment.y, k=3)(t), t, cutoff)
    smooth = scipy.interpolate.make_interp_spline(t, s, k=5)
    return _FilteredMotion(t, s, smooth(t, 1), smooth(t, 2), experiment.setting, cutoff)


def _low_pass(x, t, cutoff):
    """Butterworth filter of order 4, forwards and backwards."""
    b, a = scipy.signal.butter(4, cutoff * 2 * (t[1] - t[0]))  # pyright: ignore[reportAssignmentType]
    return scipy.signal.filtfilt(b, a, x, axis=0)


@jit
def _force(model, motion, coordinates_of):
    """The missing force  Jᵀ (M a − Q − c),  shape (samples, k)."""

    def force_at(t, s, rate, acceleration):
        if coordinates_of is None:
            q, v, a = s, rate, acceleration
        else:
            coordinates = partial(coordinates_of, model)
            velocity = lambda s, rate: jax.jvp(coordinates, (s,), (rate,))[1]
            q = coordinates(s)
            v, a = jax.jvp(velocity, (s, rate), (rate, acceleration))
        terms = model(t, q, v)
        missing = terms.M @ a - terms.Q - (0 if terms.c is None else terms.c)
        if coordinates_of is None:
            return missing - jnp.linalg.pinv(terms.A) @ (terms.A @ missing) if terms.b.size else missing
        return jax.vjp(coordinates, s)[1](missing)[0]

    return jax.lax.map(lambda x: force_at(*x), (motion.t, motion.s, motion.rate, motion.acceleration), batch_size=256)


def _set(model, setting):
    """The model with the fields of a setting."""
    for name, value in setting.items():
        model = with_array(model, name, jnp.asarray(value))
    return model


def _force_and_slope(model, parameters, motion, coordinates_of, values=None):
    """The missing force and its derivative with respect to the parameters, at ``values`` (None: those of the model)."""
    model = _set(model, motion.setting)

    def force_at(x):
        force = _force(put(model, parameters.places, x), motion, coordinates_of)
        return force, force

    slope, force = jax.jacfwd(force_at, has_aux=True)(parameters.first if values is None else values)
    return np.asarray(force), np.asarray(slope)


def _solve(Y, force, lower, upper):
    """The bounded least-squares solution of  Y x = force,  with minimum norm where Y does not determine x."""
    rows = Y.reshape(-1, Y.shape[-1])
    ridge = RIDGE * np.linalg.norm(rows, ord=2) * np.eye(rows.shape[1])
    rows, rhs = np.concatenate([rows, ridge]), np.append(force.reshape(-1), np.zeros(rows.shape[1]))
    return scipy.optimize.lsq_linear(rows, rhs, bounds=(lower, upper), method="bvls", tol=1e-12).x


def _check(model, experiments: Sequence[Experiment], cutoff, coordinates_of) -> None:
    refuse_contacts("inverse dynamics of records", model)
    refuse_states("inverse dynamics of records", model)
    if kinematic_map_of(model) is not None:
        raise InputError(
            "model must have the rates of its coordinates as velocities, but has a kinematic map: use ukjax.fit"
        )
    cutoff = float(as_number("cutoff", cutoff, "Hz", above=0))
    if coordinates_of is not None:
        check_function("coordinates_of", coordinates_of, "model, s")
    for i, experiment in enumerate(experiments):
        check_settings(model, experiment.setting, samples=experiment.t.size)
        if not np.all(experiment.measured):
            raise InputError(
                f"experiment {i} must have all values, since regress computes differences of samples, and some are "
                "missing: use ukjax.fit"
            )
        highest = 0.5 * (experiment.t.size - 1) / (experiment.t[-1] - experiment.t[0])
        if not 0 < cutoff < highest:
            raise InputError(
                f"cutoff must lie below half the samples per second, {highest:.4g} Hz in experiment {i}, "
                f"got {cutoff:g} Hz"
            )
        if experiment.t.size * cutoff / highest < 24:
            raise InputError(
                f"experiment {i} is too short for a cutoff of {cutoff:g} Hz: it must last several of its periods"
            )


def _check_linear(model, parameters, motion, coordinates_of) -> None:
    subset = eqx.tree_at(
        lambda m: (m.t, m.s, m.rate, m.acceleration),
        motion,
        tuple(x[:: max(1, len(motion.t) // 50)] for x in (motion.t, motion.s, motion.rate, motion.acceleration)),
    )
    slope_at_first = _force_and_slope(model, parameters, subset, coordinates_of)[1]
    step = 0.3 * jnp.where(parameters.first == 0, 1.0, jnp.abs(parameters.first))
    is_nonlinear = lambda slope, i: (
        np.max(np.abs(slope[..., i] - slope_at_first[..., i]))
        > LINEARITY_TOLERANCE * np.max(np.abs(slope_at_first[..., i]))
    )
    for i, name in enumerate(parameters.names):
        if is_nonlinear(
            _force_and_slope(model, parameters, subset, coordinates_of, parameters.first.at[i].add(step[i]))[1], i
        ):
            raise InputError(
                f"free parameter {name!r} does not enter the equations of motion linearly: regress estimates masses, "
                "first moments, inertias and friction; use ukjax.fit for other parameters"
            )
    slope = _force_and_slope(model, parameters, subset, coordinates_of, parameters.first + step)[1]
    if coupled := [name for i, name in enumerate(parameters.names) if is_nonlinear(slope, i)]:
        raise InputError(
            f"the free parameters {', '.join(coupled)} multiply each other in the equations of motion: leave one of "
            "them out of free"
        )


def _check_scale(model, parameters, motions, coordinates_of) -> None:
    """Raise ``InputError`` if some nonzero parameters make all forces vanish, so that their scale is not determined.

    The accelerations are permuted in time: forces that still cancel cancel for every motion.
    """
    parts = []
    for motion in motions:
        permuted = np.random.default_rng(0).permutation(motion.acceleration)
        force, slope = _force_and_slope(
            model, parameters, eqx.tree_at(lambda m: m.acceleration, motion, permuted), coordinates_of
        )
        parts.append((force.ravel(), slope.reshape(-1, len(parameters.names))))
    force, Y = np.concatenate([f for f, _ in parts]), np.concatenate([s for _, s in parts])
    constant_part = force - Y @ np.asarray(parameters.first)
    residual = constant_part - Y @ np.linalg.lstsq(Y, constant_part, rcond=1e-12)[0]
    if np.linalg.norm(residual) <= 1e-9 * np.linalg.norm(force):
        raise InputError(
            "the records determine the free parameters only up to a common factor, since no force is known: leave one "
            f"of them ({', '.join(parameters.names)}) out of free, at a known value, or record torques"
        )
