"""Functions compiled by XLA alone, without kernels, where compile time matters more than run time."""

from collections.abc import Callable
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from .evaluate import with_jaxpr
from .primitive import cached_per_jaxpr, per_member_p


def without_kernels(function: Callable) -> Callable:
    """``function`` of pytrees of arrays with every ``per_member`` call inlined. It must be called inside ``jit``.

    ``vmap`` and differentiation then transform all operations together, and XLA shares common subexpressions of values
    and derivatives. This has the shortest compile time: use it for few members and a few thousand calls.
    """
    return with_jaxpr(function, lambda traced, leaves: jaxpr_as_fun(jaxpr_without_kernels(traced))(*leaves))


@cached_per_jaxpr
def jaxpr_without_kernels(jaxpr):
    """``jaxpr`` with the option ``without_kernel`` set in every ``per_member`` equation, at any depth."""

    def convert(x: Any) -> Any:
        if isinstance(x, Jaxpr):
            return x.replace(eqns=[convert_equation(equation) for equation in x.eqns])
        if isinstance(x, ClosedJaxpr):
            return x.replace(jaxpr=convert(x.jaxpr))
        if isinstance(x, tuple):
            parts = map(convert, x)
            return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
        return x

    def convert_equation(equation):
        parameters = {key: convert(x) for key, x in equation.params.items()}
        if equation.primitive is per_member_p:
            parameters["options"] = parameters["options"]._replace(without_kernel=True)
        return equation.replace(params=parameters)

    return convert(jaxpr)
