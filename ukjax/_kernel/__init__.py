"""Functions of one member, compiled to machine code for one member or a batch."""

from .by_jax import without_kernels as without_kernels
from .evaluate import without_unused as without_unused
from .hints import arithmetic_or_library as arithmetic_or_library
from .hints import assumption_failed as assumption_failed
from .hints import fast_branch as fast_branch
from .hints import rare_cond as rare_cond
from .lowering import kernels_available as kernels_available
from .per_member import per_member as per_member
from .per_member import per_member_forward as per_member_forward
