"""``Experiment``: one measured motion."""

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from .._check import as_numpy, check_finite, check_times, repr_of
from .._errors import InputError
from .._precision import Numbers


class Experiment(eqx.Module):
    """One measured motion: outputs y at times t.

    Parameters
    ----------
    t : array_like, shape (samples,)
        Times of the samples [s], increasing.
    y : array_like, shape (samples, outputs) or (samples,)
        Measured outputs, in the units of ``observe`` in ``fit``.
    start : tuple of array_like, or array_like, shape (k,) or (samples, k)
        Guess of the state at ``t[0]``: (q0, v0), or the numbers z, shape (k,), from which ``state`` of ``fit`` computes
        it. If the record is cut into segments, one row for every sample.
    sigma : float or array_like, shape (outputs,) or (samples, outputs), optional
        Standard deviation of the noise, in the units of y. Default: ``fit`` estimates it for each output.
    measured : array_like of bool, shape (samples, outputs), optional
        False where a value is missing. Default: no value is missing.
    setting : dict, optional
        Values of fields of the model for this experiment only, name -> array: a payload, or the record of a torque. A
        record may have one row per sample.

    Attributes
    ----------
    weighted : bool
        Whether ``sigma`` was given.

    Raises
    ------
    InputError
        If shapes do not fit, or if a value that counts as measured is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> import ukjax as uk
    >>> t = np.linspace(0.0, 1.0, 11)
    >>> record = uk.Experiment(t, np.cos(t), ([1.0], [0.0]), sigma=0.01)
    >>> record.y.shape
    (11, 1)
    """

    t: Float[np.ndarray, " samples"]
    y: Float[np.ndarray, "samples outputs"]
    start: Float[np.ndarray, "*samples k"]
    sigma: Float[np.ndarray, "samples outputs"]
    measured: Bool[np.ndarray, "samples outputs"]
    setting: dict[str, np.ndarray]
    weighted: bool = eqx.field(static=True)

    def __init__(
        self,
        t: Numbers,
        y: Numbers,
        start: Any,
        *,
        sigma: Numbers | None = None,
        measured: Any = None,
        setting: Mapping[str, Any] | None = None,
    ):
        self.t, self.y = as_numpy("t", t, "times"), as_numpy("y", y)
        one = self.y.ndim == 1
        if one:
            self.y = self.y[:, None]
        check_times("t", self.t)
        if self.y.ndim != 2 or len(self.y) != self.t.size or not self.y.size:
            raise InputError(f"y must have a row per time, shape ({self.t.size}, outputs), got shape {np.shape(y)}")
        self.measured = np.ones(self.y.shape, bool) if measured is None else _as_column(_as_flags(measured), one)
        if self.measured.shape != self.y.shape:
            raise InputError(f"measured must have the shape of y, {self.y.shape}, got {self.measured.shape}")
        wrong = self.measured & ~np.isfinite(self.y)
        if np.any(wrong):
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise InputError(
                f"y is not finite in {int(wrong.sum())} of {wrong.size} values, first y[{row}, {column}] = "
                f"{self.y[row, column]} at t = {self.t[row]:g} s: if they are missing, say measured=numpy.isfinite(y)"
            )
        self.y = np.where(self.measured, self.y, 0.0)
        self.weighted = sigma is not None
        spread = _as_column(as_numpy("sigma", 1.0 if sigma is None else sigma), one)
        outputs = self.y.shape[1:]
        if spread.shape not in ((), outputs, self.y.shape, (self.t.size, 1)):
            raise InputError(
                f"sigma must be a number, or have shape {outputs} or {self.y.shape} like y, got shape {spread.shape}"
            )
        if not np.all(spread > 0) or not np.all(np.isfinite(spread)):
            raise InputError(f"sigma must be positive, the standard deviation of the noise, got {repr_of(spread)}")
        self.sigma = np.broadcast_to(spread, self.y.shape)
        parts = [as_numpy("start", part) for part in (start if isinstance(start, tuple) else (start,))]
        if not parts or not all(part.ndim for part in parts) or len({part.shape[:-1] for part in parts}) > 1:
            raise InputError(
                f"start must be (q0, v0), or one row of numbers (k,), got shapes {[part.shape for part in parts]}"
            )
        self.start = np.concatenate(parts, axis=-1)
        if self.start.ndim not in (1, 2) or self.start.ndim == 2 and len(self.start) != self.t.size:
            raise InputError(
                f"start must have shape (k,), or (samples, k) = ({self.t.size}, k), got shape {self.start.shape}"
            )
        if not np.all(np.isfinite(self.start)):
            raise InputError("start must be finite: a guess is good enough, such as the first measured values")
        if not isinstance(setting, Mapping | None):
            raise InputError(f"setting must be a dictionary, name -> array, got {repr_of(setting)}")
        self.setting = {name: as_numpy(f"setting[{name!r}]", value) for name, value in (setting or {}).items()}
        for name, value in self.setting.items():
            check_finite(f"setting[{name!r}]", value)


def as_experiments(experiments: Any) -> tuple[Experiment, ...]:
    """One experiment or several as a tuple; raises ``InputError`` for anything else."""
    given = (
        (experiments,) if isinstance(experiments, Experiment) or not isinstance(experiments, Iterable) else experiments
    )
    given = tuple(given)
    invalid = [each for each in given if not isinstance(each, Experiment)]
    if not given or invalid:
        raise InputError(
            f"experiments must be one ukjax.Experiment or several, got {repr_of(invalid[0]) if given else 'none'}"
        )
    return given


def _as_flags(value: Any) -> np.ndarray:
    try:
        flags = np.asarray(value)
    except ValueError:
        flags = np.asarray(None)
    if flags.dtype != bool:
        raise InputError(f"measured must be True or False for each value of y, got {repr_of(value)}")
    return flags


def _as_column(x: np.ndarray, is_single: bool) -> np.ndarray:
    """Turn an array (samples,) into a column if y was given as an array (samples,)."""
    return x[:, None] if is_single and x.ndim == 1 else x
