"""Functions of one member, compiled to machine code for one or many.

``per_member`` makes one operation of JAX out of a function (``primitive``, ``transform``). Where that is compiled on a
CPU (``lowering``), its jaxpr becomes a graph of operations on numbers (``unroll``, with a rule for each primitive of
JAX), the graph a ``program``, the program text in LLVM's language (``assembly``, ``instructions``), and the text a
function that XLA calls (``machine``, ``call``).
"""

from .assumed import wrongly_assumed as wrongly_assumed
from .either import either as either
from .lowering import does_kernels as does_kernels
from .members_last import members_last as members_last
from .per_member import per_member as per_member
from .plainly import plainly as plainly
from .rarely import rarely as rarely
from .shortcut import shortcut as shortcut
from .traced import without_unused as without_unused
