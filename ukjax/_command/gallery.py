"""``ukjax list``: print the gallery."""

import argparse
import json
from typing import Any

from ..robots import FOLDER
from ..systems.catalogue import CATALOGUE


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser("list", help="list the systems of the gallery, with their sources")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(call=list_gallery)


def list_gallery(options: argparse.Namespace) -> int:
    """Print name, title and source of each gallery system. Returns exit code 0."""
    if options.json:
        print(
            json.dumps([{"name": e.name, "title": e.title, "source": e.source} for e in CATALOGUE.values()], indent=1)
        )
        return 0
    width = max(map(len, CATALOGUE))
    for entry in CATALOGUE.values():
        print(f"{entry.name:{width}}  {entry.title}\n{'':{width}}  {entry.source}")
    print("\nukjax run NAME --plot simulates one of them")
    print(f"ukjax run FILE --plot a robot's file, .urdf or .xml, such as those in {FOLDER}")
    return 0
