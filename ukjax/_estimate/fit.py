"""Parameters from measured motions, by gradients through their simulation."""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import scipy.optimize

from .._check import as_integer, as_number, check_flag, check_function, check_step, check_word, repr_of
from .._functions import vector
from .._parameters import Observed, Parameters, check_settings
from .._solve import AbstractMethod, choose
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
    dt: float | None = None,
    drift: str = "none",
    segments: int = 1,
    continuity: float = 0.1,
    loss: str = "linear",
    method: str | AbstractMethod = "orthogonal",
    most_evaluations: int = 100,
    optimiser: "optax.GradientTransformation | None" = None,
    batch: int = 8,
    progress: bool = False,
    checkpoint: str | Path | None = None,
) -> Fit:
    """The parameters ``free`` of ``model`` with which its simulated motions come nearest to the measured ones.

    minimises  Σ ρ(((y − observe(t, q, v)) / σ)²)  over the parameters and, with ``fit_starts``, every start, by
    Levenberg–Marquardt steps in a trust region (SciPy's ``least_squares``) on exact derivatives through the simulation.

    ``model`` is a system with its parameters as fields, and ``free`` their names: ``"m1"`` for a number, or for all
    entries of an array, ``"ma[2]"`` for one of them, ``"arm.length"`` and ``"bodies[2].mass"`` for what lies deeper.
    What is positive stays positive, unless ``bounds`` says otherwise: name -> (lower, upper), either of them None where
    there is none, or None for no bounds at all. ``observe(t, q, v)`` gives the measured outputs, (outputs,); left out,
    they are q. If it is an ``equinox.Module``, its fields are parameters too: with ``"observe.shift"`` in ``free`` the
    shift of a sensor is estimated. ``state(model, z, t) -> (q0, v0)`` makes a start from the numbers z of
    ``Experiment.start``; left out, z is (q0, v0), brought onto the constraints.

    The σ of outputs is ``Experiment.sigma``. Where that is not given, it is estimated for each output from its
    residuals (for a robust ``loss`` from their median), in turns with the parameters: maximum likelihood, so that
    units do not decide how much an output counts.

    Motions are integrated by the Runge–Kutta method of order 4 in fixed steps. How far their error moves the estimates
    is computed from what changes when all steps are halved. Left out, ``dt`` begins at the distance of the samples and
    is halved until no estimate, nor any combination of them, moves by more than 0.05 of its standard error, at the
    first guess and at the solution. ``dt`` [s] asks for steps that are no longer than that. Either way
    ``Fit.integration`` has the result, and a move of more than 0.25 standard errors is warned of.

    ``drift`` is as in ``simulate``, though over one segment there is hardly any. ``segments`` cuts every record into
    pieces with starts of their own (multiple shooting), for motions that are chaotic or long; the jumps between them
    count as residuals with ``continuity`` σ. ``loss`` is ρ: "linear" for noise, "soft_l1", "huber", "cauchy" or
    "arctan" where some values are simply wrong; ``noise`` and the errors count these values all the same.

    ``optimiser``, any of optax such as ``optax.adam(0.02)``, goes down the gradient instead, in ``most_evaluations``
    steps on ``batch`` experiments drawn at random: for more records than are worth a step of all. A free number moves
    by about the learning rate per step, where 0.01 is 1 % of what stays positive.

    ``progress`` prints a line per step. ``checkpoint`` names a JSON file that keeps the state after each step; if it is
    there, the fit goes on from it. It is refused, with the first difference, where the model, its first guess, a record
    or an option that decides where the minimum is are not those of the file; ``optimiser``, ``batch`` and
    ``most_evaluations`` may change.

    Raises ``ValueError`` for bad input, parameters that change nothing that is measured, and fewer values than
    unknowns; ``SimulationError`` where the motion from the first guess does not reach the end; warns where sizes
    suggest a mistake of units, where what is left unexplained is neither small nor noise, and where the integration
    is not accurate enough.
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
        raise ValueError(f"optimiser must be one of optax, such as optax.adam(0.02), got {repr_of(optimiser)}")
    if not isinstance(checkpoint, str | os.PathLike | None):
        raise ValueError(f"checkpoint must be the name of a file, got {repr_of(checkpoint)}")
    prediction = Prediction(
        observed,
        parameters,
        start_state(observed, parameters, experiments, not fit_starts, state),
        choose(method),
        drift == "projection",
    )
    for experiment in experiments if dt is not None else ():
        check_step(dt, experiment.t)
    _check_outputs(prediction, experiments)
    pieces = cut(experiments, segments)
    kept = None
    if checkpoint is not None:
        options = {"dt": dt, "drift": drift, "segments": segments, "continuity": continuity, "loss": loss}
        about = fingerprint_of(prediction, experiments, options | {"fit_starts": fit_starts})
        kept = Checkpoint(Path(checkpoint), parameters, about)
    problem = Problem(prediction, experiments, pieces, dt, loss, fit_starts, continuity, progress, kept)
    if dt is None:
        problem.refine(problem.first(), problem.data_noise)
    problem.check_first_guess()
    if optimiser is not None:
        unknowns = descend(problem, optimiser, batch, loss, most_evaluations)
        problem.refine(unknowns)
        return _with_warnings(problem.found(unknowns, most_evaluations, True))
    unknowns, evaluations, converged = _least_squares(problem, loss, most_evaluations)
    return _with_warnings(problem.found(problem.reset_undetermined(unknowns), evaluations, converged))


def _least_squares(problem, loss, most_evaluations):
    """The least-squares solution with steps that are small enough at the solution, and with weights by its residuals
    where the noise is not given; how many evaluations it took, and whether it converged."""
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


def _with_warnings(found: Fit) -> Fit:
    """What was found, with a warning where that cannot be what the data show."""
    if words := misfit(found.experiments, found.predicted):
        warnings.warn(words, stacklevel=3)
    if words := found.integration_doubt:
        warnings.warn(words, stacklevel=3)
    return found


def _positions(t, q, v):
    return q


def _check_outputs(prediction, experiments):
    """Before anything is compiled: the start fits the model, and what is observed of it the records."""
    z, t = experiments[0].start[..., :].reshape(-1, experiments[0].start.shape[-1])[0], experiments[0].t[0]

    def outputs(z, t):
        q, v, _ = prediction.state(prediction.observed.model, z, t, prediction.method)
        return vector("observe", prediction.observed.observe, t, q, v)

    count = jax.eval_shape(outputs, z, t).size
    for i, experiment in enumerate(experiments):
        if experiment.y.shape[1] != count:
            raise ValueError(
                f"observe gives {count} outputs, but experiment {i} has {experiment.y.shape[1]}: y must have one "
                "column per output"
            )


def _check(experiments: Sequence[Experiment], segments, loss, drift) -> None:
    if len({e.start.shape[-1] for e in experiments}) > 1:
        raise ValueError("every experiment's start must have as many numbers")
    if len({tuple(e.setting) for e in experiments}) > 1:
        raise ValueError("every experiment must set the same fields")
    shortest = min(e.t.size for e in experiments)
    if not 1 <= as_integer("segments", segments, 1) < shortest:
        raise ValueError(f"segments must be from 1 to {shortest - 1}, one less than the samples, got {segments}")
    check_word("loss", loss, LOSS_DERIVATIVES)
    check_word("drift", drift, ("none", "projection"))
