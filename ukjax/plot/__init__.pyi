from .histories import histories as histories
from .published import published as published
from .style import save as save
