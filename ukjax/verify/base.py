"""A problem with a known answer: statement, equations, start, reference and the error of the reference."""

import abc
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_numpy
from .._errors import InputError
from .._motion.simulate.simulate import simulate
from .._motion.trajectory.trajectory import Trajectory
from .._names import did_you_mean
from .._system import AbstractSystem


class Derivative(NamedTuple):
    """Derivative of the reference values with respect to one parameter.

    Attributes
    ----------
    parameter
        Name of the parameter.
    values
        Derivatives, one per value of the reference.
    doubt
        Largest error of the derivatives, relative to the largest of them.
    """

    parameter: str
    values: tuple[float, ...]
    doubt: float = 1e-15


def tolerances(*relative: float, size: float = 1.0) -> tuple[dict[str, float], ...]:
    """Return options of ``simulate`` for adaptive steps: rtol, and atol = rtol times ``size``."""
    return tuple({"rtol": rtol, "atol": rtol * size} for rtol in relative)


@dataclass(frozen=True, kw_only=True)
class AbstractProblem(abc.ABC):
    """A problem with a known answer.

    Attributes
    ----------
    name
        Name, as ``ukjax.verify.problem`` takes it.
    title
        One line.
    statement
        The problem in words: equations, parameters with units, start, what is compared.
    source
        Publication of the problem.
    build
        Function of the parameters, by keyword, that returns the system, q0 (nq,) and v0 (n,). Its default values are
        the parameters of the problem.
    compared
        Names and units of the values that are compared.
    reference
        Their correct values.
    doubt
        Largest error of the reference, relative to its largest value.
    evidence
        How the reference was computed, and what it was compared with.
    settings
        Options of the method of solution, from coarse to fine.
    passes
        Largest error that passes, with the finest setting.
    derivative
        Derivative of the reference, or None.
    derivative_passes
        Largest error of the derivative that passes.
    """

    title: str
    statement: str | None
    source: str
    build: Callable[..., tuple[AbstractSystem, Any, Any]]
    compared: tuple[str, ...]
    reference: tuple[float, ...]
    doubt: float
    evidence: str
    settings: tuple[dict[str, Any], ...]
    passes: float = 1e-10
    derivative: Derivative | None = None
    derivative_passes: float = 1e-8
    name: str = ""

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the problem, by name, in SI units."""
        return {name: each.default for name, each in inspect.signature(self.build).parameters.items()}

    def model(self, **parameters: Any) -> tuple[AbstractSystem, Any, Any]:
        """Return the system and its start.

        Parameters
        ----------
        **parameters
            Parameters that differ from those of the problem.

        Returns
        -------
        system : AbstractSystem
            The system. ``system(t, q, v)`` has M, Q, A and b.
        q0 : (nq,)
            Coordinates at the start.
        v0 : (n,)
            Velocities at the start.

        Raises
        ------
        InputError
            If the problem has no such parameter.
        """
        for name in parameters:
            if name not in self.parameters:
                raise InputError(f"{self.name} has no parameter {name!r}{did_you_mean(name, list(self.parameters))}")
        return self.build(**parameters)

    @abc.abstractmethod
    def solve(self, model: Any, setting: dict[str, Any]) -> tuple[Float[Array, " k"], Any]:
        """Return the values that are compared, and the number of steps or None.

        ``model`` is what ``model()`` returned, ``setting`` is one of ``settings``.
        """

    def error(self, values: Any) -> float:
        """Return the largest error of ``values`` (k,), relative to the largest value of the reference."""
        return _error("values", values, self.reference)

    def slope(self, setting: dict[str, Any] | None = None) -> Float[Array, " k"]:
        """Return the derivative of the values with respect to ``derivative.parameter``, by forward mode.

        Parameters
        ----------
        setting
            One of ``settings``. Default: the finest.

        Returns
        -------
        (k,)
            The derivative.

        Raises
        ------
        InputError
            If the problem has no reference derivative.
        """
        if self.derivative is None:
            raise InputError(f"{self.name} has no reference derivative")
        parameter, setting = self.derivative.parameter, setting or self.settings[-1]
        values = lambda p: self.solve(self.model(**{parameter: p}), setting)[0]
        value = jnp.asarray(float(self.parameters[parameter]))
        return jax.jvp(values, (value,), (jnp.ones_like(value),))[1]

    def slope_error(self, slope: Any) -> float:
        """Return the largest error of derivatives ``slope`` (k,), relative to the largest reference derivative.

        Raises ``InputError`` for a problem without reference derivatives.
        """
        if self.derivative is None:
            raise InputError(f"{self.name} has no reference derivative")
        return _error("slope", slope, self.derivative.values)

    def named(self, name: str) -> "AbstractProblem":
        """Return this problem with its name."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class Motion(AbstractProblem):
    """A problem whose values follow from a motion.

    Attributes
    ----------
    ts
        Times of the samples [s]; the motion starts at the first.
    quantity
        Function of the motion that returns the values (k,). Of the motion it reads ``q`` and ``v``, with one row per
        time, and ``contacts`` where there are impacts.
    """

    ts: tuple[float, ...]
    quantity: Callable[[Any], Float[Array, " k"]]

    def solve(self, model: Any, setting: dict[str, Any]) -> tuple[Float[Array, " k"], Any]:
        """Simulate. Returns the values and the number of steps."""
        motion = self.motion(model, setting)
        return self.quantity(motion), motion.steps

    def motion(self, model: Any, setting: dict[str, Any]) -> Trajectory:
        """Return the motion that ``simulate`` computes with the options ``setting``."""
        system, q0, v0 = model
        return simulate(system, q0, v0, np.array(self.ts), **setting)


@dataclass(frozen=True, kw_only=True)
class Analysis(AbstractProblem):
    """A problem whose values follow from linear analysis, or from more than one motion.

    Attributes
    ----------
    analyse
        Function of (system, q0, v0) and the names of a setting that returns the values (k,).
    """

    analyse: Callable[..., Float[Array, " k"]]

    def solve(self, model: Any, setting: dict[str, Any]) -> tuple[Float[Array, " k"], Any]:
        """Call ``analyse``. The number of steps is None."""
        return self.analyse(*model, **setting), None


def _error(what, values, reference):
    reference, values = np.array(reference), as_numpy(what, values)
    if values.shape != reference.shape:
        raise InputError(f"{what} must have shape {reference.shape}, got {values.shape}")
    worst = np.max(np.abs(values - reference)) / np.max(np.abs(reference))
    return float(worst) if np.isfinite(worst) else float("inf")
