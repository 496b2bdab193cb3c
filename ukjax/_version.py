"""The version of the package, and that of the numbers it computes."""

__version__ = "0.1.0"

NUMERICS = 1
"""Raised by one with every change that may change a computed number beyond rounding, or the order in which random
numbers are drawn: another tolerance, default step, method, scale or sampling. Results stored under a lower number are
then not continued: see ``_fingerprint``. A change that only adds features, or errors, leaves it as it is."""
