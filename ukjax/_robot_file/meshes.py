"""Locate the files of meshes."""

from pathlib import Path


def mesh_file(robot: Path, name: str, folder: str = "") -> str:
    """The file of the mesh ``name`` in a ``robot`` file; ``name`` itself if there is no such file.

    A relative name is searched for in ``folder`` next to the robot file. A name package://P/... is searched for in
    folders P next to the robot file or above it, one of which may contain the robot file.
    """
    scheme, _, rest = name.partition("://") if "://" in name else ("", "", name)
    package, _, inner = rest.partition("/")
    above = robot.resolve().parents
    candidates = {
        "": [robot.parent / folder / rest],
        "file": [Path(rest)],
        "package": [p / rest for p in above] + [p / inner for p in above if p.name == package],
    }
    return next((str(place) for place in candidates.get(scheme, []) if place.is_file()), name)
