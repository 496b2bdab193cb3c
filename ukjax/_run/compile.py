"""Compiled programs of this library: how XLA compiles them, and how many are kept.

``jit(function)`` traces the arrays among the arguments and compiles ``function`` once for all else, as
``equinox.filter_jit`` does. It differs in what it keeps. Models are often defined anew, as closures in a notebook or in
a design loop, and each has programs of its own. A program holds memory maps, of which a process may have 65 530. So the
programs that were used least recently are dropped when there are too many.

The variants choose options of XLA. On a CPU it has two ways to make the code of fused operations. The newer takes
twice as long to compile, or more, and is no faster for small matrices in loops.
"""

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .._outside import external_values

MAX_PROGRAMS = 512
MAX_MAPS = 5000  # of programs, while there are programs of ours that can be dropped
MAX_KERNEL_MAPS = 40_000  # of kernels, which stay as long as the process, since any program may call them
MAPS = Path("/proc/self/maps")

FAST_COMPILE = {"xla_cpu_use_fusion_emitters": False}
UNOPTIMISED = FAST_COMPILE | {"xla_backend_optimization_level": 0}
BATCH = FAST_COMPILE | {"xla_cpu_prefer_vector_width": 512}  # bits: eight members at a time, where a processor can
REMOVED = {"xla_cpu_use_fusion_emitters": (0, 11)}
"""The first version of jaxlib that does not know an option."""


def jit(function: Callable) -> "Program":
    """``function`` of pytrees as one program, with XLA's own options."""
    return Program(function, {})


def jit_fast_compile(function: Callable) -> "Program":
    """The same for small matrices and long loops: as fast as any, compiled in half the time."""
    return Program(function, FAST_COMPILE)


def jit_unoptimised(function: Callable) -> "Program":
    """The same for what runs once or twice: to check a start, or to describe an end."""
    return Program(function, UNOPTIMISED)


def jit_batch(function: Callable) -> "Program":
    """The same for a batch: by vectors as wide as the processor has."""
    return Program(function, BATCH)


def traced_once(function: Callable) -> Callable:
    """The same function of pytrees as one call in every program that it is part of: JAX traces it once for all
    arguments whose arrays are of like shapes and types. To be used on what holds no number that is being traced."""
    program = Program(function, {})

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        static, arrays = split(arguments)
        return program.of(static, arrays) if static.is_hashable() else function(*arguments)

    return wrapped


class Program:
    """A function of pytrees, compiled for each structure and each value of its arguments that is no array."""

    def __init__(self, function: Callable, options: dict[str, Any]):
        self.function = function
        self.options = {name: value for name, value in options.items() if _is_known(name)}
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.of(*split(arguments))

    def of(self, static: "Static", arrays: Sequence[Any]) -> Any:
        """The same for arguments that are split."""
        return joined(self._compiled(static, arrays)(*arrays))

    def compiled(self, *arguments: Any) -> Callable:
        """The program for arguments like these, compiled by now. It may be called in any thread."""
        with _compiling:
            executable = self.lower(*arguments).compile()
        return lambda *others: joined(executable(*split(others)[1]))

    def lower(self, *arguments: Any) -> jax.stages.Lowered:
        """The program for arguments like these, traced and not yet compiled."""
        static, arrays = split(arguments)
        return self._compiled(static, arrays).lower(*arrays)

    def _compiled(self, static, arrays):
        # JAX does not take options within another program, and differentiates a program as part of another.
        nested = any(isinstance(x, jax.core.Tracer) for x in arrays) or is_tracing()
        options = None if nested else self.options
        return _cached((self, static, options is None), lambda: _jitted(self.function, static, options))


def cached(key: Hashable, function: Callable) -> Callable:
    """``jax.jit(function)`` of arrays, counted among these programs. Equal keys stand for equal functions."""
    return _cached(key, lambda: jax.jit(function))


def is_tracing() -> bool:
    """Whether JAX traces every operation now, as within ``jit`` or ``scan``: an array that is made is a tracer then."""
    return isinstance(_number(), jax.core.Tracer)


class kept(functools.cached_property):
    """A property of an object that never changes, computed once. What is made while JAX traces is not kept: it may hold
    numbers of a program that is being traced."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None or not is_tracing():
            return super().__get__(instance, owner)
        return self.func(instance)


class Recent:
    """Values by key, made when they are asked for first; when there are more than so many, those that were used least
    recently are dropped."""

    def __init__(self, most: int):
        self.most = most
        self.values: OrderedDict[Hashable, Any] = OrderedDict()
        self.lock = threading.Lock()

    def of(self, key: Hashable, make: Callable[[], Any]) -> Any:
        with self.lock:
            if key not in self.values:
                self.values[key] = make()
            self.values.move_to_end(key)
            if len(self.values) > self.most:
                self.values.popitem(last=False)
            return self.values[key]


_number = jax.jit(lambda: jnp.zeros(()))
_programs: OrderedDict[Hashable, Callable] = OrderedDict()
_lock, _compiling = threading.Lock(), threading.RLock()


def _cached(key, make):
    with _lock:
        if key not in _programs:
            _drop()
            _programs[key] = make()
        _programs.move_to_end(key)
        return _programs[key]


def _drop():
    """Make room for a program. What a program holds goes with its function: JAX's own caches do not keep that."""
    while _programs and (len(_programs) >= MAX_PROGRAMS or _maps() - _kernel_maps > MAX_MAPS):
        for _ in range(-(-len(_programs) // 8)):
            _programs.popitem(last=False)


def kept_for_good(link: Callable[[], Any]) -> Any:
    """``link()``, which loads a kernel."""
    global _kernel_maps
    before = _maps()
    found = link()
    _kernel_maps += max(0, _maps() - before)
    return found


def has_room_for_kernels() -> bool:
    """Whether this process may have more of them."""
    return _kernel_maps < MAX_KERNEL_MAPS


_kernel_maps = 0


def _maps():
    """How many memory maps this process has; 0 where the system does not say."""
    try:
        return MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def _told_apart(x):
    """A key of a value that has programs of its own: 1, 1.0 and True are equal, and so are 0.0 and −0.0, but not their
    programs; and the numbers that a function reads from outside may have changed."""
    if isinstance(x, complex | float):
        return type(x), repr(x)
    return (type(x), x, external_values(x)) if callable(x) and not isinstance(x, type) else (type(x), x)


class Static:
    """A pytree without its arrays, which stand in ``values`` as ``ARRAY``. It is itself a pytree without leaves."""

    def __init__(self, tree: Any, values: Sequence[Any]):
        self.tree, self.values = tree, values
        self.key = tree, *map(_told_apart, values)

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return isinstance(other, Static) and self.key == other.key

    def is_hashable(self) -> bool:
        try:
            hash(self)
        except TypeError:
            return False
        return True

    def join(self, arrays: Sequence[Any]) -> Any:
        """The pytree with these arrays."""
        others = iter(arrays)
        return self.tree.unflatten([next(others) if x is ARRAY else x for x in self.values])


ARRAY = type("Array", (), {"__repr__": lambda _: "an array"})()
jax.tree_util.register_pytree_node(Static, lambda static: ((), static), lambda static, _: static)


def split(values: Any) -> tuple[Static, list[Any]]:
    """A pytree as what is static in it, and its arrays."""
    leaves, tree = jax.tree.flatten(values)
    is_array = [isinstance(x, jax.Array | np.ndarray | np.generic) for x in leaves]
    arrays = [x for x, array in zip(leaves, is_array, strict=True) if array]
    return Static(tree, [ARRAY if array else x for x, array in zip(leaves, is_array, strict=True)]), arrays


def joined(results: tuple[Static, Sequence[Any]]) -> Any:
    """The pytree of what ``split`` gave."""
    static, arrays = results
    return static.join(arrays)


def _jitted(function, static, options):
    @functools.wraps(function)
    def of_arrays(*arrays):
        with usual_promotion():
            return split(function(*static.join(arrays)))

    return jax.jit(of_arrays, compiler_options=options or None)


@contextlib.contextmanager
def usual_promotion() -> Iterator[None]:
    """Shapes and types are promoted as NumPy does it, whatever a user's program allows itself."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def _is_known(option):
    installed = tuple(map(int, version("jaxlib").split(".")[:2]))
    return option not in REMOVED or installed < REMOVED[option]
