"""A system as it is seen from one of its points: places are displacements from there, in terms of velocities."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._constraint import AbstractConstraint
from ..._dynamics import AbstractDynamics
from ..._kinematic_map import rate, settled
from ..._run.compile import jit_unoptimised
from ..._system import AbstractSystem, dynamics_of
from ..stepper.scaling import Scale
from ..stepper.tableau import DOPRI8

STEPS = 4
"""Turns by a radian miss the length of a quaternion by less than rounding."""


class LocalChart(AbstractSystem):
    """``system``, whose velocities are no rates of coordinates, with x (n,) in place of q (nq,), as many numbers as
    there are ways to move: q is where q̇ = N(q) x leads from q0 in a unit of time, so that what N keeps is kept, such as
    the length of a quaternion."""

    system: AbstractSystem
    q0: Float[Array, " nq"]

    constraints: ClassVar[tuple[AbstractConstraint, ...]] = ()  # asked by what follows alone

    def point(self, x: Float[Array, " n"]) -> Float[Array, " nq"]:
        """q, in eighth-order steps of q̇ = N(q) x."""
        h, kinematic_map = 1 / STEPS, self.system.kinematic_map
        weights, b = jnp.asarray(DOPRI8.weights(), x.dtype), jnp.asarray(DOPRI8.b, x.dtype)

        def stage(found, given):
            q, k = found
            i, row = given
            return (q, k.at[i].set(rate(kinematic_map, q + h * (row @ k), x))), None

        def step(q, _):
            none = jnp.zeros((DOPRI8.stages, q.size), q.dtype)
            (_, k), _ = jax.lax.scan(stage, (q, none), (jnp.arange(DOPRI8.stages), weights))
            return q + h * (b @ k), None

        return settled(kinematic_map, jax.lax.scan(step, self.q0, length=STEPS)[0])

    def sizes(self, scale: Scale) -> Scale:
        """The sizes of x for those of q."""
        unit = scale.unit if scale.unit_of_q is None else scale.unit_of_q
        of_x = scale.unit * jnp.max(scale.q / unit)
        return eqx.tree_at(lambda s: (s.q, s.own_q, s.far_q), scale, (of_x,) * 3)

    @property
    def dynamics(self) -> AbstractDynamics:
        return _ChartDynamics(dynamics_of(self.system), self)

    @property
    def held(self) -> tuple[AbstractConstraint, ...]:
        return self.system.held

    def violation(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " j"]:
        return self.system.violation(t, self.point(q), v)

    def position_residual(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " j"]:
        return self.system.position_residual(t, self.point(q))

    def velocity_residual(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " j"]:
        return self.system.velocity_residual(t, self.point(q), v)

    def position_slope(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, "j n"]:
        return jax.jacfwd(self.position_residual, argnums=1)(t, q)

    def velocity_slope(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, "j n"]:
        return self.system.velocity_slope(t, self.point(q), v)


def chart_at(
    model: AbstractSystem, q0: Float[Array, " nq"], v0: Float[Array, " n"], scale: Scale
) -> tuple[AbstractSystem, Array, Scale]:
    """Of what to look for a start, from where, and the sizes there: q of the model itself, or, where velocities are no
    rates of it, how far it is from q0."""
    if model.kinematic_map is None:
        return model, q0, scale
    around = LocalChart(model, q0)
    return around, jnp.zeros_like(v0), around.sizes(scale)


def point_of(seen: AbstractSystem, x: Float[Array, " n"]) -> Float[Array, " nq"]:
    """q of what was found."""
    return leads(seen, x) if isinstance(seen, LocalChart) else x


@jit_unoptimised
def leads(around: LocalChart, x: Float[Array, " n"]) -> Float[Array, " nq"]:
    """The point at x, as one program."""
    return around.point(x)


class _ChartDynamics(AbstractDynamics):
    inner: AbstractDynamics
    around: LocalChart

    def terms(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.inner.terms(t, self.around.point(q), v)

    def mass(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        return self.inner.mass(t, self.around.point(q), v)

    def energy(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        return self.inner.energy(t, self.around.point(q), v)
