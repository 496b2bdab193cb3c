"""``fit``: estimate parameters from measured motions, by least squares through their simulation."""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import scipy.optimize

from .._check import as_integer, as_number, check_flag, check_function, check_step, check_word, repr_of
from .._contact.moreau_jean import MoreauJean
from .._errors import InputError
from .._functions import vector
from .._motion.inputs import sampling_of
from .._motion.simulate.arguments import DEFAULT_MAX_STEPS, DRIFT_CORRECTIONS, check_steps, tolerances
from .._parameters import Observed, Parameters, check_settings
from .._precision import Numbers
from .._solve import AbstractMethod, choose
from .._system import kinematic_map_of, split_state
from .._with_states import equations_of, with_given_states
from .checkpoint import Checkpoint, fingerprint_of
from .descent import LOSS_DERIVATIVES, descend
from .experiment import Experiment, as_experiments
from .misfit import misfit
from .problem import FTOL, Problem
from .result import Fit
from .segments import Prediction, cut
from .spread import MAX_ROUNDS
from .starts import start_state

if TYPE_CHECKING:
    import optax


def fit(
    model: Any,
    experiments: Experiment | Iterable[Experiment],
    free: str | Iterable[str],
    *,
    observe: Callable | None = None,
    state: Callable | None = None,
    fit_starts: bool = True,
    bounds: Mapping[str, Any] | None = None,
    segments: int = 1,
    continuity: float = 0.1,
    loss: str = "linear",
    dt: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    solver: Any = None,
    method: str | AbstractMethod = "orthogonal",
    drift: str = "none",
    max_steps: int = DEFAULT_MAX_STEPS,
    most_evaluations: int = 100,
    optimiser: "optax.GradientTransformation | None" = None,
    batch: int = 8,
    progress: bool = False,
    checkpoint: str | Path | None = None,
) -> Fit:
    """Estimate parameters of a model from measured motions, by least squares through the simulation.

    ``fit`` minimises  Σ ρ(((y − observe(t, q, v)) / σ)²)  over the parameters and, with ``fit_starts``, the starts of
    all motions. It uses SciPy's ``least_squares`` (trust region, Levenberg–Marquardt steps) with exact derivatives.

    Parameters
    ----------
    model : callable
        The system, with its parameters as fields.
    experiments : Experiment or iterable of Experiment
        The measured motions, which contain y and σ.
    free : str or iterable of str
        Names of the parameters to estimate: ``"m1"`` for a number, or for all entries of an array; ``"ma[2]"`` for one
        entry; ``"arm.length"`` or ``"bodies[2].mass"`` for nested fields.
    observe : callable, optional
        ``observe(t, q, v) -> (outputs,)`` returns the measured outputs. Default: q. If it is an ``equinox.Module``, its
        fields are parameters too: ``"observe.shift"`` in ``free`` estimates the offset of a sensor.
    state : callable, optional
        ``state(model, z, t) -> (q0, v0)`` returns the start for the numbers z, shape (k,), of ``Experiment.start``.
        Default: z is (q0, v0), projected onto the constraints. v0 may contain the values of the first-order states of a
        control; without them, these states begin with their initial values.
    fit_starts : bool, optional
        Whether the starts are estimated too. Default: True.
    bounds : dict, optional
        name -> (lower, upper), each None for no bound; or name -> None for no bounds. Default: a positive parameter
        stays positive.
    segments : int, optional
        Number of pieces of each record, each with its own start (multiple shooting), for motions that are chaotic or
        long. Default: 1.
    continuity : float, optional
        Standard deviation, in units of σ, of the jumps between segments, which are additional residuals. Default: 0.1.
    loss : {"linear", "soft_l1", "huber", "cauchy", "arctan"}, optional
        The function ρ. "linear" is for noise alone; the others are robust to outliers. The standard errors and
        ``Fit.noise`` include outliers in any case.
    dt : float, optional
        Longest time step [s]. Default: the step begins at the distance of the samples. It is halved until its error
        moves no estimate, and no combination of estimates, by more than 0.05 standard errors.
    rtol, atol : float, optional
        Tolerances of adaptive steps, as in ``simulate``. Default: fixed steps.
    solver : optional
        As in ``simulate``. Default: the Runge–Kutta method of order 4 for fixed steps, ``Dopri8`` for adaptive steps.
    method : str or AbstractMethod, optional
        Solver for the accelerations, as in ``simulate``.
    drift : {"none", "projection"}, optional
        As in ``simulate``. Default: "none"; over one segment there is hardly any drift.
    max_steps : int, optional
        Largest number of adaptive steps of each segment.
    most_evaluations : int, optional
        Largest number of evaluations of the residuals; with ``optimiser``, the number of its steps. Default: 100.
    optimiser : optax.GradientTransformation, optional
        Stochastic gradient descent instead of least squares, for very many records: for example ``optax.adam(0.02)``.
        Each step changes a parameter by about the learning rate; 0.01 is 1 % of a parameter that stays positive.
    batch : int, optional
        Number of experiments drawn at random for each step of ``optimiser``. Default: 8.
    progress : bool, optional
        Whether to print a line per step. Default: False.
    checkpoint : path, optional
        JSON file to which the state is written after each step. If it exists, the fit resumes from it.

    Returns
    -------
    Fit
        The model with the estimates, their standard errors and covariance, and warnings about the result.

    Raises
    ------
    InputError
        For bad input, if a parameter has no effect on the outputs, or if there are fewer measured values than unknowns.
        Also if ``checkpoint`` belongs to another fit; the message names the first difference.
    SimulationError
        If the motion from the first guess does not reach the end of the record.

    Warns
    -----
    UserWarning
        If sizes suggest a mistake of units, if the residuals are neither small nor noise, or if the error of the
        integration moves an estimate by more than 0.25 standard errors.

    Notes
    -----
    If ``Experiment.sigma`` is missing, the σ of each output is estimated from its residuals (for a robust ``loss`` from
    their median), in alternation with the parameters. This is maximum likelihood: units do not change the weight of an
    output.

    Motions are integrated by the Runge–Kutta method of order 4 with fixed steps, unless ``rtol``, ``atol`` or
    ``solver`` is given. Fixed steps of an explicit Runge–Kutta method are the fastest; ``solver=Radau()`` is for stiff
    systems. The effect of the integration error on the estimates is computed from the change when all steps are halved,
    or the tolerance of adaptive steps is 16 times smaller; ``Fit.integration`` reports it. Systems with sampled control
    are integrated with adaptive steps between its instants; each set of sample times is compiled separately.

    A checkpoint is valid for the same model, first guess, records and options. ``optimiser``, ``batch`` and
    ``most_evaluations`` may differ.

    Examples
    --------
    Estimate the gravitational acceleration from the motion of a pendulum:

    >>> import numpy as np
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> t = np.linspace(0.0, 2.0, 41)
    >>> start = [0.6, -0.8], [0.0, 0.0]
    >>> motion = uk.simulate(uk.systems.Pendulum(g=9.81), *start, t)
    >>> record = uk.Experiment(t, motion.q, start)
    >>> found = uk.fit(uk.systems.Pendulum(g=9.0), record, "g", fit_starts=False)
    >>> found.values.round(6)
    array([9.81])
    """
    check_function("model", model, "t, q, v")
    experiments = as_experiments(experiments)
    if observe is not None:
        check_function("observe", observe, "t, q, v")
    observed = Observed(model, _positions if observe is None else observe)
    parameters = Parameters.of(observed, free, bounds)
    for experiment in experiments:
        check_settings(observed, experiment.setting, samples=experiment.t.size)
    if state is not None:
        check_function("state", state, "model, z, t")
    _check(experiments, segments, loss, drift)
    most_evaluations, batch = as_integer("most_evaluations", most_evaluations, 1), as_integer("batch", batch, 1)
    continuity = float(as_number("continuity", continuity, above=0))
    check_flag("fit_starts", fit_starts)
    check_flag("progress", progress)
    if optimiser is not None and not callable(getattr(optimiser, "update", None)):
        raise InputError(f"optimiser must be one of optax, such as optax.adam(0.02), got {repr_of(optimiser)}")
    if not isinstance(checkpoint, str | os.PathLike | None):
        raise InputError(f"checkpoint must be the name of a file, got {repr_of(checkpoint)}")
    is_sampled = sampling_of(observed.model) is not None
    if is_sampled:
        _check_sampled(segments, dt)
    _check_states(observed.model, experiments, segments, state)
    adaptive = dt is None and (is_sampled or not (rtol is None and atol is None))
    for experiment in experiments if dt is not None else ():
        check_step(dt, experiment.t)
    if isinstance(solver, MoreauJean):
        raise InputError("solver=MoreauJean() is not available in fit: leave solver out, or use an explicit one")
    first_step = min(float(np.median(np.diff(e.t))) for e in experiments) if dt is None else float(np.asarray(dt))
    check_steps(observed.model, solver, drift, None if adaptive else first_step)
    prediction = Prediction(
        observed=observed,
        parameters=parameters,
        state=start_state(observed, parameters, experiments, not fit_starts, state),
        method=choose(method),
        drift=drift,
        solver=solver,
        dt=None,
        rtol=None,
        atol=None,
        max_steps=as_integer("max_steps", max_steps, 1),
    )
    q0 = _check_outputs(prediction, experiments)
    if adaptive:
        rtol, atol = tolerances(rtol, atol, q0, kinematic_map_of(observed.model))
        prediction = replace(prediction, rtol=rtol, atol=atol)
    elif prediction.fixed_tableau is None:
        prediction = replace(prediction, dt=np.asarray(first_step))
    pieces = cut(experiments, segments)
    saved_state = None
    if checkpoint is not None:
        options = {"dt": dt, "rtol": rtol, "atol": atol, "solver": solver, "drift": drift, "max_steps": max_steps}
        options |= {"segments": segments, "continuity": continuity, "loss": loss}
        fingerprint = fingerprint_of(prediction, experiments, options | {"fit_starts": fit_starts})
        saved_state = Checkpoint(Path(checkpoint), parameters, fingerprint)
    problem = Problem(prediction, experiments, pieces, dt, loss, fit_starts, continuity, progress, saved_state)
    if not problem.steps_given:
        problem.refine(problem.first(), problem.data_noise)
    problem.check_first_guess()
    if optimiser is not None:
        unknowns = descend(problem, optimiser, batch, loss, most_evaluations)
        problem.refine(unknowns)
        return _with_warnings(problem.found(unknowns, most_evaluations, True))
    unknowns, evaluations, converged = _least_squares(problem, loss, most_evaluations)
    return _with_warnings(problem.found(problem.reset_undetermined(unknowns), evaluations, converged))


def _least_squares(problem, loss, most_evaluations):
    """Solve the least-squares problem: (unknowns, number of evaluations, whether it converged).

    The solution is repeated as long as its residuals change the weights of outputs with unknown noise, or the time
    steps are too long.
    """
    unknowns, evaluations, rounds, scale = problem.first(), 0, 0, problem.step_scale()
    while True:
        solution = scipy.optimize.least_squares(
            problem.residuals,
            unknowns,
            problem.jacobian,  # pyright: ignore[reportArgumentType]
            method="trf",
            loss=loss,
            x_scale=scale,
            ftol=FTOL,
            xtol=1e-10,
            gtol=1e-14,
            max_nfev=most_evaluations - evaluations,
        )
        unknowns, evaluations, rounds = solution.x, evaluations + int(solution.nfev), rounds + 1
        changed = rounds < MAX_ROUNDS and problem.reweigh(unknowns)
        changed |= problem.refine(unknowns)
        if not changed or evaluations >= most_evaluations:
            return unknowns, evaluations, bool(solution.status > 0) and not changed


def _with_warnings(result: Fit) -> Fit:
    """Return ``result``; warns if the model does not explain the data, or if the integration is not accurate enough."""
    if text := misfit(result.experiments, result.predicted):
        warnings.warn(text, stacklevel=3)
    if text := result.integration_doubt:
        warnings.warn(text, stacklevel=3)
    return result


def _positions(t, q, v):
    return q


def _check_outputs(prediction, experiments):
    """Check, before anything is compiled, that the start fits the model and that ``observe`` fits the records.

    Returns the shape and type of q.
    """
    z, t = experiments[0].start[..., :].reshape(-1, experiments[0].start.shape[-1])[0], experiments[0].t[0]

    def outputs(z, t):
        q, v, _ = prediction.state(prediction.observed.model, z, t, prediction.method)
        return q, vector("observe", prediction.observed.observe, t, q, v)

    q, predicted = jax.eval_shape(outputs, z, t)
    count = predicted.size
    for i, experiment in enumerate(experiments):
        if experiment.y.shape[1] != count:
            raise InputError(
                f"observe gives {count} outputs, but experiment {i} has {experiment.y.shape[1]}: y must have one "
                "column per output"
            )
    return q


def _check_states(model, experiments, segments, state) -> None:
    """Raise ``InputError`` if a record is cut, and the starts of its pieces do not have the states of the control."""
    if segments == 1 or equations_of(model) is model:
        return
    z, t = experiments[0].start.reshape(-1, experiments[0].start.shape[-1])[0], experiments[0].t[0]
    start = lambda z, t: split_state(model, z) if state is None else tuple(state(model, z, t))
    q, v = (np.zeros(x.shape) for x in jax.eval_shape(start, z, t))
    if with_given_states(model, q, v) is model:
        names = ", ".join(name for name, _ in model.control.states)
        raise InputError(
            f"start must have the states of the control ({names}) after v0 in each row if records are cut into "
            "segments: otherwise each segment would begin with their initial values"
        )


def _check_sampled(segments, dt) -> None:
    if segments != 1:
        raise InputError(
            f"segments must be 1 for a system with sampled control (ukjax.control.Sampled), got {segments}: the inputs "
            "that are held at the start of a later segment are not known"
        )
    if dt is not None:
        raise InputError(
            "dt is not available for a system with sampled control (ukjax.control.Sampled), which is integrated with "
            "adaptive steps between its instants: give rtol, or leave dt out"
        )


def _check(experiments: Sequence[Experiment], segments, loss, drift) -> None:
    if len({e.start.shape[-1] for e in experiments}) > 1:
        raise InputError("the starts of all experiments must have the same number of entries")
    if len({tuple(e.setting) for e in experiments}) > 1:
        raise InputError("every experiment must set the same fields")
    shortest = min(e.t.size for e in experiments)
    if not 1 <= as_integer("segments", segments, 1) < shortest:
        raise InputError(f"segments must be from 1 to {shortest - 1}, one less than the samples, got {segments}")
    check_word("loss", loss, LOSS_DERIVATIVES)
    check_word("drift", drift, DRIFT_CORRECTIONS)
