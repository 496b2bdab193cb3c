"""Drawing of a mesh: as a surface with few triangles, and as lines.

The lines are cross sections along its longest axis, and one across each of the other axes.
"""

import contextlib
import functools
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np

SUFFIXES = ".stl", ".obj", ".ply", ".off", ".dae"
MAX_FILE_BYTES = 200_000_000
"""Largest file that is read [bytes]."""

RIBS = 0.01, 0.2, 0.4, 0.6, 0.8, 0.99
"""Positions of the cross sections along the longest axis, as fractions of its length."""

LINES_PER_CUT, MAX_POINTS_PER_LINE = 2, 40
"""Number of lines kept per cut, longest first, so that only the outside is drawn; and points kept per line."""

MAX_TRIANGLES = 3000
"""Largest number of triangles of a drawn mesh; in a larger mesh, vertices that are near each other are joined."""


class Drawing(NamedTuple):
    """The drawing of a mesh.

    Attributes
    ----------
    lines
        Lines (points, 3) in the units of the file.
    surface
        Vertices (k, 3) in the units of the file, and their indices for each triangle (f, 3).
    reason
        Why there are no lines and no surface, else an empty text.
    """

    lines: tuple[np.ndarray, ...] = ()
    surface: tuple[np.ndarray, np.ndarray] = (np.zeros((0, 3)), np.zeros((0, 3), int))
    reason: str = ""


def mesh_drawing(path: str) -> Drawing:
    """The drawing of the mesh in a file. A file is read again only after it has changed."""
    file = Path(path)
    if not file.is_file():
        return Drawing(reason="does not exist")
    if file.suffix.lower() not in SUFFIXES:
        return Drawing(reason=f"is not a file of type {', '.join(SUFFIXES)}")
    status = file.stat()
    if status.st_size > MAX_FILE_BYTES:
        return Drawing(reason=f"is larger than {MAX_FILE_BYTES // 1_000_000} MB")
    return _read(file, status.st_mtime_ns)


@functools.lru_cache(maxsize=1024)
def _read(file: Path, changed: int) -> Drawing:
    try:
        import trimesh
    except ImportError:
        return Drawing(reason="needs trimesh to be drawn: pip install 'ukjax[plot]'")
    try:
        with file.open("rb") as content:  # a stream, so that trimesh reads no other files (materials, textures)
            if file.suffix.lower() == ".dae" and _declares_entities(content.read()):
                return Drawing(reason="has entities, which are not expanded")
            content.seek(0)
            mesh: Any = trimesh.load_mesh(content, file_type=file.suffix[1:].lower(), process=True)
        lines = _lines(mesh)
    except Exception as error:  # a malformed file can raise anything in its parser
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Drawing(reason=f"cannot be read: {words}")
    return Drawing(lines, _coarser(mesh)) if lines else Drawing(reason="has no triangles")


def _declares_entities(content: bytes) -> bool:
    """Whether the XML file has a document type declaration, in any encoding."""
    found = False

    def on_doctype(*_):
        nonlocal found
        found = True

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = on_doctype
    with contextlib.suppress(expat.ExpatError):  # trimesh reports files that are not XML
        parser.Parse(content, True)
    return found


def _coarser(mesh) -> tuple[np.ndarray, np.ndarray]:
    """The surface with at most ``MAX_TRIANGLES`` triangles.

    Vertices in one cell of a regular grid become one, at their mean. The grid is refined as far as the number of
    triangles allows.
    """
    vertices, faces = np.asarray(mesh.vertices, float), np.asarray(mesh.faces, int)
    if len(faces) <= MAX_TRIANGLES:
        return vertices, faces
    low, size = vertices.min(axis=0), float(np.max(np.ptp(vertices, axis=0)))
    surface = vertices[:1], np.zeros((0, 3), int)
    for cells in (8, 11, 16, 22, 32, 45, 64):
        _, cell = np.unique(np.floor((vertices - low) / size * cells).astype(int), axis=0, return_inverse=True)
        cell = np.ravel(cell)
        means = np.stack([np.bincount(cell, vertices[:, k]) for k in range(3)], axis=1) / np.bincount(cell)[:, None]
        joined = cell[faces]
        is_triangle = (joined != np.roll(joined, 1, axis=1)).all(axis=1)
        joined = joined[is_triangle]
        _, first = np.unique(np.sort(joined, axis=1), axis=0, return_index=True)
        if len(first) > MAX_TRIANGLES:
            break
        surface = means, joined[first]
    return surface


def _lines(mesh) -> tuple[np.ndarray, ...]:
    from trimesh.intersections import mesh_plane

    vertices = np.asarray(mesh.vertices, float)
    if not len(mesh.faces) or not np.all(np.isfinite(vertices)):
        return ()
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    longest_axis = int(np.argmax(high - low))
    cuts = [(longest_axis, fraction) for fraction in RIBS] + [(axis, 0.5) for axis in range(3) if axis != longest_axis]
    lines = []
    for axis, fraction in cuts:
        middle = low + fraction * (high - low)
        pieces = np.asarray(mesh_plane(mesh, np.eye(3)[axis], middle), float).reshape(-1, 2, 3)
        lines_of_cut = _chained(pieces, 1e-6 * float(np.max(high - low)))
        lines += sorted(lines_of_cut, key=lambda line: -float(np.max(np.ptp(line, axis=0))))[:LINES_PER_CUT]
    return tuple(lines)


def _chained(segments, tolerance):
    """Join segments (k, 2, 3) with common ends to lines of at most ``MAX_POINTS_PER_LINE`` points each."""
    ends = [[tuple(corner) for corner in segment] for segment in np.round(segments / tolerance).astype(int)]
    segments_at: dict[tuple, list[tuple[int, int]]] = {}
    for i, segment in enumerate(ends):
        for side, corner in enumerate(segment):
            segments_at.setdefault(corner, []).append((i, side))
    used, lines = np.zeros(len(segments), bool), []
    for first in range(len(segments)):
        if used[first]:
            continue
        used[first], line, corner = True, [segments[first, 0], segments[first, 1]], ends[first][1]
        while (next_segment := next(((i, side) for i, side in segments_at[corner] if not used[i]), None)) is not None:
            i, side = next_segment
            used[i], corner = True, ends[i][1 - side]
            line.append(segments[i, 1 - side])
        indices = np.linspace(0, len(line) - 1, min(len(line), MAX_POINTS_PER_LINE)).round().astype(int)
        lines.append(np.array(line)[indices])
    return lines
