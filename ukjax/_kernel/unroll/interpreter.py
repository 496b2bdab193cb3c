"""From JAX's own record of a function, a jaxpr on arrays, to a graph of operations on numbers.

A short loop of known length is repeated in the graph as often as it runs; any other stays a loop. What is done for each
primitive of JAX is in ``elementwise``, ``reduce``, ``sort``, ``move`` and ``control``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..assumed import assumption_failed_p
from ..graph.fold import OPERATORS
from ..graph.graph import Graph, Memory
from ..graph.number import Number
from ..graph.sincos import TABLES, sine_and_cosine
from ..primitive import holds
from ..unsupported import Unsupported
from . import control as control
from . import elementwise as elementwise
from . import move as move
from . import reduce as reduce
from . import sort as sort
from .control import REPEATING
from .entries import OBJECT, Stored, are_known, array_of, listed, spread, tidy
from .rule import RULES, Rule


def unroll(graph: Graph, jaxpr: ClosedJaxpr, arguments: Sequence[Any], platform: str) -> list[np.ndarray]:
    """The results of ``jaxpr`` on ``arguments``, as arrays of known values or of numbers of ``graph``.

    In a graph of what is ``usual``, a choice by ``rarely`` has its first branch alone.
    """
    with np.errstate(all="ignore"):
        return Unroller(graph, platform).closed(jaxpr, arguments)


OF_STORED = REPEATING | {"dynamic_slice", "dynamic_update_slice", "gather", "reshape", "slice", "copy", "copy_p"}
"""What can do with arrays in memory as they are."""


class Line(NamedTuple):
    """An equation of a jaxpr: its rule, where its operands are found among the values, and its results."""

    equation: Any
    rule: Rule
    operands: Sequence[Any]
    results: Sequence[tuple[Any, np.dtype]]
    settles: bool  # as soon as its operands are known
    of_stored: bool  # takes arrays in memory as they are
    last: frozenset[Any]  # operands that nothing reads after it


class Unroller:
    """Goes through a jaxpr and all in it. ``settled`` has what is known of a jaxpr from the start: what is done again
    and again, as the stages of a step are, is mostly that."""

    def __init__(self, graph: Graph, platform: str):
        self.graph, self.platform = graph, platform
        self.in_memory: dict[Any, set[int]] = {}  # of loops met so far, what of their states must be stored
        self.tables: dict[int, tuple[Any, Stored, Any]] = {}
        self.settled: dict[Any, tuple[Sequence[Any], dict[Any, np.ndarray], list[Line]]] = {}
        self.found: dict[tuple[int, bytes], Any] = {}
        self.asking: dict[Jaxpr, bool] = {}
        self.lines: dict[Jaxpr, tuple[dict[Any, np.ndarray], list[Line]]] = {}

    def closed(self, jaxpr: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        return self.run(jaxpr.jaxpr, jaxpr.consts, arguments)

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        key = jaxpr, *map(id, consts), *map(_told, arguments)
        if key not in self.settled:
            self.settled[key] = consts, *self._settle(jaxpr, consts, arguments)  # kept, so that no id is another's
        _, known, left = self.settled[key]
        values = known | dict(zip(jaxpr.invars, arguments, strict=True))
        for line in left:
            self._go_on(line, values)
        return [values[_name(atom)] for atom in jaxpr.outvars]

    def _settle(self, jaxpr, consts, arguments):
        """The values that follow from what is known, as far as they are needed, and the equations that are left."""
        if jaxpr not in self.lines:
            refuse_keys(jaxpr.constvars)
            last, read = {}, set(map(_name, jaxpr.outvars))
            for equation in reversed(jaxpr.eqns):
                names = set(map(_name, equation.invars))
                last[id(equation)], read = frozenset(names - read), read | names
            self.lines[jaxpr] = _literals(jaxpr), [self._line(x, last[id(x)]) for x in jaxpr.eqns]
        literals, lines = self.lines[jaxpr]
        values = literals | dict(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
        values |= {variable: x for variable, x in zip(jaxpr.invars, arguments, strict=True) if are_known(x)}
        left = []
        for line in lines:
            if line.settles and all(name in values for name in line.operands):
                self._go_on(line, values)
            else:
                left.append(line)
        needed = {name for line in left for name in line.operands} | set(map(_name, jaxpr.outvars))
        return {name: x for name, x in values.items() if name in needed}, left

    def _line(self, equation, last):
        name = equation.primitive.name
        rule = _refused if _has_keys(equation.outvars) else RULES.get(name, _at_once)
        results = [(variable, _kind(variable)) for variable in equation.outvars]
        asks = self._asks(equation)
        return Line(equation, rule, [*map(_name, equation.invars)], results, not asks, name in OF_STORED, last)

    def _asks(self, equation):
        """Whether it is about what came before it: see ``wrongly_assumed``."""
        return asks(equation) or holds(list(equation.params.values()), asks, self.asking)

    def _go_on(self, line, values):
        """Enter the results of an equation into ``values``."""
        try:
            operands = [values[name] for name in line.operands]
            for k, x in enumerate(operands):
                if type(x) is Stored:
                    if not line.of_stored:
                        operands[k] = x.entries(self.graph)
                    elif line.operands[k] not in line.last:
                        operands[k] = x.as_shared()
            results = line.rule(self, line.equation, operands)
        except Unsupported as refusal:
            refusal.note(line.equation)
            raise
        for (variable, kind), result in zip(line.results, results, strict=True):
            values[variable] = tidy(result, kind)

    def once(self, equation, indices, find):
        """``find()``, which depends on nothing but an equation and the values of its ``indices``."""
        key = id(equation), indices.tobytes()
        if key not in self.found:
            self.found[key] = find()
        return self.found[key]

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
        shape = operands[0].shape
        if any(x.shape != shape for x in operands):
            shape = np.broadcast_shapes(*(x.shape for x in operands))
        columns = [listed(spread(x, shape)) for x in operands]
        rows = zip(*columns, strict=True)
        if name in OPERATORS:  # most entries are known, for most are zeros
            apply, known = self.graph.apply, OPERATORS[name]
            entries = [apply(name, (a, b)) if type(a) is Number or type(b) is Number else known(a, b) for a, b in rows]
        else:
            apply = self._trigonometric if name in ("sin", "cos") else self.graph.apply
            entries = [apply(name, row, parameters) for row in rows]
        return array_of(entries, shape)

    def _trigonometric(self, name, row, parameters):
        (x,) = row
        if type(x) is not Number or x.dtype not in TABLES:
            return self.graph.apply(name, row, parameters)
        if (turned := self.graph.negated(x)) is not None:  # one angle and its negative are one
            value = self._trigonometric(name, (turned,), parameters)
            return value if name == "cos" else self.graph.apply("neg", (value,))
        if self.graph.is_difference_of_equals(x):  # on the diagonal of a matrix of angles between bodies
            return x.dtype.type(name == "cos")
        find = lambda: sine_and_cosine(self.graph, x)
        return self.graph.remembered(("sine and cosine", x.index), [x], find)[name == "cos"]


def _literals(jaxpr):
    """The values of all constants that stand in the equations themselves."""
    atoms = [atom for equation in jaxpr.eqns for atom in equation.invars] + list(jaxpr.outvars)
    return {_name(atom): np.asarray(atom.val, _kind(atom)) for atom in atoms if isinstance(atom, Literal)}


def _name(atom):
    """By what it is found among the values."""
    return id(atom) if isinstance(atom, Literal) else atom


def _refused(unroller, equation, operands):
    """Raises the error for an operation that makes random keys."""
    refuse_keys(equation.outvars)
    return []


def _at_once(unroller, equation, operands):
    """An operation without a rule, on known values, or on none."""
    if any(x.dtype is OBJECT and x.size for x in operands):
        raise Unsupported("it is more than arithmetic: do it outside of the function, or without it")
    values = [np.asarray(x, _kind(atom)) for x, atom in zip(operands, equation.invars, strict=True)]
    with jax.ensure_compile_time_eval():
        results = equation.primitive.bind(*map(jnp.asarray, values), **equation.params)
    return list(map(np.asarray, results if equation.primitive.multiple_results else [results]))


def _told(x):
    """What tells known values from others; nothing of what is not known."""
    return None if x.dtype is OBJECT else (x.shape, x.dtype, x.tobytes())


def asks(equation: Any) -> bool:
    """Whether it asks what was assumed before it: see ``wrongly_assumed``."""
    return equation.primitive is assumption_failed_p


def _kind(variable: Any) -> np.dtype:
    return variable.aval.dtype


def refuse_keys(variables: Sequence[Any]) -> None:
    """Refuse ``variables`` of a jaxpr that are not numbers."""
    if _has_keys(variables):
        raise Unsupported("random keys are no numbers: draw them outside of the function")


def _has_keys(variables):
    return any(jnp.issubdtype(_kind(x), dtypes.extended) for x in variables)
