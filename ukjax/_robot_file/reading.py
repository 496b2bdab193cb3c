"""The state of reading an MJCF file."""

from pathlib import Path
from typing import Any, NamedTuple

from .._mechanism import Body
from .contents import UniqueNames
from .frame import Frame
from .markup import Place


class Reading(NamedTuple):
    """An MJCF file compiled by MuJoCo, and the parts of the mechanism constructed so far.

    Attributes
    ----------
    path : Path
        The file.
    mujoco : module
        The package mujoco.
    spec : MjSpec
        The parsed file. Its elements have line numbers.
    model : MjModel
        The compiled model.
    meshes : dict of int to mesh
        Meshes by geom id.
    geom_kinds : dict of int to str
        Kind of each geom in the file by its id: "plane", "hfield", "sphere", ...
    motors : dict of str to list
        Actuators by the name of their joint in the file.
    body_names : list of str
        Names of bodies by body id.
    unique_body_names, names : UniqueNames
        All names of bodies, and all names of joints.
    bodies, joints, places : dict
        Bodies, joints and the places of joints by name.
    joint_sizes : list of (str, int)
        Name and number of coordinates of each joint, by joint id.
    """

    path: Path
    mujoco: Any
    spec: Any
    model: Any
    meshes: dict[int, Any]
    geom_kinds: dict[int, str]
    motors: dict[str, list[Any]]
    body_names: list[str]
    unique_body_names: UniqueNames
    names: UniqueNames
    bodies: dict[str, Body]
    joints: dict[str, Any]
    places: dict[str, Place]
    joint_sizes: list[tuple[str, int]]

    def is_off(self, flag: str) -> bool:
        """Whether <flag> disables a feature.

        Features of the constraint solver can be disabled individually or all together.
        """
        flags = (flag, "constraint") if flag in ("contact", "limit", "equality", "frictionloss") else (flag,)
        bits = (int(getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{name.upper()}")) for name in flags)
        return any(self.model.opt.disableflags & bit for bit in bits)

    def frame(self, kind: str, number: Any) -> Frame:
        """The frame of the "body", "site", "geom" or "mesh" with this id.

        It is the frame of a body in its parent, of a site or geom in its body, and of a mesh in its file.
        """
        quat, pos = getattr(self.model, f"{kind}_quat"), getattr(self.model, f"{kind}_pos")
        return Frame(quat[number].copy(), pos[number].copy())
