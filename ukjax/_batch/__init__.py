"""Many members at once, as fast as a loop written by hand."""

from .assumed import wrongly_assumed as wrongly_assumed
from .either import either as either
from .lowering import does_kernels as does_kernels
from .members_last import members_last as members_last
from .per_member import per_member as per_member
from .plainly import plainly as plainly
from .rarely import rarely as rarely
from .shortcut import shortcut as shortcut
from .traced import without_unused as without_unused
