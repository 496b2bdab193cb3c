"""The result of a simulation and its files."""
