"""Machine code for other processors, with any number of threads, and with many kernels in one process."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ukjax as uk
from ukjax._kernel.llvm import ffi_call, machine
from ukjax._kernel.llvm.machine import Machine
from ukjax._kernel.unroll import loops

from ..random_functions import random_function

llvm = pytest.importorskip("llvmlite.binding")
HOST = machine.machine()
IS_X86 = llvm.get_process_triple().startswith("x86_64")
HAS_AVX2 = IS_X86 and HOST.width > 2


def mixed(x, k):
    """Operations of all kinds, loops and branches."""
    whole = [x.astype(kind) for kind in ("uint8", "int32", "int64", "uint32", "float32")]
    bits = k << 3, lax.population_count(k), lax.clz(k), k // 2, k % 2
    rounded = jnp.floor(x), jnp.ceil(x), jnp.round(x), lax.round(x)
    return random_function(3)(x, k), jnp.exp(x), jnp.sin(100 * x), jnp.sort(x), x > 0, x @ x + 1, whole, bits, rounded


@pytest.fixture
def members(rng):
    return rng.normal(size=(13, 3)), rng.integers(0, 3, 13)


@pytest.fixture(autouse=True)
def small_loops(monkeypatch):
    monkeypatch.setattr(loops, "MIN_LOOP_OPERATIONS", 1)
    monkeypatch.setattr(loops, "MIN_CHOICE_OPERATIONS", 1)
    monkeypatch.setenv("UKJAX_CACHE", "")


def by_kernel(*members):
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(uk.per_member(lambda *x: mixed(*x), strict=True)))(*members))


@pytest.mark.parametrize(
    ("target", "is_there", "fuses"),
    (
        (Machine(HOST.cpu, HOST.features, 4, 13), HAS_AVX2, True),
        (Machine(HOST.cpu, HOST.features, 2, 13), HAS_AVX2, True),
        (Machine("haswell", "", 4, 13), HAS_AVX2, True),
        (Machine("nehalem", "", 2, 13), IS_X86, False),
        (Machine("x86-64", "", 2, 13), IS_X86, False),
    ),
    ids=("AVX2", "128 bits", "Haswell", "SSE4", "SSE2"),
)
def test_narrower_vectors_give_same_results(monkeypatch, members, target, is_there, fuses):
    """Bitwise, except on processors without fused multiply-add."""
    if not is_there:
        pytest.skip("this processor does not run such code")
    expected = by_kernel(*members)
    monkeypatch.setattr(ffi_call, "machine", lambda: target)
    for x, y in zip(jax.tree.leaves(by_kernel(*members)), jax.tree.leaves(expected), strict=True):
        if fuses:
            np.testing.assert_array_equal(x, y)
        else:
            np.testing.assert_allclose(
                x, y, rtol=0, atol=8 * np.finfo(y.dtype if y.dtype.kind == "f" else float).eps * 30
            )


@pytest.mark.parametrize(
    ("triple", "target"),
    (
        ("x86_64-unknown-linux-gnu", Machine("znver4", "", 8, 28)),
        ("x86_64-pc-windows-msvc", Machine("skylake-avx512", "", 8, 28)),
        ("x86_64-apple-macosx14", Machine("haswell", "", 4, 13)),
        ("arm64-apple-macosx14", Machine("apple-m1", "", 2, 28)),
        ("aarch64-unknown-linux-gnu", Machine("neoverse-n1", "", 2, 28)),
    ),
    ids=lambda x: x.cpu if isinstance(x, Machine) else x.split("-")[2],
)
def test_code_is_generated_for_other_processors(monkeypatch, members, triple, target):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    sizes = []

    def compiled(text, symbol, functions, target):
        module = llvm.parse_assembly(text)
        module.verify()
        machine = llvm.Target.from_triple(triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=1, codemodel="small", reloc="pic"
        )
        sizes.append(len(machine.emit_object(module)))
        raise Done

    class Done(Exception):
        pass

    monkeypatch.setattr(ffi_call, "machine", lambda: target)
    monkeypatch.setattr(ffi_call, "address_of", compiled)
    monkeypatch.setattr(ffi_call, "_registered", {})
    with pytest.raises(Done):
        by_kernel(*members)
    assert 5_000 < sizes[0] < 100_000


@cache
def mechanism():
    """The acceleration of a four-bar, random states, and the accelerations of all states by one program."""
    system = uk.systems.FourBar()
    rng = np.random.default_rng(3)
    q, v = 0.3 * rng.normal(size=(2, 4096, system.start()[0].size))
    acceleration = lambda q, v: uk.constrained_motion(system(0.0, q, v)).acceleration
    batch = jax.jit(jax.vmap(uk.per_member(lambda *x: acceleration(*x), strict=True)))
    return acceleration, q, v, batch, np.asarray(batch(q, v))


def test_member_is_equal_bitwise_in_any_batch_and_alone():
    acceleration, q, v, batch, found = mechanism()
    alone = jax.jit(uk.per_member(acceleration, strict=True))
    assert np.isfinite(found).mean() > 0.9
    for size in (1, 3, 8, 100):
        np.testing.assert_array_equal(batch(q[-size:], v[-size:]), found[-size:])
    for k in range(0, 4096, 400):
        np.testing.assert_array_equal(alone(q[k], v[k]), found[k])


@pytest.mark.parametrize(("threads", "at_a_time"), ((1, 1), (9, 3_000)))
def test_results_do_not_depend_on_number_of_threads(monkeypatch, threads, at_a_time):
    acceleration, q, v, _, expected = mechanism()
    monkeypatch.setattr(ffi_call, "cores", lambda: threads)
    monkeypatch.setattr(ffi_call, "OPERATIONS_PER_BLOCK", at_a_time)
    shared = jax.jit(jax.vmap(uk.per_member(lambda *x: acceleration(*x), strict=True)))
    for _ in range(3):
        np.testing.assert_array_equal(shared(q, v), expected)
    np.testing.assert_array_equal(shared(q[:7], v[:7]), expected[:7])


@pytest.mark.slow
def test_many_kernels_are_linked_in_a_process_with_many_programs(rng):
    """Code and constants of a kernel must be near each other in memory, also in a process with little free space
    there."""
    x = rng.normal(size=(8, 40))
    for k in range(10):
        by_jax = jax.jit(lambda x, k=k: jnp.sin(x) @ jnp.cos(x).T + jnp.linalg.norm(x - k))(x)
        table = rng.normal(size=400)
        of = lambda xp, x, k=k, table=table: xp.cos(x * k) + table[xp.clip(x * 9, 0, 399).astype(int)] + k / 7
        function = lambda x, of=of, table=table: of(jnp, x, table=jnp.asarray(table))
        found = jax.jit(jax.vmap(uk.per_member(function, strict=True)))(x)
        np.testing.assert_allclose(found, of(np, x), rtol=1e-12, atol=1e-12)
        assert np.isfinite(by_jax).all()
