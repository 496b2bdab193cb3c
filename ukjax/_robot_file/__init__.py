"""Readers of robot description files (URDF and MJCF) that construct mechanisms."""

from .contents import HINTS as HINTS
from .contents import Contents as Contents
from .contents import where as where
from .doubts import doubts as doubts
from .load import load as load
from .load import read as read
