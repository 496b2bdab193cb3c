"""An MJCF file as MuJoCo compiles it: masses, frames, units and defaults are its own."""

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from .markup import Place

MIN_VERSION = (3, 3, 7)
"""The first version of MuJoCo with all that is used here."""

HIDDEN_GROUP = 5
"""A group of geoms that is not shown."""


def import_mujoco() -> Any:
    """The package, or ``ImportError``, where it is not installed or too old."""
    wanted = ".".join(map(str, MIN_VERSION))
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:
        raise ImportError("an MJCF file needs the package mujoco: pip install 'ukjax[mjcf]'") from None
    version = tuple(int(number) for number in re.findall(r"\d+", mujoco.__version__)[:3])
    if version < MIN_VERSION:
        raise ImportError(
            f"an MJCF file needs mujoco {wanted} or later, got {mujoco.__version__}: pip install -U 'ukjax[mjcf]'"
        )
    return mujoco


def parsed(path: Path) -> tuple[Any, Any]:
    """The package, and the file's spec; ``ValueError`` for what is no MJCF."""
    mujoco = import_mujoco()
    try:
        return mujoco, mujoco.MjSpec.from_file(str(path.absolute()))
    except ValueError as error:
        raise _error(path, error) from None


def compiled(path: Path, mujoco: Any, spec: Any) -> tuple[Any, dict[int, Any]]:
    """The spec's model, and the meshes of its geoms, by the geoms' numbers; ``ValueError`` for what MuJoCo refuses.

    Every body of the file is one of the model. What has no part in the motion is left out: sensors, textures, height
    fields, and the meshes of geoms that give no body its mass, which are massless spheres in the model. So their files
    need not be there.
    """
    spec.compiler.fusestatic = spec.compiler.discardvisual = False
    meshes = {mesh.name or Path(mesh.file).stem: mesh for mesh in spec.meshes}
    shown = [(geom, meshes[geom.meshname]) for geom in spec.geoms if _is_mesh(mujoco, geom) and geom.meshname in meshes]
    needed = {g.meshname for g in spec.geoms if not _is_mesh(mujoco, g) or _gives_mass(mujoco, spec, g)}
    for geom in spec.geoms:
        is_field = geom.type == mujoco.mjtGeom.mjGEOM_HFIELD
        if is_field or _is_mesh(mujoco, geom) and geom.meshname not in needed:
            geom.type, geom.meshname, geom.hfieldname = mujoco.mjtGeom.mjGEOM_SPHERE, "", ""
            geom.mass, geom.size = 0.0, np.ones(3)
            geom.group = HIDDEN_GROUP if is_field else geom.group
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    for light in spec.lights:
        light.texture = ""
    unread = [mesh for name, mesh in meshes.items() if name not in needed]
    for element in [*spec.sensors, *spec.textures, *spec.hfields, *spec.skins, *unread]:
        spec.delete(element)
    try:
        model = spec.compile()
    except ValueError as error:
        for geom in spec.geoms:
            mesh = meshes.get(geom.meshname)
            if mesh is not None and "opening file" in str(error) and mesh.file in str(error):
                raise place_in(path, geom, "geom").error(
                    f"gives its body mass by the mesh {mesh.file!r}, which cannot be read: give the body an "
                    '<inertial>, or the geom mass="0"'
                ) from None
        raise _error(path, error) from None
    return model, {geom.id: mesh for geom, mesh in shown}


def _is_mesh(mujoco, geom) -> bool:
    return geom.type == mujoco.mjtGeom.mjGEOM_MESH


def _gives_mass(mujoco, spec, geom) -> bool:
    """Whether the geom has a part in the mass of a body that moves, or in the total mass, if that is set."""
    body = geom.parent
    compiler = compiler_of(spec, body)
    how, modes = compiler.inertiafromgeom, mujoco.mjtInertiaFromGeom
    low, high = compiler.inertiagrouprange
    if how == modes.mjINERTIAFROMGEOM_FALSE or geom.mass == 0 or not low <= geom.group <= high:
        return False
    if body.explicitinertial and how != modes.mjINERTIAFROMGEOM_TRUE:
        return False
    return body.name != "world" and bool(spec.compiler.settotalmass > 0 or _moves(body))


def compiler_of(spec: Any, element: Any) -> Any:
    """The <compiler> that applies to an element: that of the file it is attached from, where the version knows."""
    return getattr(element, "compiler", spec.compiler)


def _moves(body) -> bool:
    return body is not None and (bool(body.joints) or body.name != "world" and _moves(body.parent))


def place_in(path: Path, element: Any, tag: str) -> Place:
    """Where an element is, as far as MuJoCo says: not inside of files that are included."""
    line = int(element.info.removeprefix("line ") or 0) if element.info.startswith("line ") else 0
    name = getattr(element, "name", "")
    return Place(path, line or None, f"<{tag} name={name!r}>" if name else f"<{tag}>")


def _error(path, error) -> ValueError:
    """What MuJoCo says, with the line first."""
    text = re.sub(r"^(XML )?(Error: )*", "", str(error))
    words, _, about = text.partition("\nElement ")
    tag, name, line = (re.search(pattern, about) for pattern in (r"^'(.+?)'", r"^name '(.+?)'", r"line (\d+)"))
    where = f"{path}, line {line[1]}" if line else f"{path}"
    whose = f"<{tag[1]}>: " if tag else f"{name[1]!r}: " if name and repr(name[1]) not in words else ""
    advice = ": give it an <inertial>, or a geom with a mass" if "mass and inertia of moving" in words else ""
    return ValueError(f"{where}: {whose}{' '.join(words.split())}{advice}")
