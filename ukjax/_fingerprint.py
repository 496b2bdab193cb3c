"""Fingerprint of a computation: a digest of the model, the data, the options and the versions.

The store of an ensemble, the checkpoint of a fit and an exported simulator contain the fingerprint of their
computation, so that a later call can check whether it continues the same one.

The functions of a model are compared by their jaxprs, including all constants, nested jaxprs, branches and loops.
Functions that JAX does not trace, such as those called by ``pure_callback``, are compared by their bytecode and the
objects they refer to; if these cannot be compared, there is an error. Derivative rules (``custom_jvp``, ``custom_vjp``)
do not affect values and are ignored; if derivatives matter, ``functions`` computes them.
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

from ._errors import InputError
from ._jaxpr.location import SourceLocation
from ._outside import globals_in, is_of_library
from ._version import NUMERICS, __version__

MAX_LISTED_NUMBERS = 16
"""Largest array whose numbers are listed in a description. A larger array is described by a digest."""

MAX_OBJECTS = 100_000
"""Largest number of objects that are hashed for one function."""

WITHOUT_EFFECT = frozenset(
    ("name", "ctx_mesh", "sharding", "in_shardings", "out_shardings", "in_layouts", "out_layouts")
    + ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees")
)
"""Parameters of JAX operations that do not affect values: labels, memory layouts and shardings, derivative rules."""

PLAIN = frozenset((str, bool, int, type(None)))
"""Types whose equal values have equal digests."""

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
    """Describe a computation as JSON data that differ for different computations.

    Parameters
    ----------
    title
        Name of the model.
    model
        A pytree whose arrays are compared by name.
    functions
        A function of ``arguments`` that calls all functions on which the result depends. It is traced, not run.
    arguments
        Shapes and dtypes of the arguments of ``functions``.
    data, options
        All other inputs of the result, by name: numbers, strings, arrays, or objects such as solvers.
    purpose
        The argument that needs the fingerprint, for error messages: "store", "checkpoint".

    Returns
    -------
    dict
        Versions, device, precision, ``data`` and ``options`` (arrays in short with a digest), the digest of the
        functions, and, under "fingerprint", the digest of all of these, 64 hexadecimal digits.

    Raises
    ------
    InputError
        If a callback refers to objects that cannot be compared across processes.
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
    """Return ``description`` after a JSON round trip, with its digest under "fingerprint"."""
    written = json.dumps({name: value for name, value in description.items() if name != "fingerprint"})
    digest = hashlib.sha256(json.dumps(json.loads(written), sort_keys=True).encode()).hexdigest()
    return json.loads(written) | {"fingerprint": digest}


def versions() -> dict[str, Any]:
    """Return the versions on which computed numbers depend."""
    return {"ukjax": __version__, "numerics": NUMERICS, "jax": jax.__version__}


def numbers_of(model: Any) -> dict[str, Any]:
    """Describe the arrays of a pytree by name."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_array))
    return {jax.tree_util.keystr(path).lstrip("."): describe(x) for path, x in leaves}


def digest_of_functions(functions: Callable, arguments: Iterable[jax.ShapeDtypeStruct], purpose: str) -> str:
    """Return a digest of the jaxpr of ``functions`` with all its constants. Raises ``InputError`` as
    ``fingerprint``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = jax.make_jaxpr(functions)(*arguments)
    try:
        return Digest().of(program).hex()[:16]
    except NotComparable as error:
        raise InputError(
            f"{purpose} cannot be used here: {error}, which cannot be compared between processes, so that results "
            f"of another model could be mistaken for those of this one. Use only numbers, arrays, functions and plain "
            f"objects in it, write it with jax.numpy, or leave {purpose} out"
        ) from None


def describe(thing: Any) -> Any:
    """Describe ``thing`` as JSON data: numbers and strings unchanged, large arrays and objects in short with a
    digest."""
    if isinstance(thing, float) and not np.isfinite(thing):  # not valid in JSON, and NaN != NaN
        return str(float(thing))
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, Mapping):
        return {str(name): describe(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
        return [describe(value) for value in thing]
    array = np.asarray(thing) if _is_array(thing) and not _is_key(thing) else None
    if array is not None and array.size <= MAX_LISTED_NUMBERS:
        return describe(array.tolist())
    digest = Digest().of(thing).hex()[:16]
    if array is not None:
        return f"{array.shape} numbers from {array.flat[0]:.17g} to {array.flat[-1]:.17g} ({digest})"
    fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    values = {field.name: getattr(thing, field.name, None) for field in fields}
    plain = {name: x for name, x in values.items() if x is None or isinstance(x, bool | int | float | str)}
    return f"{type(thing).__name__}({', '.join(f'{name}={x!r}' for name, x in plain.items())}) ({digest})"


def first_difference(stored: Any, wanted: Any, where: str = "") -> str:
    """Describe the first difference of two descriptions, "" if they are equal."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in stored if key not in wanted)]:
            if text := first_difference(stored.get(key), wanted.get(key), f"{where}, {key!r}," if where else repr(key)):
                return text
        return ""
    return "" if stored == wanted else f"{where} is {_short(stored)} there, and {_short(wanted)} now"


def _short(value):
    text = "not given" if value is None else json.dumps(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:90]}..."


class NotComparable(Exception):
    """Raised for an object that cannot be compared across processes."""


class Digest:
    """Computes digests of objects by their contents, recursively. They are the same in every process."""

    def __init__(self):
        self._known: dict[int, tuple[Any, bytes]] = {}  # with the object, so that its id is not reused
        self._open: dict[int, int] = {}
        self._plain: dict[tuple[type, Any], bytes] = {}
        self._text_of_aval: dict[Any, str] = {}

    def of(self, thing: Any) -> bytes:
        """Return the digest, 32 bytes. Raises ``NotComparable``."""
        if type(thing) in PLAIN:  # most parameters of operations
            key = type(thing), thing
            if key not in self._plain:
                self._plain[key] = self._of(thing)
            return self._plain[key]
        if id(thing) in self._known:
            return self._known[id(thing)][1]
        if id(thing) in self._open:  # a cycle, such as a recursive function
            return _hash("itself", len(self._open) - self._open[id(thing)])
        if len(self._known) > MAX_OBJECTS:
            raise NotComparable(f"it holds more than {MAX_OBJECTS} objects")
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
        if isinstance(x, SourceLocation):  # a source position does not affect values
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
            fields = {field.name: getattr(x, field.name, None) for field in dataclasses.fields(x)}
            return _hash("object", self.of(type(x)), self.of(fields))
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
            return [self._text(variable.aval) for variable in variables]

        def used(variables):
            return [
                self.of(x.val).hex() + self._text(x.aval) if isinstance(x, Literal) else number[x] for x in variables
            ]

        parts: list[Any] = ["jaxpr", *map(self.of, constants), defined(jaxpr.constvars), defined(jaxpr.invars)]
        for equation in jaxpr.eqns:
            if equation.outvars:  # operations without outputs, such as printing, do not affect values
                operands, parameters = used(equation.invars), self._of_parameters(equation)
                parts.append((equation.primitive.name, operands, parameters, defined(equation.outvars)))
        return _hash(*parts, used(jaxpr.outvars))

    def _text(self, aval):
        """The text of an abstract value, made once: JAX needs tens of microseconds."""
        if aval not in self._text_of_aval:
            self._text_of_aval[aval] = str(aval)
        return self._text_of_aval[aval]

    def _of_parameters(self, equation):
        parameters = {name: x for name, x in equation.params.items() if name not in WITHOUT_EFFECT}
        try:
            return {name: self.of(x) for name, x in sorted(parameters.items())}
        except NotComparable as error:
            if "callback" not in parameters:
                raise NotComparable(f"the operation {equation.primitive.name!r} holds {error}") from None
            function = getattr(parameters["callback"], "callback_func", parameters["callback"])
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
            value = getattr(value, "method", value)  # unwraps methods wrapped by equinox
            if isinstance(value, types.FunctionType | int | float | str | bytes | tuple | np.ndarray):
                held[name] = value
        held = {name: value for name, value in held.items() if name not in ("__module__", "__doc__", "__qualname__")}
        held.pop("__firstlineno__", None)
        return _hash("class", x.__qualname__, self.of(held), *map(self.of, x.__bases__))

    def _of_function(self, x):
        """Digest of bytecode, closure, defaults and globals; None for an instance of a class with ``__call__``."""
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
            contents = b"" if owner is None or isinstance(owner, types.ModuleType) else self.of(owner)
            return _hash("builtin", getattr(x, "__module__", None), x.__qualname__, contents)
        if not isinstance(x, types.FunctionType):
            return None
        if x.__module__ == "equinox._errors":  # these raise errors and do not affect values
            return _hash("error")
        cells = [cell.cell_contents if cell != types.CellType() else None for cell in x.__closure__ or ()]
        contents = self.of([cells, x.__defaults__, x.__kwdefaults__])
        if is_of_library(x.__module__):
            return _hash("function", x.__module__, x.__qualname__, _version_of(x.__module__), contents)
        names = globals_in(x.__code__)
        outside = {name: x.__globals__.get(name, getattr(builtins, name, None)) for name in names}
        return _hash("function", self._of_code(x.__code__), contents, self.of(outside))

    def _of_code(self, code):
        constants = [self._of_code(x) if isinstance(x, types.CodeType) else self.of(x) for x in code.co_consts]
        return _hash("code", code.co_code, code.co_names, code.co_freevars, code.co_cellvars, *constants)

    def _of_object(self, x):
        """Digest of the state that ``pickle`` would store."""
        try:
            reduced = x.__reduce_ex__(4)
        except Exception:
            raise NotComparable(f"a {type(x).__qualname__}") from None
        if isinstance(reduced, str):
            return _hash("global", reduced)
        constructor, arguments, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        parts = [arguments, state, None if items is None else list(items), None if pairs is None else list(pairs)]
        return _hash("object", self.of(constructor), self.of(parts))


def _hash(*parts: Any) -> bytes:
    """Return a digest of strings, numbers, bytes, and lists of them."""
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(f"{type(part).__name__} {len(content)} ".encode())
        digest.update(content)
    return digest.digest()


def _is_array(x) -> bool:
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        return True
    return _top(type(x)) == "jax" and hasattr(x, "__array__") and hasattr(x, "dtype")  # a constant of a jaxpr


def _is_key(x) -> bool:
    return isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)


def _top(kind) -> str:
    return str(getattr(kind, "__module__", "")).partition(".")[0]


def _version_of(module: str) -> str:
    return str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", ""))
