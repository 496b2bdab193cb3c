"""Animation of a trajectory as a self-contained HTML page."""

from .explore import Exploration as Exploration
from .explore import Slider as Slider
from .explore import explore as explore
from .lines import Solid as Solid
from .lines import check_trajectory as check_trajectory
from .lines import drawing as drawing
from .lines import is_rim as is_rim
from .moving import moving_picture as moving_picture
from .page import View as View
from .page import open_in_browser as open_in_browser
from .page import view as view
