"""Shapes and inertias of MJCF bodies."""

from collections.abc import Iterator

import numpy as np

from .._mechanism import Shape
from .compiled import compiler_of
from .frame import Frame
from .inertia import Inertia
from .meshes import mesh_file
from .reading import Reading

FIRST_HIDDEN_GROUP = 3
"""The first group of geoms that MuJoCo's viewer hides by default."""


def inertia_of(reading: Reading, body: int) -> Inertia:
    """The inertia of a body, which MuJoCo took from the file or computed from the geoms."""
    model = reading.model
    frame = Frame(model.body_iquat[body].copy(), model.body_ipos[body].copy())
    return Inertia(float(model.body_mass[body]), np.zeros(3), np.diag(model.body_inertia[body])).transformed(frame)


def shapes_of(reading: Reading, body: int) -> Iterator[Shape]:
    """The visible shapes of a body."""
    model = reading.model
    for geom in range(model.body_geomadr[body], model.body_geomadr[body] + model.body_geomnum[body]):
        shape = shape_of(reading, geom)
        if shape is not None and model.geom_group[geom] < FIRST_HIDDEN_GROUP:
            yield shape


def shape_of(reading: Reading, geom: int) -> Shape | None:
    """The shape of a geom; None for a plane."""
    model, mesh = reading.model, reading.meshes.get(geom)
    kind = str(reading.mujoco.mjtGeom(model.geom_type[geom])).rpartition("_")[2].lower()
    a, b, c = (float(x) for x in model.geom_size[geom])
    frame, path = reading.frame("geom", geom), ""
    if mesh is not None:
        kind, (a, b, c) = "mesh", map(float, mesh.scale)
        path = mesh_file(reading.path, mesh.file, compiler_of(reading.spec, mesh).meshdir)
        number = model.geom_dataid[geom]
        if number >= 0:  # MuJoCo moves a mesh to its centre of mass and rotates it to its principal axes
            frame = frame.then(reading.frame("mesh", number).inverse())
    size = {
        "sphere": (a,),
        "capsule": (a, 2 * b),
        "cylinder": (a, 2 * b),
        "box": (2 * a, 2 * b, 2 * c),
        "ellipsoid": (a, b, c),
        "mesh": (a, b, c),
    }.get(kind)
    return None if size is None else Shape(kind, size, tuple(frame.p.tolist()), tuple(frame.u.tolist()), path)
