"""What each sub-command of ``ukjax`` does."""

from .bench import bench as bench
from .gallery import list_gallery as list_gallery
from .run import run_system as run_system
from .usage import UsageError as UsageError
