"""Ensembles: motions of many members of one system, which differ in the numbers that are swept."""

from .export import Simulator as Simulator
from .export import export as export
from .export import load_simulator as load_simulator
from .opened import Ensemble as Ensemble
from .opened import Failure as Failure
from .opened import open_ensemble as open_ensemble
from .ranges import Grid as Grid
from .ranges import Uniform as Uniform
from .run import ensemble as ensemble
