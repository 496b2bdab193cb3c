"""``ukjax info``: print versions, devices, precision and caches, as needed in a report of a problem."""

import argparse
import importlib.metadata
import json
import os
import platform
import textwrap
from pathlib import Path
from typing import Any

from .. import __version__

PACKAGES = ("jax", "jaxlib", "diffrax", "equinox", "optimistix", "numpy", "scipy", "llvmlite")
"""Packages that ukjax always uses."""

OPTIONAL_PACKAGES = ("matplotlib", "trimesh", "xarray", "zarr", "dask", "mujoco", "flatbuffers", "argcomplete")
"""Packages of the extras."""


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "info",
        help="print versions, devices, precision, and the caches on disk with their sizes",
        description="Print what a report of a problem needs: versions, devices, the width of numbers, the folders of "
        "compiled programs with their sizes, and whether LLVM compiles machine code on this machine.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(call=print_info)


def print_info(options: argparse.Namespace) -> int:
    """Print the report. Returns exit code 0."""
    report = information()
    print(json.dumps(report, indent=1) if options.json else "\n".join(_lines(report)))
    return 0


def information() -> dict[str, Any]:
    """Return the report: versions, devices, the float width of the commands, caches, and the kernel compiler."""
    import jax

    from .._cache import default_folder
    from .._kernel.llvm import machine
    from .._precision import enable_float64

    enable_float64()
    kernels, programs = machine.folder(), default_folder()
    target = machine.machine() if machine.is_available() else None
    return {
        "ukjax": __version__,
        "folder": str(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: _version_of(name) for name in (*PACKAGES, *OPTIONAL_PACKAGES)},
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()],
        "float_bits": 8 * jax.numpy.zeros(()).dtype.itemsize,
        "kernels": None if target is None else {"cpu": target.cpu, "float64_per_vector": target.width},
        "caches": {
            "programs": _cache(programs, excluded=kernels),
            "kernels": None if kernels is None else _cache(kernels),
        },
    }


def _version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cache(folder: Path, excluded: Path | None = None) -> dict[str, Any]:
    """Return path, number of files and size of a folder, without the files in the folder ``excluded``."""
    sizes = []
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if Path(path, name) != excluded]
        for name in files:
            try:
                sizes.append(Path(path, name).stat().st_size)
            except OSError:  # removed by another process
                continue
    return {"folder": str(folder), "files": len(sizes), "bytes": sum(sizes)}


def _lines(report):
    yield f"ukjax {report['ukjax']} in {report['folder']}"
    yield f"Python {report['python']}, {report['platform']}, {report['cores']} cores"
    yield ""
    packages = report["packages"]
    installed = ", ".join(f"{name} {packages[name]}" for name in packages if packages[name])
    for i, line in enumerate(textwrap.wrap(installed, 100)):
        yield _row("packages" if i == 0 else "", line)
    missing = [name for name in packages if packages[name] is None]
    if missing:
        yield _row("not installed", ", ".join(missing))
    for i, device in enumerate(report["devices"]):
        yield _row("devices" if i == 0 else "", device)
    yield _row("numbers", f"float{report['float_bits']} in all commands; in Python after ukjax.enable_float64()")
    kernels = report["kernels"]
    width = "" if kernels is None else f"for {kernels['cpu']}, {kernels['float64_per_vector']} float64 in a vector"
    yield _row("machine code", width or "none: llvmlite is not installed, XLA compiles everything, which is slower")
    for name, cache in report["caches"].items():
        text = "off, UKJAX_CACHE is empty"
        if cache is not None:
            text = f"{cache['folder']}, {cache['files']} files, {cache['bytes'] / 2**20:.1f} MiB"
        yield _row(f"{name} cache", text)


def _row(label, text):
    return f"  {label:15}{text}"
