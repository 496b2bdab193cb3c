"""From a graph to machine code: LLVM IR, compiled and called through XLA's FFI."""
