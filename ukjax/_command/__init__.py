"""What each sub-command of ``ukjax`` does. Nothing here imports JAX before a command is called."""

from . import bench, check, fit, gallery, run, sweep, tune, view
from .usage import UsageError as UsageError

COMMANDS = (gallery, check, run, view, sweep, fit, tune, bench)
"""As ``ukjax --help`` lists them."""
