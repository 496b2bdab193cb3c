"""What a joint is: where it lets one body be beside another."""

import abc
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_numbers, as_numpy, repr_of
from .._rotation import as_vector, of_quaternion, quaternion_of_angles, rates_of_quaternions, unskew

if TYPE_CHECKING:
    Point = Any  # whatever they are given as, they become arrays
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
    """The child's joint frame in the parent's, and how it moves there, in the parent's axes: rotation, place, columns
    of angular velocity and of velocity for each rate, then both velocities and, at constant rates, accelerations."""

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
    def convert(value: Any) -> Array | None:
        if value is None:
            return None
        value = as_numbers(name, value)
        if value.shape == (3,):
            value = quaternion_of_angles(value)
        if value.shape != (4,):
            raise ValueError(
                f"{name} must be roll, pitch and yaw [rad] or a quaternion (w, x, y, z), got shape {value.shape}"
            )
        return value

    return eqx.field(default=None, converter=convert)


def _optional(name, **limits):
    return eqx.field(default=None, converter=lambda value: None if value is None else as_numbers(name, value, **limits))


def _limits(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    found = as_numpy("limits", value)
    if found.shape != (2,) or not found[0] <= found[1]:
        raise ValueError(f"limits must be two numbers, the lower first, got {repr_of(value)}")
    return float(found[0]), float(found[1])


def _body(name):
    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{name} must be the name of a body, or 'ground', got {value!r}")
        return value

    return eqx.field(static=True, converter=convert)


class AbstractConnection(eqx.Module):
    """What binds the bodies named ``parent`` and ``child``; either may be ``"ground"``.

    Where it sits: in the parent at the point ``at`` (3,) [m], turned by ``turn``, in the child at ``to`` (3,) [m],
    turned by ``to_turn``; None is the origin of the body's frame and its axes. A turn is given as roll, pitch and yaw
    [rad], about x, then y, then z, or as a quaternion (w, x, y, z), and kept as one, of whatever length.
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
        """φ (m,), 0 where the connection holds, for a child's joint frame with the axes R (as columns) and the origin p
        [m] in the parent's joint frame: lengths [m] and numbers without unit, one per name in ``rows``."""

    def in_parent(self) -> tuple[Array, Array]:
        """The joint frame in the parent: axes as columns, and origin."""
        return _frame(self.turn, self.at)

    def in_child(self) -> tuple[Array, Array]:
        """The joint frame in the child."""
        return _frame(self.to_turn, self.to)


class AbstractActing(AbstractConnection):
    """A connection with coordinates, along which something may act.

    One number for all coordinates, or one for each: a spring, −``stiffness`` (q − ``rest``); −``damping`` q̇;
    ``armature``, the inertia of a motor behind its gears; dry ``friction``, a force or torque of that size against the
    motion, all of it above some rates ``creep`` [1e-3 rad/s or m/s], below which it is smooth (see
    ``ukjax.Mechanism``).

    So a joint that friction holds against a ``load`` does not stand still: its rate is ``creep`` artanh(``load`` /
    ``friction``). A smaller ``creep`` holds it better and takes shorter steps, those of explicit methods of about
    2 ``creep`` / (``friction`` a), where a is the acceleration that a unit of force makes. Where a joint creeps by more
    than a thousandth of the size of its coordinate, ``simulate`` warns, and says which ``creep`` is small enough and
    what steps it takes; within ``jit`` it cannot.

    Where an attitude is a quaternion, they act along the three rates of turning. ``rest`` is then all coordinates
    (k,), the quaternion among them. The spring's moment is −``stiffness`` θ e, with the angle θ ≤ π and the axis e of
    the rotation from rest, and its energy ``stiffness`` θ²/2; dry friction acts along the axes of the child. Both have
    one number for all directions; ``damping`` and ``armature`` have one, or one for each velocity.
    """

    _: KW_ONLY
    stiffness: Numbers = _optional("stiffness")
    rest: Numbers = _optional("rest")
    damping: Numbers = _optional("damping", least=0)
    armature: Numbers = _optional("armature", least=0)
    friction: Numbers = _optional("friction", least=0)
    creep: Numbers = _optional("creep", above=0)

    coordinates: ClassVar[tuple[tuple[str, str], ...]]
    """Name, put behind the joint's own, and unit of each."""
    quaternion: ClassVar[int | None] = None
    """Where among the coordinates a unit quaternion begins, in place of which three rates of turning are among the
    velocities, about the axes of the joint in the parent; the others are the rates of the other coordinates."""

    @property
    def velocities(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of each velocity: that of its coordinate with a d before it, or that of a rate of turning."""
        found = [(f"d{name}", f"{unit}/s" if unit else "") for name, unit in self.coordinates]
        if self.quaternion is not None:
            found[self.quaternion : self.quaternion + 4] = [(f"w{axis}", "rad/s") for axis in "xyz"]
        return tuple(found)

    within_half_a_turn: ClassVar[bool] = False
    """Whether ``coordinates_of`` gives angles that begin anew after half a turn."""

    def coordinates_of(self, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Float[Array, " k"] | None:
        """q (k,), for a child's joint frame with the axes R (as columns) and the origin p [m] in the parent's joint
        frame; angles within half a turn. None where coordinates are no plain angles and lengths."""
        return None


class AbstractJoint(AbstractActing):
    """A joint: what lets the child move beside the parent in ways that have coordinates.

    ``reference`` is the joint's coordinates (k,) in the reference pose, from which ``Mechanism.start`` looks for a pose
    that fits; None is ``neutral``, 0 for angles and lengths. ``limits``, (low, high), are a record of how far a joint
    with one coordinate is meant to go: nothing stops it there, but ``simulate`` warns of a motion that passes them.

    To add a kind of joint, subclass this and define ``transform(t, q)``, which returns the axes and the origin of the
    child's joint frame in the parent's; ``residual(t, R, p)``, which returns the rows that bind two bodies where the
    joint closes a loop; and, if it can be done, ``coordinates_of(R, p)``, which returns the joint's coordinates.
    Velocities follow by automatic differentiation, unless ``relative(t, q, v)`` returns them.
    """

    _: KW_ONLY
    reference: Numbers = _optional("reference")
    limits: Limits = eqx.field(default=None, static=True, converter=_limits)

    neutral: ClassVar[tuple[float, ...]]
    """The coordinates where both joint frames coincide."""

    @abc.abstractmethod
    def transform(self, t: Array, q: Float[Array, " k"]) -> tuple[Float[Array, "3 3"], Float[Array, " 3"]]:
        """(R, p): the axes of the child's joint frame, as columns, and its origin [m], in the parent's joint frame."""

    def _q_dot(self, q, v):
        """q̇ of its coordinates: v, or what the rates of turning make of a quaternion."""
        if self.quaternion is None:
            return v
        i = self.quaternion
        (turning,) = rates_of_quaternions(q[None, i : i + 4], v[None, i : i + 3])
        return jnp.concatenate([v[:i], turning, v[i + 3 :]])

    def relative(self, t: Array, q: Float[Array, " k"], v: Float[Array, " j"]) -> Relative:
        """Where the child's joint frame is and how it moves."""
        one = jnp.ones_like(t)

        def rates(t, q, v):
            (R, p), (R_dot, p_dot) = jax.jvp(self.transform, (t, q), (one, self._q_dot(q, v)))
            return unskew(R_dot @ R.T), p_dot

        R, p = self.transform(t, q)
        along = one, self._q_dot(q, v)
        (omega, velocity), (alpha, acceleration) = jax.jvp(lambda t, q: rates(t, q, v), (t, q), along)
        angular, linear = jax.jacfwd(lambda v: rates(t, q, v))(v)
        return Relative(R, p, angular, linear, omega, velocity, alpha, acceleration)


def nearest_turn(angle: Float[Array, "*k"], reference: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """``angle``, known up to whole turns, in the turn in which it is nearest to the ``reference``. Its derivatives are
    those of the angle."""
    turns = jnp.round((jax.lax.stop_gradient(reference - angle)) / (2 * jnp.pi))
    return angle + 2 * jnp.pi * turns


class AbstractAxial(AbstractJoint):
    """A joint whose coordinates turn the child about one fixed axis and shift it in fixed directions."""

    @abc.abstractmethod
    def columns(self) -> tuple[Float[Array, "3 k"], Float[Array, "3 k"]]:
        """Angular velocity and velocity for each rate."""

    @abc.abstractmethod
    def turned(self, q: Float[Array, " k"]) -> Float[Array, "3 3"]:
        """The rotation."""

    def transform(self, t: Array, q: Float[Array, " k"]) -> tuple[Array, Array]:
        return self.turned(q), self.columns()[1] @ q

    def relative(self, t: Array, q: Float[Array, " k"], v: Float[Array, " k"]) -> Relative:
        (angular, linear), nothing = self.columns(), jnp.zeros(3)
        R, p = self.transform(t, q)
        return Relative(R, p, angular, linear, angular @ v, linear @ v, nothing, nothing)


def _frame(turn, at):
    return jnp.eye(3) if turn is None else of_quaternion(turn), jnp.zeros(3) if at is None else at
