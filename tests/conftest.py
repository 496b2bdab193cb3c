"""Settings of all tests: double precision, checked shape annotations, and reproducible random numbers.

XLA takes most of the time of most tests, and compiles in half the time without its costly optimisations. Tests marked
``optimised`` are slow without them and run with the default options, XLA_FLAGS="": the notebooks, the examples of the
README, and results that must be bitwise equal.

NumPy's matrices are small here, and NumPy's threads would slow down the other tests.
"""

import gc
import os
from importlib.metadata import version

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded, by processes of pytest-xdist in all cases

import jax
import jaxtyping
import numpy as np
import pytest

import ukjax._kernel  # noqa: F401  before the hook: it handles numbers one by one, and so many checks would take minutes

# The hook stays installed: public names are imported at first use, most modules therefore later.
if not jaxtyping.config.jaxtyping_disable:
    jaxtyping.install_import_hook("ukjax", "beartype.beartype")

import ukjax  # noqa: E402

IN_HASTE = "--xla_backend_optimization_level=0"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # later versions do not accept this flag, and stop
    IN_HASTE += " --xla_cpu_use_fusion_emitters=false"
    IN_HASTE += " --xla_cpu_parallel_codegen_split_count=1"  # each piece costs time, and each core has other tests
os.environ.setdefault("XLA_FLAGS", IN_HASTE)  # before JAX computes

ukjax.enable_float64()

# jax.jacrev of JAX 0.10 asks for the repr of its pullback, which writes out the whole program: up to 0.6 s per call.
if "VJP" in vars(jax._src.api):  # pyright: ignore[reportAttributeAccessIssue]
    jax._src.api.VJP.__repr__ = object.__repr__  # pyright: ignore[reportAttributeAccessIssue]


def pytest_collection_finish():
    """Freeze the imported objects: garbage collection of them would take a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


@pytest.fixture
def rng():
    return np.random.default_rng(20240229)


CACHE_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture(autouse=True)
def restore_cache_settings():
    """Restore the settings of JAX's compilation cache, which the command line changes."""
    before = {name: getattr(jax.config, name) for name in CACHE_SETTINGS}
    yield
    for name, value in before.items():
        if getattr(jax.config, name) != value:
            jax.config.update(name, value)


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Clear compiled programs: later modules do not use them, and a process can map only a limited number."""
    yield
    jax.clear_caches()
