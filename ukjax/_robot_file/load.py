"""Load a mechanism from a robot description file."""

import os
import warnings
from typing import Literal

from .._check import as_path, check_flag
from .._errors import InputError
from .._mechanism import Mechanism
from .contents import Contents
from .markup import parse, place_of
from .urdf import read_urdf


def load(
    path: str | os.PathLike, *, floating: bool = False, formulation: Literal["joint", "absolute"] = "joint"
) -> Mechanism:
    """Load a mechanism from a robot description file, URDF or MJCF.

    The root element determines the format. Bodies, joints and actuators keep their names in the file; characters that
    are not allowed in Python names become _. Loops of an MJCF file are joints. No file is downloaded and no code of the
    file is executed.

    One warning lists what the file contains and the mechanism does not model: contacts, joint limits, tendons, sensors,
    and the control laws of servos, so that nothing holds their joints.

    Parameters
    ----------
    path : str or path-like
        The file. MJCF is compiled by the package ``mujoco``.
    floating : bool
        Whether the root of a URDF floats instead of being fixed to the ground.
    formulation : {"joint", "absolute"}
        Coordinates of the mechanism, see ``Mechanism``.

    Returns
    -------
    Mechanism
        The mechanism. Gravity is that of the file; for URDF 9.81 m/s² along −z.

    Raises
    ------
    InputError
        With file and line, if the file is malformed or contains forces that are not modelled: of fluids, flexible
        bodies, plugins, nonlinear springs, and tendons that have springs, dampers, friction or inertia, or are coupled.
    OSError
        If the file cannot be read.
    ImportError
        For MJCF, if ``mujoco`` 3.3.7 or later is not installed.
    """
    contents = read(path, floating=floating)
    mechanism = contents.mechanism(formulation)
    if text := contents.warning_text(mechanism):
        warnings.warn(text, stacklevel=2)
    return mechanism


def read(path: str | os.PathLike, *, floating: bool = False) -> Contents:
    """Read a file into ``Contents``, without constructing the mechanism."""
    path = as_path(path)
    check_flag("floating", floating)
    root = parse(path)
    if root.tag == "robot":
        return read_urdf(path, root, floating)
    if root.tag == "mujoco":
        from .mjcf import read_mjcf

        if floating:
            raise InputError("floating is for URDF: an MJCF file says itself what floats, by <freejoint/>")
        return read_mjcf(path)
    raise place_of(path, root).error("is not a robot file: its root must be <robot>, URDF, or <mujoco>, MJCF")
