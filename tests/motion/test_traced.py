"""Adaptive steps under ``jit`` give the same motion and derivative as without."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion.integrate import traced
from ukjax._motion.result import MOST_STEPS

from ..kernel.test_latency import compiling
from ..mechanisms import Pendulum

TS = np.array([0.0, 0.4, 1.5])
LEVEL = jnp.array([-1.0, 0.0])


def motion(length, speed, **how: Any):
    pendulum = Pendulum(length=length, copies=2)
    return uk.simulate(pendulum, LEVEL * length, jnp.array([0.0, 1.0]) * speed, TS, rtol=1e-9, throw=False, **how)


@pytest.fixture
def few_marks(monkeypatch):
    """So few checkpoints that they are thinned out several times."""
    monkeypatch.setattr(traced, "MAX_CHECKPOINTS", 4)
    monkeypatch.setattr(traced, "FIRST_STRIDE", 2)


def test_motion_under_jit_matches_eager():
    """The steps are the same, though the method is the requested one and not the fast one."""
    expected, found = motion(0.8, 0.3), jax.jit(motion)(0.8, 0.3)
    assert int(found.steps) == int(expected.steps) > 20 and found.finished
    np.testing.assert_allclose(found.q, expected.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.v, expected.v, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_reverse_derivative_of_mapped_members_matches_eager(few_marks):
    """Members under ``vmap`` take different numbers of steps."""

    def of(length, speed):
        found = motion(length, speed, max_steps=300)
        return jnp.sum(found.q[1:] ** 2 * jnp.array([1.0, 2.0])) + jnp.sum(found.v[-1]), found.steps

    slope, speeds = jax.grad(of, (0, 1), has_aux=True), jnp.array([0.3, 4.0])
    found, steps = jax.jit(jax.vmap(slope, (None, 0)))(0.8, speeds)
    assert int(steps[1]) != int(steps[0])
    np.testing.assert_allclose(np.stack(found, axis=1), [slope(0.8, x)[0] for x in speeds], rtol=1e-9)


def test_nested_vmap_matches_single_motions():
    """Members of two nested ``vmap``s have different lengths, starts and speeds."""
    ends = lambda length, speed: (lambda found: (found.q, found.v, found.steps, found.last))(motion(length, speed))
    lengths, speeds = jnp.array([0.6, 1.1]), jnp.array([0.0, 0.3, 4.0])
    alone = [[ends(length, speed) for speed in speeds] for length in lengths]
    together = jax.jit(jax.vmap(jax.vmap(ends, (None, 0)), (0, None)))(lengths, speeds)
    for i, j in np.ndindex(2, 3):
        found = jax.tree.map(lambda x, i=i, j=j: x[i, j], together)
        assert int(found[2]) == int(alone[i][j][2])
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-10), found, alone[i][j])


def test_batch_under_jit_matches_eager_and_has_derivative():
    speeds = jnp.array([0.3, 4.0])

    def ends(speeds):
        q0, v0 = jnp.tile(LEVEL, (2, 1)), jnp.stack([0 * speeds, speeds], axis=1)
        found = uk.simulate(Pendulum(), q0, v0, TS, rtol=1e-9, throw=False)
        return found.q[:, -1, 1] @ jnp.array([1.0, 2.0]), (found.q, found.steps, found.last)

    (_, found), slope = jax.jit(jax.value_and_grad(ends, has_aux=True))(speeds)
    _, expected = ends(speeds)
    np.testing.assert_array_equal(found[1], expected[1])
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-10), found, expected)
    h, away = 1e-4, np.eye(2)
    at = lambda i, k: float(ends(speeds + k * h * away[i])[0])
    difference = [(8 * (at(i, 1) - at(i, -1)) - (at(i, 2) - at(i, -2))) / (12 * h) for i in range(2)]
    np.testing.assert_allclose(slope, difference, rtol=1e-6)


def test_vmap_over_sample_times_matches_eager():
    until = lambda end: uk.simulate(Pendulum(), LEVEL, jnp.zeros(2), jnp.stack([0.0 * end, end]), rtol=1e-9).q[-1]
    ends = jnp.array([0.5, 1.0])
    found = jax.jit(jax.vmap(until))(ends)
    np.testing.assert_allclose(found, [until(end) for end in ends], rtol=0, atol=1e-11)


def test_vmap_without_jit_compiles_once():
    steps = lambda speeds: jax.vmap(lambda speed: motion(0.8, speed).steps)(speeds)
    steps(jnp.array([0.3, 4.0]))
    with compiling() as programs:
        steps(jnp.array([0.5, 3.0]))
    assert not programs


@pytest.mark.slow
def test_result_under_grad_reports_max_steps():
    def first(speed):
        found = motion(0.8, speed, max_steps=7)
        return jnp.nansum(found.q[0]), (found.result, found.q)

    slope, (result, q) = jax.jit(jax.grad(first, has_aux=True))(0.3)
    assert int(result) == MOST_STEPS and np.isnan(q[-1]).all() and np.isfinite(slope)
