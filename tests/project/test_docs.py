"""The code of the documentation runs, its links are valid, and every public name has an entry.

The Python blocks of a page are one program, in the order of the page. ``<!-- not run -->`` above a block excludes it:
code of other engines. ``<!-- output -->`` above a block of text compares it with the output of the block before it.
Other comments name a block for ``CHECKS``.
"""

import operator
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import ukjax as uk
from ukjax.__main__ import parser

from .checks import CHECKS
from .pages import DOCS, README, ROOT, blocks, code, name_of, numbers, pages, run, words

PAGES = pages()
QUICK = README, DOCS / "guides" / "matrices.md"
"""Pages whose code runs with the default tests."""

WITH_CODE = [
    pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] * (page not in QUICK)) for page in PAGES if code(page)
]


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:.*has what is not modelled:UserWarning")  # robot files with limits of joints
@pytest.mark.parametrize("page", WITH_CODE)
def test_code_of_a_page_runs_and_prints_the_shown_output(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for the files that examples write
    monkeypatch.setenv("UKJAX_CACHE", "")
    names = {"__name__": "__main__"}
    for block, shown in code(page):
        printed = run(block, names, page)
        if shown is not None:
            assert words(printed) == words(shown)
            np.testing.assert_allclose(numbers(printed), numbers(shown), rtol=2e-3, atol=1e-8, err_msg=printed)
        if block.name in CHECKS:
            CHECKS[block.name](names, printed)


def test_each_checked_block_is_in_exactly_one_page():
    named = [block.name for page in PAGES for block, _ in code(page)]
    assert {name: named.count(name) for name in CHECKS} == dict.fromkeys(CHECKS, 1)


def test_commands_in_the_pages_are_valid():
    commands = [
        shlex.split(line, comments=True)[1:]
        for page in PAGES
        for block in blocks(page)
        if block.language == "bash"
        for line in block.text.splitlines()
        if line.startswith("ukjax ")
    ]
    assert len(commands) > 10
    for command in commands:
        parser().parse_args(command)


# --- links ------------------------------------------------------------------------------------------------------------

LINK = re.compile(r"\]\(([^()\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_within_the_repository_exist(page):
    text = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(), flags=re.DOTALL)
    for link in LINK.findall(text):
        target = link.split("#")[0]
        if not target or "://" in target or "generated/" in target or "gallery/systems/" in target:
            continue  # generated pages are checked by the build
        if "notebooks/" in target and page != README:
            target = str(ROOT / "notebooks" / Path(target).name)  # the build copies notebooks from here
        assert (page.parent / target).exists(), link


# --- the reference ----------------------------------------------------------------------------------------------------


def entries() -> set[str]:
    """Return the names in the ``autosummary`` lists of the reference, relative to ``ukjax``."""
    found = set()
    for page in (DOCS / "reference").glob("*.md"):
        for module, listed in re.findall(
            r"currentmodule:: ukjax(\.\w+)?\n\n\.\. autosummary::\n   :toctree: generated\n\n((?:   \S+\n)+)",
            page.read_text(),
        ):
            found |= {f"{module}.{name}".lstrip(".") for name in listed.split()}
    return found


def test_public_names_have_reference_entries():
    modules = ("contacts", "control", "joints", "plot", "robots", "systems", "verify")
    of_gallery = {f"systems.{entry.cls}" for entry in uk.systems.CATALOGUE.values()}  # these have pages in the gallery
    public = {name for name in dir(uk) if name not in modules} - {"__version__"}
    for module in modules:
        public |= {f"{module}.{name}" for name in public_names(getattr(uk, module))}
    public -= {"robots.FOLDER", "systems.CATALOGUE", "systems.Parameter"}  # data and a type alias
    assert public - entries() - of_gallery == set()
    for name in entries():
        assert operator.attrgetter(name)(uk) is not None


def public_names(module) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "").startswith("ukjax")
        ]
    return [name for name in listed if name not in ("InputError", "did_you_mean", "did_you_mean_one_of")]


def test_gallery_has_a_picture_of_each_system():
    pictures = {path.stem: path.stat().st_size for path in (DOCS / "gallery" / "pictures").glob("*.png")}
    assert set(pictures) == set(uk.systems.CATALOGUE)
    assert max(pictures.values()) <= 40_000


def test_names_in_the_pages_exist_in_the_library():
    """Names such as ``uk.tune``, and attributes of the variables ``found`` and ``motion`` of the examples."""
    owners = {"uk": uk, "found": uk.Fit, "motion": uk.Trajectory}
    count = 0
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for owner, name, deeper in re.findall(
            r"(?<!/)\b(uk|found|motion)\.(\w+)(?:\.(\w+))?", " ".join(re.findall(r"`([^`]+)`", text))
        ):
            known = dir(owners[owner]) + list(getattr(owners[owner], "__dataclass_fields__", ()))
            if owner == "found":
                known += dir(uk.Ensemble) + dir(uk.Tuned)
            assert name in known, f"{page.name}: {owner}.{name}"
            assert not deeper or hasattr(getattr(owners[owner], name), deeper), f"{owner}.{name}.{deeper}"
            count += 1
    assert count > 50


# --- the built site ---------------------------------------------------------------------------------------------------


class References(HTMLParser):
    """Collects the resources that a page loads, and the targets of its links."""

    def __init__(self):
        super().__init__()
        self.loaded, self.links, self.anchors = [], [], set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "author", "search"):
            self.loaded.append(given.get("href"))
        elif tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "object"):
            self.loaded.append(given.get("src") or given.get("data"))


def test_docstrings_become_restructured_text(monkeypatch):
    pytest.importorskip("sphinx", reason="the site needs pip install '.[docs]'")
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    from docstrings import rewritten  # pyright: ignore[reportMissingImports]

    equation = ["Of |x| and ``|y|``.", "", "    u = |x|", "", "Then"]
    assert rewritten(equation) == ["Of \\|x\\| and ``|y|``.", "", "::", "", "    u = |x|", "", "Then"]
    drawing = ["Draw::", "", "    |", "    o"]
    assert rewritten(drawing) == drawing
    table = rewritten(["| a | b |", "|---|---|", "| 1 | 2 |"])
    assert table == [".. list-table::", "   :header-rows: 1", "", "   * - a", "     - b", "   * - 1", "     - 2", ""]


def test_names_become_links(monkeypatch):
    pytest.importorskip("sphinx", reason="the site needs pip install '.[docs]'")
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    from links import target  # pyright: ignore[reportMissingImports]

    assert target("uk.control.Servo(B, task)", in_docstring=False) == "ukjax.control.Servo"
    assert target("Trajectory.reached()", in_docstring=True) == "ukjax.Trajectory.reached"
    assert target("Plane", in_docstring=True) == "ukjax.contacts.Plane"
    assert target("Simulator", in_docstring=False) is None  # a class of Drake
    assert target("step", in_docstring=True) is None  # often an argument


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="the site needs pip install '.[docs]'")
    pytest.importorskip("myst_nb", reason="the site needs pip install '.[docs]'")
    source, built = tmp_path_factory.mktemp("source") / "docs", tmp_path_factory.mktemp("built")
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns(*(Path(x).name for x in ("_build", "_extra"))))
    for beside in ("notebooks", "benchmarks"):  # folders outside docs/ that the pages and docs/conf.py use
        (source.parent / beside).symlink_to(ROOT / beside)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(source), str(built)]
    environment = dict(os.environ, PYTHONPATH=str(ROOT), JAX_PLATFORMS="cpu")
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=360)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_site_builds_without_warnings_and_loads_nothing_from_other_hosts(site):
    parsed = {}
    for path in site.rglob("*.html"):
        parsed[path.resolve()] = reader = References()
        reader.feed(path.read_text())
    assert len(parsed) > 150
    for path, reader in parsed.items():
        for address in filter(None, reader.loaded):
            assert not re.match(r"(https?:)?//", address), f"{path.name} loads {address}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text()), style.name
    for path, reader in parsed.items():
        for link in reader.links:
            if re.match(r"\w+:", link) or link.startswith("//"):
                continue
            target, _, anchor = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path.name}: {link}"
            if anchor and file in parsed and not target.startswith("_modules"):
                assert anchor in parsed[file].anchors, f"{path.name}: {link}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_search_works_in_a_browser_without_a_network(site):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs chromium")
    address = f"{(site / 'search.html').as_uri()}?q=servo"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command = [browser, *options, "--virtual-time-budget=20000", "--dump-dom", address]
    page = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
    assert "reference/generated/ukjax.control.Servo.html" in page and "pages matching" in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_public_names_are_in_the_inventory(site):
    from sphinx.util.inventory import InventoryFile  # pyright: ignore[reportMissingImports]

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, target: target)
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    wanted = {f"ukjax.{name}" for name in entries()}
    wanted |= {f"ukjax.systems.{entry.cls}" for entry in uk.systems.CATALOGUE.values()}
    assert wanted - documented == set()
