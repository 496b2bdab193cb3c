"""One integration step: Runge–Kutta stages, step size control, drift correction, characteristic scales."""
