"""The tutorials: each notebook was executed as it is, and runs again in a fresh folder with outputs of the same kinds."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from rankbench.core import plugins
from rankbench.experiment.methods import load_plugin

# A minute each. tests/sweeps/test_plugin_on_a_cluster.py sweeps a plugin too, and tests/api/test_sweep.py compares losses.
LONG = ("add_a_loss", "compare_losses")
TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.ipynb"))


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """The kinds of results of a cell. What is printed may differ: a busy machine is warned that Ray starts slowly."""
    return sorted({output.output_type for output in cell.outputs if output.output_type != "stream"})


def test_there_are_tutorials():
    assert {path.stem for path in TUTORIALS} == {"own_data", "compare_losses", "add_a_loss"}


def test_the_files_that_tutorials_write_are_plugins_of_this_version(tmp_path):
    """Without running a tutorial, which takes a minute."""
    cells = [cell.source for path in TUTORIALS for cell in code_cells(nbformat.read(path, as_version=4))]
    written = [source.partition("\n") for source in cells if source.startswith("%%writefile ")]
    for magic, _, text in written:
        file = tmp_path / magic.split()[1]
        file.write_text(text, encoding="utf-8")
        with plugins.separate():
            load_plugin(str(file))
    assert written


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in LONG else ()) for path in TUTORIALS]
)
def test_a_tutorial_runs_from_its_first_cell_to_its_last(path, tmp_path, monkeypatch):
    stored = nbformat.read(path, as_version=4)
    assert [cell.execution_count for cell in code_cells(stored)] == list(range(1, len(code_cells(stored)) + 1))
    for name in [name for name in os.environ if name.startswith(("RANKBENCH_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("RANKBENCH_OFFLINE", "1")
    again = nbformat.read(path, as_version=4)
    NotebookClient(
        again, timeout=500, startup_timeout=300, iopub_timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for old, new in zip(code_cells(stored), code_cells(again), strict=True):
        assert kinds(old) == kinds(new), old.source
