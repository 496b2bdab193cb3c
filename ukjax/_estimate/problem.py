"""The least-squares problem of a fit: residuals and their derivatives."""

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._errors import InputError, SimulationError
from .._motion.integrate.fixed_step import step_counts
from .checkpoint import Checkpoint
from .experiment import Experiment
from .identifiability import identifiability, unexplained_directions
from .integration import MOST_STEPS, PATIENCE, IntegrationEffect, StepError, step_error
from .loss import LOSS_DERIVATIVES
from .misfit import apparent_noise, measured_values, rms_of, scatter_of
from .result import Fit
from .segments import Predicted, Segment, predict
from .spread import WEIGHT_TOLERANCE, leverage, standard_deviations

UNIT_RATIO = 300.0  # ratio of measured to predicted outputs that suggests different units
FTOL = 1e-6  # relative change of the sum of squares; far below the effect of noise
SIZE_NEAR_0 = 1000.0
"""Size of an unbounded parameter with a value near 0, in units of its standard error if it were the only unknown.
Identifiability is computed for changes relative to these sizes."""


class Block(NamedTuple):
    """Residuals of one segment, or of one jump between segments.

    Attributes
    ----------
    residual : array, shape (rows,)
        Residuals, divided by sigma.
    slopes : list of (slice, array)
        Derivatives with respect to the unknowns in each slice; all others are zero.
    output : array of int, shape (rows,)
        Index of the output, −1 for jumps.
    sigma : array, shape (rows,)
        Divisor of each residual.
    given : array of bool, shape (rows,)
        Whether the user gave sigma.
    """

    residual: Float[np.ndarray, " rows"]
    slopes: list[tuple[slice, Float[np.ndarray, "rows columns"]]]
    output: Int[np.ndarray, " rows"]
    sigma: Float[np.ndarray, " rows"]
    given: Bool[np.ndarray, " rows"]


class Evaluation(NamedTuple):
    """Residuals r in units of sigma and J = ∂r/∂unknowns, with ``output``, ``sigma`` and ``given`` of each row as in
    ``Block``, and the ``predicted`` motion of each segment."""

    r: Float[np.ndarray, " rows"]
    J: Float[np.ndarray, "rows unknowns"]
    output: Int[np.ndarray, " rows"]
    sigma: Float[np.ndarray, " rows"]
    given: Bool[np.ndarray, " rows"]
    predicted: list[Predicted]


class Problem:
    """Residuals and their derivatives with respect to the unknowns: parameters x (p,), then starts (segments, k).

    Both are computed together and cached for one point. The time step is ``dt``; if that is None, it begins at the
    median distance of the samples, and ``refine`` halves it, unless a tolerance determines the steps. Outputs with
    unknown noise are weighted by the scatter of the measured values at first, and by their residuals after
    ``reweigh``.
    """

    def __init__(self, prediction, experiments, pieces, dt, loss, fit_starts, continuity, progress, checkpoint):
        self.prediction, self.experiments, self.pieces = prediction, experiments, pieces
        self.loss, self.fit_starts, self.continuity, self.progress = loss, fit_starts, continuity, progress
        self.steps_given = dt is not None or prediction.rtol is not None
        first_step = prediction.dt if dt is None else dt
        self.counts = [
            step_counts(e.t, np.median(np.diff(e.t)) if first_step is None else first_step) for e in experiments
        ]
        self.halvings, self.step_error = 0, None
        measured_by_output = [measured_values(experiments, k) for k in range(experiments[0].y.shape[1])]
        self.sizes = np.array([scatter_of(y) or rms_of(y) or 1.0 for y in measured_by_output])
        self.data_noise = _noise_of_data(experiments, measured_by_output, self.sizes)
        self.spread = self.sizes
        self.checkpoint: Checkpoint | None = checkpoint
        self.p = len(prediction.parameters.names)
        self.starts = np.stack([_segment_start(experiments[piece.experiment], piece) for piece in pieces])
        self.predicted, self.kept, self.steps = {}, None, 0

    def first(self) -> Float[np.ndarray, " unknowns"]:
        """The unknowns at the first guess, or those in the checkpoint."""
        x, starts = np.zeros(self.p), self.starts
        saved = None if self.checkpoint is None else self.checkpoint.kept(self.starts.shape)
        if saved is not None:
            x, starts = np.asarray(self.prediction.parameters.free(jnp.asarray(saved[0]))), saved[1]
        return np.concatenate([x, starts.ravel()]) if self.fit_starts else x

    def residuals(self, unknowns):
        """Residuals r (rows,)."""
        return self._evaluate(unknowns).r

    def jacobian(self, unknowns):
        """J = ∂r/∂unknowns; also reports the step."""
        self.report(unknowns, self._evaluate(unknowns).r)
        return self._evaluate(unknowns).J

    def check_first_guess(self):
        """Check that the motions reach the end, that there are enough values, and that every parameter has an effect.

        Warns if the units are implausible.
        """
        unknowns = self.first()
        _, J, *_, predicted = self._evaluate(unknowns)
        for piece, prediction in zip(self.pieces, predicted, strict=True):
            if not np.all(np.isfinite(prediction.outputs)):
                row = int(np.argmin(np.all(np.isfinite(prediction.outputs), axis=1)))
                t = self.experiments[piece.experiment].t[piece.first + row]
                raise SimulationError(
                    f"the motion of experiment {piece.experiment} from the first guess ends before t = {t:g} s: begin "
                    "nearer to the solution, take a smaller dt, or cut the record into more segments"
                )
        if not np.all(np.isfinite(J)):
            raise SimulationError("the first guess has a motion, but no derivatives: begin away from singular poses")
        measured = sum(int(e.measured.sum()) for e in self.experiments)
        if measured < unknowns.size:
            raise InputError(
                f"experiments hold {measured} measured values for {unknowns.size} unknowns ({self.p} parameters and "
                f"{unknowns.size - self.p} of starts): use more data, fewer free parameters, or fit_starts=False"
            )
        effect = np.linalg.norm(J[:, : self.p], axis=0)
        for name, norm in zip(self.prediction.parameters.names, effect, strict=True):
            if norm <= 1e-12 * max(1.0, np.max(effect)):
                raise InputError(
                    f"free parameter {name!r} has no effect on the measured outputs: leave it out, or measure more"
                )
        self._warn_of_units(predicted)

    def step_scale(self) -> Float[np.ndarray, " unknowns"]:
        """Scale of each unknown in the first steps of a search, 1 for most.

        An unbounded parameter with first guess 0 has no size. Its scale is the change that would explain all residuals.
        """
        unknowns, parameters = self.first(), self.prediction.parameters
        r, J, *_ = self._evaluate(unknowns)
        sizeless = np.asarray((parameters.first == 0) & np.isinf(parameters.lower) & np.isinf(parameters.upper))
        scale = np.ones(unknowns.size)
        scale[: self.p][sizeless] = np.linalg.norm(r) / np.linalg.norm(J[:, : self.p], axis=0)[sizeless]
        return np.where((scale > 0) & np.isfinite(scale), scale, 1.0)

    def reset_undetermined(self, unknowns):
        """Undo the changes of x along directions that have no effect on the residuals."""
        r, J, *_ = self._evaluate(unknowns)
        _, V = unexplained_directions(J[:, : self.p], J[:, self.p :], 0.0)
        reset = np.concatenate([(unknowns[: self.p] @ V.T) @ V, unknowns[self.p :]])
        return reset if np.sum(self._evaluate(reset).r ** 2) <= np.sum(r**2) * (1 + FTOL) else unknowns

    def refine(self, unknowns: Float[np.ndarray, " unknowns"], limit: float = np.inf) -> bool:
        """Halve the time steps until their error moves the estimates by a small fraction of the standard errors, or
        until halving does not help. Returns whether they were halved.

        A ``dt`` or a tolerance from the user is not changed. ``limit`` is an upper bound of the noise, for residuals
        that contain more than noise.
        """
        first_level = best_level = self.halvings
        best = self._step_error(unknowns, limit)
        steps = sum(int(count.sum()) for count in self.counts)
        while not (self.steps_given or best.small or self.halvings - best_level >= PATIENCE):
            if 4 * steps * 2**self.halvings > MOST_STEPS:
                break
            self._halve()
            halved = self._step_error(unknowns, limit)
            if halved.better_than(best):
                best, best_level = halved, self.halvings
        if self.halvings != best_level:
            self.halvings, self.predicted, self.kept = best_level, {}, None
        self.step_error = best
        return best_level != first_level

    def reweigh(self, unknowns: Float[np.ndarray, " unknowns"]) -> bool:
        """Weight the outputs with unknown noise by their residuals. Returns whether the weights changed."""
        if all(e.weighted for e in self.experiments) or (self.spread.size == 1 and self.loss == "linear"):
            return False
        r, J, output, _, given, _ = self._evaluate(unknowns)
        estimated = ~given & (output >= 0)
        factor = standard_deviations(r, leverage(J), output, estimated, self.spread.size, self.loss != "linear")
        spread = np.where(np.isfinite(factor), factor * self.spread, self.spread)
        spread = np.maximum(spread, np.sqrt(np.finfo(self._dtype()).eps) * self.sizes)
        change = np.log(spread / self.spread)
        if self.loss == "linear":  # a common factor has no effect
            change = change - np.mean(change)
        if np.max(np.abs(change)) <= WEIGHT_TOLERANCE:
            return False
        self.spread, self.kept = spread, None
        return True

    def found(self, unknowns, evaluations: int, converged: bool) -> Fit:
        """The result of the fit at these unknowns."""
        r, J, output, sigma, given, predicted = self._evaluate(unknowns)
        parameters = self.prediction.parameters
        x = jnp.asarray(unknowns[: self.p])
        values = np.asarray(parameters.values(x))
        slope = np.asarray(jax.jvp(parameters.values, (x,), (jnp.ones_like(x),))[1])
        logarithmic = np.asarray((parameters.lower == 0) & np.isinf(parameters.upper))
        unbounded = np.asarray(np.isinf(parameters.lower) & np.isinf(parameters.upper))
        noise = self._noise(r, J)
        own_size = np.where(unbounded, np.abs(values) / slope, 1.0)  # independent of the size of the first guess
        own_size = np.where(unbounded, np.maximum(own_size, SIZE_NEAR_0 * noise / self._sensitivity(J)), own_size)
        arguments = parameters.names, values, slope * own_size, logarithmic, J[:, : self.p] * own_size, J[:, self.p :]
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        known = identifiability(*arguments, noise)
        outputs = tuple(self._outputs(i, predicted) for i in range(len(self.experiments)))
        joints = boundaries(range(len(self.pieces)), self.pieces, predicted)
        jumps = [np.max(np.abs(before.end - after.begin)) for _, before, after in joints]
        noises = standard_deviations(r * sigma, leverage(J), output, output >= 0, self.spread.size, robust=False)
        observed = parameters.put(self.prediction.observed, x)
        return Fit(
            model=observed.model,
            observe=observed.observe,
            names=parameters.names,
            values=values,
            identifiability=known,
            starts=starts,
            experiments=self.experiments,
            predicted=outputs,
            noise=self._noise(np.where(given, r, r * sigma), J),
            sigma=noises,
            jump=float(max(jumps, default=0.0)),
            integration=self._integration(slope, known.errors),
            evaluations=evaluations,
            converged=converged,
        )

    def _integration(self, slope, errors) -> IntegrationEffect:
        longest = max(float(np.max(np.diff(e.t) / n)) for e, n in zip(self.experiments, self.counts, strict=True))
        error, rtol = self.step_error, self.prediction.rtol
        assert error is not None, "refine comes before"
        shift = np.where(np.isfinite(errors), slope * error.shift / errors, np.nan)
        steps = (longest / 2**self.halvings, None) if rtol is None else (None, float(rtol))
        return IntegrationEffect(*steps, error.error, shift, error.largest, error.tolerable)

    def _step_error(self, unknowns, limit) -> StepError:
        """The integration error, from the change with half the time step, or with the smaller tolerance."""
        r, J, *_, predicted = self._evaluate(unknowns)
        finer = self._predicted(unknowns, finer=True)
        r_finer = np.concatenate([block.residual for block in self._blocks(finer, range(len(self.pieces)))])
        if not (np.all(np.isfinite(J)) and np.all(np.isfinite(r)) and np.all(np.isfinite(r_finer))):
            return StepError.not_finite(self.p, int(np.isfinite(r).sum() + np.isfinite(r_finer).sum()))
        change = np.concatenate([a.outputs - b.outputs for a, b in zip(predicted, finer, strict=True)])
        relative_change = float(np.max(np.sqrt(np.mean(change**2, axis=0)) / self.sizes))
        above_rounding = relative_change / float(np.sqrt(np.finfo(self._dtype()).eps))
        noise = min(self._noise(r, J), limit)
        with np.errstate(over="ignore"):
            weight = LOSS_DERIVATIVES[self.loss](r**2)
        return step_error(r, r_finer, J, self.p, weight, noise, above_rounding, self.prediction.reduction)

    def _halve(self):
        """Halve the time step; the predictions with half the step become the current ones."""
        self.halvings += 1
        self.predicted, self.kept = {False: self.predicted[True]} if True in self.predicted else {}, None

    def _noise(self, r, J) -> float:
        """The standard deviation of the residuals r."""
        determined = len(unexplained_directions(J[:, : self.p], J[:, self.p :], 0.0)[1])
        start_rank = int(np.linalg.matrix_rank(J[:, self.p :])) if self.fit_starts else 0
        return float(np.sqrt(np.sum(r**2) / max(1, len(r) - determined - start_rank)))

    def _sensitivity(self, J) -> Float[np.ndarray, " p"]:
        """Sensitivity of the residuals to each parameter, without the part that the starts may explain."""
        sensitivities, others = J[:, : self.p], J[:, self.p :]
        if others.shape[1]:
            sensitivities = sensitivities - others @ np.linalg.lstsq(others, sensitivities, rcond=1e-12)[0]
        return np.maximum(np.linalg.norm(sensitivities, axis=0), np.finfo(float).tiny)

    def _dtype(self):
        return next(iter(self.predicted.values()))[1][0].outputs.dtype

    def _evaluate(self, unknowns) -> Evaluation:
        if self.kept is None or not np.array_equal(self.kept[0], unknowns):
            predicted = self._predicted(unknowns)
            blocks = self._blocks(predicted, range(len(self.pieces)))
            r, output, sigma, given = (
                np.concatenate([getattr(block, name) for block in blocks])
                for name in ("residual", "output", "sigma", "given")
            )
            J, first = np.zeros((r.size, unknowns.size)), 0
            for block in blocks:
                last = first + len(block.residual)
                for columns, slope in block.slopes:
                    J[first:last, columns] += slope
                first = last
            self.kept = np.array(unknowns), Evaluation(r, J, output, sigma, given, predicted)
        return self.kept[1]

    def _predicted(self, unknowns, finer: bool = False) -> list[Predicted]:
        """The predicted motion of each segment, with half the time step if ``finer``. Cached for one point."""
        if finer not in self.predicted or not np.array_equal(self.predicted[finer][0], unknowns):
            self.predicted[finer] = np.array(unknowns), self._predict(unknowns, range(len(self.pieces)), finer)
        return self.predicted[finer][1]

    def gradient(
        self, unknowns: Float[np.ndarray, " unknowns"], experiments: Collection[int], weigh: Callable
    ) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " unknowns"]]:
        """The residuals r of some experiments, and Jᵀ weigh(r) with J = ∂r/∂unknowns.

        Only blocks of J are stored: a start affects its own segment alone, so that most of J is zero.
        """
        chosen = [i for i, piece in enumerate(self.pieces) if piece.experiment in experiments]
        blocks = self._blocks(self._predict(unknowns, chosen), chosen)
        gradient = np.zeros(unknowns.size)
        for block in blocks:
            for columns, slope in block.slopes:
                gradient[columns] += slope.T @ weigh(block.residual)
        return np.concatenate([block.residual for block in blocks]), gradient

    def _predict(self, unknowns, chosen: Sequence[int], finer: bool = False) -> list[Predicted]:
        """Simulate the segments with the indices ``chosen``."""
        x = unknowns[: self.p]
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        steps = self.counts, self.halvings
        arguments = self.prediction, self.experiments, [self.pieces[i] for i in chosen], *steps
        return predict(*arguments, x, starts[list(chosen)], self.fit_starts, finer)

    def _blocks(self, predicted: list[Predicted], chosen: Sequence[int]) -> list[Block]:
        """Residuals and derivatives of the segments with the indices ``chosen``, in units of sigma."""
        width, blocks = self.starts.shape[1], []

        def add(residual, divisor, output, weighted, *jacobians):
            slopes = []
            for piece, slope in jacobians:
                slope = slope / np.reshape(divisor, (-1, 1))
                slopes.append((slice(0, self.p), slope[:, : self.p]))
                if self.fit_starts:
                    first_column = self.p + piece * width
                    slopes.append((slice(first_column, first_column + width), slope[:, self.p :]))
            blocks.append(Block(residual / divisor, slopes, output, divisor, np.full(divisor.size, weighted)))

        pieces = [self.pieces[i] for i in chosen]
        for i, piece, prediction in zip(chosen, pieces, predicted, strict=True):
            experiment = self.experiments[piece.experiment]
            stop = piece.last + piece.final
            measured = experiment.measured[piece.first : stop]
            y, sigma = experiment.y[piece.first : stop][measured], self._sigma(experiment)[piece.first : stop][measured]
            by_unknowns = prediction.outputs_jacobian[: len(measured)][measured]
            add(
                prediction.outputs[: len(measured)][measured] - y,
                sigma,
                np.nonzero(measured)[1],
                experiment.weighted,
                (i, by_unknowns),
            )
        for i, a, b in boundaries(chosen, pieces, predicted):
            experiment = self.experiments[self.pieces[i].experiment]
            jump_sigma = np.full(a.end.size, self.continuity * float(np.mean(self._sigma(experiment))))
            no_output = np.full(a.end.size, -1)
            add(
                a.end - b.begin,
                jump_sigma,
                no_output,
                experiment.weighted,
                (i, a.end_jacobian),
                (i + 1, -b.begin_jacobian),
            )
        return blocks

    def _sigma(self, experiment: Experiment) -> Float[np.ndarray, "samples outputs"]:
        return experiment.sigma if experiment.weighted else np.broadcast_to(self.spread, experiment.y.shape)

    def _outputs(self, experiment, predicted):
        """Predicted outputs of one experiment, joined from its segments."""
        pairs = zip(self.pieces, predicted, strict=True)
        return np.concatenate(
            [
                prediction.outputs[: piece.last + piece.final - piece.first]
                for piece, prediction in pairs
                if piece.experiment == experiment
            ]
        )

    def _warn_of_units(self, predicted):
        """Warn if measured and predicted outputs differ so much in size that their units may differ."""
        size = lambda parts: np.sqrt(np.mean(np.concatenate(parts) ** 2, axis=0))
        outputs = size([self._outputs(i, predicted) for i in range(len(self.experiments))])
        measured = size([e.y for e in self.experiments])
        for column, (ours, theirs) in enumerate(zip(outputs, measured, strict=True)):
            if ours > 0 and theirs > 0 and not 1 / UNIT_RATIO < theirs / ours < UNIT_RATIO:
                warnings.warn(
                    f"output {column} is measured {theirs / ours:.2g} times as large as the model's first guess: "
                    "are both in SI units (m, not mm; rad, not degrees)?",
                    stacklevel=4,
                )

    def report(self, unknowns, r):
        """Print the state of the search and write the checkpoint, as requested."""
        self.steps += 1
        if self.progress:
            values = np.asarray(self.prediction.parameters.values(jnp.asarray(unknowns[: self.p])))
            shown = "  ".join(f"{n}={x:.5g}" for n, x in zip(self.prediction.parameters.names, values, strict=True))
            print(f"step {self.steps:3d}  RMS {np.sqrt(np.mean(r**2)):.4g}  {shown}", flush=True)
        if self.checkpoint is not None:
            values = self.prediction.parameters.values(jnp.asarray(unknowns[: self.p]))
            starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
            self.checkpoint.keep(np.asarray(values), starts)


def _noise_of_data(experiments, values, sizes) -> float:
    """RMS over the outputs of the apparent noise in units of sigma (or of ``sizes`` if sigma is unknown).

    ``values`` are the measured values of each output. Infinite if there are too few of them.
    """
    ratios = []
    for k, (y_k, size) in enumerate(zip(values, sizes, strict=True)):
        noise = apparent_noise(y_k)
        sigma = np.concatenate([e.sigma[e.measured[:, k], k] for e in experiments if e.weighted] or [[size]])
        if noise is not None:
            ratios.append(noise / np.sqrt(np.mean(sigma**2)))
    return float(np.sqrt(np.mean(np.square(ratios)))) if ratios else np.inf


def boundaries(
    indices: Iterable[int], pieces: Iterable[Segment], predicted: Sequence[Predicted]
) -> list[tuple[int, Predicted, Predicted]]:
    """The boundaries between segments: index of the first segment, and the predicted motions of both."""
    items = enumerate(zip(indices, pieces, strict=True))
    return [(i, predicted[k], predicted[k + 1]) for k, (i, piece) in items if not piece.final]


def _segment_start(experiment: Experiment, piece: Segment):
    """The guess of the start of a segment."""
    if experiment.start.ndim == 2:
        return experiment.start[piece.first]
    if piece.first > 0:
        raise InputError(
            "several segments need a guess of the state at each of their starts: give Experiment a start of shape "
            "(samples, k), such as measured positions and their differences"
        )
    return experiment.start
