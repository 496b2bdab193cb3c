"""Ten small mechanisms as robots' files: ``ukjax.load(ukjax.robots.path("delta"))``."""

from pathlib import Path

from .._names import did_you_mean

FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Of all of them."""
    return tuple(sorted(file.stem for file in FOLDER.iterdir() if file.suffix in (".urdf", ".xml")))


def path(name: str) -> Path:
    """Where the file of that name is. Raises ``ValueError`` where there is none."""
    for ending in (".urdf", ".xml"):
        if (file := FOLDER / f"{name}{ending}").is_file():
            return file
    raise ValueError(f"no robot is named {name!r}{did_you_mean(str(name), names())} There are: {', '.join(names())}")
