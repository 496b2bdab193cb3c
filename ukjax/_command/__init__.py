"""What each sub-command of ``ukjax`` does. Nothing here imports JAX before a command is called."""

from . import bench, fit, gallery, run, sweep, tune
from .usage import UsageError as UsageError

COMMANDS = (gallery, run, sweep, fit, tune, bench)
"""As ``ukjax --help`` lists them."""
