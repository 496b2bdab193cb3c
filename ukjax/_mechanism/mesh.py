"""The lines by which a mesh is drawn: cuts across it, like ribs, and two lengthwise."""

import contextlib
import functools
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

SUFFIXES = ".stl", ".obj", ".ply", ".off", ".dae"
MAX_FILE_BYTES = 200_000_000
"""Bytes of a file that is read for a picture."""

RIBS = 0.01, 0.2, 0.4, 0.6, 0.8, 0.99
"""Where it is cut across, along its longest axis."""

LINES_PER_CUT, MAX_POINTS_PER_LINE = 2, 40
"""Of each cut the longest lines, with so many points at most: a picture is of the outside."""


def mesh_lines(path: str) -> tuple[tuple[np.ndarray, ...], str]:
    """Lines (points, 3) as long as the file says, and why there are none, if there are none. A file is read once, and
    again when it has changed."""
    file = Path(path)
    if not file.is_file():
        return (), "is not there"
    if file.suffix.lower() not in SUFFIXES:
        return (), f"is no file of {', '.join(SUFFIXES)}"
    about = file.stat()
    if about.st_size > MAX_FILE_BYTES:
        return (), f"is larger than {MAX_FILE_BYTES // 1_000_000} MB"
    return _read(file, about.st_mtime_ns)


@functools.lru_cache(maxsize=1024)
def _read(file: Path, changed: int) -> tuple[tuple[np.ndarray, ...], str]:
    try:
        import trimesh
    except ImportError:
        return (), "needs trimesh to be drawn: pip install 'ukjax[plot]'"
    try:
        with file.open("rb") as content:  # and of no other file: no materials, no pictures
            if file.suffix.lower() == ".dae" and _declares_entities(content.read()):
                return (), "has entities, which are not expanded"
            content.seek(0)
            mesh: Any = trimesh.load_mesh(content, file_type=file.suffix[1:].lower(), process=True)
        lines = _lines(mesh)
    except Exception as error:  # whatever a file may do to its reader
        return (), f"cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return lines, "" if lines else "has no triangles"


def _declares_entities(content: bytes) -> bool:
    """Whether a document type is declared, in whatever encoding."""
    found = False

    def declared(*_):
        nonlocal found
        found = True

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = declared
    with contextlib.suppress(expat.ExpatError):  # what is no XML is refused by its reader
        parser.Parse(content, True)
    return found


def _lines(mesh) -> tuple[np.ndarray, ...]:
    from trimesh.intersections import mesh_plane

    vertices = np.asarray(mesh.vertices, float)
    if not len(mesh.faces) or not np.all(np.isfinite(vertices)):
        return ()
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    along = int(np.argmax(high - low))
    cuts = [(along, share) for share in RIBS] + [(axis, 0.5) for axis in range(3) if axis != along]
    found = []
    for axis, share in cuts:
        middle = low + share * (high - low)
        pieces = np.asarray(mesh_plane(mesh, np.eye(3)[axis], middle), float).reshape(-1, 2, 3)
        lines = _chained(pieces, 1e-6 * float(np.max(high - low)))
        found += sorted(lines, key=lambda line: -float(np.max(np.ptp(line, axis=0))))[:LINES_PER_CUT]
    return tuple(found)


def _chained(pieces, near):
    """Lines made of pieces (k, 2, 3) whose ends meet, with no more than ``MAX_POINTS_PER_LINE`` points each."""
    ends = [[tuple(corner) for corner in piece] for piece in np.round(pieces / near).astype(int)]
    at: dict[tuple, list[tuple[int, int]]] = {}
    for i, piece in enumerate(ends):
        for side, corner in enumerate(piece):
            at.setdefault(corner, []).append((i, side))
    used, lines = np.zeros(len(pieces), bool), []
    for first in range(len(pieces)):
        if used[first]:
            continue
        used[first], line, corner = True, [pieces[first, 0], pieces[first, 1]], ends[first][1]
        while (following := next(((i, side) for i, side in at[corner] if not used[i]), None)) is not None:
            i, side = following
            used[i], corner = True, ends[i][1 - side]
            line.append(pieces[i, 1 - side])
        kept = np.linspace(0, len(line) - 1, min(len(line), MAX_POINTS_PER_LINE)).round().astype(int)
        lines.append(np.array(line)[kept])
    return lines
