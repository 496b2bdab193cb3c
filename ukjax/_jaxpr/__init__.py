"""The state of JAX's traces, and jaxprs. Only this package and ``_kernel`` depend on internals of a release of JAX."""
