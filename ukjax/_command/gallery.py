"""``ukjax list``: print the systems of the gallery and the robots of the library."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from .. import robots
from ..systems.catalogue import CATALOGUE


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "list", help="list the systems of the gallery, with their sources, and the robots", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(call=print_list)


def print_list(options: argparse.Namespace) -> int:
    """Print name, title and source of each system and of each robot. Returns exit code 0."""
    systems = [{"kind": "system", "name": e.name, "title": e.title, "source": e.source} for e in CATALOGUE.values()]
    files = [robots.path(name) for name in robots.names()]
    shipped = [
        {"kind": "robot", "name": name_of(file), "title": _description(file), "source": str(file)} for file in files
    ]
    if options.json:
        print(json.dumps([*systems, *shipped], indent=1))
        return 0
    width = max(len(entry["name"]) for entry in (*systems, *shipped))
    print("Systems of the gallery\n")
    for entry in systems:
        print(f"  {entry['name']:{width}}  {entry['title']}\n  {'':{width}}  {entry['source']}")
    print(f"\nRobots (.xml needs pip install 'ukjax[mjcf]'), in {robots.FOLDER}\n")
    for entry in shipped:
        print(f"  {entry['name']:{width}}  {entry['title']}")
    print("\nukjax run NAME --plot simulates one of them, ukjax view NAME shows it, ukjax check NAME describes it.")
    print("NAME may also be a robot file of your own, .urdf or .xml, or your own class, module:Class.")
    return 0


def name_of(file: Path) -> str:
    """Return the name by which the commands know a robot: with its ending if a system has the same name."""
    return file.name if file.stem in CATALOGUE else file.stem


def _description(file: Path) -> str:
    """Return the first sentence of the comment at the top of a robot file."""
    comment = re.search("<!--(.*?)-->", file.read_text(encoding="utf-8"), re.DOTALL)
    words = " ".join(comment[1].split()) if comment else ""
    return re.split(r"(?<=\w)[.;:] ", words)[0].rstrip(".")
