"""Analysis of constrained systems: equilibria, linear models, modes, orbits, branches; inverse kinematics."""

from .continuation import Branch as Branch
from .continuation import SpecialPoint as SpecialPoint
from .continuation import continuation as continuation
from .equilibrium import Equilibrium as Equilibrium
from .equilibrium import equilibrium as equilibrium
from .linear_model import LinearModel as LinearModel
from .linear_model import Regulator as Regulator
from .linearize import linearize as linearize
from .modes import Mode as Mode
from .orbit import Orbit as Orbit
from .orbit import monodromy as monodromy
from .orbit import periodic as periodic
from .reach import Reach as Reach
from .reach import reach as reach
from .singularity import Singularity as Singularity
from .singularity import singularity as singularity
from .stability import StabilityChart as StabilityChart
from .stability import stability_chart as stability_chart
