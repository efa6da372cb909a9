"""Every notebook runs from top to bottom in an empty folder, and is stored without what it shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


FIGURES = {
    "01_first_run": 3,
    "02_rooflines": 4,
    "03_scan_paper": 6,
    "04_hardware_sweeps": 5,
    "05_triangular_inverse": 2,
    "06_your_kernel": 3,
}


def test_all_are_there():
    assert [notebook.stem for notebook in NOTEBOOKS] == list(FIGURES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    for cell in notebook.cells:
        assert not cell.metadata
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.filterwarnings("default")  # of the kernel's client, on which nothing here depends
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """It raises nothing, warns of nothing, and draws what it says it draws."""
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel has one of its own, which shows figures
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    asyncio.run(client.async_execute())
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert [o.text for o in shown if o.get("name") == "stderr"] == []
    assert sum("image/png" in o.get("data", {}) for o in shown) == FIGURES[path.stem]
