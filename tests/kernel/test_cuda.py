"""GPU kernels without a GPU: the host runs the code of a thread, the PTX is assembled, and a mock driver records the
launch."""

import ctypes
import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._kernel import lowering
from ukjax._kernel.llvm import ffi_call, machine
from ukjax._kernel.unroll import loops
from ukjax._run import compile

from ..random_functions import random_function

pytest.importorskip("llvmlite.binding")
from ukjax._kernel.cuda import driver, launch, libdevice, module, ptx  # noqa: E402

if not ptx.has_target():
    pytest.skip("this LLVM cannot compile for a GPU", allow_module_level=True)

# --- the code of a thread, run by the host ---------------------------------------------------------------------------

ALL_THREADS = """
define internal void @range(ptr %ins, ptr %outs, i64 %members, i64 %first, i64 %last) #1 {
entry:
  %common = call ptr @malloc(i64 SIZE)
  call void @once(ptr %common, ptr %ins, ptr %outs, i64 %members)
  br label %head
head:
  %m = phi i64 [ %first, %entry ], [ %next, %head ]
  call void @member(ptr %common, ptr %ins, ptr %outs, i64 %members, i64 %m)
  %next = add i64 %m, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %head, label %end
end:
  call void @free(ptr %common)
  ret void
}
"""


def register_on_host(program, ins, outs):
    """Register the code of a thread as a kernel of the CPU that computes one member after the other."""
    functions, assembly = module.thread_module(program, ins, outs)
    call = "call void @range(ptr %ins, ptr %outs, i64 %members, i64 0, i64 %members)"
    handler = ffi_call._handler(program, ins, outs, call)
    attributes = [f"attributes #{k} = {{ {machine.machine().attributes} }}" for k in range(3)]
    loop = ALL_THREADS.replace("SIZE", str(assembly.common_size + 8))
    text = "\n".join([ffi_call.TYPES, functions, loop, handler, *attributes]).replace("@__nv_", "@")
    library = HOST_LIBRARY | assembly.functions - module.RARE.keys()
    address = machine.address_of(text, "handler", library, machine.machine())
    name = f"threads_{len(REGISTERED)}"
    REGISTERED.append((program, ins, outs))
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
    return name


HOST_LIBRARY = frozenset(f"{name}{end}" for name in ("floor", "ceil", "rint", "trunc", "fma") for end in ("", "f"))
HOST_LIBRARY |= {"malloc", "free"}
REGISTERED = []


@pytest.fixture
def by_threads(monkeypatch):
    """A function. After its call, kernels on the CPU run the code of GPU threads."""
    target = lowering.Target("cpu", lowering.MAX_OPERATIONS, register_on_host, lambda *_: None, is_stored=False)

    def change():
        monkeypatch.setattr(lowering, "CPU", target)
        monkeypatch.setattr(module, "has_library", lambda: True)
        compile._programs.clear()

    yield change
    compile._programs.clear()


@pytest.mark.parametrize("in_memory", (False, True), ids=("registers", "memory"))
@pytest.mark.parametrize("shared", (True, False))
def test_code_of_gpu_thread_matches_cpu_kernel_bitwise(monkeypatch, rng, by_threads, in_memory, shared):
    """Loops of known and unknown length, branches, computed indices, and values that all members share."""
    monkeypatch.setattr(loops, "MIN_LOOP_OPERATIONS", 1)
    monkeypatch.setattr(loops, "MIN_CHOICE_OPERATIONS", 1)
    monkeypatch.setattr(module, "MAX_LIVE", 0 if in_memory else 1000)
    monkeypatch.setattr(module, "PIECE_REGISTERS", 12)

    def function(x, k, y):
        floats = jnp.exp(x), jnp.sin(20 * x), jnp.log(1 + x * x), x.astype("float32") * y.astype("float32")
        steps = jax.lax.while_loop(lambda s: s[0] < k + 2, lambda s: (s[0] + 1, s[1] * 0.9 + s[0]), (0, x[0]))
        return (
            random_function(5)(x, k),
            jnp.abs(x) ** 1.7,
            jnp.arctan2(x[0], x[1]),
            floats,
            steps,
            jnp.sort(x),
            x @ y + jnp.cos(y[0]),
            x > 0,
        )

    x, k, y = rng.normal(size=(13, 3)), rng.integers(0, 3, 13), rng.normal(size=3)
    in_axes = (0, 0, None if shared else 0)
    y = y if shared else np.tile(y, (13, 1))
    run = lambda: jax.jit(jax.vmap(uk.per_member(lambda *a: function(*a), strict=True), in_axes))(x, k, y)
    expected = run()
    by_threads()
    number = len(REGISTERED)
    for a, b in zip(jax.tree.leaves(run()), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(REGISTERED) == number + 1


def test_large_angles_and_limits_of_exp_and_log(by_threads):
    """A GPU has no C library for these cases."""
    by_threads()
    x = np.array([2.0**19 + 1, -1e7, 123456789.125, 1e12, -1e15])
    function = uk.per_member(lambda x: (jnp.sin(x), jnp.cos(x)))
    sine, cosine = jax.vmap(function)(x)
    np.testing.assert_allclose(sine, np.sin(x), atol=3e-16, rtol=0)
    np.testing.assert_allclose(cosine, np.cos(x), atol=3e-16, rtol=0)
    single = x[:3].astype(np.float32)
    np.testing.assert_allclose(jax.vmap(function)(single)[0], np.sin(single.astype(float)), atol=1e-7, rtol=0)
    assert np.all(np.isnan(jax.vmap(function)(np.array([1e16, np.inf, np.nan]))[0]))
    x = np.array([709.7, 710.0, 1e4, -708.5, -800.0, -np.inf, np.inf, np.nan])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            jax.vmap(uk.per_member(jnp.exp))(x), np.exp(x), rtol=1e-14, atol=3e-308
        )  # XLA flushes denormal numbers
        x = np.array([0.0, -1.0, np.inf, np.nan, 3.0])
        np.testing.assert_allclose(jax.vmap(uk.per_member(jnp.log))(x), np.log(x), rtol=1e-15)


# --- a rollout -------------------------------------------------------------------------------------------------------

DT, MEMBERS = 1e-3, 5


def pendulum(kind="float64"):
    dynamics = uk.MassForce(jnp.eye(2, dtype=kind), jnp.array([0.0, -9.81], dtype=kind))
    system = uk.System(dynamics, uk.Holonomic(lambda t, q: q @ q - 1))
    speeds = np.linspace(0.1, 1.0, MEMBERS, dtype=kind)
    return system, np.tile(np.array([-1, 0], kind), (MEMBERS, 1)), np.stack([0 * speeds, speeds], axis=1)


def manipulator():
    robot = uk.systems.ParallelManipulator()
    system = uk.System(robot.dynamics, robot.loops)
    q, v = uk.project(system, 0.0, *robot.start())
    q, v = uk.project(system, 0.0, q, 0.5 * jnp.ones(v.size))
    return system, np.tile(q, (MEMBERS, 1)), np.tile(v, (MEMBERS, 1))


def lowered(system, q, v):
    """The program of a rollout of 1000 steps for a GPU, and its kernels."""
    ts = np.linspace(0, 1, 11, dtype=q.dtype)
    simulate = lambda q, v: uk.simulate(system, q, v, ts, dt=DT, solver=uk.RungeKutta4()).q
    text = jax.jit(simulate).trace(q, v).lower(lowering_platforms=("cuda",)).as_text()
    return text, re.findall(r"custom_call @(\w+)", text)


def check_assembly(text, folder, most_spilled):
    assert ".target sm_75" in text and ".visible .entry kernel(" in text and ".extern" not in text
    assert "approx" not in text
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        return
    (folder / "kernel.ptx").write_text(text)
    command = [ptxas, "-v", "-arch=sm_90", folder / "kernel.ptx", "-o", folder / "kernel.cubin"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spilled = re.search(r"for kernel\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert spilled is not None and max(map(int, spilled.groups())) <= most_spilled


@pytest.mark.parametrize("kind", ("float64", "float32"))
def test_rollout_is_one_kernel_launch(tmp_path, kind):
    """One kernel, and at most one more for rare cases in a branch. The host runs no loop."""
    text, names = lowered(*pendulum(kind))
    assert len(names) <= 2 and all(name.startswith(f"{names[0]}_rare_") for name in names[1:])
    assert "stablehlo.while" not in text
    ptx = launch.ptx(names[0])
    kinds = {"float64": "f64", "float32": "f32"}
    assert all(f"{name}.rn.{kinds[kind]}" in ptx for name in ("fma", "sqrt"))
    check_assembly(ptx, tmp_path, 0)


@pytest.mark.slow
def test_rollout_of_three_chains_spills_few_registers(tmp_path):
    text, names = lowered(*manipulator())
    assert len(names) == 2 and text.index(names[1]) > text.index("stablehlo.case")
    check_assembly(launch.ptx(names[0]), tmp_path, 200)


def test_motions_by_gpu_threads_match_cpu_bitwise(by_threads):
    """Fixed steps, adaptive steps with a different count for each member, and a gradient."""
    system, q, v = pendulum()
    ts = np.array([0.0, 2e-3, 4e-3])

    def motions():
        fixed = uk.simulate(system, q, v, ts, dt=DT, solver=uk.RungeKutta4())
        adaptive = uk.simulate(system, q, v, ts)
        end = lambda v: uk.simulate(system, q, v, ts, dt=DT, solver=uk.RungeKutta4()).q[:, -1].sum()
        return fixed.q, fixed.v, adaptive.q, jax.grad(end)(v)

    expected = motions()
    by_threads()
    number = len(REGISTERED)
    for x, y in zip(motions(), expected, strict=True):
        np.testing.assert_array_equal(x, y)
    assert len(REGISTERED) >= number + 3


# --- the launch, recorded by a mock driver ----------------------------------------------------------------------------

P, I64, I32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


class List(ctypes.Structure):
    _fields_ = (("size", I64), ("extension", P), ("count", I64), ("types", P), ("pointers", P))


class Frame(ctypes.Structure):
    _fields_ = (
        ("size", I64), ("extension", P), ("api", P), ("context", P), ("stage", I32),
        ("args", List), ("rets", List), ("attrs", List), ("future", P),
    )  # fmt: skip


class XlaBuffer(ctypes.Structure):
    _fields_ = (("size", I64), ("extension", P), ("dtype", I32), ("data", P), ("rank", I64), ("dims", P))


class StreamArgs(ctypes.Structure):
    _fields_ = (("size", I64), ("extension", P), ("context", P), ("stream", P))


class ErrorArgs(ctypes.Structure):
    _fields_ = (("size", I64), ("extension", P), ("message", ctypes.c_char_p), ("code", I32))


STREAM, CONTEXT, KERNEL, LIBRARY_HANDLE = 0x5EA, 0xC0, 0x4E7, 0x11B


class Driver:
    """The functions of CUDA's driver that a launch calls."""

    def __init__(self, refuses_ptx=0, refuses_launch=0):
        self.loaded, self.launches = [], []
        unsigned = [ctypes.c_uint] * 7

        def load(handle, code, options, values, count, *_):
            if refuses_ptx:
                ctypes.memmove(ctypes.cast(values, ctypes.POINTER(P))[0], b"line 7: syntax error", 21)
            assert count == 2 and ctypes.cast(options, ctypes.POINTER(I32))[:2] == [5, 6]
            self.loaded.append(ctypes.string_at(code))
            ctypes.cast(handle, ctypes.POINTER(P))[0] = LIBRARY_HANDLE
            return refuses_ptx

        def get(kernel, library, name):
            assert (library, name) == (LIBRARY_HANDLE, b"kernel")
            ctypes.cast(kernel, ctypes.POINTER(P))[0] = KERNEL
            return 0

        def start(kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
            self.launches.append(((kernel, stream, extra), (gx, gy, gz), (bx, by, bz), shared, self.read(parameters)))
            return refuses_launch

        def words(code, text):
            ctypes.cast(text, ctypes.POINTER(ctypes.c_char_p))[0] = b"out of resources" if code == 701 else None
            return 0

        self.cuLibraryLoadData = ctypes.CFUNCTYPE(I32, P, P, P, P, ctypes.c_uint, P, P, ctypes.c_uint)(load)
        self.cuLibraryGetKernel = ctypes.CFUNCTYPE(I32, P, P, ctypes.c_char_p)(get)
        self.cuLaunchKernel = ctypes.CFUNCTYPE(I32, P, *unsigned, P, P, P)(start)
        self.cuGetErrorString = ctypes.CFUNCTYPE(I32, I32, P)(words)

    def read(self, parameters):
        """Pointers of two arguments and one result, then the number of members."""
        at = ctypes.cast(parameters, ctypes.POINTER(P))
        pointers = [ctypes.cast(at[k], ctypes.POINTER(P))[0] for k in range(3)]
        return pointers, ctypes.cast(at[3], ctypes.POINTER(I64))[0]


def called(handler, members, has_stream=True):
    """Call a handler as XLA does, on a batch of (2, members) numbers; returns the messages of errors."""
    messages, keep = [], []

    def array(kind, values):
        keep.append((kind * len(values))(*values))
        return ctypes.addressof(keep[-1])

    def make_error(args):
        found = ErrorArgs.from_address(args)
        assert found.size == 32 and found.extension is None and found.code == 13
        messages.append(found.message.decode())
        return 0xE0

    def stream(args):
        found = StreamArgs.from_address(args)
        assert found.size == 32 and found.extension is None and found.context == CONTEXT
        if not has_stream:
            return 0xE1
        found.stream = STREAM
        return None

    functions = ctypes.CFUNCTYPE(P, P)(make_error), ctypes.CFUNCTYPE(P, P)(stream)
    api = array(
        P, [None] * 6 + [ctypes.cast(functions[0], P).value] + [None] * 3 + [ctypes.cast(functions[1], P).value]
    )

    def buffer(data, *dims):
        keep.append(XlaBuffer(48, None, 0, data, len(dims), array(I64, dims)))
        return ctypes.addressof(keep[-1])

    args = array(P, [buffer(0xA0, 3), buffer(0xA1, 2, members)])
    rets = array(P, [buffer(0xB0, members)])
    frame = Frame(
        ctypes.sizeof(Frame), None, api, CONTEXT, 3, List(40, None, 2, None, args), List(40, None, 1, None, rets)
    )
    return ctypes.CFUNCTYPE(P, P)(handler)(ctypes.addressof(frame)), messages


@pytest.fixture
def handler(monkeypatch):
    def make(**refusals):
        found = Driver(**refusals)
        monkeypatch.setattr(driver, "library", lambda: found)
        monkeypatch.setattr(launch, "library", lambda: found)
        kind = np.dtype(float)
        ins = [ffi_call.Buffer((3,), kind, False), ffi_call.Buffer((2,), kind, True)]
        return found, launch.handler_address(ins, [ffi_call.Buffer((), kind, True)], False, lambda: "the PTX")

    return make


def test_launch_passes_pointers_sizes_and_stream_to_driver(handler):
    found, address = handler()
    assert called(address, 0) == (None, []) and not found.loaded  # an empty batch
    for members, blocks, threads in (
        (1, 1, 32),
        (33, 2, 32),
        (16_384, 512, 32),
        (16_385, 129, 128),
        (10**9, 7812500, 128),
    ):
        assert called(address, members) == (None, [])
        ids, grid, block, shared, (pointers, count) = found.launches[-1]
        assert ids == (KERNEL, STREAM, None) and grid == (blocks, 1, 1) and block == (threads, 1, 1) and shared == 0
        assert pointers == [0xA0, 0xA1, 0xB0] and count == members
    assert found.loaded == [b"the PTX"]  # loaded once


def test_driver_errors_are_passed_to_xla(handler, monkeypatch):
    found, address = handler(refuses_launch=701)
    error, (message,) = called(address, 5)
    assert error == 0xE0 and "did not launch" in message and "error 701, out of resources" in message
    found, address = handler(refuses_ptx=218)
    for _ in range(2):  # the second call tries again, with the same error
        error, (message,) = called(address, 5)
        assert error == 0xE0 and "error 218" in message and "line 7: syntax error" in message
    assert not found.launches
    found, address = handler()
    assert called(address, 5, has_stream=False) == (0xE1, []) and not found.launches


def test_missing_driver_is_an_error(monkeypatch):
    monkeypatch.setattr(driver, "LIBRARY", "libno_such_driver.so")
    driver.library.cache_clear()
    kind = np.dtype(float)
    buffers = [ffi_call.Buffer((3,), kind, False), ffi_call.Buffer((2,), kind, True)]
    address = launch.handler_address(buffers, [ffi_call.Buffer((), kind, True)], False, lambda: "")
    error, (message,) = called(address, 5)
    driver.library.cache_clear()
    assert error == 0xE0 and "driver of the GPU cannot be loaded" in message


def test_environment_variable_turns_off_gpu_kernels(monkeypatch):
    monkeypatch.setenv("UKJAX_CUDA_KERNELS", "0")
    function = jax.jit(jax.vmap(uk.per_member(lambda x: jnp.sin(x) * x)))
    assert "custom_call" not in function.trace(np.ones(3)).lower(lowering_platforms=("cuda",)).as_text()


def test_without_libdevice_its_functions_use_vmap_and_a_warning_is_given(monkeypatch):
    """The warning names the function."""
    monkeypatch.setattr(module, "has_library", lambda: False)
    function = jax.jit(jax.vmap(uk.per_member(lambda x: jnp.arctan2(x, 2.0))))
    with pytest.warns(UserWarning, match="atan2"):
        assert "ukjax_cuda" not in function.trace(np.ones(3)).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.skipif(libdevice.path() is None, reason="NVIDIA's libdevice is not installed")
@pytest.mark.parametrize("kind", ("float64", "float32"))
def test_elementary_functions_are_linked_from_libdevice(kind):
    function = jax.jit(jax.vmap(uk.per_member(lambda x: (x ** x[0], jnp.arctan2(x, x[0]), jnp.cbrt(x), jnp.tan(x)))))
    text = function.trace(np.ones((3, 2), kind)).lower(lowering_platforms=("cuda",)).as_text()
    (name,) = re.findall(r"custom_call @(\w+)", text)
    found = launch.ptx(name)
    assert ".entry kernel" in found and ".extern" not in found and "__nvvm_reflect" not in found
