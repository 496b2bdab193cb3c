"""``singularity``: singular poses of mechanisms, and the transmission of motion in a pose.

Let the rows A v = 0 be those of loops, θ̇ = E v the velocities of the inputs, and ẏ = J v those of the output. After
Gosselin and Angeles, a pose is singular

    of kind 1, if [A; J] v = 0 for some v ≠ 0: the inputs move, and the output does not,
    of kind 2, if [A; E] v = 0 for some v ≠ 0: the inputs are locked, and the mechanism moves.

The smallest singular values of both matrices are distances from such poses. Displacements are measured with 1 rad for
angles and the characteristic length L for lengths, and each row of A has unit length, so that the matrices have no
units.
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._check import as_array, as_integer, as_number, call, check_finite, check_function, kind_of, repr_of
from .._errors import InputError
from .._mechanism import Mechanism
from .._motion.inputs import canonicalise
from .._names import did_you_mean
from .._precision import Numbers
from .._run.compile import jit_unoptimised
from .._system import shifted
from .sizes import characteristic_length, refuse_flexible, units_of_velocities

NEAR = 1e-6
"""Default distance at which a pose counts as singular."""


class Singularity(eqx.Module):
    """The transmission of motion in a pose, as ``singularity`` returns it. For a batch all arrays have a leading axis.

    In the shapes, p is the number of inputs, and o that of rows of the output.

    Attributes
    ----------
    kind
        0 for a regular pose; 1, 2, or 3 for a pose of both kinds.
    of_output
        Distance from kind 1, dimensionless: the smallest singular value of loops and output.
    of_inputs
        Distance from kind 2, dimensionless: the smallest singular value of loops and inputs.
    jacobian
        J (o, p): velocity of the output for a unit velocity of each input. Near a singularity of kind 2 it is large.
    manipulability
        The product of the singular values of J, Yoshikawa's measure.
    dexterity
        The smallest singular value of J divided by the largest, from 0, singular, to 1, isotropic.
    """

    kind: Int[Array, "*batch"]
    of_output: Float[Array, "*batch"]
    of_inputs: Float[Array, "*batch"]
    jacobian: Float[Array, "*batch o p"]
    manipulability: Float[Array, "*batch"]
    dexterity: Float[Array, "*batch"]


def singularity(
    mechanism: Mechanism,
    q: Numbers,
    inputs: Iterable[str],
    output: str | Callable,
    *,
    at: Numbers | None = None,
    length: Numbers | None = None,
    freedoms: int | None = None,
    t: Numbers = 0.0,
    tolerance: Numbers = NEAR,
) -> Singularity:
    """Find whether a pose of a mechanism is singular, its kind, and its distance from singular poses.

    Kind 1: the output cannot move in some direction, as at the boundary of a workspace. Kind 2: the mechanism moves
    with locked inputs, which then cannot hold a load. Kind 3: both.

    Parameters
    ----------
    mechanism
        The mechanism.
    q
        Coordinates (nq,) on the constraints, or (batch, nq) for a batch.
    inputs
        Names of the joints that are driven, p coordinates in all.
    output
        Name of a body whose point is the output, or a function y(q) (o,), such as an angle. All its entries should have
        the same unit, since dexterity compares them.
    at
        Point of the body (3,) [m], if the output is a body. Default: the origin of its frame.
    length
        Characteristic length [m], if the output is a body: its angular velocity, multiplied by this length, is part of
        the output. Default: only the velocity of the point, so that all rows of J have one unit.
    freedoms
        Number of independent velocities that the output has in a regular pose. Default: that of the inputs, or of the
        rows of the output if these are fewer. The point of a planar arm with three motors has 2.
    t
        Time [s], for mechanisms with prescribed motions.
    tolerance
        Largest distance at which a pose counts as singular.

    Returns
    -------
    Singularity
        The kind, distances, J, manipulability and dexterity. All but the kind have derivatives at regular poses.

    Raises
    ------
    InputError
        For an invalid argument.

    Notes
    -----
    The number of inputs should equal the number of degrees of freedom. With fewer inputs the mechanism moves with
    locked inputs in each pose, and each pose is of kind 2.

    C. Gosselin, J. Angeles, Singularity analysis of closed-loop kinematic chains, IEEE Trans. Robotics Automat. 6
    (1990) 281; T. Yoshikawa, Manipulability of robotic mechanisms, Int. J. Robotics Res. 4 (1985) 3.
    """
    if not isinstance(mechanism, Mechanism):
        raise InputError(f"mechanism must be a ukjax.Mechanism, got {kind_of(mechanism)}")
    refuse_flexible("singularity", mechanism)
    t, q, tolerance = as_number("t", t, "s"), as_array("q", q), as_number("tolerance", tolerance, above=0)
    nq = mechanism.tree.nq
    if q.ndim not in (1, 2) or q.shape[-1] != nq:
        raise InputError(f"q must have shape ({nq},), or (batch, {nq}) for a batch, got shape {q.shape}")
    check_finite("q", q)
    names = (inputs,) if isinstance(inputs, str) else tuple(inputs) if isinstance(inputs, Iterable) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"inputs must be names of joints, such as ('motor',), got {repr_of(inputs)}")
    for name in names:
        if name not in mechanism.joints:
            raise InputError(f"inputs names no joint {name!r}{did_you_mean(name, tuple(mechanism.joints))}")
        if names.count(name) > 1:
            raise InputError(f"inputs must name each joint once, got {name!r} twice")
    if mechanism.control is not None:
        mechanism = mechanism.driven(None)  # pyright: ignore  # the task of a control is not a constraint here
    if not isinstance(output, str) and not (at is None and length is None):
        raise InputError("at and length must be left out, unless output is the name of a body")
    point, length = (
        as_array("at", (0.0, 0.0, 0.0) if at is None else at),
        None if length is None else as_number("length", length, "m", above=0),
    )
    mechanism, q, _, t = canonicalise(mechanism, q, jnp.zeros((*q.shape[:-1], mechanism.tree.n)), t)
    model = Transmission(mechanism, mechanism.along(*names), _output(mechanism, output, point), length)
    if freedoms is not None:
        freedoms = as_integer("freedoms", freedoms, 1)
    return _transmission(model, t, q, tolerance, freedoms)


class PointOf(eqx.Module):
    """Velocity of a point of a body, and angular velocity."""

    body: str = eqx.field(static=True)
    point: Float[Array, " 3"]


class Transmission(eqx.Module):
    """Loops, inputs and output of a mechanism."""

    mechanism: Mechanism
    actuators: Callable
    output: Any
    length: Float[Array, ""] | None

    def rows(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, "o n"]:
        """The output J: ẏ = J v."""
        if isinstance(self.output, PointOf):
            J = self.mechanism.jacobian(q, self.output.body, self.output.point, t)
            return J[:3] if self.length is None else jnp.concatenate([J[:3], self.length * J[3:]])
        y = lambda x: as_array("output", call("output", self.output, shifted(self.mechanism.kinematic_map, q, x)))
        J = jax.jacfwd(y)(jnp.zeros(self.mechanism.tree.n, q.dtype))
        return J.reshape(-1, J.shape[-1])


def _output(mechanism, output, point):
    if not isinstance(output, str):
        check_function("output", output, "q")
        return output
    bodies = tuple(mechanism.bodies)
    if output not in bodies:
        raise InputError(
            f"output must be the name of a body, or a function of q, got {output!r}{did_you_mean(output, bodies)}"
        )
    if point.shape != (3,):
        raise InputError(f"at must be three numbers, a point in the frame of the body, got shape {point.shape}")
    return PointOf(output, point)


@jit_unoptimised
def _transmission(model, t, q, tolerance, freedoms):
    one = lambda q: _at(model, t, q, tolerance, freedoms)
    return jax.vmap(one)(q) if q.ndim == 2 else one(q)


def _at(model, t, q, tolerance, freedoms):
    mechanism = model.mechanism
    size = characteristic_length(mechanism, t, q)
    unit = units_of_velocities(mechanism, size)
    A = mechanism.position_slope(t, q, jnp.zeros_like(unit)) * unit
    row = jnp.sum(A**2, axis=1, keepdims=True)
    A = A / jnp.sqrt(jnp.where(row > 0, row, 1))
    E, J = model.actuators(t, q).T * unit, model.rows(t, q) * unit
    r = min(len(E), len(J))
    if freedoms is not None and freedoms > r:
        raise InputError(f"freedoms must be at most {r}, the smaller number of inputs and of rows, got {freedoms}")
    r = r if freedoms is None else freedoms
    scale = size if isinstance(model.output, PointOf) else jnp.max(jnp.linalg.norm(J, axis=1))
    of_inputs = _singular_values(jnp.concatenate([A, E]))[unit.size - 1]
    of_output = _singular_values(jnp.concatenate([A, J / jnp.where(scale > 0, scale, 1)]))[unit.size - 1 - len(E) + r]
    # The motion for a unit of each input: the solution of [A; E] v = [0; 1].
    motion = jnp.linalg.pinv(jnp.concatenate([A, E]), rtol=1e-12)[:, len(A) :]
    jacobian = J @ motion
    values = _singular_values(jacobian)[:r]
    kind = jnp.where(of_output <= tolerance, 1, 0) + jnp.where(of_inputs <= tolerance, 2, 0)
    largest = jnp.where(values[0] > 0, values[0], 1)
    return Singularity(kind, of_output, of_inputs, jacobian, jnp.prod(values), values[-1] / largest)


def _singular_values(A):
    """The singular values of A (m, n), n of them, the largest first; 0 where m is smaller."""
    m, n = A.shape
    A = A if m >= n else jnp.concatenate([A, jnp.zeros((n - m, n), A.dtype)])
    return jnp.linalg.svd(A, compute_uv=False)
