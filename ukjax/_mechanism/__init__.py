"""Mechanisms of rigid bodies and joints, defined by masses and frames."""

from .actuator import Actuator as Actuator
from .body import Body as Body
from .flexible import FlexibleBody as FlexibleBody
from .kinematics import Pose as Pose
from .mechanism import Mechanism as Mechanism
from .motors import Motors as Motors
from .named import is_reserved as is_reserved
from .reactions import Reaction as Reaction
from .shape import Shape as Shape
from .whole_body import Momentum as Momentum
