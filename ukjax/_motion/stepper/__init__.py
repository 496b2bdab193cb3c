"""One step of a motion: Runge–Kutta stages, step size control, drift correction, scales."""
