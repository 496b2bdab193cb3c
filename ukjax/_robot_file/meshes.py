"""Where the files of meshes are."""

from pathlib import Path


def mesh_file(robot: Path, name: str, folder: str = "") -> str:
    """The file of a mesh that the file of a ``robot`` calls by this name; the name itself where there is none.

    A relative one is looked for in the ``folder`` beside the robot's file, one of package://P/... in folders P beside
    that file and above it, which may be the one it is in.
    """
    scheme, _, rest = name.partition("://") if "://" in name else ("", "", name)
    package, _, inner = rest.partition("/")
    above = robot.resolve().parents
    places = {
        "": [robot.parent / folder / rest],
        "file": [Path(rest)],
        "package": [p / rest for p in above] + [p / inner for p in above if p.name == package],
    }
    return next((str(place) for place in places.get(scheme, []) if place.is_file()), name)
