"""Reading BIF files side by side: quiltdp, pyAgrum, pgmpy.

    python benchmarks/readers.py [FOLDER] [--repeat 5] [--no-pgmpy] [--only NAME …]

Every ``.bif`` and ``.bif.gz`` in the folder (default ``models/``) is unpacked to a temporary file that
all three read.  Times are CPU seconds of this process, the best of ``--repeat`` runs (pgmpy: one run,
after a first file that pays for its imports and caches), so that other work on the machine counts
little.  The last column is how far the most deviating entry of pyAgrum's tables is from ours: it
stores tables read from BIF in 32 bits.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from quiltdp import load_model

ROOT = Path(__file__).parents[1]


def best(action: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Return the smallest CPU time of ``repeat`` runs, and the last result."""
    times, result = [], None
    for _ in range(repeat):
        del result
        gc.collect()
        start = time.process_time()
        result = action()
        times.append(time.process_time() - start)
    return min(times), result


def with_pgmpy(path: Path) -> Any:
    from pgmpy.readwrite import BIFReader

    return BIFReader(str(path)).get_model()


def with_pyagrum(path: Path) -> Any:
    import pyagrum

    return pyagrum.loadBN(str(path))


def deviation(model: Any, other: Any) -> float:
    """Return the largest difference between the sorted entries of corresponding tables."""
    worst = 0.0
    for f in model.factors:
        theirs = np.sort(np.asarray(other.cpt(f.child).toarray(), dtype=float).ravel())
        worst = max(worst, float(np.abs(np.sort(f.table.ravel()) - theirs).max()))
    return worst


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def ratio(value: float | None, ours: float) -> str:
    return "–" if value is None else f"{value / ours:.1f}×"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "models")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-pgmpy", action="store_true")
    parser.add_argument("--only", nargs="*", help="names without suffix")
    options = parser.parse_args()
    files = sorted(p for p in options.folder.iterdir() if p.name.endswith((".bif", ".bif.gz")))
    if options.only:
        files = [p for p in files if p.name.split(".")[0] in options.only]
    print("| network | nodes | numbers | quiltdp s | pyAgrum s | pgmpy s |", end="")
    print(" pyAgrum / ours | pgmpy / ours | pyAgrum off by |")
    print("|---|---|---|---|---|---|---|---|---|")
    load_model(ROOT / "models/asia.bif")
    if not options.no_pgmpy:
        with_pgmpy(ROOT / "models/asia.bif")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            name = file.name.split(".")[0]
            plain = Path(folder) / f"{name}.bif"
            data = file.read_bytes()
            plain.write_bytes(gzip.decompress(data) if file.suffix == ".gz" else data)
            ours, model = best(lambda p=plain: load_model(p), options.repeat)
            theirs: float | None = None
            off = "cannot read it"
            try:
                theirs, other = best(lambda p=plain: with_pyagrum(p), options.repeat)
                off = f"{deviation(model, other):.0e}"
                del other
            except Exception as error:  # a peer that fails is a row of the table, not the end of it
                off = f"refused ({type(error).__name__})"
            slow = None if options.no_pgmpy else best(lambda p=plain: with_pgmpy(p), 1)[0]
            rows.append(
                (name, len(model.nodes), sum(f.table.size for f in model.factors), ours, theirs, slow, off)
            )
            n, nodes, size, a, b, c, d = rows[-1]
            print(f"| {n} | {nodes} | {size} | {seconds(a)} | {seconds(b)} | {seconds(c)} |"
                  f" {ratio(b, a)} | {ratio(c, a)} | {d} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
