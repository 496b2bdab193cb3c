"""Solids and masses of MJCF."""

from collections.abc import Iterator

import numpy as np

from .._mechanism import Shape
from .compiled import compiler_of
from .frame import Frame
from .inertia import Inertia
from .meshes import mesh_file
from .reading import Reading

FIRST_HIDDEN_GROUP = 3
"""Geoms of groups below this one are shown, as MuJoCo's own window has it."""


def inertia_of(it: Reading, body: int) -> Inertia:
    """As MuJoCo has it: given by the file, or computed from geoms."""
    model = it.model
    frame = Frame(model.body_iquat[body].copy(), model.body_ipos[body].copy())
    return Inertia(float(model.body_mass[body]), np.zeros(3), np.diag(model.body_inertia[body])).transformed(frame)


def shapes_of(it: Reading, body: int) -> Iterator[Shape]:
    """What is shown of a body."""
    model = it.model
    for geom in range(model.body_geomadr[body], model.body_geomadr[body] + model.body_geomnum[body]):
        mesh = it.meshes.get(geom)
        kind = str(it.mujoco.mjtGeom(model.geom_type[geom])).rpartition("_")[2].lower()
        a, b, c = (float(x) for x in model.geom_size[geom])
        frame, path = it.frame("geom", geom), ""
        if mesh is not None:
            kind, (a, b, c) = "mesh", map(float, mesh.scale)
            path = mesh_file(it.path, mesh.file, compiler_of(it.spec, mesh).meshdir)
            number = model.geom_dataid[geom]
            if number >= 0:  # MuJoCo has moved the mesh to its centre of mass and turned it to its principal axes
                frame = frame.then(it.frame("mesh", number).inverse())
        size = {
            "sphere": (a,),
            "capsule": (a, 2 * b),
            "cylinder": (a, 2 * b),
            "box": (2 * a, 2 * b, 2 * c),
            "ellipsoid": (a, b, c),
            "mesh": (a, b, c),
        }.get(kind)
        if size is not None and model.geom_group[geom] < FIRST_HIDDEN_GROUP:
            yield Shape(kind, size, tuple(frame.p.tolist()), tuple(frame.u.tolist()), path)
