"""What is done for one member alone, written out: the same numbers as by JAX's own operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ukjax._batch import also_alone

from .helpers import EPS

BODIES = 4
ALONE = "reduce_window"


def turned(body, s):
    w, r = body[3], body[4:]
    return (w**2 - r @ r) * s + 2 * (r @ s) * r + 2 * w * jnp.cross(r, s)


def chain(given, t, q, v):
    """A mass matrix that stays, forces, and what links a chain of bodies, with its slope: many small operations."""
    masses, arms = given
    bodies = q.reshape(BODIES, 7)

    def links(q):
        bodies = q.reshape(BODIES, 7)
        gaps = [
            bodies[i, :3] + turned(bodies[i], arms[i]) - bodies[i + 1, :3] - turned(bodies[i + 1], -arms[i + 1])
            for i in range(BODIES - 1)
        ]
        return jnp.concatenate([*gaps, jnp.sum(q.reshape(BODIES, 7)[:, 3:] ** 2, axis=1) - 1])

    return {
        "M": jnp.diag(jnp.repeat(masses, 7)),
        "Q": jnp.sin(t) * v + sum(turned(body, arm)[0] for body, arm in zip(bodies, arms, strict=True)),
        "rows": (links(q), jax.jacfwd(links)(q)),
        "low": bodies[:, 2] < 0,
        "size": q.size,
    }


def example(rng, dtype=float):
    """``given``, and a state."""
    numbers = rng.uniform(1, 2, BODIES), rng.normal(size=(BODIES, 3)), 0.3, *rng.normal(size=(2, 7 * BODIES))
    masses, arms, *state = (jnp.asarray(x, dtype) for x in numbers)
    return (masses, arms), *state


def program_of(function, *arguments):
    return jax.jit(function).lower(*arguments).as_text()


@pytest.mark.parametrize("dtype", (np.float64, np.float32))
def test_the_same_numbers_by_one_loop(rng, dtype):
    arguments = example(rng, dtype)
    arrays = lambda function: lambda *arguments: {k: x for k, x in function(*arguments).items() if k != "size"}
    found, by_jax = (jax.jit(arrays(f))(*arguments) for f in (also_alone(chain), chain))
    for one, other in zip(*map(jax.tree.leaves, (found, by_jax)), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert np.allclose(one, other, rtol=0, atol=20 * np.finfo(dtype).eps)
    assert also_alone(chain)(*arguments)["size"] == 7 * BODIES  # what is no array comes out as it is
    assert ALONE in program_of(arrays(also_alone(chain)), *arguments)


def test_derivatives_and_batches_are_those_of_the_function(rng):
    given, *state = example(rng)
    total = lambda function: lambda given, *state: jnp.sum(function(given, *state)["rows"][1] ** 3)
    found, by_jax = (jax.jit(jax.grad(total(f), argnums=(0, 2)))(given, *state) for f in (also_alone(chain), chain))
    for one, other in zip(*map(jax.tree.leaves, (found, by_jax)), strict=True):
        assert np.allclose(one, other, rtol=1e-12, atol=1e-12)

    several = [jnp.stack([x, 2 * x, -x]) for x in state]
    found, by_jax = (
        jax.jit(jax.vmap(lambda *state, f=f: f(given, *state)["rows"], in_axes=0))(*several)
        for f in (also_alone(chain), chain)
    )
    for one, other in zip(found, by_jax, strict=True):
        assert np.allclose(one, other, rtol=0, atol=100 * EPS)


def few(given, x):
    return jnp.sin(given * x) + x


def of_unknown_length(given, x):
    for _ in range(300):
        x = jnp.sin(x) + given
    return jax.lax.while_loop(lambda x: jnp.sum(x) > 1, lambda x: x / 2, x)


def on_many_numbers(given, x):
    rows = jnp.outer(x, x)
    for _ in range(120):
        x = jnp.sin(rows @ x) + given * x
    return x


def of_the_given_alone(given, x):
    for _ in range(500):
        given = jnp.sin(given)
    return given


@pytest.mark.parametrize("function", (few, of_unknown_length, on_many_numbers, of_the_given_alone))
def test_what_jax_does_well_is_left_to_it(rng, function):
    given, x = jnp.asarray(0.1), jnp.asarray(rng.normal(size=9))
    assert ALONE not in program_of(also_alone(function), given, x)
    assert np.allclose(jax.jit(also_alone(function))(given, x), function(given, x), rtol=1e-13)


def test_many_given_numbers_and_powers(rng):
    """More numbers come with the model than it does operations, of several types, and stay as they are."""

    def powers(given, x):
        table, exponent = given
        first = x[0]
        for _ in range(300):
            first = jnp.sin(first + table[0, 0])
        x = x * first
        return (
            x**exponent,
            (9 * x**exponent).astype(int),
            table[:2, :2] * x,
            jnp.where(x > 0, jnp.array([-0.0, jnp.nan]), x),
        )

    for size in (4, 100):
        given = jnp.asarray(rng.normal(size=(size, size))), jnp.asarray(3)
        x = jnp.asarray(rng.uniform(1, 2, 2))
        found, by_jax = (jax.jit(f)(given, x) for f in (also_alone(powers), powers))
        assert (ALONE in program_of(also_alone(powers), given, x)) == (size == 4)
        for one, other in zip(found, by_jax, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
            assert one.dtype == other.dtype
