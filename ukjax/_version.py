"""Version of the package and version of its numerical results."""

__version__ = "0.2.0.dev0"

NUMERICS = 1
"""Increase by one for every change that can change computed numbers by more than rounding, or the order in which random
numbers are drawn: another tolerance, default step, method, scale or sampling. Results stored with a lower number are
then not continued (see ``_fingerprint``). Changes that only add features or errors do not increase it."""
