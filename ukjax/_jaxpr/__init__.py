"""What JAX traced: the state of a trace, and jaxprs. A new release of JAX changes this folder and ``_kernel``, or nothing."""
