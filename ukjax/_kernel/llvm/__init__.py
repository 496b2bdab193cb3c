"""Compile a graph to machine code with LLVM, and call it through XLA's FFI."""
