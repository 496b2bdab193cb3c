"""Consistent initial conditions: the nearest state on the constraints."""
