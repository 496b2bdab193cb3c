"""Scalar computation graphs with simplification and sharing of common subexpressions."""
