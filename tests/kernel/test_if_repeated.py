"""Functions that usually run once: NumPy beside XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ukjax as uk
from ukjax._kernel import if_repeated
from ukjax._kernel.graph.graph import TooLarge
from ukjax._kernel.if_repeated import jit_if_repeated
from ukjax._kernel.unroll import evaluator
from ukjax._kernel.unroll.evaluator import evaluate
from ukjax._kernel.unsupported import Unsupported

from ..random_functions import random_function


def by_numpy(function, *arguments):
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return jax.tree.structure(shapes).unflatten(evaluate(traced, jax.tree.leaves(arguments)))


def check(function, *arguments, close=0.0):
    found, expected = by_numpy(function, *arguments), jax.jit(function)(*arguments)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=close, atol=close)


@pytest.mark.parametrize("seed", range(8))
def test_random_functions_of_loops_and_choices(seed, monkeypatch):
    monkeypatch.setattr(evaluator, "MAX_REPETITIONS", 1000)
    rng = np.random.default_rng(seed)
    check(random_function(seed), rng.normal(size=3), np.asarray(seed % 3), close=1e-12)


X = np.array([[3.0, -1.0, np.nan, 0.0], [2.0, -0.0, 1.0, -np.inf], [2.0, 7.0, np.inf, 0.0]])


@pytest.mark.parametrize("axis", (0, 1, (0, 1)))
@pytest.mark.parametrize("name", ("sum", "prod", "max", "min", "any", "all"))
def test_reductions(name, axis):
    check(lambda x: getattr(jnp, name)(x, axis=axis), X, close=1e-15)
    check(lambda x: getattr(jnp, name)(x > 1, axis=axis), X)


@pytest.mark.parametrize("axis", (0, 1))
def test_what_runs_along_an_axis(axis):
    for find in (jnp.argmax, jnp.argmin):
        check(lambda x, find=find: find(x, axis=axis), X)
    for way in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin):
        for reverse in (False, True):
            check(lambda x, way=way, reverse=reverse: way(x, axis=axis, reverse=reverse), X, close=1e-15)
    check(lambda x: jnp.sort(x, axis=axis), X)
    check(lambda x: jnp.argsort(x, axis=axis, stable=True), X)
    check(lambda x: lax.sort((jnp.floor(x), -x, x > 0), dimension=axis, num_keys=2), X)


def test_an_empty_reduction_is_the_identity():
    check(lambda x: (x.sum(), x.prod(), jnp.max(x, initial=-1.0)), np.zeros((0, 3)))


@pytest.mark.parametrize("name", ("FourBar", "ParallelManipulator", "RollingDisk", "Scara", "Woodpecker"))
def test_the_terms_of_systems_in_one_and_many(name):
    system = getattr(uk.systems, name)()
    q, v = (np.asarray(x) for x in system.start())
    check(lambda t, q, v: system.passive(t, q, v), np.asarray(0.3), q, v + 0.1, close=1e-12)
    many = lambda x: np.stack([x, x + 0.01, x - 0.02])
    check(jax.vmap(lambda q, v: system.passive(0.3, q, v)), many(q), many(v), close=1e-12)


def test_the_third_call_is_compiled():
    calls = []
    program = jit_if_repeated(lambda x: calls.append(x) or {"y": jnp.sin(x) @ x})
    x = np.arange(3.0)
    results = [program(x) for _ in range(4)]
    assert len(calls) == 1  # traced once
    assert all(isinstance(result["y"], jax.Array) for result in results)
    np.testing.assert_allclose([result["y"] for result in results], np.sin(x) @ x, rtol=1e-15)


def test_compiled_at_once():
    refused = []

    def attempt(*arguments):
        try:
            return evaluate(*arguments)
        except (TooLarge, Unsupported) as error:
            refused.append(type(error))
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(if_repeated, "evaluate", attempt)
        long_loop = jit_if_repeated(lambda x: lax.fori_loop(0, 5000, lambda _, x: x + 0.5, x))
        assert long_loop(np.float64(1.0)) == 2501
        endless = jit_if_repeated(lambda x: lax.while_loop(lambda x: x < 5000, lambda x: x + 0.5, x))
        assert endless(np.float64(1.0)) == endless(np.float64(1.0)) == 5000
        cholesky = jit_if_repeated(jnp.linalg.cholesky)
        np.testing.assert_allclose(cholesky(np.diag([4.0, 9.0])), np.diag([2.0, 3.0]))
        circle = jit_if_repeated(lambda x: jnp.abs(jnp.exp(1j * x) - 1))
        np.testing.assert_allclose(circle(np.array([0.0, np.pi])), [0, 2], atol=1e-15)
        batch = jit_if_repeated(jax.vmap(uk.per_member(lambda x: jnp.sin(x[0]) + x)))
        x = np.arange(6.0).reshape(2, 3)
        np.testing.assert_allclose(batch(x), np.sin(x[:, :1]) + x, rtol=1e-15)
        large = jit_if_repeated(lambda x: x + 1)
        assert large(np.zeros(100_000))[-1] == 1
    assert refused == [TooLarge, TooLarge, *3 * [Unsupported], TooLarge]
    drawn = jit_if_repeated(lambda key: jax.random.uniform(key))
    assert 0 <= drawn(jax.random.key(1)) < 1


def test_the_same_motion_again_has_the_same_bits():
    system = uk.systems.FourBar()
    q, v = system.start()
    motions = [uk.simulate(system, q, v, [0.0, 0.2]) for _ in range(4)]
    for motion in motions[1:]:
        np.testing.assert_array_equal(motion.q, motions[0].q)
        assert motion.steps == motions[0].steps


def test_nan_is_looked_for_by_jax():
    program = jit_if_repeated(lambda x: jnp.log(x))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        program(np.float64(-1.0))
