"""Analysis of constrained systems: equilibria, linear models, modes and regulators; inverse kinematics."""

from .equilibrium import Equilibrium as Equilibrium
from .equilibrium import equilibrium as equilibrium
from .linear_model import LinearModel as LinearModel
from .linear_model import Regulator as Regulator
from .linearize import linearize as linearize
from .modes import Mode as Mode
from .reach import Reach as Reach
from .reach import reach as reach
