"""The forces of motors along a motion, and where their limits act."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._run.compile import jit_unoptimised
from ..._system import AbstractSystem


class MotorHistory(eqx.Module):
    """The forces of motors at the samples of a motion: ``print(motion.motors)`` describes them.

    Attributes
    ----------
    t
        Times of the samples [s].
    force
        Force or torque of each motor before its gear, (samples, p) [N or N m].
    saturated
        Whether the input or the force of each motor is limited, (samples, p).
    too_fast
        Whether the rate of each motor's coordinate is larger than its ``speed_limit``, (samples, p).
    names
        Names of the motors.
    """

    t: Float[Array, "*batch samples"]
    force: Float[Array, "*batch samples p"]
    saturated: Bool[Array, "*batch samples p"]
    too_fast: Bool[Array, "*batch samples p"]
    names: tuple[str, ...] = eqx.field(static=True)

    def __str__(self) -> str:
        t = np.atleast_2d(np.asarray(self.t))
        force, *flags = (
            np.asarray(x).reshape(*t.shape, len(self.names)) for x in (self.force, self.saturated, self.too_fast)
        )
        words = ("at a limit", "faster than its speed limit")
        lines = []
        for i, name in enumerate(self.names):
            parts = [f"largest force {np.nanmax(np.abs(force[..., i]), initial=0):.4g}"]
            parts += [f"{word} {_when(t, flag[..., i])}" for word, flag in zip(words, flags, strict=True)]
            lines.append(f"{name}: {', '.join(part for part in parts if not part.endswith(' never'))}")
        return "\n".join(lines)


def _when(t: np.ndarray, flags: np.ndarray) -> str:
    """The number of samples in which a flag is set, and the first time."""
    member_and_sample = np.argwhere(flags)
    if not member_and_sample.size:
        return "never"
    member, sample = member_and_sample[0]
    of_member = f" of trajectory {member}" if len(t) > 1 else ""
    return f"in {len(member_and_sample)} of {flags.size} samples, first at t = {t[member, sample]:g} s{of_member}"


def motors_of(
    model: Any, t: Array, q: Array, v: Array, held: Array | None, names: tuple[str, ...]
) -> MotorHistory | None:
    """The motors along a motion, or along each of a batch; None for a model without motors.

    ``held`` are the inputs of sampled control, None for a law that acts continuously.
    """
    if not isinstance(model, AbstractSystem) or model.control is None:
        return None
    forces = _forces(model, t, q, v, held)
    return None if forces is None else MotorHistory(t, forces.force, forces.saturated, forces.too_fast, names)


@jit_unoptimised
def _forces(system, t, q, v, held):
    def of_state(t, q, v, held):
        return system.control.motor_force(t, q, v, system.command(t, q, v).u if held is None else held)

    of_samples = jax.vmap(of_state)
    return (jax.vmap(of_samples) if t.ndim == 2 else of_samples)(t, q, v, held)
