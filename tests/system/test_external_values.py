"""Numbers that a function reads from outside: what changed is noticed by everything that is compiled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._outside import external_values

stiffness = 1.0
TABLE = np.array([1.0, 5.0])


class Settings:
    """An object that JAX knows nothing of."""

    share = 1.0

    def __init__(self):
        self.share = 1.0


SETTINGS = Settings()


def pull(q):
    return -stiffness * q


SPRING = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: pull(q) * SETTINGS.share * TABLE[0]))


@pytest.fixture
def restored(monkeypatch):
    monkeypatch.setitem(globals(), "stiffness", 1.0)
    monkeypatch.setattr(SETTINGS, "share", 1.0)
    yield monkeypatch
    TABLE[0] = 1.0


def changes(monkeypatch):
    """The stiffness after each change, all of which are of things that the model's function reads."""
    yield 1.0
    monkeypatch.setitem(globals(), "stiffness", 2.0)
    yield 2.0
    monkeypatch.setattr(SETTINGS, "share", 3.0)
    yield 6.0
    TABLE[0] = 0.5
    yield 3.0


def test_a_motion_is_that_of_the_numbers_now(restored):
    for k in changes(restored):
        expected = np.cos(np.sqrt(k))
        one = uk.simulate(SPRING, [1.0], [0.0], [0.0, 1.0])
        np.testing.assert_allclose(one.q[-1, 0], expected, atol=1e-7)
        np.testing.assert_allclose(one.acceleration[-1, 0], -k * one.q[-1, 0], rtol=1e-12)
        state = uk.step(SPRING, uk.initial_state(SPRING, [1.0], [0.0]), 0.01)
        np.testing.assert_allclose(state.q, np.cos(0.01 * np.sqrt(k)), rtol=1e-12)


@pytest.mark.slow
def test_a_batch_and_an_ensemble_are_of_the_numbers_now(restored):
    for k in changes(restored):
        several = uk.simulate(SPRING, np.ones((2, 1)), np.zeros((2, 1)), [0.0, 1.0], dt=0.01)
        found = uk.ensemble(SPRING, {"q1": [1.0, 2.0]}, ts=[0.0, 1.0], q0=[1.0], v0=[0.0], dt=0.01, keep="end")
        np.testing.assert_allclose(several.q[:, -1, 0], np.cos(np.sqrt(k)), atol=1e-8)
        np.testing.assert_allclose(found.q[:, -1, 0], np.array([1.0, 2.0]) * np.cos(np.sqrt(k)), atol=1e-8)


def test_forces_of_a_motion_computed_before_a_change_are_refused(restored):
    before = uk.simulate(SPRING, [1.0], [0.0], [0.0, 1.0])
    looked_at = uk.simulate(SPRING, [1.0], [0.0], [0.0, 1.0])
    force = looked_at.acceleration
    restored.setitem(globals(), "stiffness", 2.0)
    with pytest.raises(ValueError, match="has changed since this motion was computed"):
        _ = before.acceleration
    np.testing.assert_array_equal(looked_at.acceleration, force)


def test_keys_change_with_what_is_read_and_with_nothing_else():
    def of(x, table):
        held = functools.partial(np.dot, table)
        return lambda t: held(t) + x + pull(t)

    table = np.arange(3.0)
    one, same, other = (external_values(of(x, table)) for x in (1.0, 1.0, 1))
    assert one == same and hash(one) == hash(same) and one != other
    array = jnp.ones(2)
    assert external_values(lambda: array) == external_values(lambda: array)
    assert external_values(jax.jit(lambda: array)) == external_values(lambda: array)
    calls = [0]

    def counted(t):
        calls[0] += 1
        return t

    key = external_values(counted)
    counted(0.0)
    assert external_values(counted) == key  # else each call would compile everything anew
    made, sizes = [], [1.0]

    def lengthened(t):
        made.append(t)
        rows = []
        rows.append(sizes[0])
        return rows

    key = external_values(lengthened)
    lengthened(0.0)
    assert external_values(lengthened) == key
    sizes[0] = 2.0
    assert external_values(lengthened) != key
    loop: list = []
    loop.append(loop)
    external_values(lambda: loop)  # comes to an end
