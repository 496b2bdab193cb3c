"""Base classes of joints and connections."""

import abc
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_numbers, as_numpy, repr_of
from .._constraint.unilateral import as_static
from .._errors import InputError
from .._rotation import as_quaternion, as_vector, of_quaternion, rates_of_quaternions, unskew

if TYPE_CHECKING:
    Point = Any  # the converters of fields accept any array-like value
    Turn = Any
    Numbers = Any
    Number = Any
    Name = Any
    Limits = Any
else:
    Point = Float[Array, " 3"] | None
    Turn = Float[Array, " 4"] | None
    Numbers = Float[Array, " *k"] | None
    Number = Float[Array, ""]
    Name = str
    Limits = tuple[float, float] | None


class Relative(NamedTuple):
    """Pose and motion of the child's joint frame relative to the parent's, in the parent's axes.

    Attributes
    ----------
    R, p : (3, 3), (3,)
        Axes of the child's joint frame, as columns, and its origin [m].
    angular, linear : (3, k)
        Angular velocity, and velocity of the origin, for a unit of each of the k velocities of the joint.
    omega, velocity : (3,)
        Angular velocity [rad/s], and velocity of the origin [m/s].
    alpha, acceleration : (3,)
        Their derivatives at constant velocities of the joint.
    """

    R: Float[Array, "3 3"]
    p: Float[Array, " 3"]
    angular: Float[Array, "3 k"]
    linear: Float[Array, "3 k"]
    omega: Float[Array, " 3"]
    velocity: Float[Array, " 3"]
    alpha: Float[Array, " 3"]
    acceleration: Float[Array, " 3"]


def _point(name):
    return eqx.field(default=None, converter=lambda value: None if value is None else as_vector(name, value))


def _turn(name):
    return eqx.field(default=None, converter=lambda value: None if value is None else as_quaternion(name, value))


def _optional(name, **limits):
    return eqx.field(default=None, converter=lambda value: None if value is None else as_numbers(name, value, **limits))


def _limits(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    low_high = as_numpy("limits", value)
    if low_high.shape != (2,) or not low_high[0] <= low_high[1]:
        raise InputError(f"limits must be two numbers, the lower first, got {repr_of(value)}")
    return float(low_high[0]), float(low_high[1])


def _body(name):
    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise InputError(f"{name} must be the name of a body, or 'ground', got {value!r}")
        return value

    return eqx.field(static=True, converter=convert)


class AbstractConnection(eqx.Module):
    """A connection between two bodies.

    The connection acts between a joint frame in the parent and a joint frame in the child. To add a kind of connection,
    subclass this and define ``rows`` and ``residual``.

    Parameters
    ----------
    parent, child : str
        Names of the bodies; one of them may be ``"ground"``.
    at : (3,), optional
        Origin of the joint frame in the parent's frame [m]. Default: the origin of the body.
    turn : (3,) or (4,), optional
        Attitude of the joint frame in the parent's frame: roll, pitch and yaw [rad], about x, then y, then z, or a
        quaternion (w, x, y, z) of any length. It is stored as a quaternion. Default: the axes of the body.
    to : (3,), optional
        Origin of the joint frame in the child's frame [m].
    to_turn : (3,) or (4,), optional
        Attitude of the joint frame in the child's frame.

    Raises
    ------
    InputError
        If an argument has a wrong type or shape.
    """

    parent: Name = _body("parent")
    child: Name = _body("child")
    _: KW_ONLY
    at: Point = _point("at")
    turn: Turn = _turn("turn")
    to: Point = _point("to")
    to_turn: Turn = _turn("to_turn")

    rows: ClassVar[tuple[str, ...]]
    """A name for each row of ``residual``."""

    @abc.abstractmethod
    def residual(self, t: Array, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Float[Array, " m"]:
        """The residual φ (m,) of the connection, which is 0 where the connection holds.

        Parameters
        ----------
        t : ()
            Time [s].
        R : (3, 3)
            Axes of the child's joint frame, as columns, in the parent's joint frame.
        p : (3,)
            Origin of the child's joint frame in the parent's joint frame [m].

        Returns
        -------
        (m,)
            Lengths [m] and dimensionless numbers, one for each name in ``rows``.
        """

    def in_parent(self) -> tuple[Array, Array]:
        """The joint frame in the parent: axes as columns (3, 3), and origin (3,) [m]."""
        return _frame(self.turn, self.at)

    def in_child(self) -> tuple[Array, Array]:
        """The joint frame in the child: axes as columns (3, 3), and origin (3,) [m]."""
        return _frame(self.to_turn, self.to)


class AbstractActing(AbstractConnection):
    """A connection with coordinates, along which forces may act.

    Each parameter is one number for all velocities of the joint, or one number for each. Units are those of the
    coordinate: N m and rad, or N and m.

    Along the three angular velocities of a quaternion, the spring exerts the moment −``stiffness`` θ e, where θ ≤ π is
    the angle and e the axis of the rotation from ``rest``; its energy is ``stiffness`` θ²/2. Dry friction acts along
    the axes of the child. ``stiffness``, ``friction`` and ``creep`` are then one number for all directions.

    Dry friction is −``friction`` tanh(q̇/``creep``). A joint that friction holds against a load therefore creeps, at
    the rate ``creep`` artanh(load/``friction``). A smaller ``creep`` reduces this rate but needs smaller time steps:
    explicit methods need about 2 ``creep`` / (``friction`` a), where a is the acceleration per unit of force. If a
    joint creeps by more than a thousandth of the size of its coordinate, ``simulate`` issues a warning with a
    sufficient value of ``creep`` and the time step that it needs. There is no warning inside ``jit``. With ``sticks``,
    friction is exact: the joint stands still until the load exceeds ``friction``, or ``static_friction`` if it is
    given, see ``ukjax.Coulomb``.

    Parameters
    ----------
    stiffness : float or (k,), optional
        Stiffness of a spring: force −``stiffness`` (q − ``rest``).
    rest : float or (k,), optional
        Coordinates at which the spring exerts no force. For a joint with a quaternion: all its coordinates. Default: 0,
        or no rotation.
    preload : float or (k,), optional
        Force of the spring at ``rest`` [N or N m]: the force is ``preload`` − ``stiffness`` (q − ``rest``). Without
        ``stiffness`` the force is constant. Not for quaternions.
    damping : float or (k,), optional
        Viscous damping: force −``damping`` q̇. At least 0.
    armature : float or (k,), optional
        Inertia of a motor along the coordinate, reflected through its gears. At least 0.
    friction : float or (k,), optional
        Limit of the dry friction force [N or N m]. At least 0.
    creep : float or (k,), optional
        Rate below which dry friction is smooth [rad/s or m/s]. Default: 1e-3.
    sticks : bool
        Whether dry friction sticks. Default: it is smooth, and creeps.
    static_friction : float or (k,), optional
        Limit of the dry friction force where it sticks [N or N m], at least ``friction``. It needs ``sticks``.
        Default: ``friction``.
    """

    _: KW_ONLY
    stiffness: Numbers = _optional("stiffness")
    rest: Numbers = _optional("rest")
    preload: Numbers = _optional("preload")
    damping: Numbers = _optional("damping", least=0)
    armature: Numbers = _optional("armature", least=0)
    friction: Numbers = _optional("friction", least=0)
    creep: Numbers = _optional("creep", above=0)
    sticks: bool = eqx.field(default=False, static=True)
    static_friction: Numbers = _optional("static_friction", least=0)

    def __check_init__(self):
        if self.static_friction is not None:
            if self.friction is None or not self.sticks:
                raise InputError(
                    "static_friction needs friction and sticks=True: friction that creeps has no static one"
                )
            as_static("static_friction", self.static_friction, "friction", self.friction)

    coordinates: ClassVar[tuple[tuple[str, str], ...]]
    """Name and unit of each coordinate. The name is appended to the name of the joint."""
    quaternion: ClassVar[int | None] = None
    """Index at which a unit quaternion begins in the coordinates, or None.

    The velocities then contain three angular velocities about the axes of the joint frame in the parent, instead of the
    four derivatives of the quaternion. The other velocities are derivatives of coordinates.
    """

    @property
    def velocities(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each velocity: the coordinate's name prefixed with d, or that of an angular velocity."""
        velocities = [(f"d{name}", f"{unit}/s" if unit else "") for name, unit in self.coordinates]
        if self.quaternion is not None:
            velocities[self.quaternion : self.quaternion + 4] = [(f"w{axis}", "rad/s") for axis in "xyz"]
        return tuple(velocities)

    within_half_a_turn: ClassVar[bool] = False
    """Whether ``coordinates_of`` returns angles in (−π, π]."""

    def coordinates_of(self, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Float[Array, " k"] | None:
        """The coordinates of the joint for a pose of the child's joint frame, or None if the pose does not determine
        them.

        Parameters
        ----------
        R : (3, 3)
            Axes of the child's joint frame, as columns, in the parent's joint frame.
        p : (3,)
            Origin of the child's joint frame in the parent's joint frame [m].

        Returns
        -------
        (k,) or None
            Angles in (−π, π] and lengths [m]; None for a joint whose coordinates are not only angles and lengths.
        """
        return None


class AbstractJoint(AbstractActing):
    """A joint: a connection whose allowed motions have coordinates.

    To add a kind of joint, subclass this and define ``coordinates``, ``neutral``, ``rows``, ``transform``, ``residual``
    and, where possible, ``coordinates_of``. Velocities follow by automatic differentiation of ``transform``; override
    ``relative`` to compute them directly.

    ``AbstractConnection`` describes ``parent``, ``child``, ``at``, ``turn``, ``to`` and ``to_turn``; ``AbstractActing``
    describes the spring, damper, armature and dry friction, from ``stiffness`` to ``static_friction``.

    Parameters
    ----------
    reference : (k,), optional
        Coordinates in the reference pose, at which ``Mechanism.start`` begins its search. Default: ``neutral``.
    limits : (float, float), optional
        Lower and upper limit of the coordinate of a joint with one coordinate. Without ``restitution``, limits exert no
        force, and ``simulate`` issues a warning if a motion exceeds them.
    restitution : float, optional
        Coefficient of restitution, from 0 to 1. If it is given, the limits are stops, see ``ukjax.Unilateral``.
    """

    _: KW_ONLY
    reference: Numbers = _optional("reference")
    limits: Limits = eqx.field(default=None, static=True, converter=_limits)
    restitution: Numbers = _optional("restitution", least=0, most=1)

    neutral: ClassVar[tuple[float, ...]]
    """The coordinates at which both joint frames coincide."""

    @abc.abstractmethod
    def transform(self, t: Array, q: Float[Array, " k"]) -> tuple[Float[Array, "3 3"], Float[Array, " 3"]]:
        """The pose of the child's joint frame in the parent's joint frame.

        Parameters
        ----------
        t : ()
            Time [s].
        q : (k,)
            Coordinates of the joint.

        Returns
        -------
        R : (3, 3)
            Axes of the child's joint frame, as columns.
        p : (3,)
            Its origin [m].
        """

    def _q_dot(self, q, v):
        """The derivative q̇ of the coordinates for the velocities v."""
        if self.quaternion is None:
            return v
        i = self.quaternion
        (quaternion_dot,) = rates_of_quaternions(q[None, i : i + 4], v[None, i : i + 3])
        return jnp.concatenate([v[:i], quaternion_dot, v[i + 3 :]])

    def relative(self, t: Array, q: Float[Array, " k"], v: Float[Array, " j"]) -> Relative:
        """Pose, velocity and acceleration of the child's joint frame relative to the parent's."""
        one = jnp.ones_like(t)

        def rates(t, q, v):
            (R, p), (R_dot, p_dot) = jax.jvp(self.transform, (t, q), (one, self._q_dot(q, v)))
            return unskew(R_dot @ R.T), p_dot

        R, p = self.transform(t, q)
        tangent = one, self._q_dot(q, v)
        (omega, velocity), (alpha, acceleration) = jax.jvp(lambda t, q: rates(t, q, v), (t, q), tangent)
        angular, linear = jax.jacfwd(lambda v: rates(t, q, v))(v)
        return Relative(R, p, angular, linear, omega, velocity, alpha, acceleration)


def nearest_turn(angle: Float[Array, "*k"], reference: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Add whole turns to ``angle`` such that it is nearest to ``reference``.

    The number of turns is treated as constant by differentiation.
    """
    turns = jnp.round((jax.lax.stop_gradient(reference - angle)) / (2 * jnp.pi))
    return angle + 2 * jnp.pi * turns


class AbstractAxial(AbstractJoint):
    """A joint whose coordinates rotate the child about one fixed axis and translate it in fixed directions."""

    @abc.abstractmethod
    def columns(self) -> tuple[Float[Array, "3 k"], Float[Array, "3 k"]]:
        """Angular velocity and velocity (3, k) for a unit of each rate."""

    @abc.abstractmethod
    def rotation(self, q: Float[Array, " k"]) -> Float[Array, "3 3"]:
        """The rotation matrix at the coordinates q."""

    def transform(self, t: Array, q: Float[Array, " k"]) -> tuple[Array, Array]:
        return self.rotation(q), self.columns()[1] @ q

    def relative(self, t: Array, q: Float[Array, " k"], v: Float[Array, " k"]) -> Relative:
        (angular, linear), zeros = self.columns(), jnp.zeros(3)
        R, p = self.transform(t, q)
        return Relative(R, p, angular, linear, angular @ v, linear @ v, zeros, zeros)


def _frame(turn, at):
    return jnp.eye(3) if turn is None else of_quaternion(turn), jnp.zeros(3) if at is None else at
