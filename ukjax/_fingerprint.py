"""A fingerprint of a computation: from which model, data, options and versions its result follows.

A store of an ensemble, a checkpoint of a fit and an exported simulator outlive the process that wrote them. Each keeps
the fingerprint of its computation, so that a later call can tell whether it asks for the same one.

The functions of a model are compared by the operations that JAX traces them to, with every array in these: also those
inside functions that were compiled, in branches and in loops. What JAX does not trace, functions that ``pure_callback``
calls, is compared by its code and by what it holds; where that cannot be seen, there is an error. Rules for derivatives
(``custom_jvp``, ``custom_vjp``) are no part of the values and are left out; where derivatives matter, ``functions``
computes them.
"""

import builtins
import dataclasses
import enum
import functools
import hashlib
import json
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ._kernel.unsupported import SourceLocation
from ._outside import globals_in, is_of_library
from ._version import NUMERICS, __version__

FEW = 16
"""Numbers of an array that a description lists; of more it gives a digest."""

MOST = 100_000
"""Objects that are looked at in what one function holds."""

WITHOUT_EFFECT = frozenset(
    ("name", "ctx_mesh", "sharding", "in_shardings", "out_shardings", "in_layouts", "out_layouts")
    + ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees")
)
"""Parameters of operations of JAX that change no values: labels, where arrays lie, rules for derivatives."""

JITTED = type(jax.jit(lambda: None))


def fingerprint(
    title: str,
    model: Any,
    functions: Callable,
    arguments: Iterable[jax.ShapeDtypeStruct],
    data: Mapping[str, Any],
    options: Mapping[str, Any],
    purpose: str,
) -> dict[str, Any]:
    """What a computation is known by: a description, as JSON has it, in which two different computations differ.

    Parameters
    ----------
    title
        What the model is called.
    model
        A pytree whose arrays are compared by name.
    functions
        A function of the ``arguments`` that calls whatever functions the result depends on. It is traced, not run.
    data, options
        All else that the result depends on: numbers, words, arrays, or objects such as solvers, by name.
    purpose
        The argument that wants the fingerprint, for errors: "store", "checkpoint".

    Returns
    -------
    dict
        Versions, device and precision, ``data`` and ``options`` with arrays described in words and by a digest, the
        digest of all functions, and under "fingerprint" one of all of it, 64 hexadecimal digits.

    Raises
    ------
    ValueError
        For a callback that holds what cannot be compared with what another process holds.
    """
    arguments = tuple(arguments)
    described = {
        **versions(),
        "device": jax.default_backend(),
        "precision": ", ".join(dict.fromkeys(str(x.dtype) for x in arguments)),
        "model": title,
        "numbers of the model": numbers_of(model),
        "functions of the model": digest_of_functions(functions, arguments, purpose),
        **{name: describe(value) for name, value in (*data.items(), *options.items())},
    }
    return with_digest(described)


def with_digest(description: Mapping[str, Any]) -> dict[str, Any]:
    """A ``description`` as it is after it was written as JSON and read again, with its "fingerprint" at the end."""
    written = json.dumps({name: value for name, value in description.items() if name != "fingerprint"})
    digest = hashlib.sha256(json.dumps(json.loads(written), sort_keys=True).encode()).hexdigest()
    return json.loads(written) | {"fingerprint": digest}


def versions() -> dict[str, Any]:
    """Those on which computed numbers depend."""
    return {"ukjax": __version__, "numerics": NUMERICS, "jax": jax.__version__}


def numbers_of(model: Any) -> dict[str, Any]:
    """The arrays of a pytree by name, in words."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array))
    return {jax.tree_util.keystr(path).lstrip("."): describe(x) for path, x in leaves}


def digest_of_functions(functions: Callable, arguments: Iterable[jax.ShapeDtypeStruct], purpose: str) -> str:
    """A digest of the operations that ``functions`` is traced to, and of all arrays in them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = jax.make_jaxpr(functions)(*arguments)
    try:
        return Digest().of(program).hex()[:16]
    except NotComparable as error:
        raise ValueError(
            f"{purpose} cannot be used here: {error}, which cannot be compared with what another process holds, so "
            f"that results of another model could be taken for those of this one. Let it hold nothing but numbers, "
            f"arrays, functions and plain objects, write it with jax.numpy, or leave {purpose} out"
        ) from None


def describe(thing: Any) -> Any:
    """Numbers and words as they are, many numbers and objects in short with a digest of all of them."""
    if isinstance(thing, float) and not np.isfinite(thing):  # JSON has no such numbers, and NaN is not NaN
        return str(float(thing))
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, Mapping):
        return {str(name): describe(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
        return [describe(value) for value in thing]
    array = np.asarray(thing) if _is_array(thing) and not _is_key(thing) else None
    if array is not None and array.size <= FEW:
        return describe(array.tolist())
    digest = Digest().of(thing).hex()[:16]
    if array is not None:
        return f"{array.shape} numbers from {array.flat[0]:.17g} to {array.flat[-1]:.17g} ({digest})"
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    shown = {field.name: getattr(thing, field.name, None) for field in fields}
    plain = {name: x for name, x in shown.items() if x is None or isinstance(x, bool | int | float | str)}
    return f"{type(thing).__name__}({', '.join(f'{name}={x!r}' for name, x in plain.items())}) ({digest})"


def first_difference(there: Any, wanted: Any, where: str = "") -> str:
    """In what two descriptions differ first, in words; empty if they do not."""
    if isinstance(there, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in there if key not in wanted)]:
            if found := first_difference(there.get(key), wanted.get(key), f"{where}, {key!r}," if where else repr(key)):
                return found
        return ""
    return "" if there == wanted else f"{where} is {_short(there)} there, and {_short(wanted)} now"


def _short(value):
    shown = "not given" if value is None else json.dumps(value) if not isinstance(value, str) else repr(value)
    return shown if len(shown) <= 100 else f"{shown[:90]}..."


class NotComparable(Exception):
    """Something whose contents cannot be seen."""


class Digest:
    """Digests of things by their contents, the same in every process. Those of what a thing holds enter its own."""

    def __init__(self):
        self._known: dict[int, tuple[Any, bytes]] = {}  # with the thing: another could get its id
        self._open: dict[int, int] = {}

    def of(self, thing: Any) -> bytes:
        """32 bytes. Raises ``Unseen``."""
        if id(thing) in self._known:
            return self._known[id(thing)][1]
        if id(thing) in self._open:  # it holds itself, as a recursive function does
            return _hash("itself", len(self._open) - self._open[id(thing)])
        if len(self._known) > MOST:
            raise NotComparable(f"it holds more than {MOST} objects")
        self._open[id(thing)] = len(self._open)
        try:
            digest = self._of(thing)
        finally:
            del self._open[id(thing)]
        self._known[id(thing)] = thing, digest
        return digest

    def _of(self, x: Any) -> bytes:
        if isinstance(x, enum.Enum):
            return _hash("enum", type(x).__qualname__, x.name)
        if x is None or x is Ellipsis or isinstance(x, str | bytes | range | slice | np.dtype | bool):
            return _hash(type(x).__name__, repr(x))
        if _is_array(x):
            return self._of_array(x)
        if isinstance(x, int | float | complex):
            plain: Any = next(kind for kind in (int, float, complex) if isinstance(x, kind))
            return _hash(plain.__name__, repr(plain(x)))
        if isinstance(x, Jaxpr | ClosedJaxpr):
            return self._of_jaxpr(*((x, ()) if isinstance(x, Jaxpr) else (x.jaxpr, x.consts)))
        if isinstance(x, jax.tree_util.PyTreeDef):
            return _hash("tree", self.of(x.node_data()), *map(self.of, x.children()))
        if isinstance(x, SourceLocation):  # where a function of this package is written
            return _hash("place")
        if isinstance(x, Mapping):
            return _hash("mapping", *sorted(self.of(key) + self.of(value) for key, value in x.items()))
        if isinstance(x, tuple | list):
            return _hash(type(x).__qualname__, *map(self.of, x))
        if isinstance(x, set | frozenset):
            return _hash("set", *sorted(map(self.of, x)))
        if isinstance(x, types.ModuleType):
            return _hash("module", x.__name__)
        if isinstance(x, type):
            return self._of_class(x)
        if callable(x) and (function := self._of_function(x)) is not None:
            return function
        if dataclasses.is_dataclass(x):
            held = {field.name: getattr(x, field.name, None) for field in dataclasses.fields(x)}
            return _hash("object", self.of(type(x)), self.of(held))
        if _top(type(x)) in ("jax", "jaxlib"):
            return _hash("jax", type(x).__qualname__, re.sub(r"0x[0-9a-f]+", "", repr(x)))
        return self._of_object(x)

    def _of_array(self, x):
        if _is_key(x):
            return _hash("key", str(x.dtype), self.of(jax.random.key_data(x)))
        array = np.asarray(x)
        if array.dtype == object:
            return _hash("objects", array.shape, self.of(array.ravel().tolist()))
        return _hash("array", str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes())

    def _of_jaxpr(self, jaxpr, constants):
        number: dict[Any, int] = {}

        def defined(variables):
            for variable in variables:
                number[variable] = len(number)
            return [str(variable.aval) for variable in variables]

        def used(variables):
            return [self.of(x.val).hex() + str(x.aval) if isinstance(x, Literal) else number[x] for x in variables]

        parts: list[Any] = ["jaxpr", *map(self.of, constants), defined(jaxpr.constvars), defined(jaxpr.invars)]
        for equation in jaxpr.eqns:
            if equation.outvars:  # else it prints something
                operands, parameters = used(equation.invars), self._of_parameters(equation)
                parts.append((equation.primitive.name, operands, parameters, defined(equation.outvars)))
        return _hash(*parts, used(jaxpr.outvars))

    def _of_parameters(self, equation):
        held = {name: x for name, x in equation.params.items() if name not in WITHOUT_EFFECT}
        try:
            return {name: self.of(x) for name, x in sorted(held.items())}
        except NotComparable as error:
            if "callback" not in held:
                raise NotComparable(f"the operation {equation.primitive.name!r} holds {error}") from None
            function = getattr(held["callback"], "callback_func", held["callback"])
            code = getattr(function, "__code__", None)
            where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
            name = getattr(function, "__qualname__", type(function).__qualname__)
            raise NotComparable(
                f"the function {name!r}{where}, called by jax.{equation.primitive.name}, holds {error}"
            ) from None

    def _of_class(self, x):
        if is_of_library(x.__module__):
            return _hash("class", x.__module__, x.__qualname__, _version_of(x.__module__))
        held = {}
        for name, value in vars(x).items():
            value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            value = getattr(value, "method", value)  # as equinox wraps them
            if isinstance(value, types.FunctionType | int | float | str | bytes | tuple | np.ndarray):
                held[name] = value
        held = {name: value for name, value in held.items() if name not in ("__module__", "__doc__", "__qualname__")}
        held.pop("__firstlineno__", None)
        return _hash("class", x.__qualname__, self.of(held), *map(self.of, x.__bases__))

    def _of_function(self, x):
        """By code and by what it holds; None if it is an object that can be called."""
        if isinstance(x, functools.partial):
            return _hash("partial", self.of(x.func), self.of(x.args), self.of(x.keywords))
        if isinstance(x, types.MethodType):
            return _hash("method", self.of(x.__func__), self.of(x.__self__))
        if isinstance(x, JITTED):
            return _hash("jit", self.of(x.__wrapped__))  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(x, np.ufunc):
            return _hash("ufunc", x.__name__)
        if isinstance(x, types.BuiltinFunctionType | types.MethodWrapperType):
            owner = x.__self__
            held = b"" if owner is None or isinstance(owner, types.ModuleType) else self.of(owner)
            return _hash("builtin", getattr(x, "__module__", None), x.__qualname__, held)
        if not isinstance(x, types.FunctionType):
            return None
        if x.__module__ == "equinox._errors":  # they end a program, and change no values
            return _hash("error")
        cells = [cell.cell_contents if cell != types.CellType() else None for cell in x.__closure__ or ()]
        held = self.of([cells, x.__defaults__, x.__kwdefaults__])
        if is_of_library(x.__module__):
            return _hash("function", x.__module__, x.__qualname__, _version_of(x.__module__), held)
        names = globals_in(x.__code__)
        outside = {name: x.__globals__.get(name, getattr(builtins, name, None)) for name in names}
        return _hash("function", self._of_code(x.__code__), held, self.of(outside))

    def _of_code(self, code):
        constants = [self._of_code(x) if isinstance(x, types.CodeType) else self.of(x) for x in code.co_consts]
        return _hash("code", code.co_code, code.co_names, code.co_freevars, code.co_cellvars, *constants)

    def _of_object(self, x):
        """By what ``pickle`` would keep of it."""
        try:
            reduced = x.__reduce_ex__(4)
        except Exception:
            raise NotComparable(f"a {type(x).__qualname__}") from None
        if isinstance(reduced, str):
            return _hash("global", reduced)
        make, arguments, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        held = [arguments, state, None if items is None else list(items), None if pairs is None else list(pairs)]
        return _hash("object", self.of(make), self.of(held))


def _hash(*parts: Any) -> bytes:
    """A digest of words, numbers, bytes, and lists of them."""
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(f"{type(part).__name__} {len(content)} ".encode())
        digest.update(content)
    return digest.digest()


def _is_array(x) -> bool:
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        return True
    return _top(type(x)) == "jax" and hasattr(x, "__array__") and hasattr(x, "dtype")  # a constant in a program


def _is_key(x) -> bool:
    return isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)


def _top(kind) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def _version_of(module: str) -> str:
    return str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", ""))
