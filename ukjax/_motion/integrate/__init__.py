"""Loops over time: one motion, batches with fixed or adaptive steps, motions inside ``jit``, and diffrax's loop."""
