"""Integrators: loops over time for one motion, for batches, under ``jit``, and diffrax's loop."""
