"""From JAX's own record of a function, a jaxpr on arrays, to a graph of operations on numbers.

Loops are written out as often as they run, which must be known; indices must be known too. What is done for each
primitive of JAX is in ``elementwise``, ``reduce``, ``move`` and ``control``.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from . import elementwise as elementwise
from . import move as move
from . import reduce as reduce
from .assumed import assumed_p
from .control import REPEATING
from .entries import Stored, loaded, objects, tidy
from .graph import Graph, Memory
from .primitive import holds
from .refusal import Unsupported
from .table import RULES
from .trigonometry import TABLES, sine_and_cosine


OF_STORED = REPEATING | {"dynamic_slice", "dynamic_update_slice", "gather", "reshape", "copy", "copy_p"}
"""What can do with arrays in memory as they are."""


def unroll(graph: Graph, jaxpr: ClosedJaxpr, arguments: Sequence[np.ndarray], platform: str) -> list[np.ndarray]:
    """The results of ``jaxpr`` on ``arguments``, as arrays of known values or of numbers of ``graph``.

    The usual case of a ``lax.cond`` is its first branch, ``false_fun``: see ``rarely``.
    """
    return Unroller(graph, platform).closed(jaxpr, arguments)


class Unroller:
    """Goes through a jaxpr and all in it. ``settled`` has what is known of a jaxpr from the start: what is done again
    and again, as the stages of a step are, is mostly that."""

    def __init__(self, graph: Graph, platform: str):
        self.graph, self.platform = graph, platform
        self.in_memory: dict[Any, set[int]] = {}  # of loops met so far, what of their states must be stored
        self.tables: dict[int, tuple[Any, Stored, Any]] = {}
        self.settled: dict[Any, tuple[Sequence[Any], dict[Any, np.ndarray], list[Any]]] = {}

    def closed(self, jaxpr: ClosedJaxpr, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.run(jaxpr.jaxpr, jaxpr.consts, arguments)

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        key = jaxpr, *map(id, consts), *map(_told, arguments)
        if key not in self.settled:
            self.settled[key] = consts, *self._settle(jaxpr, consts, arguments)  # kept, so that no id is another's
        _, known, left = self.settled[key]
        values = known | dict(zip(jaxpr.invars, arguments, strict=True))
        for equation in left:
            self._go_on(equation, values)
        return [_read(atom, values) for atom in jaxpr.outvars]

    def _settle(self, jaxpr, consts, arguments):
        """The values that follow from what is known, and the equations that are left."""
        refuse_keys(jaxpr.constvars)
        values = dict(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
        values |= {variable: x for variable, x in zip(jaxpr.invars, arguments, strict=True) if x.dtype != object}
        left = []
        for equation in jaxpr.eqns:
            if all(isinstance(atom, Literal) or atom in values for atom in equation.invars) and not _asks(equation):
                self._go_on(equation, values)
            else:
                left.append(equation)
        return values, left

    def _go_on(self, equation, values):
        """Enter the results of an equation into ``values``."""
        try:
            results = self.do(equation, [_read(atom, values) for atom in equation.invars])
        except Unsupported as refusal:
            refusal.note(equation)
            raise
        for variable, result in zip(equation.outvars, results, strict=True):
            values[variable] = tidy(result, _kind(variable))

    def do(self, equation, operands: list[np.ndarray]) -> Sequence[np.ndarray]:
        refuse_keys(equation.outvars)
        name = equation.primitive.name
        if not any(x.size for x in operands) and name not in REPEATING and operands:
            return _at_once(equation, operands)  # of nothing
        if name not in OF_STORED:
            operands = [loaded(self.graph, x) if isinstance(x, Stored) else x for x in operands]
        if name in RULES:
            return RULES[name](self, equation, operands)
        if all(x.dtype != object for x in operands):
            return _at_once(equation, operands)
        raise Unsupported("it is more than arithmetic: do it outside of the function, or without it")

    def stored(self, x: Any) -> Stored:
        """The array ``x`` in a memory, from which its entries are loaded."""
        if isinstance(x, Stored):
            return x
        if id(x) in self.tables:
            _, found, block = self.tables[id(x)]
            if found.memory.depth < len(self.graph.blocks) and self.graph.blocks[found.memory.depth] is block:
                return found
        if x.dtype == object:
            memory = self.graph.lasting_memory(x, next(entry.dtype for entry in x.flat))
        else:
            memory = Memory(x.size, x.dtype, 0, values=np.ascontiguousarray(x).ravel())
        found = Stored(memory, x.shape)
        self.tables[id(x)] = x, found, self.graph.blocks[memory.depth]  # x is kept, so that no id is another's
        return found

    def each(self, name, operands, parameters=None):
        """The elementwise operation ``name`` on the entries of arrays."""
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        columns = [np.broadcast_to(objects(x), shape).ravel() for x in operands]
        result = np.empty(int(np.prod(shape)), object)
        apply = self._trigonometric if name in ("sin", "cos") else self.graph.apply
        for i, row in enumerate(zip(*columns, strict=True)):
            result[i] = apply(name, row, parameters)
        return result.reshape(shape)

    def _trigonometric(self, name, row, parameters):
        (x,) = row
        if x.dtype not in TABLES or isinstance(x, np.generic) or not self.graph.sines:
            return self.graph.apply(name, row, parameters)
        if (turned := self.graph.negated(x)) is not None:  # one angle and its negative are one
            value = self._trigonometric(name, (turned,), parameters)
            return value if name == "cos" else self.graph.apply("neg", (value,))
        if self.graph.is_difference_of_equals(x):  # on the diagonal of a matrix of angles between bodies
            return x.dtype.type(name == "cos")
        return self.graph.remembered(("sine and cosine", x.index), [x], lambda: sine_and_cosine(self.graph, x))[name == "cos"]


def _at_once(equation, operands):
    """An operation on known values, or on none: an argument without entries is an array of objects as all are."""
    values = [np.asarray(x, _kind(atom)) for x, atom in zip(operands, equation.invars, strict=True)]
    with jax.ensure_compile_time_eval():
        results = equation.primitive.bind(*map(jnp.asarray, values), **equation.params)
    return list(map(np.asarray, results if equation.primitive.multiple_results else [results]))


def _read(atom, values):
    return np.asarray(atom.val, _kind(atom)) if isinstance(atom, Literal) else values[atom]


def _told(x):
    """What tells known values from others; nothing of what is not known."""
    return None if x.dtype == object else (x.shape, str(x.dtype), x.tobytes())


def asks(equation: Any) -> bool:
    """Whether it asks what was assumed before it: see ``wrongly_assumed``."""
    return equation.primitive is assumed_p


def _asks(equation):
    """Whether it does, or anything in it."""
    return asks(equation) or holds(list(equation.params.values()), asks)


def _kind(variable: Any) -> np.dtype:
    return variable.aval.dtype


def refuse_keys(variables: Sequence[Any]) -> None:
    """Refuse ``variables`` of a jaxpr that are not numbers."""
    if any(jnp.issubdtype(_kind(x), dtypes.extended) for x in variables):
        raise Unsupported("random keys are no numbers: draw them outside of the function")
