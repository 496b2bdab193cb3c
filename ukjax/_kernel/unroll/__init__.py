"""Unroll a jaxpr, operations on arrays, into a graph of scalar operations: one rule per JAX primitive."""
