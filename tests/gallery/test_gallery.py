"""Requirements for all mechanisms of the gallery."""

import importlib
import inspect
import re
from pathlib import Path

import jax
import pytest

import ukjax as uk

from .test_gallery_nonsmooth import NAMES as CONTACTS

NAMES = tuple(uk.systems.CATALOGUE)
RUN_ELSEWHERE = (
    *("projectile", "spiral_particle", "flexible_joint_manipulator", "two_mass_spring", "coordinated_robots", "scara"),
    *("parallel_robot", "parallel_manipulator", "andrews_squeezer", "pendulum", "double_pendulum", "rough_incline"),
    *("double_arm_pendulum", "triple_arm_pendulum", "knife_edge", "chaplygin_sleigh", "rolling_disk", "rigid_body"),
    *("cart_pole", "mobile_robot", *CONTACTS),
)
"""Systems that another test module runs with ``check_run``."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in RUN_ELSEWHERE])
def test_run_command(name, check_run):
    check_run(name)
    jax.clear_caches()


def test_other_modules_run_the_excluded_systems():
    """Each excluded name is in a call of ``check_run``, or in the parameters of a test that calls it."""
    found = set(CONTACTS)
    for path in Path(__file__).parent.glob("test_*.py"):
        source = path.read_text()
        found |= set(re.findall(r'check_run\("(\w+)"', source))
        for cases in re.findall(r"(parametrize\([^@]*)def test_\w+\([^)]*check_run\)", source):
            found |= set(re.findall(r'"(\w+)"', cases))
    assert set(RUN_ELSEWHERE) <= found


@pytest.mark.parametrize("name", NAMES)
def test_system_is_documented(name):
    """The class has a drawing or equations, and units; its module states the source."""
    entry = uk.systems.CATALOGUE[name]
    module = importlib.import_module(f"ukjax.systems.{name}")
    text = inspect.getdoc(getattr(module, entry.cls)) or ""
    assert "[" in text and (module.__doc__ or "").strip()
    assert "::" in text or "``Abstract" in text, "no drawing"


def test_unknown_name_error_suggests_the_nearest():
    with pytest.raises(ValueError, match="no system is named 'four-bar'; did you mean 'four_bar'?"):
        uk.systems.named("four-bar")
