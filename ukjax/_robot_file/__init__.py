"""Robots' files, URDF and MJCF, as mechanisms."""

from .contents import Contents as Contents
from .load import load as load
from .load import read as read
