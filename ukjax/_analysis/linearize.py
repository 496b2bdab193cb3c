"""``linearize``: the state space of a constrained system at a state."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_array, as_number, call, check_finite, check_function, kind_of
from .._check_terms import check_unique
from .._control import AbstractControl, actuator_matrix
from .._errors import InputError
from .._functions import Constant, as_function, vector
from .._jaxpr.tracing import is_eager, without_derivatives
from .._kinematic_map import columns, rate, velocities_of
from .._labels import Named, direction_names, force_unit, named_coordinates, named_inputs
from .._motion.diagnose.motion import CONSISTENT, worst_row
from .._motion.fallback.row_noise import without_noise_rows
from .._motion.inputs import canonicalise, check_kinematic_map
from .._motion.stepper.scaling import scales
from .._names import did_you_mean_one_of
from .._precision import Numbers
from .._run.compile import jit_unoptimised
from .._solve import AbstractMethod, choose
from .._system import AbstractSystem, refuse_contacts, refuse_sampled
from .._with_states import plant_of, with_initial_states
from .linear_model import LinearModel
from .states import Rows, named_states, names_of_states, position_names, velocity_names
from .tangent import compiled_tangent


def linearize(
    system: AbstractSystem,
    q: Numbers,
    v: Numbers | None = None,
    t: Numbers = 0.0,
    *,
    inputs: Any = None,
    outputs: Any = None,
    states: Iterable[str] | None = None,
    method: str | AbstractMethod = "orthogonal",
) -> LinearModel:
    """Linearise a constrained system at a state: ẋ = A x + B u, y = C x + D u.

    The states x are deviations of independent coordinates and velocities, as many as the constraints leave free. A
    system with d degrees of freedom and position constraints has 2 d states, and so 2 d eigenvalues. Constraints on
    velocities reduce the number of independent velocities, but not that of coordinates. The other coordinates and
    velocities follow by the constraints (``LinearModel.displacement``). Redundant constraints, kinematic maps,
    constraints that depend on time, and a singular M are allowed wherever ``constrained_motion`` allows them. The
    geometric stiffness of the constraint forces is included.

    At an equilibrium, and along a steady motion such as that of a rolling wheel, A is constant. Elsewhere x is the
    deviation from the motion through the state, at equal times, and A is that of ẋ = A(t) x at this time. Its
    eigenvalues then depend on the choice of states and do not show stability; ``LinearModel.modes`` raises an error for
    such a state.

    The result is a pure function of the system and the state, with exact derivatives. Inside ``jax.jit`` and
    ``jax.vmap`` name the ``states``, and return arrays, such as ``eigenvalues``; ``equinox.filter_vmap`` also returns
    the record. An equilibrium moves if a parameter changes: for derivatives by parameters, compute q by ``equilibrium``
    or ``project`` in the same function.

    Parameters
    ----------
    system
        The system. The forces of its control are included, so that A is that of the closed loop. First-order states of
        its control are entries of x, too.
    q
        Coordinates, shape (nq,), on the constraints.
    v
        Velocities, shape (n,), on the constraints. Default: 0. For a control with first-order states, (v, s) of shape
        (n + k,) is allowed; without s, the states have the initial values of the control.
    t
        Time [s].
    inputs
        The inputs u: names of coordinates (or directions of velocities) along which u are forces, or B(t, q) (n, p) as
        for ``ukjax.control``. Default: the actuators of the system's control, in addition to the control law.
    outputs
        The outputs y: names of coordinates and velocities, or a function y(t, q, v) (o,). Default: all coordinates.
    states
        Names of the states, coordinates first. Default: those that are most nearly independent.
    method
        Solver for the accelerations, by name or as an object.

    Returns
    -------
    LinearModel
        A, B, C, D, names, eigenvalues, modes, frequency response and regulators. ``A, B, C, D = linear``.

    Raises
    ------
    InputError
        If the state is off the constraints, the acceleration is not unique, the states are dependent, or an argument is
        invalid. For traced values the result is NaN instead.

    Notes
    -----
    Theory and derivatives: see the module ``ukjax._analysis.tangent``. On linear models of multibody systems with
    constraints: Peterson, Gede & Hubbard, Multibody Syst. Dyn. 33 (2015) 143; on spurious eigenvalues, which arise in
    formulations in all coordinates: González, Masarati, Cuadrado & Naya, J. Comput. Nonlinear Dyn. 12 (2017).
    """
    if not isinstance(system, AbstractSystem):
        raise InputError(f"system must be a ukjax.System, got {kind_of(system)}")
    refuse_contacts("linearize", system)
    refuse_sampled("linearize", system)
    system, t, q, v = state_of(system, t, q, v)
    system, q, v, t = canonicalise(system, q, v, t)
    check_kinematic_map(system, q, v)
    constants: Any = without_derivatives((system, t, q, v))
    method = choose(method)
    rows, quick = None, None
    if is_eager(constants):
        rows = Rows.at(*constants)
        check_state(rows, *constants)
        method = without_noise_rows(method, *constants) if rows.has_small() else method
        quick = rows.fast_path(method)
    if states is not None:
        chosen = named_states(system, q.size, v.size, states)
    elif rows is not None:
        chosen = rows.states(method, system)
    else:
        raise InputError(
            "states must be named inside jax.jit and jax.vmap, since their number depends on the rank of the "
            "constraints: states=ukjax.linearize(system, q, v).states, from one system outside"
        )
    forces, of_inputs = _inputs(system, inputs, t, q, v)
    output, of_outputs = _outputs(system, outputs, t, q, v)
    arguments = system, t, q, v, chosen, forces, output
    linear = None if quick is None else compiled_tangent(*arguments, quick)
    if linear is None or without_derivatives(linear.needs_fallback):
        linear, quick = compiled_tangent(*arguments, method), None
    if rows is not None:
        _check(without_derivatives(linear), constants, names_of_states(system, q.size, v.size, chosen), method)
    return LinearModel(
        A=linear.A,
        B=linear.B,
        C=linear.C,
        D=jnp.zeros((len(of_outputs), len(of_inputs)), q.dtype),
        system=system,
        t=t,
        q=q,
        v=v,
        acceleration=linear.acceleration,
        force=linear.terms.Q,
        mass=linear.terms.M,
        displacement=linear.displacement,
        velocity=linear.velocity,
        states=names_of_states(system, q.size, v.size, chosen),
        inputs=of_inputs,
        outputs=of_outputs,
        chosen=chosen,
        method=method if quick is None else quick,
        input_forces=forces,
        output=output,
    )


def state_of(
    system: AbstractSystem, t: Numbers, q: Numbers, v: Numbers | None, name: str = "q"
) -> tuple[AbstractSystem, Array, Array, Array]:
    """Return the system with its states in the velocities, and t, q, v as arrays. v is 0 if it is None, and states
    that are not given have their initial values. Raises ``InputError`` for wrong shapes; the message uses ``name`` for
    q.
    """
    t, q = as_number("t", t, "s"), as_array(name, q)
    if q.ndim != 1 or not q.size:
        raise InputError(f"{name} must have shape (n,), one entry per coordinate, got shape {q.shape}")
    system = plant_of(system)
    if v is None and system.kinematic_map is not None and system.velocities is None:
        raise InputError(
            "velocities of a system with a kinematic_map must have names, which give their number: "
            "System(..., velocities=[(name, unit), ...])"
        )
    n = q.size if system.kinematic_map is None else len(system.velocities or ())
    velocities = jnp.zeros(n, q.dtype) if v is None else as_array("v", v)
    system, velocities = with_initial_states(system, q, velocities, "v")
    if velocities.ndim != 1 or system.kinematic_map is None and velocities.shape != q.shape:
        raise InputError(f"v must have shape ({n},), one entry per velocity, got shape {velocities.shape}")
    for argument, value in (("t", t), (name, q), ("v", velocities)):
        check_finite(argument, value)
    return system, t, q, velocities


def check_state(rows: Rows, system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
    """Raise ``InputError`` unless the state is on the constraints, and N(q) reaches all coordinates near it.

    The sizes of the terms of a constraint are evaluated only if its residual is not clearly small relative to its
    slope.
    """
    moved = np.asarray(q) if system.kinematic_map is None else np.zeros(v.size)
    clear = float(np.finfo(q.dtype).eps) ** 0.5
    small = [
        np.all(np.abs(residual) <= clear * (np.abs(slope) @ np.abs(x)))
        for residual, slope, x in (
            (rows.position, rows.of_positions, moved),
            (rows.velocity, rows.of_velocities, np.asarray(v)),
        )
    ]
    if not all(small):
        worst = worst_row(system, t, q, v, scales(system, t, q, v))
        if worst.relative_size > max(CONSISTENT, 100 * float(np.finfo(q.dtype).eps)):
            raise InputError(
                f"q and v must be on the constraints: at t = {float(t):g} s {worst} is {worst.size:.3g}, not 0. "
                "q, v = ukjax.project(system, t, q, v) is the nearest state that is"
            )
    if system.kinematic_map is not None:
        outside, size = map(np.asarray, _nonintegrable(system, q, v))
        if not np.all(outside <= float(np.finfo(q.dtype).eps) ** 0.5 * size):
            raise InputError(
                "kinematic_map must not contain a nonholonomic constraint, but some coordinates near this state cannot "
                "be reached by q̇ = N(q) v: use more velocities, and a ukjax.Pfaffian for the constraint"
            )


def _check(linear, constants, states, method):
    """Raise ``InputError`` unless the states are independent and the acceleration is unique."""
    system, t, _, _ = constants
    if not np.all(np.isfinite(linear.displacement)) or not np.all(np.isfinite(linear.velocity)):
        raise InputError(
            "states must be independent coordinates and velocities that determine all others, got "
            f"{', '.join(name for name, _ in states)}: leave states out to have them chosen"
        )
    names = direction_names(system)
    check_unique(linear.terms, np.asarray(linear.acceleration), type(method).__name__, f" at t = {float(t):g} s", names)


@jit_unoptimised
def _nonintegrable(system, q, v):
    """The part outside of the range of N of the Lie bracket of two fields N(q) a and N(q) b, and its size."""
    a = jnp.arange(1, 1 + v.size, dtype=q.dtype) / v.size
    b = jnp.cos(jnp.arange(v.size, dtype=q.dtype))
    field = lambda x: lambda q: rate(system.kinematic_map, q, x)
    along = lambda x, y: jax.jvp(field(x), (q,), (field(y)(q),))[1]
    N, bracket = columns(system.kinematic_map, q, v), along(a, b) - along(b, a)
    outside = bracket - N @ velocities_of(system.kinematic_map, N, bracket)
    return jnp.abs(outside), jnp.max(jnp.abs(along(a, b)) + jnp.abs(along(b, a)) + jnp.max(jnp.abs(N)))


def _inputs(system, inputs, t, q, v) -> tuple[Callable, Named]:
    """The function (t, q, v) -> B (n, p), and names and units of the inputs."""
    if inputs is None:
        if system.control is None or system.control.projected:
            return _Forces(Constant(jnp.zeros((v.size, 0), q.dtype))), ()
        forces = _ForcesOfControl(system.control)
        return forces, named_inputs(system, _width(forces, t, q, v))
    if system.control is not None and system.control.projected:
        raise InputError(
            "inputs must be None, since the control of this system enforces its task and so determines all its inputs"
        )
    names = _as_names(inputs)
    if names is not None:
        known = position_names(system, q.size, v.size)
        indices = _indices("inputs", names, [name for name, _ in known])
        B = jnp.zeros((v.size, len(names)), q.dtype).at[indices, jnp.arange(len(names))].set(1)
        return _Forces(Constant(B)), tuple((known[i][0], force_unit(known[i][1])) for i in indices)
    forces = _Forces(as_function("inputs", inputs, "t, q"))
    return forces, tuple((f"u{i + 1}", "") for i in range(_width(forces, t, q, v)))


def _outputs(system, outputs, t, q, v) -> tuple[Callable, Named]:
    """The function (t, q, v) -> y (o,), and names and units of the outputs."""
    coordinates = named_coordinates(system, q.size)
    names = tuple(name for name, _ in coordinates) if outputs is None else _as_names(outputs)
    if names is not None:
        known = (*coordinates, *velocity_names(system, q.size, v.size))
        indices = _indices("outputs", names, [name for name, _ in known])
        return _Entries(indices), tuple(known[i] for i in indices)
    check_function("outputs", outputs, "t, q, v")
    function: Any = outputs
    size = eqx.filter_eval_shape(_Outputs(function), t, q, v).size
    return _Outputs(function), tuple((f"y{i + 1}", "") for i in range(size))


class _Forces(eqx.Module):
    """Generalised forces of unit inputs."""

    actuators: Callable

    def __call__(self, t, q, v):
        return actuator_matrix(call("inputs", self.actuators, t, q), v)


class _ForcesOfControl(eqx.Module):
    """Generalised forces of unit inputs of a control."""

    control: AbstractControl

    def __call__(self, t, q, v):
        return self.control.matrix(t, q, v)


class _Entries(eqx.Module):
    """Entries of (q, v)."""

    indices: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t, q, v):
        return jnp.concatenate([q, v])[np.array(self.indices, int)]


class _Outputs(eqx.Module):
    """A user's function of the state as a vector."""

    function: Callable

    def __call__(self, t, q, v):
        return vector("outputs", self.function, t, q, v)


def _width(forces, t, q, v):
    return eqx.filter_eval_shape(forces, t, q, v).shape[1]


def _as_names(value):
    """A name or several as a tuple; None for anything else."""
    if isinstance(value, str):
        return (value,)
    is_names = isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)
    return tuple(value) if is_names else None


def _indices(argument, names, known):
    for name in names:
        if name not in known:
            raise InputError(f"{argument} names no {name!r}{did_you_mean_one_of(name, known)}")
    return tuple(known.index(name) for name in names)
