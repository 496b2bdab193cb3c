"""Frames, solids and masses of MJCF."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._mechanism import Shape
from .frame import Frame, unit
from .inertia import NOTHING, Inertia, of_solid, together
from .markup import Place
from .meshes import mesh_file
from .reading import Reading

SEEN = 3
"""Geoms of groups below this one are shown, as MuJoCo's own window has it."""


def own_frame(spec: Any, element: Any) -> Frame:
    """An element's frame in the one that it is written in."""
    return Frame(_attitude(spec, element, element.quat, element.alt), np.array(element.pos))


def frames_of(spec: Any, element: Any) -> Frame:
    """The frame that an element is written in, in its body: of the <frame> around it, and those around that."""
    around = element.frame
    return Frame() if around is None else frames_of(spec, around).then(own_frame(spec, around))


def _attitude(spec, element, quat, alt) -> np.ndarray:
    if str(alt.type).endswith("QUAT"):
        return unit(np.array(quat))
    compiler = element.compiler
    return unit(np.array(spec.resolve_orientation(compiler.degree, compiler.eulerseq, alt)))


def inertia_of(it: Reading, body: Any, place: Place, moves: bool) -> Inertia:
    """As the file gives it, or as its geoms have it. What never moves needs none."""
    how = str(body.compiler.inertiafromgeom).rpartition("_")[2]
    if body.explicitinertial and how != "TRUE":
        diagonal = np.diag(body.inertia)
        frame = Frame(_attitude(it.spec, body, body.iquat, body.ialt), np.array(body.ipos))
        if np.isfinite(body.fullinertia[0]):
            xx, yy, zz, xy, xz, yz = body.fullinertia
            diagonal = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        return Inertia(float(body.mass), np.zeros(3), diagonal).inside(frame)
    if how == "FALSE" or not moves:
        return NOTHING
    low, high = body.compiler.inertiagrouprange
    return together(_of_geom(it, geom) for geom in body.geoms if low <= geom.group <= high)


def _of_geom(it, geom) -> Inertia:
    mass = float(geom.mass) if np.isfinite(geom.mass) else None
    kind = _kind(geom)
    if kind in ("plane", "hfield") or mass == 0 or mass is None and not geom.density:
        return NOTHING
    place = it.place(geom, "geom")
    if kind == "mesh" or geom.meshname:
        raise place.error(
            "has a mesh, whose mass and inertia are in no file that is read here: give its body an <inertial>, or the "
            'geom mass="0"'
        )
    shape = _shape(it, geom, kind)
    if shape is None or str(geom.typeinertia).endswith("SHELL"):
        raise place.error("must be a full box, sphere, cylinder, capsule or ellipsoid to give its body a mass")
    if min(shape.size) <= 0:
        raise place.error(f"must have a size above 0, got {list(shape.size)}")
    frame = Frame(np.array(shape.turn), np.array(shape.at))
    return of_solid(kind, shape.size, mass, float(geom.density)).inside(frame)


def adjusted(inertia: Inertia, body: Any, moves: bool) -> Inertia:
    """With what <compiler> asks of every body: a least mass and inertia, and moments that a body can have."""
    compiler = body.compiler
    if not moves or not (compiler.boundmass or compiler.boundinertia or compiler.balanceinertia):
        return inertia
    moments, axes = np.linalg.eigh(inertia.about_centre)
    wanted = np.maximum(moments, compiler.boundinertia)
    if compiler.balanceinertia and np.sum(wanted) < 2 * np.max(wanted):
        wanted = np.full(3, np.mean(wanted))
    changed = inertia.about_centre if np.all(wanted == moments) else axes @ np.diag(wanted) @ axes.T
    return Inertia(max(inertia.mass, compiler.boundmass), inertia.centre, changed)


def shapes_of(it: Reading, body: Any) -> Iterator[Shape]:
    """What is shown of it."""
    for geom in body.geoms:
        shape = _shape(it, geom, _kind(geom)) if geom.group < SEEN else None
        if shape is not None:
            yield shape


def _kind(geom) -> str:
    return str(geom.type).rpartition("_")[2].lower()


def _shape(it, geom, kind) -> Shape | None:
    frame = own_frame(it.spec, geom)
    a, b, c = (float(x) for x in geom.size)
    if np.isfinite(geom.fromto[0]):
        ends = np.reshape(geom.fromto, (2, 3))
        along = ends[0] - ends[1]
        frame = Frame(_from_z(along), np.mean(ends, axis=0))
        half = float(np.linalg.norm(along)) / 2
        b, c = (half, c) if kind in ("capsule", "cylinder") else (a, half)
    frame = frames_of(it.spec, geom).then(frame)
    size, path = {
        "sphere": ((a,), ""),
        "capsule": ((a, 2 * b), ""),
        "cylinder": ((a, 2 * b), ""),
        "box": ((2 * a, 2 * b, 2 * c), ""),
        "ellipsoid": ((a, b, c), ""),
        "mesh": _mesh(it, geom),
    }.get(kind, (None, ""))
    return None if size is None else Shape(kind, size, tuple(frame.p.tolist()), tuple(frame.u.tolist()), path)


def _mesh(it, geom):
    mesh = next((mesh for mesh in it.spec.meshes if mesh.name == geom.meshname), None)
    if mesh is None:
        return (1.0, 1.0, 1.0), geom.meshname
    return tuple(map(float, mesh.scale)), mesh_file(it.path, mesh.file, it.spec.meshdir)


def _from_z(direction) -> np.ndarray:
    """The shortest turn that takes z there."""
    x, y, z = direction / np.linalg.norm(direction)
    return unit(np.array([1 + z, -y, x, 0.0])) if z > -1 else np.array([0.0, 1.0, 0.0, 0.0])
