"""The least-squares problem behind a fit: residuals and their derivatives."""

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._motion.diagnose.motion import SimulationError
from .._motion.integrate.fixed_step import step_counts
from .checkpoint import Checkpoint
from .experiment import Experiment
from .identifiability import identifiability, unexplained_directions
from .integration import MOST_STEPS, PATIENCE, Integration, StepError, step_error
from .loss import LOSS_DERIVATIVES
from .misfit import apparent_noise, measured_values, rms_of, scatter_of
from .result import Fit
from .segments import Predicted, Segment, predict
from .spread import WEIGHT_TOLERANCE, leverage, standard_deviations

UNIT_RATIO = 300.0  # a ratio of sizes that suggests other units
FTOL = 1e-6  # of the sum of squares: far below what noise leaves open
SIZE_NEAR_0 = 1000.0
"""The size of a parameter without bounds whose value is near 0, in standard errors that it would have alone. What the
data determine is judged in units of such sizes."""


class Block(NamedTuple):
    """Some residuals, and their derivatives with respect to the unknowns in each of some places; the ``output`` that
    each is of, −1 for jumps between segments, the ``sigma`` by which it was divided, and whether that was ``given``."""

    residual: Float[np.ndarray, " rows"]
    slopes: list[tuple[slice, Float[np.ndarray, "rows columns"]]]
    output: Int[np.ndarray, " rows"]
    sigma: Float[np.ndarray, " rows"]
    given: Bool[np.ndarray, " rows"]


class Evaluation(NamedTuple):
    """Residuals r in units of sigma, J = ∂r/∂unknowns, and what ``Block`` says of each; and what was ``predicted`` of
    each piece."""

    r: Float[np.ndarray, " rows"]
    J: Float[np.ndarray, "rows unknowns"]
    output: Int[np.ndarray, " rows"]
    sigma: Float[np.ndarray, " rows"]
    given: Bool[np.ndarray, " rows"]
    predicted: list[Predicted]


class Problem:
    """Residuals and their derivatives with respect to x and the starts, computed together and kept for one point.

    The steps of the integration are those of ``dt``, or, if that is None, begin with one for each typical distance of
    two samples, and are halved by ``refine``. Outputs whose noise is not given count by the scatter of what was
    measured, until ``reweigh`` knows their residuals.
    """

    def __init__(self, prediction, experiments, pieces, dt, loss, fit_starts, continuity, progress, checkpoint):
        self.prediction, self.experiments, self.pieces = prediction, experiments, pieces
        self.loss, self.fit_starts, self.continuity, self.progress = loss, fit_starts, continuity, progress
        self.dt_given = dt is not None
        self.counts = [step_counts(e.t, np.median(np.diff(e.t)) if dt is None else dt) for e in experiments]
        self.halvings, self.step_error = 0, None
        each = [measured_values(experiments, k) for k in range(experiments[0].y.shape[1])]
        self.sizes = np.array([scatter_of(y) or rms_of(y) or 1.0 for y in each])
        self.data_noise = _noise_of_data(experiments, each, self.sizes)
        self.spread = self.sizes
        self.checkpoint: Checkpoint | None = checkpoint
        self.p = len(prediction.parameters.names)
        self.starts = np.stack([_segment_start(experiments[piece.experiment], piece) for piece in pieces])
        self.predicted, self.kept, self.steps = {}, None, 0

    def first(self) -> Float[np.ndarray, " unknowns"]:
        """Where to begin: the guess, or what the checkpoint holds."""
        x, starts = np.zeros(self.p), self.starts
        kept = None if self.checkpoint is None else self.checkpoint.kept(self.starts.shape)
        if kept is not None:
            x, starts = np.asarray(self.prediction.parameters.free(jnp.asarray(kept[0]))), kept[1]
        return np.concatenate([x, starts.ravel()]) if self.fit_starts else x

    def residuals(self, unknowns):
        return self._evaluate(unknowns).r

    def jacobian(self, unknowns):
        self.report(unknowns, self._evaluate(unknowns).r)
        return self._evaluate(unknowns).J

    def check_first_guess(self):
        """The motion reaches the end, there is enough to go by, every parameter matters, units are plausible."""
        unknowns = self.first()
        _, J, *_, predicted = self._evaluate(unknowns)
        for piece, found in zip(self.pieces, predicted, strict=True):
            if not np.all(np.isfinite(found.outputs)):
                bad = int(np.argmin(np.all(np.isfinite(found.outputs), axis=1)))
                t = self.experiments[piece.experiment].t[piece.first + bad]
                raise SimulationError(
                    f"the motion of experiment {piece.experiment} from the first guess ends before t = {t:g} s: begin "
                    "nearer to the solution, take a smaller dt, or cut the record into more segments"
                )
        if not np.all(np.isfinite(J)):
            raise SimulationError("the first guess has a motion, but no derivatives: begin away from singular poses")
        measured = sum(int(e.measured.sum()) for e in self.experiments)
        if measured < unknowns.size:
            raise ValueError(
                f"experiments hold {measured} measured values for {unknowns.size} unknowns ({self.p} parameters and "
                f"{unknowns.size - self.p} of starts): measure more, free less, or say fit_starts=False"
            )
        effect = np.linalg.norm(J[:, : self.p], axis=0)
        for name, e in zip(self.prediction.parameters.names, effect, strict=True):
            if e <= 1e-12 * max(1.0, np.max(effect)):
                raise ValueError(
                    f"free parameter {name!r} changes nothing that is measured: leave it out, or observe more"
                )
        self._warn_of_units(predicted)

    def step_scale(self) -> Float[np.ndarray, " unknowns"]:
        """By what to measure the unknowns in the first steps of a search: 1, but for a parameter that begins at 0 and
        has no bounds, and so no size of its own, the change that the residuals could ask for."""
        unknowns, parameters = self.first(), self.prediction.parameters
        r, J, *_ = self._evaluate(unknowns)
        sizeless = np.asarray((parameters.first == 0) & np.isinf(parameters.lower) & np.isinf(parameters.upper))
        scale = np.ones(unknowns.size)
        scale[: self.p][sizeless] = np.linalg.norm(r) / np.linalg.norm(J[:, : self.p], axis=0)[sizeless]
        return np.where((scale > 0) & np.isfinite(scale), scale, 1.0)

    def reset_undetermined(self, unknowns):
        """The same without what the search did along directions of x that change nothing."""
        r, J, *_ = self._evaluate(unknowns)
        _, V = unexplained_directions(J[:, : self.p], J[:, self.p :], 0.0)
        nearer = np.concatenate([(unknowns[: self.p] @ V.T) @ V, unknowns[self.p :]])
        return nearer if np.sum(self._evaluate(nearer).r ** 2) <= np.sum(r**2) * (1 + FTOL) else unknowns

    def refine(self, unknowns: Float[np.ndarray, " unknowns"], limit: float = np.inf) -> bool:
        """Halve the steps until their error moves the estimates by a small part of their standard errors, or until
        that does not help; whether they were halved. Steps that were asked for stay. ``limit`` is the largest noise
        that the residuals may hold, where they hold more than noise."""
        begun = level = self.halvings
        best = self._step_error(unknowns, limit)
        steps = sum(int(count.sum()) for count in self.counts)
        while not (self.dt_given or best.small or self.halvings - level >= PATIENCE):
            if 4 * steps * 2**self.halvings > MOST_STEPS:
                break
            self._halve()
            found = self._step_error(unknowns, limit)
            if found.better_than(best):
                best, level = found, self.halvings
        if self.halvings != level:
            self.halvings, self.predicted, self.kept = level, {}, None
        self.step_error = best
        return level != begun

    def reweigh(self, unknowns: Float[np.ndarray, " unknowns"]) -> bool:
        """Let the outputs whose noise is not given count by that of their residuals; whether that changes anything."""
        if all(e.weighted for e in self.experiments) or (self.spread.size == 1 and self.loss == "linear"):
            return False
        r, J, output, _, given, _ = self._evaluate(unknowns)
        own = ~given & (output >= 0)
        factor = standard_deviations(r, leverage(J), output, own, self.spread.size, self.loss != "linear")
        spread = np.where(np.isfinite(factor), factor * self.spread, self.spread)
        spread = np.maximum(spread, np.sqrt(np.finfo(self._dtype()).eps) * self.sizes)
        change = np.log(spread / self.spread)
        if self.loss == "linear":  # a common factor changes nothing
            change = change - np.mean(change)
        if np.max(np.abs(change)) <= WEIGHT_TOLERANCE:
            return False
        self.spread, self.kept = spread, None
        return True

    def found(self, unknowns, evaluations: int, converged: bool) -> Fit:
        r, J, output, sigma, given, predicted = self._evaluate(unknowns)
        parameters = self.prediction.parameters
        x = jnp.asarray(unknowns[: self.p])
        values = np.asarray(parameters.values(x))
        slope = np.asarray(jax.jvp(parameters.values, (x,), (jnp.ones_like(x),))[1])
        logarithmic = np.asarray((parameters.lower == 0) & np.isinf(parameters.upper))
        unbounded = np.asarray(np.isinf(parameters.lower) & np.isinf(parameters.upper))
        noise = self._noise(r, J)
        own_size = np.where(unbounded, np.abs(values) / slope, 1.0)  # whatever the size of the guess was
        own_size = np.where(unbounded, np.maximum(own_size, SIZE_NEAR_0 * noise / self._sensitivity(J)), own_size)
        about = parameters.names, values, slope * own_size, logarithmic, J[:, : self.p] * own_size, J[:, self.p :]
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        known = identifiability(*about, noise)
        outputs = tuple(self._outputs(i, predicted) for i in range(len(self.experiments)))
        met = boundaries(range(len(self.pieces)), self.pieces, predicted)
        jumps = [np.max(np.abs(before.end - after.begin)) for _, before, after in met]
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

    def _integration(self, slope, errors) -> Integration:
        longest = max(float(np.max(np.diff(e.t) / n)) for e, n in zip(self.experiments, self.counts, strict=True))
        of = self.step_error
        assert of is not None, "refine comes before"
        shift = np.where(np.isfinite(errors), slope * of.shift / errors, np.nan)
        return Integration(longest / 2**self.halvings, of.error, shift, of.largest, of.tolerable)

    def _step_error(self, unknowns, limit) -> StepError:
        """What half the steps would change."""
        r, J, *_, predicted = self._evaluate(unknowns)
        finer = self._predicted(unknowns, finer=True)
        r_finer = np.concatenate([block.residual for block in self._blocks(finer, range(len(self.pieces)))])
        if not (np.all(np.isfinite(J)) and np.all(np.isfinite(r)) and np.all(np.isfinite(r_finer))):
            return StepError.not_finite(self.p, int(np.isfinite(r).sum() + np.isfinite(r_finer).sum()))
        change = np.concatenate([a.outputs - b.outputs for a, b in zip(predicted, finer, strict=True)])
        of_size = float(np.max(np.sqrt(np.mean(change**2, axis=0)) / self.sizes))
        above_rounding = of_size / float(np.sqrt(np.finfo(self._dtype()).eps))
        noise = min(self._noise(r, J), limit)
        with np.errstate(over="ignore"):
            weight = LOSS_DERIVATIVES[self.loss](r**2)
        return step_error(r, r_finer, J, self.p, weight, noise, above_rounding)

    def _halve(self):
        """The finer predictions are those of the steps from now on."""
        self.halvings += 1
        self.predicted, self.kept = {False: self.predicted[True]} if True in self.predicted else {}, None

    def _noise(self, r, J) -> float:
        """The standard deviation of the residuals r."""
        unknown = len(unexplained_directions(J[:, : self.p], J[:, self.p :], 0.0)[1])
        own = int(np.linalg.matrix_rank(J[:, self.p :])) if self.fit_starts else 0
        return float(np.sqrt(np.sum(r**2) / max(1, len(r) - unknown - own)))

    def _sensitivity(self, J) -> Float[np.ndarray, " p"]:
        """Of the residuals to each parameter, without what the starts may explain."""
        own, others = J[:, : self.p], J[:, self.p :]
        if others.shape[1]:
            own = own - others @ np.linalg.lstsq(others, own, rcond=1e-12)[0]
        return np.maximum(np.linalg.norm(own, axis=0), np.finfo(float).tiny)

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
                for place, slope in block.slopes:
                    J[first:last, place] += slope
                first = last
            self.kept = np.array(unknowns), Evaluation(r, J, output, sigma, given, predicted)
        return self.kept[1]

    def _predicted(self, unknowns, finer: bool = False) -> list[Predicted]:
        """What is predicted of each piece, with half the steps if ``finer``."""
        if finer not in self.predicted or not np.array_equal(self.predicted[finer][0], unknowns):
            self.predicted[finer] = np.array(unknowns), self._predict(unknowns, range(len(self.pieces)), finer)
        return self.predicted[finer][1]

    def gradient(
        self, unknowns: Float[np.ndarray, " unknowns"], experiments: Collection[int], weigh: Callable
    ) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " unknowns"]]:
        """The residuals r of some experiments, and Jᵀ weigh(r), J = ∂r/∂unknowns, of which only blocks are kept: most
        of it is zero, since a start matters to its own segment alone."""
        mine = [i for i, piece in enumerate(self.pieces) if piece.experiment in experiments]
        blocks = self._blocks(self._predict(unknowns, mine), mine)
        found = np.zeros(unknowns.size)
        for block in blocks:
            for place, slope in block.slopes:
                found[place] += slope.T @ weigh(block.residual)
        return np.concatenate([block.residual for block in blocks]), found

    def _predict(self, unknowns, mine: Sequence[int], finer: bool = False) -> list[Predicted]:
        """What is predicted of the pieces numbered ``mine``."""
        x = unknowns[: self.p]
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        steps = self.counts, self.halvings
        given = self.prediction, self.experiments, [self.pieces[i] for i in mine], *steps
        return predict(*given, x, starts[list(mine)], self.fit_starts, finer)

    def _blocks(self, predicted: list[Predicted], mine: Sequence[int]) -> list[Block]:
        """The residuals of the pieces numbered ``mine`` and their derivatives, in units of sigma."""
        width, blocks = self.starts.shape[1], []

        def add(residual, by, output, weighted, *places):
            slopes = []
            for piece, slope in places:
                slope = slope / np.reshape(by, (-1, 1))
                slopes.append((slice(0, self.p), slope[:, : self.p]))
                if self.fit_starts:
                    at = self.p + piece * width
                    slopes.append((slice(at, at + width), slope[:, self.p :]))
            blocks.append(Block(residual / by, slopes, output, by, np.full(by.size, weighted)))

        pieces = [self.pieces[i] for i in mine]
        for i, piece, found in zip(mine, pieces, predicted, strict=True):
            experiment = self.experiments[piece.experiment]
            stop = piece.last + piece.final
            here = experiment.measured[piece.first : stop]
            y, sigma = experiment.y[piece.first : stop][here], self._sigma(experiment)[piece.first : stop][here]
            by_unknowns = found.outputs_jacobian[: len(here)][here]
            add(found.outputs[: len(here)][here] - y, sigma, np.nonzero(here)[1], experiment.weighted, (i, by_unknowns))
        for i, a, b in boundaries(mine, pieces, predicted):
            experiment = self.experiments[self.pieces[i].experiment]
            size = np.full(a.end.size, self.continuity * float(np.mean(self._sigma(experiment))))
            none = np.full(a.end.size, -1)
            add(a.end - b.begin, size, none, experiment.weighted, (i, a.end_jacobian), (i + 1, -b.begin_jacobian))
        return blocks

    def _sigma(self, experiment: Experiment) -> Float[np.ndarray, "samples outputs"]:
        return experiment.sigma if experiment.weighted else np.broadcast_to(self.spread, experiment.y.shape)

    def _outputs(self, experiment, predicted):
        pairs = zip(self.pieces, predicted, strict=True)
        return np.concatenate(
            [
                found.outputs[: piece.last + piece.final - piece.first]
                for piece, found in pairs
                if piece.experiment == experiment
            ]
        )

    def _warn_of_units(self, predicted):
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
        """Show and keep the state of the search."""
        self.steps += 1
        if self.progress:
            values = np.asarray(self.prediction.parameters.values(jnp.asarray(unknowns[: self.p])))
            shown = "  ".join(f"{n}={x:.5g}" for n, x in zip(self.prediction.parameters.names, values, strict=True))
            print(f"step {self.steps:3d}  RMS {np.sqrt(np.mean(r**2)):.4g}  {shown}", flush=True)
        if self.checkpoint is not None:
            values = self.prediction.parameters.values(jnp.asarray(unknowns[: self.p]))
            starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
            self.checkpoint.keep(np.asarray(values), starts)


def _noise_of_data(experiments, each, sizes) -> float:
    """The noise that the data show themselves in what was measured of ``each`` output, in units of sigma, or of the
    ``sizes`` where that is not given; infinite where there are too few values to tell."""
    shown = []
    for k, (y, size) in enumerate(zip(each, sizes, strict=True)):
        noise = apparent_noise(y)
        given = np.concatenate([e.sigma[e.measured[:, k], k] for e in experiments if e.weighted] or [[size]])
        if noise is not None:
            shown.append(noise / np.sqrt(np.mean(given**2)))
    return float(np.sqrt(np.mean(np.square(shown)))) if shown else np.inf


def boundaries(
    numbers: Iterable[int], pieces: Iterable[Segment], predicted: Sequence[Predicted]
) -> list[tuple[int, Predicted, Predicted]]:
    """Where one segment ends and the next begins: its number, and what was predicted of both."""
    each = enumerate(zip(numbers, pieces, strict=True))
    return [(i, predicted[k], predicted[k + 1]) for k, (i, piece) in each if not piece.final]


def _segment_start(experiment: Experiment, piece: Segment):
    if experiment.start.ndim == 2:
        return experiment.start[piece.first]
    if piece.first > 0:
        raise ValueError(
            "several segments need a guess of the state at each of their starts: give Experiment a start of shape "
            "(samples, k), such as measured positions and their differences"
        )
    return experiment.start
