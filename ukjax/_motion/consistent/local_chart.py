"""A system in local coordinates around a point: displacements x (n,) in terms of velocities, instead of q (nq,)."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._constraint import AbstractConstraint
from ..._dynamics import AbstractDynamics
from ..._kinematic_map import flow, rate, settled
from ..._run.compile import jit_unoptimised
from ..._system import AbstractSystem, dynamics_of
from ..stepper.scaling import Scale
from ..stepper.tableau import DOPRI8

STEPS = 4
"""Integration steps: the norm of a quaternion after a rotation by a radian is then exact to rounding."""


class LocalChart(AbstractSystem):
    """``system`` with q̇ = N(q) v in local coordinates x (n,) around ``q0`` (nq,).

    q is the solution of q̇ = N(q) x after unit time, with the start q0. So invariants of N, such as the norm of a
    quaternion, are preserved.
    """

    system: AbstractSystem
    q0: Float[Array, " nq"]

    # Used only through the properties and methods below.
    constraints: ClassVar[tuple[AbstractConstraint, ...]] = ()

    def point(self, x: Float[Array, " n"]) -> Float[Array, " nq"]:
        """q at x, in closed form or by eighth-order steps of q̇ = N(q) x."""
        h, kinematic_map = 1 / STEPS, self.system.kinematic_map
        exact = flow(kinematic_map, self.q0, x)
        if exact is not None:
            return settled(kinematic_map, exact)
        weights, b = jnp.asarray(DOPRI8.weights(), x.dtype), jnp.asarray(DOPRI8.b, x.dtype)

        def stage(carry, inputs):
            q, k = carry
            i, row = inputs
            return (q, k.at[i].set(rate(kinematic_map, q + h * (row @ k), x))), None

        def step(q, _):
            zeros = jnp.zeros((DOPRI8.stages, q.size), q.dtype)
            (_, k), _ = jax.lax.scan(stage, (q, zeros), (jnp.arange(DOPRI8.stages), weights))
            return q + h * (b @ k), None

        return settled(kinematic_map, jax.lax.scan(step, self.q0, length=STEPS)[0])

    def sizes(self, scale: Scale) -> Scale:
        """``scale`` with the sizes of q replaced by those of x."""
        unit = scale.unit if scale.unit_of_q is None else scale.unit_of_q
        of_x = scale.unit * jnp.max(scale.q / unit)
        return eqx.tree_at(lambda s: (s.q, s.own_q, s.far_q), scale, (of_x,) * 3)

    @property
    def dynamics(self) -> AbstractDynamics:
        return _ChartDynamics(dynamics_of(self.system), self)

    @property
    def enforced(self) -> tuple[AbstractConstraint, ...]:
        return self.system.enforced

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
    """The system, start and scale of the search.

    These are the model's own if q̇ = v, else those of a local chart around q0, where the start is x = 0.
    """
    if model.kinematic_map is None:
        return model, q0, scale
    chart = LocalChart(model, q0)
    return chart, jnp.zeros_like(v0), chart.sizes(scale)


def point_of(chart: AbstractSystem, x: Float[Array, " n"]) -> Float[Array, " nq"]:
    """q (nq,) of the solution x of ``chart_at``."""
    return chart_point(chart, x) if isinstance(chart, LocalChart) else x


@jit_unoptimised
def chart_point(chart: LocalChart, x: Float[Array, " n"]) -> Float[Array, " nq"]:
    """q at x, as one compiled program."""
    return chart.point(x)


class _ChartDynamics(AbstractDynamics):
    """Dynamics of the inner system at the points of a chart."""

    inner: AbstractDynamics
    chart: LocalChart

    def terms(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.inner.terms(t, self.chart.point(q), v)

    def mass(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        return self.inner.mass(t, self.chart.point(q), v)

    def energy(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        return self.inner.energy(t, self.chart.point(q), v)
