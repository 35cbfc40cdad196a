"""Everything side by side in one run: noise, influence, reading, scaling, start-up.

    python benchmarks/bench.py [--quick] [--only SECTION …] [--docs docs/benchmarks]

Prints the tables and, with --docs, writes them as bench.md and bench.json (--quick: bench_quick).  Times
are processor seconds of one thread, repeated; a ratio is the median of ratios taken in the same round,
with the least and the largest of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import bench_noise
import bench_peers
import bench_scaling

SECTIONS: dict[str, tuple[str, Callable[[bool], list[dict[str, Any]]]]] = {
    "noise": ("Noise", bench_noise.noise),
    "influence": ("Influence of quilts", bench_peers.influence),
    "reading": ("Reading BIF files", bench_peers.reading),
    "scaling": ("Scaling", bench_scaling.scaling),
    "workers": ("Workers", bench_scaling.workers),
    "startup": ("Start-up", bench_scaling.startup),
}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": f"{os.cpu_count()} cores, {platform.machine()}"}
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
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two minutes")
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    began = time.process_time()
    about = versions()
    head = ", ".join(f"{k} {v}" for k, v in about.items())
    command = "make bench-quick" if options.quick else "make bench"
    text = [
        f"# Side by side{' (quick)' if options.quick else ''}\n",
        f"`{command}`, one run; processor seconds of one thread unless a column says otherwise. {head}.\n",
    ]
    document: dict[str, Any] = {"versions": about, "quick": options.quick, "sections": {}}
    print("\n".join(text), flush=True)
    for name in options.only:
        title, make = SECTIONS[name]
        print(f"## {title}\n", flush=True)
        blocks = make(options.quick)
        document["sections"][name] = blocks
        body = "\n".join(markdown(b) for b in blocks)
        print(body, flush=True)
        text.append(f"## {title}\n\n{body}")
    spent = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    text.append(f"The whole run: {spent:.0f} processor seconds, at most {peak:.0f} MB.\n")
    print(text[-1])
    if options.docs is not None:
        stem = "bench_quick" if options.quick else "bench"
        (options.docs / f"{stem}.md").write_text("\n".join(text), encoding="utf-8")
        (options.docs / f"{stem}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
