"""Functions that usually run once are evaluated by NumPy, with the results of XLA."""

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
def test_random_functions_with_loops_and_branches_match_xla(seed, monkeypatch):
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
def test_sorts_and_cumulative_operations_along_an_axis(axis):
    for find in (jnp.argmax, jnp.argmin):
        check(lambda x, find=find: find(x, axis=axis), X)
    for way in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin):
        for reverse in (False, True):
            check(lambda x, way=way, reverse=reverse: way(x, axis=axis, reverse=reverse), X, close=1e-15)
    check(lambda x: jnp.sort(x, axis=axis), X)
    check(lambda x: jnp.argsort(x, axis=axis, stable=True), X)
    check(lambda x: lax.sort((jnp.floor(x), -x, x > 0), dimension=axis, num_keys=2), X)


FUNCTIONS = {
    "tables": lambda x: jnp.interp(x, jnp.arange(3.0), jnp.array([0.0, 2.0, -1.0])),
    "search": lambda x: (jnp.searchsorted(jnp.array([-1.0, 0.0, 0.5]), x), jnp.digitize(x, jnp.array([0.0, 1.0]))),
    "entries": lambda x: (jnp.take(x, jnp.array([3, 0, 9]), mode="fill"), x[jnp.argmax(x)], x.at[:2].mul(3.0)),
    "scatter": lambda x: (x.at[jnp.array([1, 1, 7])].add(2.0), x.at[jnp.floor(x).astype(int)].min(-1.0, mode="drop")),
    "windows": lambda x: jax.lax.dynamic_update_slice(x, x[:2], (jnp.argmin(x),))[::-1],
    "shapes": lambda x: (jnp.pad(x, (1, 2)), jnp.roll(x, 1), jnp.stack([x, x]).T, jnp.tile(x, 2).reshape(2, -1)),
    "products": lambda x: (jnp.outer(x, x), x @ x, jnp.einsum("i,ji->j", x, jnp.outer(x, x + 1))),
    "sums": lambda x: (lax.cumlogsumexp(x), jnp.logaddexp(x, 1.0), jnp.linalg.norm(x)),
    "rounding": lambda x: (jnp.round(x), jnp.sign(x), jnp.floor(x), jnp.clip(x, -0.5, 0.5), jnp.nextafter(x, 2.0)),
    "integers": lambda x: (jnp.floor(9 * x).astype(int) // 4, jnp.floor(9 * x).astype(int) % 4, (x > 0) << 2),
    "special": lambda x: (lax.erf(x), lax.lgamma(1 + x**2), lax.cbrt(x), jnp.exp2(x), jax.nn.sigmoid(x)),
    "powers": lambda x: (x**3, jnp.abs(x) ** 2.5, jnp.arctan2(x, 1 - x), jnp.hypot(x, 2.0)),
    "choice": lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: x[::-1], x),
    "loop": lambda x: lax.while_loop(lambda s: s[1] < 3 + (s[0][0] > 0), lambda s: (s[0] * 1.1, s[1] + 1), (x, 0))[0],
    "solve": lambda x: lax.custom_linear_solve(lambda y: 2 * y, x, lambda _, b: b / 2, symmetric=True),
    "slope": lambda x: jax.jacfwd(lambda x: jnp.sin(x) * jnp.prod(x))(x),
}


@pytest.mark.parametrize("dtype", (np.float64, np.float32))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations_alone_and_under_vmap(name, dtype, rng, monkeypatch):
    monkeypatch.setattr(evaluator, "MAX_REPETITIONS", 1000)
    x = rng.normal(size=(3, 4)).astype(dtype)
    close = 1e-13 if dtype == np.float64 else 1e-5
    check(FUNCTIONS[name], x[0], close=close)
    if name != "loop":
        check(jax.vmap(FUNCTIONS[name]), x, close=close)
    else:  # members leave the loop after different numbers of iterations
        with pytest.raises(Unsupported):
            by_numpy(jax.vmap(FUNCTIONS[name]), x)


def test_an_empty_reduction_is_the_identity():
    check(lambda x: (x.sum(), x.prod(), jnp.max(x, initial=-1.0)), np.zeros((0, 3)))


@pytest.mark.parametrize("name", ("FourBar", "ParallelManipulator", "RollingDisk", "Scara", "Woodpecker"))
def test_terms_of_systems_alone_and_in_a_batch(name):
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


def test_unsupported_and_large_functions_are_compiled_at_first_call():
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


def test_repeated_motion_is_equal_bitwise():
    system = uk.systems.FourBar()
    q, v = system.start()
    motions = [uk.simulate(system, q, v, [0.0, 0.2]) for _ in range(4)]
    for motion in motions[1:]:
        np.testing.assert_array_equal(motion.q, motions[0].q)
        assert motion.steps == motions[0].steps


def test_debug_nans_of_jax_raises_error():
    program = jit_if_repeated(lambda x: jnp.log(x))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        program(np.float64(-1.0))
