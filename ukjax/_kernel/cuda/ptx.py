"""Compile the LLVM IR of a kernel to PTX, the assembly language of NVIDIA's GPUs, which the driver assembles."""

import functools
import hashlib
from typing import Any

from ..llvm import machine
from . import libdevice

TRIPLE = "nvptx64-nvidia-cuda"

ARCHITECTURE, FEATURES = "sm_75", "+ptx78"
"""Oldest GPUs and drivers that can run the kernels: Turing, and CUDA 11.8. The driver assembles for newer ones, too."""

PASSES = "always_inliner", "global_dead_code_eliminate", "sroa", "simplify_cfg"
"""Passes on the module: one function with few calls, and slots in registers. LLVM's other passes and its optimising
code generator move loads out of loops and share values over long distances, so that ptxas spills ten times as much."""


def has_target() -> bool:
    """Return whether this llvmlite can compile for NVIDIA's GPUs."""
    return machine.is_available() and _target() is not None


@functools.cache
def _target() -> Any:
    machine.llvm.initialize_all_targets()
    machine.llvm.initialize_all_asmprinters()
    try:
        return machine.llvm.Target.from_triple(TRIPLE)
    except RuntimeError:
        return None


def ptx_of(text: str) -> str:
    """Return the PTX of a module, from the cache on disk if it is there."""
    key = "\n".join((text, ARCHITECTURE, FEATURES, *PASSES, str(machine.llvm.llvm_version_info)))
    name = hashlib.sha256(key.encode()).hexdigest()
    code = machine.from_disk(name)
    if code is None:
        with machine.compiling:
            code = _compiled(text).encode()
        machine.to_disk(name, code)
    return code.decode()


def _compiled(text):
    llvm = machine.llvm
    module = llvm.parse_assembly(text)
    target = _target().create_target_machine(cpu=ARCHITECTURE, features=FEATURES, opt=0)
    module.triple, module.data_layout = TRIPLE, str(target.target_data)
    if "@__nv_" in text:
        libdevice.link(module)
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    return target.emit_assembly(module)
