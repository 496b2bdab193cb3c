"""Functions of one member, compiled to machine code for one or many."""

from .assumed import assumption_failed as assumption_failed
from .by_jax import without_kernels as without_kernels
from .either import arithmetic_or_library as arithmetic_or_library
from .evaluate import without_unused as without_unused
from .lowering import kernels_available as kernels_available
from .per_member import per_member as per_member
from .rarely import rare_cond as rare_cond
from .shortcut import fast_branch as fast_branch
