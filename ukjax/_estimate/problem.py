"""The least-squares problem behind a fit: residuals and their derivatives."""

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._motion.diagnose import SimulationError
from .checkpoint import Checkpoint
from .experiment import Experiment
from .identifiability import identifiability, unexplained_directions
from .result import Fit
from .segments import Predicted, Segment, predict

ODD = 300.0  # a ratio of sizes that suggests other units
CONVERGED = 1e-6  # of the sum of squares: far below what noise leaves open


class Block(NamedTuple):
    """Some residuals, and their derivatives with respect to the unknowns in each of some places."""

    residual: Float[np.ndarray, " rows"]
    slopes: list[tuple[slice, Float[np.ndarray, "rows columns"]]]


class Problem:
    """Residuals and their derivatives with respect to x and the starts, computed together and kept for one point."""

    def __init__(self, prediction, experiments, pieces, dt, fit_starts, continuity, progress, checkpoint):
        self.prediction, self.experiments, self.pieces, self.dt = prediction, experiments, pieces, dt
        self.fit_starts, self.continuity, self.progress = fit_starts, continuity, progress
        self.checkpoint = None if checkpoint is None else Checkpoint(Path(checkpoint), prediction.parameters)
        self.p = len(prediction.parameters.names)
        self.starts = np.stack([_start_of(experiments[piece.experiment], piece) for piece in pieces])
        self.kept, self.steps = None, 0

    def first(self) -> Float[np.ndarray, " unknowns"]:
        """Where to begin: the guess, or what the checkpoint holds."""
        x, starts = np.zeros(self.p), self.starts
        kept = None if self.checkpoint is None else self.checkpoint.kept(self.starts.shape)
        if kept is not None:
            x, starts = np.asarray(self.prediction.parameters.free(jnp.asarray(kept[0]))), kept[1]
        return np.concatenate([x, starts.ravel()]) if self.fit_starts else x

    def residuals(self, unknowns):
        return self._evaluate(unknowns)[0]

    def jacobian(self, unknowns):
        r, J, _ = self._evaluate(unknowns)
        self.report(unknowns, r)
        return J

    def check_first_guess(self):
        """The motion reaches the end, there is enough to go by, every parameter matters, units are plausible."""
        unknowns = self.first()
        r, J, predicted = self._evaluate(unknowns)
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

    def undetermined_as_guessed(self, unknowns):
        """The same without what the search did along directions of x that change nothing."""
        r, J, _ = self._evaluate(unknowns)
        _, V = unexplained_directions(J[:, : self.p], J[:, self.p :], 0.0)
        nearer = np.concatenate([(unknowns[: self.p] @ V.T) @ V, unknowns[self.p :]])
        return nearer if np.sum(self._evaluate(nearer)[0] ** 2) <= np.sum(r**2) * (1 + CONVERGED) else unknowns

    def found(self, unknowns, evaluations: int, converged: bool) -> Fit:
        r, J, predicted = self._evaluate(unknowns)
        parameters = self.prediction.parameters
        x = jnp.asarray(unknowns[: self.p])
        values = np.asarray(parameters.values(x))
        slope = np.asarray(jax.jvp(parameters.values, (x,), (jnp.ones_like(x),))[1])
        counted = sum(int(e.measured.sum()) for e in self.experiments)
        logarithmic = np.asarray((parameters.lower == 0) & np.isinf(parameters.upper))
        unbounded = np.asarray(np.isinf(parameters.lower) & np.isinf(parameters.upper)) & (values != 0)
        own_size = np.where(unbounded, np.abs(values) / slope, 1.0)  # whatever the size of the guess was
        about = parameters.names, values, slope * own_size, logarithmic, J[:, : self.p] * own_size, J[:, self.p :]
        unknown = len(unexplained_directions(J[:, : self.p], J[:, self.p :], 0.0)[1])
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        own = int(np.linalg.matrix_rank(J[:, self.p :])) if self.fit_starts else 0
        between = len(r) - counted
        noise = float(np.sqrt(np.sum(r**2) / max(1, counted + between - unknown - own)))
        known = identifiability(*about, noise)
        outputs = tuple(self._outputs(i, predicted) for i in range(len(self.experiments)))
        met = boundaries(range(len(self.pieces)), self.pieces, predicted)
        jumps = [np.max(np.abs(before.end - after.begin)) for _, before, after in met]
        return Fit(
            model=parameters.put(self.prediction.model, x),
            names=parameters.names,
            values=values,
            identifiability=known,
            starts=starts,
            experiments=self.experiments,
            predicted=outputs,
            noise=noise,
            jump=float(max(jumps, default=0.0)),
            evaluations=evaluations,
            converged=converged,
        )

    def _evaluate(self, unknowns) -> tuple[np.ndarray, np.ndarray, list[Predicted]]:
        if self.kept is None or not np.array_equal(self.kept[0], unknowns):
            blocks, predicted = self._part(unknowns, range(len(self.experiments)))
            r = np.concatenate([block.residual for block in blocks])
            J, first = np.zeros((r.size, unknowns.size)), 0
            for block in blocks:
                last = first + len(block.residual)
                for place, slope in block.slopes:
                    J[first:last, place] += slope
                first = last
            self.kept = np.array(unknowns), (r, J, predicted)
        return self.kept[1]

    def gradient(
        self, unknowns: Float[np.ndarray, " unknowns"], experiments: Collection[int], weigh: Callable
    ) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " unknowns"]]:
        """The residuals r of some experiments, and Jᵀ weigh(r), J = ∂r/∂unknowns, of which only blocks are kept: most
        of it is zero, since a start matters to its own segment alone."""
        blocks, _ = self._part(unknowns, experiments)
        found = np.zeros(unknowns.size)
        for block in blocks:
            for place, slope in block.slopes:
                found[place] += slope.T @ weigh(block.residual)
        return np.concatenate([block.residual for block in blocks]), found

    def _part(self, unknowns, experiments: Collection[int]) -> tuple[list[Block], list[Predicted]]:
        """Residuals and derivatives of some experiments, and what was predicted of each of their pieces."""
        x = unknowns[: self.p]
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        mine = [i for i, piece in enumerate(self.pieces) if piece.experiment in experiments]
        pieces = [self.pieces[i] for i in mine]
        predicted = predict(self.prediction, self.experiments, pieces, self.dt, x, starts[mine], self.fit_starts)
        width, blocks = self.starts.shape[1], []

        def add(residual, by, *places):
            slopes = []
            for piece, slope in places:
                slope = slope / np.reshape(by, (-1, 1))
                slopes.append((slice(0, self.p), slope[:, : self.p]))
                if self.fit_starts:
                    at = self.p + piece * width
                    slopes.append((slice(at, at + width), slope[:, self.p :]))
            blocks.append(Block(residual / by, slopes))

        for i, piece, found in zip(mine, pieces, predicted, strict=True):
            experiment = self.experiments[piece.experiment]
            stop = piece.last + piece.final
            here = experiment.measured[piece.first : stop]
            y, sigma = experiment.y[piece.first : stop][here], experiment.sigma[piece.first : stop][here]
            add(found.outputs[: len(here)][here] - y, sigma, (i, found.outputs_by[: len(here)][here]))
        for i, a, b in boundaries(mine, pieces, predicted):
            size = self.continuity * float(np.mean(self.experiments[self.pieces[i].experiment].sigma))
            add(a.end - b.begin, np.full(a.end.size, size), (i, a.end_by), (i + 1, -b.begin_by))
        return blocks, predicted

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
            if ours > 0 and theirs > 0 and not 1 / ODD < theirs / ours < ODD:
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


def boundaries(
    numbers: Iterable[int], pieces: Iterable[Segment], predicted: Sequence[Predicted]
) -> list[tuple[int, Predicted, Predicted]]:
    """Where one segment ends and the next begins: its number, and what was predicted of both."""
    each = enumerate(zip(numbers, pieces, strict=True))
    return [(i, predicted[k], predicted[k + 1]) for k, (i, piece) in each if not piece.final]


def _start_of(experiment: Experiment, piece: Segment):
    if experiment.start.ndim == 2:
        return experiment.start[piece.first]
    if piece.first > 0:
        raise ValueError(
            "several segments need a guess of the state at each of their starts: give Experiment a start of shape "
            "(samples, k), such as measured positions and their differences"
        )
    return experiment.start
