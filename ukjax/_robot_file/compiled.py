"""Compilation of MJCF files by MuJoCo, which computes masses, frames, units and defaults."""

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError, MissingPackageError
from .markup import Place

MIN_VERSION = (3, 3, 7)
"""The oldest supported version of MuJoCo."""

HIDDEN_GROUP = 5
"""A group of geoms that is not drawn."""


def import_mujoco() -> Any:
    """Import the package mujoco.

    Raises ``ImportError`` if it is not installed or too old.
    """
    required = ".".join(map(str, MIN_VERSION))
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:
        raise MissingPackageError("an MJCF file needs the package mujoco: pip install 'ukjax[mjcf]'") from None
    version = tuple(int(number) for number in re.findall(r"\d+", mujoco.__version__)[:3])
    if version < MIN_VERSION:
        raise MissingPackageError(
            f"an MJCF file needs mujoco {required} or later, got {mujoco.__version__}: pip install -U 'ukjax[mjcf]'"
        )
    return mujoco


def parsed(path: Path) -> tuple[Any, Any]:
    """Parse a file; returns the package mujoco and the ``MjSpec``.

    Raises ``InputError`` for a file that is not MJCF.
    """
    mujoco = import_mujoco()
    try:
        return mujoco, mujoco.MjSpec.from_file(str(path.absolute()))
    except ValueError as error:
        raise _error(path, error) from None


def compiled(path: Path, mujoco: Any, spec: Any) -> tuple[Any, dict[int, Any]]:
    """Compile a spec; returns the model, and the meshes of geoms by geom id.

    All bodies of the file are kept. Elements that do not affect the motion are removed: sensors, textures, height
    fields, and meshes that contribute no mass (their geoms become massless spheres). Their files need not exist. Raises
    ``InputError`` if MuJoCo rejects the file.
    """
    spec.compiler.fusestatic = spec.compiler.discardvisual = False
    meshes = {mesh.name or Path(mesh.file).stem: mesh for mesh in spec.meshes}
    meshes_of_geoms = [
        (geom, meshes[geom.meshname]) for geom in spec.geoms if _is_mesh(mujoco, geom) and geom.meshname in meshes
    ]
    needed_meshes = {g.meshname for g in spec.geoms if not _is_mesh(mujoco, g) or _gives_mass(mujoco, spec, g)}
    for geom in spec.geoms:
        is_height_field = geom.type == mujoco.mjtGeom.mjGEOM_HFIELD
        if is_height_field or _is_mesh(mujoco, geom) and geom.meshname not in needed_meshes:
            geom.type, geom.meshname, geom.hfieldname = mujoco.mjtGeom.mjGEOM_SPHERE, "", ""
            geom.mass, geom.size = 0.0, np.ones(3)
            geom.group = HIDDEN_GROUP if is_height_field else geom.group
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    for light in spec.lights:
        light.texture = ""
    unused_meshes = [mesh for name, mesh in meshes.items() if name not in needed_meshes]
    for element in [*spec.sensors, *spec.textures, *spec.hfields, *spec.skins, *unused_meshes]:
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
    return model, {geom.id: mesh for geom, mesh in meshes_of_geoms}


def _is_mesh(mujoco, geom) -> bool:
    return geom.type == mujoco.mjtGeom.mjGEOM_MESH


def _gives_mass(mujoco, spec, geom) -> bool:
    """Whether the geom contributes to the mass of a moving body, or to the total mass if the file sets it."""
    body = geom.parent
    compiler = compiler_of(spec, body)
    mode, modes = compiler.inertiafromgeom, mujoco.mjtInertiaFromGeom
    low, high = compiler.inertiagrouprange
    if mode == modes.mjINERTIAFROMGEOM_FALSE or geom.mass == 0 or not low <= geom.group <= high:
        return False
    if body.explicitinertial and mode != modes.mjINERTIAFROMGEOM_TRUE:
        return False
    return body.name != "world" and bool(spec.compiler.settotalmass > 0 or _moves(body))


def compiler_of(spec: Any, element: Any) -> Any:
    """The <compiler> settings of an element: those of the attached file that contains it, if MuJoCo provides them."""
    return getattr(element, "compiler", spec.compiler)


def _moves(body) -> bool:
    return body is not None and (bool(body.joints) or body.name != "world" and _moves(body.parent))


def place_in(path: Path, element: Any, tag: str) -> Place:
    """The place of an element in the file. The line is None in an included file, where MuJoCo does not report it."""
    line = int(element.info.removeprefix("line ") or 0) if element.info.startswith("line ") else 0
    name = getattr(element, "name", "")
    return Place(path, line or None, f"<{tag} name={name!r}>" if name else f"<{tag}>")


def _error(path, error) -> InputError:
    """MuJoCo's error message, with file and line first."""
    text = re.sub(r"^(XML )?(Error: )*", "", str(error))
    message, _, location = text.partition("\nElement ")
    tag, name, line = (re.search(pattern, location) for pattern in (r"^'(.+?)'", r"^name '(.+?)'", r"line (\d+)"))
    file_and_line = f"{path}, line {line[1]}" if line else f"{path}"
    subject = f"<{tag[1]}>: " if tag else f"{name[1]!r}: " if name and repr(name[1]) not in message else ""
    advice = ": give it an <inertial>, or a geom with a mass" if "mass and inertia of moving" in message else ""
    return InputError(f"{file_and_line}: {subject}{' '.join(message.split())}{advice}")
