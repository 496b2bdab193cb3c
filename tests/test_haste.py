"""Programs that are compiled sooner are the same programs, whatever XLA knows of."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ukjax import _haste
from ukjax._haste import at_once, soon


@pytest.fixture
def options(monkeypatch):
    monkeypatch.setattr(_haste, "_unknown", set())
    return monkeypatch


def sine(x):
    return jnp.sin(x)


@pytest.mark.parametrize("how", (soon, at_once))
def test_nothing_changes_but_the_compiler(how):
    np.testing.assert_allclose(how(sine)(jnp.ones(3)), np.sin(1), rtol=1e-15)
    np.testing.assert_allclose(jax.jit(jax.grad(how(sine)))(1.0), np.cos(1), rtol=1e-15)


def test_an_option_that_xla_does_not_know_is_asked_for_once(options):
    tried = []
    options.setattr(_haste, "SOON", {"xla_no_such_option": True, "xla_backend_optimization_level": 0})
    function = soon(lambda x: tried.append(None) or jnp.sin(x))
    for _ in range(3):
        np.testing.assert_allclose(function(jnp.ones(3)), np.sin(1), rtol=1e-15)
    assert _haste._unknown == {"xla_no_such_option"} and len(tried) == 2
    program = _haste.compiled_soon(jax.jit(sine), jnp.ones(3))
    np.testing.assert_allclose(program(jnp.ones(3)), np.sin(1), rtol=1e-15)
    assert gc.isenabled()


def test_what_goes_wrong_in_a_program_is_raised():
    with pytest.raises(ValueError, match="of its own"):
        soon(raises)(jnp.ones(3))


def raises(x):
    raise ValueError("of its own")
