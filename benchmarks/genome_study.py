"""A study of many families, all of different shape: killed again and again, gone on with, and measured.

    python benchmarks/genome_study.py [--families 10000] [--loci 1000] [--folder DIR] [--docs FILE]

``quiltdp pedigree`` is asked for the first eighth of the families, the first quarter, half, all of them,
with one journal: every part is killed once on its way and begun again.  At the end the first families are
asked for without a journal; their lines must be the same.  With ``--folder`` the study and its journal stay
there, and the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from bench_scaling import genome_file
from family_shapes import fam_lines, families

from quiltdp.io.replace import write_whole

COMPARED = 100  # families whose lines are compared with a run that was never killed


class Run(NamedTuple):
    """What one process did: new families, processor seconds, the largest memory, killed or not."""

    families: int
    seconds: float
    megabytes: float
    killed: bool


# -- runs -----------------------------------------------------------------------------------------------


def run(words: list[str], journal: Path | None, kill_after: int | None) -> Run:
    """Run ``quiltdp pedigree``; kill it once its journal has grown by ``kill_after`` lines."""
    before = kept(journal)
    started = subprocess.Popen(
        [sys.executable, "-m", "quiltdp", "pedigree", *words], stdout=subprocess.DEVNULL
    )
    killed = False
    while True:
        pid, status, used = os.wait4(started.pid, os.WNOHANG)
        if pid:
            break
        if kill_after is not None and not killed and kept(journal) - before >= kill_after:
            started.send_signal(signal.SIGKILL)
            killed = True
        time.sleep(0.2)
    started.returncode = os.waitstatus_to_exitcode(status)
    if not killed and started.returncode:
        raise SystemExit(f"quiltdp genome ended with {started.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Run(kept(journal) - before, used.ru_utime + used.ru_stime, used.ru_maxrss * unit / 1e6, killed)


def kept(journal: Path | None) -> int:
    """Return how many answers a journal holds."""
    if journal is None or not journal.exists():
        return 0
    with journal.open("rb") as file:
        return sum(1 for _ in file) - 1  # the first line says what it is


def study(folder: Path, most: int, loci: int, workers: int) -> list[tuple[int, list[Run]]]:
    """Account for growing parts of the study; return the runs that each part took."""
    frequencies = folder / "panel.afreq"
    frequencies.write_bytes(genome_file(loci).read_bytes())
    drawn = families(most)
    journal = folder / "journal.jsonl"

    def words(size: int) -> list[str]:
        part = folder / f"{size}.fam"
        with part.open("w") as file:
            for line in chain.from_iterable(fam_lines(f"F{k}", one) for k, one in enumerate(drawn[:size])):
                file.write(line + "\n")
        given = ["--allele-frequency", str(frequencies), "--epsilon", "1", "--work", "quick"]
        return [str(part), *given, "--workers", str(workers), "-o", str(folder / f"{size}.tsv")]

    parts = []
    for size in sorted({max(2, most // k) for k in (8, 4, 2, 1)}):
        left = size - kept(journal)
        asked = [*words(size), "--journal", str(journal)]
        runs = [run(asked, journal, left // 2)] if left > 1 else []
        runs.append(run(asked, journal, None))
        parts.append((size, runs))
        print(f"{size:,} families:", *runs, sep="\n  ", flush=True)
    few = min(COMPARED, most)
    run([*words(few), "--journal", "none"], None, None)
    with (folder / f"{few}.tsv").open() as alone, (folder / f"{most}.tsv").open() as together:
        if list(alone) != list(islice(together, few + 1)):
            raise SystemExit("a study that was killed answers differently")
    return parts


def told(parts: list[tuple[int, list[Run]]], loci: int, workers: int) -> str:
    lines = [
        f"All of different shape (no two alike up to names), {loci:,} loci, 4 frequencies, both adversaries,"
        f" a journal, {workers} worker{'s' * (workers > 1)}. Every part was killed once on its way and begun"
        f" again; the first answers ({COMPARED} at most) are those of a run that was never killed.",
        "",
        "| families in all | new ones | processor s | ms a family | largest memory, MB |",
        "|---:|---:|---:|---:|---:|",
    ]
    for size, runs in parts:
        new, seconds = sum(r.families for r in runs), sum(r.seconds for r in runs)
        cost = f"{1e3 * seconds / new:.0f}" if new else "–"
        lines.append(
            f"| {size:,} | {new:,} | {seconds:.0f} | {cost} | {max(r.megabytes for r in runs):.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", type=int, default=10_000)
    parser.add_argument("--loci", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the study and its journal stay")
    parser.add_argument("--docs", type=Path, help="write this page")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as new:
        folder = asked.folder or Path(new)
        folder.mkdir(parents=True, exist_ok=True)
        text = told(study(folder, asked.families, asked.loci, asked.workers), asked.loci, asked.workers)
    print(text)
    if asked.docs is not None:
        write_whole(asked.docs, f"# A study of many families\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
