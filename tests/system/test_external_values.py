"""Values that a function reads from outside: all compiled programs use the current values."""

import copy
import functools
import pickle
import types
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._outside import external_values

stiffness = 1.0
TABLE = np.array([1.0, 5.0])


class Settings:
    """An object that is not a pytree."""

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
    """The stiffness after each change of a value that the function of the model reads."""
    yield 1.0
    monkeypatch.setitem(globals(), "stiffness", 2.0)
    yield 2.0
    monkeypatch.setattr(SETTINGS, "share", 3.0)
    yield 6.0
    TABLE[0] = 0.5
    yield 3.0


def test_motion_uses_current_external_values(restored):
    for k in changes(restored):
        expected = np.cos(np.sqrt(k))
        one = uk.simulate(SPRING, [1.0], [0.0], [0.0, 1.0])
        np.testing.assert_allclose(one.q[-1, 0], expected, atol=1e-7)
        np.testing.assert_allclose(one.acceleration[-1, 0], -k * one.q[-1, 0], rtol=1e-12)
        state = uk.step(SPRING, uk.initial_state(SPRING, [1.0], [0.0]), 0.01)
        np.testing.assert_allclose(state.q, np.cos(0.01 * np.sqrt(k)), rtol=1e-12)


@pytest.mark.slow
def test_batch_and_ensemble_use_current_external_values(restored):
    for k in changes(restored):
        several = uk.simulate(SPRING, np.ones((2, 1)), np.zeros((2, 1)), [0.0, 1.0], dt=0.01)
        found = uk.ensemble(SPRING, {"q1": [1.0, 2.0]}, ts=[0.0, 1.0], q0=[1.0], v0=[0.0], dt=0.01, keep="end")
        np.testing.assert_allclose(several.q[:, -1, 0], np.cos(np.sqrt(k)), atol=1e-8)
        np.testing.assert_allclose(found.q[:, -1, 0], np.array([1.0, 2.0]) * np.cos(np.sqrt(k)), atol=1e-8)


def test_forces_of_a_motion_computed_before_a_change_are_an_error(restored):
    before = uk.simulate(SPRING, [1.0], [0.0], [0.0, 1.0])
    looked_at = uk.simulate(SPRING, [1.0], [0.0], [0.0, 1.0])
    force = looked_at.acceleration
    restored.setitem(globals(), "stiffness", 2.0)
    with pytest.raises(ValueError, match="has changed since this motion was computed"):
        _ = before.acceleration
    np.testing.assert_array_equal(looked_at.acceleration, force)


def test_keys_change_only_with_values_that_are_read():
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
    assert external_values(counted) == key  # otherwise each call would compile again
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
    external_values(lambda: loop)  # terminates


class Loaded(uk.AbstractSystem):
    """A system whose methods read a global value, through another function, and a value of their class."""

    m: jax.Array
    share: ClassVar[float] = 1.0
    constraints: ClassVar[tuple] = ()

    @property
    def dynamics(self):
        return uk.MassForce(self.m * jnp.eye(1), self.force)

    def force(self, t, q, v):
        return pull(q) * self.share


class Pull:
    """A callable object."""

    def __init__(self):
        self.share = 1.0

    def __call__(self, t, q, v):
        return pull(q) * self.share


class Held(uk.AbstractSystem):
    """A system with a function in a static field."""

    law: Callable = eqx.field(static=True)
    constraints: ClassVar[tuple] = ()

    @property
    def dynamics(self):
        return uk.MassForce(jnp.eye(1), self.law)


NAMESPACE = types.SimpleNamespace(share=1.0)
LAYER = eqx.nn.Linear(1, 1, use_bias=False, key=jax.random.key(0))
PULL = Pull()
OF_OBJECTS = {
    "a method of the model": (Loaded(jnp.asarray(1.0)), "stiffness", None),
    "an attribute of the model's class": (Loaded(jnp.asarray(1.0)), "share", Loaded),
    "a called object": (uk.System(uk.MassForce(jnp.eye(1), PULL)), "share", PULL),
    "what a called object reads": (uk.System(uk.MassForce(jnp.eye(1), PULL)), "stiffness", None),
    "a function in a static field": (Held(lambda t, q, v: pull(q)), "stiffness", None),
    "a namespace": (uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -NAMESPACE.share * q)), "share", NAMESPACE),
    "a model of a library": (uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: LAYER(q))), "LAYER", None),
}


@pytest.mark.parametrize(("model", "name", "thing"), OF_OBJECTS.values(), ids=OF_OBJECTS)
def test_current_values_of_objects_and_classes_are_used(monkeypatch, model, name, thing):
    """Against the closed form q = cos √k t, for several k in turn."""
    for k in (1.0, 4.0, 1.0):
        value = eqx.tree_at(lambda layer: layer.weight, LAYER, jnp.array([[-k]])) if name == "LAYER" else k
        if thing is None:
            monkeypatch.setitem(globals(), name, value)
        else:
            monkeypatch.setattr(thing, name, value)
        motion = uk.simulate(model, [1.0], [0.0], [0.0, 1.0])
        np.testing.assert_allclose(motion.q[-1, 0], np.cos(np.sqrt(k)), atol=1e-7)
        np.testing.assert_allclose(motion.acceleration[0], [-k], rtol=1e-12)
        np.testing.assert_allclose(uk.acceleration(model, 0.0, [1.0], [0.0]), [-k], rtol=1e-12)


def test_change_of_external_values_is_an_error_for_earlier_motions(restored):
    """Also for motions through ``jit`` or ``vmap``, copies, and members of a batch."""
    model, start = Loaded(jnp.asarray(1.0)), (jnp.ones(1), jnp.zeros(1))
    run = lambda q0: uk.simulate(model, q0, start[1], [0.0, 1.0])
    batch = uk.simulate(model, jnp.ones((2, 1)), start[1], [0.0, 1.0])
    motions = run(start[0]), jax.jit(run)(start[0]), jax.vmap(run)(jnp.ones((2, 1)))[0], batch[1], run(start[0])(0.5)
    motions += (copy.deepcopy(motions[0]),)
    for motion in motions:
        assert motion(1.0).q.shape == (1, 1)
    restored.setitem(globals(), "stiffness", 2.0)
    for motion in motions:
        with pytest.raises(uk.InputError, match="has changed since this motion was computed"):
            motion(1.0)
        with pytest.raises(uk.InputError, match="has changed since this motion was computed"):
            _ = motion.acceleration
    assert pickle.loads(pickle.dumps(motions[0])).acceleration.shape == (2, 1)  # with its current values


def test_method_that_changes_a_counter_is_not_compiled_again():
    class Counting(Loaded):
        calls: ClassVar[list] = [0]

        def force(self, t, q, v):
            Counting.calls[0] += 1
            return pull(q)

    model = Counting(jnp.asarray(1.0))
    uk.simulate(model, [1.0], [0.0], [0.0, 1.0])
    count = Counting.calls[0]
    uk.simulate(model, [1.0], [0.5], [0.0, 1.0])
    assert count > 0 and Counting.calls[0] == count


class ScaledPull(eqx.Module):
    """A spring with a number of its own and one from outside."""

    share: float

    def __call__(self, t, q, v):
        return self.share * pull(q)


def test_motions_of_one_model_share_its_converted_numbers_until_an_external_value_changes(restored):
    model = uk.System(uk.MassForce(jnp.eye(1), ScaledPull(4.0)))
    first, second = (uk.simulate(model, [1.0], [0.0], [0.0, x]) for x in (0.5, 1.0))
    assert first.model is second.model and first.model is not model
    restored.setitem(globals(), "stiffness", 4.0)
    third = uk.simulate(model, [1.0], [0.0], [0.0, 1.0])
    assert third.model is not second.model
    np.testing.assert_allclose([second.q[-1, 0], third.q[-1, 0]], np.cos([2.0, 4.0]), rtol=1e-7)


def test_closure_that_holds_a_traced_number_only_in_a_later_call_is_differentiated():
    rate = 1.0
    spring = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -rate * q))
    end = lambda: uk.simulate(spring, [1.0], [0.0], [0.0, 1.0], dt=1e-2).q[-1, 0]
    np.testing.assert_allclose(end(), np.cos(1.0), rtol=1e-8)

    def end_for(x):
        nonlocal rate
        rate = x
        return end()

    np.testing.assert_allclose(jax.grad(end_for)(4.0), -np.sin(2.0) / 4, rtol=1e-7)
    rate = 4.0
    np.testing.assert_allclose(end(), np.cos(2.0), rtol=1e-8)
