"""Parameters from measurements, and how well they are known."""

from .experiment import Experiment
from .fit import fit
from .identifiability import Combination, Identifiability
from .regress import Regression, missing_force, regress
from .result import Fit

__all__ = ["Combination", "Experiment", "Fit", "Identifiability", "Regression", "fit", "missing_force", "regress"]
