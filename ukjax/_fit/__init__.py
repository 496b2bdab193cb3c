"""Parameters from measurements, and how well they are known."""

from .experiment import Experiment
from .fit import Fit, fit
from .identifiability import Combination, Identifiability

__all__ = ["Combination", "Experiment", "Fit", "Identifiability", "fit"]
