"""Compile programs, cache them, and run them on this machine."""
