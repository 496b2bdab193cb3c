"""Serialise a task for workers, including functions and classes that the user's script defines.

If cloudpickle is installed, functions are pickled by value. Subclasses of ``equinox.Module`` cannot be: Equinox
registers a class with JAX when the class is created, and cloudpickle creates it empty and fills it later. The source of
the script is sent instead, and the worker executes it as an import would, for its definitions.
"""

import hashlib
import io
import pickle
import sys
import threading
import types
from functools import lru_cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from .._errors import InputError
from .._precision import is_double_allowed

DOUBLE, SINGLE = b"D", b"S"
"""First byte of a parcel: the precision in which JAX computes."""

SCRIPT = "__ukjax_script__"
"""``__name__`` of a script that a worker executes: not ``"__main__"``, so that its main part is skipped."""


def packed(task: Any) -> bytes:
    """Serialise ``task`` to bytes; raises ``InputError`` if it cannot be pickled."""
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = None
    try:
        if cloudpickle is None:
            content = pickle.dumps(task)
        else:
            buffer = io.BytesIO()
            _pickler(cloudpickle)(buffer).dump(task)
            content = buffer.getvalue()
    except ValueError:
        raise
    except Exception as error:
        advice = "; functions of your own need cloudpickle: pip install 'ukjax[dask]'" if cloudpickle is None else ""
        raise InputError(f"the ensemble cannot be sent to executor: {type(error).__name__}: {error}{advice}") from None
    return (DOUBLE if is_double_allowed() else SINGLE) + content


@lru_cache(maxsize=4)
def unpacked(parcel: bytes) -> Any:
    """Deserialise a task. The result is cached: all chunks use one object, so that it is compiled once."""
    if parcel.startswith(DOUBLE):  # before the first array is made
        jax.config.update("jax_enable_x64", True)
    return pickle.loads(parcel[1:])


def is_running_script() -> bool:
    """Whether this thread of a worker is executing the user's script for its definitions. Other threads of the same
    worker may compute meanwhile."""
    return getattr(_running, "now", False)


def _pickler(cloudpickle):
    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj):
            if isinstance(obj, type) and issubclass(obj, eqx.Module) and obj.__module__ in ("__main__", SCRIPT):
                return _class_of_script, (_source(obj), obj.__qualname__)
            return super().reducer_override(obj)

    return Pickler


def _source(cls) -> str:
    """The source of the script that defines this class."""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if path is None or "<locals>" in cls.__qualname__ or not Path(path).is_file():
        raise InputError(
            f"the class {cls.__qualname__} cannot be sent to executor, since it is defined in a notebook or inside a "
            "function: define it in a module that workers can import"
        )
    return Path(path).read_text(encoding="utf-8")


_lock = threading.Lock()
_running = threading.local()
_scripts: dict[str, types.ModuleType] = {}


def _class_of_script(source: str, name: str) -> Any:
    """The class ``name`` of the script with this source, which is executed once per process."""
    key = hashlib.sha256(source.encode()).hexdigest()
    with _lock:
        if key not in _scripts:
            module = sys.modules[SCRIPT] = types.ModuleType(SCRIPT)
            _running.now = True
            try:
                exec(compile(source, SCRIPT, "exec"), module.__dict__)
            finally:
                _running.now = False
            _scripts[key] = module
    value: Any = _scripts[key]
    for part in name.split("."):
        value = getattr(value, part)
    return value
