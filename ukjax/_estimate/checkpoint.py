"""The state of a search, kept in a file so that another process can go on from it."""

import json
from pathlib import Path

import numpy as np
from jaxtyping import Float

from .._files import check_writable, write_json
from .._parameters import Parameters


class Checkpoint:
    """Values of the ``parameters``, and ``starts`` (segments, k), in the JSON file ``path``. Errors name the file.

    Raises ``ValueError`` where it can neither be read nor written.
    """

    def __init__(self, path: Path, parameters: Parameters):
        self.path, self.parameters = path, parameters
        try:
            check_writable(path)
        except OSError as error:
            raise ValueError(f"checkpoint {str(path)!r} cannot be written: {error.strerror}") from None

    def keep(self, values: Float[np.ndarray, " p"], starts: Float[np.ndarray, "segments k"]) -> None:
        """Replace what is there."""
        names = list(self.parameters.names)
        write_json(self.path, {"names": names, "values": values.tolist(), "starts": starts.tolist()})

    def kept(self, shape: tuple[int, ...]) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "segments k"]] | None:
        """Values, and starts of that ``shape``; None if nothing was kept yet. ``ValueError`` for anything else."""
        if not self.path.exists():
            return None
        try:
            held = json.loads(self.path.read_text(encoding="utf-8"))
            names, numbers = held["names"], (held["values"], held["starts"])
            values, starts = (np.asarray(x, float) for x in numbers)
        except OSError as error:
            raise ValueError(f"checkpoint {str(self.path)!r} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(
                f"checkpoint {str(self.path)!r} is no state of a fit: remove it, or name another file"
            ) from None
        if names != list(self.parameters.names):
            raise self._of_another(f"whose parameters are {names}, not {list(self.parameters.names)}")
        if values.shape != (len(names),):
            raise self._of_another(f"with {values.size} values for {len(names)} parameters")
        if starts.shape != shape:
            raise self._of_another(f"with starts of shape {starts.shape}, where these have {shape}")
        within = (values > np.asarray(self.parameters.lower)) & (values < np.asarray(self.parameters.upper))
        if not (np.all(within) and np.all(np.isfinite(starts))):
            raise self._of_another("with values that are not finite, or out of the bounds of these")
        return values, starts

    def _of_another(self, how: str) -> ValueError:
        return ValueError(f"checkpoint {str(self.path)!r} is of another fit, {how}: remove it, or name another file")
