"""Double precision, shape annotations that are checked, and random numbers that are the same every time.

XLA takes most of the time of most tests, and compiles in half of it what it is not asked to make fast. Those marked
``optimised`` are run with XLA as it is, XLA_FLAGS="", where they are slow: the notebooks, the README's examples, what
has to be the same to the last bit.

NumPy's matrices are small here: threads that wait for a share of them take time from the other tests.
"""

import gc
import os
from importlib.metadata import version

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before it is loaded: by processes of pytest-xdist, in all cases

import jax
import jaxtyping
import numpy as np
import pytest

import ukjax._kernel  # noqa: F401  before the hook: it handles numbers one by one, and so many checks would take minutes

# Left in place: the public names are imported when first used, so most modules are imported later than this one.
if not jaxtyping.config.jaxtyping_disable:
    jaxtyping.install_import_hook("ukjax", "beartype.beartype")

import ukjax  # noqa: E402

IN_HASTE = "--xla_backend_optimization_level=0"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # later ones know of no such flag, and end
    IN_HASTE += " --xla_cpu_use_fusion_emitters=false"
    IN_HASTE += " --xla_cpu_parallel_codegen_split_count=1"  # each piece costs time, and each core has its own tests
os.environ.setdefault("XLA_FLAGS", IN_HASTE)  # before anything is computed

ukjax.enable_float64()

# jax.jacrev of JAX 0.10 asks for the repr of its pullback, which writes out the whole program: up to 0.6 s per call.
if "VJP" in vars(jax._src.api):  # pyright: ignore[reportAttributeAccessIssue]
    jax._src.api.VJP.__repr__ = object.__repr__  # pyright: ignore[reportAttributeAccessIssue]


def pytest_collection_finish():
    """What is imported by now stays: looking for what could go, again and again, is a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


@pytest.fixture
def rng():
    return np.random.default_rng(20240229)


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Compiled programs of earlier modules are of no use to later ones, and a process can map only so many."""
    yield
    jax.clear_caches()
