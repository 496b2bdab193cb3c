"""What is known of a motion at each sample, from t, q and v: declared once, computed when somebody looks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._check import is_eager
from ..._constraint import as_written, join
from ..._equation import motion_by
from ..._kernel import per_member
from ..._run.compile import jit, jit_unoptimised
from ..._solve import AbstractMethod
from ..._system import AbstractSystem, task_of
from ..fallback.row_noise import without_noise_rows


def field(long_name: str, units: str | None = None, per_coordinate: bool = False) -> Any:
    """A quantity with the name and the unit that files give it (see ``saved``), and whether it has an entry per
    coordinate."""
    return eqx.field(metadata={"long_name": long_name, "units": units, "per_coordinate": per_coordinate})


class Observation(eqx.Module):
    """What a model says at a sample, beside t, q and v; with the axes of a trajectory in front."""

    acceleration: Float[Array, "*at n"] = field("generalised accelerations", "{} s-2", per_coordinate=True)
    constraint_force: Float[Array, "*at n"] = field("force of all constraints", "{force}", per_coordinate=True)
    ideal_force: Float[Array, "*at n"] = field("ideal force of all constraints", "{force}", per_coordinate=True)
    nonideal_force: Float[Array, "*at n"] = field("non-ideal force of all constraints", "{force}", per_coordinate=True)
    residual: Float[Array, "*at m"] = field("each constraint as written")
    position_residual: Float[Array, "*at k"] = field("constraints on positions")
    velocity_residual: Float[Array, "*at l"] = field("constraints on velocities")
    acceleration_residual: Float[Array, "*at m"] = field("A q'' - b")
    rank: Int[Array, "*at"] = field("independent rows of A", "1")
    inconsistency: Float[Array, "*at"] = field("part of b out of reach")
    energy: Float[Array, "*at"] | None = field("kinetic and potential energy", "J")
    control: Float[Array, "*at p"] | None = field("forces of the actuators", "{}")
    task_residual: Float[Array, "*at k2"] | None = field("each servo constraint as written")
    unreachable: Float[Array, "*at k2"] | None = field("part of the task out of the actuators' reach")
    control_rank: Int[Array, "*at"] | None = field("independent task rows in the actuators' reach", "1")


def observe(
    model: Any, t: Float[Array, "*at"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"], method: AbstractMethod
) -> Observation:
    """All that is known at the samples of one motion, or of a batch of them."""
    usual = method.usual()
    if usual is not None and is_eager(model, t, q, v):
        found, needs_fallback = observe_by(usual, model, t, q, v)
        doubtful = np.asarray(needs_fallback)
        if not np.any(doubtful):
            return found
        method = without_noise_rows(method, model, t[doubtful], q[doubtful], v[doubtful])
    return observe_by(method, model, t, q, v)[0]


def observe_by(
    method: AbstractMethod,
    model: Any,
    t: Float[Array, "*at"],
    q: Float[Array, "*at nq"],
    v: Float[Array, "*at n"],
) -> tuple[Observation, Bool[Array, "*at"]]:
    """The same by this method alone, and where it may be wrong."""
    return (_observed_one if t.ndim == 1 else _observed_batch)(model, t, q, v, method)


@jit_unoptimised
def _observed_one(model, t, q, v, method):
    return jax.lax.map(lambda sample: _observation(model, *sample, method), (t, q, v))


@jit
def _observed_batch(model, t, q, v, method):
    """Sample after sample, since a batch may be all that fits into memory."""
    each = jax.vmap(lambda t, q, v: _observation(model, t, q, v, method))
    found = jax.lax.map(lambda sample: each(*sample), jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (t, q, v)))
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), found)


@per_member
def _observation(model, t, q, v, method):
    terms = model(t, q, v)
    motion, needs_fallback = motion_by(method, terms)
    if isinstance(model, AbstractSystem):
        held = [constraint.at(t, q, v) for constraint in model.held]
        residuals = (
            join([rows.as_written(motion.acceleration) for rows in held], q),
            join([rows.position for rows in held], q),
            join([rows.velocity for rows in held], q),
            join([rows.missed(motion.acceleration) for rows in held], q),
        )
        energy = model.energy(t, q, v)
    else:  # only the rows are known
        of_rows = terms.A @ motion.acceleration - terms.b
        residuals, energy = (of_rows, terms.b[:0], terms.b[:0], of_rows), None
    driven = model if isinstance(model, AbstractSystem) and model.control is not None else None
    return (
        Observation(
            motion.acceleration,
            motion.constraint_force,
            motion.ideal_force,
            motion.nonideal_force,
            *residuals,
            motion.rank,
            motion.inconsistency,
            energy,
            *_driven(driven, t, q, v, motion),
        ),
        needs_fallback,
    )


def _driven(system, t, q, v, motion):
    """What the actuators of ``system`` do; None for everything where there are none."""
    if system is None:
        return (None,) * 4
    command = system.command(t, q, v)
    on_task = as_written(task_of(system), t, q, v, motion.acceleration)
    return command.u, on_task, command.unreachable, command.rank
