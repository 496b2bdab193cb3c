"""Scalar graphs: operations on numbers, simplified and shared as they are added."""
