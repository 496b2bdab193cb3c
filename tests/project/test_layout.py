"""Imports between modules follow the order of the architecture, and importing has no side effects."""

import ast
import graphlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ukjax

ROOT = Path(ukjax.__file__).parent


def modules():
    """Return name -> source file. The imports of ``ukjax`` are those of its stub, because it imports lazily."""
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        stub = path.with_suffix(".pyi")
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = stub if stub.exists() else path
    return names


def imported(name, path, known):
    """Yield the modules of this package that ``name`` imports, anywhere in its file."""
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(start + (node.module.split(".") if node.module else []))
            # ``from ..a import b``: b is a module, or a name in a.
            found = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names]
        else:
            continue
        yield from (module for module in found if module in known and module != name)


@pytest.fixture(scope="module")
def graph():
    known = modules()
    return {name: set(imported(name, path, known)) for name, path in known.items()}


def cycle(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]


def within(module, family):
    return module == family or module.startswith(family + ".")


def test_graph_contains_known_imports(graph):
    """Without this, the tests below could not fail."""
    assert {"ukjax._solve", "ukjax._terms", "ukjax._check", "ukjax._precision"} <= graph["ukjax._equation"]
    assert "ukjax._solve.base" in graph["ukjax._solve.kkt"]
    assert "ukjax._equation" in graph["ukjax"]
    assert cycle(graph | {"ukjax._terms": {"ukjax._equation"}})


def test_imports_have_no_cycle(graph):
    assert cycle(graph) is None


@pytest.mark.parametrize(
    ("family", "others"),
    (
        ("ukjax._solve", ("ukjax._terms", "ukjax._constraint", "ukjax._dynamics", "ukjax._equation", "ukjax._system")),
        ("ukjax._constraint", ("ukjax._dynamics", "ukjax._terms", "ukjax._equation", "ukjax._system")),
        ("ukjax._dynamics", ("ukjax._constraint", "ukjax._solve", "ukjax._equation", "ukjax._system")),
        ("ukjax._equation", ("ukjax._constraint", "ukjax._dynamics", "ukjax._system")),
        ("ukjax._control", ("ukjax._dynamics", "ukjax._system", "ukjax.control", "ukjax.systems")),
        ("ukjax.control", ("ukjax._motion", "ukjax._estimate", "ukjax.systems")),
        ("ukjax._parameters", ("ukjax._constraint", "ukjax._solve", "ukjax._system", "ukjax._estimate")),
        ("ukjax._estimate", ("ukjax.control", "ukjax.systems", "ukjax.plot", "ukjax._command")),
    ),
)
def test_families_of_modules_do_not_import_each_other(graph, family, others):
    crossing = [
        (module, target)
        for module, targets in graph.items()
        if within(module, family)
        for target in targets
        if any(within(target, other) for other in others)
    ]
    assert not crossing


ORDER = (
    ("_kernel",),
    ("_solve",),
    ("_terms", "_equation", "_integration"),
    ("_constraint", "_dynamics"),
    ("_control",),
    ("_system",),
    ("_with_states",),
    ("_contact",),
    ("_labels",),
    ("_motion", "control", "systems"),
    ("joints",),
    ("contacts",),
    ("_mechanism",),
    ("_robot_file", "robots"),
    ("_analysis",),
    ("verify",),
    ("_estimate",),
    ("_ensemble",),
    ("_view",),
    ("plot", "_command"),
)
"""The parts in order: each may import those before it. Parts in one line do not import each other."""

EVERYWHERE = (
    "_cache",
    "_check",
    "_check_terms",
    "_compressed",
    "_errors",
    "_extras",
    "_files",
    "_fingerprint",
    "_flatten",
    "_friction",
    "_functions",
    "_jaxpr",
    "_kinematic_map",
    "_names",
    "_norm",
    "_outside",
    "_parameters",
    "_precision",
    "_rotation",
    "_run",
    "_version",
)
"""Modules that any part may import, and that import only the lowest ones."""


def floor(module):
    for i, rooms in enumerate(ORDER):
        if any(within(module, f"ukjax.{room}") for room in rooms):
            return i
    return None


def up(graph):
    """Yield imports of a higher part, and imports beyond the terms by modules that are used everywhere."""
    ground = [f"ukjax.{name}" for name in EVERYWHERE]
    for module, targets in graph.items():
        level = 2 if any(within(module, each) for each in ground) else floor(module)
        if level is not None:
            yield from ((module, target) for target in targets if (floor(target) or 0) > level)


def test_all_modules_belong_to_a_part(graph):
    ground = [f"ukjax.{name}" for name in EVERYWHERE]
    placed = {module for module in graph if floor(module) is not None or any(within(module, each) for each in ground)}
    assert set(graph) - placed == {"ukjax", "ukjax.__main__"}


def test_parts_import_only_lower_parts(graph):
    assert not list(up(graph))
    assert list(up(graph | {"ukjax._solve.base": {"ukjax._motion.stepper.runge_kutta"}}))  # the check can fail
    assert list(up(graph | {"ukjax._check": {"ukjax._system"}}))


FOLDERS = {
    "_motion": ("stepper", "fallback", "integrate", "trajectory", "diagnose", "consistent"),
    "_kernel": ("graph", "unroll", "llvm"),
}
"""The folders of a part in order: each may import those before it."""


def against_the_order(graph, part, folders):
    """Yield imports from a folder to a later one."""
    which = lambda module: next((i for i, f in enumerate(folders) if within(module, f"ukjax.{part}.{f}")), None)
    for module, targets in graph.items():
        for target in targets:
            here, there = which(module), which(target)
            if here is not None and there is not None and there > here:
                yield module, target


@pytest.mark.parametrize(("part", "folders"), FOLDERS.items())
def test_folders_import_only_earlier_folders(graph, part, folders):
    assert not list(against_the_order(graph, part, folders))
    first, last = f"ukjax.{part}.{folders[0]}.x", f"ukjax.{part}.{folders[-1]}.y"
    assert list(against_the_order({first: {last}}, part, folders))  # the check can fail


def test_motion_folder_has_few_entries_and_few_imports_between_them(graph):
    """At most fifteen files and folders, and at most fifty imports between them."""
    rooms = {module.split(".")[2] for module in graph if module.startswith("ukjax._motion.")}
    assert len(rooms) <= 15
    room = lambda module: ".".join(module.split(".")[:3])
    inside = {module: targets for module, targets in graph.items() if within(module, "ukjax._motion")}
    arrows = {(room(m), room(t)) for m, ts in inside.items() for t in ts if t in inside and room(m) != room(t)}
    assert len(arrows) <= 50


INTERNALS = "jax.extend", "jax.interpreters", "jax.core"
READ_JAXPRS = "ukjax._jaxpr", "ukjax._kernel", "ukjax._fingerprint"
"""The modules that know the internal representation of programs in JAX; ``_fingerprint`` hashes it."""


def internals_of_jax(source):
    """Yield the internal modules of JAX that a source imports or uses."""
    for node in ast.walk(ast.parse(source)):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        yield from (name for name in names if name and name.startswith(INTERNALS))


def test_internals_of_jax_are_used_only_in_few_folders():
    """A change of these internals in a release of JAX affects only these folders."""
    readers = {name for name, path in modules().items() if list(internals_of_jax(path.read_text()))}
    assert not {name for name in readers if not any(within(name, place) for place in READ_JAXPRS)}
    assert "ukjax._jaxpr.tracing" in readers and "ukjax._kernel.lowering" in readers


def test_default_backend_is_read_in_one_module_of_motion(graph):
    asking = {name for name, path in modules().items() if "default_backend" in path.read_text()}
    assert {name for name in asking if within(name, "ukjax._motion")} == {"ukjax._motion.stepper.limits"}


def test_systems_and_motion_do_not_import_each_other(graph):
    crossing = [
        (module, target)
        for module, targets in graph.items()
        for target in targets
        if within(module, "ukjax.systems")
        and within(target, "ukjax._motion")
        or within(module, "ukjax._motion")
        and within(target, "ukjax.systems")
    ]
    assert not crossing


KINDS = {"Holonomic", "Nonholonomic", "Pfaffian", "AccelerationConstraint"}


def asked_for_kinds(source):
    """Yield the kinds of constraint that ``isinstance`` and ``issubclass`` test for."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass"):
                classes = ast.walk(node.args[1])
                named = {getattr(part, "id", None) or getattr(part, "attr", None) for part in classes}
                yield from named & KINDS


def test_modules_do_not_test_for_kinds_of_constraints(graph):
    """A new kind is a new file: modules above have no branches for kinds."""
    above = {name: path for name, path in modules().items() if not within(name, "ukjax._constraint")}
    asking = {name: found for name, path in above.items() if (found := list(asked_for_kinds(path.read_text())))}
    assert not asking
    assert list(asked_for_kinds("isinstance(x, (uk.Holonomic, str))")) == ["Holonomic"]


def test_control_laws_are_in_one_folder(graph):
    """The folder ``_control`` below has only what a system needs of all laws."""
    assert {module for module in graph if within(module, "ukjax._control")} == {
        "ukjax._control",
        "ukjax._control.base",
        "ukjax._control.allocation",
    }


def test_only_the_command_line_imports_the_top_level_module(graph):
    users = {module for module, targets in graph.items() if "ukjax" in targets}
    assert all(within(module, "ukjax._command") or module == "ukjax.__main__" for module in users)


SCRIPT = """
import json, sys
import ukjax
first = set(sys.modules)
for name in ukjax.__all__:
    getattr(ukjax, name)
import jax
from jax._src import xla_bridge
print(json.dumps({
    "first": sorted(first),
    "then": sorted(sys.modules),
    "started": xla_bridge.backends_are_initialized(),
    "double": jax.config.jax_enable_x64,
    "names": sorted(ukjax.__all__),
}))
jax.numpy.zeros(1)
assert xla_bridge.backends_are_initialized()  # so that the False above means something
"""


@pytest.fixture(scope="module")
def fresh():
    """Return the modules of a new process after ``import ukjax``, and after access to all public names."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_import_does_not_start_a_backend(fresh):
    assert fresh["started"] is False


def test_import_does_not_set_the_precision(fresh):
    assert fresh["double"] is False


@pytest.mark.parametrize("library", ("matplotlib", "xarray", "pandas", "zarr", "IPython", "mujoco"))
def test_import_does_not_load_optional_packages(fresh, library):
    assert library not in fresh["then"]


def test_import_does_not_load_systems_of_the_gallery(fresh):
    gallery = {"base", "catalogue"}  # shared code of all mechanisms, and their names
    loaded = {name.split(".")[2] for name in fresh["then"] if name.startswith("ukjax.systems.")}
    assert loaded <= gallery


def test_import_does_not_import_jax(fresh):
    assert "ukjax" in fresh["first"] and "jax" not in fresh["first"]


def test_public_names_exist(fresh):
    assert {"Terms", "System", "constrained_motion", "simulate", "project", "Holonomic"} <= set(fresh["names"])
    assert {"AbstractConstraint", "AbstractDynamics", "AbstractMethod", "AbstractSystem"} <= set(fresh["names"])


def test_tests_and_benchmarks_do_not_import_systems_base():
    """All that a user-defined mechanism needs is public."""
    assert {"AbstractMechanism", "Parameter", "parameter"} <= set(dir(ukjax.systems))
    outside = [path for folder in ("tests", "benchmarks") for path in (ROOT.parent / folder).rglob("*.py")]
    assert len(outside) > 10
    reaching = [path.name for path in outside if "from ukjax.systems." + "base import" in path.read_text()]
    assert not reaching
