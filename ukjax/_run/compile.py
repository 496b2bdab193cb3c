"""Compile functions of pytrees with XLA, and cache the compiled programs.

``jit(function)`` traces the arrays among the arguments and compiles once for each value of all other arguments, as
``equinox.filter_jit`` does. The difference is the cache. Models are often defined again, as closures in a notebook or
in a design loop, and each has its own programs. A program holds memory maps, and a process may have 65 530 of them.
Therefore the least recently used programs are dropped when there are too many.

The variants set options of XLA. On a CPU, XLA has two code generators for fused operations. The newer one takes at
least twice as long to compile, and its code is no faster for small matrices in loops.
"""

import contextlib
import functools
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._flatten import Flat, flat_of, is_flattened_once, remembered_by
from .._jaxpr.tracing import is_executed_at_once, is_traced, is_tracing, settings_number
from .._outside import code_in, external_values

MAX_PROGRAMS = 256
"""Largest number of programs that are kept. One of a small model takes 2 MB."""

MIN_PROGRAMS = 64
"""Number of programs that are kept even if the process has too many memory maps. The maps may belong to programs of the
user, and without any cached program ``simulate`` would compile in every call."""
MAX_MAPS = 20_000  # memory maps, kernels excluded; beyond it, programs are dropped
MAX_KERNEL_MAPS = 40_000  # memory maps of kernels; never unloaded, since any program may call them
MAPS = Path("/proc/self/maps")

FAST_COMPILE = {"xla_cpu_use_fusion_emitters": False}
UNOPTIMISED = FAST_COMPILE | {"xla_backend_optimization_level": 0}
BATCH = FAST_COMPILE | {"xla_cpu_prefer_vector_width": 512}  # bits: eight float64 members, if the processor can
REMOVED = {"xla_cpu_use_fusion_emitters": (0, 11)}
"""For each removed option, the first jaxlib version without it."""


def jit(function: Callable) -> "Program":
    """Compile ``function`` of pytrees with XLA's default options."""
    return Program(function, {})


def jit_fast_compile(function: Callable) -> "Program":
    """Compile for small matrices and long loops: half the compile time, and the code is as fast."""
    return Program(function, FAST_COMPILE)


def jit_unoptimised(function: Callable) -> "Program":
    """Compile without optimisation, for functions that run once or twice, such as checks of a start or an end."""
    return Program(function, UNOPTIMISED)


def jit_batch(function: Callable) -> "Program":
    """Compile for a batch, with the widest vectors of the processor."""
    return Program(function, BATCH)


def traced_once(function: Callable) -> Callable:
    """Decorate ``function`` of pytrees so that JAX traces it once for all arguments of the same shapes and types.

    It becomes one call in every program that uses it. It must not close over traced values.
    """
    program = Program(function, {})

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        static, arrays = split(arguments)
        return program.of(static, arrays) if static.is_hashable() else function(*arguments)

    return wrapped


class Program:
    """A function of pytrees, compiled for each tree structure and for each value of its arguments that is not an
    array."""

    def __init__(self, function: Callable, options: dict[str, Any]):
        self.function = function
        self.options = {name: value for name, value in options.items() if _is_known(name)}
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.of(*split(arguments))

    def of(self, static: "Static", arrays: Sequence[Any]) -> Any:
        """Call the function with arguments that were split by ``split``."""
        return join(self._compiled(static, arrays)(*arrays))

    def compiled(self, *arguments: Any) -> Callable:
        """Compile for arguments of this structure and return a callable, which may be used in any thread."""
        executable = self.executable(*split(arguments))
        return lambda *others: executable(*split(others)[1])

    def executable(self, static: "Static", arrays: Sequence[Any]) -> Callable:
        """Compile for concrete arguments that were split by ``split``, once for arrays of these kinds. Return a
        callable of arrays, which may be used in any thread."""
        key = self, static, settings_number(), tuple(map(_kind, arrays))
        with _compiling:
            executable = _cached(key)
            if executable is None:
                compiled = self._compiled(static, arrays).lower(*arrays).compile()
                executable = _cached(key, lambda: compiled)
        return lambda *others: join(executable(*others))

    def lower(self, *arguments: Any) -> jax.stages.Lowered:
        """Trace for arguments of this structure without compiling."""
        static, arrays = split(arguments)
        return self._compiled(static, arrays).lower(*arrays)

    def _compiled(self, static, arrays):
        # JAX accepts no compiler options within another program; reverse mode also makes a program part of another.
        nested = not all(map(is_executed_at_once, arrays)) or is_tracing()
        options = None if nested else self.options
        return _cached((self, static, options is None), lambda: _jitted(self.function, static, options))


def cached(key: Hashable, function: Callable) -> Callable:
    """Return ``jax.jit(function)`` of pytrees of arrays, stored in the same cache.

    Equal keys must stand for equal functions.
    """
    return _cached(key, lambda: jax.jit(_promoting(function)))


class cached_unless_tracing(functools.cached_property):
    """A property of an immutable object, computed once.

    The value is not stored while JAX is tracing, since it may contain tracers.
    """

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None or not is_flattened_once(instance):
            is_kept = instance is None or not is_tracing()
            return super().__get__(instance, owner) if is_kept else self.func(instance)
        remembered = remembered_by(instance)
        if self in remembered:
            return remembered[self]
        value = self.func(instance)
        if not is_tracing():
            remembered[self] = value
        return value


class LRUCache:
    """Cache of values by key; beyond ``limit`` values, the least recently used one is dropped."""

    def __init__(self, limit: int):
        self.limit = limit
        self.values: OrderedDict[Hashable, Any] = OrderedDict()
        self.lock = threading.Lock()

    def of(self, key: Hashable, make: Callable[[], Any]) -> Any:
        key = _HashedOnce(key)
        with self.lock:
            if key not in self.values:
                self.values[key] = make()
            self.values.move_to_end(key)
            if len(self.values) > self.limit:
                self.values.popitem(last=False)
            return self.values[key]


class _HashedOnce:
    """A key whose hash is computed once: that of a solver takes longer than the search in a dictionary."""

    def __init__(self, key: Hashable):
        self.key, self.hash = key, hash(key)

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        return self.key == other.key


_programs: OrderedDict[_HashedOnce, Callable] = OrderedDict()
_lock, _compiling = threading.Lock(), threading.RLock()


def _cached(key: Hashable, make: Callable[[], Any] | None = None) -> Any:
    """Return the program of ``key``, made by ``make()`` at the first use; None without ``make``."""
    key = _HashedOnce(key)
    with _lock:
        if key not in _programs:
            if make is None:
                return None
            _drop()
            _programs[key] = make()
        _programs.move_to_end(key)
        return _programs[key]


def _drop():
    """Drop the least recently used programs until there is room for one more.

    The memory of a program is freed with its function: JAX's own caches do not contain it.
    """
    while len(_programs) >= MAX_PROGRAMS or len(_programs) >= MIN_PROGRAMS and _maps() - _kernel_maps > MAX_MAPS:
        for _ in range(-(-len(_programs) // 8)):
            _programs.popitem(last=False)


def link_kernel(link: Callable[[], Any]) -> Any:
    """Return ``link()``, which loads a kernel, and count the memory maps that it adds."""
    global _kernel_maps
    before = _maps()
    kernel = link()
    _kernel_maps += max(0, _maps() - before)
    return kernel


def has_room_for_kernels() -> bool:
    """Return whether this process may load more kernels."""
    return _kernel_maps < MAX_KERNEL_MAPS


_kernel_maps = 0


def _maps():
    """Return the number of memory maps of this process; 0 if the system does not report it."""
    try:
        return MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def _cache_key(x):
    """Return a cache key of a static value: 1, 1.0 and True are equal, and so are 0.0 and −0.0, but their programs
    differ."""
    return (type(x), repr(x)) if isinstance(x, complex | float) else (type(x), x)


class _Structure:
    """The structure of a pytree and the code that it contains. The hash and this search take longer than the call of a
    program, so that they are done once."""

    def __init__(self, tree: Any):
        self.tree, self.methods = tree, code_in(tree)

    @functools.cached_property
    def _hash(self):
        return hash(self.tree)

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        return self is other or isinstance(other, _Structure) and self.tree == other.tree


@functools.lru_cache(maxsize=512)
def _remembered_structure(tree):
    return _Structure(tree)


def _structure_of(tree):
    try:
        return _remembered_structure(tree)
    except TypeError:  # a static field that cannot be hashed
        return _Structure(tree)


class Static:
    """A pytree whose arrays are replaced by ``ARRAY`` in ``values``, and each ``FlattenedOnce`` within it by its own
    ``Static``. It is itself a pytree without leaves.

    Its key contains the numbers that its functions read from outside, since they may have changed.
    """

    def __init__(self, tree: Any, values: Sequence[Any]):
        self.tree, self.values = tree, values
        self.count = sum(x.count if isinstance(x, Static) else x is ARRAY for x in values)
        self.functions = [x for x in values if x is not ARRAY and callable(x) and not isinstance(x, type)]
        self.has_floats = any(type(x) is float for x in values)
        structure = _structure_of(tree)
        self._methods = structure.methods
        keys = [x if x is ARRAY or x is None else _cache_key(x) for x in values]
        self.key = structure, self._outside(), *keys
        self._answers: dict[Callable, Any] = {}

    def ask(self, question: Callable[[Any], Any], tree: Any) -> Any:
        """Return ``question(tree)`` for the pytree that was split, computed once unless JAX is tracing."""
        if question in self._answers:
            return self._answers[question]
        answer = question(tree)
        if not is_tracing():
            self._answers[question] = answer
        return answer

    def _outside(self):
        return external_values(*self._methods), *map(external_values, self.functions)

    def current(self) -> "Static":
        """Return this object, or a new one if the numbers that its functions read from outside have changed."""
        has_code = self._methods or self.functions
        return Static(self.tree, self.values) if has_code and self._outside() != self.key[1] else self

    @functools.cached_property
    def _hash(self):
        return hash(self.key)

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        return self is other or isinstance(other, Static) and self.key == other.key

    def is_hashable(self) -> bool:
        try:
            hash(self)
        except TypeError:
            return False
        return True

    def join(self, arrays: Sequence[Any]) -> Any:
        """Return the pytree with these arrays filled in."""
        remaining = iter(arrays)
        fill = lambda x: x.join(list(itertools.islice(remaining, x.count))) if isinstance(x, Static) else x
        return self.tree.unflatten([next(remaining) if x is ARRAY else fill(x) for x in self.values])


ARRAY = type("Array", (), {"__repr__": lambda _: "an array"})()
jax.tree_util.register_pytree_node(Static, lambda static: ((), static), lambda static, _: static)


def split(values: Any) -> tuple[Static, list[Any]]:
    """Split a pytree into its static part and its arrays."""
    if is_flattened_once(values):
        flat = flat_of(values)
        static, arrays = flat.ask(_split_flat)
        return static.current(), arrays
    leaves, tree = jax.tree.flatten(values, is_leaf=is_flattened_once)
    arrays, static = [], []
    for x in leaves:
        if _is_array(x):
            arrays.append(x)
            static.append(ARRAY)
        elif is_flattened_once(x):
            part, numbers = split(x)
            arrays += numbers
            static.append(part)
        else:
            static.append(x)
    return Static(tree, static), arrays


def _split_flat(flat: Flat) -> tuple[Static, list[Any]]:
    arrays = [x for x in flat.leaves if _is_array(x)]
    return Static(flat.tree, [ARRAY if _is_array(x) else x for x in flat.leaves]), arrays


def _kind(x):
    """The properties of a concrete array, without its values, on which a compiled program depends."""
    return (x.aval, x.sharding) if isinstance(x, jax.Array) else (x.shape, x.dtype)


_array_types: set[type] = set()


def _is_array(x):
    """Return whether ``x`` is an array. JAX's own test takes a microsecond, so types of arrays are remembered."""
    if type(x) in _array_types:
        return True
    if not isinstance(x, jax.Array | np.ndarray | np.generic):
        return False
    if not is_traced(x):
        _array_types.add(type(x))
    return True


def join(results: tuple[Static, Sequence[Any]]) -> Any:
    """Return the pytree that ``split`` has split."""
    static, arrays = results
    return static.join(arrays)


def _jitted(function, static, options):
    """Return ``jax.jit`` of ``function`` with its static arguments fixed."""

    @functools.wraps(function)
    def of_arrays(*arrays):
        return split(function(*static.join(arrays)))

    return jax.jit(_promoting(of_arrays), compiler_options=options or None)


def _promoting(function):
    """Return ``function`` with NumPy's promotion of shapes and types."""

    @functools.wraps(function)
    def promoting(*arguments):
        with standard_promotion():
            return function(*arguments)

    return promoting


@contextlib.contextmanager
def standard_promotion() -> Iterator[None]:
    """Use NumPy's promotion of shapes and types, whatever the user has configured."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@functools.cache
def _is_known(option):
    """Return whether the installed jaxlib has an option of XLA."""
    installed = tuple(map(int, version("jaxlib").split(".")[:2]))
    return option not in REMOVED or installed < REMOVED[option]
