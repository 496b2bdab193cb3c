from .animation import animate as animate
from .animation import save_animation as save_animation
from .ensemble import ensemble_map as ensemble_map
from .fitted import fitted as fitted
from .histories import histories as histories
from .published import published as published
from .style import save as save
from .tuned import tuned as tuned
