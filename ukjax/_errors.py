"""Exceptions of the library. Any other exception that it raises is a defect."""


class InputError(ValueError):
    """An argument, a model or a file cannot be used. The message names the argument, shows the given value and says
    what is wanted."""


class MissingPackageError(ImportError):
    """An optional package is missing, or too old. The message says how to install it."""


class SimulationError(RuntimeError):
    """A simulation did not finish, or its result violates its constraints.

    Raised by ``simulate`` and functions that call it, unless ``throw=False``. The message names the trajectory, the
    time, the constraint and a remedy.
    """
