"""Evaluate a jaxpr on scalars: the unroller.

A loop of known length with few operations is unrolled, others stay loops. Constants are folded. The rules for JAX
primitives are in ``elementwise``, ``reduce``, ``sort``, ``move`` and ``control``.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..._jaxpr.nested import any_equation, jaxprs_in
from ..graph.fold import OPERATORS
from ..graph.graph import Graph, Memory
from ..graph.number import Number
from ..graph.sincos import TABLES, sine_and_cosine
from ..hints import assumption_failed_p
from ..unsupported import Unsupported
from . import control as control
from . import elementwise as elementwise
from . import loops
from . import move as move
from . import reduce as reduce
from . import sort as sort
from .control import CONTROL_FLOW
from .entries import OBJECT, Stored, are_known, broadcast, entry_list, object_array, unbox_constants
from .rule import RULES, Rule


def unroll(graph: Graph, jaxpr: ClosedJaxpr, arguments: Sequence[Any], platform: str) -> list[np.ndarray]:
    """The results of ``jaxpr`` on ``arguments``: arrays of constants, or object arrays of numbers of ``graph``.

    If the graph contains usual branches only, a ``rare_cond`` is its usual branch.
    """
    with np.errstate(all="ignore"):
        return Unroller(graph, platform).closed(jaxpr, arguments)


ACCEPTS_STORED = CONTROL_FLOW | {
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "reshape",
    "slice",
    "copy",
    "copy_p",
}
"""Primitives whose rules accept ``Stored`` operands; for others the entries are loaded first."""


class Instruction(NamedTuple):
    """An equation of a jaxpr, prepared for evaluation.

    equation: the equation.
    rule: the rule of its primitive.
    operands: keys of its operands among the values.
    results: key and dtype of each result.
    is_foldable: whether it may be evaluated in advance when its operands are constants.
    accepts_stored: whether the rule accepts ``Stored`` operands.
    last_uses: keys of operands that no later equation reads.
    """

    equation: Any
    rule: Rule
    operands: Sequence[Any]
    results: Sequence[tuple[Any, np.dtype]]
    is_foldable: bool
    accepts_stored: bool
    last_uses: frozenset[Any]


class Unroller:
    """Evaluates a jaxpr, and those inside it, on scalars of a graph.

    Constant folding is cached per jaxpr and constant arguments: most work of a jaxpr that is evaluated many times, such
    as the stages of a Runge-Kutta step, is on constants.

    graph: the graph that receives the operations.
    platform: selects the branch of ``platform_dependent``.
    in_memory: for each loop body, the indices of the loop state that must be arrays in memory.
    tables: the ``Stored`` version of arrays, by ``id``.
    folded: for each jaxpr and constant arguments, the folded values and the instructions that remain.
    memo: results of ``cached``.
    reads_assumptions: for each jaxpr, whether it contains ``assumption_failed``.
    instructions: for each jaxpr, its literals and instructions.
    keeps_loops: whether every loop is kept, since the branch is rarely taken.
    is_symbolic: whether arguments may be numbers of the graph; else all are known, see ``evaluator.py``.
    """

    is_symbolic = True

    def __init__(self, graph: Graph, platform: str):
        self.graph, self.platform = graph, platform
        self.keeps_loops = False
        self.in_memory: dict[Any, set[int]] = {}
        self.tables: dict[int, tuple[Any, Stored, Any]] = {}
        self.folded: dict[Any, tuple[Sequence[Any], dict[Any, np.ndarray], list[Instruction]]] = {}
        self.memo: dict[tuple[int, bytes], Any] = {}
        self.reads_assumptions: dict[Jaxpr, bool] = {}
        self.instructions: dict[Jaxpr, tuple[dict[Any, np.ndarray], list[Instruction]]] = {}

    def closed(self, jaxpr: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        """Evaluate a closed jaxpr."""
        return self.run(jaxpr.jaxpr, jaxpr.consts, arguments)

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """Evaluate a jaxpr."""
        key = jaxpr, *map(id, consts), *map(_fold_key, arguments)
        if key not in self.folded:
            # The entry holds consts, so that their ids are not reused.
            self.folded[key] = consts, *self._fold(jaxpr, consts, arguments)
        _, constants, remaining = self.folded[key]
        values = constants | dict(zip(jaxpr.invars, arguments, strict=True))
        for instruction in remaining:
            self._evaluate(instruction, values)
        return [values[_key(atom)] for atom in jaxpr.outvars]

    def _fold(self, jaxpr, consts, arguments):
        """Fold constants: the values that are still needed, and the instructions that remain."""
        if jaxpr not in self.instructions:
            reject_keys(jaxpr.constvars)
            last_uses, read = {}, set(map(_key, jaxpr.outvars))
            for equation in reversed(jaxpr.eqns):
                keys = set(map(_key, equation.invars))
                last_uses[id(equation)] = frozenset(keys - read)
                read |= keys
            self.instructions[jaxpr] = _literals(jaxpr), [self._instruction(x, last_uses[id(x)]) for x in jaxpr.eqns]
        literals, instructions = self.instructions[jaxpr]
        values = literals | dict(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
        values |= {variable: x for variable, x in zip(jaxpr.invars, arguments, strict=True) if are_known(x)}
        remaining = []
        for instruction in instructions:
            if instruction.is_foldable and all(key in values for key in instruction.operands):
                self._evaluate(instruction, values)
            else:
                remaining.append(instruction)
        needed = {key for instruction in remaining for key in instruction.operands} | set(map(_key, jaxpr.outvars))
        return {key: x for key, x in values.items() if key in needed}, remaining

    def _instruction(self, equation, last_uses):
        name = equation.primitive.name
        rule = _reject if _has_keys(equation.outvars) else self.rule_of(name)
        results = [(variable, _dtype(variable)) for variable in equation.outvars]
        reads = self._reads_assumptions(equation)
        return Instruction(
            equation, rule, [*map(_key, equation.invars)], results, not reads, name in ACCEPTS_STORED, last_uses
        )

    @contextlib.contextmanager
    def keeping_loops(self) -> Iterator[None]:
        """Keep every loop: a branch that is rarely taken should compile fast rather than run fast."""
        before, self.keeps_loops = self.keeps_loops, True
        try:
            yield
        finally:
            self.keeps_loops = before

    @property
    def min_loop_operations(self) -> int:
        """Smallest number of JAX operations in all iterations for which a loop stays a loop."""
        return 1 if self.keeps_loops else loops.MIN_LOOP_OPERATIONS

    def rule_of(self, name: str) -> Rule:
        """The rule of a primitive."""
        return RULES.get(name, _evaluate_by_jax)

    def _reads_assumptions(self, equation):
        """Whether ``equation`` contains ``assumption_failed``, which depends on the equations before it."""
        return reads_assumptions(equation) or any(
            any_equation(inner, reads_assumptions, self.reads_assumptions) for inner in jaxprs_in(equation)
        )

    def _evaluate(self, instruction, values):
        """Evaluate an instruction and add its results to ``values``."""
        try:
            operands = [values[key] for key in instruction.operands]
            for k, x in enumerate(operands):
                if type(x) is Stored:
                    if not instruction.accepts_stored:
                        operands[k] = x.entries(self.graph)
                    elif instruction.operands[k] not in instruction.last_uses:
                        operands[k] = x.as_shared()
            results = instruction.rule(self, instruction.equation, operands)
        except Unsupported as error:
            error.add_location(instruction.equation)
            raise
        for (variable, dtype), result in zip(instruction.results, results, strict=True):
            values[variable] = unbox_constants(result, dtype)

    def cached(self, equation, indices, compute):
        """``compute()``, cached; it must depend on ``equation`` and the values of its ``indices`` only."""
        key = id(equation), indices.tobytes()
        if key not in self.memo:
            self.memo[key] = compute()
        return self.memo[key]

    def as_stored(self, x: Any) -> Stored:
        """The array ``x`` in memory, from which its entries are loaded."""
        if isinstance(x, Stored):
            return x
        if id(x) in self.tables:
            _, stored, block = self.tables[id(x)]
            if stored.memory.depth < len(self.graph.blocks) and self.graph.blocks[stored.memory.depth] is block:
                return stored
        if x.dtype == object:
            memory = self.graph.constant_memory(x, next(entry.dtype for entry in x.flat))
        else:
            memory = Memory(x.size, x.dtype, 0, values=np.ascontiguousarray(x).ravel())
        stored = Stored(memory, x.shape)
        # The entry holds x, so that its id is not reused.
        self.tables[id(x)] = x, stored, self.graph.blocks[memory.depth]
        return stored

    def elementwise(self, name, operands, parameters=None):
        """Apply the elementwise operation ``name`` to the entries of arrays."""
        shape = operands[0].shape
        if any(x.shape != shape for x in operands):
            shape = np.broadcast_shapes(*(x.shape for x in operands))
        columns = [entry_list(broadcast(x, shape)) for x in operands]
        rows = zip(*columns, strict=True)
        if name in OPERATORS:  # fast path: most entries are constants, since most are zeros
            apply, fold = self.graph.apply, OPERATORS[name]
            entries = [apply(name, (a, b)) if type(a) is Number or type(b) is Number else fold(a, b) for a, b in rows]
        else:
            apply = self._trigonometric if name in ("sin", "cos") else self.graph.apply
            entries = [apply(name, row, parameters) for row in rows]
        return object_array(entries, shape)

    def _trigonometric(self, name, row, parameters):
        (x,) = row
        if type(x) is not Number or x.dtype not in TABLES:
            return self.graph.apply(name, row, parameters)
        if (negated := self.graph.negated(x)) is not None:  # share the results for x and −x
            value = self._trigonometric(name, (negated,), parameters)
            return value if name == "cos" else self.graph.apply("neg", (value,))
        if self.graph.is_difference_of_equals(x):  # as on the diagonal of a matrix of angle differences
            return x.dtype.type(name == "cos")
        compute = lambda: sine_and_cosine(self.graph, x)
        return self.graph.memoised(("sine and cosine", x.index), [x], compute)[name == "cos"]


def _literals(jaxpr):
    """The values of all literals in the equations, by key."""
    atoms = [atom for equation in jaxpr.eqns for atom in equation.invars] + list(jaxpr.outvars)
    return {_key(atom): np.asarray(atom.val, _dtype(atom)) for atom in atoms if isinstance(atom, Literal)}


def _key(atom):
    """The key of a variable or literal among the values."""
    return id(atom) if isinstance(atom, Literal) else atom


def _reject(unroller, equation, operands):
    """Rule of operations that make random keys: raise the error."""
    reject_keys(equation.outvars)
    return []


def _evaluate_by_jax(unroller, equation, operands):
    """Rule of primitives without a rule: evaluate by JAX on constant operands."""
    if any(x.dtype is OBJECT and x.size for x in operands):
        raise Unsupported("it is more than arithmetic: do it outside of the function, or without it")
    values = [np.asarray(x, _dtype(atom)) for x, atom in zip(operands, equation.invars, strict=True)]
    with jax.ensure_compile_time_eval():
        results = equation.primitive.bind(*map(jnp.asarray, values), **equation.params)
    return list(map(np.asarray, results if equation.primitive.multiple_results else [results]))


def _fold_key(x):
    """Cache key of an argument: its shape, dtype and bytes if it is constant, else None."""
    return None if x.dtype is OBJECT else (x.shape, x.dtype, x.tobytes())


def reads_assumptions(equation: Any) -> bool:
    """Whether an equation is ``assumption_failed``."""
    return equation.primitive is assumption_failed_p


def _dtype(variable: Any) -> np.dtype:
    return variable.aval.dtype


def reject_keys(variables: Sequence[Any]) -> None:
    """Raise ``Unsupported`` if ``variables`` of a jaxpr contain random keys."""
    if _has_keys(variables):
        raise Unsupported("random keys are not numbers: draw random numbers outside of the function")


def _has_keys(variables):
    return any(jnp.issubdtype(_dtype(x), dtypes.extended) for x in variables)
