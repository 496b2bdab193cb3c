"""The cache of machine code on disk."""

import ctypes
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import ukjax as uk
from ukjax._kernel import lowering
from ukjax._kernel.hints import rare_cond
from ukjax._kernel.llvm import deferred, machine, stored

ANSWER = "define i64 @answer() {{\n  ret i64 {number}\n}}\n"


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """A list of the compiled texts. Objects are saved in a temporary folder."""
    texts, done = [], machine._compiled
    monkeypatch.setattr(machine, "_compiled", lambda text, target: texts.append(text) or done(text, target))
    monkeypatch.setenv("UKJAX_CACHE", str(tmp_path / "kernels"))
    return texts


def answer(monkeypatch, number):
    """The result of a function that returns ``number``, as in a process that has not linked it."""
    monkeypatch.setattr(machine, "_linked", KEPT.setdefault(len(KEPT), {}))
    machine._linker.cache_clear()
    text = ANSWER.format(number=number)
    return ctypes.CFUNCTYPE(ctypes.c_int64)(machine.address_of(text, "answer", frozenset(), machine.machine()))()


KEPT: dict = {}  # linked code must stay in memory as long as the process runs


def test_code_is_compiled_once_for_all_processes(monkeypatch, compiled, tmp_path):
    assert [answer(monkeypatch, 42) for _ in range(3)] == [42] * 3
    assert len(compiled) == 1
    assert [x.stat().st_size > 32 for x in (tmp_path / "kernels").iterdir()] == [True]
    assert answer(monkeypatch, 43) == 43 and len(compiled) == 2


@pytest.mark.parametrize("damage", (lambda x: x[:-1], lambda x: b"", lambda x: b"foreign", lambda x: x[:40] + x[41:]))
def test_damaged_file_is_replaced(monkeypatch, compiled, tmp_path, damage):
    answer(monkeypatch, 7)
    (file,) = (tmp_path / "kernels").iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert answer(monkeypatch, 7) == 7 and len(compiled) == 2
    assert file.read_bytes() == whole


def test_code_runs_without_cache_folder(monkeypatch, compiled, tmp_path):
    (tmp_path / "file").write_text("")
    for where in ("", str(tmp_path / "file" / "kernels"), "/proc/kernels"):
        monkeypatch.setenv("UKJAX_CACHE", where)
        assert answer(monkeypatch, 8) == 8
    assert len(compiled) == 3


def test_read_only_cache_folder_is_used(monkeypatch, compiled, tmp_path):
    answer(monkeypatch, 9)

    def refuse(*_, **__):
        raise PermissionError

    for name in ("touch", "write_bytes", "mkdir"):
        monkeypatch.setattr(machine.Path, name, refuse)
    assert answer(monkeypatch, 9) == 9 and len(compiled) == 1
    assert answer(monkeypatch, 10) == 10 and len(compiled) == 2


def test_oldest_files_are_deleted_at_size_limit(monkeypatch, compiled, tmp_path):
    for number in range(4):
        answer(monkeypatch, number)
        for file in (tmp_path / "kernels").iterdir():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 100))
    answer(monkeypatch, 0)  # is used again
    size = file.stat().st_size
    monkeypatch.setattr(machine, "MAX_CACHE_BYTES", 3 * size)
    answer(monkeypatch, 4)
    assert len(list((tmp_path / "kernels").iterdir())) == 3
    compiled.clear()
    assert [answer(monkeypatch, k) for k in (0, 3, 4)] == [0, 3, 4] and not compiled


def test_kernel_of_known_function_is_loaded_without_unrolling(monkeypatch, compiled, tmp_path):
    """Another number in the function, or a damaged description, makes a new kernel."""
    for module in (stored, deferred):
        monkeypatch.setattr(module, "compilation_cache_is_enabled", lambda: True)
    unroll, unrolled = lowering.unroll, []
    monkeypatch.setattr(lowering, "unroll", lambda *x: unrolled.append(0) or unroll(*x))
    x = np.array([-2.0, 1.0, 3.0])

    def check(k):
        function = lambda x: rare_cond(x < 0, lambda x: -k * x, lambda x: k * x + 1, x)
        found = jax.jit(jax.vmap(uk.per_member(function, strict=True)))(x)
        np.testing.assert_array_equal(found, np.where(x < 0, -k * x, k * x + 1))

    check(2.5)
    assert len(unrolled) == 2  # the usual branches, and all branches for the first member
    check(2.5)
    assert len(unrolled) == 2
    check(2.25)
    assert len(unrolled) == 4
    for file in (tmp_path / "kernels").iterdir():
        file.write_bytes(b"damaged")
    check(2.5)
    assert len(unrolled) == 5


def test_no_kernel_is_stored_under_the_name_of_source_code_that_is_newer_than_the_import(monkeypatch):
    digest = stored._digest_of_sources.__wrapped__
    assert digest() is not None
    monkeypatch.setattr(stored, "IMPORTED", 0.0)
    assert digest() is None


PROGRAM = """
import jax, numpy as np, ukjax as uk
from ukjax._kernel import lowering
from ukjax._kernel.llvm import machine
unroll, unrolled = lowering.unroll, []
lowering.unroll = lambda *x: unrolled.append(0) or unroll(*x)
done, count = machine._compiled, []
machine._compiled = lambda *x: count.append(0) or done(*x)
uk.enable_float64()
found = [jax.jit(jax.vmap(uk.per_member(lambda x: k * x, strict=True)))(np.ones((5, 2))) for k in range(2, 9)]
print(sum(float(x[0, 0]) for x in found), len(count), len(unrolled))
"""


@pytest.mark.slow
def test_processes_share_a_cache_folder(tmp_path):
    environment = os.environ | {"UKJAX_CACHE": str(tmp_path)}
    run = lambda: subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
    together = [run() for _ in range(2)]
    assert [x.communicate()[0].split()[0] for x in together] == ["35.0"] * 2
    assert run().communicate()[0].split() == ["35.0", "0", "7"]
    assert len(list(tmp_path.iterdir())) == 7
    environment["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / "programs")
    assert run().communicate()[0].split() == ["35.0", "0", "7"]
    assert run().communicate()[0].split() == ["35.0", "0", "0"]
