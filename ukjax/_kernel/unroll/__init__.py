"""From a jaxpr, operations on arrays, to a graph of operations on numbers: one rule per primitive of JAX."""
