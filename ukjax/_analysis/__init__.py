"""Linear analysis of constrained systems: linearisation, modes, frequency responses, regulators, equilibria."""

from .linear_model import LinearModel as LinearModel
from .linear_model import Regulator as Regulator
from .linearize import linearize as linearize
from .modes import Mode as Mode
