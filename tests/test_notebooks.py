"""Every notebook runs from top to bottom, in under two minutes, without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SLOW = ("agents",)  # five hundred questions to a service
NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
]


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT / "notebooks")}},
    )
    client.execute()
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", ())]
    assert outputs, "the notebook shows nothing"
