"""float64 is chosen aloud, kept where it is chosen, and missed where it is not."""

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
    """What a fresh Python prints: nothing here has chosen a precision."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_fresh_process_is_single_until_told_otherwise():
    script = (
        "import ukjax as uk\n"
        "T = lambda: uk.Terms([[2.0]], [1.0], [[1.0]], [0.5])\n"
        "print(T().M.dtype, uk.constrained_motion(T()).acceleration.dtype)\n"
        "uk.enable_float64()\n"
        "print(T().M.dtype, uk.constrained_motion(T()).acceleration.dtype)"
    )
    assert output(script) == ["float32", "float32", "float64", "float64"]


def test_enabling_float64_is_the_switch_of_jax():
    assert output("import jax, ukjax; ukjax.enable_float64(); print(jax.config.jax_enable_x64)") == ["True"]


@pytest.mark.parametrize("kind", (jnp.float16, jnp.float32, jnp.float64))
def test_precision_that_was_chosen_is_kept(kind):
    assert as_float(jnp.ones(2, kind)).dtype == kind


@pytest.mark.parametrize("value", (1, True, [1, 2], np.arange(3), 1.0, np.float64(2.0)))
def test_numbers_without_a_precision_get_the_default(value):
    found = as_float(jnp.asarray(value))
    assert found.dtype == jnp.float64
    np.testing.assert_array_equal(found, value)


def test_traced_numbers_stay_traced():
    assert jax.jit(as_float)(3).dtype == jnp.float64


def test_single_precision_by_choice_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_single(np.dtype("float32"))  # x64 is on here, so float32 arrays were made on purpose
        warn_if_single(np.dtype("float64"))


def test_single_precision_by_default_is_warned_of_once():
    script = (
        "import warnings, jax.numpy as jnp\n"
        "from ukjax._precision import warn_if_single\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    warn_if_single(jnp.zeros(1).dtype)\n"
        "print(len(seen), 'ukjax.enable_float64()' in str(seen[0].message), 'rtol=' in str(seen[0].message))"
    )
    assert output(script) == ["1", "True", "True"]


def test_single_and_double_in_one_system_keep_the_double():
    """A mixture is no silent loss: what was double stays so."""
    M, Q, A = (jnp.asarray(x, jnp.float32) for x in (np.eye(2), np.ones(2), np.ones((1, 2))))
    mixture = uk.Terms(M, Q, A, jnp.zeros(1))
    assert mixture.M.dtype == jnp.float32 and mixture.b.dtype == jnp.float64
    assert uk.constrained_motion(mixture).acceleration.dtype == jnp.float64
