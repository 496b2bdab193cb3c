"""The sub-commands of ``ukjax``, one module each. JAX is imported only when a command runs."""

from . import bench, check, completion, equilibrium, explore, fit, gallery, info, modes, run, sweep, tune, verify, view
from .usage import UsageError as UsageError

COMMANDS = (gallery, check, run, view, explore, equilibrium, modes, sweep, fit, tune, bench, verify, info, completion)
"""The modules of the sub-commands, in the order of ``ukjax --help``."""
