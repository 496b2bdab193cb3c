"""Robot description files of ten small mechanisms: ``ukjax.load(ukjax.robots.path("delta"))``."""

from pathlib import Path

from .._errors import InputError
from .._names import did_you_mean_one_of

FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Return the names of all files.

    Returns
    -------
    tuple of str
        The names, sorted, for ``path``.
    """
    return tuple(sorted(file.stem for file in FOLDER.iterdir() if file.suffix in (".urdf", ".xml")))


def path(name: str) -> Path:
    """Return the path of a robot description file.

    Parameters
    ----------
    name : str
        One of ``names()``.

    Returns
    -------
    Path
        The URDF or MJCF file.

    Raises
    ------
    InputError
        If there is no file with this name.
    """
    for suffix in (".urdf", ".xml"):
        if (file := FOLDER / f"{name}{suffix}").is_file():
            return file
    raise InputError(f"no robot is named {name!r}{did_you_mean_one_of(str(name), names())}")
