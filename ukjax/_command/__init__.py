"""What each sub-command of ``ukjax`` does."""

from .gallery import list_gallery as list_gallery
from .run import run_system as run_system
from .usage import UsageError as UsageError
