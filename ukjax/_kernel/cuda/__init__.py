"""Compile a graph to PTX with LLVM, a thread for each member, and launch it through XLA's FFI."""
