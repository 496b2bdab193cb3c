"""Load a mechanism from a robot description file."""

import os
import warnings
from typing import Literal

from .._check import as_number, as_path, check_flag
from .._errors import InputError
from .._mechanism import Mechanism
from .._precision import Numbers
from ..contacts import Plane
from .contents import Contents, Modelled
from .markup import parse, place_of
from .urdf import read_urdf


def load(
    path: str | os.PathLike,
    *,
    floating: bool = False,
    stops: bool = False,
    contacts: bool | Plane = False,
    friction: Numbers | None = None,
    restitution: Numbers = 0.0,
    formulation: Literal["joint", "absolute"] = "joint",
) -> Mechanism:
    """Load a mechanism from a robot description file, URDF or MJCF.

    The root element determines the format. Bodies, joints and actuators keep their names in the file; characters that
    are not allowed in Python names become _. The ``<equality>`` constraints of an MJCF file become joints and
    couplings. No file is downloaded and no code of the file is executed.

    One warning lists the contents of the file that are not modelled: tendons, sensors, joint limits without ``stops``,
    and contacts without ``contacts``. Motors exert no force until the mechanism is ``driven`` by ``Mechanism.motors``.
    Until then, nothing holds the joints of servos.

    Parameters
    ----------
    path : str or path-like
        The file. MJCF is compiled by the package ``mujoco``.
    floating : bool
        Whether the root of a URDF floats instead of being fixed to the ground.
    stops : bool
        Whether the limits of joints are stops: ``<limit>`` of URDF, ``range`` of MJCF. Otherwise they exert no force.
    contacts : bool or Plane
        Whether contacts are modelled. For MJCF, ``True`` models contacts of planes, spheres, capsules, boxes and
        cylinders as far as ``ukjax.contacts`` supports them, for the pairs that MuJoCo checks and with the friction
        coefficients of the file. A URDF file has no ground: pass ``ukjax.contacts.Plane()``. All boxes, spheres,
        cylinders and capsules in ``<collision>`` may touch this plane.
    friction : float, optional
        Coefficient of friction between a URDF and the plane. Default: no friction.
    restitution : float
        Coefficient of restitution of stops and contacts, from 0 to 1. Default: no rebound.
    formulation : {"joint", "absolute"}
        Coordinates of the mechanism, see ``Mechanism``.

    Returns
    -------
    Mechanism
        The mechanism. Gravity is that of the file; for URDF 9.81 m/s² along −z.

    Raises
    ------
    InputError
        If the file is malformed, or contains forces that are not modelled: forces of fluids, flexible bodies, plugins
        and nonlinear springs, and of tendons with springs, dampers, friction, inertia or couplings. The message has the
        file and the line.
    OSError
        If the file cannot be read.
    ImportError
        For MJCF, if ``mujoco`` 3.3.7 or later is not installed.
    """
    contents = read(path, floating=floating, stops=stops, contacts=contacts, friction=friction, restitution=restitution)
    mechanism = contents.mechanism(formulation)
    if text := contents.warning_text(mechanism):
        warnings.warn(text, stacklevel=2)
    return mechanism


def read(
    path: str | os.PathLike,
    *,
    floating: bool = False,
    stops: bool = False,
    contacts: bool | Plane = False,
    friction: Numbers | None = None,
    restitution: Numbers = 0.0,
) -> Contents:
    """Read a file into ``Contents``, without constructing the mechanism.

    If stops or contacts are requested and the file has none, ``suspicious`` says so.
    """
    path = as_path(path)
    check_flag("floating", floating)
    check_flag("stops", stops)
    if not isinstance(contacts, Plane):
        check_flag("contacts", contacts)
    modelled = Modelled(stops, contacts, friction, as_number("restitution", restitution, least=0, most=1))
    root = parse(path)
    if root.tag == "robot":
        if contacts is True:
            raise InputError("contacts must be a plane for URDF, which has no ground: contacts=ukjax.contacts.Plane()")
        if friction is not None and not contacts:
            raise InputError("friction is for contacts=ukjax.contacts.Plane(), got friction without contacts")
        return _with_absent(read_urdf(path, root, floating, modelled))
    if root.tag == "mujoco":
        from .mjcf import read_mjcf

        if floating:
            raise InputError("floating is for URDF: an MJCF file says itself what floats, by <freejoint/>")
        if isinstance(contacts, Plane) or friction is not None:
            raise InputError(
                "contacts must be True or False for MJCF, without friction: an MJCF file says itself what is a plane, "
                "and the friction of its geoms"
            )
        return _with_absent(read_mjcf(path, modelled))
    raise place_of(path, root).error("is not a robot file: its root must be <robot>, URDF, or <mujoco>, MJCF")


def _with_absent(contents: Contents) -> Contents:
    """``contents`` with requests for stops or contacts that the file does not have, in ``suspicious``."""
    absent = {}
    if contents.modelled.stops and not any(getattr(x, "limits", None) is not None for x in contents.joints.values()):
        absent["no joint limits, although stops are requested"] = []
    if contents.modelled.contacts and not contents.contacts:
        absent["no contacts that can be modelled, although contacts are requested"] = []
    return contents._replace(suspicious={**contents.suspicious, **absent})
