"""What each sub-command of ``ukjax`` does."""

from .bench import bench as bench
from .fit import fit_system as fit_system
from .gallery import list_gallery as list_gallery
from .run import run_system as run_system
from .tune import tune_system as tune_system
from .usage import UsageError as UsageError
