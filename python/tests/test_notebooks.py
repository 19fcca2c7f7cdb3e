"""The notebooks of the documentation run, and print the outputs that they have.

Run the tests with ``ADJOIN_TEST=overwrite`` to accept a change of their outputs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import SAMPLE

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
# The tag of a cell whose output differs from run to run, as the plug-in nbval calls it.
VARIES = "nbval-ignore-output"


def run(notebook: Any, folder: Path) -> None:
    """Runs a notebook in a folder, with the sample at the same relative path as in the repository."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient runs the notebooks: pip install nbclient ipykernel")
    (folder / "fixtures").symlink_to(SAMPLE.parent)
    (folder / "docs" / "notebooks").mkdir(parents=True)
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder / "docs" / "notebooks")}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of the run
        if "outputs" in cell:  # without the progress bars
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def words(cell: Any) -> list[str]:
    """Returns the words and numbers of a cell's outputs, in any style of tables that a version of Polars has."""
    shown = [output.get("data", {}) for output in cell.outputs]
    texts = [output.get("text") or data.get("text/html") or data["text/plain"] for output, data in zip(cell.outputs, shown)]
    plain = re.sub(r"<style.*?</style>|<[^>]*>", " ", "\n".join(texts), flags=re.DOTALL)
    return re.findall(r"[\w.,+-]+", plain)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat reads the notebooks: pip install nbclient ipykernel")
    saved, done = nbformat.read(path, 4), nbformat.read(path, 4)
    run(done, tmp_path)
    if os.environ.get("ADJOIN_TEST") == "overwrite":
        nbformat.write(done, path)
        saved = done
    compared = 0
    for before, after in zip(saved.cells, done.cells):
        if after.cell_type == "code" and VARIES not in after.metadata.get("tags", []):
            assert words(after) == words(before), after.source
            compared += len(words(after)) > 0
    assert compared >= 8
    assert "<table" in str([cell.get("outputs") for cell in done.cells]), "results are shown as tables"
