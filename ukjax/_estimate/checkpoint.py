"""The state of a fit in a file, from which another process can resume it."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._errors import InputError
from .._files import check_writable, write_json
from .._fingerprint import fingerprint, first_difference
from .._motion.determining import determining_values
from .._parameters import Parameters
from .._with_states import equations_of
from .experiment import Experiment
from .segments import Prediction


class Checkpoint:
    """The JSON file ``path`` with values of the ``parameters``, starts (segments, k), and the fingerprint of the fit.

    Raises ``InputError``, which names the file, if it cannot be read or written.
    """

    def __init__(self, path: Path, parameters: Parameters, fingerprint: dict[str, Any]):
        self.path, self.parameters, self.fingerprint = path, parameters, fingerprint
        try:
            check_writable(path)
        except OSError as error:
            raise InputError(f"checkpoint {str(path)!r} cannot be written: {error.strerror}") from None

    def keep(self, values: Float[np.ndarray, " p"], starts: Float[np.ndarray, "segments k"]) -> None:
        """Write the state, and replace the state in the file."""
        names = list(self.parameters.names)
        state = {"names": names, "values": values.tolist(), "starts": starts.tolist()}
        write_json(self.path, state | {"fit": self.fingerprint})

    def kept(self, shape: tuple[int, ...]) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "segments k"]] | None:
        """Read the values, and the starts of that ``shape``; None if the file does not exist yet.

        Raises ``InputError`` if the file contains no state, or the state of another fit.
        """
        if not self.path.exists():
            return None
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            names, fingerprint, arrays = content["names"], content.get("fit"), (content["values"], content["starts"])
            values, starts = (np.asarray(x, float) for x in arrays)
        except OSError as error:
            raise InputError(f"checkpoint {str(self.path)!r} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(
                f"checkpoint {str(self.path)!r} is not the state of a fit: remove it, or name another file"
            ) from None
        if names != list(self.parameters.names):
            raise self._other_fit_error(f"whose parameters are {names}, not {list(self.parameters.names)}")
        if values.shape != (len(names),):
            raise self._other_fit_error(f"with {values.size} values for {len(names)} parameters")
        if starts.shape != shape:
            raise self._other_fit_error(f"with starts of shape {starts.shape}, where these have {shape}")
        inside_bounds = (values > np.asarray(self.parameters.lower)) & (values < np.asarray(self.parameters.upper))
        if not (np.all(inside_bounds) and np.all(np.isfinite(starts))):
            raise self._other_fit_error("with values that are not finite, or out of the bounds of these")
        if not isinstance(fingerprint, dict):
            raise self._other_fit_error("or of an earlier version of ukjax, since it does not say of which fit it is")
        if difference := first_difference(fingerprint, self.fingerprint):
            raise self._other_fit_error(f"since {difference}")
        return values, starts

    def _other_fit_error(self, reason: str) -> InputError:
        return InputError(f"checkpoint {str(self.path)!r} is of another fit, {reason}: remove it, or name another file")


def fingerprint_of(
    prediction: Prediction, experiments: Sequence[Experiment], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Fingerprint of everything that determines the minimum: the model, its first guess, the records and the
    ``options``."""
    parameters, dtype = prediction.parameters, jnp.result_type(float)
    shape = lambda *size: jax.ShapeDtypeStruct(size, dtype)
    bounds = {
        name: [float(a), float(b)]
        for name, a, b in zip(parameters.names, parameters.lower, parameters.upper, strict=True)
    }
    recorded = ("t", "y", "sigma", "weighted", "measured", "start", "setting")
    records = {
        f"experiment {i}": {name: getattr(experiment, name) for name in recorded}
        for i, experiment in enumerate(experiments)
    }
    return fingerprint(
        type(prediction.observed.model).__name__,
        prediction.observed,
        partial(_functions, prediction, jax.tree.map(jnp.asarray, experiments[0].setting)),
        (shape(len(parameters.names)), shape(experiments[0].start.shape[-1]), shape()),
        records,
        {"bounds": bounds, "method": prediction.method, **options},
        "checkpoint",
    )


def _functions(prediction, setting, x, z, t):
    """Values and derivatives of all functions of a fit at the start of an experiment."""

    def evaluate(x, z):
        observed = prediction.observed_with(x, setting)
        q, v, _ = prediction.state(observed.model, z, t, prediction.method)
        model = equations_of(observed.model)
        return q, v, determining_values(model, t, q, v), observed.observe(t, q, v)

    return jax.jvp(evaluate, (x, z), (x, z))
