"""Quantities at each sample that follow from t, q and v: declared once, evaluated lazily."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._constraint import as_written, join
from ..._contact.mode import ContactMode, InContact
from ..._contact.rows import layout_of
from ..._equation import motion_by
from ..._jaxpr.tracing import is_eager
from ..._kernel import per_member
from ..._run.compile import jit, jit_unoptimised
from ..._solve import AbstractMethod
from ..._system import AbstractSystem, Driven, task_of
from ..fallback.row_noise import without_noise_rows


def field(long_name: str, units: str | None = None, per_coordinate: bool = False) -> Any:
    """A field of ``Observation`` with its name and unit in files (see ``files``).

    ``per_coordinate``: it has one entry per coordinate.
    """
    return eqx.field(metadata={"long_name": long_name, "units": units, "per_coordinate": per_coordinate})


class Observation(eqx.Module):
    """Quantities that a model gives at each sample, in addition to t, q and v.

    The leading axes are those of the trajectory. The fields are described in ``Trajectory``.
    """

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
    contact_force: Float[Array, "*at rows"] | None = field("forces of contacts and dry friction")


def observe(
    model: Any,
    t: Float[Array, "*at"],
    q: Float[Array, "*at nq"],
    v: Float[Array, "*at n"],
    method: AbstractMethod,
    mode: ContactMode | None = None,
    held: Float[Array, "*at p"] | None = None,
) -> Observation:
    """Evaluate all quantities at the samples of one motion, or of a batch, in the contact ``mode`` of each sample, and
    with the ``held`` inputs of sampled control."""
    fast_path = method.fast_path()
    if fast_path is not None and mode is None and is_eager(model, t, q, v):
        observation, needs_fallback = observe_by(fast_path, model, t, q, v, held=held)
        fallback_mask = np.asarray(needs_fallback)
        if not np.any(fallback_mask):
            return observation
        method = without_noise_rows(method, model, t[fallback_mask], q[fallback_mask], v[fallback_mask])
    return observe_by(method, model, t, q, v, mode, held)[0]


def observe_by(
    method: AbstractMethod,
    model: Any,
    t: Float[Array, "*at"],
    q: Float[Array, "*at nq"],
    v: Float[Array, "*at n"],
    mode: ContactMode | None = None,
    held: Float[Array, "*at p"] | None = None,
) -> tuple[Observation, Bool[Array, "*at"]]:
    """Evaluate all quantities with ``method`` alone; and where it needs a fallback."""
    return (_observed_one if t.ndim == 1 else _observed_batch)(model, t, q, v, mode, held, method)


@jit_unoptimised
def _observed_one(model, t, q, v, mode, held, method):
    return jax.lax.map(lambda sample: _observation(model, *sample, method), (t, q, v, mode, held))


@jit
def _observed_batch(model, t, q, v, mode, held, method):
    """Samples are evaluated one after the other, since the members of a batch may already fill the memory."""
    of_members = jax.vmap(lambda *sample: _observation(model, *sample, method))
    observation = jax.lax.map(
        lambda sample: of_members(*sample), jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (t, q, v, mode, held))
    )
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), observation)


@per_member
def _observation(model, t, q, v, mode, held, method):
    """All quantities at one sample, and whether the method needs a fallback."""
    model = model if held is None else Driven(model, held)
    contact_force = None
    if mode is not None:
        model = InContact(model, mode, layout_of(model.nonsmooth, t, q, v), method)
        contact_force = model.forces(t, q, v).force
    terms = model(t, q, v)
    motion, needs_fallback = motion_by(method, terms)
    if isinstance(model, AbstractSystem):
        enforced = [constraint.at(t, q, v) for constraint in model.enforced]
        residuals = (
            join([rows.as_written(motion.acceleration) for rows in enforced], q),
            join([rows.position for rows in enforced], q),
            join([rows.velocity for rows in enforced], q),
            join([rows.missed(motion.acceleration) for rows in enforced], q),
        )
        energy = model.energy(t, q, v)
    else:  # a bare function: only its rows are known
        residual = terms.A @ motion.acceleration - terms.b
        residuals, energy = (residual, terms.b[:0], terms.b[:0], residual), None
    controlled = model if isinstance(model, AbstractSystem) and model.control is not None else None
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
            *_control_quantities(controlled, t, q, v, motion),
            contact_force=contact_force,
        ),
        needs_fallback,
    )


def _control_quantities(system, t, q, v, motion):
    """Actuator forces, task residuals, unreachable task accelerations and rank; None for all without control."""
    if system is None:
        return (None,) * 4
    command = system.command(t, q, v)
    on_task = as_written(task_of(system), t, q, v, motion.acceleration)
    return command.u, on_task, command.unreachable, command.rank
