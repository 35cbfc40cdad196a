"""Everything side by side in one run: noise, influence, reading, scaling, start-up.

    python benchmarks/bench.py [--quick] [--only SECTION …] [--docs docs/benchmarks]

Prints the tables and, with --docs, writes them as bench.md and bench.json (--quick: bench_quick).  Times
are processor seconds of one thread, repeated; a ratio is the median of ratios taken in the same round,
with the least and the largest of them (in the JSON a list of these three).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import bench_noise
import bench_peers
import bench_scaling
import bench_startup

SECTIONS: dict[str, tuple[str, Callable[[bool], list[dict[str, Any]]]]] = {
    "noise": ("Noise", bench_noise.noise),
    "influence": ("Influence of quilts", bench_peers.influence),
    "reading": ("Reading BIF files", bench_peers.reading),
    "scaling": ("Scaling", bench_scaling.scaling),
    "workers": ("Workers", bench_scaling.workers),
    "startup": ("Start-up", bench_startup.startup),
}


def versions() -> dict[str, str]:
    found = {"commit": commit(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    found |= {"python": platform.python_version(), "machine": f"{os.cpu_count()} cores, {platform.machine()}"}
    for name in ("quiltdp", "numpy", "scipy", "pgmpy", "pyagrum", "distributed"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def markdown(block: dict[str, Any]) -> str:
    """Return one table with what is said about it."""
    columns: Sequence[str] = block["columns"]
    lines = [f"### {block['title']}", "", block["says"], ""] if block.get("title") else []
    lines += ["| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in block["rows"]]
    return "\n".join([*lines, *(["", block["after"]] if block.get("after") else []), ""])


def _cell(value: Any) -> str:
    """Return a cell: three numbers are a median, the least and the most."""
    if value is None:
        return "–"
    if isinstance(value, list):
        middle, least, most = (f"{v:.3g}" for v in value)
        return middle if least == most else f"{middle} ({least}–{most})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def commit() -> str:
    """Return which sources were measured: their commit, with a + if they were changed since."""
    git = ["git", "-C", str(Path(__file__).resolve().parent), "describe", "--always", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two minutes")
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    stem = "bench_quick" if options.quick else "bench"
    stored = None if options.docs is None else options.docs / f"{stem}.json"
    document: dict[str, Any] = {"versions": versions(), "quick": options.quick, "sections": {}}
    if stored is not None and stored.exists() and len(options.only) < len(SECTIONS):
        document["sections"] = json.loads(stored.read_text(encoding="utf-8"))["sections"]
    for name in options.only:
        title, make = SECTIONS[name]
        print(f"## {title}\n", flush=True)
        gc.collect()
        gc.freeze()  # what earlier sections left behind is not gone through again in this one
        began = time.process_time()
        blocks = make(options.quick)
        print("\n".join(markdown(b) for b in blocks), flush=True)
        print(f"{time.process_time() - began:.0f} processor seconds, at most {peak()} MB\n", flush=True)
        document["sections"][name] = blocks
        if stored is not None:  # after every section: an interrupted run leaves what it has
            stored.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            (options.docs / f"{stem}.md").write_text(page(document), encoding="utf-8")


def page(document: dict[str, Any]) -> str:
    """Return the whole report."""
    quick = document["quick"]
    head = ", ".join(f"{k} {v}" for k, v in document["versions"].items())
    text = [
        f"# Side by side{' (quick)' if quick else ''}\n",
        f"`make bench{'-quick' if quick else ''}`; within a section everything is measured in one run,"
        f" in processor seconds of one thread unless a column says otherwise. {head}.\n",
    ]
    for name, (title, _) in SECTIONS.items():
        blocks = document["sections"].get(name, [])
        text += [f"## {title}\n", *(markdown(b) for b in blocks)] if blocks else []
    return "\n".join(text)


def peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)


if __name__ == "__main__":
    main()
