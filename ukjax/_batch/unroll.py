"""From JAX's own record of a function, a jaxpr on arrays, to a graph of operations on numbers.

Arrays are NumPy arrays: of numbers where all are known, of objects (``Number`` or NumPy scalars) where some are not.
Loops are written out as often as they run, which must be known; indices must be known too.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .graph import ELEMENTWISE, IDENTITIES, Graph, Number, fold
from .places import gathered, scattered
from .trigonometry import TABLES, sine_and_cosine


class Unsupported(Exception):
    """An operation that cannot be written out: a loop of unknown length, a sort, a solver of LAPACK."""


def unroll(graph: Graph, jaxpr: ClosedJaxpr, arguments: Sequence[np.ndarray], platform: str) -> list[np.ndarray]:
    """The results of ``jaxpr`` on ``arguments``, as arrays of known values or of numbers of ``graph``.

    The usual case of a ``lax.cond`` is its first branch, ``false_fun``.
    """
    return _Unroller(graph, platform).closed(jaxpr, arguments)


class _Unroller:
    def __init__(self, graph: Graph, platform: str):
        self.graph, self.platform = graph, platform
        self.turns: dict[int, tuple[Any, Any]] = {}

    def closed(self, jaxpr: ClosedJaxpr, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.run(jaxpr.jaxpr, jaxpr.consts, arguments)

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        values: dict[Any, np.ndarray] = {}
        _refuse_keys(jaxpr.constvars)
        values.update(zip(jaxpr.constvars, map(np.asarray, consts), strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any):
            return np.asarray(atom.val, _kind(atom)) if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            results = self.do(equation, [read(atom) for atom in equation.invars])
            for variable, result in zip(equation.outvars, results, strict=True):
                values[variable] = _tidy(result, variable.aval)
        return [read(atom) for atom in jaxpr.outvars]

    def do(self, equation, operands: list[np.ndarray]) -> Sequence[np.ndarray]:
        _refuse_keys(equation.outvars)
        name, parameters = equation.primitive.name, equation.params
        if name in ELEMENTWISE or name in IDENTITIES or name in ("convert_element_type", "clamp"):
            return [self.elementwise(equation, operands)]
        if not any(x.size for x in operands) and name not in REPEATING and operands:
            return _at_once(equation, operands)  # of nothing
        if (rule := getattr(self, "_" + name.replace("-", "_"), None)) is not None:
            return rule(parameters, operands, equation)
        if name in MOVES:
            return MOVES[name](parameters, operands)
        if name in INNER:
            inner = parameters[INNER[name]]
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            return self.closed(closed, operands)
        if all(x.dtype != object for x in operands):
            return _at_once(equation, operands)
        raise Unsupported(name)

    def elementwise(self, equation, operands):
        name, parameters = equation.primitive.name, equation.params
        if name == "clamp":
            low, x, high = operands
            return self._each("min", [high, self._each("max", [low, x])])
        if all(x.dtype != object for x in operands):
            if name == "convert_element_type":
                return operands[0].astype(parameters["new_dtype"])
            if name in IDENTITIES:
                return operands[0]
            return np.asarray(fold(name, parameters, operands))
        if name == "select_n" and operands[0].dtype != object and operands[0].shape == operands[1].shape:
            result = _objects(operands[1]).copy()
            for k, case in enumerate(operands[2:], 1):
                chosen = operands[0].astype(int) == k
                result[chosen] = _objects(case)[chosen]
            return result
        return self._each(name, operands, parameters)

    def _each(self, name, operands, parameters=None):
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        columns = [np.broadcast_to(_objects(x), shape).ravel() for x in operands]
        result = np.empty(int(np.prod(shape)), object)
        apply = self._trigonometric if name in ("sin", "cos") else self.graph.apply
        for i, row in enumerate(zip(*columns, strict=True)):
            result[i] = apply(name, row, parameters)
        return result.reshape(shape)

    def _trigonometric(self, name, row, parameters):
        (x,) = row
        if x.dtype not in TABLES or isinstance(x, np.generic):
            return self.graph.apply(name, row, parameters)
        if (turned := self.graph.negated(x)) is not None:  # one angle and its negative are one
            value = self._trigonometric(name, (turned,), parameters)
            return value if name == "cos" else self.graph.apply("neg", (value,))
        if x.index not in self.turns:
            self.turns[x.index] = sine_and_cosine(self.graph, x)
        return self.turns[x.index][name == "cos"]

    # What calls, repeats or chooses.

    def _scan(self, parameters, operands, equation):
        if "ft_in" in parameters:  # jax 0.12
            fixed, carried, _ = map(len, parameters["ft_in"].unpack())
        else:
            fixed, carried = parameters["num_consts"], parameters["num_carry"]
        consts, carry, xs = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]
        length = parameters["length"]
        collected: list[list[np.ndarray]] = [[] for _ in parameters["jaxpr"].out_avals[carried:]]
        for i in reversed(range(length)) if parameters["reverse"] else range(length):
            out = self.closed(parameters["jaxpr"], [*consts, *carry, *(np.asarray(x[i]) for x in xs)])
            carry = out[:carried]
            for column, value in zip(collected, out[carried:], strict=True):
                column.append(value)
        if parameters["reverse"]:
            collected = [column[::-1] for column in collected]
        empty = [np.zeros((0, *a.shape), a.dtype) for a in parameters["jaxpr"].out_avals[carried:]]
        stacked = [_stack(column, 0) if column else none for column, none in zip(collected, empty, strict=True)]
        return [*carry, *stacked]

    def _while(self, parameters, operands, _):
        a, b = parameters["cond_nconsts"], parameters["body_nconsts"]
        test, body, carry = operands[:a], operands[a : a + b], operands[a + b :]
        while True:
            (go_on,) = self.closed(parameters["cond_jaxpr"], [*test, *carry])
            if go_on.dtype == object:
                raise Unsupported("while")
            if not go_on:
                return carry
            carry = self.closed(parameters["body_jaxpr"], [*body, *carry])

    def _cond(self, parameters, operands, _):
        which, *rest = operands
        branches = parameters["branches"]
        if which.dtype != object:
            return self.closed(branches[min(max(int(which), 0), len(branches) - 1)], rest)
        index = which.ravel()[0]
        if self.graph.usual:
            self.graph.granted.append(index)
            return self.closed(branches[0], rest)
        results = [self.closed(branch, rest) for branch in branches]
        highest = index.dtype.type(len(branches) - 1)
        index = self.graph.apply("min", (self.graph.apply("max", (index, index.dtype.type(0))), highest))
        if len(branches) == 2:
            index = self.graph.apply("ne", (index, index.dtype.type(0)))
        return [self._each("select_n", [np.asarray(index), *cases]) for cases in zip(*results, strict=True)]

    def _platform_index(self, parameters, _, __):
        platforms = parameters["platforms"]
        found = [i for i, names in enumerate(platforms) if names is None or self.platform in names]
        return [np.asarray(found[0], np.int32)]

    def _written_out(self, _, __, ___):
        return [np.asarray(True)]

    def _custom_linear_solve(self, parameters, operands, _):
        lengths = parameters["const_lengths"]
        before = lengths.matvec + lengths.vecmat
        solve = operands[before : before + lengths.solve]
        right = operands[sum(lengths) :]
        return self.closed(parameters["jaxprs"].solve, [*solve, *right])

    # What adds up.

    def _dot_general(self, parameters, operands, equation):
        a, b = operands
        (contract_a, contract_b), (batch_a, batch_b) = parameters["dimension_numbers"]
        free_a = [i for i in range(a.ndim) if i not in contract_a and i not in batch_a]
        free_b = [i for i in range(b.ndim) if i not in contract_b and i not in batch_b]
        shape = tuple(a.shape[i] for i in batch_a) + tuple(a.shape[i] for i in free_a)
        shape += tuple(b.shape[i] for i in free_b)
        batches = int(np.prod([a.shape[i] for i in batch_a], dtype=int))
        terms = int(np.prod([a.shape[i] for i in contract_a], dtype=int))
        dtype = equation.outvars[0].aval.dtype
        rows_a, rows_b = (int(np.prod([x.shape[i] for i in free], dtype=int)) for x, free in ((a, free_a), (b, free_b)))
        a = a.transpose(*batch_a, *free_a, *contract_a).reshape(batches, rows_a, terms)
        b = b.transpose(*batch_b, *free_b, *contract_b).reshape(batches, rows_b, terms)
        a, b = (x if x.dtype == object else x.astype(dtype) for x in (a, b))
        if a.dtype != object and b.dtype != object:
            return [np.einsum("zit,zjt->zij", a, b).astype(dtype).reshape(shape)]
        convert = lambda x: self.graph.apply("convert_element_type", (x,), {"new_dtype": dtype})
        kinds = [atom.aval.dtype for atom in equation.invars]
        a, b = (
            _objects(x) if kind == dtype else np.vectorize(convert, [object])(_objects(x))
            for x, kind in zip((a, b), kinds, strict=True)
        )
        rows, columns = ([[_not_zero(x) for x in part] for part in whole] for whole in (a, b))
        result = np.empty((batches, a.shape[1], b.shape[1]), object)
        for z, i, j in itertools.product(*map(range, result.shape)):
            total, other = dtype.type(0), columns[z][j]
            for k in rows[z][i]:
                if k in other:
                    total = self.graph.apply("add", (total, self.graph.apply("mul", (a[z, i, k], b[z, j, k]))))
            result[z, i, j] = total
        return [result.reshape(shape)]

    def _reduce(self, operands, axes, primitive):
        (x,) = operands
        axes = tuple(axes)
        kept = [i for i in range(x.ndim) if i not in axes]
        shape = tuple(x.shape[i] for i in kept)
        rows = _objects(x).transpose(*kept, *axes).reshape(int(np.prod(shape, dtype=int)), -1)
        result = np.empty(rows.shape[0], object)
        for i, row in enumerate(rows):
            total = row[0]
            for value in row[1:]:
                total = self.graph.apply(primitive, (total, value))
            result[i] = total
        return [result.reshape(shape)]

    def _reduce_sum(self, parameters, operands, equation):
        if operands[0].size == 0:
            aval = equation.outvars[0].aval
            return [np.zeros(aval.shape, aval.dtype)]
        return self._reduce(operands, parameters["axes"], "add")

    def _reduce_prod(self, parameters, operands, _):
        return self._reduce(operands, parameters["axes"], "mul")

    def _reduce_max(self, parameters, operands, _):
        return self._reduce(operands, parameters["axes"], "max")

    def _reduce_min(self, parameters, operands, _):
        return self._reduce(operands, parameters["axes"], "min")

    def _reduce_or(self, parameters, operands, _):
        return self._reduce(operands, parameters["axes"], "or")

    def _reduce_and(self, parameters, operands, _):
        return self._reduce(operands, parameters["axes"], "and")

    def _argmax(self, parameters, operands, _):
        return self._extreme(parameters, operands, "gt")

    def _argmin(self, parameters, operands, _):
        return self._extreme(parameters, operands, "lt")

    def _extreme(self, parameters, operands, better):
        (x,), (axis,), dtype = operands, parameters["axes"], np.dtype(parameters["index_dtype"])
        rows = np.moveaxis(_objects(x), axis, -1)
        result = np.empty(rows.shape[:-1], object)
        for i in np.ndindex(result.shape):
            best, where = rows[i][0], dtype.type(0)
            for j, value in enumerate(rows[i][1:], 1):
                wins = self.graph.apply(better, (value, best))
                best = self.graph.apply("select_n", (wins, best, value))
                where = self.graph.apply("select_n", (wins, where, dtype.type(j)))
            result[i] = where
        return [result]

    def _cumsum(self, parameters, operands, _):
        return self._cumulative(parameters, operands, "add")

    def _cumprod(self, parameters, operands, _):
        return self._cumulative(parameters, operands, "mul")

    def _cumulative(self, parameters, operands, primitive):
        rows = np.moveaxis(_objects(operands[0]).copy(), parameters["axis"], 0)
        order = range(rows.shape[0])[::-1] if parameters["reverse"] else range(rows.shape[0])
        for before, i in itertools.pairwise(order):
            rows[i] = self._each(primitive, [np.asarray(rows[before]), np.asarray(rows[i])])[()]
        return [np.moveaxis(rows, 0, parameters["axis"])]

    def _gather(self, parameters, operands, _):
        x, indices = operands
        places = gathered(parameters, x.shape, _known(indices))
        if (places < 0).any():
            raise Unsupported("gather from outside")
        return [x.ravel()[places]]

    def _scatter(self, parameters, operands, _):
        x, indices, updates = operands
        places = scattered(parameters, x.shape, _known(indices), updates.shape)
        if x.dtype == object or updates.dtype == object:
            x, updates = _objects(x), _objects(updates)
        result = x.ravel().copy()
        result[places[places >= 0]] = updates[places >= 0]
        return [result.reshape(x.shape)]

    def _scatter_add(self, parameters, operands, _):
        x, indices, updates = operands
        places = scattered(parameters, x.shape, _known(indices), updates.shape)
        result, added = _objects(x).ravel().copy(), _objects(updates).ravel()
        for i in np.flatnonzero(places >= 0):
            at = int(places.flat[i])
            result[at] = self.graph.apply("add", (result[at], added[i]))
        return [result.reshape(x.shape)]

    def _iota(self, parameters, _, __):
        shape, axis = parameters["shape"], parameters["dimension"]
        along = np.arange(shape[axis]).astype(parameters["dtype"])
        return [np.broadcast_to(along.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)]


# What only moves entries about.


def _pad(parameters, operands):
    x, fill = operands
    if x.dtype == object or fill.dtype == object:
        x, fill = _objects(x), _objects(fill)
    for axis, (low, high, inside) in enumerate(parameters["padding_config"]):
        length = max(0, x.shape[axis] - 1) * (1 + inside) + min(1, x.shape[axis])
        spread = _filled((*x.shape[:axis], length, *x.shape[axis + 1 :]), fill)
        spread[(slice(None),) * axis + (slice(None, None, 1 + inside),)] = x
        sides = [_filled((*x.shape[:axis], max(0, k), *x.shape[axis + 1 :]), fill) for k in (low, high)]
        whole = np.concatenate([sides[0], spread, sides[1]], axis)
        x = whole[(slice(None),) * axis + (slice(max(0, -low), whole.shape[axis] - max(0, -high)),)]
    return [x]


def _filled(shape, fill):
    return np.broadcast_to(fill, shape).copy()


def _broadcast(parameters, operands):
    x, shape = operands[0], parameters["shape"]
    wide = [1] * len(shape)
    for size, axis in zip(x.shape, parameters["broadcast_dimensions"], strict=True):
        wide[axis] = size
    return [np.broadcast_to(x.reshape(wide), shape)]


def _slice(parameters, operands):
    steps = parameters["strides"] or (1,) * operands[0].ndim
    spans = zip(parameters["start_indices"], parameters["limit_indices"], steps, strict=True)
    return [operands[0][tuple(slice(*span) for span in spans)]]


def _dynamic_slice(parameters, operands):
    x, *starts = operands
    return [x[_window(x, starts, parameters["slice_sizes"])]]


def _dynamic_update_slice(parameters, operands):
    x, update, *starts = operands
    if x.dtype == object or update.dtype == object:
        x, update = _objects(x), _objects(update)
    x = x.copy()
    x[_window(x, starts, update.shape)] = update
    return [x]


def _window(x, starts, sizes):
    if any(start.dtype == object for start in starts):
        raise Unsupported("dynamic_slice")
    starts = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(starts, sizes, strict=True))


def _split(parameters, operands):
    places = np.cumsum(np.asarray(parameters["sizes"]))[:-1]
    return np.split(operands[0], places, parameters["axis"])


def _stack(parts, axis):
    return np.stack([_objects(x) for x in parts] if any(x.dtype == object for x in parts) else parts, axis)


def _unstack(parameters, operands):
    return list(np.moveaxis(operands[0], parameters["axis"], 0))


def _concatenate(parameters, operands):
    mixed = any(x.dtype == object for x in operands)
    return [np.concatenate([_objects(x) for x in operands] if mixed else operands, parameters["dimension"])]


MOVES: dict[str, Callable] = {
    "reshape": lambda parameters, operands: [operands[0].reshape(parameters["new_sizes"])],
    "squeeze": lambda parameters, operands: [np.squeeze(operands[0], tuple(parameters["dimensions"]))],
    "expand_dims": lambda parameters, operands: [np.expand_dims(operands[0], tuple(parameters["dimensions"]))],
    "transpose": lambda parameters, operands: [operands[0].transpose(parameters["permutation"])],
    "rev": lambda parameters, operands: [np.flip(operands[0], tuple(parameters["dimensions"]))],
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "split": _split,
    "stack": lambda parameters, operands: [_stack(operands, parameters["axis"])],
    "unstack": _unstack,
    "concatenate": _concatenate,
    "pad": _pad,
}

INNER = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "per_member": "jaxpr",
    "either": "arithmetic",
}
"""Operations that are functions of their own, and the parameter that holds them."""

REPEATING = frozenset({"scan", "while", "cond", *INNER})
"""Operations that hold others."""


def _known(indices: np.ndarray) -> np.ndarray:
    if indices.dtype == object:
        raise Unsupported("indices that are not known")
    return indices


def _at_once(equation, operands):
    """An operation on known values."""
    with jax.ensure_compile_time_eval():
        results = equation.primitive.bind(*map(jnp.asarray, operands), **equation.params)
    return list(map(np.asarray, results if equation.primitive.multiple_results else [results]))


def _kind(variable: Any) -> np.dtype:
    return variable.aval.dtype


def _refuse_keys(variables: Sequence[Any]) -> None:
    if any(jnp.issubdtype(_kind(x), dtypes.extended) for x in variables):
        raise Unsupported("random keys")


def _objects(x: np.ndarray) -> np.ndarray:
    """The same array with every entry an object: a Number, or a NumPy scalar that remembers its type."""
    if x.dtype == object:
        return x
    result = np.empty(x.size, object)
    for i, value in enumerate(x.ravel()):
        result[i] = value
    return result.reshape(x.shape)


def _not_zero(row: np.ndarray) -> dict[int, None]:
    """Where a row is not known to be zero, in order."""
    return {k: None for k, x in enumerate(row) if isinstance(x, Number) or x != 0}


def _tidy(result, aval) -> np.ndarray:
    """Back to plain values where all turned out to be known."""
    result = np.asarray(result)
    if result.dtype != object or any(isinstance(x, Number) for x in result.flat):
        return result
    return np.array(list(result.flat), dtype=aval.dtype).reshape(result.shape)
