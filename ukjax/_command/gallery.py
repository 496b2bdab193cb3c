"""``ukjax list``."""

import argparse
import json

from ..systems.catalogue import CATALOGUE


def list_gallery(options: argparse.Namespace) -> int:
    """Print the gallery: name, what it is, source."""
    if options.json:
        print(
            json.dumps([{"name": e.name, "title": e.title, "source": e.source} for e in CATALOGUE.values()], indent=1)
        )
        return 0
    width = max(map(len, CATALOGUE))
    for entry in CATALOGUE.values():
        print(f"{entry.name:{width}}  {entry.title}\n{'':{width}}  {entry.source}")
    print("\nukjax run NAME --plot simulates one of them")
    return 0
