"""Functions in which each angle's sine and cosine is computed once."""

import jax
import jax.numpy as jnp
import numpy as np

from ukjax._batch import angles_once
from ukjax._batch.once import cosine_and_sine


@jax.jit
def tip(angle):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def arm(q, v):
    """Asks for the same sines again and again, in functions within functions, and for a derivative's."""
    place = lambda q: sum(tip(q[i]) for i in range(3)) + jnp.where(q[0] > 0, jnp.sin(q[0]), q[0])
    moved, speed = jax.jvp(place, (q,), (v,))
    return {"place": moved, "speed": speed, "name": "arm", "tan": jnp.tan(q), "square": place(q) @ moved}


def test_values_and_derivatives_are_the_same(rng):
    q, v = rng.normal(size=3), rng.normal(size=3)
    found, expected = angles_once(arm)(q, v), arm(q, v)
    assert found["name"] == "arm"
    for name in ("place", "speed", "tan", "square"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-15, atol=1e-15)
    square = lambda function: lambda q: function(q, v)["square"]
    np.testing.assert_allclose(jax.grad(square(angles_once(arm)))(q), jax.grad(square(arm))(q), rtol=1e-14)
    np.testing.assert_allclose(
        jax.hessian(square(angles_once(arm)))(q), jax.hessian(square(arm))(q), rtol=1e-13, atol=1e-14
    )
    several = rng.normal(size=(5, 3))
    speeds = lambda function: jax.jit(jax.vmap(lambda q: function(q, v)["speed"]))(several)
    np.testing.assert_allclose(speeds(angles_once(arm)), speeds(arm), rtol=1e-14, atol=1e-15)


def test_each_angle_is_computed_once(rng):
    """q is cut into three; each part has one pair, however often it is asked for."""
    q, v = rng.normal(size=3), rng.normal(size=3)
    lines = jax.jit(lambda q, v: angles_once(arm)(q, v)["square"]).lower(q, v).as_text()
    assert lines.count("stablehlo.cosine") == lines.count("stablehlo.sine") == 3
    plain = jax.jit(lambda q, v: arm(q, v)["square"]).lower(q, v).as_text()
    assert plain.count("stablehlo.cosine") + plain.count("call @tip") > 5


def test_what_it_keeps_is_computed_apart():
    """Else XLA would do it again for each that uses it."""
    compiled = jax.jit(lambda x: [cosine_and_sine(x)[0] * k for k in (2.0, 3.0)]).lower(jnp.ones(7)).compile()
    text = compiled.as_text() or ""
    assert text.count(" cosine(") == 1


def test_nothing_of_what_differs_is_shared():
    """Numbers that are equal and not of one type, and operations with other parameters."""

    def function(x):
        return jax.lax.cumsum(x), jax.lax.cumsum(x, reverse=True), x * 2, x * 2.5

    x = jnp.arange(3.0)
    for found, expected in zip(angles_once(function)(x), function(x), strict=True):
        np.testing.assert_array_equal(found, expected)
