"""What is not worth the time of compiling it well: done as JAX would do it."""

from collections.abc import Callable
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from .evaluate import with_jaxpr
from .primitive import kept_with_jaxpr, per_member_p


def without_kernels(function: Callable) -> Callable:
    """``function`` of pytrees of arrays with no function of one member left in it: ``vmap`` and derivatives go through
    all operations together, and what value and derivative have in common stands once. Compiled soonest; for what is
    done for few members, a few thousand times. It belongs inside ``jit``."""
    return with_jaxpr(function, lambda traced, leaves: jaxpr_as_fun(jaxpr_without_kernels(traced))(*leaves))


@kept_with_jaxpr
def jaxpr_without_kernels(jaxpr):
    """``jaxpr`` where every function of one member in it is done as JAX would."""

    def changed(x: Any) -> Any:
        if isinstance(x, Jaxpr):
            return x.replace(eqns=[in_equation(equation) for equation in x.eqns])
        if isinstance(x, ClosedJaxpr):
            return x.replace(jaxpr=changed(x.jaxpr))
        if isinstance(x, tuple):
            parts = map(changed, x)
            return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
        return x

    def in_equation(equation):
        parameters = {key: changed(x) for key, x in equation.params.items()}
        if equation.primitive is per_member_p:
            parameters["how"] = parameters["how"]._replace(as_by_jax=True)
        return equation.replace(params=parameters)

    return changed(jaxpr)
