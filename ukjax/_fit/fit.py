"""Parameters from measured motions, by gradients through their simulation."""

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Array, Float

from .._check import check_function
from .._correct import at_every_level, onto_constraints
from .._results import SimulationError
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem
from .._trajectory import write_whole
from .experiment import Experiment
from .identifiability import Combination, Identifiability, identifiability, told
from .parameters import Parameters, check_settings
from .segments import Motion, Predicted, Segment, cut, predict

LONGEST_STEP = 0.01  # [s], where dt is left to us
LOSSES = ("linear", "soft_l1", "huber", "cauchy", "arctan")
ODD = 300.0  # a ratio of sizes that suggests other units
CONVERGED = 1e-6  # of the sum of squares: far below what noise leaves open


class Fit(eqx.Module):
    """What ``fit`` found: ``model`` with the estimates in it, and how sure they are.

    ``values`` ± ``errors`` (p,) of the parameters ``names``; an error is infinite where the data do not determine the
    parameter alone: see ``identifiability.combinations`` for what they do determine. ``starts`` (segments, k) are the
    estimated starts, ``predicted`` the outputs of each experiment as simulated, ``residuals`` measured minus predicted,
    NaN where nothing was measured, ``noise`` the standard deviation of the residuals in units of ``sigma``, ``jump``
    the largest step between the end of one segment and the start of the next.
    """

    model: Any
    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[np.ndarray, " p"]
    errors: Float[np.ndarray, " p"]
    identifiability: Identifiability
    starts: Float[np.ndarray, "segments k"]
    experiments: tuple[Experiment, ...]
    predicted: tuple[Float[np.ndarray, "samples outputs"], ...]
    noise: float
    jump: float
    evaluations: int
    converged: bool

    @property
    def residuals(self) -> tuple[Float[np.ndarray, "samples outputs"], ...]:
        pairs = zip(self.experiments, self.predicted, strict=True)
        return tuple(np.where(e.measured, e.y - predicted, np.nan) for e, predicted in pairs)

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """What the data determine, sums of parameters included."""
        return self.identifiability.combinations

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The parameters that the data do not determine alone."""
        return tuple(name for name, known in zip(self.names, self.identifiability.determined, strict=True) if not known)

    def interval(self, level: float = 0.95) -> Float[np.ndarray, "p 2"]:
        """Confidence intervals of the parameters, by Student's distribution."""
        counted = sum(int(e.measured.sum()) for e in self.experiments)
        freedom = max(1, counted - self.identifiability.rank)
        half = scipy.stats.t.ppf((1 + level) / 2, freedom) * self.errors
        return np.stack([self.values - half, self.values + half], axis=1)

    def __str__(self) -> str:
        width = max(map(len, self.names))
        lines = [f"{'parameter':{max(width, 9)}}  {'estimate':>12}  {'± standard error':>16}"]
        for name, value, error in zip(self.names, self.values, self.errors, strict=True):
            shown = f"{error:16.3g}" if np.isfinite(error) else f"{'not determined':>16}"
            lines.append(f"{name:{max(width, 9)}}  {value:12.6g}  {shown}")
        if self.undetermined:
            lines.append("the data determine:")
            for combination in self.combinations:
                lines.append(f"  {combination} = {combination.value:.6g} ± {combination.error:.2g}")
        rms = [np.sqrt(np.nanmean(np.concatenate(self.residuals) ** 2, axis=0))]
        lines.append("residuals, RMS per output: " + " ".join(f"{x:.3g}" for x in np.concatenate(rms)))
        if not self.converged:
            lines.append(f"not converged after {self.evaluations} evaluations")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The table as plain numbers, None for what is not determined."""
        number = lambda x: float(x) if np.isfinite(x) else None
        known = self.identifiability
        return {
            "parameters": {
                name: {"estimate": float(value), "error": number(error)}
                for name, value, error in zip(self.names, self.values, self.errors, strict=True)
            },
            "combinations": [c._asdict() | {"text": str(c)} for c in self.combinations],
            "undetermined": list(self.undetermined),
            "singular_values": known.singular_values.tolist(),
            "rank": known.rank,
            "covariance": [[number(x) for x in row] for row in known.covariance],
            "noise": self.noise,
            "jump": self.jump,
            "evaluations": self.evaluations,
            "converged": self.converged,
        }

    def save(self, path: str | Path) -> Path:
        """``as_dict`` as JSON; a file of that name is replaced only when the new one is whole."""
        return _write(Path(path), self.as_dict())


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
    progress: bool = False,
    checkpoint: str | Path | None = None,
) -> Fit:
    """The parameters ``free`` of ``model`` with which its simulated motions come nearest to the measured ones.

    minimises  Σ ρ(((y − observe(t, q, v)) / σ)²)  over the parameters and, with ``fit_starts``, every start, by
    Levenberg–Marquardt steps in a trust region (SciPy's ``least_squares``) on exact derivatives through the simulation.

    ``model`` is a system with its parameters as fields, and ``free`` their names: see ``Parameters``, also for
    ``bounds``; what is positive stays positive. ``observe(t, q, v)`` gives the measured outputs, (outputs,); left out,
    they are q. ``state(model, z, t) -> (q0, v0)`` makes a start from the numbers z of ``Experiment.start``; left out,
    z is (q0, v0), brought onto the constraints.

    ``dt`` [s] is the longest step of the Runge–Kutta method (default: the shortest distance of two samples, at most
    0.01 s); ``drift`` as in ``simulate``, though over one segment there is hardly any. ``segments`` cuts every record
    into pieces with starts of their own (multiple shooting), for motions that are chaotic or long; the jumps between
    them count as residuals with ``continuity`` σ. ``loss`` is ρ: "linear" for noise, "soft_l1", "huber", "cauchy" or
    "arctan" where some values are simply wrong. ``progress`` prints a line per step. ``checkpoint`` names a JSON file
    that keeps the state after each step; if it is there, the fit goes on from it.

    Raises ``ValueError`` for bad input, parameters that change nothing that is measured, and fewer values than
    unknowns; ``SimulationError`` where the motion from the first guess does not reach the end; warns where sizes
    suggest a mistake of units.
    """
    experiments = (experiments,) if isinstance(experiments, Experiment) else tuple(experiments)
    parameters = Parameters.of(model, free, bounds)
    for experiment in experiments:
        if isinstance(experiment, Experiment):
            check_settings(model, experiment.setting)
    if state is not None:
        check_function("state", state, "model, z, t")
    _check(experiments, segments, loss, drift)
    if observe is not None:
        check_function("observe", observe, "t, q, v")
    motion = Motion(
        model,
        parameters,
        _start_state(model, parameters, experiments, fit_starts, choose(method)) if state is None else state,
        _positions if observe is None else observe,
        choose(method),
        drift == "projection",
    )
    if dt is None:
        dt = min(LONGEST_STEP, *(float(np.diff(e.t).min()) for e in experiments))
    pieces = cut(experiments, segments)
    problem = _Problem(motion, experiments, pieces, dt, fit_starts, continuity, progress, checkpoint)
    problem.check_first_guess()
    solution = scipy.optimize.least_squares(
        problem.residuals,
        problem.first(),
        problem.jacobian,  # pyright: ignore[reportArgumentType]
        method="trf",
        loss=loss,
        x_scale=1.0,
        ftol=CONVERGED,
        xtol=1e-10,
        gtol=1e-14,
        max_nfev=most_evaluations,
    )
    return problem.found(solution, problem.undetermined_as_guessed(solution.x))


class _Problem:
    """Residuals and their derivatives with respect to x and the starts, computed together and kept for one point."""

    def __init__(self, motion, experiments, pieces, dt, fit_starts, continuity, progress, checkpoint):
        self.motion, self.experiments, self.pieces, self.dt = motion, experiments, pieces, dt
        self.fit_starts, self.continuity, self.progress = fit_starts, continuity, progress
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.p = len(motion.parameters.names)
        self.starts = np.stack([_start_of(experiments[piece.experiment], piece) for piece in pieces])
        self.kept, self.steps = None, 0

    def first(self) -> Float[np.ndarray, " unknowns"]:
        """Where to begin: the guess, or what the checkpoint holds."""
        x, starts = np.zeros(self.p), self.starts
        if self.checkpoint is not None and self.checkpoint.exists():
            x, starts = self._resume(self.checkpoint)
        return np.concatenate([x, starts.ravel()]) if self.fit_starts else x

    def residuals(self, unknowns):
        return self._evaluate(unknowns)[0]

    def jacobian(self, unknowns):
        r, J, _ = self._evaluate(unknowns)
        self._report(unknowns, r)
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
        for name, e in zip(self.motion.parameters.names, effect, strict=True):
            if e <= 1e-12 * max(1.0, np.max(effect)):
                raise ValueError(
                    f"free parameter {name!r} changes nothing that is measured: leave it out, or observe more"
                )
        self._warn_of_units(predicted)

    def undetermined_as_guessed(self, unknowns):
        """The same without what the search did along directions of x that change nothing."""
        r, J, _ = self._evaluate(unknowns)
        _, V = told(J[:, : self.p], J[:, self.p :], 0.0)
        nearer = np.concatenate([(unknowns[: self.p] @ V.T) @ V, unknowns[self.p :]])
        return nearer if np.sum(self._evaluate(nearer)[0] ** 2) <= np.sum(r**2) * (1 + CONVERGED) else unknowns

    def found(self, solution, unknowns) -> Fit:
        r, J, predicted = self._evaluate(unknowns)
        parameters = self.motion.parameters
        x = jnp.asarray(unknowns[: self.p])
        values = np.asarray(parameters.values(x))
        slope = np.asarray(jax.jvp(parameters.values, (x,), (jnp.ones_like(x),))[1])
        counted = sum(int(e.measured.sum()) for e in self.experiments)
        logarithmic = np.asarray((parameters.lower == 0) & np.isinf(parameters.upper))
        about = parameters.names, values, slope, logarithmic, J[:, : self.p], J[:, self.p :]
        unknown = len(told(J[:, : self.p], J[:, self.p :], 0.0)[1])
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        own = int(np.linalg.matrix_rank(J[:, self.p :])) if self.fit_starts else 0
        joints = len(r) - counted
        noise = float(np.sqrt(np.sum(r**2) / max(1, counted + joints - unknown - own)))
        known = identifiability(*about, noise)
        outputs = tuple(self._outputs(i, predicted) for i in range(len(self.experiments)))
        jumps = [np.max(np.abs(a.end - b.begin)) for _, a, b in self._joints(predicted)]
        return Fit(
            model=parameters.put(self.motion.model, x),
            names=parameters.names,
            values=values,
            errors=known.errors,
            identifiability=known,
            starts=starts,
            experiments=self.experiments,
            predicted=outputs,
            noise=noise,
            jump=float(max(jumps, default=0.0)),
            evaluations=int(solution.nfev),
            converged=bool(solution.status > 0),
        )

    def _evaluate(self, unknowns) -> tuple[np.ndarray, np.ndarray, list[Predicted]]:
        if self.kept is not None and np.array_equal(self.kept[0], unknowns):
            return self.kept[1]
        x = unknowns[: self.p]
        starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
        predicted = predict(self.motion, self.experiments, self.pieces, self.dt, x, starts, self.fit_starts)
        width, rows, slopes = self.starts.shape[1], [], []

        def add(residual, by, *places):
            whole = np.zeros((len(residual), unknowns.size))
            for sign, piece, slope in ((1.0, *place) for place in places):
                whole[:, : self.p] += sign * slope[:, : self.p]
                if self.fit_starts:
                    at = self.p + piece * width
                    whole[:, at : at + width] += sign * slope[:, self.p :]
            rows.append(residual / by)
            slopes.append(whole / np.reshape(by, (-1, 1)))

        for i, (piece, found) in enumerate(zip(self.pieces, predicted, strict=True)):
            experiment = self.experiments[piece.experiment]
            stop = piece.last + piece.final
            here = experiment.measured[piece.first : stop]
            y, sigma = experiment.y[piece.first : stop][here], experiment.sigma[piece.first : stop][here]
            if found.outputs.shape[1:] != experiment.y.shape[1:]:
                raise ValueError(
                    f"observe gives {found.outputs.shape[1]} outputs, but experiment {piece.experiment} has "
                    f"{experiment.y.shape[1]}: y must have one column per output"
                )
            add(found.outputs[: len(here)][here] - y, sigma, (i, found.outputs_by[: len(here)][here]))
        for i, a, b in self._joints(predicted):
            size = self.continuity * float(np.mean(self.experiments[self.pieces[i].experiment].sigma))
            add(a.end - b.begin, np.full(a.end.size, size), (i, a.end_by), (i + 1, -b.begin_by))
        result = np.concatenate(rows), np.concatenate(slopes), predicted
        self.kept = np.array(unknowns), result
        return result

    def _joints(self, predicted):
        """Where one segment ends and the next begins."""
        return [(i, predicted[i], predicted[i + 1]) for i, piece in enumerate(self.pieces) if not piece.final]

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

    def _report(self, unknowns, r):
        self.steps += 1
        if self.progress:
            values = np.asarray(self.motion.parameters.values(jnp.asarray(unknowns[: self.p])))
            shown = "  ".join(f"{n}={x:.5g}" for n, x in zip(self.motion.parameters.names, values, strict=True))
            print(f"step {self.steps:3d}  RMS {np.sqrt(np.mean(r**2)):.4g}  {shown}", flush=True)
        if self.checkpoint is not None:
            values = self.motion.parameters.values(jnp.asarray(unknowns[: self.p]))
            starts = unknowns[self.p :].reshape(self.starts.shape) if self.fit_starts else self.starts
            names = list(self.motion.parameters.names)
            _write(self.checkpoint, {"names": names, "values": np.asarray(values).tolist(), "starts": starts.tolist()})

    def _resume(self, checkpoint: Path):
        held = json.loads(checkpoint.read_text())
        starts = np.asarray(held.get("starts", ()))
        if held.get("names") != list(self.motion.parameters.names) or starts.shape != self.starts.shape:
            raise ValueError(
                f"checkpoint {str(checkpoint)!r} is of another fit, with parameters {held.get('names')}: remove "
                "it, or name another file"
            )
        return np.asarray(self.motion.parameters.free(jnp.asarray(held["values"]))), starts


def _start_state(model, parameters, experiments, fit_starts, method):
    """How z becomes (q0, v0): as it is, where it is known and no parameter moves the constraints, else by ``Near``."""
    if not fit_starts and isinstance(model, AbstractSystem):

        def missed(x, z, t):
            q, v = jnp.split(z, 2)
            this = parameters.put(model, x)
            return jnp.concatenate([this.position_residual(t, q), this.velocity_residual(t, q, v)])

        z, t = jnp.asarray(_first_start(experiments[0])), jnp.asarray(experiments[0].t[0])
        if z.size % 2 == 0 and not np.any(jax.jit(jax.jacfwd(missed))(jnp.zeros(len(parameters.names)), z, t)):
            return _as_given
    return Near(method)


def _as_given(model, z, t):
    q, v = jnp.split(z, 2)
    return q, v


def _first_start(experiment):
    return experiment.start if experiment.start.ndim == 1 else experiment.start[0]


class Near(eqx.Module):
    """z = (q0, v0), which noise may have moved off the constraints a little."""

    method: AbstractMethod

    def __call__(self, model: Any, z: Array, t: Array) -> tuple[Array, Array]:
        q, v = jnp.split(z, 2)
        if not isinstance(model, AbstractSystem):
            return q, v
        return onto_constraints(model, t, q, v, at_every_level(self.method))


def _positions(t, q, v):
    return q


def _start_of(experiment: Experiment, piece: Segment):
    if experiment.start.ndim == 2:
        return experiment.start[piece.first]
    if piece.first > 0:
        raise ValueError(
            "several segments need a guess of the state at each of their starts: give Experiment a start of shape "
            "(samples, k), such as measured positions and their differences"
        )
    return experiment.start


def _check(experiments: Sequence[Experiment], segments, loss, drift) -> None:
    if not experiments or not all(isinstance(e, Experiment) for e in experiments):
        raise ValueError("experiments must be one ukjax.Experiment or several")
    if len({e.start.shape[-1] for e in experiments}) > 1:
        raise ValueError("every experiment's start must have as many numbers")
    if len({tuple(e.setting) for e in experiments}) > 1:
        raise ValueError("every experiment must set the same fields")
    shortest = min(e.t.size for e in experiments)
    if not 1 <= segments < shortest:
        raise ValueError(f"segments must be from 1 to {shortest - 1}, one less than the samples, got {segments}")
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
    if drift not in ("none", "projection"):
        raise ValueError(f"drift must be 'none' or 'projection', got {drift!r}")


def _write(path: Path, content: dict) -> Path:
    write_whole(path, lambda part: part.write_text(json.dumps(content, indent=1) + "\n"))
    return path
