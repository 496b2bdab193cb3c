"""A task as it is sent to workers, with functions and classes that a script of the user's defines.

Functions go by value, if there is cloudpickle. Classes of equinox cannot: what a class of theirs is to JAX is settled
when it is made, and cloudpickle makes it empty and fills it later. So the script itself is sent, and run by the worker
as an import would, for its definitions.
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

from .._precision import is_double_allowed

DOUBLE, SINGLE = b"D", b"S"
"""How a parcel begins: in which precision JAX is to compute."""

SCRIPT = "__ukjax_script__"
"""What a script is called while a worker runs it, so that it is not the main program."""


def packed(task: Any) -> bytes:
    """``task`` as it is sent, or ``ValueError`` where it cannot be."""
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = None
    try:
        if cloudpickle is None:
            content = pickle.dumps(task)
        else:
            to = io.BytesIO()
            _pickler(cloudpickle)(to).dump(task)
            content = to.getvalue()
    except ValueError:
        raise
    except Exception as error:
        how = "; functions of your own need cloudpickle: pip install 'ukjax[dask]'" if cloudpickle is None else ""
        raise ValueError(f"executor cannot be sent the ensemble: {type(error).__name__}: {error}{how}") from None
    return (DOUBLE if is_double_allowed() else SINGLE) + content


@lru_cache(maxsize=4)
def unpacked(parcel: bytes) -> Any:
    """The same again, one object for all of its chunks, so that it is compiled once."""
    if parcel.startswith(DOUBLE):  # before the first array is made
        jax.config.update("jax_enable_x64", True)
    return pickle.loads(parcel[1:])


def is_running_script() -> bool:
    """Whether this thread of a worker is in the middle of a user's script, of which it needs the definitions alone.
    Other threads of the same worker may compute meanwhile."""
    return getattr(_running, "now", False)


def _pickler(cloudpickle):
    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj):
            if isinstance(obj, type) and issubclass(obj, eqx.Module) and obj.__module__ in ("__main__", SCRIPT):
                return _class_of_script, (_source(obj), obj.__qualname__)
            return super().reducer_override(obj)

    return Pickler


def _source(found) -> str:
    path = getattr(sys.modules.get(found.__module__), "__file__", None)
    if path is None or "<locals>" in found.__qualname__ or not Path(path).is_file():
        raise ValueError(
            f"executor cannot be sent the class {found.__qualname__}, since it is defined in a notebook or inside a "
            "function: put it into a module that workers can import"
        )
    return Path(path).read_text(encoding="utf-8")


_lock = threading.Lock()
_running = threading.local()
_scripts: dict[str, types.ModuleType] = {}


def _class_of_script(source: str, name: str) -> Any:
    """A class that a script defines."""
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
    found: Any = _scripts[key]
    for part in name.split("."):
        found = getattr(found, part)
    return found
