"""What each sub-command of ``ukjax`` does. Nothing here imports JAX before a command is called."""

from . import bench, check, fit, gallery, run, sweep, tune
from .usage import UsageError as UsageError

COMMANDS = (gallery, check, run, sweep, fit, tune, bench)
"""As ``ukjax --help`` lists them."""
