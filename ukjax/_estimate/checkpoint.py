"""The state of a search, kept in a file so that another process can go on from it."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._files import check_writable, write_json
from .._fingerprint import fingerprint, first_difference
from .._kinematic_map import rate
from .._parameters import Parameters
from .._system import AbstractSystem, kinematic_map_of
from .experiment import Experiment
from .segments import Prediction


class Checkpoint:
    """Values of the ``parameters``, and ``starts`` (segments, k), in the JSON file ``path``, with the ``fingerprint``
    of the fit that they belong to. Errors name the file.

    Raises ``ValueError`` where it can neither be read nor written.
    """

    def __init__(self, path: Path, parameters: Parameters, fingerprint: dict[str, Any]):
        self.path, self.parameters, self.fingerprint = path, parameters, fingerprint
        try:
            check_writable(path)
        except OSError as error:
            raise ValueError(f"checkpoint {str(path)!r} cannot be written: {error.strerror}") from None

    def keep(self, values: Float[np.ndarray, " p"], starts: Float[np.ndarray, "segments k"]) -> None:
        """Replace what is there."""
        names = list(self.parameters.names)
        state = {"names": names, "values": values.tolist(), "starts": starts.tolist()}
        write_json(self.path, state | {"fit": self.fingerprint})

    def kept(self, shape: tuple[int, ...]) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "segments k"]] | None:
        """Values, and starts of that ``shape``; None if nothing was kept yet. ``ValueError`` for anything else, and for
        the state of another fit."""
        if not self.path.exists():
            return None
        try:
            held = json.loads(self.path.read_text(encoding="utf-8"))
            names, about, numbers = held["names"], held.get("fit"), (held["values"], held["starts"])
            values, starts = (np.asarray(x, float) for x in numbers)
        except OSError as error:
            raise ValueError(f"checkpoint {str(self.path)!r} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError(
                f"checkpoint {str(self.path)!r} is no state of a fit: remove it, or name another file"
            ) from None
        if names != list(self.parameters.names):
            raise self._other_fit_error(f"whose parameters are {names}, not {list(self.parameters.names)}")
        if values.shape != (len(names),):
            raise self._other_fit_error(f"with {values.size} values for {len(names)} parameters")
        if starts.shape != shape:
            raise self._other_fit_error(f"with starts of shape {starts.shape}, where these have {shape}")
        within = (values > np.asarray(self.parameters.lower)) & (values < np.asarray(self.parameters.upper))
        if not (np.all(within) and np.all(np.isfinite(starts))):
            raise self._other_fit_error("with values that are not finite, or out of the bounds of these")
        if not isinstance(about, dict):
            raise self._other_fit_error("or of an earlier version of ukjax, since it does not say of which fit it is")
        if difference := first_difference(about, self.fingerprint):
            raise self._other_fit_error(f"since {difference}")
        return values, starts

    def _other_fit_error(self, how: str) -> ValueError:
        return ValueError(f"checkpoint {str(self.path)!r} is of another fit, {how}: remove it, or name another file")


def fingerprint_of(
    prediction: Prediction, experiments: Sequence[Experiment], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What decides where the minimum of a fit is: the model and its first guess, what is measured, the ``options``."""
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
    """What all functions of a fit return at the start of an experiment, and their derivatives."""

    def of(x, z):
        observed = prediction.observed_with(x, setting)
        model = observed.model
        q, v, _ = prediction.state(model, z, t, prediction.method)
        found = [model(t, q, v), rate(kinematic_map_of(model), q, v), observed.observe(t, q, v)]
        if isinstance(model, AbstractSystem):
            found.append(model.violation(t, q, v))
        return eqx.filter((q, v, found), eqx.is_array)

    return jax.jvp(of, (x, z), (x, z))
