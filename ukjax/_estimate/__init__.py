"""Estimate parameters from measured motions, with standard errors; tune gains and dimensions."""

from .experiment import Experiment as Experiment
from .fit import fit as fit
from .following import following_cost as following_cost
from .following import following_error as following_error
from .identifiability import Combination as Combination
from .identifiability import Identifiability as Identifiability
from .integration import IntegrationEffect as IntegrationEffect
from .regress import Regression as Regression
from .regress import missing_force as missing_force
from .regress import regress as regress
from .result import Fit as Fit
from .tune import tune as tune
from .tuned import Tuned as Tuned
