"""``stability_chart``: the stability of equilibria or of periodic motions over two numbers."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from .._check import as_array, call, check_finite, check_flag, check_function, repr_of
from .._errors import InputError
from .._jaxpr.tracing import is_eager
from .._precision import Numbers
from .._run.compile import jit_fast_compile
from .linear_model import LinearModel
from .orbit import ACCURATE, error_of_steps, refinement

GROWTH = 1e-6
"""Growth that counts as 0: of a double eigenvalue, relative to the largest eigenvalue, or of a multiplier."""

BLOCK = 1024
"""Points that are computed together, and points at which the error of the steps is measured."""


class StabilityChart(eqx.Module):
    """Stability over a grid of two numbers, as ``stability_chart`` returns it. ``ukjax.plot.stability`` draws it.

    Attributes
    ----------
    x, y
        Values of the two numbers, (nx,) and (ny,).
    eigenvalues
        Eigenvalues (ny, nx, k) [1/s], or multipliers.
    multipliers
        Whether these are multipliers of periodic motions.
    """

    x: Float[Array, " nx"]
    y: Float[Array, " ny"]
    eigenvalues: Complex[Array, "ny nx k"]
    multipliers: bool = eqx.field(static=True)

    @property
    def growth(self) -> Float[Array, "ny nx"]:
        """The largest growth: the largest real part of the eigenvalues [1/s], or ln |μ| of the largest multiplier.

        NaN where there is no equilibrium.
        """
        if self.multipliers:
            return jnp.log(jnp.max(jnp.abs(self.eigenvalues), axis=-1))
        return jnp.max(self.eigenvalues.real, axis=-1)

    @property
    def stable(self) -> Bool[Array, "ny nx"]:
        """Whether no small deviation grows exponentially.

        Growth counts as 0 up to 1e-6 of the largest eigenvalue, or 1e-6 in a period.
        """
        size = 1.0 if self.multipliers else jnp.max(jnp.abs(self.eigenvalues), axis=-1)
        return self.growth <= GROWTH * size


def stability_chart(function: Callable, x: Numbers, y: Numbers, *, multipliers: bool = False) -> StabilityChart:
    """Compute the stability of an equilibrium or of a periodic motion over two numbers, in one batch.

    Parameters
    ----------
    function
        Function of two numbers a and b. It returns the matrix A (k, k) of the linear system ẋ = A x, a ``LinearModel``,
        or the monodromy matrix of a periodic motion. It is mapped by ``jax.vmap``: inside this function, ``linearize``
        and ``monodromy`` need the names of ``states``.
    x
        Values of a, (nx,).
    y
        Values of b, (ny,).
    multipliers
        Whether the function returns a monodromy matrix, whose eigenvalues are the multipliers. Then a warning says if
        the steps of ``monodromy`` are too few: at up to 1024 points the matrix of twice as many steps differs.

    Returns
    -------
    StabilityChart
        Eigenvalues, growth, and whether each point is stable, in arrays (ny, nx).

    Raises
    ------
    InputError
        If the function does not return a square matrix, or for an invalid argument.

    Examples
    --------
    An inverted pendulum on a spring, with a damper:

    >>> import jax.numpy as jnp
    >>> import ukjax as uk
    >>> uk.enable_float64()
    >>> def upright(stiffness, damping):
    ...     force = lambda t, q, v: 9.81 * jnp.sin(q) - stiffness * q - damping * v
    ...     return uk.linearize(uk.System(uk.MassForce(jnp.eye(1), force)), [0.0], states=("q1", "dq1"))
    >>> chart = uk.stability_chart(upright, [8.0, 11.0], [-0.1, 0.1])
    >>> chart.stable.tolist()
    [[False, False], [False, True]]
    """
    check_function("function", function, "a, b")
    if isinstance(function, jax.stages.Wrapped):  # ``refinement`` does not act on a compiled function
        function = inspect.unwrap(function)
    check_flag("multipliers", multipliers)
    x, y = as_array("x", x), as_array("y", y)
    for name, values in (("x", x), ("y", y)):
        if values.ndim != 1 or not values.size:
            raise InputError(f"{name} must have shape (n,), the values of one number, got shape {values.shape}")
        check_finite(name, values)
    a, b = (jnp.ravel(each) for each in jnp.meshgrid(x, y))
    block = min(BLOCK, a.size)
    at = lambda rows, factor: _over(function, a[rows], b[rows], multipliers, jnp.asarray(factor, a.dtype))
    blocks = [at(np.minimum(np.arange(i, i + block), a.size - 1), 1) for i in range(0, a.size, block)]
    matrices, eigenvalues = (jnp.concatenate(parts)[: a.size] for parts in zip(*blocks, strict=True))
    if multipliers and is_eager(matrices):
        sample = np.linspace(0, a.size - 1, block).astype(int)
        _check_steps(matrices[sample], at(sample, 2)[0], a[sample], b[sample])
    return StabilityChart(x, y, eigenvalues.reshape(y.size, x.size, -1), multipliers)


def _check_steps(matrices, finer, a, b):
    """Warn if the monodromy matrices of twice as many steps differ, with the point of the largest error."""
    pairs = zip(np.asarray(matrices), np.asarray(finer), strict=True)
    errors = [error_of_steps(*pair) if np.all(np.isfinite(pair[0])) else 0.0 for pair in pairs]
    i = int(np.argmax(errors))
    if errors[i] > ACCURATE:
        warnings.warn(
            f"the steps of ukjax.monodromy are too few for this chart: at ({float(a[i]):.6g}, {float(b[i]):.6g}) the "
            f"matrix of twice as many steps differs by {errors[i]:.2g} of its size. Give it more steps=...",
            stacklevel=3,
        )


@jit_fast_compile
def _over(function, x, y, multipliers, factor):
    """The matrices and their eigenvalues at the points (x, y). ``monodromy`` takes ``factor`` times as many steps."""

    def at(a, b):
        with refinement(factor):
            matrix: Any = call("function", function, a, b)
        if multipliers and isinstance(matrix, LinearModel):
            raise InputError(
                "multipliers must be False if function returns a result of ukjax.linearize: its A has eigenvalues, not "
                "multipliers"
            )
        matrix = matrix.A if isinstance(matrix, LinearModel) else matrix
        shape = getattr(matrix, "shape", ())
        if len(shape) != 2 or shape[0] != shape[1]:
            raise InputError(
                f"function must return a square matrix or what ukjax.linearize returned, got {repr_of(matrix)}"
            )
        return matrix, jnp.linalg.eigvals(matrix)

    return jax.vmap(at)(x, y)
