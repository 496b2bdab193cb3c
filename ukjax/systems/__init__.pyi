from .base import AbstractMechanism as AbstractMechanism
from .catalogue import CATALOGUE as CATALOGUE
from .catalogue import Entry as Entry
from .scara import Scara as Scara

def named(name: str) -> AbstractMechanism: ...
