"""What the gallery holds, without importing any of it."""

from typing import NamedTuple


class Entry(NamedTuple):
    """A mechanism's name on the command line, where its class lives, what it is and who published it."""

    name: str
    module: str
    cls: str
    title: str
    source: str


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            "scara",
            "scara",
            "Scara",
            "SCARA robot whose tool climbs along a helix",
            "Xu & Liu, Adv. Mech. Eng. 9(10), 2017",
        ),
    )
}
