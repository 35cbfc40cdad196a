"""Runs the notebooks in place, so that the outputs they carry (and the site shows) are today's.

python tools/notebooks.py            all of them
python tools/notebooks.py pedigree   one
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbclient
import nbformat

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"


def run(path: Path) -> None:
    """Execute one notebook and write it back without what changes from run to run."""
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    ).execute()
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
    print(f"ran {path.relative_to(ROOT)}")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    for name in sys.argv[1:] or [p.stem for p in sorted(FOLDER.glob("*.ipynb"))]:
        run(FOLDER / f"{name}.ipynb")
