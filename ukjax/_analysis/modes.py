"""Modes of vibration of a linearised system."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .._kinematic_map import columns
from .._motion.consistent.local_chart import LocalChart, chart_point
from .._motion.stepper.scaling import scales
from .._solve import coordinate_scale_by_numpy
from .._system import kinematic_map_of
from .states import velocity_names
from .tangent import compiled_tangent

STEADY = 1e-7
"""Largest acceleration of an equilibrium, relative to the forces at unit mass and to the accelerations of
displacements."""

CONSTANT = 1e-6
"""Largest change of A along a steady motion, relative to its largest entry in coordinates of unit mass."""

MOVED = 0.7
"""Distance along a steady motion at which A is compared: the largest change of a coordinate, in its own unit."""


class Mode(NamedTuple):
    """A mode q(t) = q + Re(c ``shape`` exp(λ t)) of small motions, for any complex number c.

    Attributes
    ----------
    eigenvalue
        λ [1/s], with Im λ ≥ 0.
    frequency
        Natural frequency |λ| [rad/s]. The motion oscillates with Im λ.
    damping
        Damping ratio −Re λ / |λ|: 0 undamped, 1 for a mode that decays without oscillation, negative if it grows.
    shape
        Complex amplitudes of the coordinates (nq,); the largest is 1 in coordinates of unit mass. Phases are the
        arguments.
    """

    eigenvalue: complex
    frequency: float
    damping: float
    shape: np.ndarray


def modes_of(linear: Any) -> tuple[Mode, ...]:
    """The modes of a ``LinearModel``. Raises ``InputError`` unless its state is an equilibrium or a steady motion."""
    if not is_concrete(linear):
        raise InputError("modes must have concrete values: use eigenvalues inside jax.jit, jax.vmap and derivatives")
    unit = coordinate_scale_by_numpy(np.asarray(linear.mass))
    _check_steady(linear, unit)
    eigenvalues, vectors = np.linalg.eig(np.asarray(linear.A))
    largest = np.max(np.abs(eigenvalues), initial=0)
    zero = np.abs(eigenvalues) <= float(np.finfo(linear.A.dtype).eps) ** 0.5 * largest
    shapes = np.asarray(linear.displacement) @ vectors
    kinematic_map = kinematic_map_of(linear.system)
    N = np.eye(unit.size) if kinematic_map is None else np.asarray(columns(kinematic_map, linear.q, linear.v))
    modes = []
    for i in sorted(range(eigenvalues.size), key=lambda i: 0.0 if zero[i] else abs(eigenvalues[i])):
        if eigenvalues[i].imag < 0:
            continue
        amplitudes = shapes[:, i] / unit
        amplitudes = shapes[:, i] / (amplitudes[np.argmax(np.abs(amplitudes))] or 1)
        value = 0j if zero[i] else complex(eigenvalues[i])
        damping = 0.0 if zero[i] else 0.0 - value.real / abs(value)
        modes.append(Mode(value, abs(value), damping, N @ amplitudes))
    return tuple(modes)


def _check_steady(linear, unit):
    """Raise ``InputError`` unless v̇ = 0 at the state, and v̇ = 0 and the same A farther along the motion.

    The second comparison is also at another time. It finds states at which a motion is steady only for an instant, such
    as the state of a pendulum at its lowest point.
    """
    system, t, q, v = linear.system, linear.t, linear.q, linear.v
    names = [name for name, _ in velocity_names(system, q.size, v.size)]
    unit_of_state = unit[np.array((*linear.chosen.of_q, *linear.chosen.of_v), int)]
    A = np.asarray(linear.A) * unit_of_state / unit_of_state[:, None]
    forces = np.max(np.abs(np.asarray(linear.force)) * unit)

    def check_acceleration(acceleration, where):
        excess = np.abs(np.asarray(acceleration)) / unit
        if np.all(excess <= STEADY * forces):
            return
        scale = scales(system, t, q, v)  # compiled only here
        of_q = float(jnp.max(scale.q / (scale.unit if scale.unit_of_q is None else scale.unit_of_q)))
        of_v = float(jnp.max(scale.v / scale.unit))
        size = np.abs(A) @ np.repeat((of_q, of_v), (len(linear.chosen.of_q), len(linear.chosen.of_v)))
        if not np.all(excess <= STEADY * (forces + np.max(size, initial=0))):
            i = int(np.argmax(excess))
            raise InputError(
                f"modes exist only at an equilibrium or along a steady motion, but {where} the rate of {names[i]} is "
                f"{float(acceleration[i]):.3g} per second, not 0. ukjax.equilibrium(system, near=q) finds an "
                "equilibrium; linear.A and linear.eigenvalues exist at any state"
            )

    check_acceleration(linear.acceleration, f"at t = {float(t):g} s")
    fastest = float(jnp.max(jnp.abs(v)))
    delay = MOVED / fastest if fastest > 0 else MOVED
    later = chart_point(LocalChart(system, q), delay * v) if kinematic_map_of(system) is not None else q + delay * v
    there = compiled_tangent(
        system, t + delay, later, v, linear.chosen, linear.input_forces, linear.output, linear.method
    )
    check_acceleration(there.acceleration, f"{delay:.3g} s later")
    change = np.abs(np.asarray(there.A) * unit_of_state / unit_of_state[:, None] - A)
    if not np.all(change <= CONSTANT * np.max(np.abs(A))):
        raise InputError(
            "modes exist only at an equilibrium or along a steady motion, but A changes along this one: after "
            f"{delay:.3g} s by {np.max(change):.3g}, of {np.max(np.abs(A)):.3g} in coordinates of unit mass. linear.A "
            "and linear.eigenvalues exist at any state"
        )
