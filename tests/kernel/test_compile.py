"""Programs compiled with other options of XLA have the same results, and the number of cached programs is limited."""

import gc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Jaxpr

import ukjax as uk
from ukjax._kernel.llvm.machine import warn_no_room
from ukjax._run import compile
from ukjax._run.compile import LRUCache, Program, jit, jit_batch, jit_fast_compile, jit_unoptimised, split


def sine(x):
    return jnp.sin(x)


@pytest.mark.parametrize("how", (jit, jit_fast_compile, jit_unoptimised, jit_batch))
def test_compiler_options_do_not_change_values_and_derivatives(how):
    np.testing.assert_allclose(how(sine)(jnp.ones(3)), np.sin(1), rtol=1e-15)
    np.testing.assert_allclose(jax.jit(jax.grad(how(sine)))(1.0), np.cos(1), rtol=1e-15)


def test_nested_program_is_traced_once():
    traced = []
    inner = jit_unoptimised(lambda x: traced.append(None) or jnp.sin(x))
    np.testing.assert_allclose(jax.jit(lambda x: inner(x) + inner(x))(1.0), 2 * np.sin(1), rtol=1e-15)
    assert len(traced) == 1
    outside = jnp.asarray(1.0)
    np.testing.assert_allclose(jax.jit(lambda x: x * inner(outside))(2.0), 2 * np.sin(1), rtol=1e-15)


@pytest.mark.parametrize("derivative", (jax.grad, jax.jacrev, jax.jacfwd))
def test_program_with_options_has_derivatives(derivative):
    """By a concrete number, so that nothing else is traced."""
    square = jit_unoptimised(lambda x: x**2)
    assert derivative(lambda x: square(jnp.asarray(x)))(3.0) == 6.0


@pytest.mark.parametrize(
    "transform, at, keeps_options",
    (
        (jax.jacfwd, 3.0, True),
        (lambda f: jax.jacfwd(jax.jacfwd(f)), 3.0, True),
        (lambda f: jax.vmap(jax.jacfwd(f)), np.ones(2), True),
        (lambda f: jax.vmap(f), np.ones(2), True),
        (jax.grad, 3.0, False),
        (lambda f: jax.jacfwd(jax.grad(f)), 3.0, False),
        (lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1]), 3.0, False),
        (lambda f: jax.jit(jax.jacfwd(f)), 3.0, False),
    ),
)
def test_forward_mode_and_vmap_compile_with_the_options(monkeypatch, transform, at, keeps_options):
    """JAX would compile with its defaults, which takes longer, where a program is part of another one."""
    compiled = []
    jitted, cube = compile._jitted, jit_unoptimised(lambda x: x**3)
    monkeypatch.setattr(compile, "_jitted", lambda *of: compiled.append(of[-1]) or jitted(*of))
    transform(cube)(at)
    assert compiled == [compile.UNOPTIMISED if keeps_options else None]


def test_removed_option_of_xla_is_omitted(monkeypatch):
    monkeypatch.setattr(compile, "REMOVED", {"xla_no_such_option": (0, 1)})
    np.testing.assert_allclose(Program(sine, {"xla_no_such_option": True})(jnp.ones(3)), np.sin(1), rtol=1e-15)


def test_errors_of_a_program_are_raised_unchanged():
    with pytest.raises(ValueError, match="of its own"):
        jit_fast_compile(raises)(jnp.ones(3))


def raises(x):
    raise ValueError("of its own")


def test_arguments_and_results_need_not_be_arrays():
    scaled = jit(lambda x, how: (x * how["factor"], how["name"]))
    for factor in (2, 2.0, True, 1, -0.0, 0.0):  # some are equal, but not the same
        value, name = scaled(np.ones(2), {"factor": factor, "name": "a"})
        assert name == "a" and value.dtype == np.asarray(np.ones(2) * factor).dtype
        np.testing.assert_array_equal(np.signbit(value), np.signbit(np.ones(2) * factor))
    static, arrays = split((1, np.ones(2), "x"))
    assert static.join(arrays)[::2] == (1, "x") and static == split((1, np.zeros(3), "x"))[0]
    assert static != split((True, np.ones(2), "x"))[0]


def test_compiled_program_is_dropped_by_clear_caches(monkeypatch):
    traced = []
    program = jit_batch(lambda x: traced.append(None) or 2 * x)
    for clear in (False, False, True):
        np.testing.assert_array_equal(program.compiled(np.ones(3))(np.arange(3.0)), [0, 2, 4])
        if clear:
            jax.clear_caches()
    program.compiled(np.ones(3))
    assert len(traced) == 2
    with jax.default_matmul_precision("float32"):  # other settings, another program
        program.compiled(np.ones(3))
    assert len(traced) == 3
    monkeypatch.setattr(Program, "_compiled", None)  # nothing is lowered again
    np.testing.assert_array_equal(program.compiled(np.ones(3))(np.arange(3.0)), [0, 2, 4])


def test_programs_are_dropped_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(compile, "MAX_PROGRAMS", 16)
    compile._programs.clear()
    for i in range(40):
        np.testing.assert_allclose(jit_unoptimised(lambda x, i=i: i * x)(jnp.ones(2)), i)
        assert len(compile._programs) <= 16


def test_memory_maps_of_other_programs_do_not_empty_the_cache(monkeypatch):
    """Otherwise each call would compile again."""
    monkeypatch.setattr(compile, "MAX_MAPS", 0)
    traced = []
    programs = [jit_unoptimised(lambda x, i=i: traced.append(i) or i * x) for i in range(20)]
    for program in 2 * programs:
        program(jnp.ones(2))
    assert traced == list(range(20))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell of maps")
def test_memory_maps_do_not_grow_with_number_of_models(monkeypatch):
    """Each model has about 40 memory maps, and a process may have 65 530. The maps of kernels are not counted, as they
    stay in memory."""
    jax.clear_caches()
    gc.collect()
    others = lambda: compile._maps() - compile._kernel_maps
    limit, kernels = others() + 200, compile._kernel_maps
    monkeypatch.setattr(compile, "MAX_MAPS", limit)
    monkeypatch.setattr(compile, "MIN_PROGRAMS", 8)
    maps = []
    for i in range(1, 13):
        spring = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v, i=i: -i * q))
        motion = uk.simulate(spring, [1.0], [0.0], [0.0, 1.0])
        np.testing.assert_allclose(motion.q[-1, 0], np.cos(np.sqrt(i)), atol=1e-7)
        maps.append(others())
    assert max(maps) < limit + 400 and maps[-1] <= max(maps[:6]) + 50
    assert compile._kernel_maps - kernels <= 12 * 60


@pytest.mark.slow
def test_jaxprs_of_deleted_models_are_freed(monkeypatch):
    """A leak here would take almost a megabyte for each model."""
    monkeypatch.setattr(compile, "MAX_PROGRAMS", 4)
    of = LRUCache.of

    def of_few(cache, key, make):
        found = of(cache, key, make)
        while len(cache.values) > 8:
            cache.values.popitem(last=False)
        return found

    monkeypatch.setattr(LRUCache, "of", of_few)

    def traced(models):
        for i in models:
            spring = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v, i=i: -i * q))
            uk.simulate(spring, [1.0], [0.0], [0.0, 1.0])
        gc.collect()
        return sum(isinstance(x, Jaxpr) for x in gc.get_objects())

    before = traced(range(1, 12))
    assert traced(range(101, 107)) <= before + 10


def test_without_room_for_kernels_results_agree_and_a_warning_is_given(monkeypatch):
    monkeypatch.setattr(compile, "MAX_KERNEL_MAPS", 0)
    warn_no_room.cache_clear()
    with pytest.warns(UserWarning, match="no room for more machine code"):
        found = jax.jit(uk.per_member(lambda x: 3.0 * jnp.sin(x)))(jnp.ones(2))
    np.testing.assert_allclose(found, 3 * np.sin(1.0))
