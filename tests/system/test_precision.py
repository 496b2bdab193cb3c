"""float64 must be enabled, and is then preserved. Without it there is one warning."""

import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._precision import as_float, warn_if_single


def output(script):
    """The output of a new Python process, in which no precision is chosen."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_new_process_uses_float32_until_float64_is_enabled():
    script = (
        "import ukjax as uk\n"
        "T = lambda: uk.Terms([[2.0]], [1.0], [[1.0]], [0.5])\n"
        "print(T().M.dtype, uk.constrained_motion(T()).acceleration.dtype)\n"
        "uk.enable_float64()\n"
        "print(T().M.dtype, uk.constrained_motion(T()).acceleration.dtype)"
    )
    assert output(script) == ["float32", "float32", "float64", "float64"]


def test_enable_float64_sets_the_option_of_jax():
    assert output("import jax, ukjax; ukjax.enable_float64(); print(jax.config.jax_enable_x64)") == ["True"]


@pytest.mark.parametrize("kind", (jnp.float16, jnp.float32, jnp.float64))
def test_chosen_precision_is_preserved(kind):
    assert as_float(jnp.ones(2, kind)).dtype == kind


@pytest.mark.parametrize("value", (1, True, [1, 2], np.arange(3), 1.0, np.float64(2.0)))
def test_numbers_without_a_precision_get_the_default_precision(value):
    found = as_float(jnp.asarray(value))
    assert found.dtype == jnp.float64
    np.testing.assert_array_equal(found, value)


def test_traced_numbers_get_the_default_precision():
    assert jax.jit(as_float)(3).dtype == jnp.float64


def test_chosen_single_precision_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_single(np.dtype("float32"))  # x64 is on here, so float32 arrays were made on purpose
        warn_if_single(np.dtype("float64"))


def test_default_single_precision_gives_one_warning():
    script = (
        "import warnings, jax.numpy as jnp\n"
        "from ukjax._precision import warn_if_single\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    warn_if_single(jnp.zeros(1).dtype)\n"
        "print(len(seen), 'ukjax.enable_float64()' in str(seen[0].message), 'rtol=' in str(seen[0].message))"
    )
    assert output(script) == ["1", "True", "True"]


def test_mixed_precision_gives_float64():
    """A mixture does not lose the precision of float64."""
    M, Q, A = (jnp.asarray(x, jnp.float32) for x in (np.eye(2), np.ones(2), np.ones((1, 2))))
    mixture = uk.Terms(M, Q, A, jnp.zeros(1))
    assert mixture.M.dtype == jnp.float32 and mixture.b.dtype == jnp.float64
    assert uk.constrained_motion(mixture).acceleration.dtype == jnp.float64
