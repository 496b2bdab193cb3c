"""Actuators that follow their inputs with a delay: a low-pass filter, and a motor with a current."""

from jaxtyping import Array, Float

from .._check import as_numbers
from .._control import AbstractControl
from .._precision import Numbers
from .states import AbstractActuatorStates, checked_control, initial_of


class LowPass(AbstractActuatorStates):
    """Inputs that pass a low-pass filter of first order before they act: T ṡ = u − s, and s acts instead of u.

    An actuator with a time constant is such a filter. ``LowPass(DCMotor(control))`` filters the voltages of motors, and
    ``DCMotor(LowPass(control))`` their torques. The filtered inputs s are states, which ``ukjax.simulate``
    integrates with the motion. They follow the velocities in v, and ``Trajectory.states`` has them by name.

    Parameters
    ----------
    control
        The control whose inputs u are filtered, such as ``Feedback``, ``Servo``, ``PID`` or ``Mechanism.motors``.
    time_constant
        T, a positive number or (p,) [s].
    initial
        Values of the filtered inputs at the start, (p,) or a number, in the unit of u.

    Raises
    ------
    InputError
        If ``control`` is not a control or is sampled, or ``time_constant`` is not positive.
    """

    control: AbstractControl
    time_constant: Array
    own_initial: Float[Array, " p"]

    def __init__(self, control: AbstractControl, time_constant: Numbers, initial: Numbers = 0.0):
        self.control = checked_control(control)
        self.time_constant = as_numbers("time_constant", time_constant, above=0)
        self.own_initial = initial_of("initial", initial, control, self.time_constant)

    @property
    def own_states(self) -> tuple[tuple[str, str], ...]:
        units = [unit for _, unit in self.inputs or ()] or [""] * self._size
        return tuple(zip(self._names("filtered"), units, strict=True))

    def delivered(self, s: Float[Array, " p"]) -> Float[Array, " p"]:
        return s

    def own_rates(self, speed: Float[Array, " p"], s: Float[Array, " p"], u: Float[Array, " p"]) -> Float[Array, " p"]:
        return (u - s) / self.time_constant


class DCMotor(AbstractActuatorStates):
    """Direct-current motors, whose inputs u are voltages and whose torques K i follow from currents:

        L di/dt = u − R i − K ω,    Q = B K i,    ω = Bᵀ v

    with the columns of B of ``control``. The currents i are states, which ``ukjax.simulate`` integrates with the
    motion. They follow the velocities in v, and ``Trajectory.states`` has them by name.

    Parameters
    ----------
    control
        The control whose inputs u are the voltages [V], such as ``Feedback`` or ``PID``.
    resistance
        R, a positive number or (p,) [Ω].
    inductance
        L, a positive number or (p,) [H].
    constant
        K, a number or (p,) [N m/A = V s/rad]. For a gear of ratio r, K r.
    initial
        Currents at the start, (p,) or a number [A].

    Raises
    ------
    InputError
        If ``control`` is not a control or is sampled, or the resistance or inductance is not positive.
    """

    control: AbstractControl
    resistance: Array
    inductance: Array
    constant: Array
    own_initial: Float[Array, " p"]

    def __init__(
        self,
        control: AbstractControl,
        *,
        resistance: Numbers,
        inductance: Numbers,
        constant: Numbers,
        initial: Numbers = 0.0,
    ):
        self.control = checked_control(control)
        self.resistance = as_numbers("resistance", resistance, above=0)
        self.inductance = as_numbers("inductance", inductance, above=0)
        self.constant = as_numbers("constant", constant)
        numbers = self.resistance, self.inductance, self.constant
        self.own_initial = initial_of("initial", initial, control, *numbers)

    @property
    def own_states(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, "A") for name in self._names("current"))

    def delivered(self, s: Float[Array, " p"]) -> Float[Array, " p"]:
        return self.constant * s

    def own_rates(self, speed: Float[Array, " p"], s: Float[Array, " p"], u: Float[Array, " p"]) -> Float[Array, " p"]:
        return (u - self.resistance * s - self.constant * speed) / self.inductance
