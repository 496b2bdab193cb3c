"""Load the mechanism named on the command line: a gallery system, a robot file, or a class given as module:Class."""

import argparse
import importlib
import inspect
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import robots
from .._names import did_you_mean
from ..systems.catalogue import CATALOGUE
from .usage import UsageError, did_you_mean_file

if TYPE_CHECKING:
    from ..systems.base import AbstractMechanism

ENDINGS = (".urdf", ".xml")
"""Endings of robot files."""


def add_system(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add the positional argument ``system`` and the option ``--floating``."""
    text = "a name from `ukjax list`, a robot file (.urdf, .xml), or module:Class of your own"
    action = parser.add_argument("system", help=text, nargs=None if required else "?")
    action.completer = _complete_system  # pyright: ignore[reportAttributeAccessIssue]  read by argcomplete
    parser.add_argument(
        "--floating", action="store_true", help="let the root link of a URDF float (default: fixed to the ground)"
    )


def add_contact(parser: argparse.ArgumentParser) -> None:
    """Add the options for stops and contacts of robot files."""
    option = parser.add_argument
    option("--stops", action="store_true", help="model the joint limits of a robot file as stops")
    option(
        "--contacts",
        action="store_true",
        help="model the contacts of a robot file; a URDF may touch the ground z = 0",
    )
    option(
        "--restitution", type=float, metavar="E", help="coefficient of restitution of stops and contacts (default: 0)"
    )
    option("--friction", type=float, metavar="MU", help="friction coefficient of a URDF on the ground (default: 0)")


def check_contact(options: argparse.Namespace) -> None:
    """Check the options of ``add_contact`` without importing JAX. Raises ``UsageError``."""
    name, stops, contacts = options.system, options.stops, options.contacts
    restitution, friction = options.restitution, options.friction
    given = {
        "stops": stops,
        "contacts": contacts,
        "restitution": restitution is not None,
        "friction": friction is not None,
    }
    flag = next((f"--{flag}" for flag, is_given in given.items() if is_given), None)
    if flag and not is_robot(name):
        raise UsageError(
            f"{flag} applies only to robots (.urdf, .xml), got {name!r}: --set changes parameters of systems"
        )
    if restitution is not None and not (stops or contacts):
        raise UsageError("--restitution needs --stops, --contacts or both")
    if friction is not None and not (contacts and _is_urdf(name)):
        raise UsageError("--friction needs --contacts and a URDF file: an MJCF file has the friction of its geoms")
    if restitution is not None and not 0 <= restitution <= 1:
        raise UsageError(f"--restitution must be from 0 to 1, got {restitution:g}")
    if friction is not None and not 0 <= friction < float("inf"):
        raise UsageError(f"--friction must be a number not below 0, got {friction:g}")


def load_options(options: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of ``ukjax.load`` for the options of ``add_contact``."""
    from ..contacts import Plane

    return {
        "stops": options.stops,
        "contacts": Plane() if options.contacts and _is_urdf(options.system) else options.contacts,
        "friction": options.friction,
        "restitution": options.restitution or 0.0,
    }


def _is_urdf(name: str) -> bool:
    return is_robot(name) and robot_file(name).suffix.lower() == ".urdf"


def as_option(hint: str) -> str:
    """The option of the command line for a keyword argument of ``ukjax.load``: ``--stops`` for ``stops=True``."""
    return f"--{hint.partition('=')[0]}"


def _complete_system(prefix: str, **_) -> list[str]:
    """Return the systems and robot files that begin with ``prefix``, for completion in a shell."""
    folder = Path(prefix).parent if "/" in prefix else Path()
    files = [str(file) + "/" * file.is_dir() for file in folder.iterdir() if file.is_dir() or is_robot(file.name)]
    return [name for name in (*CATALOGUE, *robots.names(), *files) if name.startswith(prefix)]


def check_system(name: str, floating: bool) -> None:
    """Check the ``system`` argument: the name of a system or robot, an existing robot file, or module:Class.

    Raises ``UsageError``. The class itself is not imported.
    """
    if floating and not is_robot(name):
        raise UsageError(f"--floating applies only to URDF files, got {name!r}")
    if is_robot(name):
        if not robot_file(name).is_file():
            shipped = [file.name for file in map(robots.path, robots.names())]
            raise UsageError(f"there is no file {name!r}{did_you_mean_file(name, shipped)}")
    elif ":" in name:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
            raise UsageError(f"{name!r} must be module:Class, as Python imports it: robots.arm:Arm for robots/arm.py")
    elif name not in CATALOGUE:
        hint = did_you_mean(name, (*CATALOGUE, *robots.names()))
        raise UsageError(
            f"no system is named {name!r}{hint} `ukjax list` shows all; your own is module:Class, or a robot's file, "
            ".urdf or .xml"
        )


def is_robot(name: str) -> bool:
    """Whether the name ends in .urdf or .xml, or is that of a robot of the library and of no system of the gallery."""
    return Path(name).suffix.lower() in ENDINGS or name not in CATALOGUE and name in robots.names()


def robot_file(name: str) -> Path:
    """Return the path of a robot: the user's file, or else the file of the library with this name."""
    if Path(name).suffix.lower() not in ENDINGS:
        return robots.path(name)
    return Path(name) if Path(name).is_file() or Path(name).name != name else robots.FOLDER / name


def file_stem(name: str) -> str:
    """Return the default stem of output files for a system."""
    return Path(name).stem if is_robot(name) else name.rpartition(":")[2]


def mechanism_of(name: str, floating: bool, **load_options: Any) -> "AbstractMechanism":
    """Return the mechanism with its default parameters. Raises ``UsageError`` if it cannot be created.

    ``load_options`` are further arguments of ``ukjax.load``, for robot files.
    """
    from ..systems import named

    if is_robot(name):
        return _from_file(robot_file(name), floating, load_options)
    return named(name) if name in CATALOGUE else _from_class(*name.split(":"))


def title_and_source(name: str, mechanism: "AbstractMechanism") -> tuple[str, str]:
    """Return the title and the source of a mechanism."""
    from .._labels import title_of

    if name in CATALOGUE:
        return CATALOGUE[name].title, CATALOGUE[name].source
    if is_robot(name):
        return title_of(mechanism), str(robot_file(name))
    doc = inspect.getdoc(type(mechanism)) or type(mechanism).__name__
    return doc.splitlines()[0], name


def named_coordinates(mechanism: "AbstractMechanism") -> tuple[tuple[str, str], ...]:
    """Return name and unit of each coordinate. Defaults: q1, q2, ... without units."""
    return mechanism.coordinates or tuple((f"q{i + 1}", "") for i in range(len(mechanism.start()[0])))


def named_velocities(mechanism: "AbstractMechanism") -> tuple[tuple[str, str], ...]:
    """Return name and unit of each velocity.

    The rate of coordinate ``q1`` is ``dq1``. With a kinematic map, the defaults are v1, v2, ... without units.
    """
    if mechanism.kinematic_map is not None:
        return mechanism.velocities or tuple((f"v{i + 1}", "") for i in range(len(mechanism.start()[1])))
    return tuple((f"d{name}", f"{unit}/s" if unit else "") for name, unit in named_coordinates(mechanism))


def _from_file(name, floating, load_options) -> "AbstractMechanism":
    from .._robot_file import HINTS, load

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            mechanism = load(name, floating=floating, **load_options)
        except ImportError as error:  # a missing optional package
            raise UsageError(str(error)) from None
    for warning in caught:
        text = str(warning.message)
        for hint in HINTS.values():
            text = text.replace(f"with {hint}", f"with {as_option(hint)}")
        print(f"ukjax: {text}", file=sys.stderr)
    return mechanism


def _from_class(module, name) -> "AbstractMechanism":
    from ..systems.base import AbstractMechanism

    imported = _import_module(module)
    classes = [key for key, x in vars(imported).items() if inspect.isclass(x) and issubclass(x, AbstractMechanism)]
    if name not in vars(imported):
        raise UsageError(f"{module!r} has no class {name!r}{did_you_mean(name, classes)}")
    if name not in classes:
        raise UsageError(f"'{module}:{name}' must be a class that derives from ukjax.systems.AbstractMechanism")
    try:
        mechanism = getattr(imported, name)()
    except TypeError as error:  # abstract methods, or fields without a default
        raise UsageError(f"'{module}:{name}' cannot be made without arguments: {error}") from None
    if not hasattr(mechanism, "end"):
        raise UsageError(f"'{module}:{name}' must say how long its motion lasts: end: ClassVar[float] = 10.0 seconds")
    return mechanism


def _import_module(module):
    if os.getcwd() not in sys.path:  # an installed script does not have the working directory on its path
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except Exception as error:
        # A module may raise anything on import. Tell the line if the error comes from the module itself.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if len(frames) > 1 else ""
        raise UsageError(f"{module!r} cannot be imported: {type(error).__name__}: {error}{where}") from None
