"""The mechanism that a command is about: one of the gallery by its name, a robot's file, or a class of the user's own
by its path."""

import argparse
import importlib
import inspect
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from .._names import did_you_mean
from ..systems.catalogue import CATALOGUE
from .usage import UsageError

if TYPE_CHECKING:
    from ..systems.base import AbstractMechanism


def add_system(parser: argparse.ArgumentParser, needed: bool = True) -> None:
    """The argument that all commands about a mechanism begin with, and what goes with it."""
    said = "a name from `ukjax list`, a robot's file (.urdf, .xml), or module:Class of your own"
    parser.add_argument("system", help=said, nargs=None if needed else "?")
    parser.add_argument("--floating", action="store_true", help="free the root of a URDF, else fixed to the ground")


def check_system(name: str, floating: bool) -> None:
    """The gallery has a system of that name, there is such a file, or it is written like the path of a class;
    ``UsageError`` if not."""
    if floating and not is_robot_file(name):
        raise UsageError(f"--floating frees the root of a URDF, and {name!r} is none")
    if is_robot_file(name):
        if not Path(name).is_file():
            raise UsageError(f"there is no file {name!r}")
    elif ":" in name:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name):
            raise UsageError(f"{name!r} must be module:Class, as Python imports it: robots.arm:Arm for robots/arm.py")
    elif name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE)
        raise UsageError(
            f"no system is named {name!r}{hint} `ukjax list` shows all; your own is module:Class, or a robot's file, "
            ".urdf or .xml"
        )


def is_robot_file(name: str) -> bool:
    """Whether it is written like the name of one."""
    return Path(name).suffix.lower() in (".urdf", ".xml")


def file_stem(name: str) -> str:
    """What files about that system are called by default."""
    return Path(name).stem if is_robot_file(name) else name.rpartition(":")[2]


def mechanism_of(name: str, floating: bool) -> "AbstractMechanism":
    """The mechanism of the gallery, of the file, or one of the class, with its own parameters. ``UsageError`` if there
    is none."""
    from ..systems import named

    if is_robot_file(name):
        return _of_file(name, floating)
    return named(name) if name in CATALOGUE else _of_class(*name.split(":"))


def title_and_source(name: str, mechanism: "AbstractMechanism") -> tuple[str, str]:
    """What it is, and where it comes from."""
    from .._labels import title_of

    if name in CATALOGUE:
        return CATALOGUE[name].title, CATALOGUE[name].source
    if is_robot_file(name):
        return title_of(mechanism), name
    described = inspect.getdoc(type(mechanism)) or type(mechanism).__name__
    return described.splitlines()[0], name


def named_coordinates(mechanism: "AbstractMechanism") -> tuple[tuple[str, str], ...]:
    """Name and unit of each coordinate: the mechanism's, or q1, q2, ... without units."""
    return mechanism.coordinates or tuple((f"q{i + 1}", "") for i in range(len(mechanism.start()[0])))


def named_velocities(mechanism: "AbstractMechanism") -> tuple[tuple[str, str], ...]:
    """Name and unit of each velocity: where they are rates, the coordinate's with a d before it."""
    if mechanism.kinematic_map is not None:
        return mechanism.velocities or tuple((f"v{i + 1}", "") for i in range(len(mechanism.start()[1])))
    return tuple((f"d{name}", f"{unit}/s" if unit else "") for name, unit in named_coordinates(mechanism))


def _of_file(name, floating) -> "AbstractMechanism":
    from .._robot_file import load

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = load(name, floating=floating)
        except ImportError as error:  # a package that is not there
            raise UsageError(str(error)) from None
    for warning in said:
        print(f"ukjax: {warning.message}", file=sys.stderr)
    return found


def _of_class(module, name) -> "AbstractMechanism":
    from ..systems.base import AbstractMechanism

    found = _imported(module)
    ours = [key for key, x in vars(found).items() if inspect.isclass(x) and issubclass(x, AbstractMechanism)]
    if name not in vars(found):
        raise UsageError(f"{module!r} has no class {name!r}{did_you_mean(name, ours)}")
    if name not in ours:
        raise UsageError(f"'{module}:{name}' must be a class that derives from ukjax.systems.AbstractMechanism")
    try:
        mechanism = getattr(found, name)()
    except TypeError as error:  # of methods it lacks, and of fields without a value
        raise UsageError(f"'{module}:{name}' cannot be made without arguments: {error}") from None
    if not hasattr(mechanism, "end"):
        raise UsageError(f"'{module}:{name}' must say how long its motion lasts: end: ClassVar[float] = 10.0 seconds")
    return mechanism


def _imported(module):
    if os.getcwd() not in sys.path:  # an installed command does not look in the present folder by itself
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except Exception as error:
        # Whatever a module does when it is imported; where, if that is inside it.
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        where = f" ({os.path.basename(inside[-1].filename)}, line {inside[-1].lineno})" if len(inside) > 1 else ""
        raise UsageError(f"{module!r} cannot be imported: {type(error).__name__}: {error}{where}") from None
