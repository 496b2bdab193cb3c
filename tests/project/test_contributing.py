"""Workflows, forms and pages for contributors: valid, with files that exist and with equal commands."""

import os
import re
import tomllib

import pytest

import ukjax

from .pages import DOCS, ROOT

yaml = pytest.importorskip("yaml")

FORMS = sorted((ROOT / ".github").rglob("*.yml"))
WORKFLOWS = [path for path in FORMS if path.parent.name == "workflows"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
SCRIPT = re.compile(r"(?<![\w/])\.ci/\w+(?: \w+)?")


def load(path):
    return yaml.safe_load(path.read_text())


def jobs(path):
    return load(path)["jobs"].items()


def commands():
    """Return the commands of all steps of all workflows, with their workflow."""
    return [
        (path.name, step["run"])
        for path in WORKFLOWS
        for _, job in jobs(path)
        for step in job["steps"]
        if "run" in step
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_valid(path):
    workflow = load(path)
    assert workflow["name"] == path.stem and workflow["permissions"] == {"contents": "read"}
    assert set(workflow[True]) <= {"push", "pull_request", "schedule", "workflow_dispatch"}  # `on` is True in YAML 1.1
    names = dict(jobs(path))
    for job in names.values():
        assert {"runs-on", "steps", "timeout-minutes"} <= set(job)
        assert job.get("needs", next(iter(names))) in names
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step.get("uses", "a/b@c")), step
        keys = set(job.get("strategy", {}).get("matrix", {}))
        used = set(re.findall(r"\$\{\{ matrix\.(\w+) \}\}", str(job)))
        assert used <= keys, used - keys


def test_python_versions_of_the_matrix_equal_the_classifiers():
    matrix = dict(jobs(ROOT / ".github" / "workflows" / "tests.yml"))["tests"]["strategy"]["matrix"]
    classified = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert matrix["python"] == classified and PROJECT["requires-python"] == f">={classified[0]}"
    assert {case["python"] for case in matrix["include"]} <= set(classified)
    assert {case["os"] for case in matrix["include"]} == {"ubuntu-latest", "macos-latest", "windows-latest"}


def test_workflow_steps_are_executable_scripts():
    called = {(name, script) for name, run in commands() for script in SCRIPT.findall(run)}
    assert {script.split()[0] for _, script in called} >= {
        ".ci/lint",
        ".ci/tests",
        ".ci/docs",
        ".ci/wheel",
    }
    everywhere = [script for _, script in called]
    everywhere += [s for page in (CONTRIBUTING, ROOT / ".ci" / "run") for s in SCRIPT.findall(page.read_text())]
    parts = re.findall(r"^  (\w+)\)", (ROOT / ".ci" / "tests").read_text(), re.MULTILINE)
    assert len(parts) == 4
    for script in everywhere:
        name, *part = script.split()
        assert os.access(ROOT / name, os.X_OK), name
        assert name != ".ci/tests" or not part or part[0] in parts, script


def test_files_named_in_the_test_script_exist():
    files = re.findall(r"tests/[\w/]+\.py", (ROOT / ".ci" / "tests").read_text())
    assert len(files) > 3 and all((ROOT / file).is_file() for file in files)


def test_installed_extras_exist():
    texts = [run for _, run in commands()]
    texts += [
        path.read_text()
        for path in (CONTRIBUTING, ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "ukjax").rglob("*.py"))
    ]
    named = [
        extra
        for text in texts
        for group in re.findall(r"(?:ukjax|'\.)\[([\w,]+)\]'", text)
        for extra in group.split(",")
    ]
    assert len(named) > 10 and set(named) <= set(PROJECT["optional-dependencies"]), named


def test_extras_have_lower_bounds():
    wanted = [w for extra in PROJECT["optional-dependencies"].values() for w in extra] + PROJECT["dependencies"]
    assert [w for w in wanted if not re.search(">=|==|^ukjax|^jax.cuda", w)] == []


@pytest.mark.parametrize("path", [p for p in FORMS if p.parent.name == "ISSUE_TEMPLATE"], ids=lambda path: path.name)
def test_issue_form_is_valid(path):
    form = load(path)
    if path.name == "config.yml":
        assert set(form) == {"blank_issues_enabled"}
        return
    assert {"name", "description", "body"} <= set(form)
    identifiers = [field["id"] for field in form["body"]]
    assert len(set(identifiers)) == len(identifiers)
    for field in form["body"]:
        assert field["type"] in ("textarea", "checkboxes") and field["attributes"]["label"]


PATH = re.compile(r"`((?:ukjax|tests|docs|\.github|\.ci)/[\w./-]*|[A-Z]+\.md|[A-Z]+\.cff|pyproject\.toml)`")
NEW = {  # new files that the pages ask contributors to write
    "adams_bashforth", "bead", "distance", "gravity_pd", "mass", "pseudoinverse", "sdf", "test_adams_bashforth",
    "test_sdf",
}  # fmt: skip


@pytest.mark.parametrize("page", [CONTRIBUTING, *(DOCS / "contributing").glob("*.md")], ids=lambda page: page.name)
def test_files_named_in_a_page_exist(page):
    named = PATH.findall(page.read_text())
    missing = [name for name in named if not (ROOT / name).exists() and (ROOT / name).stem not in NEW]
    assert missing == []
    assert named


def test_version_equals_that_of_the_changelog():
    """The newest section has the version, without .dev, and is dated if the version is."""
    heading = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    version, _, note = heading.partition(" ")
    assert version == ukjax.__version__.partition(".dev")[0]
    assert ("Unreleased" in note) == (".dev" in ukjax.__version__)
    assert (ROOT / "CITATION.cff").read_text().count(f"\nversion: {version}\n") == 1


def test_changelog_sections_have_known_headings_without_duplicates():
    for section in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]:
        kinds = re.findall(r"^### (.*)$", section, re.MULTILINE)
        assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Performance"}
        assert len(set(kinds)) == len(kinds)
