"""Are limits kept?  Every shipped model × both adversaries, each in a process of its own.

python benchmarks/limits.py [--time-limit 30] [--memory-limit 2G] [--only asia,link] [--docs FILE] [--busy]

An answer is late when it takes longer than the limit and two seconds: start, reading the file, the stage
that was cut short, and printing are all counted.  Memory is the peak of the whole process.  On a machine
that does other things as well, ``--busy`` makes the guard count processor seconds, and judges by those.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "models"
GRACE = 2.0
HEAD = """# Limits

Written by `benchmarks/limits.py`: `quiltdp calibrate MODEL --epsilon 1` with {limits}, every run a fresh
process. A guard decides no number: where it strikes, the answer is that of the last finished stage (a name
with `~` is its rough half), and `--work normal:STAGE` gives it again anywhere.
"""


@dataclass(frozen=True)
class Run:
    """One answer: how long it took, what it took, and how far it came."""

    model: str
    adversary: str
    wall: float
    processor: float
    peak: int
    stage: str
    sigma: float
    struck: bool


def shipped() -> list[Path]:
    """Return the networks, chains and pedigrees in models/."""
    found = [p for p in MODELS.iterdir() if p.name.endswith((".bif", ".bif.gz", ".json"))]
    return sorted(found) + sorted((MODELS / "pedigree").glob("*.fam"))


BUSY = """
import time, types
import quiltdp.work
quiltdp.work.time = types.SimpleNamespace(monotonic=time.process_time)
from quiltdp.cli.app import main
main()
"""


def command(path: Path, adversary: str, given: argparse.Namespace) -> list[str]:
    seconds, memory = given.time_limit, given.memory_limit
    start = ["-c", BUSY] if given.busy else ["-m", "quiltdp"]
    call = [sys.executable, *start, "calibrate", str(path), "--epsilon", "1", "--sensitivity", "1"]
    call += ["--adversary", adversary, "--time-limit", str(seconds), "--json"]
    call += ["--memory-limit", memory] if memory else []
    return call + (["--allele-frequency", "0.1"] if path.suffix == ".fam" else [])


def run(path: Path, adversary: str, given: argparse.Namespace) -> Run:
    """Return what one fresh process answers."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as out:
        started = time.monotonic()
        child = subprocess.Popen(command(path, adversary, given), stdout=out, cwd=ROOT, env=environment)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 3):
            raise SystemExit(f"{path.name}, {adversary}: exit code {child.returncode}")
        out.seek(0)
        answer = json.loads(out.read())
    return Run(
        path.name.partition(".")[0],
        adversary,
        wall,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        answer["certificate"]["stage"],
        answer["sigma"],
        "partial" in answer,
    )


def taken(r: Run, given: argparse.Namespace) -> float:
    """Return the seconds that count."""
    return r.processor if given.busy else r.wall


def line(r: Run, given: argparse.Namespace) -> str:
    late = "late" if taken(r, given) > given.time_limit + GRACE else ""
    cells = [
        r.model,
        r.adversary,
        f"{r.wall:.1f}",
        f"{r.processor:.1f}",
        f"{r.peak / 2**20:,.0f}",
        f"{r.stage}{', cut short' if r.struck else ''}",
        f"{r.sigma:.6g}",
        late,
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--memory-limit")
    parser.add_argument("--only", default="")
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--busy", action="store_true")
    given = parser.parse_args()
    kind = " of processor time (the machine was shared)" if given.busy else ""
    limits = f"a limit of {given.time_limit:g} s{kind}" + (
        f" and {given.memory_limit}" if given.memory_limit else ""
    )
    columns = ["model", "adversary", "wall s", "processor s", "peak MB", "stage", "σ", ""]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    chosen = {n for n in given.only.split(",") if n}
    runs = []
    for path in shipped():
        if chosen and path.name.partition(".")[0] not in chosen:
            continue
        for adversary in ("informed", "prior"):
            runs.append(run(path, adversary, given))
            lines.append(line(runs[-1], given))
            print(lines[-1], flush=True)
    late = sum(taken(r, given) > given.time_limit + GRACE for r in runs)
    said = (
        f"{len(runs)} answers, {late} later than {given.time_limit:g} + {GRACE:g} s;"
        f" the longest took {max(taken(r, given) for r in runs):.1f} s,"
        f" the largest {max(r.peak for r in runs) / 2**20:,.0f} MB."
    )
    print(said)
    if given.docs is not None:
        text = "\n".join([HEAD.format(limits=limits), said, "", *lines]) + "\n"
        given.docs.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
