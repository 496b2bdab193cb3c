"""All notebooks run from top to bottom in a fresh kernel, and are stored with their outputs."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.optimised

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def code_cells(path):
    import nbformat

    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_notebooks_exist():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_with_outputs_of_one_run(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not [output for output in cell.outputs if output.output_type == "error"]
        if "print(" in cell.source and not cell.source.startswith("def "):
            assert cell.outputs, cell.source


@pytest.mark.slow
@pytest.mark.timeout(1500)  # each compiles several mechanisms
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")  # from the kernel's own code
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    if any("UKJAX_DATA" in cell.source for cell in notebook.cells):
        data = Path(os.environ.get("UKJAX_DATA", str(path.parents[2] / "shared" / "data")))
        if not data.is_dir():
            pytest.skip(f"there are no measured records in {data}: see the notebook for where to get them")
        monkeypatch.setenv("UKJAX_DATA", str(data))
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
