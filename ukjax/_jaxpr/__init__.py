"""The state of JAX's traces, and jaxprs.

Only this package, ``_kernel`` and ``_fingerprint`` depend on internals of a release of JAX.
"""
