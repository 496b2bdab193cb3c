"""A system whose actuators have constant inputs."""

from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Array, Float

from .._constraint import AbstractConstraint
from .._control import AbstractControl, Command, actuator_matrix, no_task
from .._errors import InputError
from .._system import AbstractVariant
from .._terms import Terms


class ConstantInputs(AbstractControl):
    """The actuators of another control, with constant inputs ``u`` (p,) instead of its law."""

    control: AbstractControl
    u: Float[Array, " p"]
    task: ClassVar[tuple[AbstractConstraint, ...]] = ()
    projected: ClassVar[bool] = False

    @property
    def actuators(self) -> Callable:
        return self.control.actuators

    @property
    def inputs(self) -> tuple[tuple[str, str], ...] | None:
        return self.control.inputs

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        p = actuator_matrix(self.actuators(t, q), v).shape[1]
        if self.u.shape != (p,):
            raise InputError(f"u must have {p} entries, one per actuator, got {self.u.size}")
        return no_task(self.u)

    def force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> Float[Array, " n"]:
        return self.control.force(t, q, v, u)


class Driven(AbstractVariant):
    """The system ``plant`` with constant inputs ``u`` (p,) of its actuators."""

    u: Float[Array, " p"]

    @property
    def control(self) -> AbstractControl | None:
        return None if self.plant.control is None else ConstantInputs(self.plant.control, self.u)
