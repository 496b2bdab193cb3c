"""A mechanism from a robot's file."""

import os
import warnings
from typing import Literal

from .._check import as_path, check_flag
from .._mechanism import Mechanism
from .contents import Contents
from .markup import parse, place_of
from .urdf import read_urdf


def load(
    path: str | os.PathLike, *, floating: bool = False, formulation: Literal["joint", "absolute"] = "joint"
) -> Mechanism:
    """The mechanism in a robot's file, URDF or MJCF, which its root element tells apart.

    Bodies, joints and actuators go by their names in the file, with _ for what no name in Python can have. The root of
    a URDF is fixed to the ground, unless ``floating``; gravity is 9.81 m/s² along −z there. MJCF is compiled by the
    package ``mujoco``, and its loops are joints like any other. ``formulation`` is that of ``Mechanism``. Nothing is
    fetched or run.

    One warning lists by name what the file has and the mechanism does not: contacts, the ends of joints, tendons,
    sensors, and the laws of servos, whose joints nothing holds here. Raises ``ValueError``, with file and line, for a
    file that is broken, and for other forces that are not modelled: of fluids, flexible bodies, plugins, springs of
    several powers, and tendons that have springs, dampers, friction or inertia, or are tied to each other.
    ``OSError`` for a file that cannot be read, ``ImportError`` for MJCF without ``mujoco`` 3.3.7 or later.
    """
    found = read(path, floating=floating)
    mechanism = found.mechanism(formulation)
    if said := found.warning_text(mechanism):
        warnings.warn(said, stacklevel=2)
    return mechanism


def read(path: str | os.PathLike, *, floating: bool = False) -> Contents:
    """What the file says, before it is a mechanism."""
    path = as_path(path)
    check_flag("floating", floating)
    root = parse(path)
    if root.tag == "robot":
        return read_urdf(path, root, floating)
    if root.tag == "mujoco":
        from .mjcf import read_mjcf

        if floating:
            raise ValueError("floating is for URDF: an MJCF file says itself what floats, by <freejoint/>")
        return read_mjcf(path)
    raise place_of(path, root).error("is no robot's file: its root must be <robot>, URDF, or <mujoco>, MJCF")
