"""What a reader of MJCF has at hand."""

from pathlib import Path
from typing import Any, NamedTuple

from .._mechanism import Body
from .contents import UniqueNames
from .frame import Frame
from .markup import Place


class Reading(NamedTuple):
    """A file as MuJoCo compiles it, and what has been made of it so far.

    ``mujoco`` is the package, ``spec`` has the lines of elements, ``model`` the numbers, ``meshes`` those of geoms by
    their numbers, ``motors`` those of joints by their names in the file. ``words`` are the names of bodies by their
    numbers, ``taken`` all that bodies are called, ``names`` what joints are called. ``starts`` are joints by their
    numbers, and how many coordinates each has.
    """

    path: Path
    mujoco: Any
    spec: Any
    model: Any
    meshes: dict[int, Any]
    motors: dict[str, list[Any]]
    body_names: list[str]
    unique_body_names: UniqueNames
    names: UniqueNames
    bodies: dict[str, Body]
    joints: dict[str, Any]
    places: dict[str, Place]
    joint_sizes: list[tuple[str, int]]

    def is_off(self, flag: str) -> bool:
        """Whether <flag> disables it, by its own name or, of what MuJoCo's solver does, all of them."""
        flags = (flag, "constraint") if flag in ("contact", "limit", "equality", "frictionloss") else (flag,)
        bits = (int(getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{each.upper()}")) for each in flags)
        return any(self.model.opt.disableflags & bit for bit in bits)

    def frame(self, kind: str, number: Any) -> Frame:
        """The frame of the "body", "site", "geom" or "mesh" of this number: of a body in its parent, of a site or
        geom in its body, of a mesh in its file."""
        quat, pos = getattr(self.model, f"{kind}_quat"), getattr(self.model, f"{kind}_pos")
        return Frame(quat[number].copy(), pos[number].copy())
