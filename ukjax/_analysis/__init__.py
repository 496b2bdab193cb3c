"""Linear analysis of constrained systems: linearisation, modes, frequency responses, regulators, equilibria."""

from .equilibrium import Equilibrium as Equilibrium
from .equilibrium import equilibrium as equilibrium
from .linear_model import LinearModel as LinearModel
from .linear_model import Regulator as Regulator
from .linearize import linearize as linearize
from .modes import Mode as Mode
