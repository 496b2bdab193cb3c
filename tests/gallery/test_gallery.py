"""What every mechanism of the gallery has to be."""

import importlib
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from ..helpers import multiplier_motion, null_space_motion

NAMES = tuple(uk.systems.CATALOGUE)


each = pytest.mark.slow  # many mechanisms to compile


@pytest.fixture(scope="module", params=NAMES)
def state(request):
    """A mechanism at its own consistent start, its terms there and its motion."""
    mechanism = uk.systems.named(request.param)
    q, v = uk.project(mechanism, 0.0, *mechanism.start())
    terms = eqx.filter_jit(mechanism)(0.0, q, v)
    yield mechanism, q, v, terms
    jax.clear_caches()


@each
def test_coordinates_start_and_outline_fit_each_other(state):
    mechanism, q, v, _ = state
    assert len(mechanism.coordinates) == q.size == v.size
    lines = mechanism.outline(0.0, q)
    assert lines and all(line.ndim == 2 and line.shape[1] in (2, 3) for line in lines)
    assert all(np.isfinite(line).all() for line in lines)
    if mechanism.control is not None:
        assert len(mechanism.control.inputs) == mechanism.control.matrix(jnp.array(0.0), q, q).shape[1]


@each
def test_projected_start_is_consistent_and_near(state):
    mechanism, q, v, _ = state
    assert np.abs(mechanism.position_residual(0.0, q)).max(initial=0) < 1e-13
    assert np.abs(mechanism.velocity_residual(0.0, q, v)).max(initial=0) < 1e-13
    for projected, printed in zip((q, v), mechanism.start(), strict=True):
        assert np.abs(projected - printed).max() < 0.02


@each
def test_motion_is_that_of_maggi_and_of_the_multipliers(state):
    """Null-space equations always, multipliers [M −Aᵀ; A 0] where the rows are independent; both in NumPy.

    Contacts and dry friction are left out: ``test_gallery_nonsmooth`` has them.
    """
    _, _, _, terms = state
    M, Q, A, b = (np.asarray(x) for x in (terms.M, terms.Q, terms.A, terms.b))
    if terms.c is not None:
        Q = Q + np.asarray(terms.c)
    motion = uk.constrained_motion(terms)
    size = 1 + np.abs(motion.acceleration).max()
    np.testing.assert_allclose(motion.acceleration, null_space_motion(M, Q, A, b), rtol=0, atol=1e-10 * size)
    if int(motion.rank) == b.size:
        np.testing.assert_allclose(motion.acceleration, multiplier_motion(M, Q, A, b), rtol=0, atol=1e-10 * size)


@each
def test_reference_starts_where_the_motion_does(state):
    mechanism, q, v, _ = state
    if mechanism.reference(jnp.array(0.0)) is None:
        pytest.skip("no closed form")
    np.testing.assert_allclose(mechanism.reference(jnp.array(0.0)), q, rtol=0, atol=1e-10)
    np.testing.assert_allclose(jax.jacfwd(mechanism.reference)(jnp.array(0.0)), v, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_is_documented(name):
    """A drawing or equations, and units, in the class; the source in its module."""
    entry = uk.systems.CATALOGUE[name]
    module = importlib.import_module(f"ukjax.systems.{name}")
    text = inspect.getdoc(getattr(module, entry.cls)) or ""
    assert "[" in text and (module.__doc__ or "").strip()
    assert "::" in text or "``Abstract" in text, "no drawing"


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="no system is named 'four-bar'; did you mean 'four_bar'?"):
        uk.systems.named("four-bar")
